"""Cache lookups and artifacts: what was reused, what was computed and why, and which files the run left."""

from __future__ import annotations

from array import array

from msgspec import Struct

from flightlog.analyze.tallies import copied
from flightlog.core.stats import exact_sum
from flightlog.events import ArtifactRecorded, CacheLookup, Event


class CacheName(Struct, frozen=True, kw_only=True):
    """The lookups of one function."""

    hits: int
    misses: int
    bypassed: int


class CacheSummary(Struct, frozen=True, kw_only=True):
    """All lookups. A cache that was switched off could not hit: that is `bypassed`, neither lookup nor
    miss.
    """

    lookups: int
    hits: int
    misses: int
    bypassed: int
    hit_rate: float | None
    """Hits over lookups; null where there was none."""
    saved_s: float | None
    """What the reused results took to compute, less what reusing them took; null where no hit knows."""
    miss_reasons: dict[str, int]
    by_name: dict[str, CacheName]


class CacheTally:
    """Takes the events of the stream `cache`, in any order."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, int]] = {}
        self._reasons: dict[str, int] = {}
        self._saved = array("d")
        self._spent = array("d")

    def add(self, event: Event) -> None:
        """Take one event."""
        if not isinstance(event, CacheLookup):
            return
        results = self._names.setdefault(event.task, {"hit": 0, "miss": 0, "bypass": 0})
        results[event.result] += 1
        if event.result == "miss" and event.reason:
            self._reasons[event.reason] = self._reasons.get(event.reason, 0) + 1
        if event.result == "hit" and event.saved_s is not None:
            self._saved.append(event.saved_s)
            self._spent.append(-(event.duration_s or 0.0))

    def summary(self) -> CacheSummary:
        """The result."""
        hits, misses, bypassed = (
            sum(results[kind] for results in self._names.values()) for kind in ("hit", "miss", "bypass")
        )
        lookups = hits + misses
        return CacheSummary(
            lookups=lookups,
            hits=hits,
            misses=misses,
            bypassed=bypassed,
            hit_rate=hits / lookups if lookups else None,
            saved_s=exact_sum([*self._saved, *self._spent]) if self._saved else None,
            miss_reasons=dict(sorted(self._reasons.items())),
            by_name={
                name: CacheName(hits=results["hit"], misses=results["miss"], bypassed=results["bypass"])
                for name, results in sorted(self._names.items())
            },
        )


LISTED = 100
"""How many artifacts a summary lists; `count` is of all."""


class Artifact(Struct, frozen=True, kw_only=True):
    """One output, as it was recorded last."""

    name: str
    uri: str
    kind: str | None
    size_bytes: int | None
    sha256: str | None
    timestamp: str
    error: str | None


class ArtifactSummary(Struct, frozen=True, kw_only=True):
    """All outputs, each address once: a file that was recorded again counts as it was then."""

    count: int
    size_bytes: int | None
    """Sum of the known sizes; null where none is known."""
    unknown_sizes: int
    listed: list[Artifact]
    """The latest ones, oldest first."""


class ArtifactTally:
    """Takes the events of the stream `artifacts`, in any order."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[tuple[str, str, int, str], ArtifactRecorded]] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
        if not isinstance(event, ArtifactRecorded):
            return
        order = (event.timestamp, event.writer, event.seq, event.sha256 or "")
        known = self._latest.get(event.uri)
        if known is None or order > known[0]:
            self._latest[event.uri] = (order, event)

    def summary(self) -> ArtifactSummary:
        """The result."""
        latest = [event for _, event in self._latest.values()]
        latest.sort(key=lambda event: (event.timestamp, event.writer, event.seq, event.uri))
        sizes = [event.size_bytes for event in latest if event.size_bytes is not None]
        return ArtifactSummary(
            count=len(latest),
            size_bytes=sum(sizes) if sizes else None,
            unknown_sizes=len(latest) - len(sizes),
            listed=[copied(Artifact, event) for event in latest[-LISTED:]],
        )
