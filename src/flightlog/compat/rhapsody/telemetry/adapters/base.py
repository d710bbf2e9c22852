"""What samples a backend's machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager


class TelemetryAdapter(ABC):
    """Tells a manager of `ResourceUpdate` events, from any thread. `stop` may come without a `start`.

    `_manager` is set by `TelemetryManager.register_adapter`.
    """

    _manager: TelemetryManager | None = None

    @abstractmethod
    def start(self) -> None:
        """Begin to sample; may raise, and then telemetry does not start."""

    @abstractmethod
    def stop(self) -> None:
        """Sample no more."""
