"""Spans: how many of each name ended, and which are open."""

from __future__ import annotations

from flightlog.analyze.live.results import NAME, OpenSpan, SpanNow, args_text, cut
from flightlog.analyze.live.tasks import DurationSketch
from flightlog.analyze.report.in_flight import ENOUGH, FAR
from flightlog.core.time import SECOND, moment
from flightlog.events import SpanEvent, SpanOpened
from flightlog.store.read.lines import AnyEvent

NAMES = 2_000
LISTED = 100
OPEN = 100
OTHERS = "(other names)"
_LATE = 10_000


class _SpanName:
    __slots__ = ("durations", "ended", "errors", "open")

    def __init__(self) -> None:
        self.ended = self.errors = self.open = 0
        self.durations = DurationSketch()


class LiveSpans:
    """Takes the events of the stream `spans`. Memory: what is open, a few numbers a name, and the last ids
    that ended: a line that says that a span is open may come just after its end.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._names: dict[str, _SpanName] = {}
        self._open: dict[str, SpanOpened] = {}
        self._late: set[str] = set()
        self._later: set[str] = set()

    def add(self, event: AnyEvent) -> None:
        """Take one event; kinds of no concern are passed over."""
        if isinstance(event, SpanEvent):
            self.ended += 1
            name = self._of(event.name)
            name.ended += 1
            name.errors += event.status == "error"
            if event.duration_s is not None:
                name.durations.add(event.duration_s)
            if self._open.pop(event.span_id, None) is None:
                self._late.add(event.span_id)
                if len(self._late) > _LATE:
                    self._late, self._later = set(), self._late
        elif (
            isinstance(event, SpanOpened)
            and event.span_id not in self._late
            and event.span_id not in self._later
        ):
            known = self._open.get(event.span_id)
            if known is None or event.elapsed_s > known.elapsed_s:
                self._open[event.span_id] = event

    def _of(self, name: str) -> _SpanName:
        short = cut(name, NAME)
        found = self._names.get(short)
        if found is None:
            short = short if len(self._names) < NAMES else OTHERS
            found = self._names.setdefault(short, _SpanName())
        return found

    def names(self) -> list[SpanNow]:
        """The names that took most of the time first."""
        open_now: dict[str, int] = {}
        for opened in self._open.values():
            name = cut(opened.name, NAME)
            open_now[name] = open_now.get(name, 0) + 1
        for name in open_now:
            self._of(name)
        most = sorted(self._names.items(), key=lambda one: (-one[1].durations.total, one[0]))[:LISTED]
        return [
            SpanNow(
                name=name,
                ended=one.ended,
                errors=one.errors,
                open=open_now.get(name, 0),
                mean_s=one.durations.mean,
                max_s=one.durations.max if one.durations.count else None,
                total_s=one.durations.total if one.durations.count else None,
            )
            for name, one in most
        ]

    def open(self, until: int | None) -> list[OpenSpan]:
        """What may be stuck first, then the longest."""
        oldest = sorted(self._open.values(), key=lambda one: (one.timestamp, one.name, one.span_id))[:OPEN]
        found = [self._result(opened, until) for opened in oldest]
        return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.name))

    def _result(self, opened: SpanOpened, until: int | None) -> OpenSpan:
        since = moment(opened.timestamp)
        elapsed = opened.elapsed_s if since is None or until is None else max(0, until - since) / SECOND
        usual, stuck = usual_of(self._of(opened.name).durations, elapsed)
        return OpenSpan(
            name=cut(opened.name, NAME),
            span_id=cut(opened.span_id, NAME),
            tags=args_text(opened.tags),
            since=opened.timestamp,
            elapsed_s=elapsed,
            usual_s=usual,
            stuck=stuck,
        )


def usual_of(durations: DurationSketch, elapsed_s: float | None) -> tuple[float | None, bool | None]:
    """What nineteen of twenty take at most, and whether this long is far beyond; null where too few have
    ended.
    """
    p95 = durations.quantile(0.95) if durations.count >= ENOUGH else None
    if p95 is None or elapsed_s is None:
        return None, None
    return p95, elapsed_s > max(FAR * p95, durations.max)
