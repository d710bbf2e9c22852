"""Why one side took longer than the other: shares of the difference in wall time that add up to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightlog.analyze.changes import Share, WallExplained
from flightlog.analyze.compare_runs import RunFigures, Work
from flightlog.analyze.shares import TimeSplit
from flightlog.units import format_count, format_duration

NAMED = 3
"""How many names a share names."""

_PARTS = {
    "retries": ("failed_s", "attempts that failed or were tried again"),
    "queue": ("scheduler_s", "workers free while tasks were queued"),
    "idle": ("idle_s", "workers with nothing to do"),
    "startup": ("startup_s", "workers starting up"),
    "in flight": ("unfinished_s", "tasks whose end was not recorded"),
}


def explain(before: Sequence[RunFigures], after: Sequence[RunFigures]) -> WallExplained | None:
    """Why `after` took longer or shorter; None where a wall time is unknown or nothing tells.

    Wall time is worker time over the workers there were. What differs in each part of worker time counts by
    the mean of both sides' workers; the workers that differ count by the mean of both sides' worker time.
    Work is split into how many tasks there were, how long one takes with what caches spared it, and what
    caches spared. A task's time counts with the share of it that held a worker.
    """
    sides = [_Side(runs) for runs in (before, after) if all(run.wall_s is not None for run in runs)]
    if len(sides) != 2 or any(side.basis is None or side.total_s <= 0 for side in sides):
        return None
    old, new = sides
    if old.basis != new.basis:
        return None
    basis = old.basis
    assert basis is not None
    scale = (old.scale + new.scale) / 2
    shares = []
    for what, (part, words) in _PARTS.items():
        if basis == "wall" and what == "idle":
            what, words = "unrecorded", "time outside of tasks and spans"  # noqa: PLW2901 - there is nobody to be idle
        shares.append(_share(what, old.part(part), new.part(part), scale, words))
    if basis == "workers":
        moved = (old.total_s + new.total_s) / 2 * (new.scale - old.scale)
        detail = f"{_number(1 / old.scale)} → {_number(1 / new.scale)} workers on average"
        shares.append(Share(what="workers", seconds=moved, detail=detail))
    shares += _work(old, new, scale, basis)
    wanted = new.wall_s - old.wall_s
    rest = wanted - math.fsum(share.seconds for share in shares)
    told = [share for share in shares if abs(share.seconds) > 1e-9]
    told.sort(key=lambda share: (-abs(share.seconds), share.what))
    rest += math.fsum(share.seconds for share in shares) - math.fsum(share.seconds for share in told)
    return WallExplained(
        basis=basis, difference_s=wanted, shares=told, not_explained_s=0.0 if abs(rest) < 1e-9 else rest
    )


class _Side:
    """The means over the runs of one side."""

    def __init__(self, runs: Sequence[RunFigures]) -> None:
        splits = [run.time.whole for run in runs if run.time is not None]
        bases = {None if run.time is None else run.time.basis for run in runs}
        self.basis = bases.pop() if len(bases) == 1 else None
        self.wall_s = _mean([run.wall_s or 0.0 for run in runs])
        self._splits: list[TimeSplit] = splits
        self.total_s = self.part("total_s") if splits else 0.0
        self.scale = self.wall_s / self.total_s if self.total_s > 0 else 0.0
        self.held_s = self.part("run_s") + self.part("transfer_s") if splits else 0.0
        self.kind = runs[0].work_kind
        names = sorted({name for run in runs for name in run.work})
        self.work = {
            name: Work(
                *(_mean([getattr(run.work.get(name, _NOTHING), field) for run in runs]) for field in _FIELDS)
            )
            for name in names
        }
        self.work_s = math.fsum(work.seconds for work in self.work.values())

    def part(self, name: str) -> float:
        return _mean([getattr(split, name) or 0.0 for split in self._splits])


_FIELDS = ("count", "seconds", "saved_s")
_NOTHING = Work(0, 0.0, 0.0)


def _work(old: _Side, new: _Side, scale: float, basis: str) -> list[Share]:
    """Work: how many, how long, what caches spared, and how much went on side by side."""
    if not old.work_s and not new.work_s:
        return [_share("work", old.held_s, new.held_s, scale, "work")]
    densities = [side.held_s / side.work_s for side in (old, new) if side.work_s]
    density = math.fsum(densities) / len(densities)
    counts: dict[str, float] = {}
    lengths: dict[str, float] = {}
    for name in sorted(old.work.keys() | new.work.keys()):
        counts[name], lengths[name] = _split(old.work.get(name, _NOTHING), new.work.get(name, _NOTHING))
    saved = [math.fsum(work.saved_s for work in side.work.values()) for side in (old, new)]
    each = density * scale
    noun = old.kind
    shares = [
        _named(
            f"number of {noun}s",
            counts,
            each,
            {name: f"{_number(_count(old, name))} → {_number(_count(new, name))}" for name in counts},
        ),
        _named(
            f"duration of {noun}s",
            lengths,
            each,
            {
                name: (
                    f"{format_duration(_each(old, name))} → {format_duration(_each(new, name))} "
                    f"each{_uncached(old, new, name)}"
                )
                for name in counts
            },
        ),
        Share(
            what="cache",
            seconds=(saved[0] - saved[1]) * each,
            detail=f"caches spared {format_duration(saved[0])} → {format_duration(saved[1])} of work",
        ),
    ]
    if basis == "wall" and len(densities) == 2:
        moved = (old.work_s + new.work_s) / 2 * (densities[1] - densities[0]) * scale
        ran = [f"{_number(1 / value) if value else 'none'}" for value in densities]
        shares.append(Share(what="overlap", seconds=moved, detail=f"{ran[0]} → {ran[1]} at once on average"))
    return shares


def _split(old: Work, new: Work) -> tuple[float, float]:
    """The difference of all that was asked for, by how many there were and by how long one takes."""
    wholes = [work.seconds + work.saved_s for work in (old, new)]
    if not old.count or not new.count:
        return wholes[1] - wholes[0], 0.0
    means = wholes[0] / old.count, wholes[1] / new.count
    return (new.count - old.count) * sum(means) / 2, (old.count + new.count) / 2 * (means[1] - means[0])


def _named(what: str, seconds: dict[str, float], each: float, details: dict[str, str]) -> Share:
    largest = sorted(seconds, key=lambda name: (-abs(seconds[name]), name))[:NAMED]
    told = [f"{name}: {details[name]}" for name in largest if abs(seconds[name] * each) > 1e-9]
    return Share(what=what, seconds=math.fsum(seconds.values()) * each, detail="; ".join(told))


def _share(what: str, old: float, new: float, scale: float, words: str) -> Share:
    detail = f"{words}: {format_duration(old)} → {format_duration(new)}"
    return Share(what=what, seconds=(new - old) * scale, detail=detail)


def _count(side: _Side, name: str) -> float:
    return side.work.get(name, _NOTHING).count


def _each(side: _Side, name: str) -> float | None:
    work = side.work.get(name, _NOTHING)
    return (work.seconds + work.saved_s) / work.count if work.count else None


def _uncached(old: _Side, new: _Side, name: str) -> str:
    spared = any(side.work.get(name, _NOTHING).saved_s for side in (old, new))
    return ", if nothing were cached" if spared else ""


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _number(value: float) -> str:
    return format_count(round(value, 1))
