"""How good the predictions are: models of earlier runs, held against the runs that followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median

from msgspec import Struct

from flightlog.analyze.history.attempts import ProjectHistory
from flightlog.analyze.predict.baseline import QUANTITIES, Logs, Method, Quantity
from flightlog.analyze.predict.features import (
    Examples,
    examples_of,
    gaps,
)
from flightlog.analyze.predict.training import (
    Boosting,
    BoostingFailed,
    Fit,
    find_boosting,
    pinball,
    train_quantity,
)
from flightlog.core.errors import MissingExtra

TESTED = 0.3
"""Share of the runs, the newest, that predictions are held against."""
STEPS = 3
"""They are taken in so many steps: a model learns from everything before its step, as it does when it is
stale."""
LEAST_RUNS = 3


class Score(Struct, frozen=True, kw_only=True):
    """How predictions compare with what came; shares are from 0 to 1."""

    attempts: int
    boosted: int
    """Attempts that boosting predicted; the baseline did the others."""
    error: float
    """Median of how far the expected value was off: 0.1 is 10 %."""
    baseline_error: float
    loss: float
    """Mean pinball loss of low, expected and high, of logarithms."""
    baseline_loss: float
    coverage: float
    """Share of attempts within the interval, which should be 0.9."""
    baseline_coverage: float
    ratio: float
    """Median of high over low."""
    baseline_ratio: float


class QuantityScores(Struct, frozen=True, kw_only=True):
    """The scores of one quantity."""

    quantity: Quantity
    whole: Score | None
    """None where nothing could be held against anything."""
    names: dict[str, Score]
    left_out: dict[str, int]
    """Attempts that neither teach nor test, by reason."""
    unpredicted: int
    """Attempts of names that were not known well enough before."""


class Evaluation(Struct, frozen=True, kw_only=True):
    """How predictions of a project's tasks fared."""

    project: str | None
    runs: int
    tested_runs: int
    """The newest of them."""
    duration_s: QuantityScores
    peak_memory_bytes: QuantityScores
    notes: list[str]


class PredictionOutcome(Struct, frozen=True):
    """One prediction and what came of it, as logarithms."""

    name: str
    method: Method
    predicted: Logs
    plain: Logs
    actual: float
    above: bool = False


def evaluate(past: ProjectHistory, *, find: Callable[[], Boosting] = find_boosting) -> Evaluation:
    """Train on earlier runs and test on the later ones; never raises for what the history holds."""
    notes = gaps(past)
    fit: Fit | None = None
    try:
        fit = find().fit
    except MissingExtra as missing:
        notes.append(f"{missing}.")
    runs = len(past.runs)
    tested = max(1, round(TESTED * runs)) if runs >= LEAST_RUNS else 0
    if not tested:
        notes.append(
            f"{runs} run{'s are' if runs != 1 else ' is'} too few to hold later ones against earlier ones: "
            f"{LEAST_RUNS} are the least"
        )
    scores = []
    for examples in (examples_of(past, quantity) for quantity in QUANTITIES):
        try:
            scores.append(_scores(examples, runs, tested, fit))
        except (BoostingFailed, ImportError) as error:
            notes.append(f"boosting was left out: {error}")
            scores.append(_scores(examples, runs, tested, None))
    return Evaluation(
        project=past.project,
        runs=runs,
        tested_runs=tested,
        duration_s=scores[0],
        peak_memory_bytes=scores[1],
        notes=[*dict.fromkeys(notes)],
    )


def _scores(examples: Examples, runs: int, tested: int, fit: Fit | None) -> QuantityScores:
    outcomes: list[PredictionOutcome] = []
    unpredicted = 0
    edges = (
        sorted({runs - tested + round(tested * step / STEPS) for step in range(STEPS + 1)}) if tested else []
    )
    for since, until in pairwise(edges):
        before = [example for example in examples.found if example.run < since]
        model = train_quantity(Examples(examples.quantity, before, {}), fit=fit)
        for example in examples.found:
            if since <= example.run < until:
                logs, of = model.logs(example), model.names.get(example.name)
                if logs is None or of is None or of.plain is None:
                    unpredicted += 1
                else:
                    outcomes.append(
                        PredictionOutcome(example.name, of.method, logs, of.plain, example.log, example.above)
                    )
    by_name: dict[str, list[PredictionOutcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.name, []).append(outcome)
    named = {name: made for name, each in sorted(by_name.items()) if (made := score(each)) is not None}
    return QuantityScores(
        quantity=examples.quantity,
        whole=score(outcomes),
        names=named,
        left_out=examples.left_out,
        unpredicted=unpredicted,
    )


def score(outcomes: Sequence[PredictionOutcome]) -> Score | None:
    """The score of some predictions; None of none.

    An attempt that ended at its limit counts as a miss where that limit is beyond the interval, and not at
    all otherwise.
    """
    whole = [each for each in outcomes if not each.above]
    if not whole:
        return None
    ours = _measures([(each.predicted, each) for each in outcomes])
    plain = _measures([(each.plain, each) for each in outcomes])
    return Score(
        attempts=len(whole),
        boosted=sum(each.method == "boosting" for each in whole),
        **ours,
        **{f"baseline_{name}": value for name, value in plain.items()},
    )


def _measures(pairs: Sequence[tuple[Logs, PredictionOutcome]]) -> dict[str, float]:
    """Error, loss, coverage and ratio of one method's predictions."""
    whole = [(logs, each.actual) for logs, each in pairs if not each.above]
    held = [
        logs.low <= each.actual <= logs.high and not each.above
        for logs, each in pairs
        if not each.above or each.actual > logs.high
    ]
    return {
        "error": median(_off(logs.mid, actual) for logs, actual in whole),
        "loss": fmean(pinball(logs, actual) for logs, actual in whole),
        "coverage": fmean(held),
        "ratio": math.exp(min(700.0, median(logs.high - logs.low for logs, _ in whole))),
    }


def _off(predicted: float, actual: float) -> float:
    return abs(math.expm1(min(700.0, predicted - actual)))
