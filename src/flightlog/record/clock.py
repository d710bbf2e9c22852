"""Event time: one wall-clock anchor a process, and the monotonic clock from there."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_THOUSANDTHS = [f"{i:03d}" for i in range(1000)]
_THOUSANDTHS_Z = [f"{i:03d}Z" for i in range(1000)]

monotonic_ns = time.perf_counter_ns


class Clock:
    """Turns monotonic nanoseconds into timestamps; steps of the wall clock during a run do not show."""

    def __init__(self) -> None:
        before = time.perf_counter_ns()
        wall = time.time_ns()
        self.anchor_ns = wall - (before + time.perf_counter_ns()) // 2
        self._second = self._millisecond = (0, "")

    def iso(self, mono_ns: int) -> str:
        """The timestamp of a moment: ISO 8601, UTC, microseconds, `Z`."""
        us = (mono_ns + self.anchor_ns) // 1000
        start, prefix = self._millisecond  # events come in bursts: most share it with the one before
        if not 0 <= us - start < 1000:
            start, prefix = self._begin_millisecond(us)
        return prefix + _THOUSANDTHS_Z[us - start]

    def _begin_millisecond(self, us: int) -> tuple[int, str]:
        second, prefix = self._second
        if not 0 <= us - second < 1_000_000:
            second = us - us % 1_000_000
            prefix = datetime.fromtimestamp(second // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
            self._second = (second, prefix)
        ms = (us - second) // 1000
        self._millisecond = begun = (second + ms * 1000, prefix + _THOUSANDTHS[ms])
        return begun

    def now(self) -> str:
        """The timestamp of this moment."""
        return self.iso(time.perf_counter_ns())
