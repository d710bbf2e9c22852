"""What the time of workers was paid for: useful work, work that was done again or failed, and waiting."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.rates import HOUR_NS, apportion, billionths, money

if TYPE_CHECKING:
    from flightlog.analyze.shares import Life


class CostSplit(Struct, frozen=True, kw_only=True):
    """What the workers' time cost; the parts add up to `total`, to a billionth of the currency's unit."""

    total: float
    currency: str
    useful: float
    """Held by attempts that completed, transfer included."""
    retried: float
    """Held by attempts that failed and were tried again."""
    failed: float
    """Held by attempts that failed for good, or were cancelled."""
    unfinished: float
    """Held by attempts whose end was not recorded."""
    idle: float
    """Free: nothing was queued, or the scheduler had not handed out what was."""
    starting: float
    """From launch to ready."""


def split_cost(lives: Mapping[str, Life], prices: Mapping[str, Fraction], currency: str) -> CostSplit | None:
    """The split over the workers that have a price an hour; None where none has.

    Where several attempts held a worker at once, useful counts before unfinished, that before retried, and
    failed last.
    """
    exact = dict.fromkeys(("useful", "retried", "failed", "unfinished", "idle", "starting"), Fraction(0))
    priced = [(life, prices[name] / HOUR_NS) for name, life in lives.items() if name in prices]
    if not priced:
        return None
    for life, price in priced:
        exact["useful"] += (life.run + life.transfer) * price
        exact["retried"] += life.retried * price
        exact["failed"] += (life.failed - life.retried) * price
        exact["unfinished"] += life.unfinished * price
        exact["idle"] += (life.scheduler + life.idle) * price
        exact["starting"] += life.startup * price
    total = billionths(sum(exact.values(), Fraction(0)))
    parts = {name: money(part) for name, part in apportion(total, exact).items()}
    return CostSplit(total=money(total), currency=currency, **parts)
