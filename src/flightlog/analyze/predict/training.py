"""A model of one quantity from its examples: the better of boosting and baseline for each name, with its
correction.

The examples are split by time: the older part is learnt from, the newer one tells which method is better and
by how much its intervals have to be moved and widened (split-conformal quantile regression; newer runs count
for more). So nothing is judged by what it was made from. Columns without which a model does no worse on
examples it has not seen are left out first.

Boosting is quantile gradient boosting by scikit-learn; its trees are plain numbers, kept as JSON and
evaluated without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, linear_regression, median, stdev, variance
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.predict.baseline import HIGH, LOW, MID, Logs, Method, Quantity, baseline
from flightlog.analyze.predict.features import (
    OF_ALL,
    Column,
    Example,
    Examples,
    Range,
    make_columns,
    ranges,
    row,
    words,
)
from flightlog.analyze.tallies import copied, grouped
from flightlog.core.errors import FlightlogError, MissingExtra

LEAF = -1


class Tree(Struct, frozen=True, array_like=True):
    """One tree, a list for each property of its nodes; node 0 is the root, and children come after their
    parent.
    """

    column: list[int]
    """Which column a node looks at; `LEAF` where there is nothing to ask."""
    threshold: list[float]
    """Up to it the left child is next, beyond it the right one."""
    left: list[int]
    right: list[int]
    missing_left: list[bool]
    """Where a row goes that has no number there."""
    value: list[float]
    """What a leaf adds."""

    def problem(self, columns: int) -> str | None:
        """What is wrong with it, if anything is: a tree without any problem always comes to an end."""
        n = len(self.column)
        others = (self.threshold, self.left, self.right, self.missing_left, self.value)
        if not n or any(len(each) != n for each in others):
            return "a tree whose lists differ in length"
        for node, column in enumerate(self.column):
            inner = node < self.left[node] < n and node < self.right[node] < n and 0 <= column < columns
            if column != LEAF and not inner:
                return "a tree that points outside itself"
        return None


class Trees(Struct, frozen=True):
    """Trees that are added up."""

    start: float
    trees: list[Tree]

    def problem(self, columns: int) -> str | None:
        """What is wrong with any of them."""
        return next((found for tree in self.trees if (found := tree.problem(columns)) is not None), None)

    def evaluate(self, row: Sequence[float]) -> float:
        """The value of a row with a number, or NaN, for each column."""
        total = self.start
        for tree in self.trees:
            columns, thresholds, left, right = tree.column, tree.threshold, tree.left, tree.right
            node = 0
            while (column := columns[node]) != LEAF:
                x = row[column]
                if x <= thresholds[node]:
                    node = left[node]
                elif x > thresholds[node]:
                    node = right[node]
                else:  # NaN is neither
                    node = left[node] if tree.missing_left[node] else right[node]
            total += tree.value[node]
        return total


INSTALL = "pip install 'flightlog[ml]'"


class BoostingFailed(FlightlogError):  # noqa: N818 - reads as what happened
    """scikit-learn is there, and its trees could not be read."""


def sklearn_version() -> str:
    """The version of scikit-learn; a `MissingExtra` where there is none. Does not import it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("scikit-learn")
    except PackageNotFoundError:
        raise MissingExtra(
            f"predictions by arguments need scikit-learn: {INSTALL}. Without it, tasks of one name are all "
            "alike"
        ) from None


class TreeShape(NamedTuple):
    """How much trees may learn."""

    rounds: int
    leaves: int
    least: int
    """Examples in a leaf, at least."""


Fit = Callable[[Sequence[Sequence[float]], Sequence[float], float, TreeShape], Trees]
"""Makes trees of rows, values, a quantile and a shape."""


class Boosting(NamedTuple):
    """A library that learns."""

    version: str
    fit: Fit


def find_boosting() -> Boosting:
    """scikit-learn, which is not imported before it learns; a `MissingExtra` where there is none."""
    return Boosting(sklearn_version(), fit_quantile)


def fit_quantile(
    rows: Sequence[Sequence[float]], values: Sequence[float], q: float, shape: TreeShape
) -> Trees:
    """Trees that give the quantile `q` of what follows rows like these; the same input gives the same trees.

    On one thread: on few examples, threads spend their time waiting for one another.
    """
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # it comes with scikit-learn

    x, y = np.array(rows, dtype=np.float64), np.asarray(values, dtype=np.float64)
    x[:, np.isnan(x).all(axis=0)] = 0.0  # a column without any number is refused, and tells as little
    model = HistGradientBoostingRegressor(
        loss="quantile",
        quantile=q,
        max_iter=shape.rounds,
        learning_rate=PredictLimits.learning_rate,
        max_leaf_nodes=shape.leaves,
        min_samples_leaf=shape.least,
        early_stopping=False,
        random_state=0,
    )
    with threadpool_limits(1, user_api="openmp"):
        model.fit(x, y)
        trees = _export(model)
        some = x[:: max(1, len(x) // 50)]
        same = np.allclose(model.predict(some), [trees.evaluate(row) for row in some.tolist()], atol=1e-9)
    if not same:
        raise BoostingFailed(
            f"scikit-learn {sklearn_version()} keeps its trees in a form that is not known here"
        )
    return trees


def _export(model: Any) -> Trees:
    """The trees of a model. They stand in attributes that are no promise of the library's: see the check
    above.
    """
    try:
        start = float(model._baseline_prediction.ravel()[0])
        return Trees(start, [_tree(predictor.nodes) for (predictor,) in model._predictors])
    except (AttributeError, ValueError, IndexError, TypeError) as error:
        raise BoostingFailed(
            f"the trees of scikit-learn {sklearn_version()} cannot be read: {error}"
        ) from error


def _tree(nodes: Any) -> Tree:
    leaf = nodes["is_leaf"].astype(bool)
    threshold = nodes["num_threshold"].copy()
    threshold[leaf] = 0.0
    # A split of "some number" from "none" has an infinite threshold, which JSON cannot hold.
    threshold = threshold.clip(-1.7e308, 1.7e308)
    column = nodes["feature_idx"].astype(int)
    column[leaf] = LEAF
    return Tree(
        column.tolist(),
        threshold.tolist(),
        nodes["left"].astype(int).tolist(),
        nodes["right"].astype(int).tolist(),
        nodes["missing_go_to_left"].astype(bool).tolist(),
        nodes["value"].tolist(),
    )


class JudgedPrediction(Example, frozen=True, kw_only=True):
    """An example, and what was predicted of it, as logarithms."""

    predicted: Logs


class Correction(Struct, frozen=True):
    """What is done to a model's interval."""

    shift: float = 0.0
    """Added to all of it."""
    margin: float = 0.0
    """Added above and taken off below; less than 0 where the model was too careful."""
    examples: int = 0
    """Attempts that it comes from."""

    def apply(self, logs: Logs) -> Logs:
        """The interval moved and widened; it always holds the expected value."""
        mid = logs.mid + self.shift
        return Logs(
            min(mid, logs.low + self.shift - self.margin), mid, max(mid, logs.high + self.shift + self.margin)
        )


def correction(seen: Sequence[JudgedPrediction], learnt: Sequence[JudgedPrediction] = ()) -> Correction:
    """The correction that would have made the intervals hold 90 % of what was seen, and of one more.

    Where what was seen rises or falls steadily over the runs, the interval is moved to where the next run
    would be, and widened by how far the others lie from that line and by what one run adds. Of few runs,
    those that the model has `learnt` from help to tell: it does not know one run from another, so a rise
    shows in them, too.
    """
    whole = [each for each in seen if not each.above]
    if not whole:
        return Correction()
    few = len({each.run for each in whole}) < PredictLimits.min_runs_for_drift
    telling = [*(each for each in learnt if not each.above), *whole] if few else whole
    slope = drift([(each.run, each.log - each.predicted.mid) for each in telling])
    following = max(each.run for each in seen) + 1
    weights = recency([each.run for each in seen])
    moved = [
        (each.log - each.predicted.mid + slope * (following - each.run), weight)
        for each, weight in zip(seen, weights, strict=True)
        if not each.above
    ]
    shift = weighted_quantile(moved, 0.5 * sum(weight for _, weight in moved))
    scores: list[tuple[float, float]] = []
    for each, weight in zip(seen, weights, strict=True):
        offset = shift - slope * (following - each.run)
        over = each.log - each.predicted.high - offset
        if not each.above:
            scores.append((max(each.predicted.low + offset - each.log, over), weight))
        elif over > 0:  # surely outside; of one whose limit lies inside nothing is known
            scores.append((over, weight))
    enough = PredictLimits.confidence * (sum(weight for _, weight in scores) + 1.0)
    # A model is used for some runs before it is made anew: what drifts will have gone on.
    return Correction(shift, weighted_quantile(scores, enough) + abs(slope), len(scores))


def drift(off: Sequence[tuple[int, float]]) -> float:
    """The slope of (run, how far off) per run: 0 unless `min_runs_for_drift` runs and `drift_errors`
    standard errors speak for one.
    """
    by_run = grouped(off)
    if len(by_run) < PredictLimits.min_runs_for_drift:
        return 0.0
    points = [(float(run), median(values)) for run, values in by_run.items()]
    slope, intercept = linear_regression([x for x, _ in points], [y for _, y in points])
    left = sum((y - intercept - slope * x) ** 2 for x, y in points) / (len(points) - 2)
    spread = sum((x - fmean(x for x, _ in points)) ** 2 for x, _ in points)
    return slope if abs(slope) > PredictLimits.drift_errors * (left / spread) ** 0.5 else 0.0


def recency(runs: Sequence[int]) -> list[float]:
    """How much each counts, 1 for the newest run."""
    newest, oldest = max(runs), min(runs)
    half = max(1.0, (newest - oldest) / 2)
    return [0.5 ** ((newest - run) / half) for run in runs]


def weighted_quantile(pairs: Sequence[tuple[float, float]], enough: float) -> float:
    """The smallest value up to which the weights of (value, weight) add up to `enough`; the largest where
    they never do.
    """
    total = 0.0
    ordered = sorted(pairs)
    for value, weight in ordered:
        total += weight
        if total >= enough:
            return value
    return ordered[-1][0]


def pinball(predicted: Logs, actual: float) -> float:
    """The loss of a low, expected and high value together, in logarithms: 0 is perfect, 0.01 about 2 %
    off.
    """
    total = 0.0
    for q, value in zip((LOW, MID, HIGH), predicted, strict=True):
        over = actual - value
        total += max(q * over, (q - 1) * over)
    return total / 3


T = TypeVar("T", bound=Example)


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

    def judged(self, example: Example, center: float) -> JudgedPrediction:
        """The example with what the trees say of it."""
        return copied(JudgedPrediction, example, predicted=self.logs(example, center))

    def problem(self) -> str | None:
        """What is wrong with its trees, if anything is."""
        found = (trees.problem(len(self.columns)) for trees in (self.mid, self.below, self.above))
        return next((one for one in found if one is not None), None)

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
    cut = round(len(found) * PredictLimits.learnt_share)
    older = found[max(0, cut - PredictLimits.max_examples) : cut]
    newer = found[cut :: max(1, (len(found) - cut) // PredictLimits.max_judged_examples)]
    whole = [example for example in older if not example.above]
    judgeable = sum(not example.above for example in newer) >= PredictLimits.min_examples_to_judge
    centers = {
        name: median(example.log for example in mine)
        for name, mine in _by_name(whole).items()
        if len(mine) >= PredictLimits.min_examples_of_name
    }
    boosted, why_plain = None, None
    if fit is None:
        why_plain = "there is no library to learn from the arguments with"
    elif len(whole) < PredictLimits.min_examples_to_learn or not judgeable:
        why_plain = "too few examples to learn from the arguments"
    else:
        boosted = _boost(older, centers, fit)
        why_plain = "no argument was found to matter" if boosted is None else None
    plain_before = {
        name: baseline([example.log for example in mine])
        for name, mine in _by_name(older).items()
        if name in centers
    }
    seen: dict[Method, list[JudgedPrediction]] = {"boosting": [], "baseline": []}
    for example in newer:
        plain = plain_before.get(example.name)
        if plain is None:
            continue
        seen["baseline"].append(copied(JudgedPrediction, example, predicted=plain))
        if boosted is not None:
            seen["boosting"].append(boosted.judged(example, centers[example.name]))
    learnt: list[JudgedPrediction] = []
    if boosted is not None and len({example.run for example in newer}) < PredictLimits.min_runs_for_drift:
        known = [each for each in older if each.name in centers]
        learnt = [boosted.judged(each, centers[each.name]) for each in known]
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


def shapes(examples: int) -> tuple[TreeShape, TreeShape]:
    """How much the trees of the expected value may learn of so many examples, and those of the interval:
    less.
    """
    return (
        TreeShape(rounds=100, leaves=15, least=min(max(examples // 50, 5), 40)),
        TreeShape(rounds=30, leaves=6, least=min(max(examples // 10, 10), 200)),
    )


def _of_name(
    mine: Sequence[Example],
    judged: dict[Method, list[JudgedPrediction]],
    of_all: Sequence[JudgedPrediction],
    before: Sequence[JudgedPrediction],
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
    recent = mine[-PredictLimits.max_recent_attempts :]
    boosting = judged["boosting"]
    losses = _compare(boosting, judged["baseline"])
    enough = losses is not None and len(boosting) >= PredictLimits.min_examples_to_judge
    deciding = losses if enough else overall
    numbers, texts = ranges(whole), words(whole)
    if looked_at.isdisjoint({*numbers, *texts, *OF_ALL}):
        center = None
    learnt = center is not None
    better = learnt and deciding is not None and deciding[0] <= PredictLimits.max_loss_ratio * deciding[1]
    telling = of_all
    if len(boosting) >= PredictLimits.min_examples_for_own_correction:
        telling, before = boosting, [each for each in before if each.name == mine[0].name]
    limits = [example.log for example in mine if example.above]
    return OfName(
        examples=len(whole),
        runs=len({example.run for example in whole}),
        plain=baseline([example.log for example in recent])
        if len(whole) >= PredictLimits.min_attempts
        else None,
        method="boosting" if better else "baseline",
        center=center,
        correction=correction(telling, before) if better else Correction(),
        loss=deciding[0] if deciding and learnt else None,
        plain_loss=deciding[1] if deciding and learnt else None,
        judged=len(boosting),
        above=len(limits),
        most_above=max(limits, default=None),
        rough=sum(example.rough for example in whole),
        ranges=numbers,
        words=texts,
        hosts=dict(Counter(example.host for example in recent if example.host is not None).most_common(16)),
        component=mine[-1].component,
    )


def _compare(
    boosting: Sequence[JudgedPrediction], plain: Sequence[JudgedPrediction]
) -> tuple[float, float] | None:
    """Losses of both on what both predicted; None where there is nothing."""
    pairs = [(b, p) for b, p in zip(boosting, plain, strict=False) if not b.above]
    if not pairs:
        return None
    ours, theirs = (
        fmean(pinball(one.predicted, one.log) for one in each) for each in zip(*pairs, strict=True)
    )
    return ours, theirs


def _between_runs(model: QuantityModel, newer: Sequence[Example]) -> float | None:
    """How far the runs' means lie apart, once the tasks' own predictions are taken off; None of fewer than
    three runs.
    """
    off = grouped(
        (example.run, example.log - logs.mid)
        for example in newer
        if not example.above and (logs := model.logs(example)) is not None
    )
    runs = [each for each in off.values() if len(each) >= 3]
    if len(runs) < 3:
        return None
    # The means of few tasks differ by chance, too: that part is the tasks' own.
    by_chance = fmean(variance(each) / len(each) for each in runs)
    return math.sqrt(max(0.0, variance([fmean(each) for each in runs]) - by_chance))


def _by_name(items: Iterable[T]) -> dict[str, list[T]]:
    return grouped((item.name, item) for item in items)


TURNS = (0.25, 0.5, 0.75)
"""How the shuffles differ."""


def relevant(
    columns: Sequence[Column],
    rows: Sequence[Sequence[float]],
    values: Sequence[float],
    fit: Callable[[Sequence[Sequence[float]], Sequence[float]], Trees],
) -> list[Column]:
    """The columns that matter, in their order; those of one argument matter together.

    Rows are the oldest first: a model of the older ones is tried on the newer ones. An argument is shuffled
    among the tasks that have it: that others have none tells tasks of one name from those of another, and
    nothing of the argument.
    """
    cut = round(PredictLimits.learnt_share_for_columns * len(rows))
    trees = fit(rows[:cut], values[:cut])
    step = max(1, (len(rows) - cut) // PredictLimits.max_tried_examples)
    tried, actual = [list(each) for each in rows[cut::step]], values[cut::step]
    errors = _errors(trees, tried, actual)
    kept: list[Column] = []
    for key in dict.fromkeys(column.key for column in columns):
        places = [place for place, column in enumerate(columns) if column.key == key]
        moved = [_errors(trees, _moved(tried, places, turn), actual) for turn in TURNS]
        worse = [fmean(each) - before for before, *each in zip(errors, *moved, strict=True)]
        error = stdev(worse) / math.sqrt(len(worse)) if len(worse) > 1 else math.inf
        least = PredictLimits.min_error_increase * fmean(errors)
        if fmean(worse) > max(PredictLimits.error_increase_errors * error, least):
            kept += [columns[place] for place in places]
    return kept


def _moved(rows: Sequence[Sequence[float]], places: Sequence[int], turn: float) -> list[list[float]]:
    """The rows with some columns taken from another row each: the one so much of all further on in some fixed
    order.
    """
    having = [number for number, row in enumerate(rows) if not math.isnan(row[places[0]])]
    order = sorted(having, key=lambda n: (n * 2654435761) % 2**32)
    step = max(1, round(turn * len(order)))
    made = [list(row) for row in rows]
    for number, target in enumerate(order):
        source = rows[order[(number + step) % len(order)]]
        for place in places:
            made[target][place] = source[place]
    return made


def _errors(trees: Trees, rows: Sequence[Sequence[float]], actual: Sequence[float]) -> list[float]:
    return [abs(trees.evaluate(row) - value) for row, value in zip(rows, actual, strict=True)]
