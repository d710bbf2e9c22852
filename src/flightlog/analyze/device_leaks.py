"""Leak suspicion: like phases compared with each other, never one moment with the next."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from flightlog.analyze.device_results import Leak
from flightlog.analyze.device_track import Phase, Repetition, Track
from flightlog.analyze.device_trend import steady_growth


def leaks(track: Track, headroom_bytes: int | None) -> list[Leak]:
    """Phases whose memory grew from repetition to repetition, the fastest growth first.

    Both the level at the end of each repetition and the lowest level within it must grow steadily: what is
    freed later in the phase is no leak. Memory outside of any phase is not judged.
    """
    found = [
        leak
        for name, phase in track.phases.items()
        if name is not None and (leak := _leak(track, name, phase, headroom_bytes)) is not None
    ]
    return sorted(found, key=lambda leak: (-leak.bytes_per_repetition, leak.phase))


def _leak(track: Track, name: str, phase: Phase, headroom_bytes: int | None) -> Leak | None:
    rows = [row for row in phase.levels.rows if row.low is not None and row.end is not None]
    stride = phase.levels.stride
    growths = [
        steady_growth([float(value) for value in levels if value is not None])
        for levels in ([row.low for row in rows], [row.end for row in rows])
    ]
    low, end = growths
    if low is None or end is None or track.level_of is None:
        return None
    slower = min(low, end, key=lambda growth: growth.slope)
    each = slower.slope / stride
    pace = _pace(rows, stride)
    full = None
    if headroom_bytes is not None and pace is not None:
        full = max(0, headroom_bytes) / each * pace
    return Leak(
        phase=name,
        counter=track.level_of,
        repetitions=phase.repetitions,
        tested=slower.tested,
        bytes_per_repetition=each,
        growth_bytes=slower.total,
        chance=max(low.chance, end.chance),
        repetition_s=pace,
        full_in_s=full,
    )


def _pace(rows: Sequence[Repetition], stride: int) -> float | None:
    gaps = [after.start_ns - before.start_ns for before, after in zip(rows, rows[1:], strict=False)]  # noqa: RUF007
    return median(gaps) / stride / 1e9 if gaps else None


def headroom(track: Track) -> int | None:
    """What is left at the end: to the limit of the framework's own pool where it has one, else on the
    device.
    """
    if track.limit is not None and track.last.allocated is not None:
        return track.limit - track.last.allocated
    if track.capacity is None:
        return None
    allocator = [value for value in (track.last.allocated, track.last.reserved) if value is not None]
    used = track.last.used if track.last.used is not None else max(allocator, default=None)
    return None if used is None else track.capacity - used
