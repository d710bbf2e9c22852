"""What the GPUs did, in lines of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.phrases import count_text
from flightlog.show.terminal import Ink, clean
from flightlog.units import format_bytes, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.gpus import GpuDeviceUse, GpuUse

_REASONS = {
    "power_cap": "its power limit",
    "power_brake": "the power supply",
    "thermal_hardware": "heat",
    "thermal_software": "heat",
    "hardware_slowdown": "heat or power",
    "board_limit": "its board's limits",
    "reliability": "its voltage limit",
}


def gpu_facts(use: GpuUse, ink: Ink) -> list[tuple[str, str]]:
    """The lines of a report's resources; one for what is unknown is left out."""
    pairs: list[tuple[str, str]] = []
    what = _what(use)
    load = use.gpu_percent
    if load.mean is not None and load.max is not None:
        busy = f"busy {load.mean:.0f}% of the time, {load.max:.0f}% max"
        busiest = use.each[0]
        if use.devices > 1 and busiest.gpu_percent.mean is not None:
            busy += f"; the busiest is {_label(busiest)}: {busiest.gpu_percent.mean:.0f}%"
        pairs.append(("GPU", f"{what}; {busy}"))
    else:
        pairs.append(("GPU", what))
    if use.memory_peak_bytes is not None:
        of = f" of {format_bytes(use.memory_total_bytes)}" if use.memory_total_bytes is not None else ""
        by_run = ""
        if use.process_memory_peak_bytes is not None:
            by_run = f"; by this run {format_bytes(use.process_memory_peak_bytes)}"
        pairs.append(("GPU memory", f"{format_bytes(use.memory_peak_bytes)}{of} peak on one device{by_run}"))
    power = []
    if use.power_max_w is not None:
        power.append(f"{use.power_max_w:.0f} W max on one device")
    if use.energy_j is not None:
        power.append(f"{energy_text(use.energy_j)} in all")
    if use.temperature_max_c is not None:
        power.append(f"{use.temperature_max_c:.0f} °C max")
    if power:
        pairs.append(("GPU power", ", ".join(power)))
    held = [f"{_label(one)} {text}" for one in use.each if (text := _held_back(one))]
    if held:
        pairs.append(("GPU throttled", ink("warn", "; ".join(held))))
    broken = [one for one in use.each if one.ecc_uncorrected]
    if broken:
        errors = "; ".join(f"{_label(one)} {count_text(one.ecc_uncorrected or 0, 'error')}" for one in broken)
        pairs.append(("GPU memory errors", ink("bad", f"{errors} that could not be corrected")))
    return pairs


def _what(use: GpuUse) -> str:
    names = dict.fromkeys(clean(one.name) for one in use.each if one.name)
    named = ", ".join(names)
    if use.devices == 1:
        return named or "1 device"
    return f"{use.devices} devices" + (f" ({named})" if named else "")


def _label(one: GpuDeviceUse) -> str:
    return f"GPU {gpu_place(one.index, one.mig)}" + (f" on {clean(one.host)}" if one.host else "")


def gpu_place(index: int | None, mig: str | None) -> str:
    """`3`, or `3/MIG-1a2b3c4d` of an instance: its UUID up to where instances differ."""
    place = "?" if index is None else str(index)
    return place if mig is None else f"{place}/{clean(mig)[:12]}"


def _held_back(one: GpuDeviceUse) -> str:
    """`by its power limit in 40% of samples`."""
    causes: dict[str, float] = {}
    for reason, share in one.throttled_percent.items():
        cause = _REASONS.get(reason, reason)
        causes[cause] = max(causes.get(cause, 0.0), share)
    return ", ".join(
        f"by {cause} in {format_percent(share / 100)} of samples" for cause, share in causes.items()
    )


def energy_text(joules: float) -> str:
    """`250 J`, `12.3 Wh`."""
    return f"{joules:.0f} J" if joules < 360 else f"{joules / 3600:.1f} Wh"
