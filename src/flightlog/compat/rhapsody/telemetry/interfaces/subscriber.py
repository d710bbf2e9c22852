"""Events, as they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flightlog.compat.rhapsody.telemetry.events import BaseEvent

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager


class TelemetrySubscriber:
    """Listens to what a manager tells."""

    def __init__(self, manager: TelemetryManager) -> None:
        self._manager = manager

    def subscribe(self, callback: Callable[[BaseEvent], Any]) -> None:
        """Call this function, or coroutine function, with every event; see `TelemetryManager.subscribe`."""
        self._manager.subscribe(callback)
