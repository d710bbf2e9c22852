"""A run that is written while it is read is read as of one moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.analyze.diagnosis.diagnose import diagnose, diagnosis_bytes
from flightlog.analyze.report.report import report_on
from flightlog.events import TaskFailed, kind_of
from flightlog.events.codec import UnknownEvent
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read import snapshot
from flightlog.store.read.snapshot import HELD, PREFIX, held_still, remove_leftovers
from flightlog.store.run import Run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="copies are held by locks of the kernel")

_WRITER = """
import sys, threading, time
from flightlog.events import Metric, TaskCompleted, TaskStarted, TaskSubmitted
import flightlog

pause_s = float(sys.argv[2])
with flightlog.record("still", runs_dir=sys.argv[1]) as run:
    print(run.path, flush=True)
    def write(thread):
        number = 0
        while True:
            task = {"task": "sim", "task_id": f"{thread}-{number}"}
            run.emit(TaskSubmitted(args={}, **task))
            run.emit(TaskStarted(worker=None, queue_s=None, **task))
            run.emit(Metric(name="before", value=1.0))
            run.emit(TaskCompleted(args={}, duration_s=0.001, worker=None, **task))
            run.emit(Metric(name="after", value=1.0))
            number += 1
            if number == 500 and thread == 0:
                print("many", flush=True)
            if number >= 500 and pause_s:
                time.sleep(pause_s)
    threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    threads[0].join()
"""


@contextmanager
def being_written(runs: Path, pause_s: float = 0.0) -> Iterator[Path]:
    """The folder of a run that another process writes, as fast as it can, or with pauses when it is long."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(runs), str(pause_s)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            path = Path(process.stdout.readline().strip())
            assert process.stdout.readline() == "many\n"
            yield path
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def counts(run: Run) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in run.events("tasks"):
        found[event.kind if isinstance(event, UnknownEvent) else kind_of(event)] += 1
    for event in run.events("metrics"):
        found[getattr(event, "name", "")] += 1
    return found


def test_all_streams_agree_of_a_run_that_is_written_at_full_speed(tmp_path: Path) -> None:
    notes: list[str] = []
    with ExitStack() as copies:
        with being_written(tmp_path / "runs") as path:
            held = [
                copies.enter_context(held_still(Run(path), note=notes.append, folder=tmp_path))
                for _ in range(3)
            ]
        found = [counts(still) for still in held]  # nobody else uses the processor any more
        for one in found:
            submitted, started, completed = (
                one[f"task_{state}"] for state in ("submitted", "started", "completed")
            )
            assert submitted >= started >= one["before"] >= completed >= one["after"] > 0
            assert submitted - one["after"] <= 3  # three threads write, each one thing at a time
        assert found[0]["task_submitted"] < found[1]["task_submitted"] < found[2]["task_submitted"]
        for still in held:
            whole = still.completeness()
            assert (whole.lost, whole.torn, whole.foreign) == ({}, 0, 0)
    assert notes == []
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_no_later_line_is_taken_though_the_reader_stood_still_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_s = 10.0
    noted: list[float] = []

    def clock() -> float:
        noted.append(time.time() - (0.0 if noted else stopped_s))
        return noted[-1]

    with ExitStack() as copies:
        with being_written(tmp_path / "runs") as path:
            monkeypatch.setattr(snapshot, "time", SimpleNamespace(time=clock))
            still = copies.enter_context(held_still(Run(path), folder=tmp_path))
        assert counts(still).total() == 0  # all of it was written after the moment that the reader noted


def test_a_report_of_a_running_run_adds_up(tmp_path: Path) -> None:
    with ExitStack() as copies:
        with being_written(tmp_path / "runs") as path:
            still = copies.enter_context(held_still(Run(path), folder=tmp_path))
            assert (still.status, still.run_id, still.home) == ("running", path.name, path)
            assert still.path != path
        tasks = report_on(still, details=False).tasks
        assert tasks.submitted == tasks.completed + tasks.running + tasks.pending


def test_without_room_the_run_itself_is_given_and_that_is_told(tmp_path: Path) -> None:
    notes: list[str] = []
    with being_written(tmp_path / "runs") as path:
        opened = Run(path)
        with held_still(opened, note=notes.append, folder=tmp_path, room=1_000) as still:
            assert still is opened
    assert [one.rpartition(": ")[2] for one in notes] == ["there is no room for a copy"]
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_a_run_that_is_over_is_given_as_it_is(tmp_path: Path) -> None:
    run = Run(Path(__file__).parents[2] / "golden/run-v1/run-20260520T035200Z-demo-a1b2c3d4")
    with held_still(run, folder=tmp_path) as still:
        assert still is run
    assert list(tmp_path.iterdir()) == []


_HOLDER = """
import sys
from pathlib import Path
from flightlog.store.run import Run
from flightlog.store.read.snapshot import held_still

with held_still(Run(Path(sys.argv[1])), folder=Path(sys.argv[2])) as still:
    print(still.path, flush=True)
    sys.stdin.readline()
"""


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    with being_written(tmp_path / "runs") as path, held_still(Run(path), folder=tmp_path) as still:
        with subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(path), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder:
            assert holder.stdout is not None
            left = Path(holder.stdout.readline().strip())
            assert (left.is_dir(), remove_leftovers(tmp_path)) == (True, 0)
            holder.kill()
        assert left.is_dir()
        assert remove_leftovers(tmp_path) == 1
        assert (left.parent.exists(), still.path.is_dir()) == (False, True)


def test_a_folder_that_is_just_being_made_and_a_link_are_left_alone(tmp_path: Path) -> None:
    fresh, elsewhere = tmp_path / f"{PREFIX}fresh", tmp_path / "elsewhere"
    fresh.mkdir()
    elsewhere.mkdir()
    (elsewhere / HELD).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    assert remove_leftovers(tmp_path) == 0
    assert (fresh.is_dir(), (elsewhere / HELD).is_file()) == (True, True)


GOLDEN = Path(__file__).parents[2] / "golden/run-v1/run-20260520T035200Z-demo-a1b2c3d4"


@pytest.mark.parametrize("command", ["report", "diagnose", "compare"])
def test_commands_read_a_running_run_as_of_one_moment_and_leave_nothing_behind(
    tmp_path: Path, command: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    copied = False
    with being_written(tmp_path / "runs", pause_s=0.002) as path:
        runs = [str(GOLDEN), str(path)] if command == "compare" else [str(path)]
        asked = subprocess.Popen(
            [sys.executable, "-m", "flightlog", command, *runs, "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        while not copied and asked.poll() is None:
            copied = bool(list(temporary.glob(f"{PREFIX}*/copy/{path.name}/tasks.jsonl")))
    told, said = asked.communicate()
    assert (copied, asked.returncode, said, list(temporary.iterdir())) == (True, 0, b"", [])
    if command == "report":
        tasks = msgspec.json.decode(told)["tasks"]
        assert tasks["submitted"] == tasks["completed"] + tasks["running"] + tasks["pending"] > 0


def test_a_diagnosis_of_a_copy_names_the_run_itself(tmp_path: Path) -> None:
    failed = TaskFailed(
        timestamp=at(1),
        task="sim",
        task_id="t",
        args={},
        duration_s=1.0,
        worker=None,
        error_type="KeyError",
        error_message="'seed'",
    )
    running = {
        "status": "running",
        "end_time": None,
        "duration_s": None,
        "host": "elsewhere",
        "heartbeat": at(9),
    }
    path = make_run(tmp_path, [failed], **running)
    run = Run(path, observer=Observer(now=unix_time(at(10)) or 0.0, host="here"))
    with held_still(run, folder=tmp_path) as still:
        said = diagnosis_bytes(diagnose(still)).decode()
    assert (str(path) in said, PREFIX in said) == (True, False)
