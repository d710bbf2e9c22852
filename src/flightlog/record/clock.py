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
        self._second = (0, "")

    def iso(self, mono_ns: int) -> str:
        """The timestamp of a moment: ISO 8601, UTC, microseconds, `Z`."""
        us = (mono_ns + self.anchor_ns) // 1000
        start, prefix = self._second
        us -= start
        if not 0 <= us < 1_000_000:
            us += start
            seconds, us = divmod(us, 1_000_000)
            prefix = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
            self._second = (seconds * 1_000_000, prefix)
        return f"{prefix}{_THOUSANDTHS[us // 1000]}{_THOUSANDTHS_Z[us % 1000]}"

    def now(self) -> str:
        """The timestamp of this moment."""
        return self.iso(time.perf_counter_ns())
