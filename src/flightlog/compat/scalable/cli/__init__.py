"""`scalable.cli`: the command line."""
