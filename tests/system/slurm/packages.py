"""Debian's packages of Slurm, installed where they are missing; none of their services is started."""

from __future__ import annotations

import os
import shutil
import subprocess

PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sacct": "slurm-client",
}
"""What is started, and the package it comes with."""
SBIN = "/usr/sbin:/sbin"


class NoSlurm(Exception):
    """Slurm cannot be had or started here; the message says why, with the end of the log."""


def find(program: str) -> str | None:
    """Where a program is; also in the folders that only root's PATH names."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + SBIN)


def install() -> list[str]:
    """Install what is missing, and give the names of the packages; a `NoSlurm` says what apt said."""
    missing = [package for program, package in PROGRAMS.items() if find(program) is None]
    if not missing:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoSlurm(f"Debian packages are missing ({' '.join(missing)}): install them as root with apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # 1: no service is started
    _apt(["update", "-qq"], quiet)
    _apt(["install", "-qq", "--no-install-recommends", *missing, "slurm-wlm-basic-plugins"], quiet)
    return missing


def _apt(words: list[str], environ: dict[str, str]) -> None:
    done = subprocess.run(
        ["apt-get", "-y", *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise NoSlurm(f"apt-get {' '.join(words)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
