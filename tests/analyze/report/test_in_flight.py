"""What a run was doing when it was last seen, against what is usual."""

from __future__ import annotations

from pathlib import Path

from builders.runs import at, make_run
from builders.task_events import completed, started, submitted

from flightlog.analyze.report.summary import summarize
from flightlog.analyze.report.tasks import InFlight, UsualDuration, in_flight
from flightlog.core.stats import distribution
from flightlog.events import Event, SpanEvent, SpanOpened
from flightlog.store.run import Run


def test_a_hung_task_is_held_against_those_that_ended(tmp_path: Path) -> None:
    events: list[Event] = [completed(f"t{n}", n, float(n)) for n in range(1, 6)]
    events += [submitted("x", seed=7), started("x", 0.0, "w2"), started("y", 9.0, "w3")]
    path = make_run(tmp_path, events, status="crashed", end_time=None, duration_s=None, heartbeat=at(60))
    usual = UsualDuration(count=5, p50=3.0, p95=4.8, max=5.0, of="run")
    assert in_flight(summarize(Run(path))) == [
        InFlight(
            kind="task",
            name="sim",
            task_id="x",
            args={"seed": 7},
            worker="w2",
            since=at(0),
            elapsed_s=60.0,
            usual=usual,
            ratio=20.0,
            stuck=True,
        ),
        InFlight(
            kind="task",
            name="sim",
            task_id="y",
            args=None,
            worker="w3",
            since=at(9),
            elapsed_s=51.0,
            usual=usual,
            ratio=17.0,
            stuck=True,
        ),
    ]


def test_history_tells_what_is_usual_where_the_run_does_not(tmp_path: Path) -> None:
    path = make_run(tmp_path, [completed("a", 1, 1.0), started("x", 2.0)])
    [without] = in_flight(summarize(Run(path)))
    assert (without.usual, without.ratio, without.stuck) == (None, None, None)
    [with_] = in_flight(summarize(Run(path)), {"sim": distribution([4.0] * 5)})
    assert with_.usual == UsualDuration(count=5, p50=4.0, p95=4.0, max=4.0, of="history")
    assert (with_.ratio, with_.stuck) == (2.0, False)


def test_an_open_span_is_held_against_spans_of_its_name(tmp_path: Path) -> None:
    events: list[Event] = [
        SpanEvent(timestamp=at(n), name="load", span_id=f"s{n}", duration_s=0.5) for n in range(5)
    ]
    events.append(
        SpanOpened(
            timestamp=at(5),
            name="load",
            tags={"shard": 3},
            trace_id="",
            span_id="x",
            parent_id=None,
            elapsed_s=1.0,
        )
    )
    [span] = in_flight(summarize(Run(make_run(tmp_path, events))))
    assert (span.kind, span.args, span.elapsed_s, span.ratio, span.stuck) == (
        "span",
        {"shard": 3},
        5.0,
        10.0,
        True,
    )
