"""One attempt, executed here: what no engine can show by itself."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

from msgspec.structs import replace

from flightlog.engines.execute import execute
from flightlog.events import SpanEvent, TaskStarted
from flightlog.record.context import active_runs, carrier
from flightlog.record.span import current, current_span, span
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.engines import make_work, recorded


def leave_a_span_open() -> None:
    span("left open").__enter__()


def started_on_disk(run: Path) -> list[str]:
    return [e.task_id for e in Run(run).events("tasks") if isinstance(e, TaskStarted)]


def run(work, **options):
    return execute(work, worker="here", **{"alone": False, **options})


def test_the_start_is_recorded_before_the_call_is_unpickled(tmp_path):
    with recorded(tmp_path) as (path, _):
        work = replace(make_work(tasks.nothing, place=carrier()), call=b"not a pickle")
        seen = []
        outcome = run(work, started=lambda _start: seen.extend(started_on_disk(path)))
        assert seen == [work.task_id]
    assert (outcome.end, outcome.error_type, outcome.duration_s) == (
        "failed",
        "_pickle.UnpicklingError",
        None,
    )


def test_nothing_is_recorded_without_a_place_and_all_is_measured(tmp_path):
    with recorded(tmp_path) as (path, _):
        outcome = run(make_work(tasks.record_inside, "inside"))
        assert started_on_disk(path) == []
    assert outcome.end == "completed"
    assert outcome.duration_s is not None
    assert outcome.cpu_s is not None


def test_a_place_that_cannot_be_joined_costs_the_record_and_not_the_task(tmp_path):
    gone = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "flightlog_run": str(tmp_path / "gone")}
    outcome = run(make_work(tasks.add, 1, place=gone))
    assert pickle.loads(outcome.result) == 1
    assert gone["flightlog_run"] not in {str(active.path) for active in active_runs()}


def test_each_place_is_its_own_parent(tmp_path):
    with recorded(tmp_path) as (path, _):
        places = []
        for name in ("first", "second"):
            with span(name) as outer:
                places.append((outer.span_id, make_work(tasks.record_inside, name, place=carrier())))
                run(places[-1][1])
                run(make_work(tasks.nothing, place=carrier()))
        starts = {e.task_id: e.parent_id for e in Run(path).events("tasks") if isinstance(e, TaskStarted)}
    assert [starts[work.task_id] for _, work in places] == [span_id for span_id, _ in places]


def test_what_a_task_leaves_open_does_not_reach_the_next(tmp_path):
    with recorded(tmp_path) as (path, _):
        before = current.get()
        run(make_work(leave_a_span_open, place=carrier()))
        assert current.get() is before
        after = make_work(tasks.record_inside, "inside", place=carrier())
        run(after)
    (inside,) = [e for e in Run(path).events("spans") if isinstance(e, SpanEvent) and e.name == "inside"]
    assert inside.parent_id == after.span_id


def test_a_task_outside_a_run_has_the_shared_noop_for_a_span():
    assert run(make_work(tasks.record_inside, "inside")).tags == {}
    assert current_span().span_id == ""


def test_time_in_the_queue_is_unknown_where_the_submitting_clock_is_ahead():
    work = replace(make_work(tasks.nothing), submitted=time.time() + 3600)
    assert run(work).queue_s is None


def test_where_the_kernels_mark_cannot_be_reset_the_peak_is_a_lower_bound(tmp_path):
    outcome = run(make_work(tasks.nothing), alone=True, proc=tmp_path)
    assert outcome.rss_scope in ("process_at_least", "process")
    assert outcome.end == "completed"


def test_the_traceback_begins_with_the_task():
    outcome = run(make_work(tasks.fail, "no"))
    assert outcome.traceback is not None
    assert "execute.py" not in outcome.traceback
