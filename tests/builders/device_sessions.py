"""Device-memory events for tests, by hand and drawn, and the numbers of a report once more, the slow way."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

from hypothesis import strategies as st

from flightlog.events import DeviceMemory

GIB, MIB, S = 1 << 30, 1 << 20, 1_000_000_000
T0 = 1_780_000_000 * S


def event(after_s: float = 0.0, **changes: Any) -> DeviceMemory:
    """An event of a run, so many seconds after `T0`."""
    fields: dict[str, Any] = {
        "schema_version": 3,
        "session_id": "s-0",
        "timestamp_ns": T0 + round(after_s * S),
        "event_type": "sample",
        "collector": "flightlog.torch.cuda",
        "sampling_interval_ms": 100,
        "pid": 7,
        "host": "node-1",
        "device_id": 0,
        "allocator_allocated_bytes": GIB,
        "allocator_reserved_bytes": 2 * GIB,
        "allocator_active_bytes": None,
        "allocator_inactive_bytes": None,
        "allocator_change_bytes": 0,
        "device_used_bytes": 3 * GIB,
        "device_free_bytes": None,
        "device_total_bytes": 80 * GIB,
        "context": None,
        "metadata": {},
        "job_id": None,
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        **changes,
    }
    return DeviceMemory(**fields)


def of_rank(rank: int, after_s: float, allocated: float, **changes: Any) -> DeviceMemory:
    """An event of one of several ranks, with so many GiB allocated."""
    fields = {"rank": rank, "local_rank": rank, "world_size": 8, "session_id": f"s-{rank}", "pid": 100 + rank}
    held = round(allocated * GIB)
    counters = {
        "allocator_allocated_bytes": held,
        "allocator_reserved_bytes": held,
        "device_used_bytes": held,
    }
    return event(after_s, **{**fields, **counters, **changes})


ABLE = (
    "allocator_allocated",
    "allocator_reserved",
    "allocator_inactive",
    "device_used",
    "device_free",
    "device_total",
)
BYTES = st.integers(0, 100)


@st.composite
def sessions(draw: st.DrawFn) -> list[DeviceMemory]:
    """Events of a few sessions with gaps, phases and counters that are not known, each session in order of
    time."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        denied = draw(st.sets(st.sampled_from(ABLE), max_size=2))
        source = draw(st.sampled_from([None, "driver", "allocator", "mixed"]))
        base: dict[str, Any] = (
            {"memory_capabilities": {f"supports_{name}": False for name in denied}} if denied else {}
        )
        if draw(st.booleans()):
            base["device_uuid"] = draw(st.sampled_from(["GPU-a", "GPU-b"]))
        time = draw(st.integers(0, 5))
        for _ in range(draw(st.integers(1, 12))):
            time += draw(st.sampled_from([0, 1, 1, 7]))
            metadata = dict(base)
            if source is not None:
                metadata["device_used_source"] = (
                    draw(st.sampled_from(["driver", "allocator"])) if source == "mixed" else source
                )
            span = draw(st.sampled_from([None, None, "a", "b"]))
            if span is not None:
                metadata["span_id"] = span
            if draw(st.booleans()):
                metadata["peak_allocated_bytes"] = draw(BYTES)
            found.append(
                event(
                    session_id=f"s-{number}",
                    timestamp_ns=T0 + time * S,
                    rank=number,
                    local_rank=number,
                    world_size=3,
                    device_id=draw(st.sampled_from([0, 0, 1])),
                    host=f"node-{number % 2}",
                    pid=number,
                    event_type=draw(
                        st.sampled_from(["sample", "sample", "peak", "warning", "critical", "stop"])
                    ),
                    context=draw(
                        st.sampled_from([None, "train", "step 1", "step 2", "sim[3]", "layer3", " "])
                    ),
                    allocator_allocated_bytes=draw(BYTES),
                    allocator_reserved_bytes=draw(BYTES),
                    allocator_inactive_bytes=draw(st.none() | BYTES),
                    device_used_bytes=draw(BYTES),
                    device_total_bytes=draw(st.sampled_from([None, 0, 100, 110])),
                    metadata=metadata,
                )
            )
    return found


def slow_value(one: DeviceMemory, name: str) -> int | None:
    """A counter, or None where the event says that it does not know it."""
    if one.metadata.get("memory_capabilities", {}).get(f"supports_{name}") is False:
        return None
    value: int | None = getattr(one, f"{name}_bytes")
    return None if name == "device_total" and value == 0 else value


def slow_phase(one: DeviceMemory) -> str | None:
    text = (one.context or "").strip()
    if not text:
        return None
    found = re.fullmatch(r"(.*[ =#:])\d+|(.*\[)\d+\]", text)
    return text if found is None else f"{found[1]}#" if found[1] else f"{found[2]}#]"


def slow_report(events: list[DeviceMemory]) -> dict[Any, dict[str, Any]]:
    """The figures of each session and device, each worked out on its own over the whole list."""
    groups: dict[Any, list[DeviceMemory]] = {}
    for one in events:
        groups.setdefault((one.rank, one.host, one.device_id, one.session_id), []).append(one)
    return {key: {**_slow_session(mine), "hidden": _slow_gap(mine, groups)} for key, mine in groups.items()}


def _slow_session(mine: list[DeviceMemory]) -> dict[str, Any]:
    start = mine[0].timestamp_ns
    columns = {name: [slow_value(one, name) for one in mine] for name in ABLE}
    marks = [one.metadata.get("peak_allocated_bytes") for one in mine]
    peaks_alloc = []
    for n, value in enumerate(columns["allocator_allocated"]):
        earlier = [mark for mark in marks[:n] if mark is not None]
        rose = marks[n] is not None and earlier and marks[n] > earlier[-1]
        peaks_alloc.append(None if value is None else max(value, marks[n]) if rose else value)
    series = {
        "allocated": peaks_alloc,
        "reserved": columns["allocator_reserved"],
        "device_used": columns["device_used"],
    }

    def peak(values: list[int | None]) -> tuple[int, int, float, str | None] | None:
        known = [value for value in values if value is not None]
        if not known:
            return None
        at = mine[values.index(max(known))]
        return max(known), at.timestamp_ns, (at.timestamp_ns - start) / 1e9, slow_phase(at)

    phases = {}
    for name in {slow_phase(one) for one in mine}:
        inside = [n for n, one in enumerate(mine) if slow_phase(one) == name]
        lasted = sum(mine[n + 1].timestamp_ns - mine[n].timestamp_ns for n in inside if n + 1 < len(mine))
        grown, changes = 0, 0
        allocated = columns["allocator_allocated"]
        for n in inside:
            before = [value for value in allocated[:n] if value is not None]
            if before and allocated[n] is not None:
                grown, changes = grown + allocated[n] - before[-1], changes + 1
        phases[name] = (
            _slow_repetitions(mine, name),
            len(inside),
            mine[inside[0]].timestamp_ns,
            lasted / 1e9,
            *(
                max((v for n in inside if (v := values[n]) is not None), default=None)
                for values in series.values()
            ),
            grown if changes else None,
        )
    totals = [value for value in columns["device_total"] if value is not None]
    return {
        "events": len(mine),
        "completed": any(one.event_type == "stop" for one in mine),
        "end_ns": mine[-1].timestamp_ns,
        "capacity": max(totals, default=None),
        "peaks": {name: peak(values) for name, values in series.items()},
        "unknown": [name for name in ABLE if all(value is None for value in columns[name])],
        "phases": phases,
        "fragmentation": _slow_fragmentation(mine, columns),
        "warnings": sum(one.event_type == "warning" for one in mine),
        "criticals": sum(one.event_type == "critical" for one in mine),
        "curve": list(zip(*(columns[name] for name in ABLE[:2]), columns["device_used"], strict=True)),
    }


def _slow_repetitions(mine: list[DeviceMemory], name: str | None) -> int:
    """A new one wherever the phase is entered, unless it is entered again in the span it was last left in."""
    count, last_span = 0, None
    for n, one in enumerate(mine):
        if slow_phase(one) != name:
            continue
        span = one.metadata.get("span_id")
        goes_on = n > 0 and slow_phase(mine[n - 1]) == name and mine[n - 1].metadata.get("span_id") == span
        resumed = count > 0 and span is not None and span == last_span
        count += not goes_on and not resumed
        last_span = span
    return count


def _slow_fragmentation(mine: list[DeviceMemory], columns: dict[str, list[int | None]]) -> Any:
    reserved, allocated, total = (
        columns[f"{name}"] for name in ("allocator_reserved", "allocator_allocated", "device_total")
    )
    both = [n for n in range(len(mine)) if reserved[n] and allocated[n] is not None]
    held = [value for value in reserved if value is not None]
    if not both or not held or not max(held):
        return None
    at = reserved.index(max(held))
    if allocated[at] is None:
        return None
    unused = {n: reserved[n] - allocated[n] for n in both}
    most = max(both, key=lambda n: (unused[n], -n))
    tight = [
        n
        for n in both
        if total[n] is not None and reserved[n] >= 0.9 * total[n] and unused[n] >= 0.2 * reserved[n]
    ]
    inactive = columns["allocator_inactive"][at]
    return (
        (reserved[at] - allocated[at]) / reserved[at],
        None if inactive is None else inactive / reserved[at],
        median(unused[n] / reserved[n] for n in both),
        unused[most],
        unused[most] / reserved[most],
        mine[most].timestamp_ns,
        len(tight),
        mine[tight[0]].timestamp_ns if tight else None,
    )


def _slow_basis(mine: list[DeviceMemory]) -> str | None:
    using = [one for one in mine if slow_value(one, "device_used") is not None]
    sources = {one.metadata.get("device_used_source") for one in using}
    if "driver" in sources:
        return "driver"
    beyond = any(
        slow_value(one, "allocator_reserved") is not None
        and slow_value(one, "device_used")
        > max(slow_value(one, "allocator_allocated") or 0, slow_value(one, "allocator_reserved"))
        for one in using
    )
    return "assumed" if sources == {None} and beyond else None


def _slow_gap(mine: list[DeviceMemory], groups: dict[Any, list[DeviceMemory]]) -> Any:
    basis = _slow_basis(mine)
    if basis is None:
        return None
    order = sorted(groups, key=lambda key: (key[0], key[1], key[2], groups[key][0].timestamp_ns, key[3]))
    uuid = mine[0].metadata.get("device_uuid")
    together = [
        groups[key]
        for key in order
        if groups[key] is mine
        or (uuid and (key[1], groups[key][0].metadata.get("device_uuid")) == (mine[0].host, uuid))
    ]
    place = next(n for n, other in enumerate(together) if other is mine)
    gaps = []
    for n, one in enumerate(mine):
        wanted = "driver" if basis == "driver" else None
        used = slow_value(one, "device_used")
        if used is None or one.metadata.get("device_used_source") != wanted:
            continue
        held: list[int | None] = []
        for number, other in enumerate(together):
            if other is mine:
                held.append(slow_value(one, "allocator_reserved"))
                continue
            before = [
                event
                for event in other
                if event.timestamp_ns < one.timestamp_ns
                or (event.timestamp_ns == one.timestamp_ns and number < place)
            ]
            stopped = (
                any(event.event_type == "stop" for event in other)
                and other[-1].timestamp_ns < one.timestamp_ns
            )
            held.append(0 if stopped or not before else slow_value(before[-1], "allocator_reserved"))
        if None not in held:
            gaps.append(used - sum(held))
    return (basis, len(gaps), float(median(gaps)), max(gaps)) if gaps else None
