"""Disks that fail on command: builds `io_faults.c`, and says by which environment a program gets which
faults."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = ("open", "write", "fsync", "mkdir", "rename", "ftruncate", "fallocate", "unlink")


class IoFaults:
    """The library, built; called, it gives the environment of a program whose calls below a folder fail.

    One of `at`, `from_` and `probability` says which of the calls: the n-th alone, the n-th and all later
    ones, or each with a probability. With `switch`, only while that file exists.
    """

    def __init__(self, library: Path) -> None:
        self.library = library

    def __call__(
        self,
        below: Path,
        calls: str,
        error: str,
        *,
        at: int | None = None,
        from_: int | None = None,
        probability: float | None = None,
        seed: int = 1,
        switch: Path | None = None,
    ) -> dict[str, str]:
        chosen = {
            "BELOW": below,
            "CALLS": calls,
            "ERRNO": getattr(errno, error),
            "AT": at,
            "FROM": from_,
            "PROBABILITY": probability,
            "SEED": seed,
            "SWITCH": switch,
        }
        clean = {
            k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT", "IO_FAULTS"))
        }
        faults = {f"IO_FAULTS_{name}": str(value) for name, value in chosen.items() if value is not None}
        return {**clean, **faults, "LD_PRELOAD": str(self.library)}


def build(folder: Path) -> IoFaults:
    """Build the library into a folder; skips the test where that cannot be done."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("faults of a disk need a C compiler on Linux")
    library = folder / "io_faults.so"
    source = Path(__file__).with_suffix(".c")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        pytest.skip(f"the library of faults cannot be built: {built.stderr[-300:]}")
    return IoFaults(library)
