"""Figures of a comparison: why the wall time differs, and the ratio of durations by name."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from flightlog.show.figures.parts import row_bars, rows_axis
from flightlog.show.figures.style import (
    BAD,
    GOOD,
    PALETTE,
    QUIET,
    amount_axis,
    apart,
    duration_text,
    make_figure,
    markers,
    name_text,
    plain,
    time_scale,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.compare.results import Comparison

SHARES = 12
NAMES = 20
_COLORS = {"slower": BAD, "faster": GOOD}
_SYMBOLS = {"slower": "triangle-right", "faster": "triangle-left"}


def comparison_figure(comparison: Comparison) -> Figure | None:
    """From the wall time before to the one after, a step a reason; None where one of them is unknown."""
    before, after = comparison.wall_s.before, comparison.wall_s.after
    if before is None or after is None:
        return None
    steps = _steps(comparison)
    labels, bases, lengths, paint, texts = (
        ["A, before"],
        [0.0],
        [before],
        [PALETTE[0]],
        [duration_text(before)],
    )
    reached = before
    for what, seconds in steps:
        labels.append(plain(what, 40))
        bases.append(min(reached, reached + seconds))
        lengths.append(abs(seconds))
        paint.append(BAD if seconds > 0 else GOOD)
        texts.append(f"{'+' if seconds > 0 else '-'}{duration_text(abs(seconds))}")
        reached += seconds
    labels, bases, lengths = [*labels, "B, after"], [*bases, 0.0], [*lengths, after]
    paint, texts = [*paint, PALETTE[0]], [*texts, duration_text(after)]
    ends = [base + length for base, length in zip(bases, lengths, strict=True)]
    scale = time_scale(max(ends))
    labels = apart(labels)
    low, high = min(0.0, *bases), max(ends)
    facts = [f"<b>{label}</b><br>{text}" for label, text in zip(labels, texts, strict=True)]
    room = [low, high + 0.16 * (high - low or 1.0)]
    return make_figure(
        [row_bars(labels, scale.of(lengths), paint, facts, texts, base=scale.of(bases))],
        x=amount_axis(f"wall time, {scale.words}", scale, room),
        y=rows_axis(labels),
        plot_px=28 * len(labels),
        bargap=0.25,
    )


def _steps(comparison: Comparison) -> list[tuple[str, float]]:
    explained = comparison.explained
    if explained is None:
        return []
    found = [(share.what, share.seconds) for share in explained.shares if share.seconds]
    rest = sum(seconds for _, seconds in found[SHARES:])
    steps = [*found[:SHARES], *([("smaller reasons", rest)] if rest else [])]
    if explained.not_explained_s:
        steps.append(("not explained", explained.not_explained_s))
    return steps


def ratios_figure(comparison: Comparison) -> Figure | None:
    """Ratio of each task's or span's duration after to before, with its 95 % CI; None where none is known."""
    rows = [
        change for change in comparison.durations if change.typical is not None and change.typical.ratio > 0
    ][:NAMES]
    if not rows:
        return None
    labels = apart([name_text(change.name, 36) + (" (cached)" if change.cached else "") for change in rows])
    traces: list[dict[str, Any]] = []
    ends = [1.0]
    for verdict in ("slower", "faster", ""):
        picked = [
            (label, change)
            for label, change in zip(labels, rows, strict=True)
            if (change.verdict if change.verdict in _COLORS else "") == verdict
        ]
        if not picked:
            continue
        ratios, lows, highs, facts = [], [], [], []
        for label, change in picked:
            interval = change.mean if change.by == "mean" and change.mean is not None else change.typical
            assert interval is not None
            low, high = interval.low or interval.ratio, interval.high or interval.ratio
            ends += [value for value in (low, high, interval.ratio) if value > 0]
            ratios.append(interval.ratio)
            lows.append(max(interval.ratio - low, 0.0))
            highs.append(max(high - interval.ratio, 0.0))
            facts.append(
                f"<b>{label}</b> {change.verdict}<br>{interval.ratio:.3g} times, {low:.3g} to {high:.3g}"
            )
        color = _COLORS.get(verdict, QUIET)
        around = {"array": highs, "arrayminus": lows, "thickness": 1.5, "width": 4, "color": color}
        traces.append(
            markers(
                ratios,
                [label for label, _ in picked],
                {"symbol": _SYMBOLS.get(verdict, "circle"), "size": 10, "color": color},
                facts,
                name=verdict or "no change, or inconclusive",
                error_x={"type": "data", "symmetric": False, **around},
            )
        )
    return make_figure(
        traces,
        x=_ratio_axis(min(ends), max(ends)),
        y={**rows_axis(labels), "showgrid": True},
        plot_px=28 * len(labels),
        legend=True,
    )


def _ratio_axis(low: float, high: float) -> dict[str, Any]:
    steps = [
        0.01,
        0.02,
        0.05,
        0.1,
        0.2,
        0.5,
        0.7,
        0.8,
        0.9,
        1,
        1.1,
        1.25,
        1.5,
        2,
        3,
        5,
        10,
        20,
        50,
        100,
        1000,
    ]
    low, high = min(low, 0.95) / 1.03, max(high, 1.05) * 1.03
    ticks = [step for step in steps if low <= step <= high]
    while len(ticks) > 9:
        at = ticks.index(1)
        ticks = ticks[at % 2 :: 2]
    return {
        "type": "log",
        "range": [log10(low), log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:g}×" for tick in ticks],  # noqa: RUF001 - the sign of multiplication
        "title": {"text": "duration after, in durations before (left of 1 is faster)"},
    }
