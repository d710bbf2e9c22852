"""What curves show: the values of metrics by step or time, of bounded size, and what is no number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.charts import drawn
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.results import Curve, Curves
from flightlog.analyze.limits import ChartLimits
from flightlog.events import Metric


def metric(name: str, when: float, value: float | None, step: int | None = None) -> Metric:
    lost = None if value is not None else "nan"
    return Metric(timestamp=at(when), name=name, value=value, step=step, nonfinite=lost)


def curves(folder: Path, events: Iterable[Metric]) -> Curves:
    found = drawn(make_run(folder, events)).metrics
    assert found is not None
    return found


def test_a_metric_goes_over_its_steps_and_over_time_where_it_has_none(tmp_path: Path) -> None:
    events = [metric("loss", n, 4.0 - n, step=10 * n) for n in range(4)]
    events += [metric("accuracy", n, n / 10) for n in (1, 3)]
    found = curves(tmp_path, events)
    assert found.curves == [
        Curve(
            name="loss",
            by="step",
            at=[0.0, 10.0, 20.0, 30.0],
            value=[4.0, 3.0, 2.0, 1.0],
            least=[],
            most=[],
            lost_at=[],
            values=4,
            lost=0,
        ),
        Curve(
            name="accuracy",
            by="time",
            at=[1.0, 3.0],
            value=[0.1, 0.3],
            least=[],
            most=[],
            lost_at=[],
            values=2,
            lost=0,
        ),
    ]
    assert (found.names, found.notes) == (2, [])


def test_values_that_are_no_numbers_are_gaps_with_a_place(tmp_path: Path) -> None:
    events = [metric("loss", n, None if n in (2, 3) else 1.0, step=n) for n in range(6)]
    [curve] = curves(tmp_path, events).curves
    assert curve.value == [1.0, 1.0, None, None, 1.0, 1.0]
    assert (curve.lost_at, curve.lost, curve.values) == ([2.0, 3.0], 2, 6)


def test_metrics_without_a_curve_are_counted(tmp_path: Path) -> None:
    events = [metric("once", 1, 5.0), *(metric("never", n, None) for n in range(3))]
    events += [metric("still", 1, float(n)) for n in range(3)]
    found = curves(tmp_path, events)
    assert (found.curves, found.names) == ([], 3)
    assert found.notes == [
        "2 metrics have one point, and no curve.",
        "1 metric has no value that is a number, and no curve.",
    ]


def test_ten_thousand_names_are_drawn_by_those_with_most_values_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    events = [metric(f"m{n:05d}", 1, 1.0) for n in range(10_000)]
    events += [metric(f"m{n:05d}", when, 2.0) for n in range(100) for when in range(2, 3 + (n == 70))]
    found = curves(tmp_path, events)
    assert [one.name for one in found.curves] == [
        "m00070",
        *(f"m{n:05d}" for n in range(ChartLimits.max_metrics - 1)),
    ]
    assert found.notes == [
        "9,900 metrics have one point, and no curve.",
        "76 more metrics are not drawn: the 24 with the most values are.",
    ]


def test_values_of_a_clock_that_is_far_off_are_counted(tmp_path: Path) -> None:
    found = curves(tmp_path, [metric("loss", when, 1.0) for when in (1, 2, 900)])
    assert found.curves[0].at == [1.0, 2.0]
    assert found.notes == ["1 value is not drawn: of another time than the run, by the clock."]


def test_values_of_a_clock_that_is_far_off_are_counted_where_only_some_have_a_step(tmp_path: Path) -> None:
    found = curves(
        tmp_path, [metric("loss", 1, 1.0), metric("loss", 2, 1.0), metric("loss", 900, 1.0, step=3)]
    )
    assert found.curves[0].at == [1.0, 2.0]
    assert found.notes == ["1 value is not drawn: of another time than the run, by the clock."]


def test_a_run_without_metrics_has_no_curves(tmp_path: Path) -> None:
    assert drawn(make_run(tmp_path)).metrics is None


numbers = st.one_of(st.none(), st.floats(-1e308, 1e308))


@FEW
@given(
    st.lists(st.tuples(numbers, st.integers(-(2**63), 2**63 - 1)), min_size=2, max_size=8),
    st.integers(1, 200),
)
def test_many_values_share_a_bounded_number_of_points_that_hold_them_all(
    given_: list[tuple[float | None, int]], times: int
) -> None:
    values = given_ * times
    with TemporaryDirectory() as folder:
        found = curves(Path(folder), (metric("loss", n / 1000, v, step=s) for n, (v, s) in enumerate(values)))
    known = [value for value, _ in values if value is not None]
    if len(known) < 2:
        assert found.curves == []
        return
    [curve] = found.curves
    assert len(curve.at) <= ChartLimits.max_metric_points + 1
    assert curve.at == sorted(curve.at)
    assert (curve.values, curve.lost) == (len(values), len(values) - len(known))
    assert bool(curve.lost_at) == bool(curve.lost)
    ends = [*(curve.least or curve.value), *(curve.most or curve.value)]
    shown = [value for value in ends if value is not None]
    assert all(math.isfinite(value) for value in (*shown, *curve.at))
    assert (min(shown), max(shown)) == (pytest.approx(min(known)), pytest.approx(max(known)))
