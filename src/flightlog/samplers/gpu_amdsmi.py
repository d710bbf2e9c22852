"""GPUs of AMD, by AMD SMI (`amdsmi`, which comes with ROCm)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flightlog.samplers.gpu_answers import Answers, Gone, asking
from flightlog.samplers.gpu_driver import Depth, Device, DeviceMemoryReading, DeviceReading
from flightlog.samplers.gpu_visible import Gpu, visible_to_hip

_NEVER = frozenset({1, 2, 3, 9, 10})
"""Invalid, not supported, not yet implemented, no permission: AMD SMI's status codes."""

_Ask = Callable[..., Any]
"""Asks a function of AMD SMI about one device by name; None is no answer."""


class AmdDriver:
    """AMD SMI, opened for the devices that ROCm's variables leave; see `GpuDriver`.

    Opening raises what AMD SMI raises. It answers with dictionaries whose values may be the text `N/A`: unknown.
    It knows no reasons of throttling and no PCIe counters that would be cheap to ask for: those are None.
    """

    def __init__(self, amdsmi: Any, environ: Mapping[str, str]) -> None:
        self._smi, self._environ = amdsmi, environ
        self._answers = Answers(_verdict)
        self._notes: list[str] = []
        self._handles: list[Any] = []
        self._devices: list[Device] = []
        self._pid = -1
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
        """Memory now; free is what is neither in use nor the driver's own."""
        self._be_open()
        try:
            return self._memory_of(device)
        except Gone:
            return DeviceMemoryReading()

    def busy(self, device: Device) -> DeviceReading:
        """Memory, utilization and processes now."""
        return self._reading(device, _read_busy)

    def read(self, device: Device, depth: Depth = Depth.RARE) -> DeviceReading:
        """All there is to know now, to this depth."""
        return self._reading(device, lambda ask, known: self._read(ask, depth, known))

    def _reading(self, device: Device, fill: Callable[[_Ask, dict[str, Any]], None]) -> DeviceReading:
        self._be_open()
        handle, ordinal = self._handles[device.ordinal], device.ordinal

        def ask(name: str, *args: Any) -> Any:
            question = getattr(self._smi, name, None)
            if question is None:
                return None
            return self._answers.ask(ordinal, f"{name}{args}", question, handle, *args)

        known: dict[str, Any] = {}
        with suppress(Gone):
            memory = self._memory_of(device)
            known["memory_used_bytes"], known["memory_free_bytes"] = memory.used_bytes, memory.free_bytes
            known["memory_total_bytes"] = memory.total_bytes
            fill(ask, known)
        return DeviceReading(
            index=device.index, uuid=device.uuid, name=device.name, pci_bus_id=device.pci_bus_id, **known
        )

    def close(self) -> None:
        """Let AMD SMI go, if this process opened it."""
        if self._pid == os.getpid():
            with suppress(Exception), asking():
                self._smi.amdsmi_shut_down()
            self._pid = -1

    def _open(self) -> None:
        smi = self._smi
        smi.amdsmi_init()
        self._pid = os.getpid()
        handles = list(smi.amdsmi_get_processor_handles())
        asics = [self._asked(smi.amdsmi_get_gpu_asic_info, handle) or {} for handle in handles]
        gpus = [Gpu(_rocr_uuid(asic)) for asic in asics]
        handles_seen: list[Any] = []
        devices: list[Device] = []
        for ordinal, index in enumerate(visible_to_hip(self._environ, gpus)):
            handles_seen.append(handles[index])
            devices.append(
                Device(
                    ordinal=ordinal,
                    index=index,
                    vendor="amd",
                    uuid=self._asked(smi.amdsmi_get_gpu_device_uuid, handles[index]),
                    name=asics[index].get("market_name") or None,
                    pci_bus_id=self._asked(smi.amdsmi_get_gpu_device_bdf, handles[index]),
                )
            )
        if len(handles_seen) >= len(self._handles):  # devices once given out stay answerable
            self._handles, self._devices = handles_seen, devices

    def _be_open(self) -> None:
        if self._pid != os.getpid():
            try:
                with asking():
                    self._open()
            except Exception as error:  # noqa: BLE001 - the driver may be in any state by now
                self._pid = os.getpid()
                self._notes.append(f"AMD SMI could not be opened again: {error}")

    def _asked(self, question: Any, handle: Any) -> Any:
        try:
            return question(handle)
        except Exception:  # noqa: BLE001 - its errors have several roots; a name that is not known is None
            return None

    def _memory_of(self, device: Device) -> DeviceMemoryReading:
        smi, handle, ordinal = self._smi, self._handles[device.ordinal], device.ordinal
        kind = smi.AmdSmiMemoryType.VRAM
        used = _whole(self._answers.ask(ordinal, "used", smi.amdsmi_get_gpu_memory_usage, handle, kind))
        total = _whole(self._answers.ask(ordinal, "total", smi.amdsmi_get_gpu_memory_total, handle, kind))
        free = None if used is None or total is None else max(0, total - used)
        return DeviceMemoryReading(used_bytes=used, free_bytes=free, total_bytes=total)

    def _read(self, ask: _Ask, depth: Depth, known: dict[str, Any]) -> None:
        smi = self._smi
        _read_rates(ask, known)
        power = ask("amdsmi_get_power_info") or {}
        known["power_w"] = _first(power, "current_socket_power", "socket_power", "average_socket_power")
        if depth >= Depth.SECOND:
            energy = ask("amdsmi_get_energy_count") or {}
            count, step = (
                _first(energy, "energy_accumulator", "power"),
                _number(energy.get("counter_resolution")),
            )
            known["energy_j"] = None if count is None or step is None else count * step / 1e6
            _read_processes(ask, known)
            known["temperature_c"] = _number(
                ask(
                    "amdsmi_get_temp_metric",
                    smi.AmdSmiTemperatureType.HOTSPOT,
                    smi.AmdSmiTemperatureMetric.CURRENT,
                )
            )
            clock = ask("amdsmi_get_clock_info", smi.AmdSmiClkType.GFX) or {}
            known["clock_mhz"] = _first(clock, "clk", "cur_clk")
            clock = ask("amdsmi_get_clock_info", smi.AmdSmiClkType.MEM) or {}
            known["memory_clock_mhz"] = _first(clock, "clk", "cur_clk")
        if depth >= Depth.RARE:
            errors = ask("amdsmi_get_gpu_total_ecc_count") or {}
            known["ecc_corrected"] = _whole(errors.get("correctable_count"))
            known["ecc_uncorrected"] = _whole(errors.get("uncorrectable_count"))


def _read_busy(ask: _Ask, known: dict[str, Any]) -> None:
    _read_rates(ask, known)
    _read_processes(ask, known)


def _read_rates(ask: _Ask, known: dict[str, Any]) -> None:
    activity = ask("amdsmi_get_gpu_activity") or {}
    known["utilization_percent"] = _number(activity.get("gfx_activity"))
    known["memory_bus_percent"] = _number(activity.get("umc_activity"))


def _read_processes(ask: _Ask, known: dict[str, Any]) -> None:
    known["processes"] = _by_pid(ask("amdsmi_get_gpu_process_list"))


def _verdict(error: Exception) -> str:
    return "never" if getattr(error, "err_code", None) in _NEVER else "later"


def _rocr_uuid(asic: Mapping[str, Any]) -> str | None:
    """The UUID that ROCm's own variable uses: the serial number of the chip."""
    serial = str(asic.get("asic_serial") or "").lower().removeprefix("0x")
    return f"GPU-{serial}" if serial and serial != "n/a" else None


def _number(value: object) -> float | None:
    """A number as it is; `N/A`, and the highest number of 16 or 32 bits, are unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in (0xFFFF, 0xFFFFFFFF):
        return None
    return float(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(values: Mapping[str, Any], *names: str) -> float | None:
    return next((found for found in (_number(values.get(name)) for name in names) if found is not None), None)


def _by_pid(processes: Sequence[Any] | None) -> dict[int, int | None] | None:
    if processes is None:
        return None
    found: dict[int, int | None] = {}
    for process in processes:
        if isinstance(process, Mapping) and isinstance(process.get("pid"), int):
            usage = process.get("memory_usage")
            used = usage.get("vram_mem") if isinstance(usage, Mapping) else process.get("mem")
            found[process["pid"]] = _whole(used)
    return found
