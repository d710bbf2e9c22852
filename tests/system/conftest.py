"""The real components that system tests run against, each started once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from slurm.cluster import Cluster


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm of three nodes, all of them this machine; Debian's packages are installed where they are missing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("a Slurm of the test suite's own needs root and Debian's packages")
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()
