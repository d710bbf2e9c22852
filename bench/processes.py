"""Four processes writing one run: events a second together, and that nothing is lost, torn or doubled."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter

import msgspec

import flightlog
from flightlog.events import Metric
from flightlog.store.run import Run

PROCESSES = 4
EVENTS = 200_000
BATCH = 64


def one_by_one(_folder: Path, events: int) -> None:
    """A training loop that records each step."""
    run = flightlog.current_run()
    assert run is not None
    metric = run.metric
    for step in range(events):
        metric("loss", 0.3, step)


def in_batches(_folder: Path, events: int) -> None:
    """What an engine does with the events that its workers send it."""
    run = flightlog.current_run()
    assert run is not None
    for start in range(0, events, BATCH):
        run.emit(*[Metric(name="loss", value=0.3, step=start + i) for i in range(min(BATCH, events - start))])


def bare(folder: Path, events: int) -> None:
    """The floor: the same lines, encoded and written by 64 KiB; a kill loses hundreds of them."""
    encode = msgspec.json.Encoder().encode_lines
    fd = os.open(folder / f"{os.getpid()}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    lines = bytearray()
    for step in range(events):
        event = Metric(
            timestamp="2026-05-20T03:52:00.000000Z",
            writer="a1b2c3d4",
            seq=step,
            name="loss",
            value=0.3,
            step=step,
        )
        lines += encode((event,))
        if len(lines) > 1 << 16:
            os.write(fd, lines)
            lines.clear()
    os.write(fd, lines)
    os.close(fd)


def _child(work: Callable[[Path, int], None], folder: Path, barrier: Barrier, events: int) -> None:
    barrier.wait()
    work(folder, events)
    barrier.wait()


def together(
    work: Callable[[Path, int], None], processes: int = PROCESSES, events: int = EVENTS
) -> dict[str, float]:
    """Events a second of all processes, from the moment all began to the moment all were done."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)
    with tempfile.TemporaryDirectory() as folder:
        with flightlog.record("bench", runs_dir=folder) as run:
            args = (work, Path(folder), barrier, events)
            children = [context.Process(target=_child, args=args) for _ in range(processes)]
            for child in children:
                child.start()
            barrier.wait()
            start = perf_counter()
            barrier.wait()
            seconds = perf_counter() - start
            for child in children:
                child.join()
        read = Run(run.path)
        found = sum(1 for _ in read.events("metrics"))
        completeness = read.completeness()
    return {
        "events_per_s": processes * events / seconds,
        "recorded": processes * events if work is not bare else 0,
        "found": found,
        "lost": completeness.lost_lines,
        "torn": completeness.torn,
        "doubled": completeness.doubled,
    }
