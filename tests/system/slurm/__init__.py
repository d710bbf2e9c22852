"""A real Slurm on this machine, for the tests: `from slurm.cluster import Cluster`, or `python -m slurm` in
the folder above."""
