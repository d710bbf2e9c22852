"""The end of a run is short: it hands over the interpreter a few times, imports nothing, and leaves long work
to others."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.runs import finished

import flightlog
from flightlog.analyze.report.report import report_on
from flightlog.cli.main import main
from flightlog.core import threads
from flightlog.core.settings import Settings
from flightlog.events import ResourceSample
from flightlog.record.run import LiveRun
from flightlog.show.runs import runs_text
from flightlog.store import layout
from flightlog.store.catalogue import list_runs
from flightlog.store.completing import complete, complete_ended
from flightlog.store.documents import read_document
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import verify_files
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import open_tables, read_again
from flightlog.store.write.finalize import finalizing

DEADLINE_S = 120.0

# Ends a run of N spans beside busy threads, and tells what its end did: modules imported, calls of the kinds
# that hand over the interpreter (files, locks and waiting), warnings, and the switch interval afterwards. Calls
# of the last sample are counted apart: it reads a file of each thread. Samples are far apart: the last one is
# left out where another is under way.
BUSY = """
import io, json, logging, mmap, sys, threading, time
import flightlog

folder, spans, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
said = []
class Listening(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("flightlog").addHandler(Listening())
over = False
def busy():
    number = 0
    while not over:
        number = (number * 31 + 7) & 0xFFFF
recording = flightlog.record("busy", runs_dir=folder, sample_interval_s=600)
run = recording.__enter__()
for i in range(spans):
    with flightlog.span("work", i=i):
        pass
while not hasattr(sys.modules.get("flightlog.store.completing"), "complete"):  # the last thing of the first beat
    time.sleep(0.05)
free = ("getpid", "monotonic", "perf_counter", "time", "thread_time", "fspath", "urandom", "tell", "find", "seek",
        "release", "monotonic_ns", "perf_counter_ns", "get_ident", "sched_getaffinity", "cpu_count", "_is_owned", "uname",
        "locked", "time_ns")
calls, in_sample = {}, 0
def in_sampler(frame):
    while frame is not None:
        if "/flightlog/samplers/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
def count(frame, event, function):
    global in_sample
    if event == "c_call":
        where = getattr(function, "__module__", None)
        owner = type(getattr(function, "__self__", None))
        if where in {"posix", "fcntl", "time"} or owner.__module__ in {"_io", "mmap", "_thread"}:
            name = f"{where or owner.__module__}.{function.__name__}"
            if function.__name__ in free:
                pass
            elif in_sampler(frame):
                in_sample += 1
            else:
                calls[name] = calls.get(name, 0) + 1
fleet = [threading.Thread(target=busy, daemon=True) for _ in range(threads)]
for one in fleet:
    one.start()
interval = sys.getswitchinterval()
before = set(sys.modules)
sys.setprofile(count)
recording.__exit__(None, None, None)
sys.setprofile(None)
imported = sorted(set(sys.modules) - before)
over = True
for one in fleet:
    one.join()
print(json.dumps({
    "path": str(run.path), "imported": imported, "said": said, "handed": sum(calls.values()), "calls": calls,
    "in_sample": in_sample,
    "interval_kept": sys.getswitchinterval() == interval,
}))
"""


def ended(folder: Path, program: str, *arguments: object, **environ: str) -> dict:
    """What a program tells that ends a run, by the default rules."""
    environment = {name: value for name, value in os.environ.items() if name != "FLIGHTLOG_COMPLETE"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), *map(str, arguments)],
        env={**environment, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def documents(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def _work(run: LiveRun) -> None:
    for i in range(4):
        with run.task("forked", i=i):
            pass


def left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two processes that has ended and that nobody has completed."""
    monkeypatch.setenv("FLIGHTLOG_COMPLETE", "later")
    with flightlog.record("left", runs_dir=folder, sample_interval_s=None) as run:
        for i in range(3):
            with run.task("t", i=i), flightlog.span("mine", i=i):
                pass
        child = multiprocessing.get_context("fork").Process(target=_work, args=(run,))
        child.start()
        child.join()
    assert ("segments" in documents(run.path), "checksums.json" in documents(run.path)) == (True, False)
    return run.path


def test_a_run_that_ends_beside_busy_threads_is_whole_and_hands_over_the_interpreter_a_few_times(tmp_path):
    told = ended(tmp_path, BUSY, 1000, 8)
    run = Run(Path(told["path"]))
    assert (told["imported"], told["said"], told["interval_kept"]) == ([], [], True)
    assert told["handed"] <= 75, told["calls"]
    assert told["in_sample"] <= 140, told
    assert [event.tags["i"] for event in finished(run)] == list(range(1000))
    assert (run.status, run.completeness().problems) == ("completed", ())
    last = [event for event in run.events("resources") if isinstance(event, ResourceSample)][-1]
    assert last.final


def test_the_number_of_handovers_does_not_grow_with_the_run(tmp_path):
    small, large = (ended(tmp_path, BUSY, spans, 2)["handed"] for spans in (1, 10_000))
    assert large <= small + 10


def test_a_small_run_of_a_program_without_other_threads_is_complete_when_its_block_ends(tmp_path):
    told = ended(tmp_path, BUSY, 10, 0)
    path = Path(told["path"])
    assert told["imported"] == []
    assert {"summary.json", "checksums.json", "recorder.json"} <= documents(path)
    assert "segments" not in documents(path)
    assert "to_complete" not in json.loads((path / layout.RUN).read_text())


def test_a_run_that_nobody_has_completed_reads_as_the_same_run_completed(tmp_path, monkeypatch):
    path = left(tmp_path, monkeypatch)
    as_it_was = headline_bytes(headline_of(Run(path)))
    noted = read_document(path / layout.RUN, layout.RunInfo).value
    assert (noted.to_complete, noted.tasks_submitted, noted.tasks_completed) == (True, 3, 3)
    unfinished = Run(path).info
    assert (unfinished.tasks_submitted, unfinished.tasks_completed) == (7, 7)
    [entry] = list_runs(tmp_path)
    assert " ≥ 3 of ≥ 3" in runs_text([entry])  # a list reads `run.json` alone
    opened = flightlog.open_run(path)
    assert {"summary.json", "checksums.json", "recorder.json"} <= documents(path)
    assert "segments" not in documents(path)
    assert (path / layout.SUMMARY).read_bytes() == as_it_was
    assert (opened.info.tasks_submitted, opened.info.tasks_completed) == (7, 7)
    assert verify_files(path) == []


def test_of_readers_that_come_at_once_one_completes_the_run(tmp_path, monkeypatch):
    path = left(tmp_path, monkeypatch)
    together = threading.Barrier(6)

    def read(_: int) -> bool:
        together.wait()
        return complete_ended(path)

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(read, range(6))) == [False] * 5 + [True]
    assert (verify_files(path), len(finished(Run(path))), complete_ended(path)) == ([], 3, False)


def test_a_report_is_made_although_the_run_is_completed_while_it_is_read(tmp_path, monkeypatch):
    path = left(tmp_path, monkeypatch)
    before = report_on(Run(path, note=lambda _: None)).tasks.completed
    opened, calls = Run(path), 0

    @read_again
    def completed_meanwhile() -> int:
        nonlocal calls
        calls += 1
        with open_tables([opened]) as tables:
            tables.make(["task_events"])
            assert complete_ended(path) is (calls == 1)
            return tables.scalar("SELECT count(*) FROM task_events WHERE event = 'task_completed'")

    assert (completed_meanwhile(), calls) == (before, 2)


def test_completing_that_is_cut_off_after_any_step_loses_nothing_and_is_done_again(tmp_path, monkeypatch):
    path = left(tmp_path / "left", monkeypatch)
    steps: list[str] = []
    whole = shutil.copytree(path, tmp_path / "whole" / path.name)
    complete(whole, Settings(), step=steps.append)
    assert steps[-3:] == ["wrote the summary", "wrote the checksums", "wrote run.json"]
    expected, lines = (whole / layout.SUMMARY).read_bytes(), read(whole)
    for stop, step in enumerate(steps):
        cut = shutil.copytree(path, tmp_path / str(stop) / path.name)

        so_far: list[str] = []

        def strike(done: str, so_far: list[str] = so_far, stop: int = stop) -> None:
            so_far.append(done)
            if len(so_far) > stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            complete(cut, Settings(), step=strike)
        assert read(cut) == lines, step
        assert complete_ended(cut) is (step != "wrote run.json"), step
        assert ((cut / layout.SUMMARY).read_bytes(), verify_files(cut)) == (expected, []), step


def read(path: Path) -> dict[str, list[str]]:
    """Every event of a run, each once, by stream; those that stand twice on the way are taken once."""
    run = Run(path)
    return {stream: sorted(map(repr, run.events(stream))) for stream in run.streams()}


def test_a_run_of_somebody_else_and_a_run_that_goes_on_are_left_as_they_are(tmp_path, monkeypatch):
    path = left(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not complete_ended(path)
    monkeypatch.undo()
    with flightlog.record("going", runs_dir=tmp_path, sample_interval_s=None) as run:
        assert not complete_ended(run.path)
    assert not (path / layout.CHECKSUMS).exists()


# Ends a run that is not small, because a child wrote, too.
FORKING = """
import json, os, sys, tempfile
import flightlog
from importlib import import_module
closing = import_module("flightlog.record.closing")
if sys.argv[2] == "elsewhere":
    closing.TEMPORARY = ()
def record(folder):
    with flightlog.record("forked", runs_dir=folder) as run:
        pid = os.fork()
        if not pid:
            with flightlog.span("child"):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
    return run.path
if sys.argv[2] == "elsewhere":
    path = record(sys.argv[1])
    children = "".join(open(f"/proc/self/task/{one}/children").read() for one in os.listdir("/proc/self/task"))
    print(json.dumps({"path": str(path), "children": children}))
else:
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
        found = sorted(os.listdir(record(folder)))
    print(json.dumps({"found": found, "left": os.path.exists(folder)}))
"""


def test_a_process_beside_completes_a_run_of_several_processes_and_is_no_child_of_the_program(tmp_path):
    told = ended(tmp_path, FORKING, "elsewhere", TMPDIR="", TEMP="", TMP="")
    path, deadline = Path(told["path"]), time.monotonic() + DEADLINE_S
    while "to_complete" in json.loads((path / layout.RUN).read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (told["children"], "segments" in documents(path), verify_files(path)) == ("", False, [])


def test_no_process_writes_into_a_temporary_folder_that_the_program_removes(tmp_path):
    told = ended(tmp_path, FORKING, "temporary")
    assert ("segments" in told["found"], "checksums.json" in told["found"], told["left"]) == (
        True,
        False,
        False,
    )


def test_a_sample_that_takes_long_does_not_hold_up_the_end_and_is_not_called_hanging(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_COMPLETE", "later")
    begun, released = threading.Event(), threading.Event()

    class Slow:
        def sample(self) -> list[ResourceSample]:
            begun.set()
            released.wait(DEADLINE_S)
            return []

    other = threading.Thread(target=released.wait, args=(DEADLINE_S,), name="of the program's")
    other.start()
    try:
        with flightlog.record("slow", runs_dir=tmp_path, samplers=[Slow()]) as run:
            assert begun.wait(DEADLINE_S)
        problems = run.info.overhead["problems"]
    finally:
        released.set()
        other.join()
    assert problems == []
    assert (Run(run.path).completeness().lost, list(Run(run.path).events("resources"))) == ({}, [])


def test_the_environment_of_a_run_that_ends_at_once_follows_later(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_COMPLETE", "later")
    released = threading.Event()
    other = threading.Thread(target=released.wait, args=(DEADLINE_S,), name="of the program's")
    other.start()
    try:
        with flightlog.record("quick", runs_dir=tmp_path, sample_interval_s=None) as run:
            pass
    finally:
        released.set()
        other.join()
    deadline = time.monotonic() + DEADLINE_S
    while not (run.path / layout.ENVIRONMENT).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert flightlog.open_run(run.path).status == "completed"
    assert verify_files(run.path) == []


def test_the_switch_interval_is_put_back_unless_the_program_has_set_another():
    from flightlog.core.threads import quick_handovers

    before = sys.getswitchinterval()
    try:
        with quick_handovers(), quick_handovers():
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() == before
        first, second = (
            quick_handovers(),
            quick_handovers(),
        )  # as two threads may be inside, one after the other
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert sys.getswitchinterval() < before
        second.__exit__(None, None, None)
        assert sys.getswitchinterval() == before
        with quick_handovers():
            sys.setswitchinterval(0.002)
        assert sys.getswitchinterval() == 0.002
    finally:
        sys.setswitchinterval(before)


def test_a_child_that_another_thread_forks_at_any_moment_has_the_programs_switch_interval(monkeypatch):
    interval, in_child = [0.005], list[float]()

    def forked() -> None:
        """What a child has that is forked now."""
        known, now = list(threads._switching), interval[0]
        with monkeypatch.context() as patch:
            patch.setattr(python, "setswitchinterval", lambda seconds: interval.__setitem__(0, seconds))
            threads._after_fork()
        in_child.append(round(interval[0], 5))
        threads._switching[:], interval[0] = known, now

    def set_interval(seconds: float) -> None:
        forked()
        interval[0] = 1e-6 * int(1e6 * seconds)
        forked()

    python = SimpleNamespace(getswitchinterval=lambda: interval[0], setswitchinterval=set_interval)
    monkeypatch.setattr(threads, "sys", python)
    with threads.quick_handovers():
        assert interval[0] < 0.005
    assert in_child == [0.005] * 4


def test_whatever_goes_wrong_while_completing_the_run_is_read_as_it_is(tmp_path, monkeypatch):
    path = left(tmp_path, monkeypatch)

    def fail(*_: object, **__: object) -> None:
        raise ValueError("damaged")

    monkeypatch.setattr("flightlog.store.completing.seal", fail)
    assert complete_ended(path) is False


def test_a_list_does_not_wait_for_runs_that_another_process_completes(tmp_path, monkeypatch, capsys):
    path = left(tmp_path, monkeypatch)
    waited: list[float] = []
    monkeypatch.setattr("flightlog.core.locks.sleep", waited.append)
    with finalizing(path) as alone:
        assert (alone, main(["list", "--runs-dir", str(path.parent)]), waited) == (True, 0, [])
    assert path.name in capsys.readouterr().out
