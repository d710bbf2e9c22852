"""A model of one quantity from its examples: the better of boosting and baseline for each name, with its
correction.

The examples are split by time: the older part is learnt from, the newer one tells which method is better and
by how much its intervals have to be moved and widened. So nothing is judged by what it was made from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, median, variance
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.prediction.base import HIGH, LOW, MID, Method, Quantity
from flightlog.analyze.prediction.baseline import LEAST, RECENT, Logs, baseline
from flightlog.analyze.prediction.boosting import MOST, Fit, Shape, fit_quantile
from flightlog.analyze.prediction.conformal import LINE_RUNS, Correction, Seen, correction, pinball
from flightlog.analyze.prediction.examples import Example, Examples
from flightlog.analyze.prediction.features import OF_ALL, Column, Range, make_columns, ranges, row, words
from flightlog.analyze.prediction.relevance import relevant
from flightlog.analyze.prediction.trees import Trees

LEARNT = 0.65
"""Share of the examples, the oldest, that boosting learns from."""
TO_LEARN, TO_JUDGE = 60, 20
"""With fewer examples to learn from, or to judge by, there is no boosting."""
JUDGED = 3_000
"""About so many newer examples judge, evenly taken."""
OF_A_NAME = 10
"""With fewer to learn from, a name has the baseline."""
ALONE = 30
"""With so many to judge by, a name has its own correction; otherwise that of all names together."""
BETTER = 0.98
"""Boosting is taken where its loss is at most so much of the baseline's."""

T = TypeVar("T", Example, Seen)


class Boosted(Struct, frozen=True):
    """Trees for the expected value, and for how far below and above it the interval goes; all over the same
    columns.
    """

    columns: list[Column]
    mid: Trees
    below: Trees
    above: Trees

    def logs(self, example: Example, center: float) -> Logs:
        """What the trees say of an example, as logarithms, in order."""
        numbers = row(self.columns, example)
        mid = center + self.mid.evaluate(numbers)
        return Logs(
            mid + min(0.0, self.below.evaluate(numbers)), mid, mid + max(0.0, self.above.evaluate(numbers))
        )

    @property
    def keys(self) -> set[str]:
        """What it looks at."""
        return {column.key for column in self.columns}


class OfName(Struct, frozen=True, kw_only=True):
    """What is known of the tasks of one name."""

    examples: int
    runs: int
    plain: Logs | None
    """The baseline; None of too few examples."""
    method: Method
    center: float | None = None
    """Median of what boosting learnt from, which its trees add to; None where it did not learn this name."""
    correction: Correction = Correction()
    loss: float | None = None
    plain_loss: float | None = None
    """Losses of boosting and of the baseline on newer examples; None where there was nothing to compare."""
    judged: int = 0
    above: int = 0
    """Attempts that ended at a limit, of which only that limit is known."""
    most_above: float | None = None
    """The largest such limit, as a logarithm."""
    rough: int = 0
    """Examples that are lower bounds."""
    ranges: dict[str, Range] = {}
    words: dict[str, list[str]] = {}
    """Of each argument that is a text, those seen; none of one with too many to name."""
    hosts: dict[str, int] = {}
    """Recent examples by host."""
    component: str | None = None
    """Of the newest example."""

    @property
    def keys(self) -> set[str]:
        """What there is to look at: its own arguments, and what every task has."""
        return {*self.ranges, *self.words, *OF_ALL}


class QuantityModel(Struct, frozen=True, kw_only=True):
    """All names' models of one quantity."""

    quantity: Quantity
    names: dict[str, OfName]
    boosted: Boosted | None
    between_runs: float | None
    """By how much whole runs differ from what was predicted of them: standard deviation of the logarithm."""
    left_out: dict[str, int] = {}
    why_plain: str | None = None
    """Why no name has boosting, where that holds for all."""

    def logs(self, example: Example) -> Logs | None:
        """The prediction for an example, as logarithms; None where its name is not known well enough."""
        of = self.names.get(example.name)
        if of is None:
            return None
        if of.method == "boosting" and self.boosted is not None and of.center is not None:
            return of.correction.apply(self.boosted.logs(example, of.center))
        return of.plain


def train_quantity(examples: Examples, *, fit: Fit | None = fit_quantile) -> QuantityModel:
    """The model of a quantity; without `fit`, the baseline alone. Raises what `fit` raises."""
    found = examples.found
    cut = round(len(found) * LEARNT)
    older, newer = found[max(0, cut - MOST) : cut], found[cut :: max(1, (len(found) - cut) // JUDGED)]
    whole = [example for example in older if not example.above]
    centers = {
        name: median(example.log for example in mine)
        for name, mine in _by_name(whole).items()
        if len(mine) >= OF_A_NAME
    }
    boosted, why_plain = None, None
    if fit is None:
        why_plain = "there is no library to learn from the arguments with"
    elif len(whole) < TO_LEARN or sum(not example.above for example in newer) < TO_JUDGE:
        why_plain = "too few examples to learn from the arguments"
    else:
        boosted = _boost(older, centers, fit)
        why_plain = "no argument was found to matter" if boosted is None else None
    plain_before = {
        name: baseline([example.log for example in mine])
        for name, mine in _by_name(older).items()
        if name in centers
    }
    seen: dict[Method, list[Seen]] = {"boosting": [], "baseline": []}
    for example in newer:
        plain = plain_before.get(example.name)
        if plain is None:
            continue
        result = (example.name, example.run)
        seen["baseline"].append(Seen(*result, plain, example.log, example.above))
        if boosted is not None:
            logs = boosted.logs(example, centers[example.name])
            seen["boosting"].append(Seen(*result, logs, example.log, example.above))
    learnt: list[Seen] = []
    if boosted is not None and len({example.run for example in newer}) < LINE_RUNS:
        learnt = [
            Seen(each.name, each.run, boosted.logs(each, centers[each.name]), each.log, each.above)
            for each in older
            if each.name in centers
        ]
    overall = _compare(seen["boosting"], seen["baseline"])
    judged = {method: _by_name(all_of) for method, all_of in seen.items()}
    names = {
        name: _of_name(
            mine,
            {method: of.get(name, []) for method, of in judged.items()},
            seen["boosting"],
            learnt,
            overall,
            centers.get(name),
            set() if boosted is None else boosted.keys,
        )
        for name, mine in sorted(_by_name(found).items())
    }
    model = QuantityModel(
        quantity=examples.quantity,
        names=names,
        left_out=examples.left_out,
        between_runs=None,
        why_plain=why_plain,
        boosted=boosted if any(of.method == "boosting" for of in names.values()) else None,
    )
    return replace(model, between_runs=_between_runs(model, newer))


def _boost(older: Sequence[Example], centers: dict[str, float], fit: Fit) -> Boosted | None:
    """Trees for each quantile. Attempts that ended at a limit are learnt from as what the trees expect beyond
    it.
    """
    known = [example for example in older if example.name in centers]
    columns = make_columns(known)
    whole = [example for example in known if not example.above]
    values = [example.log - centers[example.name] for example in whole]
    shape, small = shapes(len(whole))
    if columns:
        rows = [row(columns, example) for example in whole]
        columns = relevant(columns, rows, values, lambda x, y: fit(x, y, MID, shape))
    if not columns:
        return None
    rows = [row(columns, example) for example in whole]
    mid = fit(rows, values, MID, shape)
    cut_short = [example for example in known if example.above]
    if cut_short:
        # How far they would have gone is not known: as far beyond their limits as the others lie beyond their
        # median.
        off = [value - mid.evaluate(each) for each, value in zip(rows, values, strict=True)]
        beyond = sorted(each for each in off if each > 0)
        spread = beyond[int(0.9 * (len(beyond) - 1))] if beyond else 0.0
        for example in cut_short:
            each = row(columns, example)
            rows.append(each)
            values.append(max(example.log - centers[example.name], mid.evaluate(each)) + spread)
        mid = fit(rows, values, MID, shape)
    off = [value - mid.evaluate(each) for each, value in zip(rows, values, strict=True)]
    return Boosted(columns, mid, fit(rows, off, LOW, small), fit(rows, off, HIGH, small))


def shapes(examples: int) -> tuple[Shape, Shape]:
    """How much the trees of the expected value may learn of so many examples, and those of the interval:
    less.
    """
    return (
        Shape(rounds=100, leaves=15, least=min(max(examples // 50, 5), 40)),
        Shape(rounds=30, leaves=6, least=min(max(examples // 10, 10), 200)),
    )


def _of_name(
    mine: Sequence[Example],
    judged: dict[Method, list[Seen]],
    of_all: Sequence[Seen],
    before: Sequence[Seen],
    overall: tuple[float, float] | None,
    center: float | None,
    looked_at: set[str],
) -> OfName:
    """What is known of one name.

    `judged` is what both methods said of its newer examples, `of_all` what boosting said of those of all
    names, and `before` what boosting says of the older ones, which it learnt from. It looks at the keys
    `looked_at`: a name that has none of them is not for it.
    """
    whole = [example for example in mine if not example.above]
    recent = mine[-RECENT:]
    losses = _compare(judged["boosting"], judged["baseline"])
    deciding = losses if losses is not None and len(judged["boosting"]) >= TO_JUDGE else overall
    numbers, texts = ranges(whole), words(whole)
    if looked_at.isdisjoint({*numbers, *texts, *OF_ALL}):
        center = None
    learnt = center is not None
    better = learnt and deciding is not None and deciding[0] <= BETTER * deciding[1]
    telling = judged["boosting"] if len(judged["boosting"]) >= ALONE else of_all
    if telling is not of_all:
        before = [each for each in before if each.name == mine[0].name]
    limits = [example.log for example in mine if example.above]
    return OfName(
        examples=len(whole),
        runs=len({example.run for example in whole}),
        plain=baseline([example.log for example in recent]) if len(whole) >= LEAST else None,
        method="boosting" if better else "baseline",
        center=center,
        correction=correction(telling, before) if better else Correction(),
        loss=deciding[0] if deciding and learnt else None,
        plain_loss=deciding[1] if deciding and learnt else None,
        judged=len(judged["boosting"]),
        above=len(limits),
        most_above=max(limits, default=None),
        rough=sum(example.rough for example in whole),
        ranges=numbers,
        words=texts,
        hosts=dict(Counter(example.host for example in recent if example.host is not None).most_common(16)),
        component=mine[-1].component,
    )


def _compare(boosting: Sequence[Seen], plain: Sequence[Seen]) -> tuple[float, float] | None:
    """Losses of both on what both predicted; None where there is nothing."""
    pairs = [(b, p) for b, p in zip(boosting, plain, strict=False) if not b.above]
    if not pairs:
        return None
    return fmean(pinball(b.predicted, b.actual) for b, _ in pairs), fmean(
        pinball(p.predicted, p.actual) for _, p in pairs
    )


def _between_runs(model: QuantityModel, newer: Sequence[Example]) -> float | None:
    """How far the runs' means lie apart, once the tasks' own predictions are taken off; None of fewer than
    three runs.
    """
    off: dict[int, list[float]] = {}
    for example in newer:
        logs = model.logs(example)
        if logs is not None and not example.above:
            off.setdefault(example.run, []).append(example.log - logs.mid)
    runs = [each for each in off.values() if len(each) >= 3]
    if len(runs) < 3:
        return None
    # The means of few tasks differ by chance, too: that part is the tasks' own.
    by_chance = fmean(variance(each) / len(each) for each in runs)
    return math.sqrt(max(0.0, variance([fmean(each) for each in runs]) - by_chance))


def _by_name(items: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(item.name, []).append(item)
    return found
