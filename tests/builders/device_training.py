"""A training on several devices, of which one leaks until its memory runs out."""

from __future__ import annotations

import random

from flightlog.events import DeviceMemory

GIB, S, T0 = 1 << 30, 1_000_000_000, 1_780_000_000 * 1_000_000_000
MESSAGE = (
    "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 2 has a total capacity of 80.00 GiB of which 2.50 "
    "GiB is free. "
    "Including non-PyTorch memory, this process has 77.50 GiB memory in use. Of the allocated memory 74.00 "
    "GiB is "
    "allocated by PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated."
)


def training(ranks: int = 4, steps: int = 30, *, ends: bool = True) -> list[DeviceMemory]:
    """Ranks that train and evaluate in turn; rank 2 keeps two GiB of each step, until it runs out where it
    `ends`.
    """
    draw, events = random.Random(3), []
    for rank in range(ranks):
        time = T0 + rank * S // 100

        def seen(
            level: float, phase: str | None, span: str | None, kind: str = "sample", **metadata: object
        ) -> None:
            allocated = round(level * GIB)
            reserved = allocated + round(draw.uniform(0.5, 1.5) * GIB)
            events.append(
                DeviceMemory(
                    schema_version=3,
                    session_id=f"session-{rank}",
                    timestamp_ns=time,
                    event_type=kind,
                    collector="flightlog.torch.cuda",
                    sampling_interval_ms=100,
                    pid=4000 + rank,
                    host="node-1",
                    device_id=rank,
                    allocator_allocated_bytes=allocated,
                    allocator_reserved_bytes=reserved,
                    allocator_active_bytes=None,
                    allocator_inactive_bytes=None,
                    allocator_change_bytes=0,
                    device_used_bytes=reserved + GIB,
                    device_free_bytes=80 * GIB - reserved - GIB,
                    device_total_bytes=80 * GIB,
                    context=phase,
                    rank=rank,
                    local_rank=rank,
                    world_size=ranks,
                    metadata={
                        "device_used_source": "driver",
                        **({"span_id": span} if span else {}),
                        **metadata,
                    },
                )
            )

        seen(4, None, None, "start")
        kept = 0.0
        for step in range(steps):
            for part in (8, 14, 10):
                time += S // 10
                seen(4 + kept + part, "train", f"t{step}")
            kept += 2.0 if rank == 2 else 0.0
            for part in (3, 0):
                time += S // 10
                seen(4 + kept + part, "evaluate", f"e{step}")
        if rank == 2 and ends:
            seen(74, "train", "last", "error", message=MESSAGE, oom=True, span_path="epoch/train")
        else:
            seen(4, None, None, "stop")
    return events
