"""Out of memory on a device, explained: which rank, in which phase, why, and which rank rose first. Read from
the bundles `oom/<n>-<time>/bundle.json`, the messages of frameworks, and ranks on one time line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from flightlog.analyze.devices.results import (
    Alignment,
    CauseKind,
    Leak,
    OomCause,
    OutOfMemory,
    Rise,
    SessionUse,
    Straggler,
    StragglerKind,
)
from flightlog.analyze.devices.track import (
    ErrorSeen,
    MemoryPoint,
    Track,
    is_oom,
    path_in,
    phase_of,
    text_in,
    whole_in,
)
from flightlog.analyze.limits import DeviceLimits
from flightlog.core.units import format_bytes, format_percent
from flightlog.events.devices.oom_message import Request, parse_request
from flightlog.store import layout
from flightlog.store.liveness import unix_time
from flightlog.store.read.files import read_regular


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
        if bundle.time_ns is None or abs(error.time_ns - bundle.time_ns) <= DeviceLimits.same_error_s * 1e9
    ]
    return min(near, key=lambda error: abs(error.time_ns - (bundle.time_ns or 0)), default=None)


_WHO = ("rank", "host", "pid", "device_id", "session_id")


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
        seen = error.counters
        counted = _counted(seen.allocated, seen.reserved, seen.free, seen.total)
        request = _first_known(request, parse_request(error.message), counted)
    at_ns = time_ns
    if time_ns is not None and session is not None:
        at_ns = aligned_ns(session, time_ns, alignment)
    leaks = session.leaks if session is not None else []
    return OutOfMemory(
        at_ns=at_ns,
        after_s=None if session is None or time_ns is None else (time_ns - session.start_ns) / 1e9,
        **{name: getattr(session or bundle, name, None) for name in _WHO},
        phase=(bundle.phase if bundle else None) or (error.phase if error else None),
        span_path=(bundle.span_path if bundle else []) or (error.span_path if error else []),
        bundle=bundle.folder if bundle else None,
        message=(bundle.message if bundle else None) or (error.message if error else None),
        request=request,
        causes=causes(request, leaks, session.capacity_bytes if session else None),
        rises=[] if at_ns is None else rises(at_ns, tracks, sessions, alignment),
    )


def _first_known(*requests: Request) -> Request:
    """Each figure as the first of these knows it."""
    figures = {
        name: next((known for one in requests if (known := getattr(one, name)) is not None), None)
        for name in Request.__struct_fields__
    }
    return Request(**figures)


def _counted(allocated: int | None, reserved: int | None, free: int | None, total: int | None) -> Request:
    """What counters say."""
    unallocated = None if reserved is None or allocated is None else max(0, reserved - allocated)
    return Request(
        free_bytes=free, total_bytes=total, allocated_bytes=allocated, unallocated_bytes=unallocated
    )


def causes(request: Request, leaks: Sequence[Leak], capacity: int | None) -> list[OomCause]:
    """What explains that an allocation failed, the most likely first; there is always one."""
    tried, free, unused = request.tried_bytes, request.free_bytes, request.unallocated_bytes
    total = request.total_bytes if request.total_bytes is not None else capacity
    others = request.other_processes_bytes
    if others is None and None not in (total, free, request.process_bytes):
        others = max(0, (total or 0) - (free or 0) - (request.process_bytes or 0))
    short = None if tried is None else max(1, tried - (free or 0))
    found: list[OomCause] = []

    def add(kind: CauseKind, text: str) -> None:
        found.append(OomCause(kind=kind, text=text))

    asked = format_bytes(tried)
    if tried is not None and total is not None and tried > total:
        there = format_bytes(total)
        add("impossible", f"{asked} were asked for at once, more than the {there} of the device.")
    leak = max(leaks, key=lambda one: one.growth_bytes, default=None)
    if leak is not None and (short is None or leak.growth_bytes >= short):
        add(
            "leak",
            f"Memory grew by {format_bytes(leak.bytes_per_repetition)} with each `{leak.phase}`,"
            f" {format_bytes(leak.growth_bytes)} over {leak.tested} of them: a leak used it up.",
        )
    if tried is not None and unused is not None and unused >= tried:
        add(
            "fragmentation",
            f"{format_bytes(unused)} were reserved but unused, and {asked} did not fit into any piece:"
            " the memory was fragmented.",
        )
    least = max(short or 0, DeviceLimits.min_others_share * (total or 0))
    if short is not None and total and others is not None and others >= least:
        add("other_process", f"{format_bytes(others)} of the device were in use by others than this process.")
    if tried is not None and total and DeviceLimits.large_allocation_share * total <= tried <= total:
        share = format_percent(tried / total)
        add("large_allocation", f"One allocation of {asked} was {share} of the device.")
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
        local = at_ns + session.start_ns - aligned_ns(session, session.start_ns, alignment)
        found.append(_rise(track.before(local, DeviceLimits.rise_window_s * 1e9), session, local))
    return sorted(filter(None, found), key=lambda rise: (-rise.before_s, rise.rank))


def _rise(points: Sequence[MemoryPoint], session: SessionUse, local_ns: int) -> Rise | None:
    whole = session.peak_allocated is None
    levels = [
        (point.time_ns, level)
        for point in points
        if (level := point.used if whole else point.allocated) is not None
    ]
    if len(levels) < 2:
        return None
    low, high = min(level for _, level in levels), max(level for _, level in levels)
    start_at_most = low + DeviceLimits.rise_start_share * (high - low)
    begun = max(n for n, (_, level) in enumerate(levels) if level <= start_at_most)
    top = max(level for _, level in levels[begun:])
    time, start = levels[begun]
    if top - start < DeviceLimits.min_rise_share * (session.capacity_bytes or high) or top == start:
        return None
    return Rise(
        rank=session.rank,
        session_id=session.session_id,
        from_bytes=start,
        to_bytes=top,
        before_s=(local_ns - time) / 1e9,
    )


BUNDLE = "bundle.json"


class Bundle(NamedTuple):
    """What a bundle says; None is unknown."""

    folder: str
    time_ns: int | None
    session_id: str | None
    rank: int | None
    host: str | None
    pid: int | None
    device_id: int | None
    phase: str | None
    span_path: list[str]
    message: str | None
    request: Request


def read_bundles(run: Path) -> tuple[list[Bundle], list[str]]:
    """The bundles of a run in the order of their names, and sentences on those that cannot be read."""
    found, problems = [], []
    for file in sorted((run / layout.OOM).glob(f"*/{BUNDLE}"), key=lambda file: _number(file.parent.name)):
        name = f"{layout.OOM}/{file.parent.name}"
        try:
            document = msgspec.json.decode(read_regular(file, DeviceLimits.max_bundle_bytes))
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{name}/{BUNDLE} cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        if not isinstance(document, dict):
            problems.append(f"{name}/{BUNDLE} cannot be read: it holds no JSON object")
        # A bundle may also have been asked for.
        elif document.get("oom") is not False or is_oom(*(text_in(document, key) for key in _SAID)):
            found.append(_bundle(name, document))
    return found, problems


_SAID = ("message", "error_type")


def _number(name: str) -> tuple[int, str]:
    first = name.partition("-")[0]
    return (int(first) if first.isdecimal() else 1 << 62, name)


def _bundle(folder: str, said: Mapping[str, Any]) -> Bundle:
    message = text_in(said, "message")
    who: dict[str, Any] = {name: text_in(said, name) for name in ("session_id", "host")}
    who |= {name: whole_in(said, name) for name in ("rank", "pid", "device_id")}
    path = path_in(said)
    context = text_in(said, "context") or (path[-1] if path else None)
    return Bundle(
        folder=folder,
        time_ns=_time(said),
        **who,
        phase=phase_of(context),
        span_path=path,
        message=message,
        request=_request(said, message),
    )


def _request(said: Mapping[str, Any], message: str | None) -> Request:
    """The allocator's exact figures where it told them, then the message's, and the bundle's own for what is
    left.
    """
    exact = Request(tried_bytes=whole_in(said, "requested_bytes"), free_bytes=whole_in(said, "free_bytes"))
    parts = {name: part for name in ("allocator", "device") if isinstance(part := said.get(name), Mapping)}
    counted = _counted(
        *(whole_in(parts.get("allocator", {}), name) for name in ("allocated_bytes", "reserved_bytes")),
        *(whole_in(parts.get("device", {}), name) for name in ("free_bytes", "total_bytes")),
    )
    return _first_known(exact, parse_request(message), counted)


def _time(said: Mapping[str, Any]) -> int | None:
    exact, seconds = whole_in(said, "time_ns"), unix_time(text_in(said, "timestamp"))
    return exact if exact is not None or seconds is None else round(seconds * 1e6) * 1000


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
    starts: defaultdict[str, dict[int, float]] = defaultdict(dict)
    lasted: defaultdict[str, dict[int, float]] = defaultdict(dict)
    memory: dict[int, float] = {}
    for session in sessions:
        rank = session.rank
        for phase in session.phases:
            if phase.phase is not None:
                first = aligned_ns(session, phase.first_ns, alignment) / 1e9
                began, took = starts[phase.phase], lasted[phase.phase]
                began[rank] = min(first, began.get(rank, first))
                took[rank] = max(phase.duration_s, took.get(rank, 0.0))
        if session.highest is not None:
            memory[rank] = max(float(session.highest.bytes), memory.get(rank, 0.0))
    step = 2 * max((session.sampling_interval_ms for session in sessions), default=0) / 1e3
    least = max(DeviceLimits.min_straggler_s, step)
    kinds: tuple[tuple[StragglerKind, Mapping[Any, Mapping[int, float]], float, float], ...] = (
        ("late", starts, 1.0, least),
        ("long", lasted, DeviceLimits.straggler_duration_ratio, least),
        ("memory", {None: memory}, DeviceLimits.straggler_memory_ratio, DeviceLimits.min_straggler_bytes),
    )
    found = []
    for kind, by_phase, times, difference in kinds:
        for phase_name, values in by_phase.items():
            for rank, middle in _far(values, times, difference):
                since = middle if kind == "late" else 0.0
                value, usual = values[rank] - since, middle - since
                found.append(Straggler(rank=rank, kind=kind, phase=phase_name, value=value, median=usual))
    return sorted(found, key=lambda one: (one.rank, one.kind, one.phase or ""))


def _far(values: Mapping[int, float], times: float, least: float) -> list[tuple[int, float]]:
    """Ranks far above the median, with the median."""
    if len(values) < DeviceLimits.min_ranks:
        return []
    middle = median(values.values())
    scatter = median(abs(value - middle) for value in values.values())
    return [
        (rank, middle)
        for rank, value in values.items()
        if value - middle > max(least, DeviceLimits.straggler_scatter_ratio * scatter)
        and (times == 1.0 or value > times * middle)
    ]
