"""The index of a folder of runs: it answers as a reader without one does, and opens nothing that stayed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import TaskCompleted, TaskSubmitted
from flightlog.store import layout
from flightlog.store.catalogue import list_runs, past_runs, run_paths
from flightlog.store.documents import read_document
from flightlog.store.headline import CostHeadline, decode_headline, headline_bytes, headline_of
from flightlog.store.index import RunIndex, index_file, load_index
from flightlog.store.layout import RunInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer
from flightlog.store.run import Run

AT_ONCE = -(10**18)
"""Keeps what was written this moment, too; for tests that wait for the file system's clock instead."""


def look(runs: Path, *, settled_ns: int = AT_ONCE, worthwhile: int = 0, task: str | None = None):
    """What an index gives of every run, by name; and the index."""
    paths = run_paths(runs)
    with RunIndex(runs, paths, settled_ns=settled_ns, worthwhile=worthwhile) as index:
        found = zip(paths, index.infos(paths), index.headlines(paths, task), strict=True)
        return {path.name: (info, headline) for path, info, headline in found}, index


def without_index(runs: Path):
    """The same from the documents alone."""
    found = {}
    for path in run_paths(runs):
        info = read_document(path / layout.RUN, RunInfo)
        try:
            headline = decode_headline((path / layout.SUMMARY).read_bytes(), StoreLimits.max_index_names)
        except OSError:
            headline = None
        whole = headline is not None and info.value is not None
        same = whole and headline.run.run_id in {None, info.value.run_id}
        found[path.name] = (info, headline if same else None)
    return found


def wait_for_the_clock(folder: Path) -> None:
    """Until a file that is written now bears another time than all that were written before."""
    probe = folder / "probe"
    probe.write_bytes(b"")
    first = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first:
        os.utime(probe)
    probe.unlink()


def closed(runs: Path, token: str, *tasks: str, **info: object) -> Path:
    events = []
    for number, task in enumerate(tasks):
        task_id = str(number)
        events += [
            TaskSubmitted(task=task, task_id=task_id, args={}),
            TaskCompleted(task=task, task_id=task_id, args={}, worker="w", duration_s=1.0 + number),
        ]
    path = make_run(runs, events, token=token, **info)
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    return path


# --- nothing that stayed is opened


def test_what_stayed_as_it_was_is_not_opened_again(tmp_path):
    for number in range(3):
        closed(tmp_path, f"{number:08x}", "sim", "plot")
    first, index = look(tmp_path)
    assert index.opened == 6
    again, index = look(tmp_path)
    assert (again, index.opened) == (first, 0)
    assert again == without_index(tmp_path)


def test_only_what_changed_is_opened(tmp_path):
    paths = [closed(tmp_path, f"{number:08x}", "sim") for number in range(3)]
    look(tmp_path)
    wait_for_the_clock(tmp_path)
    (paths[1] / layout.RUN).write_bytes((paths[1] / layout.RUN).read_bytes().replace(b"completed", b"failed"))
    found, index = look(tmp_path)
    assert (found[paths[1].name][0].value.status, index.opened) == ("failed", 1)
    assert look(tmp_path)[1].opened == 0


def test_a_list_does_not_open_summaries(tmp_path):
    closed(tmp_path, "00000001", "sim")
    paths = run_paths(tmp_path)
    with RunIndex(tmp_path, paths, worthwhile=0) as index:
        index.infos(paths)
    assert index.opened == 1


def test_a_run_that_says_it_is_running_is_read_every_time(tmp_path):
    path = make_run(tmp_path, status="running", end_time=None)
    look(tmp_path)
    assert look(tmp_path)[1].opened == 1
    wait_for_the_clock(tmp_path)
    document = (path / layout.RUN).read_bytes()
    (path / layout.RUN).write_bytes(document.replace(b'"running"', b'"completed"'))
    look(tmp_path)
    found, index = look(tmp_path)
    assert (found[path.name][0].value.status, index.opened) == ("completed", 0)


def test_whether_a_run_lives_is_judged_at_every_look(tmp_path):
    """Fifty runs, so that lists go through the index, which holds them all."""
    for number in range(49):
        make_run(tmp_path, token=f"{number:08x}")
    make_run(tmp_path, token="ffffffff", status="running", end_time=None, pid_start=5.0)
    look(tmp_path)
    assert len(load_index(index_file(tmp_path))) == 50
    for started, status in ((5.0, "running"), (None, "crashed"), (5.0, "running"), (9.0, "crashed")):
        observer = Observer(now=0.0, host="node-1", process_started=lambda _pid, at=started: at)
        found = list_runs(tmp_path, observer=observer)
        assert {run.run_id[-8:]: run.status for run in found if run.status != "completed"} == {
            "ffffffff": status
        }
        assert len(found) == 50


# --- never wrong


def test_a_change_that_leaves_size_and_time_as_they_were_is_noticed(tmp_path):
    path = make_run(tmp_path, tasks_failed=1)
    file = path / layout.RUN
    look(tmp_path)
    wait_for_the_clock(tmp_path)
    before = file.stat()
    with file.open("r+b") as out:
        out.write(file.read_bytes().replace(b'"tasks_failed":1', b'"tasks_failed":7'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    assert look(tmp_path)[0][path.name][0].value.tasks_failed == 7


def test_what_was_written_a_moment_ago_is_used_and_not_kept(tmp_path):
    path = closed(tmp_path, "00000001", "sim")
    for failed in (b"3", b"4", b"5"):  # within one tick of many file systems' clocks
        document = msgspec.json.decode((path / layout.RUN).read_bytes()) | {"tasks_failed": int(failed)}
        (path / layout.RUN).write_bytes(msgspec.json.encode(document))
        found, index = look(tmp_path, settled_ns=3_000_000_000)
        assert (found[path.name][0].value.tasks_failed, index.opened) == (int(failed), 2)
        assert not index.file.exists()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_summary_of_another_run_counts_as_none(tmp_path):
    path, other = closed(tmp_path, "00000001", "sim"), closed(tmp_path, "00000002", "plot")
    shutil.copy(other / layout.SUMMARY, path / layout.SUMMARY)
    for _ in range(2):
        found, _ = look(tmp_path)
        assert found[path.name][1] is None
        assert list(found[other.name][1].tasks.by_name) == ["plot"]


RUNS = ["run-20260520T035200Z-a-00000001", "run-20260520T035200Z-b-00000002", "other"]
FILES = [layout.RUN, layout.SUMMARY]
name, file = st.sampled_from(RUNS), st.sampled_from(FILES)
changes = st.one_of(
    st.tuples(st.just("write"), name, st.sampled_from(["completed", "failed", "running"]), st.integers(0, 9)),
    st.tuples(st.just("summary"), name, st.lists(st.sampled_from("abc"), max_size=3)),
    st.tuples(st.just("remove"), name),
    st.tuples(st.just("lose"), name, file),
    st.tuples(st.just("tear"), name, file, st.integers(0, 400)),
    st.tuples(st.just("replace"), name, name),
    st.tuples(st.just("rename"), name, name),
    st.tuples(st.just("keep the time"), name, file),
    st.tuples(st.just("damage"), st.integers(0, 10_000), st.integers(0, 255)),
    st.tuples(st.just("cut"), st.integers(0, 10_000)),
    st.tuples(st.just("forget")),
    st.tuples(st.just("look")),
)


def change(runs: Path, what: str, *args) -> None:
    index = index_file(runs)
    path = runs / args[0] if args and isinstance(args[0], str) else runs
    document = path / args[1] if what in {"lose", "tear", "keep the time"} else path
    if what == "write":
        path.mkdir(exist_ok=True)
        info = RunInfo(run_id=path.name, project="p", status=args[1], start_time="", tasks_failed=args[2])
        (path / layout.RUN).write_bytes(msgspec.json.encode(info))
    elif what == "summary":
        path.mkdir(exist_ok=True)
        tasks = {"by_name": {task: {"submitted": 1} for task in args[1]}, "names": len(set(args[1]))}
        (path / layout.SUMMARY).write_bytes(
            msgspec.json.encode({"run": {"run_id": path.name}, "tasks": tasks})
        )
    elif what == "remove":
        shutil.rmtree(path, ignore_errors=True)
    elif what == "lose":
        document.unlink(missing_ok=True)
    elif what == "tear" and document.exists():
        os.truncate(document, min(args[2], document.stat().st_size))
    elif what == "replace" and path.exists() and args[0] != args[1]:  # a copy, with the times of the original
        shutil.rmtree(runs / args[1], ignore_errors=True)
        shutil.copytree(path, runs / args[1])
    elif what == "rename" and path.exists() and not (runs / args[1]).exists():
        path.rename(runs / args[1])
    elif what == "keep the time" and document.exists():
        before, data = document.stat(), document.read_bytes()
        document.write_bytes(data.replace(b"1", b"2").replace(b"a", b"b"))
        os.utime(document, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif what == "damage" and index.exists() and index.stat().st_size:
        data = bytearray(index.read_bytes())
        data[args[0] % len(data)] = args[1]
        index.write_bytes(data)
    elif what == "cut" and index.exists():
        os.truncate(index, min(args[0], index.stat().st_size))
    elif what == "forget":
        index.unlink(missing_ok=True)


@given(st.lists(changes, min_size=1, max_size=12))
def test_after_any_changes_it_answers_as_the_documents_do(steps):
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        for what, *args in steps:
            change(runs, what, *args)
            if what in {"look", "damage", "cut"}:
                assert look(runs)[0] == without_index(runs)
            wait_for_the_clock(runs)
        found, _ = look(runs)
        assert found == without_index(runs)
        assert look(runs)[0] == found


# --- the file


def test_an_index_of_another_version_or_nobody_knows_what_is_read_anew(tmp_path):
    closed(tmp_path, "00000001", "sim")
    _, index = look(tmp_path)
    good = index.file.read_bytes()
    assert len(load_index(index.file)) == 1
    for bad in (
        b"",
        b"\n",
        b"\xff" * 100,
        good.replace(b"index 3", b"index 2"),
        good[:-1],
        good + b" ",
        b"SQLite",
    ):
        index.file.write_bytes(bad)
        assert load_index(index.file) == {}
        found, again = look(tmp_path)
        assert (found, again.opened) == (without_index(tmp_path), 2)
    assert look(tmp_path)[1].opened == 0


def test_an_index_is_for_its_user_alone(tmp_path):
    closed(tmp_path, "00000001", "sim")
    _, index = look(tmp_path)
    assert index.file.stat().st_mode & 0o777 == 0o600
    assert str(os.geteuid()) in index.file.name


def test_the_index_of_a_folder_that_cannot_be_written_is_in_the_users_cache(tmp_path):
    runs = tmp_path / "runs"
    closed(runs, "00000001", "sim")
    file = index_file(runs, {"XDG_CACHE_HOME": str(tmp_path / "cache")}, writable=False)
    assert not file.parent.exists()
    file.parent.mkdir(parents=True)
    assert file.parent == tmp_path / "cache" / "flightlog" / "runs"
    assert index_file(runs, {"HOME": str(tmp_path)}, writable=False).is_relative_to(tmp_path / ".cache")
    paths = run_paths(runs)
    for opened in (2, 0):
        with RunIndex(runs, paths, file=file, worthwhile=0, settled_ns=AT_ONCE) as index:
            index.infos(paths), index.headlines(paths)
        assert index.opened == opened
    assert [found.name for found in runs.iterdir()] == [paths[0].name]


def test_a_disk_that_refuses_the_index_costs_a_reading_and_no_more(tmp_path):
    closed(tmp_path, "00000001", "sim")
    paths = run_paths(tmp_path)
    with RunIndex(
        tmp_path, paths, file=tmp_path / "gone" / "index", worthwhile=0, settled_ns=AT_ONCE
    ) as index:
        found = index.infos(paths)
    assert [info.value.status for info in found] == ["completed"]
    assert index.problem == f"{tmp_path}/gone/index: No such file or directory"


def test_runs_that_are_gone_leave_the_index_when_it_is_written_next(tmp_path):
    gone = closed(tmp_path, "00000001", "sim")
    _, index = look(tmp_path)
    shutil.rmtree(gone)
    kept = closed(tmp_path, "00000002", "sim")
    assert list(look(tmp_path)[0]) == [kept.name]
    assert list(load_index(index.file)) == [kept.name]


def test_a_folder_whose_name_is_no_text_is_read_every_time(tmp_path):
    path = closed(tmp_path, "00000001", "sim")
    path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/odd-\xff"))
    for _ in range(2):
        assert look(tmp_path)[1].opened == 2


def test_small_folders_get_no_index(tmp_path):
    path = closed(tmp_path, "00000001", "sim")
    _, index = look(tmp_path, worthwhile=2)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert index.opened == 2


def test_drafts_of_processes_that_were_killed_are_cleared(tmp_path):
    closed(tmp_path, "00000001", "sim")
    old, new = (tmp_path / f".{index_file(tmp_path).name}.{pid}-00000000.tmp" for pid in (1, 2))
    for draft in (old, new):
        draft.write_bytes(b"half")
    os.utime(old, (0, 0))
    look(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


READER = """
import sys
from pathlib import Path
from flightlog.store.catalogue import run_paths
from flightlog.store.index import RunIndex
runs = Path(sys.argv[1])
for _ in range(40):
    paths = run_paths(runs)
    with RunIndex(runs, paths, worthwhile=0, settled_ns=-(10**18)) as index:
        for read in index.infos(paths):
            assert read.value is None or read.value.tasks_submitted == read.value.tasks_completed, read
        index.headlines(paths)
    assert index.problem is None, index.problem
"""


def test_many_processes_use_one_index_at_once_while_runs_come_change_and_go(tmp_path):
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    count = 0
    while any(reader.poll() is None for reader in readers):
        count += 1
        path = closed(tmp_path, f"{count:08x}", "sim", tasks_submitted=count, tasks_completed=count)
        info = msgspec.json.decode((path / layout.RUN).read_bytes())
        info |= {"tasks_submitted": 2 * count, "tasks_completed": 2 * count}
        fresh = path / ".run.json.tmp"
        fresh.write_bytes(msgspec.json.encode(info))
        fresh.replace(path / layout.RUN)
        if count > 5:
            shutil.rmtree(path)
    assert [reader.communicate()[1] for reader in readers] == [b""] * 3
    wait_for_the_clock(tmp_path)
    assert look(tmp_path)[0] == without_index(tmp_path)


# --- what is in it


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b'{"run": {"run_id": "a"'])
def test_a_summary_that_is_none_gives_no_headline_and_no_error(data):
    assert decode_headline(data) is None


def test_a_task_beyond_the_kept_names_is_read_from_the_run(tmp_path):
    path = closed(tmp_path, "00000001", *(f"task-{number:03}" for number in range(70)))
    found, _ = look(tmp_path)
    headline = found[path.name][1]
    assert (len(headline.tasks.by_name), headline.tasks.names, headline.is_whole) == (64, 70, False)
    for _ in range(2):
        found, index = look(tmp_path, task="task-069")
        assert (found[path.name][1].tasks.by_name["task-069"].duration_s.max, index.opened) == (70.0, 1)


def test_past_runs_are_the_chosen_ones_with_their_headlines(tmp_path):
    closed(tmp_path, "00000001", "sim", start_time="2026-05-20T01:00:00.000000Z")
    newest = closed(tmp_path, "00000002", "plot", git_commit="abc")
    past = past_runs(tmp_path, choose=lambda entries: entries[:1])
    assert [(run.entry.path, run.info.git_commit, list(run.headline.tasks.by_name)) for run in past] == [
        (newest, "abc", ["plot"])
    ]
    assert [run.headline for run in past_runs(tmp_path, headlines=False)] == [None, None]
    assert [run.entry for run in past_runs(tmp_path)] == list_runs(tmp_path)


def test_a_headline_that_was_counted_from_events_is_kept_while_no_file_changes(tmp_path):
    """Even in a small folder: that took long."""
    path = closed(tmp_path, "00000001", "sim")
    headline = decode_headline((path / layout.SUMMARY).read_bytes())
    (path / layout.SUMMARY).unlink()
    asked = []

    def count(run: Path):
        asked.append(run)
        return headline

    def answer():
        paths = run_paths(tmp_path)
        with RunIndex(tmp_path, paths, settled_ns=AT_ONCE) as index:
            return index.headlines(paths, count=count)

    assert [answer(), answer(), asked] == [[headline], [headline], [path]]
    wait_for_the_clock(tmp_path)
    with layout.stream_file(path, "tasks").open("ab") as out:
        out.write(b"\n")
    assert [answer(), answer(), asked] == [[headline], [headline], [path, path]]


def test_a_cost_that_was_worked_out_is_kept_while_no_file_changes(tmp_path):
    path = closed(tmp_path, "00000001", "sim")
    asked = []

    def cost_of(run: Path):
        asked.append(run)
        return CostHeadline(total=float(len(asked)), currency="EUR")

    def answer():
        paths = run_paths(tmp_path)
        with RunIndex(tmp_path, paths, settled_ns=AT_ONCE) as index:
            [found] = index.headlines(paths, cost_of=cost_of)
        return found.cost.total

    assert [answer(), answer()] == [1.0, 1.0]
    wait_for_the_clock(tmp_path)
    with layout.stream_file(path, "cost").open("ab") as out:
        out.write(b"\n")
    assert ([answer(), answer()], asked) == ([2.0, 2.0], [path, path])


def test_the_cost_that_a_summary_of_an_early_recording_has_is_taken(tmp_path):
    path = closed(tmp_path, "00000001", "sim")
    summary = msgspec.json.decode((path / layout.SUMMARY).read_bytes())
    summary["cost"] = {"total": 2.5, "currency": "EUR", "by_item": {}}
    (path / layout.SUMMARY).write_bytes(msgspec.json.encode(summary))
    paths = run_paths(tmp_path)
    with RunIndex(tmp_path, paths) as index:
        [found] = index.headlines(paths, cost_of=lambda _path: pytest.fail("asked"))
    assert found.cost == CostHeadline(total=2.5, currency="EUR")


@pytest.mark.parametrize("status", ["running", "unknown"])
def test_the_headline_of_a_run_that_did_not_end_is_not_counted(tmp_path, status):
    make_run(tmp_path, status=status)
    paths = run_paths(tmp_path)
    with RunIndex(tmp_path, paths) as index:
        assert index.headlines(paths, count=lambda _path: pytest.fail("asked")) == [None]
