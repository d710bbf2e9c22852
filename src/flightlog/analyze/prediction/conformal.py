"""What recent runs say of a model's intervals: by how much to move and to widen them, so that they hold 90 %.

Split-conformal quantile regression: the model has not learnt from these runs, so they are to it what the next
ones will be. Newer runs count for more, since needs drift: a run half the window old counts half.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, linear_regression, median

from msgspec import Struct

from flightlog.analyze.prediction.base import CONFIDENCE, HIGH, LOW, MID
from flightlog.analyze.prediction.baseline import Logs

LINE_RUNS, LINE_T = 5, 4.0
"""So many runs, and a slope of so many standard errors, are a steady rise or fall."""


class Seen(Struct, frozen=True):
    """A prediction, and what came of it; all as logarithms."""

    name: str
    run: int
    predicted: Logs
    actual: float
    above: bool = False
    """What came was more than `actual`, and nobody knows how much."""


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


def correction(seen: Sequence[Seen], learnt: Sequence[Seen] = ()) -> Correction:
    """The correction that would have made the intervals hold 90 % of what was seen, and of one more.

    Where what was seen rises or falls steadily over the runs, the interval is moved to where the next run
    would be, and widened by how far the others lie from that line and by what one run adds. Of few runs,
    those that the model has `learnt` from help to tell: it does not know one run from another, so a rise
    shows in them, too.
    """
    whole = [each for each in seen if not each.above]
    if not whole:
        return Correction()
    few = len({each.run for each in whole}) < LINE_RUNS
    telling = [*(each for each in learnt if not each.above), *whole] if few else whole
    slope = drift([(each.run, each.actual - each.predicted.mid) for each in telling])
    following = max(each.run for each in seen) + 1
    weights = recency([each.run for each in seen])
    moved: list[tuple[float, float]] = []
    for each, weight in zip(seen, weights, strict=True):
        if not each.above:
            moved.append((each.actual - each.predicted.mid + slope * (following - each.run), weight))
    shift = weighted_quantile(moved, 0.5 * sum(weight for _, weight in moved))
    scores: list[tuple[float, float]] = []
    for each, weight in zip(seen, weights, strict=True):
        offset = shift - slope * (following - each.run)
        over = each.actual - each.predicted.high - offset
        if not each.above:
            scores.append((max(each.predicted.low + offset - each.actual, over), weight))
        elif over > 0:  # surely outside; of one whose limit lies inside nothing is known
            scores.append((over, weight))
    enough = CONFIDENCE * (sum(weight for _, weight in scores) + 1.0)
    # A model is used for some runs before it is made anew: what drifts will have gone on.
    return Correction(shift, weighted_quantile(scores, enough) + abs(slope), len(scores))


def drift(off: Sequence[tuple[int, float]]) -> float:
    """The slope of (run, how far off) a run: 0 unless `LINE_RUNS` runs and `LINE_T` standard errors speak for
    one.
    """
    by_run: dict[int, list[float]] = {}
    for run, each in off:
        by_run.setdefault(run, []).append(each)
    if len(by_run) < LINE_RUNS:
        return 0.0
    points = [(float(run), median(values)) for run, values in by_run.items()]
    slope, intercept = linear_regression([x for x, _ in points], [y for _, y in points])
    left = sum((y - intercept - slope * x) ** 2 for x, y in points) / (len(points) - 2)
    spread = sum((x - fmean(x for x, _ in points)) ** 2 for x, _ in points)
    return slope if abs(slope) > LINE_T * (left / spread) ** 0.5 else 0.0


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
