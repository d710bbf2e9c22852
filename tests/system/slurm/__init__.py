"""A real Slurm on this machine, for the tests: `from slurm.cluster import Cluster`, or `python -m tests.system.slurm`."""
