"""Sessions: one collector in one process, its status, and the preferred one of several."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import make_dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from msgspec import structs

from flightlog.events.devices import event as core
from flightlog.events.devices.event import SessionSummary, stable_legacy_session_id

SESSION_STATUS_RUNNING = core.RUNNING
SESSION_STATUS_COMPLETED = core.COMPLETED
SESSION_STATUS_INTERRUPTED = core.INTERRUPTED
SESSION_STATUS_INCOMPLETE = core.INCOMPLETE
SESSION_STATUSES = frozenset(core.SESSION_STATUSES)

_UNCHANGED: Any = object()


def answer_to_dataclasses(kind: Any, names: Iterable[str]) -> None:
    """Make `dataclasses.asdict`, `fields` and `replace` work on a msgspec struct, and `dataclass` on classes
    derived from it.
    """
    shadow: Any = make_dataclass(kind.__name__, names, frozen=kind.__struct_config__.frozen)
    kind.__dataclass_fields__ = shadow.__dataclass_fields__
    kind.__dataclass_params__ = shadow.__dataclass_params__


answer_to_dataclasses(SessionSummary, SessionSummary.__struct_fields__)


class _HasSummary(Protocol):
    summary: SessionSummary


SessionLike = TypeVar("SessionLike", bound=SessionSummary | _HasSummary)


def now_ns() -> int:
    """Unix time in nanoseconds."""
    return time.time_ns()


def new_session_id() -> str:
    """A new unique id."""
    return str(uuid4())


def normalize_session_status(value: object) -> str:
    """A status in its written form. Raises ValueError for an unknown one."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("session status must be a non-empty string")
    status = value.strip().lower()
    if status not in SESSION_STATUSES:
        raise ValueError(f"Unsupported session status: {value}")
    return status


def create_session_summary(
    *,
    source: str,
    status: str = SESSION_STATUS_RUNNING,
    session_id: str | None = None,
    started_at_ns: int | None = None,
    ended_at_ns: int | None = None,
    host: str | None = None,
    pid: int | None = None,
    job_id: str | None = None,
    rank: int = 0,
    local_rank: int = 0,
    world_size: int = 1,
) -> SessionSummary:
    """A session; the defaults are a new id, now, this host and this process."""
    return SessionSummary(
        session_id=session_id or new_session_id(),
        status=normalize_session_status(status),
        started_at_ns=now_ns() if started_at_ns is None else int(started_at_ns),
        ended_at_ns=None if ended_at_ns is None else int(ended_at_ns),
        host=host or socket.gethostname(),
        pid=os.getpid() if pid is None else int(pid),
        job_id=job_id,
        rank=int(rank),
        local_rank=int(local_rank),
        world_size=max(1, int(world_size)),
        source=source,
    )


def update_session_summary(
    summary: SessionSummary,
    *,
    status: str | None = None,
    ended_at_ns: int | None = _UNCHANGED,
    source: str | None = None,
) -> SessionSummary:
    """The session with the given fields replaced; an `ended_at_ns` of None removes its end."""
    ended = summary.ended_at_ns if ended_at_ns is _UNCHANGED else ended_at_ns
    return structs.replace(
        summary,
        status=summary.status if status is None else normalize_session_status(status),
        ended_at_ns=None if ended is None else int(ended),
        source=summary.source if source is None else source,
    )


def finalize_session_summary(summary: SessionSummary, *, ended_at_ns: int | None = None) -> SessionSummary:
    """The session, ended now or at the given time; a running one has completed, others keep their status."""
    running = summary.status == SESSION_STATUS_RUNNING
    return update_session_summary(
        summary,
        status=SESSION_STATUS_COMPLETED if running else summary.status,
        ended_at_ns=now_ns() if ended_at_ns is None else ended_at_ns,
    )


def session_summary_to_dict(summary: SessionSummary) -> dict[str, Any]:
    """The session as JSON values."""
    return structs.asdict(summary)


def session_summary_from_dict(payload: Mapping[str, Any]) -> SessionSummary:
    """The session from JSON values. Raises ValueError where its id, source, status, start or host is
    missing.
    """
    if not isinstance(payload, Mapping):
        # One error for bad records.
        raise ValueError("session summary payload must be an object")  # noqa: TRY004
    for name in ("session_id", "source", "host"):
        value = payload.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} must be a non-empty string")
    status = normalize_session_status(payload.get("status"))
    if payload.get("started_at_ns") is None:
        raise ValueError("started_at_ns must be present")
    given = {
        name: payload[name] for name in SessionSummary.__struct_fields__ if payload.get(name) is not None
    }
    return create_session_summary(**{"pid": -1, **given, "status": status})


def infer_session_summary_from_events(
    *, session_id: str, events: Iterable[Any], source: str, fallback_status: str = SESSION_STATUS_INCOMPLETE
) -> SessionSummary:
    """The session inferred from events: from the first event to the last `stop`; without events, one that
    starts now.
    """
    ordered = sorted(events, key=lambda event: int(event.timestamp_ns))
    if not ordered:
        return create_session_summary(source=source, status=fallback_status, session_id=session_id)
    first = ordered[0]
    stops = [event for event in ordered if getattr(event, "event_type", "") == "stop"]
    known = {
        name: getattr(first, name) for name in ("host", "pid", *core.OPTIONAL_FIELDS) if hasattr(first, name)
    }
    return create_session_summary(
        source=source,
        status=SESSION_STATUS_COMPLETED if stops else fallback_status,
        session_id=session_id,
        started_at_ns=first.timestamp_ns,
        ended_at_ns=stops[-1].timestamp_ns if stops else None,
        **{"host": "unknown", "pid": -1, **known},
    )


def sort_session_summaries(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """The preferred session first: by status, then the latest, then by id."""
    return sorted(summaries, key=_preference)


def select_default_session(sessions: Iterable[SessionLike]) -> SessionLike | None:
    """The preferred one of sessions, or of objects with a session as `summary`; None if there is none."""
    return min(sessions, key=_preference, default=None)


def select_default_loaded_session(sessions: Iterable[Any]) -> Any | None:
    """The preferred one of loaded sessions, of those with events if there are any."""
    loaded = list(sessions)
    return select_default_session([session for session in loaded if len(session.events) > 0] or loaded)


def _preference(session: Any) -> tuple[int, int, int, str]:
    return core.preference(getattr(session, "summary", session))


__all__ = [
    "SESSION_STATUSES",
    "SESSION_STATUS_COMPLETED",
    "SESSION_STATUS_INCOMPLETE",
    "SESSION_STATUS_INTERRUPTED",
    "SESSION_STATUS_RUNNING",
    "SessionSummary",
    "create_session_summary",
    "finalize_session_summary",
    "infer_session_summary_from_events",
    "new_session_id",
    "normalize_session_status",
    "now_ns",
    "select_default_loaded_session",
    "select_default_session",
    "session_summary_from_dict",
    "session_summary_to_dict",
    "sort_session_summaries",
    "stable_legacy_session_id",
    "update_session_summary",
]
