"""What changed between two runs, or two groups of runs."""
