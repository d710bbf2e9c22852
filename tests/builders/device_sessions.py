"""Device-memory events for tests, by hand and drawn."""

from __future__ import annotations

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
