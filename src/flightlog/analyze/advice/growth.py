"""What a need depends on: a numeric argument that it grows with, or a category that decides; found, fitted
and tried.

A dependence is only believed where it explains values that it was not fitted to: it is fitted to every other
value and has to come clearly closer to the rest than their median does, and ranks must move along with it. So
an argument that varies along by chance, as a seed, is not taken for a cause. Pure Python, a few thousand
values at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import StatisticsError, correlation, median
from typing import Any

from msgspec import Struct

from flightlog.core.stats import ranks

LEAST = 15
"""Values that it takes to see a dependence."""
LOOKED_AT = 1000
"""Values that are looked at, evenly spread over all."""
_BETTER = 0.7
"""How far from held-out values a dependence may be at most, as a share of how far their median is."""
_ALONG = 0.3
"""The rank correlation that a numeric argument must have at least."""
_ARGUMENTS = 12
"""Numeric arguments that are tried, the first by name; of the first few, products of two as well."""
_PRODUCTS = 5
_LARGEST = 1e30
"""Arguments beyond are no sizes of anything, and the square of their cube would be no number."""
_CATEGORIES = 8
"""Values that a category may have at most."""
_SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda x: x,
    "squared": lambda x: x * x,
    "cubed": lambda x: x * x * x,
    "root": math.sqrt,
}


class Growth(Struct, frozen=True, kw_only=True):
    """A dependence on arguments."""

    argument: str
    """`n`, `nx * ny` for a product, or the name of a category."""
    shape: str
    """`linear`, `squared`, `cubed`, `root` in the argument, or `category`."""
    base: float = 0.0
    slope: float = 0.0
    """The need is `base + slope * shape(argument)`, at the median; of no meaning for a category."""
    levels: dict[str, float] = {}
    """For a category: the median by value."""
    low: float = 0.0
    high: float = 0.0
    """The smallest and the largest argument seen."""
    held_out: float
    """How much closer it comes to values it was not fitted to than their median: 0 is nothing, 1 is all the
    way."""

    def at(self, args: Mapping[str, Any]) -> float | None:
        """The median need with these arguments; None where they do not say, or name an unknown category."""
        if self.shape == "category":
            value = args.get(self.argument)
            return self.levels.get(str(value)) if isinstance(value, str | bool) else None
        x = argument_of(args, self.argument)
        return None if x is None else self.at_value(x)

    def at_value(self, x: float) -> float | None:
        """The median need for a value of the argument; None where the fit makes no sense there."""
        try:
            found = self.base + self.slope * _SHAPES[self.shape](x)
        except (OverflowError, ValueError):
            return None
        return found if found > 0 and math.isfinite(found) else None


def argument_of(args: Mapping[str, Any], name: str) -> float | None:
    """A numeric argument, or the product of two whose names have ` * ` between them; None where it is no
    number.
    """
    product = 1.0
    for part in (name,) if name in args else name.split(" * "):
        value = args.get(part)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            product *= float(value)
        except OverflowError:
            return None
    return product if abs(product) <= _LARGEST else None


def find_growth(values: Sequence[float], args: Sequence[Mapping[str, Any]]) -> Growth | None:
    """What these positive values depend on; None where no argument explains them better than chance would.

    Of several arguments the one that explains held-out values best; a product of two has to be clearly
    better.
    """
    step = max(1, math.ceil(len(values) / LOOKED_AT))
    values, args = values[::step], args[::step]
    if len(values) < LEAST or max(values) <= min(values) * 1.02:
        return None
    best: Growth | None = None
    order = ranks(values)
    for name in _numeric(args):
        if _along(order, [argument_of(one, name) for one in args]) < _ALONG:
            continue
        for shape in _SHAPES:
            best = _better(best, _fit_numeric(values, args, name, shape))
    for name in _categories(args):
        best = _better(best, _fit_category(values, args, name))
    return best


def _along(order: Sequence[float], xs: Sequence[float | None]) -> float:
    """Spearman's rank correlation of values, given by their ranks, with an argument; those without it are
    passed over.
    """
    pairs = [(rank, x) for rank, x in zip(order, xs, strict=True) if x is not None]
    if len(pairs) < LEAST:
        return 0.0
    try:
        return correlation([rank for rank, _ in pairs], ranks([x for _, x in pairs]))
    except StatisticsError:  # it does not vary
        return 0.0


def _better(old: Growth | None, new: Growth | None) -> Growth | None:
    if old is None or new is None:
        return new or old
    margin = 0.02 if " * " in new.argument and " * " not in old.argument else 0.005
    return new if new.held_out > old.held_out + margin else old


def _numeric(args: Sequence[Mapping[str, Any]]) -> list[str]:
    """Arguments that are numbers in nearly all attempts and vary, then products of the first few."""
    names = sorted({name for one in args for name in one})
    found = []
    for name in names:
        numbers = [x for one in args if (x := argument_of({name: one.get(name)}, name)) is not None]
        if len(numbers) >= 0.9 * len(args) and len(set(numbers)) >= 3 and min(numbers) >= 0:
            found.append(name)
    found = found[:_ARGUMENTS]
    return found + [f"{a} * {b}" for a, b in combinations(found[:_PRODUCTS], 2)]


def _categories(args: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for name in sorted({name for one in args for name in one}):
        texts = [one.get(name) for one in args]
        kinds = {str(text) for text in texts if isinstance(text, str | bool)}
        known = sum(isinstance(text, str | bool) for text in texts)
        if known == len(args) and 2 <= len(kinds) <= _CATEGORIES:
            found.append(name)
    return found


def _fit_numeric(
    values: Sequence[float], args: Sequence[Mapping[str, Any]], name: str, shape: str
) -> Growth | None:
    pairs = [(x, v) for one, v in zip(args, values, strict=True) if (x := argument_of(one, name)) is not None]
    if len(pairs) < LEAST:
        return None
    gained = _gain(pairs, lambda some: _line(some, shape))
    line = _line(pairs, shape)
    if gained is None or line is None or line[1] <= 0:
        return None
    xs = [x for x, _ in pairs]
    return Growth(
        argument=name, shape=shape, base=line[0], slope=line[1], low=min(xs), high=max(xs), held_out=gained
    )


def _fit_category(values: Sequence[float], args: Sequence[Mapping[str, Any]], name: str) -> Growth | None:
    pairs = [(str(one[name]), v) for one, v in zip(args, values, strict=True)]
    gained = _gain(pairs, _levels)
    levels = _levels(pairs)
    if gained is None or levels is None:
        return None
    return Growth(argument=name, shape="category", levels=levels, held_out=gained)


def _gain(
    pairs: Sequence[tuple[Any, float]], fit: Callable[[Sequence[tuple[Any, float]]], Any]
) -> float | None:
    """How much closer a fit to one half comes to the other, both ways; None where it is not clearly closer.

    Halves alternate in the order of the argument, so that both hold all of its range.
    """
    ordered = sorted(pairs, key=lambda pair: (str(pair[0]) if isinstance(pair[0], str) else pair[0], pair[1]))
    halves = [ordered[0::2], ordered[1::2]]
    ours = plain = 0.0
    for part, other in (halves, halves[::-1]):
        found = fit(part)
        if found is None:
            return None
        middle = math.log(median(v for _, v in part))
        for x, v in other:
            guess = found.get(x) if isinstance(found, dict) else _value(found, x)
            if guess is None or guess <= 0:
                return None
            ours += abs(math.log(v) - math.log(guess))
            plain += abs(math.log(v) - middle)
    return None if plain <= 0 or ours > _BETTER * plain else 1.0 - ours / plain


def _levels(pairs: Sequence[tuple[str, float]]) -> dict[str, float] | None:
    groups: dict[str, list[float]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return {name: median(group) for name, group in groups.items()} if groups else None


Line = tuple[float, float, str]
"""Base, slope and shape."""


def _value(line: Line, x: float) -> float:
    return line[0] + line[1] * _SHAPES[line[2]](x)


def _line(pairs: Sequence[tuple[float, float]], shape: str) -> Line | None:
    """Base and slope by least squares of relative errors, twice, so that one size weighs as much as another.

    The base is not negative: nothing needs less than nothing for the smallest of problems.
    """
    turn = _SHAPES[shape]
    try:
        points = [(turn(x), v) for x, v in pairs]
    except OverflowError:
        return None
    weights = [1.0 / v for _, v in points]
    found: Line | None = None
    for _ in range(2):
        squares = [w * w for w in weights]
        total = math.fsum(squares)
        mean_x = math.fsum(w * x for w, (x, _) in zip(squares, points, strict=True)) / total
        mean_v = math.fsum(w * v for w, (_, v) in zip(squares, points, strict=True)) / total
        spread = math.fsum(w * (x - mean_x) ** 2 for w, (x, _) in zip(squares, points, strict=True))
        if spread <= 0 or not math.isfinite(spread):
            return None
        slope = (
            math.fsum(w * (x - mean_x) * (v - mean_v) for w, (x, v) in zip(squares, points, strict=True))
            / spread
        )
        base = mean_v - slope * mean_x
        if base < 0:
            across = math.fsum(w * x * x for w, (x, _) in zip(squares, points, strict=True))
            slope = math.fsum(w * x * v for w, (x, v) in zip(squares, points, strict=True)) / across
            base = 0.0
        found = (base, slope, shape)
        guesses = [_value(found, x) for x, _ in pairs]
        if min(guesses) <= 0:
            return None
        weights = [1.0 / guess for guess in guesses]
    return found
