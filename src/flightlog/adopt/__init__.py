"""Recordings of other tools, made into runs: one reader per tool, one writer of runs."""
