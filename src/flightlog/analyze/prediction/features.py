"""What is known of a task before it runs, as columns of numbers.

Numbers stand as they are: trees ask whether a number is above another, so a logarithm of it would ask the
same. Sizes are read from what the recorder writes in the place of data: the elements of an array, the length
of a list or of bytes. A text is one of those seen often enough, a column each, so that the same text means
the same in any process on any day.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from flightlog.analyze.prediction.examples import Example

Value = float | str
"""A number, or a word."""

DEPTH = 3
ITEMS = 8
KEYS = 40
"""So deep, so many items of each list, and so many values of a call are looked at."""
WORDS = 16
SEEN = 5
"""So many words of each argument get a column, the most frequent ones, each seen so often at least."""
OF_ALL = ("task", "component", "host")
"""Keys of what every task may have; no argument is called so: theirs begin with `args.`."""
_LONGEST = 200
_SHAPE = re.compile(r"<\w[\w.]*(?: \w+)? \(([\d, ]*)\)>")
_LENGTH = re.compile(r"<[\w.]+, (\d+) (?:items?|bytes)\b")
_CUT = re.compile(r"… \[\+(\d+) items?\]")


class Column(Struct, frozen=True):
    """One column: the number of an argument, or whether a word stands there."""

    key: str
    """Of `flatten`, or one of `OF_ALL`."""
    word: str | None = None


class Range(Struct, frozen=True):
    """What was seen of an argument that is a number."""

    least: float
    most: float


def flatten(args: Mapping[str, Any]) -> dict[str, Value]:
    """The arguments as numbers and words by dotted name: `args.n`, `args.grid.0`, `args.data.size`,
    `args.files.length`.
    """
    found: dict[str, Value] = {}
    _flatten("args", args, found, 0)
    return found


def _flatten(key: str, value: object, found: dict[str, Value], depth: int) -> None:
    if len(found) >= KEYS:
        return
    if isinstance(value, bool | int | float):
        number = _finite(value)
        if number is not None:
            found[key] = number
    elif isinstance(value, str):
        _text(key, value, found)
    elif isinstance(value, Mapping) and depth < DEPTH:
        for name, inner in value.items():
            _flatten(f"{key}.{name}", inner, found, depth + 1)
    elif isinstance(value, list):
        cut = _CUT.fullmatch(value[-1]) if value and isinstance(value[-1], str) else None
        found[f"{key}.length"] = float(len(value) - 1 + int(cut[1]) if cut else len(value))
        if depth < DEPTH:
            for number_of, inner in enumerate(value[:ITEMS]):
                _flatten(f"{key}.{number_of}", inner, found, depth + 1)


def _text(key: str, text: str, found: dict[str, Value]) -> None:
    if shape := _SHAPE.fullmatch(text[:_LONGEST]):
        sizes = [int(size) for size in shape[1].replace(",", " ").split()]
        found[f"{key}.size"] = float(math.prod(sizes)) if sizes else 1.0
        return
    if length := _LENGTH.match(text[:_LONGEST]):
        found[f"{key}.length"] = float(length[1])
        return
    try:
        number = _finite(float(text)) if len(text) <= 40 and text.isascii() and "_" not in text else None
    except ValueError:
        number = None
    found[key] = text[:_LONGEST] if number is None else number


def _finite(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def make_columns(examples: Sequence[Example]) -> list[Column]:
    """The columns in which these examples differ, in a fixed order."""
    numbers: dict[str, set[float]] = {}
    words: dict[str, Counter[str]] = {}
    for example in examples:
        for key, value in _all_values(example):
            if isinstance(value, str):
                words.setdefault(key, Counter())[value] += 1
            else:
                seen = numbers.setdefault(key, set())
                if len(seen) < 2:
                    seen.add(value)
    columns = [Column(key) for key, seen in sorted(numbers.items()) if len(seen) > 1]
    for key, counts in sorted(words.items()):
        often = sorted(
            (word for word, count in counts.items() if count >= SEEN), key=lambda w: (-counts[w], w)
        )
        if len(counts) > 1:
            columns += [Column(key, word) for word in often[:WORDS]]
    return columns


def row(columns: Sequence[Column], example: Example) -> list[float]:
    """An example as numbers, a column each; NaN where it has no such argument."""
    values = dict(_all_values(example))
    made: list[float] = []
    for column in columns:
        value = values.get(column.key)
        if column.word is not None:
            made.append(math.nan if value is None else float(value == column.word))
        else:
            made.append(value if isinstance(value, float) else math.nan)
    return made


def ranges(examples: Iterable[Example]) -> dict[str, Range]:
    """What was seen of each argument that is a number."""
    found: dict[str, Range] = {}
    for example in examples:
        for key, value in example.values.items():
            if isinstance(value, float):
                known = found.get(key)
                found[key] = (
                    Range(value, value)
                    if known is None
                    else Range(min(known.least, value), max(known.most, value))
                )
    return found


def words(examples: Iterable[Example]) -> dict[str, list[str]]:
    """What was seen of each argument that is a text, in order; nothing of one with more than `WORDS` of
    them.
    """
    found: dict[str, set[str]] = {}
    for example in examples:
        for key, value in example.values.items():
            if isinstance(value, str):
                seen = found.setdefault(key, set())
                if len(seen) <= WORDS:
                    seen.add(value)
    return {key: sorted(seen) if len(seen) <= WORDS else [] for key, seen in found.items()}


def _all_values(example: Example) -> Iterable[tuple[str, Value]]:
    yield "task", example.name
    if example.component is not None:
        yield "component", example.component
    if example.host is not None:
        yield "host", example.host
    yield from example.values.items()
