"""Calibration loops, from the span names that calibration code records."""

from __future__ import annotations

from pathlib import Path

from builders.runs import at, make_run

from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.spans import CalibrationLoop, Iteration
from flightlog.events import Event, SpanEvent, SpanOpened
from flightlog.store.run import Run


def span(
    name: str, span_id: str, parent: str | None, since: float, lasted: float, **more: object
) -> SpanEvent:
    return SpanEvent(
        timestamp=at(since),
        name=name,
        span_id=span_id,
        parent_id=parent,
        duration_s=lasted,
        **more,  # type: ignore[arg-type]
    )


def turn(number: int, since: float, loss: float | None) -> list[Event]:
    one = f"i{number}"
    tell: dict[str, object] = {"n_trials": 4} | ({} if loss is None else {"min_loss": loss})
    return [
        span("algorithm.ask", f"{one}a", one, since, 0.5, metrics={"n_params": 4}),
        span("simulation.submit_batch", f"{one}s", one, since + 0.5, 0.25, metrics={"n_submitted": 4}),
        span("simulation.gather", f"{one}g", one, since + 0.75, 2.0, metrics={"n_results": 4}),
        span("algorithm.tell", f"{one}t", one, since + 2.75, 0.125, metrics=tell),
        span("calibration.iteration", one, "job", since, 3.0, tags={"iteration": str(number)}),
    ]


def test_a_loop_is_read_from_its_spans(tmp_path: Path) -> None:
    events = [
        event
        for n, loss in ((1, 0.5), (2, None), (3, 0.75), (4, 0.25))
        for event in turn(n, 3.0 * (n - 1), loss)
    ]
    events.append(span("calibration.job", "job", None, 0, 15.0, tags={"job_id": "flu"}))
    [loop] = report_on(Run(make_run(tmp_path, events, end_time=at(15), duration_s=15.0))).calibration
    assert loop == CalibrationLoop(
        job="flu",
        iterations=4,
        open=False,
        duration_s=15.0,
        iterations_s=12.0,
        ask_s=2.0,
        submit_s=1.0,
        gather_s=8.0,
        tell_s=0.5,
        other_s=0.5,
        trials=16,
        trials_per_minute=64.0,
        best_loss=0.25,
        best_iteration="4",
        listed=loop.listed,
    )
    assert [(one.iteration, one.min_loss, one.best_loss) for one in loop.listed] == [
        ("1", 0.5, 0.5),
        ("2", None, 0.5),
        ("3", 0.75, 0.5),
        ("4", 0.25, 0.25),
    ]
    assert loop.listed[0] == Iteration(
        iteration="1",
        started_at=at(0),
        open=False,
        duration_s=3.0,
        ask_s=0.5,
        submit_s=0.25,
        gather_s=2.0,
        tell_s=0.125,
        trials=4,
        min_loss=0.5,
        best_loss=0.5,
    )


def test_iterations_without_a_job_or_metrics_are_a_loop_all_the_same(tmp_path: Path) -> None:
    events = [span("calibration.iteration", f"i{n}", None, 2.0 * n, 1.0) for n in range(3)]
    [loop] = report_on(Run(make_run(tmp_path, events))).calibration
    assert (loop.job, loop.iterations, loop.duration_s, loop.other_s) == (None, 3, 5.0, 3.0)
    assert (loop.trials, loop.trials_per_minute, loop.best_loss) == (None, None, None)
    assert [one.iteration for one in loop.listed] == ["1", "2", "3"]


def test_what_a_killed_loop_was_in_lasts_up_to_the_last_sign_of_life(tmp_path: Path) -> None:
    """The second turn hung in `gather`; a phase of the first one has no end on record and ended with it."""

    def opened(name: str, span_id: str, parent: str | None, since: float) -> SpanOpened:
        ids = {"span_id": span_id, "parent_id": parent, "trace_id": ""}
        return SpanOpened(timestamp=at(since), name=name, tags={}, elapsed_s=0.5, **ids)

    events: list[Event] = [
        opened("calibration.job", "job", None, 0),
        span("algorithm.ask", "a1", "i1", 0, 1.0, metrics={"n_trials": 3, "min_loss": 0.5}),
        opened("simulation.gather", "g1", "i1", 1),
        span("calibration.iteration", "i1", "job", 0, 3.0, metrics={"total_trials": 4, "min_loss": 0.75}),
        opened("calibration.iteration", "i2", "job", 3),
        opened("simulation.gather", "g2", "i2", 4),
    ]
    killed = {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(9)}
    [loop] = report_on(Run(make_run(tmp_path, events, **killed))).calibration
    assert (loop.job, loop.open, loop.duration_s, loop.iterations_s) == (None, True, 9.0, 9.0)
    assert (loop.ask_s, loop.gather_s, loop.other_s, loop.trials, loop.best_loss) == (1.0, 7.0, 1.0, 4, 0.5)
    assert [(one.open, one.duration_s, one.gather_s) for one in loop.listed] == [
        (False, 3.0, 2.0),
        (True, 6.0, 5.0),
    ]


def test_a_run_without_such_spans_has_no_loop(tmp_path: Path) -> None:
    assert report_on(Run(make_run(tmp_path, [span("train", "t", None, 0, 1.0)]))).calibration == []
