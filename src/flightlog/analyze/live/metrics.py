"""Series that the code recorded: the last value of each."""

from __future__ import annotations

from flightlog.analyze.live.results import MetricNow
from flightlog.analyze.live.words import NAME, cut
from flightlog.events import Metric

SERIES = 500
LISTED = 50


class LiveMetrics:
    """Takes the events of the stream `metrics`, in any order; of more than `SERIES` names the further ones are left out."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[str, str, int], Metric, int]] = {}

    def add(self, event: Metric) -> None:
        """Take one value."""
        name = cut(event.name, NAME)
        known = self._last.get(name)
        when = (event.timestamp, event.writer, event.seq)
        if known is None:
            if len(self._last) < SERIES:
                self._last[name] = (when, event, 1)
        elif when > known[0]:
            self._last[name] = (when, event, known[2] + 1)
        else:
            self._last[name] = (known[0], known[1], known[2] + 1)

    def results(self) -> list[MetricNow]:
        """In order of their names."""
        return [
            MetricNow(name=name, value=last.value, step=last.step, count=count, at=last.timestamp)
            for name, (_, last, count) in sorted(self._last.items())[:LISTED]
        ]
