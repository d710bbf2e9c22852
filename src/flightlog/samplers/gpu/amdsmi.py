"""GPUs of AMD, by AMD SMI (`amdsmi`, which comes with ROCm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from flightlog.samplers.frameworks import whole
from flightlog.samplers.gpu.driver import Ask, Depth, Device, Gpu, GpuDriver, visible_to_hip

_NEVER = frozenset({1, 2, 3, 9, 10})
"""Invalid, not supported, not yet implemented, no permission: AMD SMI's status codes."""


class AmdDriver(GpuDriver):
    """AMD SMI, opened for the devices that ROCm's variables leave; see `GpuDriver`.

    It answers with dictionaries whose values may be the text `N/A`: unknown.
    It knows no reasons of throttling and no PCIe counters that would be cheap to ask for: those are None.
    """

    library_name = "AMD SMI"

    def _shut_down(self) -> None:
        self._library.amdsmi_shut_down()

    def _initialize(self) -> tuple[list[Any], list[Device]]:
        smi = self._library
        smi.amdsmi_init()
        handles = list(smi.amdsmi_get_processor_handles())
        asics = [self._asked(smi.amdsmi_get_gpu_asic_info, handle) or {} for handle in handles]
        gpus = [Gpu(_rocr_uuid(asic)) for asic in asics]
        handles_seen: list[Any] = []
        devices: list[Device] = []
        for ordinal, index in enumerate(visible_to_hip(self._environ, gpus)):
            handle = handles[index]
            uuid = self._asked(smi.amdsmi_get_gpu_device_uuid, handle)
            name = asics[index].get("market_name") or None
            handles_seen.append(handle)
            devices.append(Device(ordinal=ordinal, index=index, uuid=uuid, name=name))
        return handles_seen, devices

    def _asked(self, question: Any, handle: Any) -> Any:
        try:
            return question(handle)
        except Exception:  # noqa: BLE001 - its errors have several roots; a name that is not known is None
            return None

    def _verdict(self, error: Exception) -> Literal["never", "gone", "later"]:
        return "never" if getattr(error, "err_code", None) in _NEVER else "later"

    def _fill(self, ask: Ask, depth: Depth, known: dict[str, Any]) -> None:
        smi = self._library
        used, total = (
            whole(ask(f"amdsmi_get_gpu_memory_{name}", smi.AmdSmiMemoryType.VRAM))
            for name in ("usage", "total")
        )
        known["memory_used_bytes"], known["memory_total_bytes"] = used, total
        known["memory_free_bytes"] = None if used is None or total is None else max(0, total - used)
        if depth & Depth.RATES:
            activity = ask("amdsmi_get_gpu_activity") or {}
            known["utilization_percent"] = _number(activity.get("gfx_activity"))
            known["memory_bus_percent"] = _number(activity.get("umc_activity"))
        if depth & Depth.POWER:
            power = ask("amdsmi_get_power_info") or {}
            known["power_w"] = _first(power, "current_socket_power", "socket_power", "average_socket_power")
        if depth & Depth.PROCESSES:
            known["processes"] = _by_pid(ask("amdsmi_get_gpu_process_list"))
        if depth & Depth.COUNTERS:
            energy = ask("amdsmi_get_energy_count") or {}
            count = _first(energy, "energy_accumulator", "power")
            step = _number(energy.get("counter_resolution"))
            known["energy_j"] = None if count is None or step is None else count * step / 1e6
            where, which = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            known["temperature_c"] = _number(ask("amdsmi_get_temp_metric", where, which))
            for name, clock in (("clock_mhz", "GFX"), ("memory_clock_mhz", "MEM")):
                now = ask("amdsmi_get_clock_info", getattr(smi.AmdSmiClkType, clock)) or {}
                known[name] = _first(now, "clk", "cur_clk")
        if depth & Depth.ERRORS:
            errors = ask("amdsmi_get_gpu_total_ecc_count") or {}
            known["ecc_corrected"] = whole(errors.get("correctable_count"))
            known["ecc_uncorrected"] = whole(errors.get("uncorrectable_count"))


def _rocr_uuid(asic: Mapping[str, Any]) -> str | None:
    """The UUID that ROCm's own variable uses: the serial number of the chip."""
    serial = str(asic.get("asic_serial") or "").lower().removeprefix("0x")
    return f"GPU-{serial}" if serial and serial != "n/a" else None


def _number(value: object) -> float | None:
    """A number as it is; `N/A`, and the highest number of 16 or 32 bits, are unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in (0xFFFF, 0xFFFFFFFF):
        return None
    return float(value)


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
            found[process["pid"]] = whole(used)
    return found
