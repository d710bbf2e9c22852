"""Event time: one wall-clock anchor a process, and the monotonic clock from there."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_THOUSANDTHS = [f"{i:03d}" for i in range(1000)]
_THOUSANDTHS_Z = [f"{i:03d}Z" for i in range(1000)]

_MILLISECOND, _SECOND = 10**6, 10**9  # in nanoseconds

monotonic_ns = time.perf_counter_ns


class Clock:
    """Turns monotonic nanoseconds into timestamps; steps of the wall clock during a run do not show."""

    def __init__(self) -> None:
        before = time.perf_counter_ns()
        wall = time.time_ns()
        self.anchor_ns = wall - (before + time.perf_counter_ns()) // 2
        self._second = self._millisecond = (-(1 << 70), "")  # long before any moment

    def iso(self, mono_ns: int) -> str:
        """The timestamp of a moment: ISO 8601, UTC, microseconds, `Z`."""
        start, prefix = self._millisecond  # events come in bursts: most share it with the one before
        rest = mono_ns - start
        if not 0 <= rest < _MILLISECOND:
            start, prefix = self._begin_millisecond(mono_ns)
            rest = mono_ns - start
        return prefix + _THOUSANDTHS_Z[rest // 1000]

    def _begin_millisecond(self, mono_ns: int) -> tuple[int, str]:
        """Where the millisecond of a moment begins on the monotonic clock, and the timestamp down to it."""
        second, prefix = self._second
        if not 0 <= mono_ns - second < _SECOND:
            whole = (mono_ns + self.anchor_ns) // _SECOND
            second = whole * _SECOND - self.anchor_ns
            prefix = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
            self._second = (second, prefix)
        ms = (mono_ns - second) // _MILLISECOND
        self._millisecond = begun = (second + ms * _MILLISECOND, prefix + _THOUSANDTHS[ms])
        return begun

    def now(self) -> str:
        """The timestamp of this moment."""
        return self.iso(time.perf_counter_ns())
