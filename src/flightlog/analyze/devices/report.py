"""The report of device memory in a run, or in a recording of device telemetry: use, leaks, fragmentation and
advice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush, merge
from itertools import islice, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.devices.oom import Bundle, align, read_bundles, running_out, stragglers
from flightlog.analyze.devices.results import (
    CauseKind,
    DeviceReport,
    Fragmentation,
    GapBasis,
    GpuSamples,
    HiddenGap,
    Leak,
    MemoryCurve,
    OutOfMemory,
    PhaseUse,
    SessionUse,
    Straggler,
)
from flightlog.analyze.devices.track import (
    DRIVER,
    AnyDeviceEvent,
    MemoryPoint,
    NotInOrder,
    Phase,
    Track,
    phase_of,
)
from flightlog.analyze.limits import DeviceLimits
from flightlog.analyze.tallies import copied, grouped
from flightlog.core.errors import UsageError
from flightlog.core.stats import rising_chance, theil_sen
from flightlog.core.units import format_bytes, format_duration, format_percent
from flightlog.events.devices import DeviceMemory
from flightlog.events.devices.event import COMPLETED, INCOMPLETE, INTERRUPTED, RUNNING
from flightlog.events.schema import result_schema
from flightlog.store.devices.reading import TelemetryReading
from flightlog.store.tables.connection import path_text
from flightlog.store.tables.run_tables import open_tables, read_again

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


NOTHING = (
    "this run recorded no device memory; record it with `flightlog.track_device_memory()` "
    "or `flightlog run --device-memory`"
)


@read_again
def devices_of_run(run: Run) -> DeviceReport:
    """What the run's device events, GPU samples and bundles say; a `UsageError` where it has none of them."""
    with open_tables([run]) as tables:
        return devices_of_tables(tables)


def devices_of_tables(tables: RunTables) -> DeviceReport:
    """The same of a run whose tables are open.

    Memory does not grow with the number of events, unless they stand out of order.
    """
    [run] = tables.runs
    bundles, problems = read_bundles(run.path)
    tracks = _tracks(lambda: (one for one in run.events("devices") if isinstance(one, DeviceMemory)))
    if not tracks and not bundles:
        raise UsageError(f"{run.run_id}: {NOTHING}")
    gpus = [GpuSamples(**row) for row in tables.records(_GPUS)] if "resources" in tables.streams else []
    phases = _phases_by_spans(tables, tracks) if "spans" in tables.streams else {}
    unstopped = {"running": RUNNING, "crashed": INTERRUPTED, "interrupted": INTERRUPTED}
    status = unstopped.get(run.status, INCOMPLETE)
    return _report(run.run_id, tracks, {}, status, bundles, gpus, [*problems, *run.problems], phases)


def devices_of_path(path: str | Path) -> DeviceReport:
    """The same of a telemetry file, of any tool that writes the schema, or of a sink folder.

    A `UsageError` where it cannot be opened or holds no event.
    """
    readings: list[TelemetryReading] = []

    def events() -> Iterator[AnyDeviceEvent]:
        readings.append(TelemetryReading(path))
        yield from readings[-1]

    try:
        tracks = _tracks(events)
        reading = readings[-1]
        if not tracks:
            reading.fail_if_nothing_was_read()
            raise UsageError(f"{path} holds no device-memory events")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{path} cannot be read as device telemetry: {said}") from error
    statuses = {one.session_id: one.status for one in (reading.manifest.sessions if reading.manifest else [])}
    return _report(path_text(path), tracks, statuses, INCOMPLETE, [], [], reading.problems)


def only(report: DeviceReport, *, ranks: Collection[int] = (), phase: str | None = None) -> DeviceReport:
    """The report of these ranks and this phase alone; what was compared with the others stays compared.

    A `UsageError` where there is no such rank or phase.
    """
    sessions = [session for session in report.sessions if not ranks or session.rank in ranks]
    missing = set(ranks) - {session.rank for session in report.sessions}
    if missing:
        have = ", ".join(map(str, sorted({session.rank for session in report.sessions})))
        raise UsageError(f"there is no rank {min(missing)} in {report.source}; its ranks are {have}")
    if phase is not None:
        names = sorted({one.phase for session in sessions for one in session.phases if one.phase})
        if phase not in names:
            raise UsageError(
                f"there is no phase {phase!r} in {report.source}; its phases are {', '.join(names)}"
            )
        sessions = [
            replace(
                session,
                phases=[one for one in session.phases if one.phase == phase],
                leaks=[leak for leak in session.leaks if leak.phase == phase],
            )
            for session in sessions
        ]

    def is_kept(one: Straggler | OutOfMemory) -> bool:
        return (not ranks or one.rank in ranks) and phase in {None, one.phase}

    stragglers, out = (list(filter(is_kept, of)) for of in (report.stragglers, report.out_of_memory))
    kept = replace(report, sessions=sessions, stragglers=stragglers, out_of_memory=out)
    return replace(kept, advice=advice(kept))


def devices_schema() -> dict[str, Any]:
    """The JSON Schema of a device report."""
    return result_schema(DeviceReport, "Flightlog device-memory report")


def _tracks(events: Callable[[], Iterable[AnyDeviceEvent]]) -> list[Track]:
    """The events by session and device; read a second time, and sorted, where they are far out of order."""
    try:
        return _sorted_out(events())
    except NotInOrder:
        return _sorted_out(sorted(events(), key=attrgetter("timestamp_ns")))


def _sorted_out(events: Iterable[AnyDeviceEvent]) -> list[Track]:
    tracks: dict[tuple[object, ...], Track] = {}
    waiting: dict[tuple[object, ...], list[tuple[int, int, AnyDeviceEvent]]] = {}

    def release(key: tuple[object, ...]) -> None:
        _, _, event = heappop(waiting[key])
        track = tracks.get(key)
        if track is None:
            track = tracks[key] = Track(event)
        track.add(event)

    for number, event in enumerate(events):
        key = (event.session_id, event.device_id, event.rank, event.host, event.pid)
        heappush(waiting.setdefault(key, []), (event.timestamp_ns, number, event))
        if len(waiting[key]) > DeviceLimits.max_unordered_events:
            release(key)
    for of, left in waiting.items():
        while left:
            release(of)
        tracks[of].finish()
    return sorted(tracks.values(), key=_order)


def _order(track: Track) -> tuple[object, ...]:
    first = track.first
    return (first.rank, first.host, first.device_id, track.start_ns, first.session_id, first.pid)


def _report(
    source: str,
    tracks: list[Track],
    statuses: dict[str, str],
    unstopped: str,
    bundles: list[Bundle],
    gpus: list[GpuSamples],
    problems: list[str],
    by_spans: Mapping[Track, Mapping[str, SpanTimes]] | None = None,
) -> DeviceReport:
    gaps = hidden_gaps(tracks)
    sessions = [
        _session(
            track,
            statuses.get(track.first.session_id, COMPLETED if track.stopped else unstopped),
            gap,
            (by_spans or {}).get(track, {}),
        )
        for track, gap in zip(tracks, gaps, strict=True)
    ]
    alignment = align(sessions)
    report = DeviceReport(
        source=source,
        events=sum(track.events for track in tracks),
        sessions=sessions,
        gpus=gpus,
        alignment=alignment,
        stragglers=stragglers(sessions, alignment),
        out_of_memory=running_out(tracks, sessions, bundles, alignment),
        advice=[],
        problems=problems,
    )
    return replace(report, advice=advice(report))


_HEIGHTS = ("allocated", "reserved", "device_used")
"""The counters whose heights are kept, in their order."""


class SpanTimes(NamedTuple):
    """How often a phase was gone through, and its own time in seconds, by the spans of its name."""

    repetitions: int
    duration_s: float


def _phases_by_spans(tables: RunTables, tracks: Sequence[Track]) -> dict[Track, dict[str, SpanTimes]]:
    """By session, the phases that are spans of its process: samples miss what is shorter than they are
    apart.
    """
    found: dict[Track, dict[str, SpanTimes]] = {}
    tables.execute(_SPANS_BY_WRITER)
    for track in tracks:
        writer = getattr(track.first, "writer", None)
        rows = tables.rows(_SPANS_DURING, {"writer": writer, "start": track.start_ns, "until": track.end_ns})
        phases = grouped((phase_of(name) or "", times) for name, *times in rows)
        found[track] = {name: SpanTimes(*map(sum, zip(*of, strict=True))) for name, of in phases.items()}
    return found


_SPANS_BY_WRITER = """
CREATE OR REPLACE TEMP TABLE spans_by_writer AS
SELECT writer, name, own, began, stopped FROM span_intervals
JOIN (SELECT span_id, max(writer) AS writer FROM span_events GROUP BY span_id) USING (span_id)
WHERE own IS NOT NULL AND began IS NOT NULL
"""
_SPANS_DURING = """
SELECT name, count(*), sum(own) / 1e9 FROM spans_by_writer
WHERE writer = $writer AND name IS NOT NULL AND stopped >= $start AND began <= $until GROUP BY name
"""


def _session(
    track: Track, status: str, gap: HiddenGap | None, by_spans: Mapping[str, SpanTimes]
) -> SessionUse:
    first = track.first
    groups = track.heights.groups
    phases = [_phase(name, phase, by_spans.get(name or "")) for name, phase in track.phases.items()]
    named = "session_id rank local_rank world_size host pid device_id job_id collector sampling_interval_ms"
    return SessionUse(
        **{name: getattr(first, name) for name in named.split()},
        **{name: getattr(track, name) for name in ("events", "start_ns", "end_ns")},
        warnings=track.kinds["warning"],
        criticals=track.kinds["critical"],
        errors=track.kinds["error"],
        device_uuid=track.uuid,
        status=status,
        duration_s=(track.end_ns - track.start_ns) / 1e9,
        clock_offset_ns=track.offset_ns,
        capacity_bytes=track.capacity,
        peak_allocated=track.peaks[0],
        peak_reserved=track.peaks[1],
        peak_device_used=track.peaks[2],
        unknown=track.unseen,
        phases=sorted(phases, key=lambda one: (-_height(one), one.phase or "")),
        phases_left_out=len(track.phases_left_out),
        fragmentation=fragmentation(track),
        hidden=gap,
        leaks=leaks(track, headroom(track)),
        curve=MemoryCurve(
            after_s=[(at - track.start_ns) / 1e9 for at, _ in groups],
            **{f"{one}_bytes": [highest[n] for _, highest in groups] for n, one in enumerate(_HEIGHTS)},
        ),
    )


def _phase(name: str | None, phase: Phase, spans: SpanTimes | None) -> PhaseUse:
    peaks = {f"peak_{one}_bytes": peak for one, peak in zip(_HEIGHTS, phase.peaks, strict=True)}
    sampled = SpanTimes(phase.repetitions, phase.duration_ns / 1e9)
    times = sampled if spans is None or not name else spans
    return copied(PhaseUse, phase, phase=name, growth_bytes=phase.growth, **times._asdict(), **peaks)


def _height(phase: PhaseUse) -> int:
    known = (phase.peak_allocated_bytes, phase.peak_device_used_bytes)
    return next((value for value in known if value is not None), -1)


_GPUS = """
SELECT host, gpu_index, gpu_uuid, gpu_mig, count(*) AS samples,
    max(gpu_memory_used_bytes) AS memory_peak_bytes, max(gpu_memory_total_bytes) AS memory_total_bytes,
    sum(gpu_percent * covered_s) / nullif(sum(covered_s) FILTER (gpu_percent IS NOT NULL), 0)
        AS gpu_percent_mean,
    max(gpu_percent) AS gpu_percent_max,
    sum(gpu_power_w * covered_s) / nullif(sum(covered_s) FILTER (gpu_power_w IS NOT NULL), 0) AS power_mean_w,
    max(gpu_power_w) AS power_max_w
FROM (SELECT *, coalesce(interval_s, 1.0) AS covered_s FROM resources WHERE scope = 'gpu')
GROUP BY host, gpu_index, gpu_uuid, gpu_mig
ORDER BY coalesce(host, ''), coalesce(gpu_index, -1), coalesce(gpu_uuid, ''), coalesce(gpu_mig, '')
"""
"""Every GPU, or instance of one, that was sampled, by host and index; what the driver did not say is null. A
sample counts for the seconds that it covers; a first one covers one."""


def advice(report: DeviceReport) -> list[str]:
    """The advice, most urgent first; at least one sentence where there are sessions."""
    many = len({session.rank for session in report.sessions}) > 1
    lines = [
        line for out in report.out_of_memory[: DeviceLimits.max_advice_lines] for line in _ran_out(out, many)
    ]
    told = {out.session_id for out in report.out_of_memory if out.causes[0].kind == "leak"}
    highest = max(report.sessions, key=lambda one: one.highest.bytes if one.highest else -1, default=None)
    leaking = [session for session in report.sessions if session.session_id not in told]

    def each(sessions: Iterable[SessionUse], says: Callable[[SessionUse], str | None]) -> list[str]:
        """Sentences on sessions, which name the rank where there are several."""
        said = [(session.rank, text) for session in sessions if (text := says(session)) is not None]
        return [
            f"Rank {rank}: {text}" if many else text[0].upper() + text[1:]
            for rank, text in said[: DeviceLimits.max_advice_lines]
        ]

    lines += each(leaking, leak_text) + each(report.sessions, _tight) + each(report.sessions, _hidden)
    lines += islice(_stragglers(report), DeviceLimits.max_advice_lines)
    if highest is not None:
        lines += each([highest], _peak) or [_UNKNOWN]
    if report.sessions and not any(phase.phase for one in report.sessions for phase in one.phases):
        lines.append(
            "No phases were recorded, so leaks cannot be told from growth that is meant: "
            'put the steps of the program into `with flightlog.span("step"):`.'
        )
    return lines


_UNKNOWN = "The recording knows neither allocated memory nor the device's use."


def _place(session: SessionUse) -> str:
    return "the host's memory" if session.device_id < 0 else "the device"


def _in_words(phase: str | None) -> str:
    return "outside of any phase" if phase is None else f"in `{phase}`"


def _peak(session: SessionUse) -> str | None:
    peak, capacity = session.highest, session.capacity_bytes
    if peak is None:
        return None
    what = "in use on the device" if session.peak_allocated is None else "allocated"
    of = f" ({format_percent(peak.bytes / capacity)} of {_place(session)})" if capacity else ""
    unused = session.fragmentation
    lay = (
        f"; {format_percent(unused.at_peak)} of what the allocator held was unused at its own peak"
        if unused is not None and unused.at_peak > 0
        else ""
    )
    return (
        f"the peak of {format_bytes(peak.bytes)} {what}{of} was reached {format_duration(peak.after_s)} in,"
        f" {_in_words(peak.phase)}{lay}."
    )


def _ran_out(out: OutOfMemory, many: bool) -> list[str]:
    rank = f"Rank {out.rank} ran" if out.rank is not None and many else "The run ran"
    when = f" {format_duration(out.after_s)} in" if out.after_s is not None else ""
    asked = f", asking for {format_bytes(out.request.tried_bytes)}" if out.request.tried_bytes else ""
    where = " > ".join(out.span_path)
    place = f", in `{where}`" if where else f", {_in_words(out.phase)}" if out.phase else ""
    cause = out.causes[0]
    remedy = f" Try {REMEDIES[cause.kind]}." if REMEDIES[cause.kind] else ""
    lines = [f"{rank} out of memory{when}{place}{asked}. {cause.text}{remedy}"]
    if many and out.rises:
        first = out.rises[0]
        lines.append(
            f"Rank {first.rank} was the first to rise before that, by"
            f" {format_bytes(first.to_bytes - first.from_bytes)}, {format_duration(first.before_s)} before."
        )
    return lines


REMEDIES: dict[CauseKind, str] = {
    "impossible": "a smaller batch, or the same work in pieces",
    "leak": "finding what keeps tensors alive from one repetition to the next",
    "fragmentation": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or sizes that change less",
    "other_process": "another device, or ending what else uses this one (nvidia-smi names it)",
    "large_allocation": "a smaller batch, or the same work in pieces",
    "full": "a smaller batch, activation checkpointing or more devices",
    "unknown": "",
}
"""What to try, by the cause."""


def leak_text(session: SessionUse) -> str | None:
    """One sentence per session: a leak shows in every phase that comes after it."""
    if not session.leaks:
        return None
    leak = max(session.leaks, key=lambda one: one.growth_bytes)
    others = [f"`{one.phase}`" for one in session.leaks if one is not leak]
    also = f" (seen in {', '.join(others)}, too)" if others else ""
    full = (
        f"; at this pace {_place(session)} is full {format_duration(leak.full_in_s)} after the last event"
        if leak.full_in_s is not None
        else ""
    )
    return (
        f"memory may leak: {format_bytes(leak.bytes_per_repetition)} more with each `{leak.phase}`,"
        f" {format_bytes(leak.growth_bytes)} over {leak.tested} of them{also}{full}."
    )


def _tight(session: SessionUse) -> str | None:
    unused, capacity, held = session.fragmentation, session.capacity_bytes, session.peak_reserved
    if unused is None or not unused.tight_events or held is None or not capacity:
        return None
    return (
        f"the allocator held {format_percent(held.bytes / capacity)} of the device while"
        f" {format_bytes(unused.most_bytes)} lay unused: fragmentation may end the run before memory does."
        " Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    )


def _hidden(session: SessionUse) -> str | None:
    gap, capacity = session.hidden, session.capacity_bytes
    if gap is None or not (
        gap.growing or (capacity is not None and gap.max_bytes >= DeviceLimits.min_hidden_share * capacity)
    ):
        return None
    grew = f", and it grew by {format_bytes(gap.growth_bytes)}" if gap.growing else ""
    return (
        f"up to {format_bytes(gap.max_bytes)} on the device were not the allocator's"
        f" ({format_bytes(gap.median_bytes)} in the middle{grew}): contexts, libraries or other processes."
    )


def _stragglers(report: DeviceReport) -> Iterator[str]:
    """One line a rank and kind: the phase in which it shows most, and how many others there are."""
    for found in grouped(((one.rank, one.kind), one) for one in report.stragglers).values():
        one = max(found, key=lambda one: one.value - one.median)
        more = f" (and {len(found) - 1} more phase{'s' * (len(found) > 2)})" if len(found) > 1 else ""
        much = format_bytes if one.kind == "memory" else format_duration
        yield (
            f"Rank {one.rank} "
            + {
                "late": f"began `{one.phase}`{more} {much(one.value)} after the others.",
                "long": f"spent {much(one.value)} in `{one.phase}`{more}, the others {much(one.median)}.",
                "memory": f"held {much(one.value)} at most, the others {much(one.median)}.",
            }[one.kind]
        )


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
    low, end = (steady_growth([float(row[level] or 0) for row in rows]) for level in (1, 2))
    if low is None or end is None or track.level_of is None:
        return None
    slower = min(low, end, key=lambda growth: growth.slope)
    each = slower.slope / stride
    gaps = [after.start_ns - before.start_ns for before, after in pairwise(rows)]
    pace = median(gaps) / stride / 1e9 if gaps else None
    full = None if headroom_bytes is None or pace is None else max(0, headroom_bytes) / each * pace
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
    keys: list[Hashable] = [(one.first.host, one.uuid) if one.uuid else n for n, one in enumerate(tracks)]
    found: list[HiddenGap | None] = [None] * len(tracks)
    for numbers in grouped((key, number) for number, key in enumerate(keys)).values():
        together = [tracks[number] for number in numbers]
        for number, gaps in zip(numbers, _gaps(together), strict=True):
            track, basis = tracks[number], _basis(tracks[number])
            if gaps and basis is not None:
                others = {other.first.session_id for other in together if other is not track}
                found[number] = _gap(gaps, basis, sorted(others))
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
    parts = min(DeviceLimits.max_gap_parts, len(gaps))
    edges = [len(gaps) * n // parts for n in range(parts + 1)]
    levels = [median(gaps[a:b]) for a, b in pairwise(edges)]
    return HiddenGap(
        basis=basis,
        events=len(gaps),
        median_bytes=float(median(gaps)),
        max_bytes=max(gaps),
        growing=steady_growth(levels, floor_bytes=DeviceLimits.min_gap_growth_bytes) is not None,
        growth_bytes=float(levels[-1] - levels[0]),
        shared_with=shared_with,
    )


class MemoryGrowth(Struct, frozen=True, kw_only=True):
    """A steady growth; `slope` is bytes a level as they were given, `chance` the one-sided Mann-Kendall
    probability.
    """

    slope: float
    total: float
    tested: int
    chance: float


def steady_growth(
    levels: Sequence[float], *, floor_bytes: float = DeviceLimits.min_growth_bytes
) -> MemoryGrowth | None:
    """The growth of levels in their order, if it is steady; None for all others.

    It is if, without the warm-up, ranks rise (Mann-Kendall), each third rises at a good part of the whole
    slope (Theil-Sen), no single fall takes much of it back, the last levels lie above the first, and the
    growth is more than the scatter around the line and than `floor_bytes`.
    """
    if len(levels) < DeviceLimits.min_levels:
        return None
    settled = levels[max(DeviceLimits.warm_up_levels, len(levels) // 10) :]
    part = math.ceil(len(settled) / DeviceLimits.max_levels)
    values = [median(settled[n : n + part]) for n in range(0, len(settled) - part + 1, part)]
    count = len(values)
    if values[-1] <= values[0]:
        return None
    slope = theil_sen(values)
    total = slope * (count - 1)
    third = count // 3
    thirds = (values[:third], values[third : count - third], values[count - third :])
    if total < floor_bytes or total <= DeviceLimits.min_growth_of_scatter * _scatter(values, slope):
        return None
    if max(before - after for before, after in pairwise(values)) > DeviceLimits.max_drop_share * total:
        return None
    if min(thirds[2]) <= median(thirds[0]) or median(thirds[2]) <= max(thirds[0]):
        return None
    if any(len(one) > 1 and theil_sen(one) < DeviceLimits.min_slope_of_thirds * slope for one in thirds):
        return None
    chance = rising_chance(values)
    if chance > DeviceLimits.max_growth_chance:
        return None
    return MemoryGrowth(slope=slope / part, total=total, tested=count, chance=chance)


def _scatter(values: Sequence[float], slope: float) -> float:
    """The median distance from the line, made comparable to a standard deviation."""
    rest = [value - slope * n for n, value in enumerate(values)]
    middle = median(rest)
    return 1.4826 * median(abs(value - middle) for value in rest)
