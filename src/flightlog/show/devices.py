"""The device memory report as text or Markdown: advice, a plot per rank, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate

from flightlog.analyze.devices.results import DeviceReport, MemoryCurve, OutOfMemory, SessionUse, Straggler
from flightlog.core.text import first_line, plural
from flightlog.core.units import format_bytes, format_duration
from flightlog.events.devices.oom_message import Request
from flightlog.show.document import (
    Item,
    Items,
    Remarks,
    Section,
    Verbatim,
    document_text,
    markdown_text,
    table_block,
    table_section,
)
from flightlog.show.figures.style import bytes_scale
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import percent_text
from flightlog.show.plot import LevelLine, at_even_times, plot
from flightlog.show.report import gpu_place
from flightlog.show.terminal import Ink, clean, wrap

_COUNTERS = {
    "allocator_allocated": "allocated memory",
    "allocator_reserved": "reserved memory",
    "allocator_inactive": "inactive memory",
    "device_used": "the device's use",
    "device_free": "free memory of the device",
    "device_total": "the device's capacity",
}


def devices_text(report: DeviceReport, *, width: int = 100, color: bool = False) -> str:
    """The text for a terminal of `width` columns; ends in a newline."""
    first, peaks, *after = _sections(report, width - 6)
    plots = (Section("", blocks=[Verbatim(one)]) for one in _plots(report.sessions, width, Ink(color)))
    return document_text([first, peaks, *plots, *after], width=width, color=color, title=_title(report))


def devices_markdown(report: DeviceReport) -> str:
    """The same as Markdown, without the plots."""
    return markdown_text(_title(report), _sections(report, 10_000))


def _title(report: DeviceReport) -> str:
    ranks = len({session.rank for session in report.sessions})
    of = plural(ranks, "rank") if ranks > 1 else plural(len(report.sessions), "session")
    return f"Device memory · {clean(report.source)} · {of} · {plural(report.events, 'event')}"


def _sections(report: DeviceReport, room: int) -> list[Section]:
    """All sections; those after the second come behind the plots. Long lines are wrapped to the room."""
    return [
        Section("What matters", "", [Remarks(report.advice)]),
        _peaks(report),
        _by_phase(report),
        _leaks(report),
        _ran_out(report.out_of_memory, room),
        _stragglers(report),
        _gpus(report),
        _unknown(report),
        Section("Not read", "", [Remarks(report.problems)]),
    ]


def _peaks(report: DeviceReport) -> Section:
    hosts = len({one.host for one in report.sessions}) > 1
    ended = all(one.status == "completed" for one in report.sessions)

    def gap(one: SessionUse) -> str:
        sure = one.hidden is None or one.hidden.basis == "driver"
        return f"{format_bytes(one.hidden.median_bytes if one.hidden else None)}{'' if sure else '?'}"

    return table_section(
        "Peaks",
        report.sessions,
        "rank Rank, host <Host, device Device, status <Status, peak_allocated.bytes:_bytes! Allocated, "
        "peak_reserved.bytes:_bytes! Reserved, peak_device_used.bytes:_bytes! In use, "
        "capacity_bytes! Capacity, after After, fragmentation.at_peak:share! Unused, gap Not ours",
        dispensable=("Host", "Status", "After", "Unused"),
        rank=lambda one: str(one.rank),
        host=lambda one: one.host if hosts else "",
        device=lambda one: "host" if one.device_id < 0 else str(one.device_id),
        status=lambda one: "" if ended else one.status,
        after=lambda one: format_duration(
            highest.after_s if (highest := one.peak_allocated or one.peak_device_used) else None
        ),
        gap=gap,
    )


def _by_phase(report: DeviceReport) -> Section:
    many = len(report.sessions) > 1
    phases = [(one.rank, phase) for one in report.sessions for phase in one.phases]
    left_out = (
        len(phases) - TextLimits.max_device_phases + sum(one.phases_left_out for one in report.sessions)
    )
    more = f"and {plural(left_out, 'more phase')}: see --format json, --rank and --phase"
    return table_section(
        "Phases",
        phases[: TextLimits.max_device_phases],
        "phase Phase, rank Rank, repetitions Times, duration_s Time, peak_allocated_bytes! Peak allocated, "
        "peak_device_used_bytes! Peak in use, growth Growth each time",
        more=more if left_out > 0 else "",
        dispensable=("Peak in use",),
        phase=lambda one: "(outside of any)" if one[1].phase is None else one[1].phase,
        rank=lambda one: str(one[0]) if many else "",
        growth=lambda one: _signed(one[1].growth_bytes, one[1].repetitions),
    )


def _signed(value: float | None, times: int = 1) -> str:
    """Bytes each time, with a plus where they are more."""
    return f"{'+' if value is not None and value > 0 else ''}{format_bytes(value and value / times)}"


def _leaks(report: DeviceReport) -> Section:
    return table_section(
        "Leak suspected",
        [(one.rank, leak) for one in report.sessions for leak in one.leaks],
        "phase Phase, key Rank, repetitions Times, bytes_per_repetition:_bytes Each time, grew Grew, "
        "tested Over, chance By chance, full_in_s! Full in",
        dispensable=("Over", "By chance"),
        grew=lambda one: _signed(one[1].growth_bytes),
        chance=lambda one: (
            "< 1 in 1,000,000" if one[1].chance < 1e-6 else f"1 in {round(1 / one[1].chance):,}"
        ),
    )


def _ran_out(found: Sequence[OutOfMemory], room: int) -> Section:
    items = []
    for out in found[: TextLimits.max_device_errors]:
        who = f"rank {out.rank}" if out.rank is not None else "a process"
        where = " > ".join(out.span_path) or out.phase or ""
        rose = "; ".join(
            f"rank {rise.rank} by {format_bytes(rise.to_bytes - rise.from_bytes)}, "
            f"{format_duration(rise.before_s)} before"
            for rise in out.rises[:4]
        )
        below = [
            f"at {_moment(out.at_ns)}",
            _figures(out.request),
            *(cause.text for cause in out.causes),
            f"Rose before: {rose}" if rose else "",
            clean(first_line(out.message)),
            f"Bundle: {clean(out.bundle)}" if out.bundle else "",
        ]
        lines = [line for text in below if text for line in wrap(clean(text), room)]
        items.append(Item(f"{who}{f' in {where}' if where else ''}", lines, style="bad"))
    left = len(found) - len(items)
    more = f"and {plural(left, 'more time', 'more times')}: see --format json" if left else ""
    return Section("Out of memory", "", [Items(items, more)])


def _figures(asked: Request) -> str:
    named = (
        (asked.tried_bytes, "requested"),
        (asked.free_bytes, "free"),
        (asked.total_bytes, "in all"),
        (asked.allocated_bytes, "allocated"),
        (asked.unallocated_bytes, "reserved but unused"),
        (asked.process_bytes, "in use by the process"),
        (asked.other_processes_bytes, "in use by others"),
    )
    return ", ".join(f"{format_bytes(value)} {what}" for value, what in named if value is not None)


def _moment(time_ns: int | None) -> str:
    if time_ns is None:
        return "an unknown time"
    try:
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ns % 1_000_000_000 // 1_000_000:03d} UTC"


def _stragglers(report: DeviceReport) -> Section:
    alignment = report.alignment
    if alignment is None:
        return Section("Ranks")
    by = "Ranks are compared by their measured clock offsets."
    if alignment.basis == "wall_clock":
        by = "Ranks are compared by the clock of their host."
        if alignment.hosts > 1:
            by = f"Ranks are compared by the clocks of {alignment.hosts} hosts, as they stand."
        if alignment.unaligned:
            without = ", ".join(map(str, alignment.unaligned[:8]))
            by += f" Offsets were measured, but not for rank {without}: call tracker.align() in all of them."
        elif alignment.hosts > 1:
            by += " `tracker.align()` in every rank measures how far these are apart."
    table = table_block(
        report.stragglers,
        "rank Rank, kind <What, phase <Phase, value By or with, median Median",
        rank=lambda one: str(one.rank),
        kind=lambda one: {"late": "began late", "long": "took long", "memory": "held more"}[one.kind],
        value=lambda one: _amount(one, one.value),
        median=lambda one: "" if one.kind == "late" else _amount(one, one.median),
    )
    by = by if report.stragglers else f"{by} None of them stands out."
    return Section("Ranks", "", [Remarks([by]), table])


def _amount(one: Straggler, value: float) -> str:
    return format_bytes(value) if one.kind == "memory" else format_duration(value)


def _gpus(report: DeviceReport) -> Section:
    return table_section(
        "GPUs, by the driver",
        report.gpus,
        "gpu GPU, samples Samples, memory_peak_bytes! Peak in use, memory_total_bytes! Capacity, busy Busy, "
        "busiest At most, power_mean_w! Power, power_max_w! At most",
        gpu=lambda gpu: f"{clean(gpu.host or 'unknown')}:{gpu_place(gpu.gpu_index, gpu.gpu_mig)}",
        busy=lambda gpu: percent_text(gpu.gpu_percent_mean),
        busiest=lambda gpu: percent_text(gpu.gpu_percent_max),
    )


def _unknown(report: DeviceReport) -> Section:
    lines: dict[str, list[str]] = {}
    for one in report.sessions:
        what = ", ".join(_COUNTERS[name] for name in one.unknown)
        if what:
            lines.setdefault(f"{clean(one.collector)} does not report {what}", []).append(str(one.rank))
    remarks = [f"{text} (rank {', '.join(sorted(set(ranks), key=int))})." for text, ranks in lines.items()]
    if any(one.hidden is not None and one.hidden.basis == "assumed" for one in report.sessions):
        remarks.append(
            '"Not ours" with a "?": the recording does not say that a driver counted the device\'s use.'
        )
    return Section("Unknown", "", [Remarks(remarks)])


def _plots(sessions: Sequence[SessionUse], width: int, ink: Ink) -> list[str]:
    several = [one for one in sessions if one.events > 1]
    shown, more = several[: TextLimits.max_device_plots], len(several) - TextLimits.max_device_plots
    height = TextLimits.device_plot_height if len(shown) < 3 else TextLimits.low_device_plot_height
    found = [
        "\n".join([ink("head", title), *(f"  {row}" for row in rows)])
        for title, *rows in (_plot(one, width - 2, height) for one in shown)
        if rows
    ]
    if more > 0:
        found.append(f"… and {plural(more, 'more session')}: name some with --rank")
    return found


def _plot(session: SessionUse, width: int, height: int) -> list[str]:
    """A title and the rows of the plot; only a title where nothing is known."""
    curve = session.curve
    series = {
        "allocated": curve.allocated_bytes,
        "in use": curve.device_used_bytes,
        "reserved": curve.reserved_bytes,
    }
    what = next((name for name, found in series.items() if any(v is not None for v in found)), "")
    if not what:
        return [what]
    levels = [
        level
        for level in over_time(curve, series[what], session.duration_s, TextLimits.device_plot_steps)
        for _ in range(4)
    ]
    scale = bytes_scale(max(levels))
    scaled = scale.of(levels)
    # From 0, so that a small change looks small, to the peak, however short that was.
    peak = scaled.index(max(scaled))
    ends = [LevelLine(0, 0, 0.0), LevelLine(peak, peak, scaled[peak])]
    rows = plot(scaled, width=width, height=height, unit=scale.suffix.replace("bytes", "B"), lines=ends)
    where = "host memory" if session.device_id < 0 else f"device {session.device_id}"
    title = f"Rank {session.rank}, {where}: {what} memory over {format_duration(session.duration_s)}"
    return [title, *rows]


def over_time(curve: MemoryCurve, values: Sequence[int | None], duration_s: float, steps: int) -> list[float]:
    """Values at even steps of time: the highest of each step, and the last one where nothing was seen in
    it.
    """
    known = [(after, value) for after, value in zip(curve.after_s, values, strict=True) if value is not None]
    times, seen = zip(*known, strict=True)
    line = at_even_times(times, seen, max(duration_s, times[-1], 1e-9), steps)
    first = next(value for value in line if value is not None)
    held = accumulate(line, lambda last, value: last if value is None else value, initial=first)
    return [float(value or 0.0) for value in held][1:]
