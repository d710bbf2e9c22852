"""Pure analysis: a run in, a frozen result out."""
