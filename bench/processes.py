"""Four processes writing one run: events a second together, and that nothing is lost, torn or doubled."""

from __future__ import annotations

import multiprocessing
import tempfile
from multiprocessing.synchronize import Barrier
from time import perf_counter

import flightlog
from flightlog.store.run import Run

PROCESSES = 4
EVENTS = 250_000


def work(barrier: Barrier, events: int) -> None:
    """Record so many metrics of a training loop at full rate."""
    run = flightlog.current_run()
    assert run is not None
    metric = run.metric
    barrier.wait()
    for step in range(events):
        metric("loss", 0.3, step)
    barrier.wait()


def together(processes: int = PROCESSES, events: int = EVENTS) -> dict[str, float]:
    """Events a second of all processes, from the moment all began to the moment all were done."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)
    with tempfile.TemporaryDirectory() as folder:
        with flightlog.record("bench", runs_dir=folder) as run:
            children = [context.Process(target=work, args=(barrier, events)) for _ in range(processes)]
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
        "recorded": processes * events,
        "found": found,
        "lost": sum(completeness.lost.values()),
        "torn": completeness.torn,
        "doubled": completeness.doubled,
    }
