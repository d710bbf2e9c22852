"""Costs told while workers live, on a clock that a test turns."""

from __future__ import annotations

from flightlog.events import CostEstimate, CostRates, WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.record.worker_costs import WorkerCosts

RATES = CostRates(
    currency="EUR",
    source="the manifest",
    provider="slurm",
    per_worker_hour=3600.0,
    per_cpu_hour=36.0,
    components={"sim": {"cpus": 4.0}},
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def who(name: str) -> dict:
    return {"worker": name, "host": "n1", "pid": 1, "component": "sim"}


def told(found: list[CostEstimate]) -> dict[str, tuple[float | None, float | None]]:
    return {one.item: (one.amount, one.quantity) for one in found}


def test_a_run_begins_with_its_rates_and_nothing_spent() -> None:
    rates, *estimates = WorkerCosts(RATES, Clock()).begin()
    assert rates is RATES
    assert estimates == [
        CostEstimate(
            item="workers",
            amount=0.0,
            currency="EUR",
            provider="slurm",
            rate=3600.0,
            quantity=0.0,
            quantity_unit="worker-hour",
        ),
        CostEstimate(
            item="cpus",
            amount=0.0,
            currency="EUR",
            provider="slurm",
            rate=36.0,
            quantity=0.0,
            quantity_unit="CPU-hour",
        ),
    ]


def test_amounts_are_cumulative_and_told_when_workers_come_and_go() -> None:
    clock = Clock()
    costs = WorkerCosts(RATES, clock)
    assert told(costs.add(WorkerLaunched(**who("a")))) == {"workers": (0.0, 0.0), "cpus": (0.0, 0.0)}
    clock.now += 10
    assert told(costs.add(WorkerLaunched(**who("b")))) == {
        "workers": (10.0, 10 / 3600),
        "cpus": (0.4, 40 / 3600),
    }
    clock.now += 10
    assert told(costs.add(WorkerLost(reason="killed", **who("a"))))["workers"] == (30.0, 30 / 3600)
    clock.now += 10
    assert told(costs.add(WorkerRemoved(reason=None, **who("b"))))["workers"] == (40.0, 40 / 3600)
    clock.now += 1000
    assert told(costs.estimates())["workers"] == (40.0, 40 / 3600)


def test_a_launch_that_only_its_end_tells_of_is_paid_for() -> None:
    clock = Clock()
    costs = WorkerCosts(RATES, clock)
    costs.add(WorkerReady(launch_s=5.0, **who("a")))
    assert told(costs.estimates())["workers"] == (5.0, 5 / 3600)


def test_a_crowd_of_workers_is_told_of_once_a_second() -> None:
    clock = Clock()
    costs = WorkerCosts(RATES, clock)
    assert [len(costs.add(WorkerLaunched(**who(str(n))))) for n in range(100)] == [2, *[0] * 99]
    clock.now += 1
    assert told(costs.add(WorkerLaunched(**who("late"))))["workers"] == (100.0, 100 / 3600)


def test_what_is_no_change_is_not_told() -> None:
    clock = Clock()
    costs = WorkerCosts(RATES, clock)
    costs.add(WorkerLaunched(**who("a")))
    clock.now += 5
    assert costs.add(WorkerReady(**who("a"))) == []
    assert costs.add(WorkerRemoved(reason=None, **who("never seen"))) == []


def test_an_unknown_size_makes_its_item_unknown_and_no_other() -> None:
    costs = WorkerCosts(CostRates(currency="EUR", source="x", per_worker_hour=1.0, per_cpu_hour=1.0), Clock())
    costs.add(WorkerLaunched(**who("a")))
    assert told(costs.estimates()) == {"workers": (0.0, 0.0), "cpus": (None, None)}


def test_without_rates_nothing_is_told() -> None:
    costs = WorkerCosts()
    assert (costs.begin(), costs.add(WorkerLaunched(**who("a"))), costs.estimates()) == ([], [], [])
