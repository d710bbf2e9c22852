"""What things come to at given rates: the time of workers, storage, energy, and what left the network."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from flightlog.analyze.rates import (
    BESIDE,
    BY_THE_HOUR,
    HOUR_NS,
    Sizes,
    apportion,
    billionths,
    component_sizes,
    hourly,
    money,
    number,
    quantity,
    rate_of,
    sizes_of,
)
from flightlog.events import CostRates

JOULES_IN_KWH = 3_600_000
_UNKNOWN = {
    "workers": "no worker is known",
    "cpus": "how many CPUs workers have is not known",
    "memory": "how much memory workers have is not known",
    "gpus": "how many GPUs workers have is not known",
}


class CostItem(Struct, frozen=True, kw_only=True):
    """One thing that is paid for: what was worked out from the rates, or else its latest estimate."""

    amount: float | None
    currency: str
    provider: str | None
    rate: float | None
    quantity: float | None
    quantity_unit: str | None
    reason: str | None = None
    """Why there is no amount, where that is known."""


class Used(Struct, frozen=True, kw_only=True):
    """What of a run is paid for, beside the time of workers; None is not known."""

    lifetimes: Mapping[str, int] = {}
    """Of each worker that has events, from launch to end, in nanoseconds."""
    components: Mapping[str, str | None] = {}
    given: Mapping[str, Sizes] = {}
    """The component of each worker, and what it was given."""
    wall_ns: int | None = None
    """From the run's start to its end, or its last sign of life."""
    ended: bool = True
    provider: str | None = None
    told: bool = False
    """Whether the run has a file of costs, readable or not."""
    machine: Sizes = Sizes()
    """What the largest host has, or may use of it."""
    energy_j: float | None = None
    artifact_bytes: int | None = None
    sent_bytes: int | None = None
    saved_s: float | None = None


NOTHING = Used()


class Worked(Struct, frozen=True, kw_only=True):
    """The time that is paid by the hour."""

    basis: Literal["workers", "machine"]
    items: dict[str, CostItem]
    total: int | None
    """In billionths; None where something is not known."""
    lived: int
    """Nanoseconds, of all workers together."""


def time_of(rates: CostRates, used: Used) -> Worked:
    """Each rate by the hour, times what workers had of it, times how long they lived."""
    sizes = worker_sizes(rates, used)
    basis: Literal["workers", "machine"] = "workers" if used.lifetimes else "machine"
    lifetimes = used.lifetimes or ({"": used.wall_ns} if used.wall_ns is not None else {})
    exact: dict[str, Fraction] = {}
    quantities: dict[str, Fraction] = {}
    unknown: dict[str, str] = {}
    for item, (field, _) in BY_THE_HOUR.items():
        rate = rate_of(rates, field)
        if rate is None:
            continue
        amounts = {name: quantity(item, sizes[name]) for name in lifetimes}
        if not lifetimes or None in amounts.values():
            unknown[item] = _UNKNOWN[item] if lifetimes else "no time is known"
            continue
        quantities[item] = sum(
            (Fraction(lived, HOUR_NS) * (amounts[name] or 0) for name, lived in lifetimes.items()),
            Fraction(0),
        )
        exact[item] = quantities[item] * rate
    total = billionths(sum(exact.values(), Fraction(0)))
    amounts_of = apportion(total, exact)
    items = {
        item: CostItem(
            amount=money(amounts_of[item]) if item in exact else None,
            currency=rates.currency,
            provider=rates.provider,
            rate=getattr(rates, field),
            quantity=number(quantities[item]) if item in exact else None,
            quantity_unit=unit,
            reason=unknown.get(item),
        )
        for item, (field, unit) in BY_THE_HOUR.items()
        if item in exact or item in unknown
    }
    lived = sum(lifetimes.values())
    return Worked(basis=basis, items=items, total=None if unknown or not exact else total, lived=lived)


def worker_sizes(rates: CostRates, used: Used) -> dict[str, Sizes]:
    """What each worker is charged for; `""` is the machine of a run that has none."""
    if not used.lifetimes:
        return {"": used.machine}
    components = component_sizes(rates)
    machine = used.machine if len(used.lifetimes) == 1 else Sizes()  # several share it, nobody knows how
    return {
        name: sizes_of(rates, components, used.components.get(name), used.given.get(name, Sizes()), machine)
        for name in used.lifetimes
    }


def worker_prices(rates: CostRates, used: Used) -> dict[str, Fraction] | None:
    """What an hour of each worker costs; None where that is not known of all."""
    prices = {name: hourly(rates, sizes) for name, sizes in worker_sizes(rates, used).items()}
    known = {name: price for name, price in prices.items() if price is not None}
    return known if len(known) == len(prices) else None


def beside(rates: CostRates, used: Used) -> dict[str, CostItem]:
    """Storage, energy and egress, each where it has a rate."""
    kwh = None if used.energy_j is None else Fraction(used.energy_j) / JOULES_IN_KWH
    stored = None if used.artifact_bytes is None else Fraction(used.artifact_bytes, 10**9)
    sent = None if used.sent_bytes is None else Fraction(used.sent_bytes, 10**9)
    known = {"energy": kwh, "storage": stored, "egress": sent}
    why = {
        "energy": "no energy counter could be read",
        "storage": "no artifact with a size was recorded",
        "egress": "what the hosts sent was not measured",
    }
    found: dict[str, CostItem] = {}
    for item, (field, unit) in BESIDE.items():
        rate, amount = rate_of(rates, field), known[item]
        if rate is None:
            continue
        spent = None if amount is None else money(billionths(amount * rate))
        reason = why[item] if amount is None else None
        if item == "egress" and spent:
            # What hosts send each other is free mostly, and nobody tells it from what leaves the network.
            reason = f"at most {spent:.6g} {rates.currency}, for all that the hosts sent, to each other too"
            spent = None
        found[item] = CostItem(
            amount=spent,
            currency=rates.currency,
            provider=rates.provider,
            rate=getattr(rates, field),
            quantity=None if amount is None else number(amount),
            quantity_unit=unit,
            reason=reason,
        )
    return found
