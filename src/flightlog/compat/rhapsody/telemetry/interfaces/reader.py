"""Metrics and spans, when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager


class TelemetryReader:
    """Reads what a manager has."""

    def __init__(self, manager: TelemetryManager) -> None:
        self._manager = manager

    def read_metrics(self) -> Any:
        """The metrics now, as OpenTelemetry's `MetricsData`."""
        return self._manager.read_metrics()

    def read_traces(self, session_id: str | None = None, task_id: str | None = None) -> tuple[Any, ...]:
        """The spans that have ended, of one session or task if that is said."""
        wanted = {"session_id": session_id, "task_id": task_id}
        return tuple(
            span
            for span in self._manager.read_traces()
            if all(value is None or span.attributes.get(name) == value for name, value in wanted.items())
        )
