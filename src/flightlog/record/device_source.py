"""Where a tracker's figures come from: the framework's allocator once there is one, and the GPU's driver
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flightlog.record.device_events import DeviceUse
from flightlog.samplers.frameworks.allocator import HOST, Allocator, AllocatorReading
from flightlog.samplers.frameworks.finding import AUTO, find_allocator
from flightlog.samplers.gpu_driver import Device, GpuDriver, open_driver

LOOK_AGAIN = 10
"""A program on the host may still turn to an accelerator: looked for again every so many times."""


class DeviceSource:
    """Readings of the devices that a program uses; one thread at a time. May raise what the framework raises.

    `failed` is what the last reading met on a device, while others could be read.
    """

    def __init__(
        self,
        wanted: str = AUTO,
        *,
        find: Callable[[str], Allocator | None] = find_allocator,
        driver: Callable[[], GpuDriver | None] = open_driver,
    ) -> None:
        self.allocator: Allocator | None = None
        self._wanted, self._find, self._open = wanted, find, driver
        self._driver: GpuDriver | None = None
        self._driver_asked = False
        self._devices: Mapping[int, Device] = {}
        self._looked = 0
        self.failed: Exception | None = None

    def look(self) -> Allocator | None:
        """The allocator of the program's framework, as soon as it has one."""
        found = self.allocator
        self._looked += 1
        on_host = found is not None and found.name.endswith(".cpu") and not self._wanted.endswith(".cpu")
        if found is None or (on_host and self._looked % LOOK_AGAIN == 0):
            self.allocator = self._find(self._wanted) or found
        return self.allocator

    def read(self) -> list[tuple[int, AllocatorReading, DeviceUse]]:
        """Every device in use that can be read: its number, its allocator's figures, and its memory by
        everyone.
        """
        self.failed = None
        allocator = self.look()
        if allocator is None:
            return []
        found = []
        for device in allocator.devices():
            try:
                reading = allocator.read(device)
            except Exception as error:  # noqa: BLE001 - one device that is lost must not hide the others
                self.failed = error
                continue
            found.append((device, reading, self._use(allocator, device, reading)))
        if self.failed is not None and not found:
            raise self.failed
        return found

    def close(self) -> None:
        """Let the driver go."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _use(self, allocator: Allocator, device: int, reading: AllocatorReading) -> DeviceUse:
        if device == HOST:
            return _told(reading, "driver")
        if not self._driver_asked:
            self._driver_asked = True
            self._driver = self._open()
            if self._driver is not None:
                self._devices = {known.ordinal: known for known in self._driver.devices()}
        known = self._devices.get(device)
        if self._driver is not None and known is not None:
            memory = self._driver.memory(known)
            if memory.used_bytes is not None:
                return DeviceUse(
                    memory.used_bytes,
                    memory.free_bytes,
                    memory.total_bytes,
                    "driver",
                    known.mig or known.uuid,
                )
        ask: Any = getattr(allocator, "device_memory", None)
        if ask is not None:
            try:
                free, total = ask(device)
                return DeviceUse(max(total - free, 0), free, total, "driver")
            except Exception as error:  # noqa: BLE001 - the allocator's own figures are worth having without
                self.failed = error
        return _told(reading, "driver" if reading.device_used_bytes is not None else None)


def _told(reading: AllocatorReading, source: str | None) -> DeviceUse:
    return DeviceUse(
        reading.device_used_bytes,
        reading.device_free_bytes,
        reading.device_total_bytes,
        source if reading.device_used_bytes is not None else None,
    )
