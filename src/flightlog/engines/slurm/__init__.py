"""Sessions on Slurm, and what its accounting knows."""
