"""Conditions that fail a comparison."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.compare.results import (
    CacheChange,
    Change,
    ComparedRun,
    Comparison,
    DurationChange,
    Interval,
    ResourceChange,
    Side,
    Spread,
)
from flightlog.analyze.compare.thresholds import METRICS, Threshold, check, parse_threshold, parse_thresholds
from flightlog.core.errors import UsageError

UNKNOWN = Change(before=None, after=None, difference=None, ratio=None)


def change(before, after, interval=None):
    ratio = after / before if before else None
    return Change(before=before, after=after, difference=after - before, ratio=ratio, interval=interval)


def side(status="completed"):
    run = ComparedRun(run_id="run-1", project="demo", status=status, start_time="", duration_s=1.0)
    return Side(asked="run-1", runs=[run])


def duration(name, ratio, *, verdict="slower", p95=None, out=True, low=1.01, kind="task"):
    spread = Spread(count=50, total_s=50.0, mean_s=1.0, p50_s=1.0, p95_s=2.0, max_s=3.0)
    interval = Interval(ratio=ratio, low=low, high=ratio * 1.1, p=0.001)
    return DurationChange(
        kind=kind,
        name=name,
        cached=False,
        verdict=verdict,
        by=None,
        before=spread,
        after=spread,
        pairs=None,
        shared_arguments=None,
        typical=interval,
        mean=interval,
        p95=None if p95 is None else Interval(ratio=p95, low=1.0, high=2.0, p=0.01),
        p95_stands_out=out,
    )


def comparison(**fields):
    nothing = change(0.0, 0.0)
    whole = ResourceChange(
        name=None, peak_rss_bytes=change(1e9, 1.1e9), cpu_s=UNKNOWN, read_bytes=UNKNOWN, write_bytes=UNKNOWN
    )
    fit = ResourceChange(
        name="fit",
        peak_rss_bytes=change(1e6, 1.5e6),
        cpu_s=change(1.0, 1.05),
        read_bytes=UNKNOWN,
        write_bytes=UNKNOWN,
    )
    standard = {
        "before": side(),
        "after": side(),
        "wall_s": change(100.0, 112.0),
        "worker_s": UNKNOWN,
        "explained": None,
        "tasks": dict.fromkeys(("submitted", "completed", "failed", "cancelled", "retried"), nothing),
        "durations": [
            duration("fit", 1.2, p95=1.15),
            duration("plot", 1.3, verdict="no change", low=0.9, p95=1.3, out=False),
        ],
        "appeared": [],
        "vanished": [],
        "arguments": [],
        "resources": [whole, fit],
        "failures": [],
        "cache": CacheChange(lookups=nothing, hits=nothing, hit_rate=change(0.9, 0.8), saved_s=UNKNOWN),
        "cost": UNKNOWN,
        "currency": None,
        "environment": [],
        "notes": [],
        "lost": ({}, {}),
    }
    return Comparison(**{**standard, **fields})


def outcome(text, found=None, **options):
    [result] = check(found or comparison(), [parse_threshold(text)], **options)
    return result.state, result.reasons


@pytest.mark.parametrize(
    ("text", "metric", "task", "above", "limit", "relative"),
    [
        ("p95>10%", "p95", None, True, 0.1, True),
        ("failures>0", "failures", None, True, 0.0, False),
        ("wall > 1m 30s", "wall", None, True, 90.0, False),
        ("memory>500MB", "memory", None, True, 5e8, False),
        ("Memory:fit > 1MiB", "memory", "fit", True, 2.0**20, False),
        ("duration:my.task:v2>7.5%", "duration", "my.task:v2", True, 0.075, True),
        ("hits<-5%", "hits", None, False, -0.05, False),
        ("cost>1.5", "cost", None, True, 1.5, False),
        ("wall>0", "wall", None, True, 0.0, False),
        ("p95 > +3 %", "p95", None, True, 0.03, True),
    ],
)
def test_a_condition_is_a_metric_perhaps_a_task_a_sign_and_a_limit(
    text, metric, task, above, limit, relative
):
    assert parse_threshold(text) == Threshold(
        text=text, metric=metric, task=task, above=above, limit=limit, relative=relative
    )


def test_commas_part_conditions_and_not_names():
    assert [one.text for one in parse_thresholds(["p95>10%,failures>0", "wall>5%"])] == [
        "p95>10%",
        "failures>0",
        "wall>5%",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write a metric, > or < and a limit, as 'p95>10%'"),
        ("p95", "is not understood"),
        ("p95>=10%", "is not understood"),
        ("p95>", "is not understood"),
        ("p59>10%", "there is no metric 'p59'; perhaps 'p95'"),
        ("zebra>1", "There are wall, worker"),
        ("wall:fit>1s", "'wall' is of the whole run and takes no task"),
        ("wall>10", "condition 'wall>10': '10' is no limit; write it as '30s' or '10%'"),
        ("wall>ten%", "'ten%' is no share"),
        ("memory>lots", "condition 'memory>lots': 'lots' is no limit; write it as '500MB' or '10%'"),
        ("failures>few", "'few' is no limit; write it as '3' or '10%'"),
        ("hits<5", "'5' is no limit; write it as '5%'"),
    ],
)
def test_what_is_not_understood_says_what_would_be(text, words):
    with pytest.raises(UsageError, match=words):
        parse_threshold(text)


@given(
    metric=st.sampled_from(sorted(METRICS)),
    sign=st.sampled_from("<>"),
    minus=st.sampled_from(["", "-", "+"]),
    percent=st.integers(0, 999),
    blanks=st.sampled_from(["", " ", "  "]),
)
def test_every_metric_takes_shares(metric, sign, minus, percent, blanks):
    found = parse_threshold(f"{blanks}{metric}{blanks}{sign}{blanks}{minus}{percent}%{blanks}")
    assert (found.metric, found.above) == (metric, sign == ">")
    assert found.limit == pytest.approx(percent / 100 * (-1 if minus == "-" else 1))


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_a_usage_error(text):
    try:
        found = parse_threshold(text)
    except UsageError:
        return
    assert found.metric in METRICS
    assert math.isfinite(found.limit)


def test_a_change_fails_if_it_stands_out_and_is_beyond_the_limit():
    assert outcome("duration>10%") == ("failed", ["a typical fit rose by 20%, 1.0s → 1.2s"])
    assert outcome("duration>25%") == ("passed", [])
    assert outcome("duration:plot>10%") == ("passed", [])
    assert outcome("p95>10%") == ("failed", ["p95 of fit rose by 15%, 2.0s → 2.3s"])
    assert outcome("mean:fit>100ms") == ("failed", ["the mean of fit rose by 20%, 1.0s → 1.2s"])


def test_strict_takes_every_change_at_its_face_value():
    assert outcome("duration:plot>10%", strict=True) == (
        "failed",
        ["a typical plot rose by 30%, 1.0s → 1.3s"],
    )
    assert len(outcome("p95>10%", strict=True)[1]) == 2


def test_figures_that_a_run_has_once_fail_by_their_size_unless_their_noise_is_known():
    assert outcome("wall>5%") == ("failed", ["wall time rose by 12%, 1m 40s → 1m 52s"])
    assert outcome("wall>15s") == ("passed", [])
    noisy = comparison(wall_s=change(100.0, 112.0, Interval(ratio=1.12, low=0.9, high=1.4)))
    assert outcome("wall>5%", noisy) == ("passed", [])
    assert outcome("wall>5%", noisy, strict=True)[0] == "failed"


def test_memory_is_that_of_the_run_and_of_every_task():
    assert outcome("memory>20%") == ("failed", ["peak memory of fit rose by 50%, 976.6 KiB → 1.4 MiB"])
    assert outcome("memory>5%")[1][0].startswith("peak memory of the run rose by 10%")
    assert outcome("memory:fit>600KB") == ("passed", [])


def test_failures_are_tasks_that_failed_for_good_and_runs_that_did_not_complete():
    assert outcome("failures>0") == ("passed", [])
    assert outcome("failures>0", comparison(after=side("crashed"))) == ("failed", ["failures rose, 0 → 1"])
    tasks = {**comparison().tasks, "failed": change(2.0, 3.0)}
    assert outcome("failures>0", comparison(tasks=tasks)) == ("failed", ["failures rose by 50%, 2 → 3"])
    assert outcome("failures>100%", comparison(tasks={**tasks, "failed": change(0.0, 1.0)}))[0] == "failed"


def test_hits_are_held_against_points():
    assert outcome("hits<-5%") == ("failed", ["cache hit rate fell, 90% → 80%"])
    assert outcome("hits<-20%") == ("passed", [])


def test_what_is_unknown_neither_fails_nor_passes():
    assert outcome("cost>10%") == ("unknown", ["cost is unknown on one side at least, or 0 before"])
    assert outcome("cpu:fit>1%")[0] == "failed"
    assert outcome("read>1GB")[0] == "unknown"


def test_a_task_that_nobody_ran_is_an_error_with_near_names():
    with pytest.raises(UsageError, match="no task or span 'fitt' in these runs; there are fit"):
        outcome("duration:fitt>10%")
    with pytest.raises(UsageError, match="no task or span 'fitt'"):
        outcome("memory:fitt>10%")


def test_spans_are_meant_only_by_name():
    found = comparison(durations=[duration("solve", 2.0, kind="span")])
    assert outcome("duration>10%", found)[0] == "unknown"
    assert outcome("duration:solve>10%", found)[0] == "failed"


def test_outcomes_come_in_the_order_of_the_conditions():
    found = check(comparison(), parse_thresholds(["wall>5%", "failures>0", "cost>1"]))
    assert [(one.condition, one.state) for one in found] == [
        ("wall>5%", "failed"),
        ("failures>0", "passed"),
        ("cost>1", "unknown"),
    ]
