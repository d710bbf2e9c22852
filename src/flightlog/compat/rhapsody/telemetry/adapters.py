"""Adapters: samplers of the machines that a backend runs on."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from flightlog.compat.rhapsody.telemetry.events import ResourceUpdate, make_event
from flightlog.events import ResourceSample
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.host import HostSampler
from flightlog.samplers.procfs import percent

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


class ConcurrentTelemetryAdapter(TelemetryAdapter):
    """CPU, memory, disk, network and GPUs of this machine, sampled on a daemon thread.

    One sample at once, then one every `interval` seconds. What the machine does not tell is None.
    """

    def __init__(self, session_id: str, backend_name: str, interval: float = 5.0) -> None:
        self._about = {"session_id": session_id, "backend": backend_name, "node_id": socket.gethostname()}
        self._interval = interval
        self._over = threading.Event()

    def start(self) -> None:
        """Start sampling."""
        self._over.clear()
        threading.Thread(target=self._sample, name="telemetry-concurrent-adapter", daemon=True).start()

    def stop(self) -> None:
        """Stop sampling."""
        self._over.set()

    def _sample(self) -> None:
        host, gpus = HostSampler(), GpuSampler()
        while True:
            try:
                self._emit_samples(host.sample(), gpus.sample())
            except Exception:
                log.debug("a sample of this machine is missing", exc_info=True)
            if self._over.wait(self._interval):
                break
        host.close()
        gpus.close()

    def _emit_samples(self, node: Sequence[ResourceSample], gpus: Sequence[ResourceSample]) -> None:
        assert self._manager is not None
        busy = {one.gpu_index: one.gpu_percent for one in gpus if one.gpu_percent is not None}
        for one in node:
            rates = {name: getattr(one, f"{name}_per_s") for name in _MOVED if one.interval_s is not None}
            used: dict[str, Any] = {
                "cpu_percent": one.cpu_percent,
                "memory_percent": percent(one.memory_used_bytes, one.memory_total_bytes),
                "gpu_percent": max(busy.values(), default=None),
                **{name: rate * one.interval_s for name, rate in rates.items() if rate is not None},
            }
            self._manager.emit(make_event(ResourceUpdate, **self._about, **used))
        for gpu, share in busy.items():
            self._manager.emit(make_event(ResourceUpdate, **self._about, gpu_percent=share, gpu_id=gpu))


class DaskTelemetryAdapter(TelemetryAdapter):
    """CPU, memory and disk of every Dask worker: one sample at once, then one every `interval` seconds.

    `node_id` is the worker's host, `attributes["worker"]` its address. CPU and memory are those of the worker
    process, relative to its threads and its memory limit. Dask reports no network and no GPUs.
    """

    def __init__(self, client: Any, session_id: str, backend_name: str, interval: float = 10.0) -> None:
        self._client = client
        self._about = {"session_id": session_id, "backend": backend_name}
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self._before: dict[str, tuple[float, float]] = {}

    def start(self) -> None:
        """Start sampling, on the running event loop."""
        self._task = asyncio.create_task(self._sample(), name="telemetry-dask-adapter")

    def stop(self) -> None:
        """Stop sampling."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _sample(self) -> None:
        while True:
            try:
                for address, worker in (await self._workers()).items():
                    self._emit_sample(address, worker)
            except Exception:
                log.debug("a sample of the Dask workers is missing", exc_info=True)
            await asyncio.sleep(self._interval)

    async def _workers(self) -> Mapping[str, Any]:
        """All workers, from the scheduler: an asynchronous client may not know them."""
        found: Mapping[str, Any] = self._client.scheduler_info()
        if not found.get("workers") and getattr(self._client, "asynchronous", False):
            found = await self._client.scheduler.identity()
        return cast("Mapping[str, Any]", found.get("workers", {}))

    def _emit_sample(self, address: str, worker: Mapping[str, Any]) -> None:
        assert self._manager is not None
        metrics, limit = worker.get("metrics", {}), worker.get("memory_limit")
        memory, cpu = metrics.get("memory"), metrics.get("cpu")
        threads = worker.get("nthreads") or 1
        read, written = self._since(address, metrics)
        sample = make_event(
            ResourceUpdate,
            **self._about,
            node_id=worker.get("host") or address,
            cpu_percent=None if cpu is None else min(100.0, float(cpu) / threads),
            memory_percent=100.0 * memory / limit if memory is not None and limit else None,
            disk_read_bytes=read,
            disk_write_bytes=written,
            attributes={"worker": address},
        )
        self._manager.emit(sample)

    def _since(self, address: str, metrics: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Bytes read and written since the last call; None is unknown.

        Older versions of Dask count `read_bytes` from the worker's start, newer ones have `host_disk_io`.
        """
        disk = metrics.get("host_disk_io") or {}
        if "read_bps" in disk:
            return float(disk["read_bps"]) * self._interval, float(disk["write_bps"]) * self._interval
        if metrics.get("read_bytes") is None or metrics.get("write_bytes") is None:
            return None, None
        now = (float(metrics["read_bytes"]), float(metrics["write_bytes"]))
        before, self._before[address] = self._before.get(address), now
        if before is None:
            return None, None
        return max(0.0, now[0] - before[0]), max(0.0, now[1] - before[1])
