"""A headline that is counted in tables is the one that is counted line by line."""

from __future__ import annotations

import msgspec
import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.analyze.history.trends import headline_from_tables
from flightlog.events import (
    CacheLookup,
    Event,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.store.headline import Headline, headline_of
from flightlog.store.run import Run

ENDS = ["completed", "failed", "retried", "cancelled", "running", "pending"]


def life(number: int, task: str, end: str, duration_s: float | None, peak: int | None) -> list[Event]:
    named = {"task": task, "task_id": str(number)}
    used = {"args": {}, "worker": "w1", "duration_s": duration_s, "cpu_s": duration_s, "peak_rss_bytes": peak}
    start, stop = at(number), at(number + 1)
    events: list[Event] = [TaskSubmitted(timestamp=start, args={}, **named)]
    if end != "pending":
        events.append(TaskStarted(timestamp=start, worker="w1", queue_s=0.0, **named))
    failed = {"error_type": "ValueError", "error_message": "no"}
    if end == "completed":
        events.append(TaskCompleted(timestamp=stop, **named, **used))
    elif end == "failed":
        events.append(TaskFailed(timestamp=stop, **named, **used, **failed))
    elif end == "cancelled":
        events.append(TaskCancelled(timestamp=stop, **named, **used))
    elif end == "retried":
        again = {"attempt": 2}
        events += [
            TaskFailed(timestamp=stop, **named, **used, **failed),
            TaskRetried(timestamp=stop, reason="no", **named),
            TaskStarted(timestamp=stop, worker="w1", queue_s=0.0, **named, **again),
            TaskCompleted(timestamp=at(number + 2), **named, **used, **again),
        ]
    return events


lives = st.lists(
    st.tuples(
        st.sampled_from(["sim", "plot"]),
        st.sampled_from(ENDS),
        st.none() | st.floats(0, 1e4),
        st.none() | st.integers(0, 2**40),
    ),
    max_size=8,
)
others = st.lists(
    st.one_of(
        st.builds(
            CacheLookup,
            task=st.just("sim"),
            result=st.sampled_from(["hit", "miss", "bypass"]),
            key=st.just("k"),
        ),
        st.builds(
            ResourceSample,
            scope=st.sampled_from(["worker", "node"]),
            host=st.just("n"),
            cpu_percent=st.none(),
            pid=st.just(1),
            rss_bytes=st.none() | st.integers(0, 99),
            peak_rss_bytes=st.none() | st.integers(0, 99),
        ),
    ),
    max_size=5,
)


@given(lives, others)
@settings(FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_and_lines_give_the_same_headline(tmp_path_factory, tasks, more):
    events = [event for number, one in enumerate(tasks) for event in life(number, *one)]
    path = make_run(tmp_path_factory.mktemp("runs"), [*events, *more])
    expected = headline_of(Run(path))
    found = headline_from_tables(path)
    assert isinstance(found, Headline)
    assert msgspec.to_builtins(found) == _approx(msgspec.to_builtins(expected))


def _approx(value):
    if isinstance(value, dict):
        return {name: _approx(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_approx(inner) for inner in value]
    # Sums of seconds are right to a nanosecond.
    return pytest.approx(value, rel=1e-12, abs=1e-9) if isinstance(value, float) else value
