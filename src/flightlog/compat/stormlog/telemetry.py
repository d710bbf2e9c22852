"""Device-memory events: their schema, and loading them from files."""

from __future__ import annotations

from pathlib import Path

from flightlog import devices
from flightlog.compat.stormlog.session import answer_to_dataclasses
from flightlog.devices import *  # noqa: F403 - events, sessions and what reads them are Flightlog's own
from flightlog.devices import TelemetryEvent, TelemetryEventV2, TelemetryEventV3, load_telemetry_sessions
from flightlog.events.devices.event import OPTIONAL_FIELDS, REQUIRED_V2_FIELDS, REQUIRED_V3_FIELDS
from flightlog.events.devices.records import UNKNOWN_HOST, UNKNOWN_PID
from flightlog.store.devices.reading import events_of

OPTIONAL_V2_FIELDS = OPTIONAL_V3_FIELDS = OPTIONAL_FIELDS
KNOWN_V2_FIELD_SET = frozenset(REQUIRED_V2_FIELDS + OPTIONAL_V2_FIELDS)
KNOWN_V3_FIELD_SET = frozenset(REQUIRED_V3_FIELDS + OPTIONAL_V3_FIELDS)


for _kind, _required in ((TelemetryEventV2, REQUIRED_V2_FIELDS), (TelemetryEventV3, REQUIRED_V3_FIELDS)):
    answer_to_dataclasses(_kind, [*_required[:-1], *OPTIONAL_FIELDS, _required[-1]])


def load_telemetry_events(  # type: ignore[no-redef] # Flightlog's raises for a session that no file has
    path: str | Path,
    permissive_legacy: bool = True,
    events_key: str | None = None,
    session_id: str | None = None,
) -> list[TelemetryEvent]:
    """The events of one session, by time: the given one, or the preferred one of those with events.

    Raises ValueError for an unknown session; empty where there is no session at all.
    """
    sessions = load_telemetry_sessions(path, permissive_legacy, events_key)
    return list(events_of(sessions, session_id)) if sessions else []


__all__ = [
    "KNOWN_V2_FIELD_SET",
    "KNOWN_V3_FIELD_SET",
    "OPTIONAL_V2_FIELDS",
    "OPTIONAL_V3_FIELDS",
    "REQUIRED_V2_FIELDS",
    "REQUIRED_V3_FIELDS",
    "UNKNOWN_HOST",
    "UNKNOWN_PID",
]
__all__ += devices.__all__
