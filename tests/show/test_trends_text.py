"""Trends as a person reads them: the answer first, with its units."""

from __future__ import annotations

import csv
import io
import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.analyze.history.trends import LevelChange, RunDifference, Trend, TrendLevel, TrendPoint, Unit
from flightlog.show.terminal import ascii_text, width_of
from flightlog.show.trends import trend_csv, trend_text


def point(number: int, value: float, level: int = 0) -> TrendPoint:
    return TrendPoint(
        run_id=f"run-202511{1 + number:02}T091200Z-demo-a1b2c3d4",
        start_time=f"2025-11-{1 + number:02}T09:12:00.000000Z",
        status="completed",
        value=value,
        git_commit="abc1234567890",
        git_dirty=False,
        level=level,
    )


def level(first: int, values: list[float]) -> TrendLevel:
    ordered = sorted(values)
    return TrendLevel(
        first=first, runs=len(values), typical=ordered[len(values) // 2], p05=ordered[0], p95=ordered[-1]
    )


def steady(values: list[float], metric: str = "wall", unit: Unit = "seconds", **more: object) -> Trend:
    fields = {
        "project": "demo",
        "metric": metric,
        "unit": unit,
        "currency": None,
        "changes": [],
        "drift": None,
        "enough": len(values) >= 10,
        "left_out": {},
        "levels": [level(0, values)] if values else [],
        "points": [point(number, value) for number, value in enumerate(values)],
    }
    return Trend(**{**fields, **more})  # type: ignore[arg-type]


def stepped(
    before: float, after: float, change: float | None, metric: str = "wall", unit: Unit = "seconds"
) -> Trend:
    values = [before] * 6 + [after] * 6
    step = LevelChange(
        at=6,
        earliest=5,
        latest=6,
        run_id=point(6, after).run_id,
        start_time=point(6, after).start_time,
        git_commit="abc1234567890",
        git_dirty=True,
        before=before,
        after=after,
        change=change,
        low=None if change is None else change * 0.8,
        high=None if change is None else change * 1.2,
        chance=1 / 2500,
        differences=[
            RunDifference(what="commit", before="def1234567890", after="abc1234567890"),
            RunDifference(what="host", before="node-1", after="node-2"),
        ],
    )
    return steady(
        values,
        metric,
        unit,
        changes=[step],
        levels=[level(0, values[:6]), level(6, values[6:])],
        points=[point(number, value, number // 6) for number, value in enumerate(values)],
        currency="EUR" if unit == "money" else None,
    )


STEP = """\
Wall time · project demo · 12 runs · 2025-11-01 to 2025-11-12

  18% slower since run-20251107T091200Z-demo-a1b2c3d4 (commit abc1234567+, 2025-11-07 09:12 UTC):
  3.1s → 3.7s
  95 % CI: 14% to 22% slower; by chance in 1 of 2,500 histories; it may have begun 1 run away.
  New against the run before: commit def1234567 → abc1234567, host node-1 → node-2.
"""


def test_a_step_comes_first_with_its_run_commit_size_and_confidence():
    text = trend_text(stepped(3.1, 3.7, 0.18))
    assert text.startswith(STEP)
    assert "▲1" in text


def test_the_levels_and_the_newest_runs_stand_in_tables():
    text = trend_text(stepped(3.1, 3.7, 0.18), width=120)
    assert text[text.index("Levels") :].splitlines() == [
        "Levels",
        "  From run                            Started           Commit      Runs  Median     p5 to p95  "
        "Change  Step",
        "  run-20251101T091200Z-demo-a1b2c3d4  2025-11-01 09:12  abc1234567     6    3.1s  3.1s to 3.1s",
        "  run-20251107T091200Z-demo-a1b2c3d4  2025-11-07 09:12  abc1234567     6    3.7s  3.7s to 3.7s    "
        "+18%     1",
        "",
        "Newest runs",
        "  Run                                 Started           Commit      Value  To its level",
        *(
            f"  run-202511{day:02}T091200Z-demo-a1b2c3d4  2025-11-{day:02} 09:12  abc1234567   "
            f"{'3.7s' if day > 6 else '3.1s'}           ±0%"
            for day in range(12, 4, -1)
        ),
    ]


@pytest.mark.parametrize(
    ("trend", "words"),
    [
        (stepped(3.1, 2.5, -0.19), "19% faster since"),
        (stepped(2.0**30, 2.0**31, 1.0, "memory:sim", "bytes"), "100% more memory since"),
        (stepped(2.0, 1.0, -0.5, "cost", "money"), "50% cheaper since"),
        (stepped(0.9, 0.3, -0.6, "hits", "share"), "60 percentage points less since"),
        (stepped(0.0, 2.5, 2.5, "failures", "count"), "2.5 more per run since"),
        (stepped(0.0, 2.0, None, "cost", "money"), "another level since"),
    ],
)
def test_each_unit_has_its_words(trend, words):
    assert trend_text(trend).splitlines()[2].strip().startswith(words)


@pytest.mark.parametrize(
    ("metric", "unit", "title"),
    [
        ("wall", "seconds", "Wall time"),
        ("duration:sim", "seconds", "Mean duration of sim"),
        ("p95:sim", "seconds", "p95 duration of sim"),
        ("memory:sim", "bytes", "Peak memory of sim"),
        ("memory", "bytes", "Peak memory"),
        ("hits", "share", "Cache hit rate"),
        ("cost", "money", "Cost"),
        ("failures", "count", "Failures"),
    ],
)
def test_the_title_says_what_is_shown(metric, unit, title):
    assert trend_text(steady([1.0], metric, unit)).startswith(
        f"{title} · project demo · 1 run · 2025-11-01\n"
    )


def test_without_a_step_the_usual_is_said():
    values = [3.0 + number / 10 for number in range(12)]
    assert trend_text(steady(values)).splitlines()[2] == (
        "  No step in 12 runs. Typically 3.6s, p5 to p95: 3.0s to 4.1s."
    )


def test_outliers_are_named_with_what_is_typical():
    trend = steady([1.0] * 12 + [3.0])
    points = [replace(one, outlier=one.value == 3.0) for one in trend.points]
    text = trend_text(replace(trend, points=points))
    assert f"1 outlier: {points[-1].run_id} (3.0s, typically 1.0s)." in text
    assert "outlier" not in trend_text(trend)


def test_a_drift_is_called_one():
    values = [3.0 + number / 10 for number in range(12)]
    text = trend_text(steady(values, drift=0.37))
    assert text.splitlines()[2].startswith(
        "  No step, but a slow drift: 37% slower from the first run to the last."
    )
    assert "To its level" not in text


def test_too_few_runs_are_shown_without_a_verdict():
    assert trend_text(steady([3.0, 4.0])).splitlines()[2] == (
        "  Typically 4.0s. Not enough runs to detect a step: 2 of at least 10."
    )


def test_no_history_is_a_clear_line():
    text = trend_text(steady([], left_out={"failed": 2, "without a summary": 1}))
    assert text == (
        "Wall time · project demo · 0 runs\n\n  No run has this figure.\n\n"
        "  Runs left out: 2 failed, 1 without a summary. A run has none if it was killed, or its files "
        "cannot\n"
        "  be read.\n"
    )


def test_no_run_since_a_date_is_a_clear_line():
    assert trend_text(steady([])) == "Wall time · project demo · 0 runs\n\n  No run started since then.\n"


def test_a_run_as_good_as_at_its_level_is_there():
    rows = trend_text(steady([3.0] * 11 + [2.9999])).splitlines()
    newest = next(row for row in rows if row.startswith("  run-"))
    assert newest.split()[-1] == "±0%"


def test_many_steps_are_cut_to_the_newest_and_all_stand_in_the_table():
    trend = stepped(3.1, 3.7, 0.18)
    many = msgspec.structs.replace(trend, changes=trend.changes * 7, levels=[trend.levels[0]] * 8)
    text = trend_text(many)
    assert "  7. 18% slower since" in text
    assert "  2 earlier steps: see the levels below." in text
    assert text.count("+18%") == 7


def test_values_off_the_scale_are_said():
    values = [3.0, 3.1] * 10 + [90.0]
    assert "  Off the scale: 1 run, up to 1m 30s." in trend_text(steady(values)).splitlines()


def test_the_csv_has_a_row_a_run():
    rows = list(csv.DictReader(io.StringIO(trend_csv(stepped(2.0, 1.0, -0.5, "cost", "money")))))
    assert len(rows) == 12
    assert rows[6] == {
        "run_id": "run-20251107T091200Z-demo-a1b2c3d4",
        "start_time": "2025-11-07T09:12:00.000000Z",
        "status": "completed",
        "git_commit": "abc1234567890",
        "metric": "cost",
        "value": "1.0",
        "unit": "EUR",
        "level": "1",
    }


UNITS = {"wall": "seconds", "memory": "bytes", "hits": "share", "failures": "count", "cost": "money"}


@given(
    st.lists(st.floats(0, 1e12), min_size=1, max_size=28),
    st.sampled_from(sorted(UNITS)),
    st.integers(60, 140),
    st.text(max_size=30),
)
@settings(deadline=None)
def test_any_trend_fits_into_the_terminal(values, metric, width, project):
    trend = steady(values, metric, UNITS[metric], project=project)  # type: ignore[arg-type]
    lines = trend_text(trend, width=width).splitlines()
    assert max(map(width_of, lines[1:])) <= width


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_plain_text_is_plain(seed):
    draw = Random(seed)
    values = [math.exp(draw.gauss(0, 0.1)) for _ in range(20)]
    assert ascii_text(trend_text(steady(values))).isascii()
    assert ascii_text(trend_text(stepped(3.1, 3.7, 0.18))).isascii()


def test_colour_marks_what_got_worse():
    assert "\x1b[31m" in trend_text(stepped(3.1, 3.7, 0.18), color=True)
    assert "\x1b[32m" in trend_text(stepped(0.3, 0.9, 0.6, "hits", "share"), color=True)
    assert "\x1b" not in trend_text(stepped(3.1, 3.7, 0.18))
