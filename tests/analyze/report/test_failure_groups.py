"""Failures by cause, with when, where, of what and at which attempt."""

from __future__ import annotations

from pathlib import Path

from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted

from flightlog.analyze.failures import FailureCase, FailureExample, FailureGroup, FailureSummary
from flightlog.analyze.limits import DiagnosisLimits
from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.summary import summarize
from flightlog.events import Event, Failure, TaskRetried, TaskStarted
from flightlog.store.run import Run


def failure(task_id: str | None, when: float, attempt: int | None, **more: object) -> Event:
    fields = {
        "scope": "task",
        "error_type": "OSError",
        "message": "gone",
        "traceback": "Traceback",
        "fingerprint": "f1",
        "worker": "w1",
    }
    return Failure(timestamp=at(when), task="sim", task_id=task_id, attempt=attempt, **{**fields, **more})  # type: ignore[arg-type]


def test_one_cause_tells_when_where_of_what_and_at_which_attempt(tmp_path: Path) -> None:
    events: list[Event] = [
        submitted("a", seed=1),
        started("a", 0.0),
        failure("a", 1, 1),
        TaskRetried(timestamp=at(1), task="sim", task_id="a", reason="OSError: gone"),
        TaskStarted(timestamp=at(2), task="sim", task_id="a", attempt=2, worker="w2", queue_s=None),
        failure("a", 3, 2, worker="w2"),
        failed("a", 3, 1.0, "w2", attempt=2, error_type="OSError", error_message="gone", fingerprint="f1"),
        submitted("b", seed=2),
        failed("b", 4, 1.0, error_type="ValueError", error_message="bad\nseed"),
    ]
    report = report_on(Run(make_run(tmp_path, events)))
    assert report.details is not None
    gone, bad = report.details.failures
    assert (gone.fingerprint, gone.count, gone.first, gone.last) == ("f1", 2, at(1), at(3))
    assert (gone.tasks, gone.workers, gone.attempts) == ({"sim": 2}, {"w1": 1, "w2": 1}, {"1": 1, "2": 1})
    assert gone.cases == [
        FailureCase(timestamp=at(1), task="sim", task_id="a", args={"seed": 1}, worker="w1", attempt=1),
        FailureCase(timestamp=at(3), task="sim", task_id="a", args={"seed": 1}, worker="w2", attempt=2),
    ]
    assert (bad.fingerprint, bad.error_type, bad.count, bad.tasks) == (None, "ValueError", 1, {"sim": 1})
    assert sum(cause.count for cause in report.details.failures) == report.failures.count


def summed_up(tmp_path: Path, *events: Event) -> FailureSummary:
    return summarize(Run(make_run(tmp_path, list(events)))).failures


def of_sim(task_id: str, when: float, **more: object) -> Event:
    return failure(task_id, when, None, **{"traceback": f"trace {task_id}", **more})


def test_failures_of_one_cause_are_one_group_with_the_earliest_as_its_example(tmp_path: Path) -> None:
    summary = summed_up(
        tmp_path,
        of_sim("b", 5),
        of_sim("a", 3),
        failed("a", 3, 1.0, fingerprint="f1", args={"seed": 3}),
        failed("b", 5, 1.0, fingerprint="f1"),
        of_sim("z", 1, fingerprint="f2", scope="worker", error_type=None, message=None),
    )
    example = FailureExample(
        timestamp=at(3),
        task="sim",
        task_id="a",
        args={"seed": 3},
        worker="w1",
        exit_code=None,
        signal=None,
        traceback="trace a",
        output_tail=None,
    )
    assert (summary.count, summary.groups) == (3, 2)
    assert summary.by_cause[0] == FailureGroup(
        fingerprint="f1", scopes=["task"], error_type="OSError", message="gone", count=2, example=example
    )


def test_a_failed_task_whose_failure_line_is_missing_still_counts(tmp_path: Path) -> None:
    summary = summed_up(tmp_path, failed("a", 3, 1.0, args={"seed": 3}), failed("b", 4, 1.0))
    assert (summary.count, summary.groups) == (2, 1)
    assert summary.by_cause[0].example.args == {"seed": 3}
    assert summary.by_cause[0].example.traceback is None


def test_an_error_that_ended_a_task_and_then_the_run_is_one_failure(tmp_path: Path) -> None:
    of_run = Failure(
        timestamp=at(4), scope="run", error_type="OSError", message="gone", traceback=None, fingerprint="f1"
    )
    passed_on = summed_up(tmp_path, of_sim("a", 3), failed("a", 3, 1.0, fingerprint="f1"), of_run)
    assert (passed_on.count, passed_on.by_cause[0].example.task_id) == (1, "a")
    assert summed_up(tmp_path / "alone", of_run).count == 1


def test_a_failed_command_is_one_failure_though_it_is_a_task_too(tmp_path: Path) -> None:
    events = [of_sim("a", 3, scope="command"), failed("a", 3, 1.0, fingerprint="f1")]
    assert summed_up(tmp_path, *events).count == 1


def test_failures_without_a_fingerprint_group_by_kind_and_first_line_whatever_numbers_and_ids_it_names(
    tmp_path: Path,
) -> None:
    messages = [f"bad seed {n} of run-{n:x}f3a90c2 at 0x{n:08x}\ndetail {n}" for n in range(3)]
    events = [of_sim(str(n), n, fingerprint=None, message=text) for n, text in enumerate(messages)]
    assert summed_up(tmp_path, *events).groups == 1


def test_tasks_that_depend_on_a_failed_one_count_with_its_cause(tmp_path: Path) -> None:
    events = [of_sim("root-1", 1), failed("root-1", 1, 1.0, fingerprint="f1")]
    above = "root-1"
    for n in range(30):
        said = f"sim ({above}), which sim depends on, failed: OSError: gone"
        above = f"next-{n}-x{n % 7}"
        events.append(failed(above, 2 + n, 0.0, error_type="DependencyFailed", error_message=said))
    run = Run(make_run(tmp_path, events))
    report = report_on(run)
    assert (report.failures.count, report.failures.groups) == (31, 1)
    [group] = report.failures.by_cause
    assert (group.error_type, group.count, group.example.task_id) == ("OSError", 31, "root-1")
    assert report.details is not None
    assert report.details.failures[0].cases[0].task_id == "root-1"


def test_dependents_of_what_is_not_in_the_record_are_one_cause(tmp_path: Path) -> None:
    said = "sim (gone-{}), which sim depends on, failed: OSError: gone"
    events = [
        failed(f"t{n}", n, 0.0, error_type="DependencyFailed", error_message=said.format("abc"[n]))
        for n in range(3)
    ]
    assert summed_up(tmp_path, *events).groups == 1


def test_an_attempt_that_its_engine_put_back_by_itself_has_not_failed(tmp_path: Path) -> None:
    """Dask reschedules tasks of a shuffle; one task of the run did fail first."""
    events: list[Event] = []
    for n, reason in enumerate(["Dask: reschedule"] * 7 + ["OSError: gone"]):
        task = {"task": "sim", "task_id": f"t{n}"}
        events += [
            submitted(f"t{n}"),
            started(f"t{n}", 0.0),
            TaskRetried(timestamp=at(1), reason=reason, **task),
            TaskStarted(timestamp=at(2), attempt=2, worker="w2", queue_s=None, **task),
            completed(f"t{n}", 3, 1.0, "w2", attempt=2),
        ]
    run = Run(make_run(tmp_path, events))
    found = report_on(run)
    assert (found.tasks.retried, found.tasks.failed) == (8, 0)
    assert (found.failures.count, [one.message for one in found.failures.by_cause]) == (1, ["OSError: gone"])
    types = run.sql("SELECT error_type, count(*) FROM attempts WHERE attempt = 1 GROUP BY 1 ORDER BY 2")
    assert types.rows() == [("OSError", 1), (None, 7)]


def test_no_failure_is_no_group(tmp_path: Path) -> None:
    assert summed_up(tmp_path, submitted("a")) == FailureSummary(count=0, groups=0, by_cause=[])


def test_a_long_traceback_keeps_its_end(tmp_path: Path) -> None:
    summary = summed_up(tmp_path, of_sim("a", 1, traceback="x" * 50_000 + "the end"))
    kept = summary.by_cause[0].example.traceback
    assert kept is not None
    assert len(kept) == DiagnosisLimits.max_traceback_characters + 1
    assert kept.endswith("the end")
