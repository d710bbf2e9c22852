"""What the run cost, as far as anyone has said."""

from __future__ import annotations

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum
from flightlog.events import CostEstimate, Event


class CostItem(Struct, frozen=True, kw_only=True):
    """The latest estimate of one item."""

    amount: float | None
    currency: str
    provider: str | None
    rate: float | None
    quantity: float | None
    quantity_unit: str | None


class CostSummary(Struct, frozen=True, kw_only=True):
    """The latest estimate of every item, and their sum."""

    total: float | None
    """Sum of the known amounts; null where none is known or currencies differ."""
    currency: str | None
    provider: str | None
    """Who bills it, where it is one and the same."""
    unknown_items: int
    """Items without an amount, which the total leaves out."""
    by_item: dict[str, CostItem]


class CostTally:
    """Takes the events of the stream `cost`; of each item the latest estimate counts."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[tuple[str, str, int, float], CostEstimate]] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
        if not isinstance(event, CostEstimate):
            return
        order = (event.timestamp, event.writer, event.seq, -1.0 if event.amount is None else event.amount)
        known = self._latest.get(event.item)
        if known is None or order > known[0]:
            self._latest[event.item] = (order, event)

    def summary(self) -> CostSummary:
        """The result."""
        latest = {item: self._latest[item][1] for item in sorted(self._latest)}
        amounts = [event.amount for event in latest.values() if event.amount is not None]
        currencies = {event.currency for event in latest.values() if event.amount is not None}
        providers = {event.provider for event in latest.values()}
        one_currency = len(currencies) == 1
        return CostSummary(
            total=exact_sum(amounts) if one_currency else None,
            currency=min(currencies) if one_currency else None,
            provider=providers.pop() if len(providers) == 1 else None,
            unknown_items=len(latest) - len(amounts),
            by_item={
                item: CostItem(
                    amount=event.amount, currency=event.currency, provider=event.provider, rate=event.rate,
                    quantity=event.quantity, quantity_unit=event.quantity_unit,
                )
                for item, event in latest.items()
            },
        )  # fmt: skip
