"""One device event as analysis sees it: what is not known is None, whatever the field holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from flightlog.events.devices import DeviceMemory
from flightlog.events.devices.event import TelemetryEventV3

AnyDeviceEvent = DeviceMemory | TelemetryEventV3

COUNTERS = (
    "allocator_allocated",
    "allocator_reserved",
    "allocator_inactive",
    "device_used",
    "device_free",
    "device_total",
)
"""The counters that are looked at, in the order of `Known`."""

_NUMBERED = re.compile(r"(?<=[ =#:])\d+$|(?<=\[)\d+(?=\]$)")


class Known(NamedTuple):
    """The counters of one event, in bytes; None is unknown."""

    allocated: int | None
    reserved: int | None
    inactive: int | None
    used: int | None
    free: int | None
    total: int | None


def known(event: AnyDeviceEvent) -> Known:
    """The event's counters, without those that its `memory_capabilities` deny.

    A device of 0 bytes is none that is known.
    """
    found = Known(
        event.allocator_allocated_bytes,
        event.allocator_reserved_bytes,
        event.allocator_inactive_bytes,
        event.device_used_bytes,
        event.device_free_bytes,
        event.device_total_bytes or None,
    )
    able = event.metadata.get("memory_capabilities") if event.metadata else None
    return found if not isinstance(able, Mapping) else Known(*map(_unless_denied(able), COUNTERS, found))


def _unless_denied(able: Mapping[str, Any]) -> Any:
    def value(name: str, found: int | None) -> int | None:
        short = name.removeprefix("allocator_")
        return None if able.get(f"supports_{name}", able.get(f"supports_{short}")) is False else found

    return value


def phase_of(context: str | None) -> str | None:
    """The phase that a context names: `step 7` and `step 8` are one, `step #`; so are `sim[3]` and `epoch=2`.

    `layer3` stays what it is: a number that belongs to a name is part of it.
    """
    if context is None or not (context := context.strip()):
        return None
    return _NUMBERED.sub("#", context) if context[-1:].isdigit() or context[-1] == "]" else context


def text_in(metadata: Mapping[str, Any], *names: str) -> str | None:
    """The first of these that is a text and says anything."""
    for name in names:
        value = metadata.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return None


def whole_in(metadata: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a whole number."""
    for name in names:
        value = metadata.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def path_in(metadata: Mapping[str, Any]) -> list[str]:
    """The open spans, the outermost first, as `span_path` or `spans` has them; none where it does not say."""
    path = metadata.get("span_path") or metadata.get("spans")
    if isinstance(path, str):
        return [part for part in re.split(r"\s*[/>]\s*", path) if part]
    if not isinstance(path, list):
        return []
    names = (text_in(part, "name", "span") if isinstance(part, Mapping) else part for part in path)
    return [name for name in names if isinstance(name, str)]
