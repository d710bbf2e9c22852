"""What there is to tell of a device from one reading to the next."""

from __future__ import annotations

from flightlog.record.device_alerts import Alerts
from flightlog.record.device_events import DeviceUse
from flightlog.samplers.frameworks.allocator import AllocatorReading

PEAK_STEP_BYTES = 1 << 20
"""A new peak is told when it is higher than the last one told by this much; every event holds the exact
one."""


class DeviceWatch:
    """One device over a tracker's life: readings in order, from one thread at a time."""

    def __init__(self, alerts: Alerts, change_bytes: int) -> None:
        self.peak_bytes: int | None = None
        self._told_peak = 0
        self._alerts, self._change_bytes = alerts, change_bytes
        self._allocated: int | None = None

    def observe(self, reading: AllocatorReading, use: DeviceUse) -> list[tuple[str, int]]:
        """The events of a reading, each with its type and its change of allocated bytes since the event
        before.

        First `sample`, or `allocation` or `deallocation` where the change is large; then, of the same reading
        and so without change, `peak`, and `warning` or `critical`. The first reading's peak is where it
        begins.
        """
        allocated, change = reading.allocated_bytes, 0
        first = self._allocated is None
        if allocated is not None:
            change = allocated - (allocated if self._allocated is None else self._allocated)
            self._allocated = allocated
        kind = "sample"
        if abs(change) >= self._change_bytes:
            kind = "allocation" if change > 0 else "deallocation"
        told = [(kind, change)]
        counted = [n for n in (allocated, reading.peak_allocated_bytes, self.peak_bytes) if n is not None]
        self.peak_bytes = max(counted, default=None)
        if self.peak_bytes is not None and (first or self.peak_bytes >= self._told_peak + PEAK_STEP_BYTES):
            if not first:
                told.append(("peak", 0))
            self._told_peak = self.peak_bytes
        alert = self._alerts.observe(percent_used(reading, use))
        if alert is not None:
            told.append((alert, 0))
        return told


def percent_used(reading: AllocatorReading, use: DeviceUse) -> float | None:
    """How full it is: the device by everyone, or what the allocator has of its own limit, whichever is
    fuller.
    """
    shares = []
    if use.total_bytes and use.used_bytes is not None:
        shares.append(100 * use.used_bytes / use.total_bytes)
    limit = reading.limit_bytes or use.total_bytes
    if limit and reading.allocated_bytes is not None:
        shares.append(100 * reading.allocated_bytes / limit)
    return max(shares, default=None)
