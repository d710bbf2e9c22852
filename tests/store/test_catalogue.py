from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.runs import START, at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import UsageError
from flightlog.store import layout
from flightlog.store.catalogue import RunEntry, finish_removals, list_runs, plan_gc, remove_run
from flightlog.store.documents import write_document
from flightlog.store.layout import WriterInfo
from flightlog.store.liveness import Observer, unix_time

NOW = 1_790_000_000.0  # months after the built runs
HERE = Observer(now=NOW, host="here", process_started=lambda _pid: None)


def entry(
    name: str, start_s: float | None, size: int = 0, status: str = "completed", end_s: float | None = None
):
    def stamp(seconds: float | None) -> str | None:
        return None if seconds is None else at(seconds)

    return RunEntry(
        path=Path(name),
        run_id=name,
        project="p",
        status=status,
        start_time=stamp(start_s),
        end_time=stamp(end_s),
        duration_s=None,
        tasks_submitted=0,
        tasks_completed=0,
        tasks_failed=0,
        size_bytes=size,
    )


def at_unix(seconds: float) -> float:
    moment = unix_time(START)
    assert moment is not None
    return moment + seconds


def test_runs_are_listed_newest_first_with_what_run_json_says(tmp_path):
    old = make_run(tmp_path, project="old", token="00000001", start_time=at(1), tasks_failed=2)
    new = make_run(tmp_path, project="new", token="00000000", start_time=at(2))
    assert list_runs(tmp_path, observer=HERE) == [
        RunEntry(
            path=path,
            run_id=path.name,
            project=project,
            status="completed",
            start_time=start,
            end_time=at(10),
            duration_s=10.0,
            tasks_submitted=0,
            tasks_completed=0,
            tasks_failed=failed,
            size_bytes=None,
        )
        for path, project, start, failed in ((new, "new", at(2), 0), (old, "old", at(1), 2))
    ]


def test_a_run_that_cannot_be_read_is_listed_with_its_problem(tmp_path):
    path = make_run(tmp_path)
    (path / layout.RUN).unlink()
    assert list_runs(tmp_path, sizes=True, observer=HERE) == [
        RunEntry(
            path=path,
            run_id=path.name,
            project="demo",
            status="unknown",
            start_time=START,
            end_time=None,
            duration_s=None,
            tasks_submitted=None,
            tasks_completed=None,
            tasks_failed=None,
            size_bytes=0,
            problem="run.json: No such file or directory",
        )
    ]


def test_a_run_whose_process_is_gone_is_listed_as_crashed(tmp_path):
    make_run(tmp_path, status="running", end_time=None)
    assert [run.status for run in list_runs(tmp_path, observer=HERE)] == ["crashed"]


def test_only_runs_are_listed_and_each_once(tmp_path):
    path = make_run(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / ".removed-run-20260520T035200Z-demo-00000000").mkdir()
    (tmp_path / "run-20260520T035200Z-demo-00000000").touch()
    (tmp_path / "latest").symlink_to(path, target_is_directory=True)
    elsewhere = make_run(tmp_path / "elsewhere", token="00000009")
    (tmp_path / "linked").symlink_to(elsewhere, target_is_directory=True)
    assert {run.path.name for run in list_runs(tmp_path, observer=HERE)} == {path.name, "linked"}
    assert list_runs(tmp_path / "nowhere") == []


def test_sizes_count_every_file_and_follow_no_link(tmp_path):
    path = make_run(tmp_path)
    (tmp_path / "large").write_bytes(bytes(10_000))
    (path / "link").symlink_to(tmp_path / "large")
    (path / "segments" / "aa").mkdir(parents=True)
    (path / "segments" / "aa" / "tasks.jsonl").write_bytes(bytes(100))
    own = (path / layout.RUN).stat().st_size + 100 + (path / "link").lstat().st_size
    assert [run.size_bytes for run in list_runs(tmp_path, sizes=True, observer=HERE)] == [own]


# --- which to remove


def test_runs_that_ended_too_long_ago_go_the_oldest_first():
    runs = [
        entry("new", 1000),
        entry("long", 0, end_s=900),
        entry("old", 10),
        entry("live", 0, status="running"),
        entry("older", 5, end_s=6),
        entry("timeless", None),
    ]
    assert [run.run_id for run in plan_gc(runs, 500, None, at_unix(1000))] == ["older", "old"]


def test_the_oldest_go_until_the_rest_is_small_enough():
    runs = [entry("c", 3, 30), entry("a", 1, 10), entry("b", 2, 20), entry("live", 0, 50, "running")]
    assert [run.run_id for run in plan_gc(runs, None, 100, at_unix(10))] == ["a"]
    assert [run.run_id for run in plan_gc(runs, None, 80, at_unix(10))] == ["a", "b"]
    assert [run.run_id for run in plan_gc(runs, None, 0, at_unix(10))] == ["a", "b", "c"]
    assert plan_gc(runs, None, 110, at_unix(10)) == []
    assert plan_gc(runs, None, None, at_unix(10)) == []


def test_a_limit_in_bytes_needs_sizes():
    unsized = RunEntry(Path("a"), "a", "p", "completed", None, None, None, None, None, None, None)
    with pytest.raises(ValueError, match="sizes=True"):
        plan_gc([unsized], None, 10, 0.0)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.booleans()), max_size=12),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 60),
)
def test_gc_keeps_what_lives_and_removes_no_more_than_it_must(made, older_than, max_bytes):
    runs = [
        entry(f"r{i}", start, size, "running" if live else "completed")
        for i, (start, size, live) in enumerate(made)
    ]
    chosen = plan_gc(runs, older_than, max_bytes, at_unix(50))
    kept = [run for run in runs if run not in chosen]
    assert all(run.status != "running" for run in chosen)
    idle = [run for run in kept if run.status != "running"]
    if older_than is not None:
        assert all(50 - made[runs.index(run)][0] <= older_than for run in idle)
    if max_bytes is not None and idle:
        assert sum(run.size_bytes or 0 for run in kept) <= max_bytes
    by_size = [run for run in chosen if older_than is None or 50 - made[runs.index(run)][0] <= older_than]
    if by_size:  # the last one chosen for its size was needed
        assert max_bytes is not None
        assert sum(run.size_bytes or 0 for run in [*kept, by_size[-1]]) > max_bytes


# --- removing


def test_a_run_is_removed_whole(tmp_path):
    path = make_run(tmp_path)
    other = make_run(tmp_path, token="00000002")
    (path / "outside").symlink_to(other, target_is_directory=True)
    [run] = [run for run in list_runs(tmp_path, observer=HERE) if run.path == path]
    remove_run(run, observer=HERE)
    assert [file.name for file in tmp_path.iterdir()] == [other.name]
    assert (other / layout.RUN).exists()


def test_a_run_that_came_alive_since_it_was_listed_is_not_removed(tmp_path):
    path = make_run(tmp_path, status="running", end_time=None, pid_start=5.0)
    [run] = list_runs(tmp_path, observer=HERE)
    alive = Observer(now=NOW, host="node-1", process_started=lambda _pid: 5.0)
    with pytest.raises(UsageError, match=r"it is running \(process 1 on node-1\)"):
        remove_run(run, observer=alive)
    assert path.exists()


def test_a_run_into_which_a_child_still_writes_is_not_removed(tmp_path):
    path = make_run(tmp_path)
    folder = layout.writer_folder(path, "aa")
    folder.mkdir(parents=True)
    write_document(folder / layout.WRITER, WriterInfo(writer="aa", pid=7, host="node-1", pid_start=5.0))
    [run] = list_runs(tmp_path, observer=HERE)
    alive = Observer(now=NOW, host="node-1", process_started=lambda _pid: 5.0)
    with pytest.raises(UsageError, match="process 7 on node-1 still writes into it"):
        remove_run(run, observer=alive)
    remove_run(run, observer=HERE)
    assert not path.exists()


def test_a_run_that_is_just_being_made_is_not_removed(tmp_path):
    path = make_run(tmp_path)
    (path / layout.RUN).unlink()
    [run] = list_runs(tmp_path, observer=HERE)
    os.utime(path, (NOW - 30, NOW - 30))
    with pytest.raises(UsageError, match="it may be starting"):
        remove_run(run, observer=HERE)
    os.utime(path, (NOW - 90, NOW - 90))
    remove_run(run, observer=HERE)
    assert not path.exists()


def test_links_and_other_folders_are_not_removed(tmp_path):
    path = make_run(tmp_path / "runs")
    (tmp_path / "link").symlink_to(path, target_is_directory=True)
    (tmp_path / "thesis").mkdir()
    [run] = list_runs(tmp_path / "runs", observer=HERE)
    for name, message in (("link", "is a link"), ("thesis", "is not a run"), ("gone", "is not a run")):
        other = RunEntry(
            tmp_path / name, *(getattr(run, field) for field in list(RunEntry.__annotations__)[1:])
        )
        with pytest.raises(UsageError, match=message):
            remove_run(other, observer=HERE)
    assert path.exists()
    assert (tmp_path / "thesis").exists()


def test_what_an_interrupted_removal_left_is_cleared(tmp_path):
    path = make_run(tmp_path)
    path.rename(path.with_name(f".removed-{path.name}"))
    kept = make_run(tmp_path, token="00000002")
    assert finish_removals(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [kept]
