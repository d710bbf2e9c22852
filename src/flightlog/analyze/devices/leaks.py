"""Leak suspicion (like phases compared with each other), and memory that is reserved but unused or not
ours.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from heapq import merge
from operator import itemgetter
from statistics import median

from msgspec import Struct

from flightlog.analyze.devices.results import Fragmentation, GapBasis, HiddenGap, Leak
from flightlog.analyze.devices.track import DRIVER, MemoryPoint, Phase, Repetition, Track
from flightlog.core.stats import rising_chance, theil_sen


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


PARTS = 48
"""Parts of a session whose medians tell whether the gap grows."""
GROWN_BYTES = 16 << 20


def fragmentation(track: Track) -> Fragmentation | None:
    """The share of reserved memory that is not allocated; None where either is unknown or nothing was
    reserved.
    """
    peak, unused = track.at_peak, track.unused
    if unused is None or peak is None or not peak.reserved or peak.allocated is None:
        return None
    shares = [
        (point.reserved - point.allocated) / point.reserved
        for point in track.points.rows
        if point.reserved and point.allocated is not None
    ]
    most, of, at = unused
    return Fragmentation(
        at_peak=(peak.reserved - peak.allocated) / peak.reserved,
        inactive_at_peak=None if peak.inactive is None else peak.inactive / peak.reserved,
        median=median(shares) if shares else None,
        most_bytes=most,
        most_share=most / of,
        most_at_ns=at,
        tight_events=track.tight,
        tight_first_ns=track.tight_first_ns,
    )


def hidden_gaps(tracks: Sequence[Track]) -> list[HiddenGap | None]:
    """The gap of each track; tracks of one host and one device by its UUID are taken together."""
    devices: dict[Hashable, list[int]] = {}
    for number, track in enumerate(tracks):
        key = (track.first.host, track.uuid) if track.uuid else number
        devices.setdefault(key, []).append(number)
    found: list[HiddenGap | None] = [None] * len(tracks)
    for numbers in devices.values():
        together = [tracks[number] for number in numbers]
        for number, gaps in zip(numbers, _gaps(together), strict=True):
            track, basis = tracks[number], _basis(tracks[number])
            if gaps and basis is not None:
                others = [other for other in together if other is not track]
                found[number] = _gap(gaps, basis, sorted({other.first.session_id for other in others}))
    return found


def _basis(track: Track) -> GapBasis | None:
    if track.first.device_id < 0:  # the host's memory: what others use of it is no matter of a device
        return None
    sources = {point.source for point in track.points.rows if point.used is not None}
    if DRIVER in sources:
        return "driver"
    return "assumed" if sources == {None} and track.beyond_allocator else None


def _gaps(tracks: Sequence[Track]) -> list[list[int]]:
    """Of each track, device use less what all of the tracks had reserved at that moment, where both are
    known.
    """
    reserved: list[int | None] = [0] * len(tracks)
    """By track: nothing before its first event and after its `stop`, unknown while it does not say."""
    gaps: list[list[int]] = [[] for _ in tracks]
    bases = [_basis(track) for track in tracks]
    rows = merge(
        *([(point.time_ns, n, point) for point in track.points.rows] for n, track in enumerate(tracks)),
        key=itemgetter(0, 1),
    )
    for time, number, point in rows:
        for n, track in enumerate(tracks):
            if track.stopped and track.end_ns < time:
                reserved[n] = 0
        reserved[number] = point.reserved
        if _counts(point, bases[number]):
            held = [value for value in reserved if value is not None]
            if len(held) == len(reserved):
                gaps[number].append((point.used or 0) - sum(held))
    return gaps


def _counts(point: MemoryPoint, basis: GapBasis | None) -> bool:
    wanted = DRIVER if basis == "driver" else None
    return basis is not None and point.used is not None and point.source == wanted


def _gap(gaps: list[int], basis: GapBasis, shared_with: list[str]) -> HiddenGap:
    parts = min(PARTS, len(gaps))
    edges = [len(gaps) * n // parts for n in range(parts + 1)]
    levels = [median(gaps[a:b]) for a, b in zip(edges, edges[1:], strict=False)]  # noqa: RUF007
    return HiddenGap(
        basis=basis,
        events=len(gaps),
        median_bytes=float(median(gaps)),
        max_bytes=max(gaps),
        growing=steady_growth(levels, floor_bytes=GROWN_BYTES) is not None,
        growth_bytes=float(levels[-1] - levels[0]),
        shared_with=shared_with,
    )


LEAST = 8
"""Levels that it takes, those of the warm-up included."""
WARM_UP = 2
"""Levels at the start that never count; of more than 20, a tenth."""
MOST = 192
"""Levels that are compared; of more, as many medians of neighbours."""
CHANCE = 0.005
"""A trend that levels in a random order show more often is none."""
STEADY = 0.4
"""Each third must rise at so much of the whole slope: steps and what levels off do not."""
DROP = 0.4
"""A fall between neighbours by so much of the whole growth is a reset: a saw tooth."""
NOISE = 3.0
"""The growth must be so many times the scatter around the line."""
FLOOR_BYTES = 1 << 20


class MemoryGrowth(Struct, frozen=True, kw_only=True):
    """A steady growth; `slope` is bytes a level as they were given, `chance` the one-sided Mann-Kendall
    probability.
    """

    slope: float
    total: float
    tested: int
    chance: float


def steady_growth(levels: Sequence[float], *, floor_bytes: float = FLOOR_BYTES) -> MemoryGrowth | None:
    """The growth of levels in their order, if it is steady; None for all others.

    It is if, without the warm-up, ranks rise (Mann-Kendall), each third rises at a good part of the whole
    slope (Theil-Sen), no single fall takes much of it back, the last levels lie above the first, and the
    growth is more than the scatter around the line and than `floor_bytes`.
    """
    if len(levels) < LEAST:
        return None
    settled = levels[max(WARM_UP, len(levels) // 10) :]
    part = math.ceil(len(settled) / MOST)
    values = [median(settled[n : n + part]) for n in range(0, len(settled) - part + 1, part)]
    count = len(values)
    if values[-1] <= values[0]:
        return None
    slope = theil_sen(values)
    total = slope * (count - 1)
    third = count // 3
    thirds = (values[:third], values[third : count - third], values[count - third :])
    if total < floor_bytes or total <= NOISE * _scatter(values, slope):
        return None
    if max(before - after for before, after in zip(values, values[1:], strict=False)) > DROP * total:  # noqa: RUF007
        return None
    if min(thirds[2]) <= median(thirds[0]) or median(thirds[2]) <= max(thirds[0]):
        return None
    if any(len(one) > 1 and theil_sen(one) < STEADY * slope for one in thirds):
        return None
    chance = rising_chance(values)
    if chance > CHANCE:
        return None
    return MemoryGrowth(slope=slope / part, total=total, tested=count, chance=chance)


def _scatter(values: Sequence[float], slope: float) -> float:
    """The median distance from the line, made comparable to a standard deviation."""
    rest = [value - slope * n for n, value in enumerate(values)]
    middle = median(rest)
    return 1.4826 * median(abs(value - middle) for value in rest)
