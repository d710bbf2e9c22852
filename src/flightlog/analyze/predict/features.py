"""Examples to learn from, and what is known of a task before it runs as columns of numbers.

An attempt that completed tells what it took. One that was killed at its memory limit, or ended at its time
limit, tells that it would have taken more: it is kept as such, and never as if it had been complete.

Numbers stand as they are: trees ask whether a number is above another, so a logarithm of it would ask the
same. Sizes are read from what the recorder writes in the place of data: the elements of an array, the length
of a list or of bytes. A text is one of those seen often enough, a column each, so that the same text means
the same in any process on any day.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.analyze.history.attempts import PLAUSIBLE_BYTES, PLAUSIBLE_S, PastAttempt, ProjectHistory
from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.predict.baseline import Quantity
from flightlog.analyze.tallies import copied, grouped

Value = float | str
"""A number, or a word."""


OF_ALL = ("task", "component", "host")
"""Keys of what every task may have; no argument is called so: theirs begin with `args.`."""

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
    if len(found) >= PredictLimits.max_argument_values:
        return
    if isinstance(value, bool | int | float):
        number = _finite(value)
        if number is not None:
            found[key] = number
    elif isinstance(value, str):
        _text(key, value, found)
    elif isinstance(value, Mapping) and depth < PredictLimits.max_argument_depth:
        for name, inner in value.items():
            _flatten(f"{key}.{name}", inner, found, depth + 1)
    elif isinstance(value, list):
        cut = _CUT.fullmatch(value[-1]) if value and isinstance(value[-1], str) else None
        found[f"{key}.length"] = float(len(value) - 1 + int(cut[1]) if cut else len(value))
        if depth < PredictLimits.max_argument_depth:
            for number_of, inner in enumerate(value[: PredictLimits.max_argument_items]):
                _flatten(f"{key}.{number_of}", inner, found, depth + 1)


def _text(key: str, text: str, found: dict[str, Value]) -> None:
    if shape := _SHAPE.fullmatch(text[: PredictLimits.max_word_characters]):
        sizes = [int(size) for size in shape[1].replace(",", " ").split()]
        found[f"{key}.size"] = float(math.prod(sizes)) if sizes else 1.0
        return
    if length := _LENGTH.match(text[: PredictLimits.max_word_characters]):
        found[f"{key}.length"] = float(length[1])
        return
    try:
        number = _finite(float(text)) if len(text) <= 40 and text.isascii() and "_" not in text else None
    except ValueError:
        number = None
    found[key] = text[: PredictLimits.max_word_characters] if number is None else number


def _finite(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def make_columns(examples: Sequence[Example]) -> list[Column]:
    """The columns in which these examples differ, in a fixed order."""
    numbers: defaultdict[str, set[float]] = defaultdict(set)
    words: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        for key, value in _all_values(example):
            if isinstance(value, str):
                words[key][value] += 1
            elif len(numbers[key]) < 2:
                numbers[key].add(value)
    columns = [Column(key) for key, seen in sorted(numbers.items()) if len(seen) > 1]
    for key, counts in sorted(words.items()):
        often = [word for word, count in counts.items() if count >= PredictLimits.min_word_count]
        often.sort(key=lambda word: (-counts[word], word))
        if len(counts) > 1:
            columns += [Column(key, word) for word in often[: PredictLimits.max_words]]
    return columns


def row(columns: Sequence[Column], example: Example) -> list[float]:
    """An example as numbers, a column each; NaN where it has no such argument."""
    values = dict(_all_values(example))

    def number(column: Column) -> float:
        value = values.get(column.key)
        if column.word is not None and value is not None:
            return float(value == column.word)
        return value if column.word is None and isinstance(value, float) else math.nan

    return [number(column) for column in columns]


def ranges(examples: Iterable[Example]) -> dict[str, Range]:
    """What was seen of each argument that is a number."""
    found = grouped(
        (key, value) for one in examples for key, value in one.values.items() if isinstance(value, float)
    )
    return {key: Range(min(values), max(values)) for key, values in found.items()}


def words(examples: Iterable[Example]) -> dict[str, list[str]]:
    """What was seen of each argument that is a text, in order; nothing of one with more than `max_words` of
    them.
    """
    found = grouped(
        (key, value) for one in examples for key, value in one.values.items() if isinstance(value, str)
    )
    seen = {key: sorted(set(values)) for key, values in found.items()}
    return {key: values if len(values) <= PredictLimits.max_words else [] for key, values in seen.items()}


def _all_values(example: Example) -> Iterable[tuple[str, Value]]:
    yield "task", example.name
    if example.component is not None:
        yield "component", example.component
    if example.host is not None:
        yield "host", example.host
    yield from example.values.items()


class Example(Struct, frozen=True):
    """One attempt."""

    name: str
    component: str | None
    host: str | None
    values: dict[str, Value]
    """Arguments, as `features.flatten` gives them."""
    run: int
    """Number of its run, the oldest is 0."""
    log: float
    """Natural logarithm of seconds or bytes."""
    above: bool = False
    """It would have taken more than `log` says, by an unknown amount."""
    rough: bool = False
    """What was measured is a lower bound, as a process that is used again gives it."""


class Examples(Struct, frozen=True):
    """All examples of one quantity, the oldest first."""

    quantity: Quantity
    found: list[Example]
    left_out: dict[str, int]
    """Attempts that are no examples, by reason."""


def gaps(past: ProjectHistory) -> list[str]:
    """Sentences on what could not be read of a past, runs without any attempt included."""
    empty = len(past.runs) - len({attempt.run_id for attempt in past.attempts})
    if not empty or not past.attempts:
        return list(past.problems)
    said = (
        f"{empty} of {len(past.runs)} runs hold no attempt that can be read: `flightlog verify RUN` tells "
        "what is wrong"
    )
    return [*past.problems, said]


def examples_of(past: ProjectHistory, quantity: Quantity) -> Examples:
    """How long attempts took to complete, in seconds, or their peak of memory, in bytes, whoever's it is: see
    `rss_scope`.

    One that a cache spared more than half of its work is left out: it tells nothing of what the work takes.
    """
    order = {run.run_id: number for number, run in enumerate(reversed(past.runs))}
    left_out: Counter[str] = Counter()
    found: list[Example] = []
    by_time = sorted(past.attempts, key=lambda one: (order.get(one.run_id, 0), one.ended or 0.0, one.task_id))
    for attempt in by_time:
        if attempt.saved_s is not None and attempt.saved_s > (attempt.duration_s or math.inf):
            left_out["spared by the cache"] += 1
            continue
        amount, above, why = _measured(quantity, attempt)
        if amount is None:
            left_out[why] += 1
            continue
        found.append(
            copied(
                Example,
                attempt,
                values=flatten(attempt.args),
                run=order.get(attempt.run_id, 0),
                log=math.log(amount),
                above=above,
                rough=quantity == "peak_memory_bytes" and (attempt.rss_scope or "").endswith("_at_least"),
            )
        )
    return Examples(quantity, found, dict(sorted(left_out.items())))


def _measured(quantity: Quantity, attempt: PastAttempt) -> tuple[float | None, bool, str]:
    """Seconds or bytes, whether it would have been more, and why there are none."""
    if quantity == "duration_s":
        amount, limit, bounds = attempt.duration_s, attempt.timeout_s, PLAUSIBLE_S
        at_limit = attempt.timed_out
        unmeasured, impossible = "nobody measured how long it took", "with a duration that is 0 or cannot be"
        unknown_limit = "ended at an unknown time limit"
    else:
        amount, limit, bounds = attempt.peak_rss_bytes, attempt.requested.memory_bytes, PLAUSIBLE_BYTES
        at_limit = bool(attempt.memory_killed)
        unmeasured, impossible = "nobody measured memory", "with a peak that is 0 or cannot be"
        unknown_limit = "killed at an unknown memory limit"
    if attempt.state == "completed":
        why = f"completed, and {unmeasured}" if amount is None else f"completed, {impossible}"
        return _within(amount, bounds), False, why
    if at_limit:
        known = [x for one in (amount, limit) if (x := _within(one, bounds)) is not None]
        return max(known, default=None), True, unknown_limit
    if attempt.memory_killed or attempt.timed_out:
        return None, False, "killed for memory" if attempt.memory_killed else "ended at its time limit"
    return None, False, attempt.state if attempt.state in {"failed", "cancelled"} else "never ended"


def _within(amount: float | None, bounds: tuple[float, float]) -> float | None:
    """The amount where it is one that can be."""
    return float(amount) if amount is not None and bounds[0] <= amount <= bounds[1] else None
