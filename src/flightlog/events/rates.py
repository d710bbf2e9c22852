"""What a worker costs an hour, by its rates and by what it has. Exact: rates and sizes are fractions until
the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Self

from msgspec import Struct, structs

from flightlog.events.declarations import CostRates

HOUR_NS = 3_600_000_000_000
BY_THE_HOUR = {
    "workers": ("per_worker_hour", "worker-hour"),
    "cpus": ("per_cpu_hour", "CPU-hour"),
    "memory": ("per_gb_hour", "GB-hour"),
    "gpus": ("per_gpu_hour", "GPU-hour"),
}
"""The items that are paid for the time of workers: the rate of each, and its unit."""
BESIDE = {
    "storage": ("per_gb_month", "GB-month"),
    "egress": ("per_gb_egress", "GB"),
    "energy": ("per_kwh", "kWh"),
}
"""The items that are paid for something else."""


class Sizes(Struct, frozen=True, kw_only=True):
    """What one worker has; None is not known, but of GPUs: a worker that asks for none has none."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float | None = None

    def else_(self, other: Self) -> Self:
        """What the two say; this one counts where both say something."""
        said = {name: value for name, value in structs.asdict(self).items() if value is not None}
        return structs.replace(other, **said)


def rate_of(rates: CostRates, field: str) -> Fraction | None:
    """One rate; None where it is not named, or no price at all."""
    value: float | None = getattr(rates, field)
    return Fraction(value) if value is not None and math.isfinite(value) and value >= 0 else None


def names_time(rates: CostRates) -> bool:
    """Whether anything is paid by the hour."""
    return any(rate_of(rates, field) is not None for field, _ in BY_THE_HOUR.values())


def quantity(item: str, sizes: Sizes) -> Fraction | None:
    """How many units of an item one worker has; None where that is not known."""
    amount = {
        "workers": 1,
        "cpus": sizes.cpus,
        "memory": None if sizes.memory_bytes is None else Fraction(sizes.memory_bytes, 10**9),
        "gpus": sizes.gpus or 0,
    }[item]
    if amount is None or not math.isfinite(amount) or amount < 0:
        return None
    return Fraction(amount)


def hourly(rates: CostRates, sizes: Sizes) -> Fraction | None:
    """What an hour of one worker costs, by all rates; None where a rate is for something that is not known of
    it.
    """
    total = Fraction(0)
    for item, (field, _) in BY_THE_HOUR.items():
        rate, amount = rate_of(rates, field), quantity(item, sizes)
        if rate is not None:
            if amount is None:
                return None
            total += rate * amount
    return total


def component_sizes(rates: CostRates) -> dict[str, Sizes]:
    """What workers of each component have, as the rates' own record has it; fields of another type are not
    known.
    """
    found: dict[str, Sizes] = {}
    for name, said in rates.components.items():
        if isinstance(said, dict):
            memory = _number(said.get("memory_bytes"))
            found[name] = Sizes(
                cpus=_number(said.get("cpus")),
                gpus=_number(said.get("gpus")),
                memory_bytes=None if memory is None else int(memory),
            )
    return found


def sizes_of(
    rates: CostRates, components: Mapping[str, Sizes], component: str | None, given: Sizes, machine: Sizes
) -> Sizes:
    """What to charge a worker for: what its component asks for, else what it was given, else what the machine
    has.

    A worker that serves no one component is charged as one of the dearest.
    """
    asked = components.get(component or "")
    if asked is None:
        priced = [
            (price, name) for name, one in components.items() if (price := hourly(rates, one)) is not None
        ]
        asked = components[max(priced)[1]] if priced else Sizes()
    return asked.else_(given).else_(machine)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def billionths(amount: Fraction) -> int:
    """An amount of money in billionths of its unit, rounded once."""
    return round(amount * 10**9)


def money(amount: int) -> float:
    """Billionths as a number of units."""
    return number(Fraction(amount, 10**9))


def number(exact: Fraction) -> float:
    """The nearest float; infinite where it leaves their range."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf


def apportion(total: int, parts: Mapping[str, Fraction]) -> dict[str, int]:
    """Parts of money in billionths that add up to `total` exactly, each within one of what it is.

    `total` is the rounded sum of the parts; what rounding down leaves goes to the parts that lost most.
    """
    whole = {name: part * 10**9 // 1 for name, part in parts.items()}
    order = sorted(parts, key=lambda name: (whole[name] - parts[name] * 10**9, name))
    found = {name: int(whole[name]) for name in parts}
    for name in order[: total - sum(found.values())]:
        found[name] += 1
    return found
