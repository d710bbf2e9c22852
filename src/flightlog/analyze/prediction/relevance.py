"""Which columns matter: those without which a model does worse on examples that it has not seen.

A random seed explains nothing, and yet trees find splits in it. What does not matter is left out before the
model is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from flightlog.analyze.prediction.features import Column
from flightlog.analyze.prediction.trees import Trees

WORSE, SURE = 0.05, 3.0
"""A column matters where shuffling it makes the error larger by so much of it, and by so many standard
errors."""
TURNS = (0.25, 0.5, 0.75)
"""How the shuffles differ."""
LOOKED_AT = 300
"""So many examples are looked at, evenly taken."""
LEARNT = 0.75


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
    cut = round(LEARNT * len(rows))
    trees = fit(rows[:cut], values[:cut])
    step = max(1, (len(rows) - cut) // LOOKED_AT)
    tried, actual = [list(each) for each in rows[cut::step]], values[cut::step]
    errors = _errors(trees, tried, actual)
    kept: list[Column] = []
    for key in dict.fromkeys(column.key for column in columns):
        places = [place for place, column in enumerate(columns) if column.key == key]
        moved = [_errors(trees, _moved(tried, places, turn), actual) for turn in TURNS]
        worse = [fmean(each) - before for before, *each in zip(errors, *moved, strict=True)]
        sure = len(worse) > 1 and fmean(worse) > SURE * stdev(worse) / math.sqrt(len(worse))
        if sure and fmean(worse) > WORSE * fmean(errors):
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
