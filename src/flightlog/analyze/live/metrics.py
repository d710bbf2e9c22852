"""Series that the code recorded: the last value of each, and how those with the most values went."""

from __future__ import annotations

import math

from msgspec import Struct

from flightlog.analyze.charts.results import MetricPoints
from flightlog.analyze.live.results import NAME, MetricNow, cut
from flightlog.analyze.report.metrics import LARGEST
from flightlog.core.time import SECOND, moment
from flightlog.events import Metric

SERIES = 500
LISTED = 50
DRAWN = 6


class LiveMetrics:
    """Takes the events of the stream `metrics`, in any order; of more than `SERIES` names the further ones
    are left out.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[str, str, int], Metric, int]] = {}
        self._points: dict[str, LivePoints] = {}

    def add(self, event: Metric) -> None:
        """Take one value."""
        name = cut(event.name, NAME)
        known = self._last.get(name)
        when = (event.timestamp, event.writer, event.seq)
        if known is None:
            if len(self._last) >= SERIES:
                return
            self._last[name] = (when, event, 1)
            if len(self._points) < LISTED:
                self._points[name] = LivePoints()
        elif when > known[0]:
            self._last[name] = (when, event, known[2] + 1)
        else:
            self._last[name] = (known[0], known[1], known[2] + 1)
        if (points := self._points.get(name)) is not None:
            points.add(event.timestamp, event.step, event.value)

    def results(self) -> list[MetricNow]:
        """In order of their names."""
        listed = sorted(self._last.items())[:LISTED]
        known = [(-self._points[name].values, name) for name, _ in listed if name in self._points]
        drawn = {name: self._points[name].results() for _, name in sorted(known)[:DRAWN]}
        return [
            MetricNow(
                name=name,
                value=last.value,
                step=last.step,
                count=count,
                at=last.timestamp,
                points=drawn.get(name),
            )
            for name, (_, last, count) in listed
        ]


POINTS = 200
"""Points are joined when there are twice as many, until so many are left at most: a third of that or more.
Each is of about as many values, whenever they came."""


class _Point(Struct):
    """Values that are next to each other."""

    step: float | None
    at: float | None
    """The first of each, by which points are in order."""
    values: int
    known: int
    total: float
    least: float
    most: float
    lost_step: float | None
    lost_at: float | None


class LivePoints:
    """Takes values in any order. Memory is bounded; a value without a step and without a time is left out."""

    def __init__(self) -> None:
        self._points: list[_Point] = []
        self._most = 1
        self._stepped = True
        self.values = 0
        self.lost = 0

    def add(self, timestamp: str, step: int | None, value: float | None) -> None:
        """Take one value; null, and one so large that sums of it are no numbers, is none."""
        when = moment(timestamp)
        at = None if when is None else when / SECOND
        place = None if step is None or abs(step) > LARGEST else float(step)
        if place is None and at is None:
            return
        self._stepped = self._stepped and place is not None
        self.values += 1
        if value is None or not abs(value) <= LARGEST:
            self.lost += 1
            self._points.append(_Point(place, at, 1, 0, 0.0, 0.0, 0.0, place, at))
        else:
            known = float(value)
            self._points.append(_Point(place, at, 1, 1, known, known, known, None, None))
        if len(self._points) >= 2 * POINTS:
            self._points = self._joined()
            while len(self._points) > POINTS:
                self._most *= 2
                self._points = self._joined()

    def results(self) -> MetricPoints | None:
        """The points as of now; null for a line that would have no two places."""
        found = [point for point in self._joined() if self._place(point) is not None]
        places = [self._place(point) or 0.0 for point in found]
        if not places or places[0] == places[-1] or self.values == self.lost:
            return None
        several = any(point.values > 1 for point in found)
        lost = [point.lost_step if self._stepped else point.lost_at for point in found]
        return MetricPoints(
            by="step" if self._stepped else "time",
            at=places,
            value=[_mean(point) for point in found],
            least=[point.least if point.known else None for point in found] if several else [],
            most=[point.most if point.known else None for point in found] if several else [],
            lost_at=[place for place in lost if place is not None],
            values=self.values,
            lost=self.lost,
        )

    def _place(self, point: _Point) -> float | None:
        return point.step if self._stepped else point.at

    def _joined(self) -> list[_Point]:
        """The points in order; joined are those of one place, and neighbours that together hold no more
        values than may be.
        """
        joined: list[_Point] = []
        for point in sorted(self._points, key=lambda point: self._place(point) or 0.0):
            if joined and (
                joined[-1].values + point.values <= self._most
                or self._place(joined[-1]) == self._place(point)
            ):
                joined[-1] = _join(joined[-1], point)
            else:
                joined.append(point)
        return joined


def _mean(point: _Point) -> float | None:
    """Of the values that are numbers, within the least and the most of them; null without any."""
    if not point.known:
        return None
    mean = point.total / point.known
    return (
        min(max(mean, point.least), point.most) if math.isfinite(mean) else point.least / 2 + point.most / 2
    )


def _join(one: _Point, other: _Point) -> _Point:
    least, most = one.least, one.most
    if other.known:
        least = min(least, other.least) if one.known else other.least
        most = max(most, other.most) if one.known else other.most
    return _Point(
        _first(one.step, other.step),
        _first(one.at, other.at),
        one.values + other.values,
        one.known + other.known,
        one.total + other.total,
        least,
        most,
        _first(one.lost_step, other.lost_step),
        _first(one.lost_at, other.lost_at),
    )


def _first(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
