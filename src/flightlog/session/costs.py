"""What a session's workers cost: the hours they were up, at the target's rates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from flightlog.events import CostEstimate, WorkerEvent, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.session.contents import Component, Rates
from flightlog.session.history import History
from flightlog.session.plan import expected_cost


class WorkerTime:
    """Adds up how long workers were up, from ready to lost or removed; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._ended_s = 0.0
        self._lock = threading.Lock()

    def add(self, event: WorkerEvent) -> None:
        """Something happened to a worker, now."""
        with self._lock:
            if isinstance(event, WorkerReady):
                self._since.setdefault(event.worker, self._clock())
            elif isinstance(event, WorkerLost | WorkerRemoved) and event.worker in self._since:
                self._ended_s += self._clock() - self._since.pop(event.worker)

    def seconds(self) -> float:
        """All workers' time up together, so far."""
        with self._lock:
            now = self._clock()
            return self._ended_s + sum(now - since for since in self._since.values())


def workers_cost(
    rates: Rates, components: Mapping[str, Component], up_s: float, provider: str
) -> CostEstimate:
    """What so many seconds of workers cost; the amount is null where a rate is for something nobody said."""
    one_worker = History(runs=[], duration_s=up_s, workers=1, tasks={})
    cost = expected_cost(rates, components, 1, one_worker)
    return CostEstimate(
        item="workers", amount=cost.amount, currency=rates.currency, provider=provider,
        rate=cost.per_worker_hour, quantity=up_s / 3600, quantity_unit="worker-hour",
    )  # fmt: skip
