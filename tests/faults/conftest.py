"""Faults that several tests need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from io_faults import IoFaults, build


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 2 MB."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False)
    if mounted.returncode != 0:
        pytest.skip("no mounts are allowed here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="session")
def io_faults(tmp_path_factory: pytest.TempPathFactory) -> IoFaults:
    """The library that makes file operations fail, built once."""
    return build(tmp_path_factory.mktemp("io_faults"))
