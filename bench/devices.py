"""Loading a million device-memory events, every one validated: events a second, and memory, in fresh
processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

EVENTS = 1_000_000
ROUNDS = 3

_PROGRAM = """
import gc, json, sys, time
from pathlib import Path
path, how = Path(sys.argv[1]), sys.argv[2]
if how == "msgspec":
    import msgspec
    from flightlog.events.devices.event import TelemetryEventV3
    decoder = msgspec.json.Decoder(TelemetryEventV3)
    def load():
        number, rest = 0, b""
        with path.open("rb", buffering=0) as source:
            while chunk := source.read(1 << 17):
                cut = chunk.rfind(b"\\n") + 1
                number += len(decoder.decode_lines(rest + chunk[:cut]))
                rest = chunk[cut:]
        return number
elif how == "json":
    def load():
        with path.open("rb") as source:
            return sum(1 for line in source if json.loads(line))
else:
    from flightlog.devices import TelemetryReading, load_telemetry_events
    def load():
        if how == "list":
            return len(load_telemetry_events(path))
        number = 0
        for event in TelemetryReading(path):
            number += 1
        return number
begun, used = time.perf_counter(), time.process_time()
number = load()
wall, cpu = time.perf_counter() - begun, time.process_time() - used
print(json.dumps({
    "events": number, "per_s": number / wall, "per_cpu_s": number / cpu,
    "peak_bytes": 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]),
}))
"""


def write_events(path: Path, number: int = EVENTS) -> None:
    """So many events of schema v3 as a tracker writes them: varied counters, some context, two metadata."""
    record = {
        "allocator_active_bytes": 0,
        "allocator_allocated_bytes": 0,
        "allocator_change_bytes": 0,
        "allocator_inactive_bytes": 0,
        "allocator_reserved_bytes": 0,
        "collector": "flightlog.cuda",
        "context": None,
        "device_free_bytes": 0,
        "device_id": 1,
        "device_total_bytes": 85_899_345_920,
        "device_used_bytes": 0,
        "event_type": "sample",
        "host": "node-0",
        "job_id": "job-77",
        "local_rank": 1,
        "metadata": {"backend": "cuda", "phase": "train"},
        "pid": 4001,
        "rank": 1,
        "sampling_interval_ms": 100,
        "schema_version": 3,
        "session_id": "00000001-0000-4000-8000-000000000001",
        "timestamp_ns": 0,
        "world_size": 2,
    }
    with path.open("w") as out:
        for i in range(number):
            allocated = 5_000_000_000 + i * 7919 % 3_000_000_000
            reserved = allocated + i * 31 % 700_000_000
            record["allocator_active_bytes"] = record["allocator_allocated_bytes"] = allocated
            record["allocator_reserved_bytes"] = reserved
            record["allocator_inactive_bytes"] = reserved - allocated
            record["allocator_change_bytes"] = i * 104_729 % 1_000_000_007 - 500_000_000
            record["device_used_bytes"] = reserved + 268_435_456
            record["device_free_bytes"] = 85_899_345_920 - reserved - 268_435_456
            record["context"] = f"step {i}" if i % 4 == 0 else None
            record["timestamp_ns"] = 1_780_001_000_000_000_000 + i * 100_000_000
            out.write(json.dumps(record) + "\n")


def measure(rounds: int = ROUNDS, number: int = EVENTS) -> dict[str, float]:
    """Events a second and peak memory, iterated and as a list, beside bare msgspec and bare json; medians."""
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        write_events(path, number)
        for _ in range(rounds):
            for how in ("iterated", "msgspec", "json", "list"):
                done = subprocess.run(
                    [sys.executable, "-c", _PROGRAM, os.fspath(path), how],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                found.setdefault(how, []).append(json.loads(done.stdout))
                assert found[how][-1]["events"] == number
    return {
        f"{how}_{figure}": median(one[figure] for one in rounds_of)
        for how, rounds_of in found.items()
        for figure in ("per_s", "per_cpu_s", "peak_bytes")
    } | {"best_iterated_per_s": max(one["per_s"] for one in found["iterated"])}


if __name__ == "__main__":
    for what, value in measure(*map(int, sys.argv[1:])).items():
        print(f"{what:<24} {value:,.0f}")
