"""GPUs of NVIDIA, by NVML (`nvidia-ml-py`, module `pynvml`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flightlog.samplers.gpu_answers import Answers, Gone, asking
from flightlog.samplers.gpu_driver import Depth, Device, DeviceMemoryReading, DeviceReading
from flightlog.samplers.gpu_visible import Gpu, visible

_UNINITIALIZED = 1
_NEVER = frozenset({2, 3, 4, 13, 22, 25, 26})
"""Invalid argument (of an instance), not supported, no permission, no such function, and the like."""
_GONE = frozenset({15, 16})
"""Lost, or in need of a reset."""
_UNKNOWN_BYTES = 2**64 - 1
_UNKNOWN_U32 = 2**32 - 1

_Ask = Callable[..., Any]
"""Asks a function of NVML about one device by name; None is no answer."""

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


class NvmlDriver:
    """NVML, opened for the devices that `CUDA_VISIBLE_DEVICES` leaves; see `GpuDriver`.

    Opening raises what NVML raises. NVML counts devices by their place on the PCI bus, CUDA by default by speed: where
    GPUs of several kinds are in one host and `CUDA_DEVICE_ORDER` is not `PCI_BUS_ID`, numbers may not match, and a
    note says so. Of an instance (MIG) NVML knows its memory and processes; power, utilization and the rest are known
    of the whole GPU alone, and are None.

    A forked child opens NVML again by itself, and never closes what it inherited.
    """

    def __init__(self, nvml: Any, environ: Mapping[str, str]) -> None:
        self._nvml, self._environ = nvml, environ
        self._answers = Answers(self._verdict)
        self._notes: list[str] = []
        self._handles: list[Any] = []
        self._devices: list[Device] = []
        self._memory_version: int | None = getattr(nvml, "nvmlMemory_v2", None)
        self._pid, self._reopen = -1, False
        with asking():
            self._open()

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong."""
        return tuple(self._notes)

    def devices(self) -> Sequence[Device]:
        """Those that this process can see."""
        self._be_open()
        return tuple(self._devices)

    def memory(self, device: Device) -> DeviceMemoryReading:
        """Memory now."""
        self._be_open()
        try:
            return self._memory_of(device)
        except Gone as lost:
            self._note_lost(device, lost)
            return DeviceMemoryReading()

    def busy(self, device: Device) -> DeviceReading:
        """Memory, utilization and processes now."""
        return self._reading(device, _read_busy)

    def read(self, device: Device, depth: Depth = Depth.RARE) -> DeviceReading:
        """All there is to know now, to this depth."""
        return self._reading(device, lambda ask, known: self._read(ask, depth, known))

    def _reading(self, device: Device, fill: Callable[[_Ask, dict[str, Any]], None]) -> DeviceReading:
        """What `fill` comes to know; where the device is lost in the middle of it, what it knew until then."""
        self._be_open()
        ordinal = device.ordinal

        def ask(name: str, *args: Any) -> Any:
            question = getattr(self._nvml, name, None)
            if question is None:
                return None
            return self._answers.ask(ordinal, f"{name}{args}", question, self._handles[ordinal], *args)

        known: dict[str, Any] = {}
        try:
            memory = self._memory_of(device)
            known["memory_used_bytes"], known["memory_free_bytes"] = memory.used_bytes, memory.free_bytes
            known["memory_total_bytes"] = memory.total_bytes
            known["memory_reserved_bytes"] = memory.reserved_bytes
            fill(ask, known)
        except Gone as lost:
            self._note_lost(device, lost)
        return DeviceReading(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            pci_bus_id=device.pci_bus_id,
            mig=device.mig,
            **known,
        )

    def close(self) -> None:
        """Let NVML go, if this process opened it."""
        if self._pid == os.getpid():
            with suppress(Exception), asking():
                self._nvml.nvmlShutdown()
            self._reopen = True

    def _open(self) -> None:
        nvml = self._nvml
        nvml.nvmlInit()
        self._pid, self._reopen = os.getpid(), False
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
            devices.append(
                Device(
                    ordinal=ordinal,
                    index=index,
                    vendor="nvidia",
                    uuid=uuids[index],
                    name=names[index] if part is None else self._text(nvml.nvmlDeviceGetName, handle),
                    pci_bus_id=self._bus_id(gpus[index]),
                    mig=None if part is None else instance_uuids[index][part],
                )
            )
        if len(handles) >= len(self._handles):  # devices once given out stay answerable
            self._handles, self._devices = handles, devices
        by_speed = self._environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        if by_speed and len({name for name in names if name}) > 1 and not _by_uuid(variable):
            self._note(
                "GPUs of several kinds are here, and CUDA may number them in another order than the driver: "
                "set CUDA_DEVICE_ORDER=PCI_BUS_ID to be sure which GPU a sample is of"
            )

    def _be_open(self) -> None:
        if self._reopen or self._pid != os.getpid():
            try:
                with asking():
                    self._open()
            except Exception as error:  # noqa: BLE001 - the driver may be in any state by now
                # The devices stay known; every question fails by itself until the driver is back.
                self._pid, self._reopen = os.getpid(), False
                self._note(f"NVML could not be opened again: {error}")

    def _instances(self, gpu: Any) -> list[Any]:
        """Handles of a partitioned GPU's instances, in NVML's order; none where it is not partitioned."""
        nvml = self._nvml
        found: list[Any] = []
        with suppress(nvml.NVMLError, AttributeError):
            if nvml.nvmlDeviceGetMigMode(gpu)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
                return found
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(nvml.NVMLError):  # numbers are not dense
                    found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number))
        return found

    def _bus_id(self, gpu: Any) -> str | None:
        try:
            return _decoded(self._nvml.nvmlDeviceGetPciInfo(gpu).busId)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _text(self, question: Any, handle: Any) -> str | None:
        try:
            return _decoded(question(handle))
        except self._nvml.NVMLError:
            return None

    def _memory_of(self, device: Device) -> DeviceMemoryReading:
        nvml, handle = self._nvml, self._handles[device.ordinal]
        if self._memory_version is not None:
            # Version 2 tells what the driver keeps for itself apart from what is in use.
            found = self._answers.ask(
                device.ordinal, "memory v2", nvml.nvmlDeviceGetMemoryInfo, handle, self._memory_version
            )
            if found is not None:
                return DeviceMemoryReading(
                    used_bytes=found.used,
                    free_bytes=found.free,
                    total_bytes=found.total,
                    reserved_bytes=found.reserved,
                )
        found = self._answers.ask(device.ordinal, "memory", nvml.nvmlDeviceGetMemoryInfo, handle)
        if found is None:
            return DeviceMemoryReading()
        return DeviceMemoryReading(used_bytes=found.used, free_bytes=found.free, total_bytes=found.total)

    def _read(self, ask: _Ask, depth: Depth, known: dict[str, Any]) -> None:
        nvml = self._nvml
        _read_rates(ask, known)
        known["power_w"] = _scaled(ask("nvmlDeviceGetPowerUsage"))
        if depth >= Depth.SECOND:
            known["energy_j"] = _scaled(
                ask("nvmlDeviceGetTotalEnergyConsumption")
            )  # takes milliseconds on some
            _read_processes(ask, known)
            heat = ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
            if heat is None:  # the name from CUDA 14 on
                heat = ask("nvmlDeviceGetTemperatureV", nvml.NVML_TEMPERATURE_GPU)
            known["temperature_c"] = _float(heat)
            known["clock_mhz"] = _float(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM))
            known["memory_clock_mhz"] = _float(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM))
            mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
            if mask is None:  # the name before driver 535
                mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
            known["throttle_reasons"] = None if mask is None else _reasons(mask)
            sent, received = self._pcie_counters(ask)
            known["pcie_sent_bytes"], known["pcie_received_bytes"] = sent, received
            if depth >= Depth.RARE:
                if sent is None and received is None:  # each takes the driver 20 ms
                    rate = ask("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_TX_BYTES)
                    known["pcie_sent_bytes_per_s"] = None if rate is None else rate * 1024.0
                    rate = ask("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES)
                    known["pcie_received_bytes_per_s"] = None if rate is None else rate * 1024.0
                for field, kind in (
                    ("ecc_corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
                    ("ecc_uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
                ):
                    known[field] = ask("nvmlDeviceGetTotalEccErrors", kind, nvml.NVML_VOLATILE_ECC)

    def _pcie_counters(self, ask: Any) -> tuple[int | None, int | None]:
        """Bytes sent and received so far; None where the device or the library is too old to count them.

        Counters of 32 bits are as good as none: they may have wrapped several times since they were last read.
        """
        nvml = self._nvml
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

    def _verdict(self, error: Exception) -> str:
        code = getattr(error, "value", None)
        if code == _UNINITIALIZED:
            self._reopen = True  # somebody shut NVML down once too often
        if code in _GONE:
            return "gone"
        return "never" if code in _NEVER else "later"

    def _note_lost(self, device: Device, lost: Gone) -> None:
        self._note(
            f"GPU {device.index} ({device.name or 'of unknown name'}) does not answer any more: {lost}"
        )

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


def _read_busy(ask: _Ask, known: dict[str, Any]) -> None:
    _read_rates(ask, known)
    _read_processes(ask, known)


def _read_rates(ask: _Ask, known: dict[str, Any]) -> None:
    rates = ask("nvmlDeviceGetUtilizationRates")
    if rates is not None:
        known["utilization_percent"] = float(rates.gpu)
        known["memory_bus_percent"] = float(rates.memory)


def _read_processes(ask: _Ask, known: dict[str, Any]) -> None:
    known["processes"] = _by_pid(ask("nvmlDeviceGetComputeRunningProcesses"))


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _by_uuid(variable: str | None) -> bool:
    return variable is not None and all(word.strip()[:4] in ("GPU-", "MIG-") for word in variable.split(","))


def _scaled(value: int | None) -> float | None:
    """Watts of milliwatts, joules of millijoules."""
    return None if value is None or value >= _UNKNOWN_BYTES else value / 1000


def _float(value: int | None) -> float | None:
    return None if value is None or value == _UNKNOWN_U32 else float(value)


def _reasons(mask: int) -> list[str]:
    return [name for bit, name in _REASONS.items() if mask & bit]


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
