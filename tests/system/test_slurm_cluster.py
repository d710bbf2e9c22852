"""The Slurm that the tests start: once, whoever asks, and gone when it is stopped, whoever stops it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from slurm.cluster import PIDS, Cluster
from slurm.packages import NoSlurm

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


def test_one_that_lost_its_folder_is_stopped_all_the_same(tmp_path: Path):
    first = Cluster(tmp_path / "lost").start()
    pids = json.loads((first.folder / PIDS).read_text())
    shutil.rmtree(first.folder)
    assert Cluster(tmp_path / "other" / ".." / "lost").stop() >= len(pids)
    assert {name for name, pid in pids.items() if is_alive(pid)} == set()
    first.stop()  # they were its children


def test_starting_where_one_runs_in_part_leaves_nothing_of_it(tmp_path: Path):
    first = Cluster(tmp_path / "half").start()
    before = json.loads((first.folder / PIDS).read_text())
    os.kill(before["slurmctld"], signal.SIGKILL)
    again = Cluster(first.folder).start()
    assert {name for name, pid in before.items() if is_alive(pid)} == set()
    assert again.run("sinfo", "-h", "-p", "debug", "-o", "%D").strip() == "3"
    again.stop()
    first.stop()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(NoSlurm, match="holds something else than a Slurm"):
        Cluster(tmp_path).start()
    assert (tmp_path / "thesis.tex").read_text() == "all of it"
