"""Debian's packages, installed where a program is missing; none of their services is started."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

SBIN = "/usr/sbin:/sbin"


class NoPackage(Exception):
    """A package cannot be had here; the message says why, with what apt said."""


def find(program: str) -> str | None:
    """Where a program is; also in the folders that only root's PATH names."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + SBIN)


def install(programs: dict[str, str], *also: str) -> list[str]:
    """Install the packages of the programs that are missing, with `also` beside them; gives what was
    missing."""
    missing = [package for program, package in programs.items() if find(program) is None]
    if not missing:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoPackage(
            f"Debian packages are missing ({' '.join(missing)}): install them as root with apt-get"
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # 1: no service is started
    with Path("/run/flightlog-tests-apt.lock").open("w") as lock:  # one apt at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        _apt(["update", "-qq"], quiet)
        _apt(["install", "-qq", "--no-install-recommends", *missing, *also], quiet)
    return missing


def _apt(words: list[str], environ: dict[str, str]) -> None:
    done = subprocess.run(
        ["apt-get", "-y", *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise NoPackage(f"apt-get {' '.join(words)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
