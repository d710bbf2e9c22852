"""A run that is sent while it runs: everything once, the root at the end, whatever moves or breaks
meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.otlp_receiver import Receiver
from builders.runs import at
from otlp_lives import ROOT, a_run, beside, completed, ns, retried_then_failed

from flightlog.events import Event
from flightlog.export.base import Exported, ExportOptions
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp.exporter import Otlp, RequestFailed
from flightlog.store import layout
from flightlog.store.liveness import process_start, this_host
from flightlog.store.run import Run


class LivingRun:
    """A run of this process that is written while it is followed."""

    def __init__(self, folder: Path) -> None:
        me = {"pid": os.getpid(), "pid_start": process_start(os.getpid()), "host": this_host()}
        self.run = a_run(folder, [], status="running", end_time=None, heartbeat=at(1), **me)
        self._numbers: dict[tuple[str, str], int] = {}

    def write(self, events: list[Event], writer: str = "w0000001", folder: str = "") -> None:
        """Lines at the end of their streams' files, in the run's folder or one of a writer's."""
        place = self.run.path / folder
        place.mkdir(parents=True, exist_ok=True)
        for event in events:
            stream = type(event).stream
            event.writer, event.seq = writer, self._numbers.get((writer, stream), 0)
            self._numbers[writer, stream] = event.seq + 1
            with layout.stream_file(place, stream).open("ab") as out:
                out.write(msgspec.json.encode(event) + b"\n")

    def end(self, status: str = "completed", end: float = 10.0) -> None:
        info = self.run.info
        info.status, info.end_time, info.duration_s = status, at(end), end
        (self.run.path / layout.RUN).write_bytes(msgspec.json.encode(info))
        if status != "crashed":
            (self.run.path / layout.CHECKSUMS).write_bytes(b"{}")


def follow(
    living: LivingRun, receiver: Receiver, steps: list[Callable[[], Any]]
) -> tuple[Exported, list[float]]:
    """Follow the run; each time the exporter has waited for what comes next, or for the server, the next step
    happens."""
    waits: list[float] = []
    left = iter(steps)
    rests = count(1)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if (
            seconds != ExportLimits.poll_interval_s / ExportLimits.closed_checks_per_poll
            or next(rests) % ExportLimits.closed_checks_per_poll == 0
        ):
            next(left, lambda: None)()

    exporter = Otlp(environ={}, post=receiver, sleep=sleep, clock=lambda: sum(waits))
    options = ExportOptions(endpoint="http://server:4318", follow=True)
    return exporter.export(living.run, None, options), waits


def test_spans_are_sent_as_they_end_and_the_run_itself_when_it_is_over(tmp_path: Path):
    living, receiver, seen = LivingRun(tmp_path), Receiver(), []
    exported, waits = follow(
        living,
        receiver,
        [
            lambda: living.write(completed("t1", 1, 1.0, 2.0)),
            lambda: (seen.append(receiver.span_ids()), living.write(completed("t2", 2, 3.0, 4.0))),
            lambda: (seen.append(receiver.span_ids()), living.end()),
        ],
    )
    assert seen == [[f"{1:016x}"], [f"{1:016x}", f"{2:016x}"]]
    assert receiver.span_ids() == [f"{1:016x}", f"{2:016x}", ROOT]
    assert exported.counts["spans"] == 3
    assert len(waits) == 3 * ExportLimits.closed_checks_per_poll


def test_a_run_that_closes_is_not_made_to_wait_for_the_next_look(tmp_path: Path):
    living, receiver, waits = LivingRun(tmp_path), Receiver(), []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            living.end()

    exporter = Otlp(environ={}, post=receiver, sleep=sleep, clock=lambda: sum(waits))
    exporter.export(living.run, None, ExportOptions(endpoint="http://server:4318", follow=True))
    assert (waits, receiver.span_ids()) == ([0.2, 0.2], [ROOT])


def test_counts_are_told_while_the_run_goes_on_and_end_with_what_happened(tmp_path: Path):
    living, receiver = LivingRun(tmp_path), Receiver()
    follow(
        living,
        receiver,
        [lambda n=n: living.write(completed(f"t{n}", n, 10.0 * n, 10.0 * n + 5)) for n in range(1, 6)]
        + [lambda: living.end(end=60.0)],
    )
    completed_ = receiver.series("flightlog.tasks.completed")
    assert completed_[-1] == (ns(55), 5)
    assert [count for _, count in completed_] == sorted(count for _, count in completed_)
    assert {count for _, count in receiver.series("flightlog.tasks.running")} == {0, 1}
    assert len(receiver.series("flightlog.tasks.completed")) == len(
        set(receiver.series("flightlog.tasks.completed"))
    )
    assert receiver.series("flightlog.task.duration")[-1] == (ns(55), 5)


def test_a_run_that_is_being_closed_is_waited_for_but_not_for_ever(tmp_path: Path):
    living, receiver = LivingRun(tmp_path), Receiver()
    checksums = living.run.path / layout.CHECKSUMS
    _, waits = follow(living, receiver, [lambda: (living.end(), checksums.unlink())])
    assert ExportLimits.last_lines_wait_s <= sum(waits) <= ExportLimits.last_lines_wait_s + 3
    assert receiver.span_ids() == [ROOT]


def test_lines_that_move_to_another_file_while_they_are_followed_are_sent_once(tmp_path: Path):
    living, receiver = LivingRun(tmp_path), Receiver()
    segment = living.run.path / "segments" / "w2"

    def fold() -> None:
        top = layout.stream_file(living.run.path, "tasks")
        with top.open("ab") as out:
            out.write(layout.stream_file(segment, "tasks").read_bytes())
        layout.stream_file(segment, "tasks").unlink()
        living.end()

    follow(
        living,
        receiver,
        [
            lambda: living.write(completed("t1", 1, 1.0, 2.0)),
            lambda: living.write(completed("t2", 2, 1.0, 2.0), "w2", "segments/w2"),
            lambda: living.write(retried_then_failed("t3", 3, 4), "w2", "segments/w2"),
            fold,
        ],
    )
    assert sorted(receiver.span_ids()) == sorted([ROOT, *(f"{number:016x}" for number in (1, 2, 3, 4))])


def test_a_follower_that_died_is_followed_by_one_that_goes_on(tmp_path: Path):
    living, receiver = LivingRun(tmp_path), Receiver()

    def die() -> None:
        raise KeyboardInterrupt

    living.write(retried_then_failed("t3", 3, 4)[:2])
    with pytest.raises(KeyboardInterrupt):
        follow(living, receiver, [lambda: living.write(completed("t1", 1, 1.0, 2.0)), lambda: None, die])
    assert receiver.span_ids() == [f"{1:016x}"]
    living.write([*retried_then_failed("t3", 3, 4)[2:], *beside()])
    living.end()
    exported, _ = follow(living, receiver, [])
    assert sorted(receiver.span_ids()) == sorted([ROOT, *(f"{number:016x}" for number in (1, 3, 4, 90, 91))])
    assert exported.counts["spans"] == 5
    assert receiver.series("flightlog.tasks.completed")[-1][1] == 1


def test_a_server_that_is_down_while_the_run_goes_on_gets_everything_once_it_is_back(tmp_path: Path):
    living, receiver = LivingRun(tmp_path), Receiver()
    living.write(completed("t1", 1, 1.0, 2.0))
    receiver.faults.extend([(503, {}, b""), (500, {}, b"broken"), *[_refuse] * 60])
    _, waits = follow(living, receiver, [*[lambda: None] * 62, living.end])
    assert sum(waits) > 1000
    assert receiver.span_ids() == [f"{1:016x}", ROOT]


def test_a_server_that_stays_down_is_given_up_five_minutes_after_the_run(tmp_path: Path):
    living, receiver = LivingRun(tmp_path), Receiver()
    living.write(completed("t1", 1, 1.0, 2.0))
    receiver.faults.extend([_refuse] * 10_000)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 30:
            living.end()

    exporter = Otlp(environ={}, post=receiver, sleep=sleep, clock=lambda: sum(waits))
    with pytest.raises(RequestFailed, match="does not answer"):
        exporter.export(living.run, None, ExportOptions(endpoint="http://server:4318", follow=True))
    assert ExportLimits.retry_following_s <= sum(waits[30:]) <= ExportLimits.retry_following_s + 60
    receiver.faults.clear()
    follow(living, receiver, [])
    assert receiver.span_ids() == [f"{1:016x}", ROOT]


def test_a_run_that_is_killed_is_sent_to_its_end(tmp_path: Path):
    program = (
        "import flightlog, os, signal\n"
        f"with flightlog.record('killed', runs_dir={str(tmp_path)!r}):\n"
        "    with flightlog.span('done'): pass\n"
        "    flightlog.span('begun').__enter__()\n"
        "    print('ready', flush=True)\n"
        "    signal.pause()\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    (path,) = tmp_path.glob("run-*")
    receiver = Receiver()

    def kill() -> None:
        child.send_signal(signal.SIGKILL)
        child.wait()

    left = iter([kill])
    exporter = Otlp(environ={}, post=receiver, sleep=lambda _: next(left, lambda: None)())
    exporter.export(Run(path), None, ExportOptions(endpoint="http://server:4318", follow=True))
    child.stdout.close()
    named = {span.name: span.status.code for span in receiver.spans}
    assert named["done"] == 1
    assert named["killed"] == 2


def _refuse() -> None:
    raise ConnectionRefusedError(111, "Connection refused")
