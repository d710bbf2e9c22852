"""Cost of workers during a run: events at the start, when workers come and go, and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from flightlog.core import threads
from flightlog.events import (
    CostEstimate,
    CostRates,
    Event,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.events.rates import BY_THE_HOUR, Sizes, component_sizes, number, quantity, rate_of, sizes_of
from flightlog.record.limits import RecordLimits


class WorkerCosts:
    """Adds up what workers cost, from launch to loss or removal; thread-safe. Without rates it says nothing.

    Amounts are cumulative. They are what is known on the way: whoever reads the run works out its cost from
    the rates and the workers' own events.
    """

    def __init__(self, rates: CostRates | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates, self._clock = rates, clock
        self._components = component_sizes(rates) if rates is not None else {}
        self._sizes: dict[str, Sizes] = {}
        self._since: dict[str, float] = {}
        self._told = -float("inf")
        self._unknown: set[str] = set()
        # Of each item: units of the workers that live, units by when each began, and unit-seconds of those
        # that ended.
        self._now = dict.fromkeys(BY_THE_HOUR, Fraction(0))
        self._began = dict.fromkeys(BY_THE_HOUR, Fraction(0))
        self._ended = dict.fromkeys(BY_THE_HOUR, Fraction(0))
        self._lock = threads.Lock()

    def begin(self) -> list[Event]:
        """The rates, and that nothing was spent yet."""
        return [] if self._rates is None else [self._rates, *self.estimates()]

    def add(self, event: WorkerEvent) -> list[CostEstimate]:
        """Something happened to a worker, now; gives what is to be told of it."""
        if self._rates is None:
            return []
        with self._lock:
            changed = self._take(event, self._clock())
            if not changed or self._clock() - self._told < RecordLimits.worker_costs_interval_s:
                return []
            return self._estimates()

    def estimates(self) -> list[CostEstimate]:
        """What each item has cost so far."""
        if self._rates is None:
            return []
        with self._lock:
            return self._estimates()

    def _take(self, event: WorkerEvent, now: float) -> bool:
        assert self._rates is not None
        name = event.worker
        if isinstance(event, WorkerLaunched | WorkerReady):
            if name in self._since:
                return False
            given = Sizes()
            if isinstance(event, WorkerLaunched):
                given = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
            elif event.launch_s is not None:
                now -= max(0.0, event.launch_s)
            self._since[name] = now
            self._sizes[name] = sizes_of(self._rates, self._components, event.component, given, Sizes())
        elif isinstance(event, WorkerLost | WorkerRemoved) and name in self._since:
            began = self._since.pop(name)
            for item, units in self._count(self._sizes.pop(name), -1, began).items():
                self._ended[item] += units * Fraction(max(0.0, now - began))
            return True
        else:
            return False
        self._count(self._sizes[name], 1, now)
        return True

    def _count(self, sizes: Sizes, sign: int, began: float) -> dict[str, Fraction]:
        """Take a worker into the sums of those that live, or out of them; gives its units."""
        known = {item: quantity(item, sizes) for item in BY_THE_HOUR}
        self._unknown |= {item for item, units in known.items() if units is None}
        found = {item: units or Fraction(0) for item, units in known.items()}
        for item, units in found.items():
            self._now[item] += sign * units
            self._began[item] += sign * units * Fraction(began)
        return found

    def _estimates(self) -> list[CostEstimate]:
        assert self._rates is not None
        rates, now = self._rates, self._clock()
        self._told = now
        found: list[CostEstimate] = []
        for item, (field, unit) in BY_THE_HOUR.items():
            rate = rate_of(rates, field)
            if rate is None:
                continue
            known = item not in self._unknown
            units = (self._ended[item] + self._now[item] * Fraction(now) - self._began[item]) / 3600
            amount, used = (number(one) if known else None for one in (units * rate, units))
            of: dict[str, Any] = {"currency": rates.currency, "provider": rates.provider}
            of |= {"rate": getattr(rates, field), "quantity_unit": unit}
            found.append(CostEstimate(item=item, amount=amount, quantity=used, **of))
        return found
