"""What to request, by task and by component: CPUs and memory as all attempts used them, and what that
saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from flightlog.analyze.advice.base import is_binary, memory_text, round_cpus, round_memory
from flightlog.analyze.advice.needs import RESOURCES, Need, find_need, memory_had, uses
from flightlog.analyze.history.attempts import PastAttempt, Requested

LESS, MORE = 0.10, 0.02
"""A request is right as it is where less than these shares of it could be saved, or are missing."""
THREAD = "thread"
"""The scope of CPU time where several tasks shared a process."""
_BUSY = 85.0
"""Percent of the hosts' CPUs in use from which on tasks may have waited for them."""


class Saving(Struct, frozen=True, kw_only=True):
    """What the recommendation gives over the request there is; negative where it takes more, None where not
    known.
    """

    cpus: float | None
    """The share of the CPUs asked for."""
    memory: float | None
    """The share of the memory asked for."""
    cpu_hours: float | None
    """In a run, while these tasks run: the median of the runs."""
    gb_hours: float | None
    cost: float | None = None
    """The same in money, where the newest run has rates by CPU or memory."""
    currency: str | None = None


class Prices(Struct, frozen=True, kw_only=True):
    """What asking for more costs by the hour; None where there is no such rate."""

    currency: str
    per_cpu_hour: float | None = None
    per_gb_hour: float | None = None


class Recommendation(Struct, frozen=True, kw_only=True):
    """What tasks of one name should ask for."""

    task: str
    component: str | None
    """That of the newest attempt."""
    attempts: int
    failed: int
    runs: int
    current: Requested
    """What the newest attempts asked for, or were given."""
    recommended: Requested
    """None each where there is nothing to advise, and `problems` say why."""
    needs: dict[str, Need]
    """By resource: `cpus`, `memory`, `gpu_memory`, `walltime`; what was never measured is left out."""
    problems: dict[str, str] = {}
    """Why there is no advice, by resource."""
    killed_unseen: int = 0
    """Attempts that were killed for their memory, and nobody knows with how much."""
    cpu_scopes: list[str] = []
    saving: Saving | None = None
    worker_s: float | None = None
    """Time of its attempts in a run, all together: the median of the runs."""

    @property
    def binary(self) -> bool:
        """Whether sizes are written in 1024s, as the request there is."""
        return is_binary(self.current.memory_bytes)

    @property
    def killed(self) -> int:
        """How many tasks ended because they had too little memory."""
        memory = self.needs.get("memory")
        return memory.killed if memory is not None else 0

    @property
    def is_to_change(self) -> bool:
        """Whether anything is to be changed."""
        pairs = (
            (self.current.cpus, self.recommended.cpus),
            (self.current.memory_bytes, self.recommended.memory_bytes),
        )
        return any(new is not None and not is_same(old, new) for old, new in pairs)


def is_same(old: float | None, new: float) -> bool:
    """Whether a request is right as it is."""
    return old is not None and -LESS * old <= new - old <= MORE * old


def recommend(
    name: str,
    attempts: Sequence[PastAttempt],
    runs: Sequence[str],
    share: float,
    prices: Prices | None = None,
) -> Recommendation:
    """What to ask for so that this share of later attempts has enough; attempts are of one task, the newest
    first.

    `runs` are the ids of the runs, the oldest first.
    """
    current = _current(attempts)
    scopes = sorted({one.cpu_scope for one in attempts if one.cpu_scope is not None})
    needs: dict[str, Need] = {
        resource: find_need(resource, found, share, runs)
        for resource in RESOURCES
        if (found := uses(attempts, resource))
    }
    problems: dict[str, str] = {
        what: need.problem for what, need in needs.items() if need.problem is not None
    }
    problems |= {what: "nothing was measured" for what in ("cpus", "memory") if what not in needs}
    if THREAD in scopes and "cpus" not in problems:
        problems["cpus"] = (
            "tasks shared their process, so that only the CPU time of the thread that ran each is known: "
            "what other threads used for it is not in there"
        )
    busy = {one.run_id: one.node_cpu_percent for one in attempts if one.node_cpu_percent is not None}
    if busy and median(busy.values()) >= _BUSY and "cpus" not in problems:
        problems["cpus"] = (
            f"the hosts' CPUs were busy ({median(busy.values()):.0f} % on average), so that tasks used what "
            "they got and not what they could have used"
        )
    cpus, memory = needs.get("cpus"), needs.get("memory")
    recommended = Requested(
        cpus=round_cpus(cpus.bound) if cpus and cpus.bound is not None and "cpus" not in problems else None,
        memory_bytes=round_memory(memory.bound, binary=is_binary(current.memory_bytes))
        if memory and memory.bound is not None
        else None,
        gpus=current.gpus,
    )
    by_run = _seconds_by_run(attempts)
    return Recommendation(
        task=name,
        component=attempts[0].component,
        attempts=len(attempts),
        failed=sum(one.state == "failed" for one in attempts),
        runs=len({one.run_id for one in attempts}),
        killed_unseen=sum(bool(one.memory_killed) and memory_had(one) is None for one in attempts),
        current=current,
        recommended=recommended,
        needs=needs,
        problems=problems,
        cpu_scopes=scopes,
        saving=_saving(current, recommended, by_run, prices),
        worker_s=median(by_run) if by_run else None,
    )


def _current(attempts: Sequence[PastAttempt]) -> Requested:
    """The newest request that is known, field by field, of attempts on the component of the newest one."""
    found = Requested()
    component = attempts[0].component
    for one in attempts:
        if one.component == component:
            found = found.else_(one.requested)
        if None not in (found.cpus, found.memory_bytes):
            break
    return found


def _seconds_by_run(attempts: Sequence[PastAttempt]) -> list[float]:
    seconds: dict[str, list[float]] = {}
    for one in attempts:
        if one.duration_s is not None:
            seconds.setdefault(one.run_id, []).append(one.duration_s)
    return [math.fsum(each) for each in seconds.values()]


def _saving(
    current: Requested, recommended: Requested, by_run: Sequence[float], prices: Prices | None
) -> Saving | None:
    hours = median(by_run) / 3600 if by_run else None
    cpus = _less(current.cpus, recommended.cpus)
    memory = _less(current.memory_bytes, recommended.memory_bytes)
    if cpus is None and memory is None:
        return None
    cpu_hours = None if cpus is None or hours is None else cpus * hours
    gb_hours = None if memory is None or hours is None else memory / 1e9 * hours
    cost = None
    if prices is not None:
        parts = [
            rate * amount
            for rate, amount in ((prices.per_cpu_hour, cpu_hours), (prices.per_gb_hour, gb_hours))
            if rate is not None and amount is not None
        ]
        cost = math.fsum(parts) if parts else None
    return Saving(
        cpus=None if cpus is None or current.cpus is None else cpus / current.cpus,
        memory=None if memory is None or current.memory_bytes is None else memory / current.memory_bytes,
        cpu_hours=cpu_hours,
        gb_hours=gb_hours,
        cost=cost,
        currency=prices.currency if prices is not None and cost is not None else None,
    )


def _less(old: float | None, new: float | None) -> float | None:
    """By how much the new request is less; 0 where the old one is right as it is."""
    if old is None or new is None:
        return None
    return 0.0 if is_same(old, new) else old - new


class Wanted(Struct, frozen=True, kw_only=True):
    """An amount that a component should have of one resource."""

    amount: float
    """CPUs or bytes."""
    text: str
    """As a manifest takes it."""
    task: str
    """The task that decides."""
    now: float | None
    """What that task had last; None where nothing was asked for."""
    whole: bool
    """Whether every task on the component is known well enough; otherwise one of the others may need more."""

    @property
    def is_news(self) -> bool:
        """Whether to change anything. Where not all is known, nothing is lowered."""
        if self.now is not None and is_same(self.now, self.amount):
            return False
        return self.whole or (self.now is not None and self.amount > self.now)


class ComponentNeeds(Struct, frozen=True, kw_only=True):
    """What the tasks on one component need."""

    cpus: Wanted | None
    memory: Wanted | None
    attempts: int
    runs: int


def component_needs(found: Sequence[Recommendation]) -> dict[str, ComponentNeeds]:
    """By component, in the order of the recommendations; tasks without a component are in none."""
    by_component: dict[str, list[Recommendation]] = {}
    for one in found:
        if one.component is not None:
            by_component.setdefault(one.component, []).append(one)
    return {
        name: ComponentNeeds(
            cpus=_wanted([(one.recommended.cpus, one.current.cpus, one) for one in tasks], memory=False),
            memory=_wanted(
                [(one.recommended.memory_bytes, one.current.memory_bytes, one) for one in tasks], memory=True
            ),
            attempts=sum(one.attempts for one in tasks),
            runs=max(one.runs for one in tasks),
        )
        for name, tasks in by_component.items()
    }


def component_settings(found: Sequence[Recommendation]) -> dict[str, Wanted]:
    """What to set, by path in the manifest; what is right as it is, or may not be lowered, is left out."""
    return {
        f"components.{name}.{key}": wanted
        for name, needs in component_needs(found).items()
        for key, wanted in (("cpus", needs.cpus), ("memory", needs.memory))
        if wanted is not None and wanted.is_news
    }


def _wanted(
    tasks: Sequence[tuple[float | None, float | None, Recommendation]], *, memory: bool
) -> Wanted | None:
    known = [(amount, now, one) for amount, now, one in tasks if amount is not None]
    if not known:
        return None
    amount, now, decides = max(known, key=lambda each: each[0])
    return Wanted(
        amount=amount,
        text=memory_text(int(amount)) if memory else f"{amount:g}",
        task=decides.task,
        now=now,
        whole=len(known) == len(tasks),
    )
