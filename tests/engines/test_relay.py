"""Workers that do not see the run directory: real processes, and a folder as their way home."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.analyze.verify import verify
from flightlog.engines.execute import execute
from flightlog.engines.relay.chunks import Chunk, ChunkReceiver, pack
from flightlog.engines.relay.recording import depart, place_here, settle, take_orphans
from flightlog.events import ArtifactRecorded, ResourceSample, TaskStarted
from flightlog.record.context import RUN, active_runs, carrier
from flightlog.record.device.oom import bundles
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.engines import make_work, recorded

WORKER = r"""
import json, os, pathlib, subprocess, sys
import flightlog
from flightlog.engines.relay.recording import depart, place_here, settle
from flightlog.record.context import current_run
from flightlog.record.context import attached

home, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
number = 0
broken = False

def send(chunk):
    global number
    if broken:
        raise OSError("no way home")
    number += 1
    fresh = home / f".{os.getpid()}-{number}"
    fresh.write_bytes(chunk)
    fresh.rename(home / f"{os.getpid():09d}-{number:06d}")

def record(name):
    with flightlog.span(name):
        pass

def in_subprocess(name):
    with flightlog.span("outside"):
        code = f"import flightlog\nwith flightlog.span('{name}'): pass"
        subprocess.run([sys.executable, "-c", code], check=True)

def artifact(name):
    file = root / name
    file.write_text("result")
    current_run().record_artifact(file, kind="result")

for line in sys.stdin:
    place, code = json.loads(line)
    with attached(place_here(place, send, root=root)):
        exec(code)
    print("done", flush=True)
"""


class Worker:
    """A process that runs lines of code at a place, in a world where no run directory is seen."""

    def __init__(self, folder: Path) -> None:
        self.mail, self.root = folder / "mail", folder / "spools"
        self.mail.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self.mail), str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, place: dict[str, str], code: str) -> str:
        self.process.stdin.write(json.dumps([place, code]) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> int:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(30)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def spools(self) -> list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob("*/*"))

    def deliver(self, landing: ChunkReceiver) -> None:
        """Take everything that has arrived."""
        for file in sorted(self.mail.glob("[!.]*")):
            landing.take(file.read_bytes())
        assert landing.flush()


@pytest.fixture
def workers(tmp_path):
    made = []

    def make() -> Worker:
        made.append(Worker(tmp_path))
        return made[-1]

    yield make
    for worker in made:
        worker.process.kill()
        worker.process.wait(30)
        worker.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.close()


def elsewhere() -> dict[str, str]:
    """The place that code here is at, by a path that leads nowhere."""
    here = carrier()
    return {**here, RUN: f"/nowhere/{Path(here[RUN]).name}"}


def names(path: Path) -> list[str]:
    return sorted(span.name for span in finished(Run(path)))


def test_where_the_run_directory_is_seen_the_place_is_as_it_was(tmp_path):
    with recorded(tmp_path):
        place = carrier()
        assert place_here(place, pytest.fail) is place
        assert settle(1.0)


def test_a_place_of_no_run_is_as_it_was():
    assert place_here({}, pytest.fail) == {}
    assert place_here({RUN: "/nowhere"}, pytest.fail) == {RUN: "/nowhere"}


def test_another_run_at_the_same_path_is_not_this_one(tmp_path):
    with recorded(tmp_path / "runs"):
        place = {**carrier(), "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        there = place_here(place, lambda _parcel: None, root=tmp_path)
        assert there[RUN] != place[RUN]
        assert Path(there[RUN]).name == Path(place[RUN]).name
        assert place_here(place, pytest.fail) == there
        assert depart(place)
        assert not Path(there[RUN]).exists()


def test_spans_and_artifacts_inside_arrive_with_the_right_parent(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        place = elsewhere()
        assert worker.run(place, "record('a span')") == "done\n"
        assert worker.run(place, "artifact('output.csv'); assert settle(20)") == "done\n"
        worker.deliver(landing)
        [span] = finished(Run(path))
        assert (span.name, span.parent_id) == ("a span", place["traceparent"].split("-")[2])
        [artifact] = [e for e in Run(path).events("artifacts") if isinstance(e, ArtifactRecorded)]
        assert (artifact.uri, artifact.size_bytes) == (str(worker.root / "output.csv"), 6)
        assert worker.end() == 0
        worker.deliver(landing)
        assert landing.close()
    assert worker.spools() == []
    assert not (path / "segments").exists()
    assert names(path) == ["a span"]
    complete = Run(path).completeness()
    assert (complete.lost, complete.problems, complete.notes) == ({}, (), ())


def test_a_process_that_a_task_starts_is_recorded_too(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        worker.run(elsewhere(), "in_subprocess('inside'); assert depart()")
        worker.deliver(landing)
        assert landing.close()
    spans = {span.name: span for span in finished(Run(path))}
    assert spans["inside"].parent_id == spans["outside"].span_id
    assert worker.spools() == []


def test_a_child_that_a_task_forks_is_recorded_too_however_it_ends(tmp_path, workers):
    worker = workers()
    code = (
        "pid = os.fork()\nif not pid:\n  record('forked'); os._exit(0)\nos.waitpid(pid, 0); assert settle(20)"
    )
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        place = elsewhere()
        assert worker.run(place, code) == "done\n"
        worker.deliver(landing)
        assert names(path) == ["forked"]
        assert worker.end() == 0
        worker.deliver(landing)
        assert landing.close()
    assert worker.spools() == []


def test_a_bundle_of_an_out_of_memory_arrives(tmp_path, workers):
    worker = workers()
    code = (
        "from flightlog.record.device.oom import dump\nassert dump(current_run().recorder, 'asked for'); "
        "assert depart()"
    )
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        assert worker.run(elsewhere(), code) == "done\n"
        worker.deliver(landing)
        assert landing.close()
    [bundle] = bundles(path)
    said = json.loads((bundle / "bundle.json").read_bytes())
    assert (said["reason"], said["run_id"], said["pid"]) == ("asked for", path.name, worker.process.pid)


def test_a_receiver_that_is_closed_is_not_asked_before_reading(tmp_path):
    with recorded(tmp_path / "runs") as (path, _):
        [run] = active_runs()
        landing = ChunkReceiver(path)
        assert run.before_reading == [landing.flush]
        landing.close()
        landing.close()
        assert run.before_reading == []


def test_what_a_killed_worker_left_is_sent_by_the_next_one_on_its_host(tmp_path, workers):
    first, second = workers(), workers()
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        place = elsewhere()
        assert first.run(place, "broken = True; record('before the kill')") == "done\n"
        first.kill()
        first.deliver(landing)
        assert names(path) == []
        assert len(first.spools()) == 1
        code = (
            "import time\nwhile len(list((root / place['traceparent'].split('-')[1]).iterdir())) > 1: "
            "time.sleep(0.01)"
        )
        assert second.run(place, f"record('after it'); {code}") == "done\n"
        assert second.end() == 0
        second.deliver(landing)
        assert landing.close()
    assert names(path) == ["after it", "before the kill"]
    assert second.spools() == []
    assert Run(path).completeness().notes == (
        "1 recording process exited unexpectedly; all they had recorded is here",
    )


def test_a_worker_whose_end_is_not_heard_is_named_and_its_lines_are_folded(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        worker.run(elsewhere(), "record('heard'); assert settle(20)")
        worker.run(elsewhere(), "broken = True; record('unheard')")
        worker.kill()
        worker.deliver(landing)
        assert not landing.close()
        host, pid = os.uname().nodename, worker.process.pid
    assert names(path) == ["heard"]
    assert not (path / "segments").exists()
    found = Run(path).completeness()
    assert found.notes == (
        "1 recording process on hosts that do not see the run was not heard to the end: "
        f"what was recorded there last may be missing. {host} (process {pid})",
    )
    assert found.lost_text == "whether any were lost is unknown"
    [lines] = [check for check in verify(Run(path)).checks if check.name == "lines"]
    assert (lines.ok, "none lost" in lines.detail) == (None, False)


def test_a_way_home_that_fails_costs_nothing_and_is_caught_up(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        place = elsewhere()
        worker.run(place, "broken = True; record('one')")
        assert worker.run(place, "assert not settle(0.1)") == "done\n"
        assert worker.run(place, "record('two')") == "done\n"
        assert worker.run(place, "broken = False; assert settle(20)") == "done\n"
        worker.deliver(landing)
        assert names(path) == ["one", "two"]
        worker.end()
        landing.close()


def test_a_worker_that_left_a_run_can_come_back_to_it(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        place = elsewhere()
        worker.run(place, "record('one'); assert depart(place, 20)")
        assert worker.spools() == []
        worker.run(place, "record('two'); assert depart(place, 20)")
        worker.deliver(landing)
        assert landing.close()
    assert names(path) == ["one", "two"]


def test_a_way_home_that_hangs_holds_nobody_up(tmp_path):
    hung, let_go = threading.Event(), threading.Event()

    def hang(_parcel: bytes) -> None:
        hung.set()
        let_go.wait(60)

    with recorded(tmp_path / "runs"):
        place = {**elsewhere(), "traceparent": f"00-{'d' * 32}-{'b' * 16}-01"}
        there = place_here(place, hang, root=tmp_path)
        outcome = execute(make_work(tasks.record_inside, "inside", place=there), worker="w", alone=False)
        assert outcome.end == "completed"
        assert not settle(0.0)
        assert hung.wait(20)
        outcome = execute(make_work(tasks.record_inside, "again", place=there), worker="w", alone=False)
        assert outcome.end == "completed"
        let_go.set()
        assert depart(place, 20)


def test_an_engines_attempt_is_recorded_in_the_spool_as_anywhere(tmp_path):
    with recorded(tmp_path / "runs"):
        place = {**elsewhere(), "traceparent": f"00-{'e' * 32}-{'b' * 16}-01"}
        there = place_here(place, lambda _parcel: None, root=tmp_path)
        work = make_work(tasks.record_inside, "inside", place=there)
        execute(work, worker="w", alone=False)
        assert settle(20)
        spool = Run(Path(there[RUN]))
        [started] = [event for event in spool.events("tasks") if isinstance(event, TaskStarted)]
        assert (started.task_id, started.parent_id) == (work.task_id, "b" * 16)
        assert depart(place, 20)


def test_samples_are_lines_like_others(tmp_path, workers):
    worker = workers()
    code = (
        "from flightlog.events import ResourceSample\n"
        "current_run().emit(ResourceSample(scope='worker', worker='w', host='h', cpu_percent=12.5)); "
        "assert depart()"
    )
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        assert worker.run(elsewhere(), code) == "done\n"
        worker.deliver(landing)
        landing.close()
    found = [e for e in Run(path).events("resources") if isinstance(e, ResourceSample) and e.worker == "w"]
    assert [sample.cpu_percent for sample in found] == [12.5]


def test_two_processes_never_share_a_spool_and_each_removes_its_own(tmp_path, workers):
    first, second = workers(), workers()
    with recorded(tmp_path / "runs") as (path, _):
        place = elsewhere()
        first.run(place, "record('one')")
        second.run(place, "record('two')")
        assert len(first.spools()) == 2
        assert (first.end(), second.end()) == (0, 0)
        assert first.spools() == []
        landing = ChunkReceiver(path)
        first.deliver(landing)
        assert landing.close()
    assert names(path) == ["one", "two"]


def test_a_worker_that_ends_without_a_way_home_ends_at_once_and_leaves_its_spool(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path / "runs"):
        worker.run(elsewhere(), "broken = True; record('one')")
        assert worker.end() == 0
        [spool] = worker.spools()
        [run] = (worker.root / spool).glob("run-*")
        assert names(run) == ["one"]
        [note] = [read_document(f, layout.WriterInfo).value for f in run.glob(f"segments/*/{layout.WRITER}")]
        assert note.closed


def test_what_the_disk_refuses_is_written_when_it_takes_it(tmp_path, caplog):
    with recorded(tmp_path / "runs") as (path, _):
        trace_id = carrier()["traceparent"].split("-")[1]
        landing = ChunkReceiver(path)
        shutil.move(path, tmp_path / "aside")
        while not path.is_file():  # the recorder may have made the folder again meanwhile
            shutil.rmtree(path, ignore_errors=True)
            with suppress(IsADirectoryError):
                path.write_text("in the way")
        with caplog.at_level(logging.WARNING):
            name = "segments/0a0b0c0d/spans-000001.jsonl"
            landing.take(pack(Chunk(trace_id, "5" * 16, name, "lines", 0, b"{}\n")))
            assert not landing.flush(0.3)
        path.unlink()
        shutil.move(tmp_path / "aside", path)
        assert landing.flush()
        assert (path / name).read_bytes() == b"{}\n"
        assert (landing.taken, landing.refused, landing.dropped) == (1, 0, 0)
        shutil.rmtree(path / "segments" / "0a0b0c0d")
    assert "what workers have recorded cannot be written: Not a directory" in caplog.messages


def test_a_landing_says_once_what_it_refuses_and_goes_on(tmp_path, caplog):
    with recorded(tmp_path) as (path, _):
        landing = ChunkReceiver(path)
        with caplog.at_level(logging.WARNING):
            for chunk in (b"", b"no chunk", b"flp1 nor this"):
                landing.take(chunk)
            assert landing.flush()
            landing.take(None)
        assert (landing.taken, landing.refused) == (0, 4)
        assert [r.message for r in caplog.records] == [
            "a chunk was refused: it does not begin as a chunk of this version does"
        ]
        assert landing.close()
        landing.take(b"late")
        assert landing.refused == 5


def test_a_worker_whose_task_closes_everything_holds_its_spool_again(tmp_path, workers):
    worker = workers()
    with recorded(tmp_path):
        place = elsewhere()
        assert worker.run(place, "record('before')") == "done\n"
        code = "os.closerange(3, 65536); mine = [os.open(root, os.O_RDONLY) for _ in range(9)]"
        assert worker.run(place, f"{code}; record('after'); assert settle(30)") == "done\n"
        (spool,) = worker.spools()
        assert take_orphans(worker.root, spool.split("/")[0], ()) == []
        landing = ChunkReceiver(carrier()[RUN])
        worker.deliver(landing)
        landing.close()
        path = Path(carrier()[RUN])
    assert names(path) == ["after", "before"]
