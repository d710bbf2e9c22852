"""A cgroup with a small memory limit, for programs that shall be killed for memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Path]:
    """The `cgroup.procs` of a new cgroup, version 1 or 2; the test is skipped where none can be made."""
    version_1 = (CGROUPS / "memory" / "memory.limit_in_bytes").exists()
    folder = (CGROUPS / "memory" if version_1 else CGROUPS) / f"flightlog-test-{uuid4().hex[:8]}"
    if os.geteuid() != 0:
        pytest.skip("making a cgroup needs root")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            if version_1:
                (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
            else:
                (folder / "memory.max").write_text(str(limit_bytes))
                (folder / "memory.swap.max").write_text("0")
        except OSError as error:
            pytest.skip(f"no memory limit can be set here: {error}")
        yield folder / "cgroup.procs"
    finally:
        for _ in range(100):  # a killed process leaves its cgroup a moment later
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.05)
