"""What matters in a device report, in plain sentences, the most urgent first."""

from __future__ import annotations

from flightlog.analyze.device_results import DeviceReport, OutOfMemory, SessionUse, Straggler
from flightlog.units import format_bytes, format_duration, format_percent

NEARLY_FULL, UNUSED, HIDDEN = 0.9, 0.25, 0.1
"""Shares of the device that are worth a word."""
SHOWN = 8
"""Lines of one kind; of more ranks with the same trouble, the first so many."""


def advice(report: DeviceReport) -> list[str]:
    """The sentences; at least one where there are sessions."""
    many = len({session.rank for session in report.sessions}) > 1
    lines = [line for out in report.out_of_memory[:SHOWN] for line in _ran_out(out, many)]
    told = {out.session_id for out in report.out_of_memory if out.causes[0].kind == "leak"}
    leaking = [session for session in report.sessions if session.session_id not in told]
    lines += [line for session in leaking for line in _leaks(session, many)][:SHOWN]
    lines += [line for session in report.sessions for line in _tight(session, many)][:SHOWN]
    lines += [line for session in report.sessions for line in _hidden(session, many)][:SHOWN]
    lines += _stragglers(report)[:SHOWN]
    highest = max(report.sessions, key=_height, default=None)
    if highest is not None:
        lines += _peak(highest, many)
    if report.sessions and not any(phase.phase for one in report.sessions for phase in one.phases):
        lines.append(
            "No phases were recorded, so leaks cannot be told from growth that is meant: "
            'put the steps of the program into `with flightlog.span("step"):`.'
        )
    return lines


def _height(session: SessionUse) -> int:
    peak = session.peak_allocated or session.peak_device_used
    return peak.bytes if peak is not None else -1


def _of(session: SessionUse, many: bool, text: str) -> str:
    """A sentence on a session, which names its rank where there are several."""
    return f"Rank {session.rank}: {text}" if many else text[0].upper() + text[1:]


def _place(session: SessionUse) -> str:
    return "the host's memory" if session.device_id < 0 else "the device"


def _phase(phase: str | None) -> str:
    return "outside of any phase" if phase is None else f"in `{phase}`"


def _peak(session: SessionUse, many: bool) -> list[str]:
    peak, what = session.peak_allocated, "allocated"
    if peak is None:
        peak, what = session.peak_device_used, "in use on the device"
    if peak is None:
        return ["The recording knows neither allocated memory nor the device's use."]
    capacity = session.capacity_bytes
    of = f" ({format_percent(peak.bytes / capacity)} of {_place(session)})" if capacity else ""
    unused = session.fragmentation
    lay = (
        f"; {format_percent(unused.at_peak)} of what the allocator held was unused at its own peak"
        if unused is not None and unused.at_peak > 0
        else ""
    )
    text = (
        f"the peak of {format_bytes(peak.bytes)} {what}{of} was reached {format_duration(peak.after_s)} in,"
        f" {_phase(peak.phase)}{lay}."
    )
    return [_of(session, many, text)]


def _ran_out(out: OutOfMemory, many: bool) -> list[str]:
    rank = f"Rank {out.rank} ran" if out.rank is not None and many else "The run ran"
    when = f" {format_duration(out.after_s)} in" if out.after_s is not None else ""
    asked = f", asking for {format_bytes(out.request.tried_bytes)}" if out.request.tried_bytes else ""
    where = " > ".join(out.span_path)
    place = f", in `{where}`" if where else f", {_phase(out.phase)}" if out.phase else ""
    lines = [f"{rank} out of memory{when}{place}{asked}. {out.causes[0].text} {_remedy(out)}".rstrip()]
    if many and out.rises:
        first = out.rises[0]
        lines.append(
            f"Rank {first.rank} was the first to rise before that, by"
            f" {format_bytes(first.to_bytes - first.from_bytes)}, {format_duration(first.before_s)} before."
        )
    return lines


def _remedy(out: OutOfMemory) -> str:
    return {
        "impossible": "Split it: a smaller batch, or work in pieces.",
        "leak": "Look for what keeps tensors alive from one repetition to the next.",
        "fragmentation": "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or sizes that change less.",
        "other_process": "See who else uses the device (nvidia-smi), or use another one.",
        "large_allocation": "A smaller batch, or the same work in pieces, needs less at once.",
        "full": "A smaller batch, activation checkpointing or more devices would make room.",
        "unknown": "",
    }[out.causes[0].kind]


def _leaks(session: SessionUse, many: bool) -> list[str]:
    """One sentence a session: a leak shows in every phase that comes after it."""
    if not session.leaks:
        return []
    leak = max(session.leaks, key=lambda one: one.growth_bytes)
    others = [f"`{one.phase}`" for one in session.leaks if one is not leak]
    also = f" (seen in {', '.join(others)}, too)" if others else ""
    full = (
        f"; at this pace {_place(session)} is full {format_duration(leak.full_in_s)} after the last event"
        if leak.full_in_s is not None
        else ""
    )
    text = (
        f"memory may leak: {format_bytes(leak.bytes_per_repetition)} more with each `{leak.phase}`,"
        f" {format_bytes(leak.growth_bytes)} over {leak.tested} of them{also}{full}."
    )
    return [_of(session, many, text)]


def _tight(session: SessionUse, many: bool) -> list[str]:
    unused, capacity, held = session.fragmentation, session.capacity_bytes, session.peak_reserved
    if unused is None or not unused.tight_events or held is None or not capacity:
        return []
    text = (
        f"the allocator held {format_percent(held.bytes / capacity)} of the device while"
        f" {format_bytes(unused.most_bytes)} lay unused: fragmentation may end the run before memory does."
        " Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    )
    return [_of(session, many, text)]


def _hidden(session: SessionUse, many: bool) -> list[str]:
    gap, capacity = session.hidden, session.capacity_bytes
    if gap is None:
        return []
    large = capacity is not None and gap.max_bytes >= HIDDEN * capacity
    if not large and not gap.growing:
        return []
    grew = f", and it grew by {format_bytes(gap.growth_bytes)}" if gap.growing else ""
    text = (
        f"up to {format_bytes(gap.max_bytes)} on the device were not the allocator's"
        f" ({format_bytes(gap.median_bytes)} in the middle{grew}): contexts, libraries or other processes."
    )
    return [_of(session, many, text)]


def _stragglers(report: DeviceReport) -> list[str]:
    """One line a rank and kind: the phase in which it shows most, and how many others there are."""
    worst: dict[tuple[int, str], list[Straggler]] = {}
    for one in report.stragglers:
        worst.setdefault((one.rank, one.kind), []).append(one)
    lines = []
    for found in worst.values():
        one = max(found, key=lambda one: one.value - one.median)
        more = f" (and {len(found) - 1} more phase{'s' * (len(found) > 2)})" if len(found) > 1 else ""
        much = format_bytes if one.kind == "memory" else format_duration
        lines.append(
            {
                "late": f"Rank {one.rank} began `{one.phase}`{more} {much(one.value)} after the others.",
                "long": (
                    f"Rank {one.rank} spent {much(one.value)} in `{one.phase}`{more}, the others "
                    f"{much(one.median)}."
                ),
                "memory": f"Rank {one.rank} held {much(one.value)} at most, the others {much(one.median)}.",
            }[one.kind]
        )
    return lines
