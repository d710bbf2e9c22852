"""What was written is not kept: a run of any length takes the memory of a short one."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

import flightlog

EVENTS = 5000


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
    with flightlog.record("demo", runs_dir=tmp_path) as run:
        tracemalloc.start()
        try:
            for _ in range(EVENTS):
                record(run)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(EVENTS):
                record(run)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (after - before) / EVENTS < 8  # one small object kept of each would be 16 bytes or more
