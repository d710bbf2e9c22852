"""Ranks on one time line, and those that stand out among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from flightlog.analyze.device_results import Alignment, SessionUse, Straggler, StragglerKind

RANKS = 3
"""With fewer there is no telling who is odd."""
LONGER, MORE = 1.25, 1.25
"""A rank stands out with so many times the median …"""
SCATTERS = 5.0
"""… and so many times the usual distance from it."""
LEAST_S, LEAST_BYTES = 0.1, 64 << 20
"""Less than that is never worth a word."""


def align(sessions: Sequence[SessionUse]) -> Alignment | None:
    """By what ranks are compared: measured clock offsets where all have one, else the hosts' clocks.

    Rank 0 is what offsets are measured against, and needs none. None for a single rank.
    """
    ranks = {session.rank for session in sessions}
    if len(ranks) < 2:
        return None
    measured = {session.rank for session in sessions if session.clock_offset_ns is not None}
    without = sorted(ranks - measured - {0}) if measured else []
    return Alignment(
        basis="clock_offset" if measured and not without else "wall_clock",
        hosts=len({session.host for session in sessions}),
        unaligned=without,
    )


def aligned_ns(session: SessionUse, time_ns: int, alignment: Alignment | None) -> int:
    """A moment of a session on the time line of all."""
    shift = alignment is not None and alignment.basis == "clock_offset"
    return time_ns - ((session.clock_offset_ns or 0) if shift else 0)


def stragglers(sessions: Sequence[SessionUse], alignment: Alignment | None) -> list[Straggler]:
    """Ranks that stand out: late into a phase, long in it, or with far more memory than the others."""
    starts: dict[str, dict[int, float]] = {}
    lasted: dict[str, dict[int, float]] = {}
    memory: dict[int, float] = {}
    for session in sessions:
        for phase in session.phases:
            if phase.phase is not None:
                first = aligned_ns(session, phase.first_ns, alignment) / 1e9
                began = starts.setdefault(phase.phase, {})
                began[session.rank] = min(first, began.get(session.rank, first))
                took = lasted.setdefault(phase.phase, {})
                took[session.rank] = max(phase.duration_s, took.get(session.rank, 0.0))
        peak = session.peak_allocated or session.peak_device_used
        if peak is not None:
            memory[session.rank] = max(float(peak.bytes), memory.get(session.rank, 0.0))
    step = 2 * max((session.sampling_interval_ms for session in sessions), default=0) / 1e3
    least = max(LEAST_S, step)
    found = [
        Straggler(rank=rank, kind="late", phase=name, value=values[rank] - middle, median=0.0)
        for name, values in starts.items()
        for rank, middle in _far(values, 1.0, least)
    ]
    found += _ratios("long", lasted, LONGER, least)
    found += [
        Straggler(rank=rank, kind="memory", phase=None, value=memory[rank], median=middle)
        for rank, middle in _far(memory, MORE, LEAST_BYTES)
    ]
    return sorted(found, key=lambda one: (one.rank, one.kind, one.phase or ""))


def _ratios(
    kind: StragglerKind, by_phase: Mapping[str, Mapping[int, float]], times: float, least: float
) -> list[Straggler]:
    return [
        Straggler(rank=rank, kind=kind, phase=name, value=values[rank], median=middle)
        for name, values in by_phase.items()
        for rank, middle in _far(values, times, least)
    ]


def _far(values: Mapping[int, float], times: float, least: float) -> list[tuple[int, float]]:
    """Ranks far above the median, with the median."""
    if len(values) < RANKS:
        return []
    middle = median(values.values())
    scatter = median(abs(value - middle) for value in values.values())
    return [
        (rank, middle)
        for rank, value in values.items()
        if value - middle > max(least, SCATTERS * scatter) and (times == 1.0 or value > times * middle)
    ]
