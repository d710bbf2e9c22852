"""Series that the code recorded: the last value of each, and how those with the most values went."""

from __future__ import annotations

from flightlog.analyze.live.points import LivePoints
from flightlog.analyze.live.results import MetricNow
from flightlog.analyze.live.words import NAME, cut
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
