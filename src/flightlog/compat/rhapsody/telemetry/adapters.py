"""What samples a backend's machines."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flightlog.compat.rhapsody.telemetry.events import ResourceUpdate, make_event

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


log = logging.getLogger(__name__)


class ConcurrentTelemetryAdapter(TelemetryAdapter):
    """CPU, memory, disk and network of this machine, and its GPUs where NVIDIA's library is: one sample at
    once and then one every `interval` seconds, on a thread that does not keep the program from ending.

    What the machine does not tell is None.
    """

    def __init__(self, session_id: str, backend_name: str, interval: float = 5.0) -> None:
        self._about = {"session_id": session_id, "backend": backend_name, "node_id": socket.gethostname()}
        self._interval = interval
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: dict[str, tuple[float, float]] = {}

    def start(self) -> None:
        """Begin to sample."""
        self._over.clear()
        self._thread = threading.Thread(target=self._sample, name="telemetry-concurrent-adapter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sample no more."""
        self._over.set()

    def _sample(self) -> None:
        try:
            import psutil
        except ImportError:
            log.warning("psutil is not installed: this machine is not sampled")
            return
        psutil.cpu_percent(interval=None)  # the first answer means nothing
        gpus = _GpuUse()
        for name in ("disk", "net"):
            self._since(name, psutil)
        while True:
            try:
                self._tell(psutil, gpus.percents())
            except Exception:
                log.debug("a sample of this machine is missing", exc_info=True)
            if self._over.wait(self._interval):
                return

    def _tell(self, psutil: Any, gpus: dict[int, float]) -> None:
        assert self._manager is not None
        disk, net = self._since("disk", psutil), self._since("net", psutil)
        self._manager.emit(
            make_event(
                ResourceUpdate,
                **self._about,
                cpu_percent=psutil.cpu_percent(interval=None),
                memory_percent=psutil.virtual_memory().percent,
                gpu_percent=max(gpus.values(), default=None),
                disk_read_bytes=disk[0],
                disk_write_bytes=disk[1],
                net_sent_bytes=net[0],
                net_recv_bytes=net[1],
            )
        )
        for gpu, percent in gpus.items():
            self._manager.emit(make_event(ResourceUpdate, **self._about, gpu_percent=percent, gpu_id=gpu))

    def _since(self, name: str, psutil: Any) -> tuple[float | None, float | None]:
        """What was read and written, or sent and received, since this was asked last; None is unknown."""
        found = None
        with suppress(Exception):  # a container may hide its disks
            found = psutil.disk_io_counters() if name == "disk" else psutil.net_io_counters()
        before = self._before.pop(name, None)
        if found is None:
            return None, None
        if name == "disk":
            now = (float(found.read_bytes), float(found.write_bytes))
        else:
            now = (float(found.bytes_sent), float(found.bytes_recv))
        self._before[name] = now
        return (None, None) if before is None else (now[0] - before[0], now[1] - before[1])


class _GpuUse:
    """How busy each GPU is, by NVIDIA's library; one that does not answer is asked no more."""

    def __init__(self) -> None:
        self._ask: dict[int, Callable[[], float]] = {}
        try:
            pynvml = import_module("pynvml")
            pynvml.nvmlInit()
            for gpu in range(pynvml.nvmlDeviceGetCount()):
                self._ask[gpu] = lambda gpu=gpu: float(  # type: ignore[misc]
                    pynvml.nvmlDeviceGetUtilizationRates(pynvml.nvmlDeviceGetHandleByIndex(gpu)).gpu
                )
        except Exception:
            log.debug("no GPU is sampled", exc_info=True)

    def percents(self) -> dict[int, float]:
        found = {}
        for gpu, ask in list(self._ask.items()):
            try:
                found[gpu] = ask()
            except Exception as error:  # noqa: BLE001 - whatever a driver says
                del self._ask[gpu]
                log.warning("GPU %d does not say how busy it is (%s): it is asked no more", gpu, error)
        return found


class DaskTelemetryAdapter(TelemetryAdapter):
    """CPU, memory and disk of every worker: one sample at once and then one every `interval` seconds.

    `node_id` is the worker's host, `attributes["worker"]` its address. CPU and memory are the worker
    process's, of as many cores as it has threads and of its memory limit. Dask tells nothing of networks and
    GPUs.
    """

    def __init__(self, client: Any, session_id: str, backend_name: str, interval: float = 10.0) -> None:
        self._client = client
        self._about = {"session_id": session_id, "backend": backend_name}
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self._before: dict[str, tuple[float, float]] = {}

    def start(self) -> None:
        """Begin to sample, on the running event loop."""
        self._task = asyncio.create_task(self._sample(), name="telemetry-dask-adapter")

    def stop(self) -> None:
        """Sample no more."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _sample(self) -> None:
        while True:
            try:
                for address, worker in (await self._workers()).items():
                    self._tell(address, worker)
            except Exception:
                log.debug("a sample of the Dask workers is missing", exc_info=True)
            await asyncio.sleep(self._interval)

    async def _workers(self) -> Mapping[str, Any]:
        """All workers; an asynchronous client knows none of them by itself, so the scheduler is asked."""
        known: Mapping[str, Any] = self._client.scheduler_info().get("workers", {})
        if known or not getattr(self._client, "asynchronous", False):
            return known
        found = await self._client.scheduler.identity()
        workers: Mapping[str, Any] = found.get("workers", {})
        return workers

    def _tell(self, address: str, worker: Mapping[str, Any]) -> None:
        assert self._manager is not None
        metrics, limit = worker.get("metrics", {}), worker.get("memory_limit")
        memory, cpu = metrics.get("memory"), metrics.get("cpu")
        threads = worker.get("nthreads") or 1
        disk = self._since(address, metrics)
        self._manager.emit(
            make_event(
                ResourceUpdate,
                **self._about,
                node_id=worker.get("host") or address,
                cpu_percent=None if cpu is None else min(100.0, float(cpu) / threads),
                memory_percent=100.0 * memory / limit if memory is not None and limit else None,
                disk_read_bytes=disk[0],
                disk_write_bytes=disk[1],
                attributes={"worker": address},
            )
        )

    def _since(self, address: str, metrics: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """What was read and written since this was asked last; None is unknown.

        Older versions of Dask count `read_bytes` from the worker's start, newer ones tell `host_disk_io`.
        """
        disk = metrics.get("host_disk_io") or {}
        if "read_bps" in disk:
            return float(disk["read_bps"]) * self._interval, float(disk["write_bps"]) * self._interval
        if metrics.get("read_bytes") is None or metrics.get("write_bytes") is None:
            return None, None
        now = (float(metrics["read_bytes"]), float(metrics["write_bytes"]))
        before = self._before.get(address)
        self._before[address] = now
        return (
            (None, None) if before is None else (max(0.0, now[0] - before[0]), max(0.0, now[1] - before[1]))
        )
