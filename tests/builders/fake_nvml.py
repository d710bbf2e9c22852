"""A stand-in for the module `pynvml` on machines without a GPU: its functions, structures and errors.

`test_the_fake_has_the_names_of_the_real_module` holds it to the real one. Every function may be made to fail
with an error code, for a device or for all, and every call is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml as real

CODES = {
    "Uninitialized": 1,
    "InvalidArgument": 2,
    "NotSupported": 3,
    "NoPermission": 4,
    "NotFound": 6,
    "DriverNotLoaded": 9,
    "Timeout": 10,
    "LibraryNotFound": 12,
    "FunctionNotFound": 13,
    "GpuIsLost": 15,
    "ResetRequired": 16,
    "Unknown": 999,
}


@dataclass
class FakeGpu:
    """One device, or one instance of one."""

    uuid: str = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    name: str = "NVIDIA H200"
    bus_id: bytes = b"00000000:18:00.0"
    total: int = 150_000
    used: int = 20_000
    reserved: int = 500
    gpu_percent: int = 40
    bus_percent: int = 7
    history: list[tuple[int, int]] = field(default_factory=list)
    """Microseconds and percent of each period that the driver remembers."""
    power_mw: int = 300_000
    energy_mj: int = 5_000_000
    temperature: int = 61
    sm_mhz: int = 1980
    memory_mhz: int = 3201
    reasons: int = 0x4 | 0x1
    corrected: int = 2
    uncorrected: int = 0
    pcie_sent: int | None = 1_000
    pcie_received: int | None = 2_000
    pcie_value_type: int = 3
    pcie_kb_per_s: tuple[int, int] = (3, 5)
    processes: dict[int, int | None] = field(default_factory=dict)
    instances: list[FakeGpu | None] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)


class FakeNvml:
    """The module: `find_driver(nvml=FakeNvml([FakeGpu()]))`."""

    NVML_SUCCESS = 0
    NVML_TEMPERATURE_GPU = 0
    NVML_GPU_UTILIZATION_SAMPLES = 1
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_VOLATILE_ECC = 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES, NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 197, 198
    NVML_VALUE_TYPE_UNSIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_LONG, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 1, 2, 3
    NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1
    nvmlMemory_v2 = 0x02000028
    NVMLError = real.NVMLError

    def __init__(self, gpus: list[FakeGpu] | None = None, *, failing: dict[str, str] | None = None) -> None:
        self.gpus = [FakeGpu()] if gpus is None else gpus
        self.failing = failing or {}
        self.calls: Counter[str] = Counter()
        self.open = 0

    def _called(self, name: str, gpu: FakeGpu | None = None) -> None:
        self.calls[name] += 1
        error = (gpu.failing.get(name) or gpu.failing.get("*")) if gpu is not None else None
        error = error or self.failing.get(name)
        if error is None and name != "nvmlInit" and not self.open:
            error = "Uninitialized"
        if error is not None:
            raise self.NVMLError(CODES[error])

    def nvmlInit(self) -> None:
        self._called("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self._called("nvmlShutdown")
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._called("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._called("nvmlDeviceGetHandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        self._called("nvmlDeviceGetUUID", handle)
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        self._called("nvmlDeviceGetName", handle)
        return handle.name

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> SimpleNamespace:
        self._called("nvmlDeviceGetPciInfo", handle)
        return SimpleNamespace(busId=handle.bus_id)

    def nvmlDeviceGetMigMode(self, device: FakeGpu) -> list[int]:
        self._called("nvmlDeviceGetMigMode", device)
        return [int(bool(device.instances))] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeGpu) -> int:
        self._called("nvmlDeviceGetMaxMigDeviceCount", device)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeGpu, index: int) -> FakeGpu:
        self._called("nvmlDeviceGetMigDeviceHandleByIndex", device)
        found = device.instances[index] if index < len(device.instances) else None
        if found is None:
            raise self.NVMLError(CODES["NotFound"])
        return found

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu, version: int | None = None) -> SimpleNamespace:
        name = "nvmlDeviceGetMemoryInfo"
        self._called(name if not version else f"{name}_v2", handle)
        free = handle.total - handle.used - handle.reserved
        if not version:
            return SimpleNamespace(total=handle.total, free=free, used=handle.total - free)
        return SimpleNamespace(
            version=version, total=handle.total, reserved=handle.reserved, free=free, used=handle.used
        )

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> SimpleNamespace:
        self._called("nvmlDeviceGetUtilizationRates", handle)
        return SimpleNamespace(gpu=handle.gpu_percent, memory=handle.bus_percent)

    def nvmlDeviceGetSamples(
        self, device: FakeGpu, sampling_type: int, timeStamp: int
    ) -> tuple[int, list[SimpleNamespace]]:
        self._called("nvmlDeviceGetSamples", device)
        if sampling_type != self.NVML_GPU_UTILIZATION_SAMPLES or not device.history:
            raise self.NVMLError(CODES["NotFound"])
        return self.NVML_VALUE_TYPE_UNSIGNED_INT, [
            SimpleNamespace(timeStamp=stamp, sampleValue=SimpleNamespace(uiVal=percent))
            for stamp, percent in device.history
            if stamp > timeStamp
        ]

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:
        self._called("nvmlDeviceGetPowerUsage", handle)
        return handle.power_mw

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: FakeGpu) -> int:
        self._called("nvmlDeviceGetTotalEnergyConsumption", handle)
        return handle.energy_mj

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[SimpleNamespace]:
        self._called("nvmlDeviceGetComputeRunningProcesses", handle)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.processes.items()]

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> int:
        self._called("nvmlDeviceGetTemperature", handle)
        return handle.temperature

    def nvmlDeviceGetTemperatureV(self, handle: FakeGpu, sensor: int, version: int = 1) -> int:
        self._called("nvmlDeviceGetTemperatureV", handle)
        return handle.temperature

    def nvmlDeviceGetClockInfo(self, handle: FakeGpu, type: int) -> int:  # noqa: A002 - the real one's name
        self._called("nvmlDeviceGetClockInfo", handle)
        return {self.NVML_CLOCK_SM: handle.sm_mhz, self.NVML_CLOCK_MEM: handle.memory_mhz}[type]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: FakeGpu) -> int:
        self._called("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return handle.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: FakeGpu) -> int:
        self._called("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return handle.reasons

    def nvmlDeviceGetTotalEccErrors(self, handle: FakeGpu, errorType: int, counterType: int) -> int:
        self._called("nvmlDeviceGetTotalEccErrors", handle)
        return (
            handle.uncorrected if errorType == self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else handle.corrected
        )

    def nvmlDeviceGetFieldValues(self, handle: FakeGpu, fieldIds: list[int]) -> list[SimpleNamespace]:
        self._called("nvmlDeviceGetFieldValues", handle)
        known = {197: handle.pcie_sent, 198: handle.pcie_received}
        return [
            SimpleNamespace(
                fieldId=one,
                valueType=handle.pcie_value_type,
                nvmlReturn=CODES["NotSupported"] if known[one] is None else self.NVML_SUCCESS,
                value=SimpleNamespace(ullVal=known[one] or 0),
            )
            for one in fieldIds
        ]

    def nvmlDeviceGetPcieThroughput(self, device: FakeGpu, counter: int) -> int:
        self._called("nvmlDeviceGetPcieThroughput", device)
        return device.pcie_kb_per_s[counter]
