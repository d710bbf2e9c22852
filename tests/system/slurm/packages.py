"""Debian's packages of Slurm, installed where they are missing; none of their services is started."""

from __future__ import annotations

import debian
from debian import SBIN, find

__all__ = ["SBIN", "NoSlurm", "find", "install"]

PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sacct": "slurm-client",
}
"""What is started, and the package it comes with."""


class NoSlurm(Exception):
    """Slurm cannot be had or started here; the message says why, with the end of the log."""


def install() -> list[str]:
    """Install what is missing, and give the names of the packages; a `NoSlurm` says what apt said."""
    try:
        return debian.install(PROGRAMS, "slurm-wlm-basic-plugins")
    except debian.NoPackage as error:
        raise NoSlurm(str(error)) from None
