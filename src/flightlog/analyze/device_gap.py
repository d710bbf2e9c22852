"""Memory that is held and not used, and memory that is used and not ours."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import merge
from operator import itemgetter
from statistics import median

from flightlog.analyze.device_results import Fragmentation, GapBasis, HiddenGap
from flightlog.analyze.device_track import DRIVER, Point, Track
from flightlog.analyze.device_trend import steady_growth

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


def _counts(point: Point, basis: GapBasis | None) -> bool:
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
