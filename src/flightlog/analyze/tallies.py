"""Bounded tallies of what comes in any order: the smallest or the newest few of many, and metrics by name."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from flightlog.core.stats import exact_sum, mean_of
from flightlog.events import Event, Metric

if TYPE_CHECKING:
    from flightlog.store.run import Run

T = TypeVar("T")


def copied(kind: Callable[..., T], source: object, /, **others: Any) -> T:
    """A `kind` of struct with the fields that `source` has under the same names; `others` are the rest."""
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: getattr(source, name) for name in fields if name not in others}, **others)


class StreamTally(Protocol):
    """Takes events in any order."""

    def add(self, event: Event, /) -> None:
        """Take one event; other kinds are ignored."""
        ...


Tally = TypeVar("Tally", bound=StreamTally)


def tallied(run: Run, stream: str, tally: Tally) -> Tally:
    """The tally, after all events of a stream."""
    for event in run.events(stream):
        if isinstance(event, Event):
            tally.add(event)
    return tally


class Least(Generic[T]):
    """Keeps the `limit` items with the smallest keys, and counts all. Keys must order completely."""

    __slots__ = ("_bar", "_kept", "_limit", "count")

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit
        self._kept: list[tuple[Any, T]] = []
        self._bar: Any = None

    def add(self, key: Any, item: T) -> None:
        """Take an item, or leave it where enough smaller ones are known."""
        self.count += 1
        if self._bar is not None and key >= self._bar:
            return
        self._kept.append((key, item))
        if len(self._kept) >= 4 * self._limit:
            self._shrink()

    def _shrink(self) -> None:
        self._kept.sort(key=lambda pair: pair[0])
        if len(self._kept) >= self._limit:
            del self._kept[self._limit :]
            self._bar = self._kept[-1][0]

    def items(self) -> list[T]:
        """The kept items, smallest key first."""
        self._shrink()
        return [item for _, item in self._kept]


Key = tuple[str, str, int, str]
"""When, by whom, and which: complete, so that the same events give the same list in any order."""


class Newest(Generic[T]):
    """Keeps the `limit` items with the greatest keys."""

    __slots__ = ("_bar", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[tuple[Key, T]] = []
        self._bar: Key = ("", "", -2, "")

    def would_keep(self, timestamp: str) -> bool:
        """Whether something of this time may be among the newest: a cheap look before an item is made."""
        return timestamp >= self._bar[0]

    def add(self, key: Key, item: T) -> None:
        """Take an item, or leave it where enough newer ones are known."""
        if key <= self._bar:
            return
        self._kept.append((key, item))
        if len(self._kept) >= 4 * self._limit:
            self._shrink()

    def _shrink(self) -> None:
        self._kept.sort(key=lambda pair: pair[0])  # they come nearly in order, so this is cheap
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]
            self._bar = self._kept[0][0]

    def items(self) -> list[T]:
        """What was kept, the newest first."""
        self._shrink()
        return [item for _, item in reversed(self._kept)]


LARGEST = 1.7e308
"""Whole numbers in JSON have no end; floats have."""


class MetricStats(Struct, frozen=True, kw_only=True):
    """One metric over all its values; `last` is the latest by time."""

    count: int
    sum: float
    mean: float
    min: float
    max: float
    last: float


class Series:
    """The values of one metric, 8 bytes each."""

    __slots__ = ("_last", "_order", "_values")

    def __init__(self) -> None:
        self._values = array("d")
        self._order: tuple[str, str, int, int] = ("", "", -2, 0)
        self._last = 0.0

    def add(self, value: float, order: tuple[str, str, int, int]) -> None:
        """Take a value; `order` is when and by whom it was measured, and its place in that line."""
        self._values.append(value)
        # Lines without a number may share their order: the larger value then counts as the later one.
        self._order, self._last = max((self._order, self._last), (order, value))

    def stats(self) -> MetricStats:
        """The statistics of the values, of which there must be one."""
        values = self._values
        return metric_stats(len(values), exact_sum(values), min(values), max(values), self._last)


def metric_stats(count: int, total: float, low: float, high: float, last: float) -> MetricStats:
    """The statistics of at least one value."""
    mean = mean_of(count, total, low, high)
    return MetricStats(count=count, sum=total, mean=mean, min=low, max=high, last=last)


class MetricTally:
    """Metrics by name; values that are no numbers a float can hold are passed over."""

    __slots__ = ("_counted", "_series")

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._counted: dict[str, MetricStats] = {}

    def add(self, event: Metric) -> None:
        """Take one value of a series recorded on its own."""
        if event.value is not None:
            self.take({event.name: event.value}, (event.timestamp, event.writer, event.seq))

    def take(self, metrics: Mapping[str, Any], order: tuple[str, str, int]) -> None:
        """Take what one span or task measured; a list holds several values of one metric, in order."""
        for name, found in metrics.items():
            for place, value in enumerate(found if isinstance(found, list) else (found,)):
                if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > LARGEST:
                    continue
                series = self._series.get(name)
                if series is None:
                    series = self._series[name] = Series()
                series.add(float(value), (*order, place))

    def put(self, name: str, counted: MetricStats) -> None:
        """Take a metric whose values were counted elsewhere, all of them."""
        self._counted[name] = counted

    def stats(self) -> dict[str, MetricStats]:
        """The metrics by name, in order."""
        found = self._counted | {name: series.stats() for name, series in self._series.items()}
        return {name: found[name] for name in sorted(found)}
