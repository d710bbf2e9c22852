"""What a worker costs an hour, by its rates and by what it has; and public on-demand prices of instance
types.

Exact: rates and sizes are fractions until the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.events import CostRates

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

    def else_(self, other: Sizes) -> Sizes:
        """What the two say; this one counts where both say something."""
        return Sizes(
            cpus=other.cpus if self.cpus is None else self.cpus,
            memory_bytes=other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
            gpus=other.gpus if self.gpus is None else self.gpus,
        )


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


SHIPPED = Path(__file__).with_name("prices.json")
OLD_DAYS = 365
"""A price that was last known to hold longer ago than this is called old."""


class PriceSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the prices of one provider come from."""

    date: str | None = None
    """The day that it states itself, on which they held: `2026-06-17`; null where it states none."""
    name: str | None = None
    url: str | None = None
    region: str | None = None


class Instance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An instance type; null sizes are not known."""

    per_hour: float
    cpus: float | None = None
    memory_gib: float | None = None
    gpus: float | None = None
    date: str | None = None
    """In place of that of the source."""


class PriceTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instance types by `provider/name`, and for each provider its source."""

    name: str
    currency: str
    sources: dict[str, PriceSource]
    instances: dict[str, Instance]
    note: str | None = None


class Price(Struct, frozen=True, kw_only=True):
    """What an hour of one instance type costs, who says so, and on which day it did; a null date is not
    known.
    """

    instance: str
    per_hour: float
    currency: str
    table: str
    source: str | None
    """The source within the table, by its name."""
    date: str | None
    region: str | None


def read_prices(file: Path | None = None) -> PriceTable:
    """The table in a JSON file, or the one that ships; a file that is none is a `UsageError` that says
    why.
    """
    path = SHIPPED if file is None else file
    try:
        table = msgspec.json.decode(path.read_bytes(), type=PriceTable)
    except OSError as error:
        raise UsageError(f"cannot read the price table {path}: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{path} is no price table: {error}. {SHIPPED.name} of the package shows the form"
        ) from None
    for text in _wrong(table):
        raise UsageError(f"{path} is no price table: {text}")
    return table


def _wrong(table: PriceTable) -> list[str]:
    found = [] if table.currency.strip() else ["its currency is blank"]
    for provider, source in table.sources.items():
        if source.date is not None and _day(source.date) is None:
            found.append(f"the date of {provider!r} is {source.date!r}, not a day such as 2026-06-17")
    for name, instance in table.instances.items():
        if instance.date is not None and _day(instance.date) is None:
            found.append(f"the date of {name!r} is {instance.date!r}, not a day such as 2026-06-17")
        if name.partition("/")[0] not in table.sources or not name.partition("/")[2]:
            found.append(f"{name!r} is not of the form PROVIDER/TYPE with one of its sources as provider")
        if not (math.isfinite(instance.per_hour) and instance.per_hour >= 0):
            found.append(f"the price of {name!r} is {instance.per_hour}")
    return found


def find_price(table: PriceTable, instance: str) -> Price:
    """The price of an instance type, in whatever case it is written; one that is not there is a
    `UsageError`.
    """
    names = {name.lower(): name for name in table.instances}
    name = names.get(instance.strip().lower())
    if name is None:
        near = get_close_matches(instance.strip().lower(), names, n=3, cutoff=0.6)
        hint = (
            f"did you mean {' or '.join(names[one] for one in near)}?"
            if near
            else f"it has {len(names)}, such as {', '.join(sorted(names.values())[:3])}"
        )
        raise UsageError(f"there is no instance type {instance!r} in {table.name}; {hint}")
    found, source = table.instances[name], table.sources[name.partition("/")[0]]
    return Price(
        instance=name,
        per_hour=found.per_hour,
        currency=table.currency,
        table=table.name,
        source=source.name,
        date=found.date or source.date,
        region=source.region,
    )


def is_old(prices_of: str | None, when: str | None) -> bool:
    """Whether a price of one day was old on another, the start of a run, say; False where a day is not
    known.
    """
    then, now = _day(prices_of), _day((when or "")[:10])
    return then is not None and now is not None and (now - then).days > OLD_DAYS


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text and len(text) == 10 else None
    except ValueError:
        return None
