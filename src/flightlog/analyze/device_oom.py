"""Running out of memory, explained: who, in what, why, and which rank rose first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from flightlog.analyze.device_bundles import Bundle
from flightlog.analyze.device_ranks import aligned_ns
from flightlog.analyze.device_requests import parse_request
from flightlog.analyze.device_results import (
    Alignment,
    Cause,
    CauseKind,
    Leak,
    OutOfMemory,
    Request,
    Rise,
    SessionUse,
)
from flightlog.analyze.device_track import ErrorSeen, Point, Track
from flightlog.units import format_bytes, format_percent

WINDOW_S = 300.0
"""How far before an error a rise is looked for."""
NEAR_LOW, ROSE = 0.1, 0.05
"""A rise begins where the level was last within a tenth of its lowest; it counts from 5 % of the device
on."""
SAME_S = 5.0
"""A bundle and an error event of the same session within that time are one."""
LARGE, OTHERS = 0.25, 0.05
"""Of the device: what one large allocation is, and from when on other processes matter."""


def running_out(
    tracks: Sequence[Track],
    sessions: Sequence[SessionUse],
    bundles: Sequence[Bundle],
    alignment: Alignment | None,
) -> list[OutOfMemory]:
    """Every time memory ran out, by time; `sessions` are those of the tracks, in the same order."""
    found: list[OutOfMemory] = []
    told = set()
    for bundle in bundles:
        at = _session_of(bundle, sessions)
        error = _error_of(bundle, tracks[at]) if at is not None else None
        if at is not None and error is not None:
            told.add((at, error.time_ns))
        found.append(_explained(bundle, error, at, sessions, tracks, alignment))
    for number, track in enumerate(tracks):
        for error in track.seen_errors:
            if error.is_oom and (number, error.time_ns) not in told:
                found.append(_explained(None, error, number, sessions, tracks, alignment))
    return sorted(found, key=lambda one: (one.at_ns is None, one.at_ns or 0, one.rank or 0))


def _session_of(bundle: Bundle, sessions: Sequence[SessionUse]) -> int | None:
    """The session a bundle is of: by its id, on its device; else by process or rank, where only one is it."""
    ways = (
        lambda one: one.session_id == bundle.session_id and one.device_id == bundle.device_id,
        lambda one: one.session_id == bundle.session_id,
        lambda one: bundle.pid is not None and (one.pid, one.host) == (bundle.pid, bundle.host),
        lambda one: bundle.rank is not None and one.rank == bundle.rank,
    )
    for way in ways:
        fitting = [number for number, one in enumerate(sessions) if way(one)]
        if len(fitting) == 1:
            return fitting[0]
    return None


def _error_of(bundle: Bundle, track: Track) -> ErrorSeen | None:
    near = [
        error
        for error in track.seen_errors
        if bundle.time_ns is None or abs(error.time_ns - bundle.time_ns) <= SAME_S * 1e9
    ]
    return min(near, key=lambda error: abs(error.time_ns - (bundle.time_ns or 0)), default=None)


def _explained(
    bundle: Bundle | None,
    error: ErrorSeen | None,
    number: int | None,
    sessions: Sequence[SessionUse],
    tracks: Sequence[Track],
    alignment: Alignment | None,
) -> OutOfMemory:
    session = sessions[number] if number is not None else None
    time_ns = bundle.time_ns if bundle and bundle.time_ns is not None else error.time_ns if error else None
    request = bundle.request if bundle else Request()
    if error is not None:
        request = _filled(_filled(request, parse_request(error.message)), _counted(error))
    at_ns = time_ns
    if time_ns is not None and session is not None:
        at_ns = aligned_ns(session, time_ns, alignment)
    leaks = session.leaks if session is not None else []
    return OutOfMemory(
        at_ns=at_ns,
        after_s=None if session is None or time_ns is None else (time_ns - session.start_ns) / 1e9,
        rank=session.rank if session else bundle.rank if bundle else None,
        host=session.host if session else bundle.host if bundle else None,
        pid=session.pid if session else bundle.pid if bundle else None,
        device_id=session.device_id if session else bundle.device_id if bundle else None,
        session_id=session.session_id if session else bundle.session_id if bundle else None,
        phase=(bundle.phase if bundle else None) or (error.phase if error else None),
        span_path=(bundle.span_path if bundle else []) or (error.span_path if error else []),
        bundle=bundle.folder if bundle else None,
        message=(bundle.message if bundle else None) or (error.message if error else None),
        request=request,
        causes=causes(request, leaks, session.capacity_bytes if session else None),
        rises=[] if at_ns is None else rises(at_ns, tracks, sessions, alignment),
    )


def _filled(request: Request, other: Request) -> Request:
    """The request, with the other's figures where it has none."""
    missing = {name: value for name, value in structs.asdict(other).items() if getattr(request, name) is None}
    return structs.replace(request, **missing)


def _counted(error: ErrorSeen) -> Request:
    """What the counters of the error's event say."""
    seen = error.counters
    unallocated = (
        None if seen.reserved is None or seen.allocated is None else max(0, seen.reserved - seen.allocated)
    )
    return Request(
        free_bytes=seen.free,
        total_bytes=seen.total,
        allocated_bytes=seen.allocated,
        unallocated_bytes=unallocated,
    )


def causes(request: Request, leaks: Sequence[Leak], capacity: int | None) -> list[Cause]:
    """What explains that an allocation failed, the most likely first; there is always one."""
    tried, free, unused = request.tried_bytes, request.free_bytes, request.unallocated_bytes
    total = request.total_bytes if request.total_bytes is not None else capacity
    others = request.other_processes_bytes
    if others is None and None not in (total, free, request.process_bytes):
        others = max(0, (total or 0) - (free or 0) - (request.process_bytes or 0))
    short = None if tried is None else max(1, tried - (free or 0))
    found: list[Cause] = []

    def add(kind: CauseKind, text: str) -> None:
        found.append(Cause(kind=kind, text=text))

    asked = format_bytes(tried)
    if tried is not None and total is not None and tried > total:
        add(
            "impossible",
            f"{asked} were asked for at once, more than the {format_bytes(total)} of the device.",
        )
    leak = max(leaks, key=lambda one: one.growth_bytes, default=None)
    if leak is not None and (short is None or leak.growth_bytes >= short):
        add(
            "leak",
            f"Memory grew by {format_bytes(leak.bytes_per_repetition)} with each `{leak.phase}`,"
            f" {format_bytes(leak.growth_bytes)} over {leak.tested} of them: a leak used it up.",
        )
    if tried is not None and short is not None and unused is not None and unused >= short:
        add(
            "fragmentation",
            f"{format_bytes(unused)} were reserved but unused, and {asked} did not fit into any piece:"
            " the memory was fragmented.",
        )
    if short is not None and total and others is not None and others >= max(short, OTHERS * total):
        add(
            "other_process",
            f"{format_bytes(others)} of the device were in use by others than this process.",
        )
    if tried is not None and total and LARGE * total <= tried <= total:
        add(
            "large_allocation",
            f"One allocation of {asked} was {format_percent(tried / total)} of the device.",
        )
    if not found and tried is not None and total:
        used = request.allocated_bytes
        held = f"{format_bytes(used)} were in use" if used is not None else "The device was full"
        add("full", f"{held} and {asked} more were needed, on a device of {format_bytes(total)}.")
    if not found:
        add("unknown", "The recording does not say how much was asked for.")
    return found


def rises(
    at_ns: int, tracks: Sequence[Track], sessions: Sequence[SessionUse], alignment: Alignment | None
) -> list[Rise]:
    """The ranks whose memory rose before a moment of the common time line, the first to rise first."""
    found = []
    for track, session in zip(tracks, sessions, strict=True):
        shift = session.start_ns - aligned_ns(session, session.start_ns, alignment)
        local = at_ns + shift
        rise = _rise(track.before(local, WINDOW_S * 1e9), session, local)
        if rise is not None:
            found.append(rise)
    return sorted(found, key=lambda rise: (-rise.before_s, rise.rank))


def _rise(points: Sequence[Point], session: SessionUse, local_ns: int) -> Rise | None:
    whole = session.peak_allocated is None
    levels = [
        (point.time_ns, level)
        for point in points
        if (level := point.used if whole else point.allocated) is not None
    ]
    if len(levels) < 2:
        return None
    low, high = min(level for _, level in levels), max(level for _, level in levels)
    begun = max(n for n, (_, level) in enumerate(levels) if level <= low + NEAR_LOW * (high - low))
    top = max(level for _, level in levels[begun:])
    time, start = levels[begun]
    if top - start < ROSE * (session.capacity_bytes or high) or top == start:
        return None
    return Rise(
        rank=session.rank,
        session_id=session.session_id,
        from_bytes=start,
        to_bytes=top,
        before_s=(local_ns - time) / 1e9,
    )
