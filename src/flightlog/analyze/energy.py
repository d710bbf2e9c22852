"""The energy that hosts used while the run was recorded, by counters of processors and GPUs; null where there
are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum
from flightlog.analyze.moments import moment
from flightlog.events import ResourceSample

if TYPE_CHECKING:
    from flightlog.analyze.gpus import GpuUse


class HostEnergy(Struct, frozen=True, kw_only=True):
    """The energy of one host in joules; null where it has no counter that could be read."""

    processors_j: float | None
    gpus_j: float | None


class EnergyUse(Struct, frozen=True, kw_only=True):
    """Energy between the first and the last sample of each counter, by everyone on those hosts: node-wide.

    Disks, network, fans and power supplies have no counters, so that the meter at the wall shows more.
    """

    total_j: float
    by_host: dict[str, HostEnergy]


class EnergyTally:
    """Takes samples of nodes, in any order. Several processes may have sampled one host, each by a counter of
    its own.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}

    def add(self, sample: ResourceSample) -> None:
        """Take one sample; those without a counter or a time are passed over."""
        if sample.energy_j is not None and (when := moment(sample.timestamp)) is not None:
            key = (sample.host or "", sample.writer)
            self._series.setdefault(key, _Series()).add(when, sample.energy_j)

    def summary(self, gpus: GpuUse | None) -> EnergyUse | None:
        """The result; None where no counter was sampled twice. `gpus` has the energy of the GPUs."""
        processors: dict[str, list[_Series]] = {}
        for (host, _), series in sorted(self._series.items()):
            if series.count > 1:
                processors.setdefault(host, []).append(series)
        cards: dict[str, dict[object, float]] = {}
        for device in gpus.each if gpus is not None else ():
            if device.energy_j is not None:
                # Instances of one partitioned GPU all show the whole GPU's counter.
                of = cards.setdefault(device.host or "", {})
                key = device.uuid or device.index
                of[key] = max(of.get(key, 0.0), device.energy_j)
        by_host = {
            host: HostEnergy(
                processors_j=_together(processors[host]) if host in processors else None,
                gpus_j=exact_sum(cards[host].values()) if host in cards else None,
            )
            for host in sorted({*processors, *cards})
        }
        if not by_host:
            return None
        parts = [part for one in by_host.values() for part in (one.processors_j, one.gpus_j)]
        return EnergyUse(total_j=exact_sum(part for part in parts if part is not None), by_host=by_host)


def counted(moments: Sequence[int], joules: Sequence[float]) -> float | None:
    """What a counter has counted between its first and its last reading; None where it was read once at most.

    A counter that falls to less than half was set back to 0, as by a driver that is loaded anew, and goes on
    from there. A smaller fall is two processes that read it at one moment.
    """
    if len(joules) < 2:
        return None
    ordered = [value for _, value in sorted(zip(moments, joules, strict=True))]
    found: list[float] = []
    since = last = ordered[0]
    for value in ordered:
        if value < last / 2:
            found.append(last - since)
            since = last = 0.0
        last = max(last, value)
    return exact_sum([*found, last - since])


class _Series:
    """One counter as one process saw it; it only grows, so the least and the greatest are the first and the
    last.
    """

    def __init__(self) -> None:
        self.count = 0
        self.since = self.until = 0
        self._least = self._most = 0.0

    def add(self, when: int, joules: float) -> None:
        if not self.count:
            self.since, self.until, self._least, self._most = when, when, joules, joules
        self.count += 1
        self.since, self.until = min(self.since, when), max(self.until, when)
        self._least, self._most = min(self._least, joules), max(self._most, joules)

    def grown(self) -> float:
        return self._most - self._least


def _together(series: list[_Series]) -> float:
    """Processes that looked at the same time saw the same energy, and it counts once.

    Of one that went on looking after the others, the part after them counts, as if it had grown evenly.
    """
    found: list[float] = []
    seen_until: int | None = None
    for one in sorted(series, key=lambda one: (one.since, -one.until, -one.grown())):
        since, until = one.since, one.until
        if seen_until is None or since >= seen_until:
            found.append(one.grown())
        elif until > seen_until:
            found.append(one.grown() * ((until - seen_until) / (until - since)))
        seen_until = until if seen_until is None else max(seen_until, until)
    return exact_sum(found)
