"""The values of a metric while they come: every one of them is on a point, and points are few."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.examples import FEW
from builders.runs import START, at, make_run
from hypothesis import given
from hypothesis import strategies as some

from flightlog.analyze.charts.results import Curve
from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.follow import FollowedRun
from flightlog.core.time import SECOND, moment
from flightlog.events import Metric

NOW = (moment(START) or 0) / SECOND + 20
NUMBERS = some.none() | some.floats(allow_nan=False, allow_infinity=False, width=32)
RUNNING = {
    "status": "running",
    "end_time": None,
    "duration_s": None,
    "host": "elsewhere",
    "heartbeat": at(19),
}
POINTS = LiveLimits.max_metric_points


def gone(steps: list[int | None], values: list[float | None]) -> Curve | None:
    """The points of a metric with these values, which come in this order."""
    events = [
        Metric(timestamp=at(number / 1000), name="loss", step=step, value=value)
        for number, (step, value) in enumerate(zip(steps, values, strict=True))
    ]
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        state = FollowedRun(make_run(Path(folder), events, **RUNNING), now=lambda: NOW).update()
    return state.metrics[0].points if state.metrics else None


def test_few_values_are_each_a_point() -> None:
    found = gone([3, 1, 2], [0.5, 2.0, 1.0])
    assert found is not None
    assert (found.by, found.at, found.value, found.least, found.most) == (
        "step",
        [1, 2, 3],
        [2.0, 1.0, 0.5],
        [],
        [],
    )


def test_a_value_without_a_step_puts_all_of_them_on_the_clock() -> None:
    found = gone([1, None], [1.0, 2.0])
    assert found is not None
    assert (found.by, found.value) == ("time", [1.0, 2.0])
    assert found.at == pytest.approx([0.0, 0.001], abs=1e-5)


def test_values_of_one_step_are_one_point() -> None:
    found = gone([1, 2, 1, 2], [1.0, 5.0, 3.0, 7.0])
    assert found is not None
    assert (found.at, found.value, found.least, found.most) == ([1, 2], [2.0, 6.0], [1.0, 5.0], [3.0, 7.0])


def test_one_place_and_no_number_are_no_line() -> None:
    assert gone([1], [1.0]) is None
    assert gone([1, 2], [None, None]) is None
    assert gone([], []) is None


def test_what_is_no_number_is_said_and_where() -> None:
    found = gone([1, 2, 3], [1.0, None, 3.0])
    assert found is not None
    assert (found.value, found.lost_at, found.lost, found.values) == ([1.0, None, 3.0], [2.0], 1, 3)


def test_early_and_late_values_are_drawn_as_finely() -> None:
    for count in (1000, 7777):
        found = gone(list(range(count)), [1.0] * count)
        assert found is not None
        gaps = [after - before for before, after in itertools.pairwise(found.at)]
        assert POINTS <= len(found.at) <= POINTS + 1
        assert max(gaps) <= 2 * min(gaps)


@FEW
@given(some.lists(NUMBERS, max_size=700), some.randoms(use_true_random=False))
def test_every_value_is_on_a_point_in_any_order(values: list[float | None], order: object) -> None:
    steps = list(range(len(values)))
    order.shuffle(steps)  # type: ignore[attr-defined]
    found = gone(list(steps), [values[step] for step in steps])
    known = [value for value in values if value is not None]
    if len(known) < 2:
        assert found is None
        return
    assert found is not None
    assert (found.values, found.lost) == (len(values), len(values) - len(known))
    assert min(len(values), POINTS / 3) <= len(found.at) <= POINTS + 1
    assert found.at == sorted(set(found.at))
    least = [one for one in found.least or found.value if one is not None]
    most = [one for one in found.most or found.value if one is not None]
    assert (min(least), max(most)) == (pytest.approx(min(known)), pytest.approx(max(known)))
    for low, mean, high in zip(found.least, found.value, found.most, strict=False):
        assert (low is None) == (mean is None) == (high is None)
        assert mean is None or low - 1e-6 * abs(low) <= mean <= high + 1e-6 * abs(high)


def test_the_metrics_with_the_most_values_have_points(tmp_path: Path) -> None:
    values = [
        Metric(timestamp=at(step), name=f"m{n}", value=1.0 / (step + 1), step=step)
        for n in range(9)
        for step in range(2 + n)
    ]
    state = FollowedRun(make_run(tmp_path, values, **RUNNING), now=lambda: NOW).update()
    assert [one.name for one in state.metrics if one.points is not None] == [
        "m3",
        "m4",
        "m5",
        "m6",
        "m7",
        "m8",
    ]
    assert [one.points.values for one in state.metrics if one.points] == [5, 6, 7, 8, 9, 10]
