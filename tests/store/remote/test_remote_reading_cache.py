"""The local copies of remote runs: bounded, private, and safe with several readers at once, one of them
killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from builders.counted_remote import sync
from builders.runs import at, make_run

from flightlog.events import TaskSubmitted
from flightlog.store.completing import open_run
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import here
from flightlog.store.remote.mirror import (
    CachedRun,
    CopiedFile,
    RemoteCache,
    cache_root,
    folder_name,
    make_room,
)
from flightlog.store.runs_folder import folder_of_runs

READER = """
import hashlib, sys
from flightlog.store.completing import open_run
run = open_run("latest", runs_dir=sys.argv[1])
files = {
    p.relative_to(run.path).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
    for p in run.path.rglob("*") if p.is_file()
}
digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
print(sum(1 for _ in run.events("tasks")), digest, run.problems)
"""
STUCK = """
import sys
from fsspec.implementations.local import LocalFileSystem
def stuck(self, path, *args, _cat=LocalFileSystem.cat_file, **kwargs):
    if path.endswith("tasks.jsonl"):
        print("fetching", flush=True)
        sys.stdin.read()
    return _cat(self, path, *args, **kwargs)
LocalFileSystem.cat_file = stuck
from flightlog.store.completing import open_run
open_run("latest", runs_dir=sys.argv[1])
"""


def copied_run(folder: Path, tasks: int = 2000, token: str = "a1b2c3d4") -> str:
    """A run at a `file://` address, which this gives."""
    events = [
        TaskSubmitted(timestamp=at(1), task="sim", task_id=f"t{n}", args={"seed": n}) for n in range(tasks)
    ]
    address = f"file://{folder}/place"
    sync(make_run(folder / "runs", events, token=token), address)
    return address


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    return tmp_path / "copies"


def test_several_processes_that_open_a_run_at_once_all_see_it_whole(tmp_path: Path, root: Path) -> None:
    address = copied_run(tmp_path)
    command = [sys.executable, "-c", READER, address]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {reader.communicate()[0] for reader in readers}
    assert [reader.returncode for reader in readers] == [0, 0, 0, 0]
    assert len(answers) == 1
    assert answers.pop().startswith("2000 ")
    assert not list(root.rglob("*.tmp")) + list(root.rglob("*.new"))


def test_a_reader_that_is_killed_while_it_fetches_leaves_nothing_behind(tmp_path: Path, root: Path) -> None:
    address = copied_run(tmp_path)
    reader = subprocess.Popen(
        [sys.executable, "-c", STUCK, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdin is not None
    assert reader.stdout.readline() == "fetching\n"
    os.kill(reader.pid, signal.SIGKILL)
    reader.communicate()
    opened = open_run("latest", runs_dir=address)
    assert (sum(1 for _ in opened.events("tasks")), opened.problems) == (2000, ())
    assert not list(root.rglob("*.tmp")) + list(root.rglob("*.new"))


def test_copies_are_for_the_user_alone_and_their_folder_tells_no_secret(tmp_path: Path, root: Path) -> None:
    folder = folder_of_runs(copied_run(tmp_path))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder == root / folder_name(f"file://{tmp_path}/place")
    assert (folder / ".remote" / "address").read_text() == f"file://{tmp_path}/place\n"


def test_the_user_s_cache_is_where_copies_go() -> None:
    assert cache_root({"XDG_CACHE_HOME": "/var/cache/me"}) == Path("/var/cache/me/flightlog/remote")
    assert cache_root({"HOME": "/home/me"}) == Path("/home/me/.cache/flightlog/remote")


def filled(root: Path, name: str, sizes: dict[str, int], used: dict[str, float]) -> RemoteCache:
    cache = RemoteCache(root / name, name)
    cache.prepare()
    for run_id, size in sizes.items():
        (cache.path(run_id) / "segments").mkdir(parents=True)
        (cache.path(run_id) / "run.json").write_bytes(b"{}")
        (cache.path(run_id) / "tasks.jsonl").write_bytes(b"x" * size)
        files = {"run.json": CopiedFile("a", 2), "tasks.jsonl": CopiedFile("b", size)}
        with cache.locked(run_id):
            cache.write_state(
                run_id, CachedRun(content="v", final=True, files=files, versions={"run.json": "v1"})
            )
        os.utime(cache.folder / ".remote" / f"{run_id}.lock", (used[run_id], used[run_id]))
    return cache


def test_the_longest_unused_runs_go_first_and_stay_listed(tmp_path: Path) -> None:
    now = 1_000_000.0
    used = {
        "run-a": now - 3 * StoreLimits.mirror_in_use_s,
        "run-b": now - 2 * StoreLimits.mirror_in_use_s,
        "run-c": now - 10,
    }
    one = filled(tmp_path, "one", {"run-a": 100, "run-b": 100}, used)
    two = filled(tmp_path, "two", {"run-c": 100}, used)
    (tmp_path / "foreign").mkdir()
    assert make_room(tmp_path, 306, now=now) == 0
    assert make_room(tmp_path, 250, now=now) == 100
    assert sorted(path.name for path in one.path("run-a").iterdir()) == ["run.json"]
    assert one.state_of("run-a") == CachedRun(
        files={"run.json": CopiedFile("a", 2)}, versions={"run.json": "v1"}
    )
    assert (one.path("run-b") / "tasks.jsonl").exists()
    assert make_room(tmp_path, 0, now=now, spare={one.path("run-b")}) == 0
    assert make_room(tmp_path, 0, now=now) == 100  # run-c is in use
    assert (two.path("run-c") / "tasks.jsonl").exists()
    assert list((tmp_path / "foreign").iterdir()) == []


def test_a_run_whose_files_were_removed_for_room_is_fetched_again(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = copied_run(tmp_path)
    copied_run(tmp_path, token="b1b2c3d4")
    folder = folder_of_runs(address)
    first = open_run("a1b2c3d4", runs_dir=address)
    assert make_room(root, 0, now=here().now + 2 * StoreLimits.mirror_in_use_s) > 100_000
    assert sorted(file.name for file in first.path.iterdir()) == ["run.json"]
    assert len(list(folder.glob("run-*"))) == 2
    again = open_run("a1b2c3d4", runs_dir=address)
    assert sum(1 for _ in again.events("tasks")) == 2000


def test_what_is_known_of_a_copy_is_forgotten_where_it_cannot_be_read(tmp_path: Path) -> None:
    cache = filled(tmp_path, "one", {"run-a": 1}, {"run-a": 0.0})
    for damage in (b"", b"{", b"[]", b"\xff"):
        (cache.folder / ".remote" / "run-a.json").write_bytes(damage)
        assert cache.state_of("run-a") == CachedRun()
