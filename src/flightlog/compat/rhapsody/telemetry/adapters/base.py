"""The base of adapters; and a machine's samples as events, which those of several backends emit."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flightlog.compat.rhapsody.telemetry.events import ResourceUpdate, make_event
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.host import HostSampler
from flightlog.samplers.procfs import percent
from flightlog.store.liveness import this_host

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager

log = logging.getLogger(__name__)

_MOVED = ("disk_read_bytes", "disk_write_bytes", "net_sent_bytes", "net_recv_bytes")


class TelemetryAdapter(ABC):
    """Emits `ResourceUpdate` events to a manager, from any thread. `stop` may come without a `start`.

    `_manager` is set by `TelemetryManager.register_adapter`.
    """

    _manager: TelemetryManager | None = None

    @abstractmethod
    def start(self) -> None:
        """Start sampling; may raise, and then telemetry does not start."""

    @abstractmethod
    def stop(self) -> None:
        """Stop sampling."""


class MachineSamples:
    """CPU, memory, disk, network and GPUs of this machine, as the fields of `ResourceUpdate` events.

    What the machine does not tell is None. CPU and bytes are since the sample before, or since this was
    made. `notes` says what is wrong with GPUs that seem to be there.
    """

    def __init__(self) -> None:
        self._host, self._gpus = HostSampler(), GpuSampler()
        self._host.sample()

    @property
    def notes(self) -> list[str]:
        """What is wrong with GPUs that seem to be there, and how to mend it."""
        return list(self._gpus.notes)

    def take(self) -> Iterator[dict[str, Any]]:
        """A sample of the node, and one of each GPU."""
        node, gpus = self._host.sample(), self._gpus.sample()
        busy = {one.gpu_index: one.gpu_percent for one in gpus if one.gpu_percent is not None}
        for one in node:
            rates = {name: getattr(one, f"{name}_per_s") for name in _MOVED if one.interval_s is not None}
            yield {
                "node_id": this_host(),
                "cpu_percent": one.cpu_percent,
                "memory_percent": percent(one.memory_used_bytes, one.memory_total_bytes),
                "gpu_percent": max(busy.values(), default=None),
                **{name: rate * one.interval_s for name, rate in rates.items() if rate is not None},
            }
        for gpu, share in busy.items():
            yield {"node_id": this_host(), "gpu_percent": share, "gpu_id": gpu}

    def close(self) -> None:
        """Sample no more."""
        self._host.close()
        self._gpus.close()


class EmittingAdapter(TelemetryAdapter):
    """An adapter that emits samples given by their fields, every `interval` seconds."""

    def __init__(self, session_id: str, backend_name: str, interval: float) -> None:
        self._about = {"session_id": session_id, "backend": backend_name}
        self._interval = interval

    def _emit(self, **sample: Any) -> None:
        assert self._manager is not None
        self._manager.emit(make_event(ResourceUpdate, **self._about, **sample))
