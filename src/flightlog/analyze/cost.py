"""What the run cost: its rates, by the time its workers really lived, and whatever else anyone has said."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from flightlog.analyze.charging import NOTHING, CostItem, Used, Worked, beside, time_of
from flightlog.analyze.distribution import exact_sum
from flightlog.analyze.rates import BY_THE_HOUR, money, names_time
from flightlog.events import CostEstimate, CostRates, Event

__all__ = ["CostItem", "CostSummary", "CostTally", "Used"]

LOCAL = "local"
"""The provider whose machine is paid for: without a rate it costs nothing."""


class CostSummary(Struct, frozen=True, kw_only=True):
    """What every item cost, and their sum. Estimates: nobody has seen a bill."""

    total: float | None
    """Sum of the known amounts; null where none is known or currencies differ."""
    currency: str | None
    """Null beside a total of 0: nothing was to be paid, in whatever currency."""
    provider: str | None
    """Who bills it, where it is one and the same."""
    unknown_items: int
    """Items without an amount, which the total leaves out."""
    by_item: dict[str, CostItem]
    at_least: bool = False
    """Whether the run has no end on record: what it cost after its last sign of life is not in here."""
    reason: str | None = None
    """Why there is no total."""
    basis: Literal["workers", "machine"] | None = None
    """What was paid by the hour: the workers, or the machine of a run that has none; null where nothing
    was."""
    workers_total: float | None = None
    """The part of the total that is paid by the hour: the report splits it."""
    workers_s: float | None = None
    """Time of all workers together, from launch to end, that it is for."""
    saved: float | None = None
    """What results that the cache had would have cost to make again; not in the total."""
    source: str | None = None
    instance: str | None = None
    prices_of: str | None = None
    """Whose rates they are, the instance type, and the day of its price; null where the manifest named a
    price."""


class CostTally:
    """Takes the events of the stream `cost`; of each item the latest estimate counts, and of rates the
    latest.
    """

    def __init__(self, rates: CostRates | None = None) -> None:
        """With `rates`, these count in place of the run's own."""
        self._latest: dict[str, tuple[tuple[str, str, int, float], CostEstimate]] = {}
        self._rates: tuple[tuple[str, str, int], CostRates] | None = None
        self._instead = rates

    def add(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, CostRates):
            when = (event.timestamp, event.writer, event.seq)
            if self._rates is None or when > self._rates[0]:
                self._rates = (when, event)
        elif isinstance(event, CostEstimate):
            order = (event.timestamp, event.writer, event.seq, -1.0 if event.amount is None else event.amount)
            known = self._latest.get(event.item)
            if known is None or order > known[0]:
                self._latest[event.item] = (order, event)

    @property
    def rates(self) -> CostRates | None:
        """The rates that count; what the run's own say of components stays known under others."""
        own = self._rates[1] if self._rates is not None else None
        if self._instead is None or own is None or self._instead.components:
            return self._instead or own
        fields = {name: getattr(self._instead, name) for name in CostRates.__struct_fields__}
        return CostRates(**{**fields, "components": own.components})

    def summary(self, used: Used = NOTHING) -> CostSummary:
        """The result. Where rates and workers are known, they count, and not what was estimated of them on
        the way.
        """
        rates = self.rates
        items = {
            item: CostItem(
                amount=event.amount,
                currency=event.currency,
                provider=event.provider,
                rate=event.rate,
                quantity=event.quantity,
                quantity_unit=event.quantity_unit,
                reason=None if event.amount is not None else "no rate was known",
            )
            for item, (_, event) in self._latest.items()
        }
        worked = None
        if rates is not None and (self._instead is not None or used.lifetimes):
            worked = time_of(rates, used)
            for item in BY_THE_HOUR:
                items.pop(item, None)
            items.update(worked.items)
            items.update(beside(rates, used))
        return _summed(dict(sorted(items.items())), rates, worked, used)


def _summed(
    items: dict[str, CostItem], rates: CostRates | None, worked: Worked | None, used: Used
) -> CostSummary:
    amounts = [item.amount for item in items.values() if item.amount is not None]
    currencies = {item.currency for item in items.values() if item.amount is not None}
    providers = {item.provider for item in items.values()}
    one_currency = len(currencies) == 1
    of_workers = worked.total if worked is not None else None
    total = exact_sum(_summands(items, of_workers)) if one_currency else None
    reason = None
    if not items and used.provider == LOCAL and not used.told:
        total = 0.0
    elif total is None:
        reason = _why_none(items, currencies, rates, used)
    lived = worked.lived if worked is not None else 0
    saved = None
    if used.saved_s is not None and math.isfinite(used.saved_s) and of_workers is not None and lived:
        saved = money(round(Fraction(used.saved_s) * 10**9 * of_workers / lived))
    return CostSummary(
        total=total,
        currency=min(currencies) if one_currency else None,
        provider=providers.pop() if len(providers) == 1 else None,
        unknown_items=len(items) - len(amounts),
        by_item=items,
        at_least=not used.ended and bool(amounts),
        reason=reason,
        basis=worked.basis if worked is not None and worked.items else None,
        workers_total=None if of_workers is None else money(of_workers),
        workers_s=None if worked is None or not worked.items else lived / 1e9,
        saved=saved,
        source=rates.source if rates is not None else None,
        instance=rates.instance if rates is not None else None,
        prices_of=rates.prices_of if rates is not None else None,
    )


def _summands(items: dict[str, CostItem], of_workers: int | None) -> list[float]:
    """What to add up: the time of workers as one, so that nothing is lost to the rounding of its items."""
    apart = [
        item.amount
        for name, item in items.items()
        if item.amount is not None and (of_workers is None or name not in BY_THE_HOUR)
    ]
    return apart if of_workers is None else [money(of_workers), *apart]


def _why_none(items: dict[str, CostItem], currencies: set[str], rates: CostRates | None, used: Used) -> str:
    if len(currencies) > 1:
        return f"in several currencies: {', '.join(sorted(currencies))}"
    if items:
        return next((item.reason for item in items.values() if item.reason), "no rate was known")
    if rates is not None:
        return "no time of workers was recorded" if names_time(rates) else "the rates name no price"
    return "what was recorded of it cannot be read" if used.told else "no rate was given"
