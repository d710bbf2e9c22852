"""Whether caching helped: what was reused, what was computed, and why."""

from __future__ import annotations

from array import array

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum
from flightlog.events import CacheLookup, Event


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
