"""What was written is not kept: a run of any length takes the memory of a short one."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise

import pytest

import flightlog

EVENTS = 1500


def a_span(run) -> None:
    with flightlog.span("step", seed=42) as span:
        span.metrics["loss"] = 0.3


def a_metric(run) -> None:
    run.metric("loss", 0.25, step=3)


def an_event(run) -> None:
    run.event("saved", size=3)


def a_task(run) -> None:
    with run.task("simulate", seed=42):
        pass


@pytest.mark.parametrize("record", [a_span, a_metric, an_event, a_task])
def test_events_that_were_recorded_leave_nothing_in_memory(tmp_path, record):
    held = []
    with flightlog.record("demo", runs_dir=tmp_path) as run:
        tracemalloc.start()
        try:
            for _ in range(4):
                for _ in range(EVENTS):
                    record(run)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    least = min(
        after - before for before, after in pairwise(held)
    )  # other threads may take some once, and not each time
    assert least / EVENTS < 8  # one small object kept of each would be 16 bytes or more
