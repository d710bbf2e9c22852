"""Sessions of device-memory telemetry: one collector's life in one process, and which of several is meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from flightlog.events.devices.event import TelemetryEvent

COMPLETED, INTERRUPTED, INCOMPLETE, RUNNING = "completed", "interrupted", "incomplete", "running"
SESSION_STATUSES = (COMPLETED, INTERRUPTED, INCOMPLETE, RUNNING)
"""In the order in which sessions are preferred."""


class SessionSummary(Struct, frozen=True):
    """Who recorded, from when to when, and how it ended. Times are Unix nanoseconds; no end is known while
    None.
    """

    session_id: str
    status: str
    started_at_ns: int
    ended_at_ns: int | None
    host: str
    pid: int
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    source: str = "flightlog.session"


def summary_of_events(
    events: Sequence[TelemetryEvent], *, source: str, status: str = INCOMPLETE
) -> SessionSummary:
    """The summary that events in order of time tell; there must be one at least.

    A `stop` event completes the session, and the last of them ends it. Without one the end is not known.
    """
    first = events[0]
    stopped = next((event.timestamp_ns for event in reversed(events) if event.event_type == "stop"), None)
    return SessionSummary(
        session_id=first.session_id,
        status=status if stopped is None else COMPLETED,
        started_at_ns=first.timestamp_ns,
        ended_at_ns=stopped,
        host=first.host,
        pid=first.pid,
        job_id=first.job_id,
        rank=first.rank,
        local_rank=first.local_rank,
        world_size=first.world_size,
        source=source,
    )


def sort_session_summaries(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """The preferred session first: by status, then the latest, then by id."""
    return sorted(summaries, key=preference)


def preference(summary: SessionSummary) -> tuple[int, int, int, str]:
    """What sessions are sorted by."""
    rank = {status: number for number, status in enumerate(SESSION_STATUSES)}
    return (
        rank.get(summary.status, len(rank)),
        -(summary.ended_at_ns or summary.started_at_ns),
        -summary.started_at_ns,
        summary.session_id,
    )
