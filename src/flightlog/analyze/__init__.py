"""Analysis: a run in, a frozen result out. Nothing here writes, prints or waits, but for `verify.repair`."""
