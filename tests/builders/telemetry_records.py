"""Device-memory records drawn and built for tests, written from the schema's words and not from the code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

GOLDEN = Path(__file__).parent.parent / "golden" / "devices"

COUNTERS = (
    "allocator_allocated_bytes",
    "allocator_reserved_bytes",
    "allocator_active_bytes",
    "allocator_inactive_bytes",
    "allocator_change_bytes",
    "device_used_bytes",
    "device_free_bytes",
    "device_total_bytes",
)

SAID = st.text(min_size=1).filter(lambda text: text.strip() != "")
BYTES = st.integers(0, 2**63)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def record(**changes: Any) -> dict[str, Any]:
    """A valid record of schema v3, with these changes."""
    return {
        "schema_version": 3,
        "session_id": "s-1",
        "timestamp_ns": 1_000_000_000,
        "event_type": "sample",
        "collector": "flightlog.cuda",
        "sampling_interval_ms": 100,
        "pid": 7,
        "host": "node-1",
        "device_id": 0,
        "allocator_allocated_bytes": 10,
        "allocator_reserved_bytes": 20,
        "allocator_active_bytes": 10,
        "allocator_inactive_bytes": 10,
        "allocator_change_bytes": -3,
        "device_used_bytes": 30,
        "device_free_bytes": 70,
        "device_total_bytes": 100,
        "context": None,
        "metadata": {},
        "job_id": None,
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        **changes,
    }


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    return path


@st.composite
def valid_records(draw: st.DrawFn) -> dict[str, Any]:
    """Valid records of schema v3; the four fields of the distributed job may be left out."""
    total = draw(st.none() | BYTES)
    below = st.integers(0, total) if total is not None else BYTES
    world = draw(st.integers(1, 5))
    made = {
        "schema_version": 3,
        "session_id": draw(SAID),
        "timestamp_ns": draw(st.integers(0, 2**63)),
        "event_type": draw(SAID),
        "collector": draw(SAID),
        "sampling_interval_ms": draw(st.integers(0, 10**6)),
        "pid": draw(st.integers(-1, 2**31)),
        "host": draw(SAID),
        "device_id": draw(st.integers(-5, 9)),
        "allocator_allocated_bytes": draw(BYTES),
        "allocator_reserved_bytes": draw(BYTES),
        "allocator_active_bytes": draw(st.none() | BYTES),
        "allocator_inactive_bytes": draw(st.none() | BYTES),
        "allocator_change_bytes": draw(st.integers(-(2**62), 2**62)),
        "device_used_bytes": draw(below),
        "device_free_bytes": draw(st.none() | below),
        "device_total_bytes": total,
        "context": draw(st.none() | st.text()),
        "metadata": draw(st.dictionaries(st.text(), JSON, max_size=3)),
    }
    if draw(st.booleans()):
        made["job_id"] = draw(st.none() | SAID)
    rank = draw(st.integers(0, world - 1))
    if rank or world > 1 or draw(st.booleans()):
        made["world_size"] = world
    if rank or draw(st.booleans()):
        made["rank"] = rank
    if draw(st.booleans()):
        made["local_rank"] = draw(st.integers(0, world - 1))
        made["world_size"] = world
    return made


def completed(given: dict[str, Any]) -> dict[str, Any]:
    """A record of v3 as an event holds it: what the job's fields are where they were left out."""
    rank = given.get("rank", 0)
    return {
        **given,
        "job_id": given.get("job_id"),
        "rank": rank,
        "local_rank": given.get("local_rank", rank),
        "world_size": given.get("world_size", 1),
    }
