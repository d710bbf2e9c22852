"""What a piece of advice is; and requests, counts and durations as a person would write them, rounded to the
safe side.
"""

from __future__ import annotations

import math
from itertools import count
from typing import Any

from msgspec import Struct

from flightlog.analyze.limits import AdviceLimits


def is_binary(amount: int | None) -> bool:
    """Whether a size was written in 1024s (`16G`) rather than in 1000s (`16GB`)."""
    return amount is not None and amount % 2**20 == 0 and amount % 10**7 != 0


def round_memory(needed: float, *, binary: bool = False) -> int:
    """Bytes, up to the next step, which is at most 3 % of the amount: 1, 2, 5, 10, … MB, or 1, 2, 4, …
    MiB.
    """
    step = 2**20 if binary else 10**6
    while True:
        wider = step * 5 // 2 if not binary and str(step).startswith("2") else step * 2
        if wider > needed * AdviceLimits.max_rounding_share:
            return math.ceil(needed / step) * step
        step = wider


def round_cpus(needed: float) -> float:
    """CPUs: whole ones, or a half for tasks that mostly wait."""
    if needed <= AdviceLimits.max_cpus_of_waiting_task:
        return 0.5
    return float(math.ceil(needed / (1.0 + AdviceLimits.cpu_tolerance)))


def memory_text(amount: int) -> str:
    """A request as a manifest takes it: `820MB`, `6.4GB`, or in 1024s `6.5G`; reads back as the same number
    of bytes.
    """
    if is_binary(amount):
        eighths, rest = divmod(amount, 2**27)
        return f"{eighths / 8:.12g}G" if amount >= 2**30 and rest == 0 else f"{amount // 2**20}M"
    if amount >= 10**9 and amount % 10**7 == 0:
        whole, hundredths = divmod(amount // 10**7, 100)
        return f"{whole}.{hundredths:02d}".rstrip("0").rstrip(".") + "GB"
    return f"{amount // 10**6}MB" if amount % 10**6 == 0 else str(amount)


def amount_text(amount: float, *, binary: bool = False) -> str:
    """A measured amount: `6.2 GB`, `820 MB`, or in 1024s `5.8 GiB`."""
    base, unit = (1024.0, "iB") if binary else (1000.0, "B")
    power = 0
    while amount / base**power >= base * 0.9995 and power < 5:
        power += 1
    if not power:
        return f"{amount:.0f} B"
    scaled, prefixes = amount / base**power, "KMGTP" if binary else "kMGTP"
    return f"{scaled:.{0 if scaled >= 99.5 else 1}f} {prefixes[power - 1]}{unit}"


def cpus_text(amount: float) -> str:
    """`1 CPU`, `2 CPUs`, `0.5 CPUs`."""
    return f"{amount:g} CPU{'s' * (amount != 1)}"


def number_text(value: float | str) -> str:
    """An argument for reading: `4,000`, `0.25`, `rk4`."""
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"


_STEPS = (1, 2, 5, 10, 15, 20, 30, 45)
_HOURS = (1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24)
_DURATIONS = (*_STEPS, *(60 * minutes for minutes in _STEPS), *(round(3600 * hours) for hours in _HOURS))
_DAY = 86_400


def round_count(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50, … that is not less."""
    sizes = (times * int(10**power) for power in count() for times in (1, 2, 5))
    return next(size for size in sizes if size >= number)


def round_duration(seconds: float) -> int:
    """The next duration, in seconds, that somebody would write by hand and that is not less; days beyond
    one.
    """
    days = -(-int(-(-seconds // 1)) // _DAY) * _DAY
    return next((duration for duration in _DURATIONS if duration >= seconds), days)


def manifest_duration(seconds: int) -> str:
    """Whole seconds as a manifest has them: `45s`, `90m`, `6h`, `3d`."""
    for unit, size in (("d", _DAY), ("h", 3600), ("m", 60)):
        if seconds % size == 0 and (seconds >= 2 * size or seconds == size):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def worker_time(seconds: float) -> str:
    """`1.9 worker-hours`, `12 worker-minutes`."""
    for size, unit in ((3600.0, "worker-hours"), (60.0, "worker-minutes")):
        if seconds >= 2 * size:
            number = seconds / size
            return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    return f"{seconds:.0f} worker-seconds" if seconds >= 10 else f"{seconds:.2g} worker-seconds"


class Advice(Struct, frozen=True, kw_only=True):
    """One thing to change, with its evidence; nothing is advised without any."""

    kind: str
    """`resources`, `workers`, `threads`, `chunks`, `cache`, `retries` or `walltime`."""
    about: str
    """The task, component or target it is about."""
    sentence: str
    """What to change and why, in plain words."""
    evidence: dict[str, Any]
    """The numbers behind it, by name, with their units; how much history there is among them."""
    gain: str | None
    """What it would give, in words with a number; null where that cannot be said."""
    gain_s: float | None = None
    """The same in worker-seconds for each run; null where it is something else."""
    changes: dict[str, str] = {}
    """Values to set, by path in the manifest: `components.sim.memory` to `8GB`."""
    only_if: str | None = None
    """What has to hold for it, where no record can tell and a wrong guess would change results; null where
    nothing has to."""
