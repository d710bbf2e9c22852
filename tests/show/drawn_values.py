"""Small results to draw, one of each kind, built in code."""

from __future__ import annotations

import math
from typing import Any

from flightlog.analyze.charts.results import (
    Bars,
    Cells,
    Chart,
    ChartSeries,
    Curve,
    DurationSpread,
    Nested,
    Timeline,
    TimelineMark,
    TimelineRow,
    Waits,
)
from flightlog.analyze.compare.results import (
    CacheChange,
    Change,
    Comparison,
    DurationChange,
    Interval,
    Share,
    Side,
    WallExplained,
)
from flightlog.analyze.cost.cost import CostSplit
from flightlog.analyze.history.trends import LevelChange as Step
from flightlog.analyze.history.trends import RunDifference, Trend, TrendLevel, TrendPoint
from flightlog.analyze.report.critical_path import CriticalPath, PathPart
from flightlog.analyze.report.spans import SpanNode, SpanTree
from flightlog.analyze.report.time_shares import Shares, TimeSplit

SINCE = "2026-05-20T03:52:00.000000Z"


def lanes(*labels: str) -> list[TimelineRow]:
    return [TimelineRow(label=label, worker=label) for label in labels]


def timeline(**changes: Any) -> Timeline:
    """Two workers and 100 seconds: three tasks, one of which failed."""
    fields: dict[str, Any] = {
        "since": SINCE,
        "length_s": 100.0,
        "names": ["simulate", "collect"],
        "lanes": lanes("w-1", "w-2"),
        "bars": Bars(
            lane=[0, 1, 0],
            start_s=[0.0, 10.0, 50.0],
            length_s=[40.0, 50.0, 30.0],
            name=[0, 0, 1],
            state=["completed", "failed", "completed"],
            task_id=["t1", "t2", "t3"],
            attempt=[1, 2, 1],
        ),
        "cells": None,
        "marks": [
            TimelineMark(
                lane=1, at_s=60.0, kind="failed", task="simulate", task_id="t2", text="ValueError: seven"
            )
        ],
        "attempts": 3,
        "workers": 2,
        "failures": 1,
        "notes": [],
    }
    return Timeline(**{**fields, **changes})


def nested(**changes: Any) -> Nested:
    """Three spans inside the first task of the first worker: one that holds another, and one beside it that
    failed."""
    fields: dict[str, Any] = {
        "lane": [0, 0, 0],
        "row": [0, 1, 0],
        "start_s": [0.0, 5.0, 20.0],
        "length_s": [15.0, 5.0, 10.0],
        "name": [0, 1, 0],
        "state": ["completed", "completed", "failed"],
        "names": ["solve", "load"],
        "rows": [2, 0],
    }
    return Nested(**{**fields, **changes})


def dense(**changes: Any) -> Timeline:
    """The same two workers, drawn by how busy they were."""
    cells = Cells(
        lane=[0, 0, 1],
        start_s=[0.0, 50.0, 0.0],
        length_s=[50.0, 50.0, 100.0],
        name=[0, 1, -1],
        attempts=[100, 20, 7],
        busy=[1.0, 0.5, 0.0],
    )
    return timeline(
        bars=None, cells=cells, attempts=127, notes=["127 tasks are drawn by how busy"], **changes
    )


def chart(unit: Any = "bytes", **changes: Any) -> Chart:
    """A line with a gap, of 10 GiB at most."""
    series = ChartSeries(
        label="w-1", at_s=[0.0, 30.0, 60.0, 90.0], value=[2.0**30, None, 10 * 2.0**30, 2.0**31]
    )
    fields: dict[str, Any] = {
        "since": SINCE,
        "length_s": 100.0,
        "unit": unit,
        "series": [series],
        "notes": [],
    }
    return Chart(**{**fields, **changes})


def spread(name: str = "simulate", **changes: Any) -> DurationSpread:
    fields: dict[str, Any] = {
        "count": 10,
        "total_s": 40.0,
        "edges_s": [1.0, 2.0, 4.0, 8.0],
        "counts": [2, 6, 2],
        "least_s": 1.0,
        "p25_s": 2.5,
        "median_s": 3.0,
        "p75_s": 4.0,
        "p95_s": 7.0,
        "most_s": 8.0,
    }
    return DurationSpread(name=name, **{**fields, **changes})


def waits(**changes: Any) -> Waits:
    fields: dict[str, Any] = {
        "attempts": 3,
        "names": ["simulate"],
        "queue_s": [0.0, 1.0, 20.0],
        "run_s": [2.0, 3.0, 4.0],
        "name": [0, 0, -1],
        "queue_edges_s": [],
        "run_edges_s": [],
        "grid": [],
        "notes": [],
    }
    return Waits(**{**fields, **changes})


def waits_grid() -> Waits:
    return waits(
        queue_s=[],
        run_s=[],
        name=[],
        queue_edges_s=[0.0, 0.1, 1.0],
        run_edges_s=[0.1, 1.0, 10.0],
        grid=[[0, 1000], [3, 0]],
        notes=["1,003 attempts are drawn as counts."],
    )


def curve(**changes: Any) -> Curve:
    """Four steps of a loss; the third was NaN."""
    fields: dict[str, Any] = {
        "name": "loss",
        "by": "step",
        "at": [0.0, 1.0, 2.0, 3.0],
        "value": [4.0, 2.0, None, 1.0],
        "least": [],
        "most": [],
        "lost_at": [2.0],
        "values": 4,
        "lost": 1,
    }
    return Curve(**{**fields, **changes})


def critical(parts: int = 2) -> CriticalPath:
    found = [PathPart(kind="task", name="simulate", links=3, seconds=80.0, share=0.8, saves_s=30.0)]
    found += [
        PathPart(kind="wait", name=f"simulate-{n}", links=1, seconds=20.0 - n, share=0.2, saves_s=None)
        for n in range(parts - 1)
    ]
    return CriticalPath(of="tasks", wall_s=100.0, links=4, parts=found, longest=[])


def node(task: str | None, path: list[str], busy_s: float, self_s: float) -> SpanNode:
    return SpanNode(
        task=task,
        path=path,
        count=3,
        open=0,
        errors=1,
        total_s=busy_s,
        wall_s=busy_s,
        self_s=self_s,
        busy_s=busy_s,
    )


def spans() -> SpanTree:
    return SpanTree(
        paths=4,
        unplaced=0,
        nodes=[
            node(None, ["main"], 10.0, 4.0),
            node(None, ["main", "load"], 6.0, 6.0),
            node("simulate", ["step"], 30.0, 10.0),
            node("simulate", ["step", "solve"], 20.0, 20.0),
        ],
    )


def cost(**changes: float) -> CostSplit:
    parts = {
        "useful": 6.0,
        "retried": 1.0,
        "failed": 0.0,
        "unfinished": 0.0,
        "idle": 2.0,
        "starting": 1.0,
        **changes,
    }
    return CostSplit(total=sum(parts.values()), currency="USD", **parts)


def split(total_s: float, run_s: float) -> TimeSplit:
    return TimeSplit(
        total_s=total_s,
        run_s=run_s,
        unfinished_s=0.0,
        failed_s=0.0,
        retried_s=0.0,
        transfer_s=None,
        scheduler_s=0.0,
        startup_s=0.0,
        idle_s=total_s - run_s,
        idle_behind_s=0.0,
        idle_alone_s=total_s - run_s,
        uptime_s=total_s,
        busy_s=run_s,
        attempts=3,
    )


def shares() -> Shares:
    return Shares(
        basis="workers",
        workers=2,
        whole=split(200.0, 150.0),
        by_worker={"w-1": split(100.0, 100.0), "w-2": split(100.0, 50.0)},
        without_worker=0,
    )


def trend(runs: int = 10) -> Trend:
    values = [100.0 if n < runs // 2 else 130.0 for n in range(runs)]
    half = runs // 2
    return Trend(
        project="demo",
        metric="wall",
        unit="seconds",
        currency=None,
        points=[
            TrendPoint(
                run_id=f"run-{n}",
                start_time=f"2026-05-{n % 28 + 1:02d}T00:00:00.000000Z",
                status="completed",
                value=value,
                git_commit="abcdef",
                git_dirty=None,
                level=int(n >= half),
            )
            for n, value in enumerate(values)
        ],
        levels=[
            TrendLevel(first=0, runs=half, typical=100.0, p05=99.0, p95=101.0),
            TrendLevel(first=half, runs=runs - half, typical=130.0, p05=129.0, p95=131.0),
        ]
        if runs
        else [],
        changes=[
            Step(
                at=half,
                earliest=half,
                latest=half,
                run_id=f"run-{half}",
                start_time=None,
                git_commit="b",
                git_dirty=None,
                before=100.0,
                after=130.0,
                change=0.3,
                low=0.2,
                high=0.4,
                chance=1e-6,
                differences=[RunDifference(what="commit", before="a", after="b")],
            )
        ]
        if runs
        else [],
        drift=None,
        enough=True,
        left_out={},
    )


UNKNOWN = Change(before=None, after=None, difference=None, ratio=None)


def comparison(**changes: Any) -> Comparison:
    def duration(name: str, verdict: Any, ratio: float) -> DurationChange:
        return DurationChange(
            kind="task",
            name=name,
            cached=False,
            verdict=verdict,
            by="typical",
            before=None,
            after=None,
            pairs=None,
            shared_arguments=None,
            typical=Interval(ratio=ratio, low=ratio / 1.1, high=ratio * 1.1),
            mean=None,
            p95=None,
            p95_stands_out=False,
        )

    fields: dict[str, Any] = {
        "before": Side(asked="a", runs=[]),
        "after": Side(asked="b", runs=[]),
        "wall_s": Change(before=100.0, after=130.0, difference=30.0, ratio=1.3),
        "worker_s": UNKNOWN,
        "explained": WallExplained(
            basis="workers",
            difference_s=30.0,
            not_explained_s=2.0,
            shares=[
                Share(what="duration of tasks", seconds=40.0, detail=""),
                Share(what="cache", seconds=-12.0, detail=""),
            ],
        ),
        "tasks": {},
        "durations": [duration("simulate", "slower", 1.5), duration("collect", "no change", 1.0)],
        "appeared": [],
        "vanished": [],
        "arguments": [],
        "resources": [],
        "failures": [],
        "cache": CacheChange(lookups=UNKNOWN, hits=UNKNOWN, hit_rate=UNKNOWN, saved_s=UNKNOWN),
        "cost": UNKNOWN,
        "currency": None,
        "environment": [],
        "notes": [],
        "lost": ({}, {}),
    }
    return Comparison(**{**fields, **changes})


def every_figure() -> dict[str, Any]:
    """One figure of each kind, by name."""
    from flightlog.show.figures import lines, rows
    from flightlog.show.figures.timeline import timeline_figure

    concurrency = chart("count", series=[ChartSeries(label="running", at_s=[0.0, 50.0], value=[1.0, 2.0])])
    return {
        "timeline": timeline_figure(timeline()),
        "dense": timeline_figure(dense()),
        "nested": timeline_figure(timeline(nested=nested())),
        "memory": lines.chart_figure(chart(), title="Memory by worker"),
        "concurrency": lines.chart_figure(concurrency),
        "durations": rows.durations_figure(
            [spread(), spread("collect", least_s=2.0, most_s=2.0, counts=[1], edges_s=[2.0, 2.0])]
        ),
        "waits": lines.waits_figure(waits()),
        "waits grid": lines.waits_figure(waits_grid()),
        "metric": lines.curve_figure(curve(), length_s=100.0),
        "critical": rows.critical_figure(critical()),
        "spans": rows.spans_figure(spans()),
        "cost": rows.cost_figure(cost()),
        "shares": rows.shares_figure(shares()),
        "trend": lines.trends_figure(trend()),
        "comparison": rows.comparison_figure(comparison()),
        "ratios": rows.ratios_figure(comparison()),
    }


def contrast(color: str, ground: str) -> float:
    """How well a colour stands out, 1 to 21, by the formula of the accessibility guidelines."""
    bright, dark = sorted((luminance(color), luminance(ground)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def linear(color: str) -> list[float]:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(color: str) -> float:
    red, green, blue = linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


SEEN_WITHOUT = {
    "red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "nothing": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
"""What eyes that lack a kind of cone make of linear light, after Machado and others (2009)."""


def apart(one: str, other: str, without: str) -> float:
    """How far two colours are from each other for such eyes, in the units of CIELAB: about 2 is just to be
    seen."""

    def lab(color: str) -> tuple[float, float, float]:
        light = linear(color)
        red, green, blue = (
            min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True))))
            for row in SEEN_WITHOUT[without]
        )
        x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
        y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
        a, b, c = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
        return 116 * b - 16, 500 * (a - b), 200 * (b - c)

    return math.dist(lab(one), lab(other))
