"""The machine of the session, sampled from a thread."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from flightlog.compat.rhapsody.telemetry.adapters.base import TelemetryAdapter
from flightlog.compat.rhapsody.telemetry.events import ResourceUpdate, make_event

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
