"""The GPUs that the run can see, by their driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flightlog.core import threads
from flightlog.events.declarations import ResourceSample
from flightlog.samplers.gpu.driver import (
    Depth,
    Device,
    DeviceReading,
    DriverFound,
    GpuDriver,
    find_driver,
    import_driver,
    tree_memory,
)
from flightlog.samplers.limits import SamplerLimits
from flightlog.samplers.procfs import PROC, rate

_SAME = {f"gpu_{name}": name for name in DeviceReading.__struct_fields__}
_SAME = {name: source for name, source in _SAME.items() if name in ResourceSample.__struct_fields__}
"""What a sample holds as the driver says it, and what the driver calls it."""


class GpuSampler:
    """Samples every visible GPU, in scope `gpu`: one sample a device and call, none where there are no GPUs.

    Memory, utilization and power are in every sample. Utilization is that of the time since the previous
    sample where the driver remembers so much; else, and where samples follow each other closely, that of the
    driver's own last period, a fraction of a second. Energy, temperature, clocks, throttling, the memory of
    the run's own processes and PCIe traffic are asked for once a second at most, and in the last sample; ECC
    errors (and PCIe traffic of GPUs that do not count it, where asking takes 20 ms) every ten seconds. In the
    samples between they are None, as is what a device does not support.

    A driver may take a second to wake up: it is opened on a thread of its own, and until it answers there are
    no samples. Where there is none, calls after the first cost nothing. `notes` says what is wrong with GPUs
    that seem to be there. One thread at a time; after a fork the child starts afresh.
    """

    def __init__(
        self,
        find: Callable[[], DriverFound] = find_driver,
        clock: Callable[[], float] = time.monotonic,
        host: str | None = None,
        proc: Path = PROC,
        first_look_s: float = SamplerLimits.driver_wakeup_wait_s,
    ) -> None:
        self._find, self._clock, self._proc, self._first_look_s = find, clock, proc, first_look_s
        self._host = host if host is not None else os.uname().nodename
        self._note: str | None = None
        self._driver: GpuDriver | None = None
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._look: threads.Thread | None = None
        self._driver = None  # the parent's: it is not ours to close
        self._at: float | None = None
        self._second_at: float | None = None
        self._rare_at: float | None = None
        self._pcie: dict[int, tuple[float, DeviceReading]] = {}

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong, each thing once: a GPU that seems to be there and cannot be read, or was lost."""
        found = [] if self._note is None else [self._note]
        return [*found, *(self._driver.notes if self._driver is not None else ())]

    def sample(self) -> Sequence[ResourceSample]:
        """The GPUs now."""
        return self._sample(Depth.OFTEN)

    def last_sample(self) -> Sequence[ResourceSample]:
        """The GPUs at the end: counters too, however shortly ago they were read."""
        return self._sample(Depth.SECOND)

    def _sample(self, at_least: Depth) -> Sequence[ResourceSample]:
        if self._pid != os.getpid():
            self._start_afresh()
        if self._look is None:
            import_driver()  # here, where modules are read safely
            self._look = threads.Thread(target=self._find_driver, name="flightlog-gpu")
            self._look.start()
            self._look.join(self._first_look_s)
        driver = self._driver
        if driver is None:
            return []
        at = self._clock()
        depth = at_least | self._depth(at)
        interval = None if self._at is None else at - self._at
        self._at = at
        if interval is not None and interval >= SamplerLimits.min_interval_for_gpu_history_s:
            depth |= Depth.HISTORY
        return [
            self._sample_of(device, driver.read(device, depth), interval, at) for device in driver.devices()
        ]

    def close(self) -> None:
        """Let the driver go; the next sample opens it again."""
        if self._driver is not None and self._pid == os.getpid():
            self._driver.close()

    def _find_driver(self) -> None:
        found = self._find()
        self._driver, self._note = found.driver, found.note

    def _depth(self, at: float) -> Depth:
        if self._rare_at is None or at - self._rare_at >= SamplerLimits.rare_readings_interval_s:
            self._rare_at = self._second_at = at
            return Depth.RARE
        if self._second_at is None or at - self._second_at >= SamplerLimits.costly_readings_interval_s:
            self._second_at = at
            return Depth.SECOND
        return Depth.OFTEN

    def _sample_of(
        self, device: Device, now: DeviceReading, interval: float | None, at: float
    ) -> ResourceSample:
        sent, received = self._traffic(device, now, at)
        return ResourceSample(
            scope="gpu",
            host=self._host,
            cpu_percent=None,
            interval_s=interval,
            gpu_index=device.index,
            gpu_uuid=device.uuid,
            gpu_name=device.name,
            gpu_mig=device.mig,
            gpu_percent=now.utilization_over(interval or 0.0),
            gpu_process_memory_bytes=tree_memory(now.processes, self._pid, self._proc).used_bytes,
            **{name: getattr(now, source) for name, source in _SAME.items()}
            | {"gpu_pcie_sent_bytes_per_s": sent, "gpu_pcie_received_bytes_per_s": received},
        )

    def _traffic(self, device: Device, now: DeviceReading, at: float) -> tuple[float | None, float | None]:
        """Rates since the counters were last read, which is longer ago than the last sample; else the
        driver's.
        """
        if now.pcie_sent_bytes is None and now.pcie_received_bytes is None:
            return now.pcie_sent_bytes_per_s, now.pcie_received_bytes_per_s
        last = self._pcie.get(device.ordinal)
        self._pcie[device.ordinal] = (at, now)
        if last is None:
            return None, None
        passed, before = at - last[0], last[1]
        return (
            rate(now.pcie_sent_bytes, before.pcie_sent_bytes, passed),
            rate(now.pcie_received_bytes, before.pcie_received_bytes, passed),
        )
