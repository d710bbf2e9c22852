"""GPUs of NVIDIA, by NVML (`nvidia-ml-py`, module `pynvml`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from flightlog.samplers.gpu.driver import Ask, Depth, Device, Gpu, GpuDriver, visible

_UNINITIALIZED = 1
_NEVER = frozenset({2, 3, 4, 13, 22, 25, 26})
"""Invalid argument (of an instance), not supported, no permission, no such function, and the like."""
_GONE = frozenset({15, 16})
"""Lost, or in need of a reset."""
_UNKNOWN_BYTES = 2**64 - 1
_UNKNOWN_U32 = 2**32 - 1

_REASONS = {
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal_software",
    0x040: "thermal_hardware",
    0x080: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Idle (1) is no throttling, and left out."""


class NvmlDriver(GpuDriver):
    """NVML, opened for the devices that `CUDA_VISIBLE_DEVICES` leaves; see `GpuDriver`.

    NVML counts devices by their place on the PCI bus, CUDA by default by speed: where GPUs of several kinds
    are in one host and `CUDA_DEVICE_ORDER` is not `PCI_BUS_ID`, numbers may not match, and a note says so. Of
    an instance (MIG) NVML knows its memory and processes; power, utilization and the rest are known of the
    whole GPU alone, and are None. Where this version of NVML has it, what the driver keeps for itself is told
    apart from what is in use.
    """

    library_name = "NVML"

    def __init__(self, nvml: Any, environ: Mapping[str, str]) -> None:
        self._memory_version: int | None = getattr(nvml, "nvmlMemory_v2", None)
        super().__init__(nvml, environ)

    def _shut_down(self) -> None:
        self._library.nvmlShutdown()

    def _initialize(self) -> tuple[list[Any], list[Device]]:
        nvml = self._library
        nvml.nvmlInit()
        handles: list[Any] = []
        devices: list[Device] = []
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [self._text(nvml.nvmlDeviceGetUUID, gpu) for gpu in gpus]
        names = [self._text(nvml.nvmlDeviceGetName, gpu) for gpu in gpus]
        instances = [self._instances(gpu) for gpu in gpus]
        instance_uuids = [
            [self._text(nvml.nvmlDeviceGetUUID, one) or "" for one in found] for found in instances
        ]
        variable = self._environ.get("CUDA_VISIBLE_DEVICES")
        listed = [Gpu(uuid, parts) for uuid, parts in zip(uuids, instance_uuids, strict=True)]
        for ordinal, (index, part) in enumerate(visible(variable, listed)):
            handle = gpus[index] if part is None else instances[index][part]
            handles.append(handle)
            name = names[index] if part is None else self._text(nvml.nvmlDeviceGetName, handle)
            mig = None if part is None else instance_uuids[index][part]
            devices.append(Device(ordinal=ordinal, index=index, uuid=uuids[index], name=name, mig=mig))
        by_speed = self._environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        if by_speed and len({name for name in names if name}) > 1 and not _by_uuid(variable):
            self._note(
                "GPUs of several kinds are here, and CUDA may number them in another order than the driver: "
                "set CUDA_DEVICE_ORDER=PCI_BUS_ID to be sure which GPU a sample is of"
            )
        return handles, devices

    def _instances(self, gpu: Any) -> list[Any]:
        """Handles of a partitioned GPU's instances, in NVML's order; none where it is not partitioned."""
        nvml = self._library
        found: list[Any] = []
        with suppress(nvml.NVMLError, AttributeError):
            if nvml.nvmlDeviceGetMigMode(gpu)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
                return found
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(nvml.NVMLError):  # numbers are not dense
                    found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number))
        return found

    def _text(self, question: Any, handle: Any) -> str | None:
        try:
            text: str | bytes = question(handle)
        except self._library.NVMLError:
            return None
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else text

    def _fill(self, ask: Ask, depth: Depth, known: dict[str, Any]) -> None:
        nvml, memory = self._library, None
        if self._memory_version is not None:
            # Version 2 tells what the driver keeps for itself apart from what is in use.
            memory = ask("nvmlDeviceGetMemoryInfo", self._memory_version)
        if memory is None:
            memory = ask("nvmlDeviceGetMemoryInfo")
        for name in ("used", "free", "total"):
            known[f"memory_{name}_bytes"] = getattr(memory, name, None)
        if depth & Depth.RATES and (rates := ask("nvmlDeviceGetUtilizationRates")) is not None:
            known["utilization_percent"] = float(rates.gpu)
            known["memory_bus_percent"] = float(rates.memory)
        if depth & Depth.HISTORY:
            known["utilization_history"] = self._utilization_history(ask)
        if depth & Depth.POWER:
            known["power_w"] = _scaled(ask("nvmlDeviceGetPowerUsage"))
        if depth & Depth.COUNTERS:
            # Takes milliseconds on some.
            known["energy_j"] = _scaled(ask("nvmlDeviceGetTotalEnergyConsumption"))
        if depth & Depth.PROCESSES:
            known["processes"] = _by_pid(ask("nvmlDeviceGetComputeRunningProcesses"))
        if depth & Depth.COUNTERS:
            heat = ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
            if heat is None:  # the name from CUDA 14 on
                heat = ask("nvmlDeviceGetTemperatureV", nvml.NVML_TEMPERATURE_GPU)
            known["temperature_c"] = _float(heat)
            known["clock_mhz"] = _float(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM))
            known["memory_clock_mhz"] = _float(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM))
            mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
            if mask is None:  # the name before driver 535
                mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
            if mask is not None:
                known["throttle_reasons"] = [name for bit, name in _REASONS.items() if mask & bit]
            known["pcie_sent_bytes"], known["pcie_received_bytes"] = self._pcie_counters(ask)
        if depth & Depth.ERRORS:
            if known.get("pcie_sent_bytes") is None and known.get("pcie_received_bytes") is None:
                for name, direction in (("sent", "TX"), ("received", "RX")):  # each takes the driver 20 ms
                    which = getattr(nvml, f"NVML_PCIE_UTIL_{direction}_BYTES")
                    rate = ask("nvmlDeviceGetPcieThroughput", which)
                    known[f"pcie_{name}_bytes_per_s"] = None if rate is None else rate * 1024.0
            for name in ("corrected", "uncorrected"):
                which = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{name.upper()}")
                known[f"ecc_{name}"] = ask("nvmlDeviceGetTotalEccErrors", which, nvml.NVML_VOLATILE_ECC)

    def _utilization_history(self, ask: Any) -> list[tuple[float, float]] | None:
        kind = getattr(self._library, "NVML_GPU_UTILIZATION_SAMPLES", None)
        found = None if kind is None else ask("nvmlDeviceGetSamples", kind, 0)
        if found is None:
            return None
        return [(one.timeStamp / 1e6, float(one.sampleValue.uiVal)) for one in found[1]]

    def _pcie_counters(self, ask: Any) -> tuple[int | None, int | None]:
        """Bytes sent and received so far; None where the device or the library is too old to count them.

        Counters of 32 bits are as good as none: they may have wrapped several times since they were last
        read.
        """
        nvml = self._library
        fields = [
            getattr(nvml, name, None)
            for name in ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES")
        ]
        if None in fields:
            return None, None
        wide = (nvml.NVML_VALUE_TYPE_UNSIGNED_LONG, nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
        values = ask("nvmlDeviceGetFieldValues", fields)
        if values is None:
            return None, None
        sent, received = (
            int(one.value.ullVal) if one.nvmlReturn == nvml.NVML_SUCCESS and one.valueType in wide else None
            for one in values
        )
        return sent, received

    def _verdict(self, error: Exception) -> Literal["never", "gone", "later"]:
        code = getattr(error, "value", None)
        if code == _UNINITIALIZED:
            self._reopen = True  # somebody shut NVML down once too often
        if code in _GONE:
            return "gone"
        return "never" if code in _NEVER else "later"


def _by_uuid(variable: str | None) -> bool:
    return variable is not None and all(word.strip()[:4] in ("GPU-", "MIG-") for word in variable.split(","))


def _scaled(value: int | None) -> float | None:
    """Watts of milliwatts, joules of millijoules."""
    return None if value is None or value >= _UNKNOWN_BYTES else value / 1000


def _float(value: int | None) -> float | None:
    return None if value is None or value == _UNKNOWN_U32 else float(value)


def _by_pid(processes: Sequence[Any] | None) -> dict[int, int | None] | None:
    """Memory by process id; a process with several contexts or instances stands there more than once."""
    if processes is None:
        return None
    found: dict[int, int | None] = {}
    for process in processes:
        used, before = process.usedGpuMemory, found.get(process.pid, 0)
        known = used is not None and used != _UNKNOWN_BYTES and before is not None
        found[process.pid] = before + used if known else None
    return found
