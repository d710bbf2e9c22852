"""PyTorch's allocator of this process: its high-water marks, read and never reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from flightlog.samplers.frameworks.torch_memory import figure, statistics


class Mark(Struct, frozen=True):
    """Memory handed out on one device: now, and at most since the mark was last reset."""

    current: int
    peak: int


Marks = tuple[Mark, ...]
"""By the ordinal of the device."""


class AllocatorPeak(Struct, frozen=True):
    """The largest memory handed out on one device between two looks."""

    peak_bytes: int
    exact: bool
    """Else it was at least this: the high-water mark was higher already."""


def allocator_marks(modules: Mapping[str, Any]) -> Marks | None:
    """The marks of each device; None where the program has not imported PyTorch or opened a GPU with it.

    Costs some 20 µs a device. Never raises, imports nothing and opens no device.
    """
    torch = modules.get("torch")
    if torch is None:
        return None
    try:
        cuda = torch.cuda
        if not cuda.is_initialized():
            return None
        found = []
        for ordinal in range(cuda.device_count()):
            stats = statistics(cuda, ordinal)
            held, peak = (figure(stats, "allocated_bytes", which) for which in ("current", "peak"))
            if held is None or peak is None:
                return None
            found.append(Mark(held, peak))
        return tuple(found)
    except Exception:  # noqa: BLE001 - half imported, or with an allocator that keeps no figures
        return None


def peak_between(before: Marks | None, after: Marks | None) -> AllocatorPeak | None:
    """The peak between two looks; None where nothing is known to have been handed out.

    No mark before means that PyTorch had no GPU open yet. A mark that rose is the peak itself. One that did
    not is an upper bound, and what was held at the ends a lower one. One that fell was reset in between.
    """
    if after is None:
        return None
    largest = highest_possible = 0
    for place, end in enumerate(after):
        start = before[place] if before is not None and place < len(before) else Mark(0, 0)
        if end.peak > start.peak:
            least, most = end.peak, end.peak
        elif end.peak < start.peak:
            least, most = max(start.current, end.peak), start.peak
        else:
            least, most = max(start.current, end.current), end.peak
        largest, highest_possible = max(largest, least), max(highest_possible, most)
    return AllocatorPeak(largest, largest >= highest_possible) if largest > 0 else None
