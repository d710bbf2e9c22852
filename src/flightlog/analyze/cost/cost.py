"""What a run cost, by its rates and what it used; and how much of it was useful, failed or waiting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs

from flightlog.analyze.report.cache import artifact_summary
from flightlog.analyze.report.resources import resource_summary
from flightlog.analyze.tallies import copied
from flightlog.core.stats import exact_sum
from flightlog.core.time import moment
from flightlog.events import CostEstimate, CostRates, JobEvent, ResourceRequest, WorkerEvent
from flightlog.events.rates import (
    BESIDE,
    BY_THE_HOUR,
    HOUR_NS,
    Sizes,
    apportion,
    billionths,
    component_sizes,
    hourly,
    money,
    names_time,
    number,
    quantity,
    rate_of,
    sizes_of,
)
from flightlog.store.tables.intervals import most_at_once
from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.analyze.report.cache import ArtifactSummary
    from flightlog.analyze.report.resources import ResourceSummary
    from flightlog.analyze.report.time_shares import WorkerLife
    from flightlog.store.read.lines import AnyEvent
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables

JOULES_IN_KWH = 3_600_000
_UNKNOWN = {
    "workers": "no worker is known",
    "cpus": "how many CPUs workers have is not known",
    "memory": "how much memory workers have is not known",
    "gpus": "how many GPUs workers have is not known",
}


class CostItem(Struct, frozen=True, kw_only=True):
    """One item of the cost: computed from the rates, or else its latest estimate."""

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
    asked: Mapping[str, Sizes] = {}
    """What each component asked for, as the run recorded it."""
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
        had = {name: quantity(item, sizes[name]) for name in lifetimes}
        if not lifetimes or None in had.values():
            unknown[item] = _UNKNOWN[item] if lifetimes else "no time is known"
            continue
        quantities[item] = sum(
            (Fraction(lived, HOUR_NS) * (had[name] or 0) for name, lived in lifetimes.items()), Fraction(0)
        )
        exact[item] = quantities[item] * rate
    total = billionths(sum(exact.values(), Fraction(0)))
    amounts = {item: money(part) for item, part in apportion(total, exact).items()}
    items = {
        item: _item(rates, field, unit, amounts.get(item), quantities.get(item), unknown.get(item))
        for item, (field, unit) in BY_THE_HOUR.items()
        if item in exact or item in unknown
    }
    lived = sum(lifetimes.values())
    return Worked(basis=basis, items=items, total=None if unknown or not exact else total, lived=lived)


def worker_sizes(rates: CostRates, used: Used) -> dict[str, Sizes]:
    """What each worker is charged for; `""` is the machine of a run that has none."""
    if not used.lifetimes:
        return {"": used.machine}
    components = component_sizes(rates) or used.asked
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
    measured = {
        "energy": (used.energy_j, JOULES_IN_KWH, "no energy counter could be read"),
        "storage": (used.artifact_bytes, 10**9, "no artifact with a size was recorded"),
        "egress": (used.sent_bytes, 10**9, "what the hosts sent was not measured"),
    }
    found: dict[str, CostItem] = {}
    for item, (field, unit) in BESIDE.items():
        rate, (known, of_unit, why) = rate_of(rates, field), measured[item]
        if rate is None:
            continue
        amount = None if known is None else Fraction(known) / of_unit
        spent = None if amount is None else money(billionths(amount * rate))
        reason = why if amount is None else None
        if item == "egress" and spent:
            # What hosts send each other is free mostly, and nobody tells it from what leaves the network.
            reason = f"at most {spent:.6g} {rates.currency}, for all that the hosts sent, to each other too"
            spent = None
        found[item] = _item(rates, field, unit, spent, amount, reason)
    return found


def _item(
    rates: CostRates, field: str, unit: str, amount: float | None, used: Fraction | None, reason: str | None
) -> CostItem:
    """What so much of something costs, by the rate that is called `field`."""
    return CostItem(
        amount=amount,
        currency=rates.currency,
        provider=rates.provider,
        rate=getattr(rates, field),
        quantity=None if used is None else number(used),
        quantity_unit=unit,
        reason=reason,
    )


LOCAL = "local"
"""The provider whose machine is paid for: without a rate it costs nothing."""


class CostSummary(Struct, frozen=True, kw_only=True):
    """What every item cost, and their sum. These are estimates, not bills."""

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

    @classmethod
    def of(cls, events: Iterable[AnyEvent], rates: CostRates | None = None) -> CostTally:
        """The tally after all these events."""
        tally = cls(rates)
        for event in events:
            tally.add(event)
        return tally

    def add(self, event: AnyEvent) -> None:
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
        return structs.replace(self._instead, components=own.components)

    def summary(self, used: Used = NOTHING) -> CostSummary:
        """The result. Where rates and workers are known, they count, and not what was estimated of them on
        the way.
        """
        rates = self.rates
        items = {
            item: copied(CostItem, event, reason=None if event.amount is not None else "no rate was known")
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
        **{name: getattr(rates, name, None) for name in ("source", "instance", "prices_of")},
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


class CostSplit(Struct, frozen=True, kw_only=True):
    """What the workers' time cost; the parts add up to `total`, to a billionth of the currency's unit."""

    total: float
    currency: str
    useful: float
    """Held by attempts that completed, transfer included."""
    retried: float
    """Held by attempts that failed and were retried."""
    failed: float
    """Held by attempts that failed for good, or were cancelled."""
    unfinished: float
    """Held by attempts whose end was not recorded."""
    idle: float
    """Free: nothing was queued, or tasks were not dispatched yet."""
    starting: float
    """From launch to ready."""


def split_cost(
    lives: Mapping[str, WorkerLife], prices: Mapping[str, Fraction], currency: str
) -> CostSplit | None:
    """The split over the workers that have a price an hour; None where none has.

    Where several attempts held a worker at once, useful counts before unfinished, that before retried, and
    failed last.
    """
    priced = [(life, prices[name] / HOUR_NS) for name, life in lives.items() if name in prices]
    if not priced:
        return None
    exact = dict.fromkeys(("useful", "retried", "failed", "unfinished", "idle", "starting"), Fraction(0))
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


def _not_rated(run: Run) -> Used:
    return Used(provider=run.info.provider, told=_told(run), ended=run.info.end_time is not None)


def used_by(
    tables: RunTables,
    rates: CostRates | None,
    *,
    resources: ResourceSummary,
    artifacts: ArtifactSummary,
    saved_s: float | None = None,
) -> Used:
    """All of it, of one run, whose `worker_facts` tell how long each worker lived; where no rates are known,
    what tells why there is no cost.
    """
    [run] = tables.runs
    if rates is None:
        return _not_rated(run)
    start, until = moment(run.info.start_time), tables.until
    workers = tables.records("SELECT * FROM worker_facts WHERE recorded ORDER BY worker")
    node = resources.node
    return Used(
        lifetimes={one["worker"]: one["lived"] for one in workers},
        components={one["worker"]: one["component"] for one in workers},
        given=_given(tables, workers),
        asked=_asked(tables),
        wall_ns=None if start is None or until is None else max(0, until - start),
        ended=run.info.end_time is not None,
        provider=run.info.provider,
        told=_told(run),
        machine=machine_of(resources),
        energy_j=resources.energy.total_j if resources.energy is not None else None,
        artifact_bytes=artifacts.size_bytes if artifacts.count else 0,
        sent_bytes=node.sent_bytes if node is not None else None,
        saved_s=saved_s,
    )


def _told(run: Run) -> bool:
    return CostEstimate.stream in run.streams()


def machine_of(resources: ResourceSummary) -> Sizes:
    """What the largest host has; of CPUs and memory, what the control group may use of it."""
    node, cgroup, gpu = resources.node, resources.cgroup, resources.gpu
    limits = Sizes(cpus=cgroup.cpu_quota, memory_bytes=cgroup.memory_limit_bytes) if cgroup else Sizes()
    whole = Sizes(cpus=node.cpus, memory_bytes=node.memory_total_bytes) if node else Sizes()
    return Sizes(gpus=gpu.devices if gpu else None).else_(limits).else_(whole)


def _given(tables: RunTables, workers: Sequence[Mapping[str, Any]]) -> dict[str, Sizes]:
    """What each worker was given: by itself, or by the batch job it lives in."""
    jobs = tables.records(_JOBS) if JobEvent.stream in tables.streams else []
    found: dict[str, Sizes] = {}
    for one in (*workers, *jobs):
        found[one["worker"]] = found.get(one["worker"], Sizes()).else_(copied(Sizes, one))
    return found


def _asked(tables: RunTables) -> dict[str, Sizes]:
    """What each component asked for: rates that are given afterwards know nothing of components."""
    rows = tables.records(_REQUESTS) if ResourceRequest.stream in tables.streams else []
    return {one["component"]: copied(Sizes, one) for one in rows}


_REQUESTS = """
SELECT component, cpus, memory_bytes, gpus FROM resources
WHERE event = 'resource_request' AND component IS NOT NULL AND task IS NULL
ORDER BY "timestamp", writer, seq
"""
_JOBS = """
SELECT worker, cpus, memory_bytes, gpus FROM jobs WHERE event = 'job_started' AND worker IS NOT NULL
ORDER BY "timestamp", writer, seq
"""


def workers_on_one_machine(run: Run) -> int:
    """How many workers shared the machine, at most: on the provider `local` all that were up at once,
    elsewhere 1.
    """
    if run.info.provider != LOCAL or WorkerEvent.stream not in run.streams():
        return 1
    with open_tables([run]) as tables:
        tables.make_workers(with_attempts=False)
        most = most_at_once(tables, "SELECT since, until FROM worker_lives")
    return 1 if most is None else most[0]


def run_cost(run: Run) -> CostSummary:
    """What the summary of a run says of its cost, without the rest of it.

    A worker whose beginning was not recorded is the exception: the summary goes by its first task.
    """
    tally = CostTally.of(run.events("cost"))
    if tally.rates is None:
        return tally.summary(_not_rated(run))
    with open_tables([run]) as tables:
        tables.make_workers(with_attempts=False)
        used = used_by(
            tables, tally.rates, resources=resource_summary(tables), artifacts=artifact_summary(tables)
        )
        return tally.summary(used)
