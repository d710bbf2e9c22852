"""The real components that system tests run against, each started once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import chromium
from runs_to_look_at import RunsToLookAt, runs_to_look_at, write_large
from slurm.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let two processes share the suite, each file in one of them: what is started for a file is started
    once.

    All that starts a cluster goes to the same process, and so does all that reads the run of 1,000,000 tasks.
    """
    clusters, large = set[Path](), set[Path]()
    for item in items:
        needs = set(getattr(item, "fixturenames", ()))
        if "slurm" in needs or {"ray", "dragon"} & set(item.path.stem.split("_")):
            clusters.add(item.path)
        elif "large_run" in needs:
            large.add(item.path)
    for item in items:
        if item.path.parent == Path(__file__).parent:
            name = (
                "clusters" if item.path in clusters else "large run" if item.path in large else item.path.stem
            )
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm of three nodes, all of them this machine; Debian's packages are installed where they are
    missing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("a Slurm of the test suite's own needs root and Debian's packages")
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A closed run of 1,000,000 tasks, written once, and removed afterwards."""
    folder = tmp_path_factory.mktemp("large")
    yield write_large(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory, large_run: Path) -> Iterator[RunsToLookAt]:
    """The six runs that pages are opened on; one of them is being written until the module's tests are
    over."""
    with runs_to_look_at(tmp_path_factory.mktemp("looked-at"), large_run) as runs:
        yield runs


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, started once a module, since one thread drives no two; each page has a profile of
    its own."""
    with chromium() as started:
        yield started
