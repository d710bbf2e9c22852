"""Readings of allocators and drivers made into device-memory events: samples, new peaks and alerts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from uuid import uuid4

from flightlog.events import DeviceMemory
from flightlog.events.devices.records import fill_unknown_counters, resolve_distributed_identity
from flightlog.record.clock import monotonic_ns
from flightlog.record.recorder import Recorder
from flightlog.record.span import RootSpan, Span
from flightlog.record.task import AttemptSpan
from flightlog.record.values import bounded, text_of
from flightlog.samplers.frameworks import Allocator, AllocatorReading, Capabilities

_IN_METADATA = (
    *("device_uuid", "peak_allocated_bytes", "peak_reserved_bytes"),
    *("inactive_split_bytes", "largest_free_bytes", "limit_bytes"),
)
MAX_PATH = 400
"""Characters of a span's path that an event holds."""


class EventMaker:
    """Builds the events of one session: one tracker in one process."""

    def __init__(self, recorder: Recorder, interval_s: float) -> None:
        self.session_id = str(uuid4())
        self.identity = identity()
        self._recorder = recorder
        self._capabilities: Capabilities | None = None
        self._unknown: dict[str, Any] = {}
        self._place: tuple[Span | None, str | None, dict[str, str]] = (None, None, {})
        self._common = {
            "schema_version": 3,
            "session_id": self.session_id,
            "sampling_interval_ms": round(interval_s * 1000),
            "pid": os.getpid(),
            "host": recorder.host or "unknown",
            **self.identity,
        }

    def refresh(self) -> bool:
        """Look again which rank this is; whether it is another than events were made for so far."""
        found = identity()
        if found == self.identity:
            return False
        self.identity = found
        self._common |= found
        return True

    def make(
        self,
        kind: str,
        allocator: Allocator,
        device: int,
        reading: AllocatorReading,
        *,
        change: int = 0,
        here: Span | None = None,
        now_ns: int | None = None,
        **more: Any,
    ) -> DeviceMemory:
        """An event of a moment, now unless said. v3 knows no unknown counter: it is 0, or the nearest that is
        known, and `metadata.memory_capabilities` says that it is unknown.
        """
        now = monotonic_ns() if now_ns is None else now_ns
        clock = self._recorder.clock
        allocated, reserved = reading.allocated_bytes, reading.reserved_bytes
        capabilities = allocator.capabilities
        if capabilities is not self._capabilities:
            self._capabilities, self._unknown = capabilities, capabilities.unknown()
        used, source = reading.device_used_bytes, reading.device_source
        if used is None:
            used, source = max((n for n in (allocated, reserved) if n is not None), default=None), "allocator"
        counters: dict[str, Any] = {
            "allocator_allocated_bytes": allocated,
            "allocator_reserved_bytes": reserved,
            "allocator_change_bytes": None if allocated is None else change,
            "device_used_bytes": used,
        }
        unknown = {**self._unknown, **fill_unknown_counters(counters)}
        metadata = _metadata(reading, source)
        if unknown:
            metadata["memory_capabilities"] = {"backend": capabilities.backend, **unknown}
        free, total = reading.device_free_bytes, reading.device_total_bytes
        if total is not None:
            counters["device_used_bytes"] = min(counters["device_used_bytes"], total)
        context, place = self._at(here)
        return DeviceMemory(
            timestamp=clock.iso(now),
            timestamp_ns=now + clock.anchor_ns,
            event_type=kind,
            collector=f"flightlog.{allocator.name}",
            device_id=device,
            allocator_active_bytes=reading.active_bytes,
            allocator_inactive_bytes=reading.inactive_bytes,
            device_free_bytes=free if free is None or total is None else min(free, total),
            device_total_bytes=total,
            **counters,
            context=context,
            metadata={**metadata, **place, **more},
            **self._common,
        )

    def _at(self, here: Span | None) -> tuple[str | None, dict[str, str]]:
        """Context and place of a span; the last one is kept, for most samples share it."""
        known, context, place = self._place
        if known is not here or place.get("span_id") != (here.span_id if here is not None else None):
            context = bounded(text_of(here.name), 200) if here is not None else None
            place = place_of(here)
            self._place = (here, context, place)
        return context, place


def _metadata(reading: AllocatorReading, source: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(reading, name) for name in _IN_METADATA}
    found |= {"device_used_source": source, "ooms": reading.ooms or None}
    return {name: value for name, value in found.items() if value is not None}


def identity(environ: Mapping[str, str] | None = None, modules: Mapping[str, Any] | None = None) -> Any:
    """Rank and size of this process: as `torch.distributed` knows them, else as the launcher's variables say.

    What cannot be is one process alone; never raises.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {}
    distributed = (sys.modules if modules is None else modules).get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            given = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
            local = environ.get("LOCAL_RANK", "")
            given["local_rank"] = int(local) if local.isdigit() else None
    except Exception:  # noqa: BLE001 - a library of somebody else's, in the middle of whatever it does
        given = {}
    for known in (given, {}):
        try:
            return resolve_distributed_identity(**known, env=environ)
        except ValueError:
            continue
    return resolve_distributed_identity()


def innermost(spans: Iterable[Span]) -> Span | None:
    """The span that was opened last and is still open: what the process is doing, as far as its spans say."""
    last: Span | None = None
    for span in spans:
        if span.name:
            last = span
    return last


def place_of(here: Span | None) -> dict[str, str]:
    """Where a span stands: its id, the path of names to it, and the task it is inside of."""
    if here is None:
        return {}
    names: list[str] = []
    task: str | None = None
    span: Span | None = here
    while span is not None and not isinstance(span, RootSpan):
        names.append(text_of(span.name))
        if task is None and isinstance(span, AttemptSpan):
            task = span.task_id or span.span_id
        span = span._parent
    place = {"span_id": here.span_id, "span_path": bounded("/".join(reversed(names)), MAX_PATH)}
    return place if task is None else {**place, "task_id": task}


PEAK_STEP_BYTES = 1 << 20
"""A new peak is reported when it is higher than the last one reported by this much; every event holds the
exact one."""


class DeviceWatch:
    """One device over a tracker's life: readings in order, from one thread at a time."""

    def __init__(self, alerts: Alerts, change_bytes: int) -> None:
        self.peak_bytes: int | None = None
        self._reported_peak = 0
        self._alerts, self._change_bytes = alerts, change_bytes
        self._allocated: int | None = None

    def observe(self, reading: AllocatorReading) -> list[tuple[str, int]]:
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
        events = [(kind, change)]
        counted = [n for n in (allocated, reading.peak_allocated_bytes, self.peak_bytes) if n is not None]
        self.peak_bytes = max(counted, default=None)
        if self.peak_bytes is not None and (
            first or self.peak_bytes >= self._reported_peak + PEAK_STEP_BYTES
        ):
            if not first:
                events.append(("peak", 0))
            self._reported_peak = self.peak_bytes
        alert = self._alerts.observe(percent_used(reading))
        if alert is not None:
            events.append((alert, 0))
        return events


def percent_used(reading: AllocatorReading) -> float | None:
    """How full it is: the device by everyone, or what the allocator has of its own limit, whichever is
    fuller.
    """
    used, total, allocated = reading.device_used_bytes, reading.device_total_bytes, reading.allocated_bytes
    parts = ((used, total), (allocated, reading.limit_bytes or total))
    return max((100 * part / whole for part, whole in parts if whole and part is not None), default=None)


MARGIN_PERCENT = 5.0


Alert = Literal["critical", "warning"]


class Alerts:
    """Tells when memory gets short: `observe` each reading in order; not thread-safe.

    A level that was reported is reported again only after a reading below its threshold less
    `margin_percent`. A reading that reaches both thresholds is critical, and the warning counts as reported.
    None as a threshold switches it off.
    """

    def __init__(
        self,
        warning_percent: float | None,
        critical_percent: float | None,
        margin_percent: float = MARGIN_PERCENT,
    ) -> None:
        self._thresholds: dict[Alert, float | None] = {
            "critical": critical_percent,
            "warning": warning_percent,
        }
        self._margin = margin_percent
        self._reported: set[Alert] = set()

    def observe(self, percent: float | None) -> Alert | None:
        """What to report of this reading; nothing of an unknown one."""
        if percent is None:
            return None
        levels = [(level, at) for level, at in self._thresholds.items() if at is not None]
        new = [level for level, at in levels if percent >= at and level not in self._reported]
        if new:
            self._reported |= self._thresholds.keys() if new[0] == "critical" else {"warning"}
        self._reported &= {level for level, at in levels if percent >= at - self._margin}
        return new[0] if new else None
