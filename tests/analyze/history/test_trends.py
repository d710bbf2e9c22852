"""The history of a figure: which runs count, what it steps from and to, and where."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from random import Random

import msgspec
import pytest
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.analyze.history.trends import RunDifference, RunMetric, parse_metric, trend_of, trends
from flightlog.core.errors import RunNotFound, UsageError
from flightlog.core.stats import mean_interval, shift_interval
from flightlog.store.catalogue import PastRun, RunEntry
from flightlog.store.headline import Headline
from flightlog.store.layout import RunInfo

_DRAW = Random(1)
NOISE = [math.exp(_DRAW.uniform(-0.05, 0.05)) for _ in range(200)]
"""Within 5 %."""


def headline(**given: object) -> Headline:
    return msgspec.convert(given, Headline)


def of_sim(**given: object) -> Headline:
    """With one task of this name, which completed."""
    return headline(tasks={"by_name": {"sim": {"completed": 1, **given}}})


def past(
    number: int,
    duration_s: float | None = 1.0,
    status: str = "completed",
    found: Headline | None = None,
    failed: int | None = 0,
    **info: object,
) -> PastRun:
    run_id, start = f"run-{number:04}", f"2026-05-{1 + number // 24:02}T{number % 24:02}:00:00.000000Z"
    entry = RunEntry(Path(run_id), run_id, "p", status, start, None, duration_s, 1, 1, failed, None)
    return PastRun(entry, RunInfo(run_id=run_id, project="p", status=status, start_time=start, **info), found)


def trend(runs: list[PastRun], metric: str = "wall", **options: int):
    return trend_of("p", parse_metric(metric), list(reversed(runs)), **options)


# --- which runs count


def test_only_runs_that_completed_count_and_the_others_are_said():
    runs = [
        past(0),
        past(1, status="failed"),
        past(2, status="running"),
        past(3, duration_s=None),
        past(4, 2.0),
    ]
    found = trend(runs)
    assert [(point.run_id, point.value) for point in found.points] == [("run-0000", 1.0), ("run-0004", 2.0)]
    assert found.left_out == {"failed": 1, "running": 1, "without a duration": 1}
    assert (found.enough, found.changes, [level.runs for level in found.levels]) == (False, [], [2])


def test_the_last_runs_are_the_newest_that_have_the_figure():
    runs = [past(0), past(1), past(2, status="failed"), past(3)]
    assert [point.run_id for point in trend(runs, last=2).points] == ["run-0001", "run-0003"]


def test_failures_count_every_run_that_ended():
    runs = [
        past(0, failed=2),
        past(1, status="failed"),
        past(2, status="crashed", failed=3),
        past(3, status="running"),
        past(4, status="interrupted"),
        past(5, failed=None),
    ]
    found = trend(runs, "failures")
    assert [point.value for point in found.points] == [2.0, 1.0, 3.0, 0.0]
    assert found.left_out == {"running": 1, "unknown": 1}


@pytest.mark.parametrize(
    ("metric", "found", "value", "reason"),
    [
        ("wall", None, 1.0, ""),
        ("duration:sim", of_sim(duration_s={"mean": 2.0}), 2.0, ""),
        ("p95:sim", of_sim(duration_s={"p95": 3.0}), 3.0, ""),
        ("p95:sim", of_sim(completed=0), None, "where no such task completed"),
        ("p95:sim", of_sim(), None, "where no duration of it was recorded"),
        ("p95:sim", headline(tasks={"by_name": {"plot": {}}}), None, "without such a task"),
        ("p95:a:b", headline(tasks={"by_name": {"a:b": {"duration_s": {"p95": 4.0}}}}), 4.0, ""),
        ("memory:sim", of_sim(peak_rss_bytes=5), 5.0, ""),
        ("memory:sim", of_sim(), None, "without a measured memory"),
        ("memory", headline(resources={"process": {"peak_rss_bytes": 6}}), 6.0, ""),
        ("memory", headline(), None, "without samples of memory"),
        ("hits", headline(cache={"lookups": 4, "hits": 1}), 0.25, ""),
        ("hits", headline(cache={"lookups": 0, "hits": 0}), None, "without lookups in a cache"),
        ("cost", headline(cost={"total": 7.5, "currency": "EUR"}), 7.5, ""),
        ("cost", headline(cost={"total": 7.5, "currency": "USD"}), None, "in another currency"),
        ("cost", headline(), None, "without a cost"),
        ("cost", None, None, "without a summary"),
    ],
)
def test_each_metric_has_its_place_and_says_where_it_is_missing(metric, found, value, reason):
    assert parse_metric(metric).value(past(0, found=found), "EUR") == (value, reason)


@pytest.mark.parametrize("odd", [-1.0, 1e300, math.inf, math.nan])
def test_a_value_that_cannot_be_is_left_out(odd):
    assert RunMetric(kind="wall").value(past(0, odd)) == (None, "with a value that cannot be")
    huge = past(0, found=headline(cache={"lookups": 10**400, "hits": 10**399}))
    assert RunMetric(kind="hits").value(huge) == (None, "without lookups in a cache")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "walls",
            "metric 'walls' is none of wall, duration:TASK, p95:TASK, memory:TASK, memory, hits, cost or "
            "failures",
        ),
        ("wall:sim", "metric 'wall:sim' is none of"),
        ("p95", "metric 'p95' names no task: write p95:TASK"),
        ("duration:", "metric 'duration:' names no task: write duration:TASK"),
        ("", "metric '' is none of"),
    ],
)
def test_a_metric_that_there_is_not_is_named_with_those_there_are(text, message):
    with pytest.raises(UsageError) as raised:
        parse_metric(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "text", ["wall", "duration:a:b", "p95:x", "memory:x", "memory", "hits", "cost", "failures"]
)
def test_a_metric_is_written_as_it_is_read(text):
    assert parse_metric(text).text == text


def test_a_task_that_no_run_has_is_named_with_close_ones():
    runs = [past(0, found=headline(tasks={"by_name": {"simulate": {}, "plot": {}}}))]
    with pytest.raises(UsageError, match="no run has a task 'simulat'; close: simulate"):
        trend(runs, "p95:simulat")
    with pytest.raises(UsageError, match="no run has a task 'x'; there are: simulate, plot"):
        trend(runs, "p95:x")


# --- steps


def stepped(**changes: object) -> list[PastRun]:
    """Forty runs: 3 seconds, and from the 25th on 4."""
    runs = []
    for number in range(40):
        info = {"git_commit": "a" * 40 if number < 25 else "b" * 40, "host": "node-1", **changes}
        runs.append(past(number, (3.0 if number < 25 else 4.0) * NOISE[number], **info))
    return runs


def test_a_step_has_the_run_the_commit_the_size_and_what_is_new():
    runs = stepped()
    found = trend(runs)
    [change] = found.changes
    values = [run.entry.duration_s for run in runs]
    before, after = statistics.median(values[:25]), statistics.median(values[25:])
    assert (change.at, change.run_id, change.git_commit) == (25, "run-0025", "b" * 40)
    assert (change.before, change.after) == (before, after)
    assert change.change == pytest.approx(after / before - 1)
    assert change.low < change.change < change.high
    assert change.low == pytest.approx(0.33, abs=0.08)
    assert change.chance < 1e-4
    assert change.differences == [RunDifference(what="commit", before="a" * 40, after="b" * 40)]
    assert [(level.first, level.runs, level.typical) for level in found.levels] == [
        (0, 25, before),
        (25, 15, after),
    ]
    assert [point.level for point in found.points] == [0] * 25 + [1] * 15


def test_shares_and_counts_step_by_a_difference_of_means():
    runs = [past(number, failed=number % 2 if number < 30 else 5 + number % 2) for number in range(60)]
    [change] = trend(runs, "failures").changes
    assert (change.at, change.before, change.after, change.change) == (30, 0.5, 5.5, 5.0)
    assert change.low < 5.0 < change.high


def test_a_step_up_from_nothing_has_no_ratio():
    runs = [
        past(n, found=headline(cost={"total": 0.0 if n < 20 else 2.0 + n % 3, "currency": "EUR"}))
        for n in range(40)
    ]
    [change] = trend(runs, "cost").changes
    assert (change.at, change.before, change.change, change.low) == (20, 0.0, None, None)


def test_costs_are_compared_in_the_currency_of_the_newest_run():
    runs = [
        past(n, found=headline(cost={"total": 1.0, "currency": "USD" if n < 3 else "EUR"})) for n in range(5)
    ]
    found = trend(runs, "cost")
    assert (found.currency, len(found.points), found.left_out) == ("EUR", 2, {"in another currency": 3})


def test_a_drift_is_a_ratio_over_the_whole_history():
    runs = [past(number, math.exp(0.5 * number / 199) * NOISE[number]) for number in range(200)]
    found = trend(runs)
    assert found.changes == []
    assert found.drift == pytest.approx(math.exp(0.5) - 1, rel=0.05)


def test_no_history_has_no_levels():
    found = trend([])
    assert (found.points, found.levels, found.changes, found.enough) == ([], [], [], False)


@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=12),
    st.lists(st.floats(-100, 100), min_size=2, max_size=12),
    st.floats(-50, 50),
)
def test_intervals_move_with_the_values(before, after, shift):
    for interval in (shift_interval, mean_interval):
        low, high = interval(before, after)
        assert low <= high
        moved = interval(before, [value + shift for value in after])
        assert moved == pytest.approx((low + shift, high + shift), abs=1e-6)


def test_intervals_cover_the_truth_as_often_as_they_say():
    covered = 0
    for seed in range(400):
        draw = Random(seed)
        low, high = shift_interval(
            [draw.gauss(0, 1) for _ in range(12)], [draw.gauss(1, 1) for _ in range(12)]
        )
        covered += low <= 1 <= high
    assert covered / 400 >= 0.93


# --- from a folder


def history(runs: Path) -> None:
    for number in range(4):
        start = f"2026-05-2{number}T03:52:00.000000Z"
        make_run(runs, project="a", token=f"{number:08x}", start_time=start, duration_s=1.0 + number)
    make_run(runs, project="b", token="000000ff", start_time="2026-05-19T00:00:00.000000Z", duration_s=9.0)


def test_the_project_is_that_of_the_latest_run_unless_one_is_named(tmp_path):
    history(tmp_path)
    assert [point.value for point in trends(runs_dir=tmp_path).points] == [1.0, 2.0, 3.0, 4.0]
    assert [point.value for point in flightlog.trends("b", runs_dir=tmp_path).points] == [9.0]


def test_a_date_is_the_first_that_counts(tmp_path):
    history(tmp_path)
    assert [point.value for point in trends(since="2026-05-22", runs_dir=tmp_path).points] == [3.0, 4.0]
    assert trends(since="2027-01-01", runs_dir=tmp_path).project == "a"
    with pytest.raises(UsageError, match="'tomorrow' is no date: write it as 2026-05-20"):
        trends(since="tomorrow", runs_dir=tmp_path)


def test_no_runs_and_no_such_project_are_said(tmp_path):
    with pytest.raises(RunNotFound, match="there are no runs in"):
        trends(runs_dir=tmp_path)
    history(tmp_path)
    with pytest.raises(RunNotFound, match="is of project 'c'; there are runs of a, b"):
        trends("c", runs_dir=tmp_path)


def test_a_run_without_summary_is_reckoned_from_its_events(tmp_path):
    from flightlog.events import TaskCompleted, TaskSubmitted

    events = []
    for number in range(3):
        events += [
            TaskSubmitted(task="sim", task_id=str(number), args={}),
            TaskCompleted(task="sim", task_id=str(number), args={}, worker="w", duration_s=1.0 + number),
        ]
    make_run(tmp_path, events)
    make_run(tmp_path, events, token="00000002", status="failed")
    found = trends(metric="duration:sim", runs_dir=tmp_path)
    assert ([point.value for point in found.points], found.left_out) == ([2.0], {"failed": 1})
