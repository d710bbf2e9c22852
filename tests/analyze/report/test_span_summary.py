from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.metrics import MetricStats
from flightlog.analyze.report.spans import SpanInFlight, SpanName, SpanSummary
from flightlog.analyze.report.summary import summarize
from flightlog.events import Event, SpanEvent, SpanOpened
from flightlog.store.run import Run


def span(
    name: str, start: float, duration: float, key: str = "", parent: str | None = None, **more
) -> SpanEvent:
    fields = {"span_id": key or name, "parent_id": parent, "duration_s": duration, **more}
    return SpanEvent(timestamp=at(start), name=name, **fields)


def opened(name: str, start: float, elapsed: float = 1.0, key: str = "") -> SpanOpened:
    return SpanOpened(
        timestamp=at(start),
        name=name,
        tags={"n": 1},
        trace_id="",
        span_id=key or name,
        parent_id=None,
        elapsed_s=elapsed,
    )


def tally(*events: Event) -> SpanSummary:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        run = make_run(Path(folder), list(events), end_time=at(30), duration_s=30.0)
        return summarize(Run(run)).spans


def test_nested_spans_are_not_counted_twice() -> None:
    summary = tally(span("inner", 0, 0.05), span("middle", 0, 0.05), span("outer", 0, 0.05))
    nested = tally(
        span("inner", 0, 0.05, parent="middle"),
        span("middle", 0, 0.05, parent="outer"),
        span("outer", 0, 0.05),
    )
    assert (summary.wall_s, summary.busy_s) == (0.05, 0.15)  # side by side
    assert (nested.wall_s, nested.busy_s) == (0.05, 0.05)


def test_a_span_that_waits_for_parallel_children_has_only_the_rest_for_itself() -> None:
    summary = tally(
        span("child", 1, 2.0, "a", "p"), span("child", 2, 2.0, "b", "p"), span("parent", 0, 5.0, "p", "run")
    )
    assert summary.by_name["parent"].self_s == 2.0
    assert (summary.by_name["child"].total_s, summary.by_name["child"].wall_s) == (4.0, 3.0)
    assert (summary.wall_s, summary.busy_s) == (5.0, 6.0)


def test_a_child_that_outlives_its_parent_takes_only_their_common_time() -> None:
    summary = tally(span("parent", 0, 2.0, "p"), span("late", 1, 5.0, "l", "p"))
    assert (summary.by_name["parent"].self_s, summary.by_name["late"].self_s) == (1.0, 5.0)


def test_a_name_has_count_errors_distribution_and_metrics() -> None:
    summary = tally(
        span("step", 0, 1.0, "a", metrics={"loss": 0.5, "note": "text", "ok": True}),
        span("step", 2, 3.0, "b", metrics={"loss": 0.1}, status="error"),
    )
    assert summary.by_name == {
        "step": SpanName(
            count=2,
            errors=1,
            total_s=4.0,
            wall_s=4.0,
            self_s=4.0,
            mean=2.0,
            min=1.0,
            p50=2.0,
            p95=pytest.approx(2.9),
            max=3.0,
            metrics={"loss": MetricStats(count=2, sum=0.6, mean=0.3, min=0.1, max=0.5, last=0.1)},
        )
    }


def test_an_open_span_without_an_end_is_in_flight_since_its_start() -> None:
    summary = tally(opened("load", 5), opened("done", 1), span("done", 1, 3.0), opened("load", 5, 2.0))
    assert summary.open_in_flight == 1
    assert summary.in_flight == [
        SpanInFlight(name="load", span_id="load", parent_id=None, tags={"n": 1}, since=at(5), elapsed_s=25.0)
    ]


def test_a_run_without_spans_has_nothing_to_say() -> None:
    assert tally() == SpanSummary(
        count=0, errors=0, open_in_flight=0, wall_s=0.0, busy_s=0.0, names=0, by_name={}, in_flight=[]
    )


trees = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 20),
        st.integers(0, 20),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=10,
)


@given(trees, st.randoms(use_true_random=False))
@FEW
def test_the_order_of_spans_changes_nothing(tree: list, chance: random.Random) -> None:
    events: list[Event] = []
    for number, (name, start, duration, parent) in enumerate(tree):
        above = None if parent is None or parent == number else f"s{parent}"
        events.append(span(name, start, float(duration), f"s{number}", above))
        if duration > 10:
            events.append(opened(name, start, 1.0, f"s{number}"))
    mixed = list(events)
    chance.shuffle(mixed)
    summary = tally(*events)
    assert tally(*mixed) == summary
    assert summary.open_in_flight == 0
    assert all(0 <= name.self_s <= name.total_s for name in summary.by_name.values())
    assert all(name.wall_s <= name.total_s for name in summary.by_name.values())
