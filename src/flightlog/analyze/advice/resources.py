"""What to request, by task and by component: CPUs and memory as all attempts used them, what that saves; and
the same in plain words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from flightlog.analyze.advice.base import (
    amount_text,
    cpus_text,
    is_binary,
    memory_text,
    number_text,
    round_cpus,
    round_memory,
)
from flightlog.analyze.advice.needs import RESOURCES, Need, enough_for, find_need, memory_had, uses
from flightlog.analyze.history.attempts import PastAttempt, Requested
from flightlog.analyze.limits import AdviceLimits
from flightlog.analyze.tallies import grouped
from flightlog.core.text import listed, plural
from flightlog.core.units import format_duration, format_percent
from flightlog.events import CostRates

THREAD = "thread"
"""The scope of CPU time where several tasks shared a process."""


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


class Headroom(Struct, frozen=True, kw_only=True):
    """Enough memory for every task so far, beyond what is recommended."""

    tasks: int
    """Those that needed more than what is recommended."""
    of: int
    """All whose need is known."""
    memory_bytes: int
    """What would have been enough for all of them."""
    gb_hours: float | None
    """What that takes in a run beyond the recommendation; None where durations are unknown."""


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
    headroom: Headroom | None = None
    """What it takes to have enough memory for all; None where the recommendation is that already."""

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
    def changed(self) -> Requested:
        """What is recommended, as far as the request is not right as it is."""
        new = {name: getattr(self.recommended, name) for name in ("cpus", "memory_bytes")}
        changed = {
            name: wanted
            for name, wanted in new.items()
            if wanted is not None and not is_same(getattr(self.current, name), wanted)
        }
        return Requested(**changed)

    @property
    def is_to_change(self) -> bool:
        """Whether anything is to be changed."""
        return self.changed != Requested()


def is_same(old: float | None, new: float) -> bool:
    """Whether a request is right as it is."""
    if old is None:
        return False
    return -AdviceLimits.max_unused_share * old <= new - old <= AdviceLimits.max_missing_share * old


def recommend(
    name: str,
    attempts: Sequence[PastAttempt],
    runs: Sequence[str],
    share: float,
    rates: CostRates | None = None,
) -> Recommendation:
    """What to ask for so that this share of later attempts has enough; attempts are of one task, the newest
    first.

    `runs` are the ids of the runs, the oldest first; `rates` are what CPUs and memory cost, if that is known.
    """
    current = _current(attempts)
    scopes = sorted({one.cpu_scope for one in attempts if one.cpu_scope is not None})
    observed = {resource: uses(attempts, resource) for resource in RESOURCES}
    needs: dict[str, Need] = {
        resource: find_need(resource, found, share, runs) for resource, found in observed.items() if found
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
    if busy and median(busy.values()) >= AdviceLimits.busy_host_percent and "cpus" not in problems:
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
    seconds = grouped((one.run_id, one.duration_s) for one in attempts if one.duration_s is not None)
    by_run = [math.fsum(each) for each in seconds.values()]
    since = set(runs[runs.index(memory.since) :] if memory and memory.since else runs)
    measured = [use.value for use in observed["memory"] if use.run_id in since]
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
        saving=_saving(current, recommended, by_run, rates),
        worker_s=median(by_run) if by_run else None,
        headroom=_headroom(recommended.memory_bytes, measured, by_run, is_binary(current.memory_bytes)),
    )


def _headroom(
    recommended: int | None, measured: Sequence[float], by_run: Sequence[float], binary: bool
) -> Headroom | None:
    over = sum(value > recommended for value in measured) if recommended is not None else 0
    if recommended is None or not over:
        return None
    wanted = round_memory(max(measured), binary=binary)
    return Headroom(
        tasks=over,
        of=len(measured),
        memory_bytes=wanted,
        gb_hours=(wanted - recommended) / 1e9 * median(by_run) / 3600 if by_run else None,
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


def _saving(
    current: Requested, recommended: Requested, by_run: Sequence[float], rates: CostRates | None
) -> Saving | None:
    hours = median(by_run) / 3600 if by_run else None
    cpus = _less(current.cpus, recommended.cpus)
    memory = _less(current.memory_bytes, recommended.memory_bytes)
    if cpus is None and memory is None:
        return None
    cpu_hours = None if cpus is None or hours is None else cpus * hours
    gb_hours = None if memory is None or hours is None else memory / 1e9 * hours
    parts = [
        rate * amount
        for name, amount in (("per_cpu_hour", cpu_hours), ("per_gb_hour", gb_hours))
        if (rate := getattr(rates, name, None)) is not None and amount is not None
    ]
    return Saving(
        cpus=None if cpus is None or current.cpus is None else cpus / current.cpus,
        memory=None if memory is None or current.memory_bytes is None else memory / current.memory_bytes,
        cpu_hours=cpu_hours,
        gb_hours=gb_hours,
        cost=math.fsum(parts) if parts else None,
        currency=rates.currency if rates is not None and parts else None,
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
    by_component = grouped((one.component, one) for one in found if one.component is not None)
    return {
        name: ComponentNeeds(
            cpus=_wanted(tasks, "cpus"),
            memory=_wanted(tasks, "memory_bytes"),
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


def _wanted(tasks: Sequence[Recommendation], what: str) -> Wanted | None:
    """The largest of what tasks need, one of the fields of their requests; None where none is known."""
    known = [(need, one) for one in tasks if (need := getattr(one.recommended, what)) is not None]
    if not known:
        return None
    most, decides = max(known, key=lambda each: each[0])
    return Wanted(
        amount=most,
        text=f"{most:g}" if what == "cpus" else memory_text(int(most)),
        task=decides.task,
        now=getattr(decides.current, what),
        whole=len(known) == len(tasks),
    )


_NAMES = {"cpus": "CPUs", "memory": "memory", "gpu_memory": "GPU memory", "walltime": "run time"}


def request_text(request: Requested) -> str:
    """`4 CPUs, 16GB memory`; empty where nothing is asked for."""
    parts = [cpus_text(request.cpus)] if request.cpus is not None else []
    parts += [f"{memory_text(request.memory_bytes)} memory"] if request.memory_bytes is not None else []
    parts += [f"{request.gpus:g} GPU{'s' * (request.gpus != 1)}"] if request.gpus else []
    return ", ".join(parts)


def amount(need: Need, value: float, *, binary: bool) -> str:
    """An amount of the resource of a need, in its units."""
    if need.resource == "cpus" and value < AdviceLimits.negligible_cpus:
        return f"under {AdviceLimits.negligible_cpus:g} CPUs"
    if need.resource == "cpus":
        return cpus_text(float(f"{value:.2g}"))
    return format_duration(value) if need.resource == "walltime" else amount_text(value, binary=binary)


def share_text(share: float) -> str:
    """`95th`, `99.9th`."""
    number = f"{share * 100:g}"
    return number + (
        "th" if number[-2:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    )


def reason(found: Recommendation) -> str:
    """What the attempts used, and how many there are; or why there is no advice."""
    said = []
    share = next((need.share for need in found.needs.values()), 0.95)
    for what in ("cpus", "memory"):
        need = found.needs.get(what)
        if need is None or need.bound is None or what in found.problems:
            continue
        used = need.usual_most if need.usual_most is not None else need.bound
        more = "more than " if need.usual_most is None else ""
        said.append(f"{more}{amount(need, used, binary=found.binary)}{' memory' * (what == 'memory')}")
    if not said:
        problems = found.problems.items()
        by_why = grouped((why, _NAMES[name]) for name, why in problems if name in {"cpus", "memory"})
        return "; ".join(f"{' and '.join(names)}: {why}" for why, names in by_why.items())
    what = "need" if found.killed else "usage"  # nobody saw what a killed one would have used
    history = f"in {plural(found.attempts, 'attempt')} of {plural(found.runs, 'run')}"
    return f"{share_text(share)} percentile {what} is {listed(said)}, {history}"


def sentence(found: Recommendation) -> str:
    """What to change, and why, in one sentence."""
    wanted = request_text(found.changed)
    if not wanted:
        return f"{found.task}: what it asks for is right as it is; {reason(found)}"
    before = request_text(found.current)
    return f"{found.task}: ask for {wanted}{f' instead of {before}' if before else ''}; {reason(found)}"


def gain(found: Recommendation) -> str | None:
    """What the recommendation saves, or what it is for where it asks for more; None where that cannot be
    said.
    """
    saving = found.saving
    if saving is None:
        return None
    less, more = [], []
    for part, what in ((saving.cpus, "CPUs"), (saving.memory, "memory")):
        if part is not None and part > 0:
            less.append(f"{format_percent(part)} of the {what}")
        elif part is not None and part < 0:
            times = 1.0 - part
            more.append(
                f"{times:.2g} times the {what}" if times >= 2 else f"{format_percent(-part)} more {what}"
            )
    hours = [
        f"{value:,.3g} {unit}"
        for value, unit in ((saving.cpu_hours, "CPU-hours"), (saving.gb_hours, "GB-hours"))
        if value is not None and value >= 0.05
    ]
    text = listed(less)
    if hours:
        text += f": {' and '.join(hours)} a run"
    if more:
        were = "was" if found.killed == 1 else "were"
        why = f", so that tasks are not killed as {found.killed} {were}" if found.killed else ""
        text += f"{'; ' if text else 'none: '}it takes {listed(more)}{why}"
    return text or None


def notes(found: Recommendation) -> list[str]:
    """What else there is to know, the most important first."""
    said: list[str] = []
    for what in ("memory", "gpu_memory", "cpus"):
        need = found.needs.get(what)
        if need is not None and need.bound is not None and what not in found.problems:
            said += _notes(found, need)
    if found.killed_unseen:
        many = plural(found.killed_unseen, "attempt was", "attempts were")
        said.insert(
            0,
            f"{many} killed for memory, and nobody knows with how much: the advice on memory may be too low.",
        )
    said += _little_history(found)
    for what, why in found.problems.items():
        if what in {"cpus", "memory"} and (found.recommended.cpus or found.recommended.memory_bytes):
            said.append(f"No advice on {_NAMES[what]}: {why}.")
    if found.component is None and found.is_to_change:
        said.append("It runs on no component of a manifest: give it one to ask for this.")
    took = found.needs.get("walltime")
    if took is not None and took.bound is not None:
        enough = format_percent(took.share)
        grows = took.growth and took.growth.shape != "category"
        grown = f", more with larger {took.growth.argument}" if took.growth and grows else ""
        said.append(f"{enough} of the attempts end within {format_duration(took.bound)}{grown}.")
    return said


def _little_history(found: Recommendation) -> list[str]:
    need = found.needs.get("memory")
    if need is None or need.method != "lognormal" or "memory" in found.problems:
        return []
    alike = (
        f" {need.tasks:,} tasks, which resemble each other within a run and say no more than "
        f"{round(need.worth):,} would."
        if need.worth is not None and _is_worth_less(need)
        else ""
    )
    return [
        f"Little history:{alike}{' T' if alike else ' t'}he advice on memory is wide, and assumes that it "
        "spreads as most does;"
        + (
            " more runs make it surer."
            if alike
            else f" from {enough_for(need.share)} attempts on it assumes nothing."
        )
    ]


def _is_worth_less(need: Need) -> bool:
    return need.worth is not None and need.worth < 0.5 * need.tasks


def _notes(found: Recommendation, need: Need) -> Iterator[str]:
    name, binary = _NAMES[need.resource], found.binary
    name = name[0].upper() + name[1:]
    if need.resource == "gpu_memory" and need.bound is not None:
        yield (
            f"GPU memory: {amount(need, need.bound, binary=binary)} is enough for "
            f"{format_percent(need.share)}."
        )
    if need.resource == "memory" and THREAD in found.cpu_scopes:
        yield ("Memory is that of whole processes, in which tasks ran side by side: one alone may need less.")
    if need.killed and need.killed_at is not None:
        many = plural(need.killed, "task was", "tasks were")
        at = amount(need, need.killed_at, binary=binary)
        they = "it counts" if need.killed == 1 else "they count"
        yield f"{many} killed with {at}: {they} as needing more, and the advice is not below that."
    if need.resource == "memory" and found.headroom is not None:
        yield _headroom_text(found, found.headroom)
    if need.growth is not None and need.table:
        yield _growth(found, need, name)
    if need.change is not None and need.since is not None:
        how = f"{format_percent(abs(need.change))} {'more' if need.change > 0 else 'less'}"
        yield f"{name}: since {need.since} it takes {how}; older runs do not count."
    if need.drift is not None:
        how = f"{'grows' if need.drift > 0 else 'falls'} by {format_percent(abs(need.drift))} from run to run"
        ahead = f"; the advice is for the next {AdviceLimits.max_runs_ahead}" if need.drift > 0 else ""
        yield f"{name} {how}: older runs count as if they were new{ahead}."
    if need.method == "censored lognormal":
        yield (
            f"{name}: the largest needs are only known to be larger than what was given; the rest is "
            "estimated."
        )
    alike = _is_worth_less(need) and need.method != "lognormal"
    if need.worth is not None and alike and need.resource != "cpus":
        yield (
            f"{name}: tasks of one run resemble each other, so {need.tasks:,} say no more than "
            f"{round(need.worth):,} would."
        )
    if need.at_least > 0.2 * need.tasks and need.resource != "cpus":
        yield (
            f"{name}: {need.at_least:,} of {need.tasks:,} tasks are only known to have used at least what "
            "was seen."
        )


def _headroom_text(found: Recommendation, headroom: Headroom) -> str:
    """How many tasks would not have fitted, and what it costs to have room for all."""
    asked = found.recommended.memory_bytes or headroom.memory_bytes
    more = f"{format_percent(headroom.memory_bytes / asked - 1)} more memory"
    hours = headroom.gb_hours
    cost = f" ({hours:,.3g} GB-hours a run)" if hours is not None and hours >= 0.05 else ""
    return (
        f"{headroom.tasks:,} of {plural(headroom.of, 'past task')} needed more than {memory_text(asked)}; "
        f"room for all of them is {memory_text(headroom.memory_bytes)}, {more}{cost}."
    )


def _growth(found: Recommendation, need: Need, name: str) -> str:
    growth, rows = need.growth, need.table
    assert growth is not None
    binary = found.binary

    def text(bound: float) -> str:
        if need.resource != "memory":
            return amount(need, bound, binary=binary)
        return memory_text(round_memory(bound, binary=binary))

    if growth.shape == "category":
        listed = ", ".join(f"{text(row.bound)} for {growth.argument}={row.value}" for row in rows)
        return f"{name} depends on {growth.argument}: {listed}."
    argument = growth.argument
    listed = ", ".join(f"{text(row.bound)} at {argument}={number_text(row.value)}" for row in rows)
    said = f"{name} grows with {argument}: {listed}."
    if isinstance(rows[-1].value, float) and rows[-1].value > growth.high:
        said += (
            f" Beyond {argument}={number_text(growth.high)} that is reckoned: nothing larger has completed."
        )
    asked = found.recommended.memory_bytes if found.headroom is None else None
    if need.resource == "memory" and asked is not None and rows[-1].bound > asked * (1 + 0.05):
        said += (
            f" {memory_text(asked)} is enough for {format_percent(need.share)} of attempts as they came so "
            f"far, not for the largest: ask for {text(rows[-1].bound)} where those must not fail."
        )
    return said


def evidence(found: Recommendation) -> dict[str, Any]:
    """The numbers behind a recommendation, by name with their units."""
    shown: dict[str, Any] = {"attempts": found.attempts, "runs": found.runs, "failed": found.failed}
    units = {"cpus": "", "memory": "_bytes", "gpu_memory": "_bytes", "walltime": "_s"}
    for what, need in found.needs.items():
        digits = None if units[what] == "_bytes" else 4
        for field in ("typical", "usual_most", "largest", "bound"):
            if (value := getattr(need, field)) is not None:
                shown[f"{what}_{field}{units[what]}"] = round(value, digits)
        if need.killed:
            shown[f"{what}_killed"] = need.killed
    shown["share"] = next((need.share for need in found.needs.values()), None)
    shown["assurance"] = AdviceLimits.assurance
    return shown


def unadvised(found: Recommendation) -> str:
    """Why a task has no recommendation, in a line; with what is known all the same, where tasks were
    killed.
    """
    said = f"{found.task} ({plural(found.attempts, 'attempt')}): {reason(found)}"
    memory = found.needs.get("memory")
    if memory is None or not memory.killed or memory.killed_at is None:
        return said
    had = amount(memory, memory.killed_at, binary=found.binary)
    return (
        f"{said}; {memory.killed:,} {'was' if memory.killed == 1 else 'were'} killed with {had}, so ask "
        "for more than that"
    )
