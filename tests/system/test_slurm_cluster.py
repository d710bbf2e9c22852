"""The Slurm that the tests start: once, whoever asks, and gone when it is stopped, whoever stops it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slurm.cluster import PIDS, Cluster

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and b") Z " not in stat.read_bytes()


def test_starting_what_runs_starts_nothing(slurm: Cluster):
    before = (slurm.folder / PIDS).read_text()
    again = Cluster(slurm.folder).start()
    assert (slurm.folder / PIDS).read_text() == before
    assert again.run("sinfo", "-h", "-p", "debug", "-o", "%D %c").strip() == "3 8"


def test_another_process_stops_all_of_it_by_what_stands_in_its_folder(slurm: Cluster, tmp_path: Path):
    first = Cluster(tmp_path / "second").start()
    pids = json.loads((first.folder / PIDS).read_text())
    job = first.submit("sleep 1000")
    first.until_running(job)
    Cluster(first.folder).stop()
    assert {name for name, pid in pids.items() if is_alive(pid)} == set()
    first.stop()
    assert slurm.run("sinfo", "-h", "-p", "debug", "-o", "%D").strip() == "3"  # the other one goes on
