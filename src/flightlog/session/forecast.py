"""What a plan will likely take before it runs: wall time, cost and memory, from what history says of its
tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.history.attempts import decoded_args
from flightlog.analyze.predict.baseline import Estimate
from flightlog.analyze.predict.eta import ScheduleSpread, makespan, mean_of, simulate
from flightlog.analyze.predict.predict import Model, estimate
from flightlog.core.errors import UsageError
from flightlog.core.grouping import grouped
from flightlog.core.text import base_name, plural
from flightlog.session.plan import ExpectedCost, Plan
from flightlog.store.run import Run
from flightlog.store.tables.intervals import most_at_once
from flightlog.store.tables.run_tables import open_tables

UNSURE = 0.1
"""By how much whole runs differ, if there are too few to measure it: standard deviation of the logarithm."""


class TaskForecast(Struct, frozen=True, kw_only=True):
    """The tasks of one name."""

    calls: int
    work_s: float
    """Seconds of all of them, one after the other, on average."""
    duration_s: ScheduleSpread | None
    """Of the one that takes longest; None where nothing is known."""
    peak_memory_bytes: ScheduleSpread | None
    """Of the one that needs most; None where nothing is known."""


class MemoryForecast(Struct, frozen=True, kw_only=True):
    """The memory of one worker at its worst."""

    expected: float
    high: float
    """p95."""
    task: str
    args: dict[str, Any]
    """The call that needs most."""
    at_once: int
    """Tasks that a worker runs at once; the largest ones are added up."""
    asked_bytes: int | None
    """What the component of that task asks for."""
    over: int
    """Calls whose upper end is beyond what their component asks for."""


class Forecast(Struct, frozen=True, kw_only=True):
    """What a plan will likely take."""

    project: str
    target: str
    provider: str
    workers: int
    slots: int
    """Tasks that can run at once."""
    workers_from: str
    calls: int
    calls_from: str
    uncounted: int
    """Of them, those of which history knows too little: they come on top of all that is said."""
    wall_s: ScheduleSpread
    work_s: float
    """Seconds of all tasks, one after the other, on average."""
    around_s: float | None
    """Part of the wall time: before the first and after the last task, as in the run that the calls are
    from."""
    handover_s: float
    """Part of the wall time: what that run took for each task beyond the task itself."""
    memory: MemoryForecast | None
    cost: ExpectedCost
    cost_low: float | None
    cost_high: float | None
    tasks: dict[str, TaskForecast]
    notes: list[str]


def forecast(plan: Plan, model: Model, work: Workload, *, workers: int | None = None) -> Forecast:
    """What this plan takes for this work; a `UsageError` where nothing can be said.

    Calls of names that history does not know count for nothing, and the notes say how many. `workers` stands
    in for those of the plan.
    """
    notes = list(model.notes)
    at_once = _at_once(plan.options)
    number, origin = _workers(plan, work, workers, at_once)
    calls = _estimated(work.calls, model)
    known = [place for place, one in enumerate(calls) if one.duration is not None]
    if not known:
        names = ", ".join(sorted({call.task for call in work.calls})[:5])
        raise UsageError(
            f"history knows too little of the tasks of this plan ({names}) to say how long it takes: at "
            "least five completed attempts of a name are needed"
        )
    _say_unknown(work, calls, notes)
    estimates = [one.duration for one in calls if one.duration is not None]
    after = _renumbered(work.after, known)
    slots = number * at_once
    handover = _handover(work)
    differ = model.duration_s.between_runs
    spread = simulate(
        estimates, slots, after, between_runs=UNSURE if differ is None else differ, handover_s=handover
    )
    if differ is None:
        notes.append("too few runs to tell how much whole runs differ: 10% is assumed")
    if work.around_s is None:
        notes.append("starting workers, dispatching tasks and closing come on top: calls alone do not tell")
    around = work.around_s or 0.0
    wall = ScheduleSpread(**{key: getattr(spread, key) + around for key in ("expected", "low", "high")})
    if failed := model.duration_s.left_out.get("failed", 0):
        notes.append(
            f"failures and retries are not counted: {failed:,} of {model.attempts:,} attempts failed before"
        )
    if spared := model.duration_s.left_out.get("spared by the cache"):
        notes.append(
            f"as if nothing were found in the cache, which spared {spared:,} attempts most of their work "
            "before"
        )
    cost, low, high = _cost(plan, number, wall)
    return Forecast(
        project=plan.project,
        target=plan.target,
        provider=plan.provider,
        workers=number,
        slots=slots,
        workers_from=origin,
        calls=len(work.calls),
        calls_from=work.source,
        uncounted=len(work.calls) - len(known) + work.cut,
        wall_s=wall,
        work_s=sum(map(mean_of, estimates)),
        around_s=work.around_s,
        handover_s=handover,
        memory=_memory(plan, calls, at_once),
        cost=cost,
        cost_low=low,
        cost_high=high,
        tasks=_tasks(calls),
        notes=notes,
    )


class EstimatedCall(NamedTuple):
    """A call, and what history says of its duration and memory; None where it knows too little."""

    call: PlannedCall
    duration: Estimate | None
    memory: Estimate | None


def _estimated(calls: Sequence[PlannedCall], model: Model) -> list[EstimatedCall]:
    """Duration and memory of each call; equal calls are asked for once."""
    known: dict[tuple[str, str | None, bytes], EstimatedCall] = {}
    found = []
    for call in calls:
        key = call.task, call.component, msgspec.json.encode(call.args)
        if key not in known:
            known[key] = EstimatedCall(
                call,
                estimate(model.duration_s, call.task, call.args, component=call.component),
                estimate(model.peak_memory_bytes, call.task, call.args, component=call.component),
            )
        found.append(known[key])
    return found


def _at_once(options: Mapping[str, Any]) -> int:
    threads = options.get("threads_per_worker")
    return threads if isinstance(threads, int) and threads > 0 else 1


def _workers(plan: Plan, work: Workload, given: int | None, at_once: int) -> tuple[int, str]:
    if given is not None:
        return given, "as given"
    if plan.workers is not None:
        return plan.workers, f"from the {plan.workers_from}"
    if work.workers:
        return max(1, round(work.workers / at_once)), "as in the run that the calls are from"
    raise UsageError(
        "neither the manifest nor history says how many workers there will be: say so with --workers, or "
        f"as n_workers or max_workers of target {plan.target!r}"
    )


def _say_unknown(work: Workload, calls: Sequence[EstimatedCall], notes: list[str]) -> None:
    unknown = Counter(one.call.task for one in calls if one.duration is None)
    for name, count in unknown.most_common(5):
        notes.append(f"not counted: {plural(count, 'call')} of {name}, of which history knows too little")
    if len(unknown) > 5:
        notes.append(f"not counted: the calls of {len(unknown) - 5:,} further names")
    if work.cut:
        notes.append(f"not counted: {work.cut:,} further calls, which are too many")


def _renumbered(after: Sequence[Sequence[int]], known: Sequence[int]) -> list[list[int]]:
    if not after:
        return []
    place = {old: new for new, old in enumerate(known)}
    return [[place[other] for other in after[old] if other in place] for old in known]


def _handover(work: Workload) -> float:
    """What the earlier run took for each task beyond the task itself: handing over, starting, waiting."""
    if work.span_s is None or not work.workers or any(each is None for each in work.durations):
        return 0.0
    alone = makespan([each for each in work.durations if each is not None], work.workers, work.after)
    return max(0.0, work.span_s - alone) * work.workers / max(1, len(work.durations))


def _memory(plan: Plan, calls: Sequence[EstimatedCall], at_once: int) -> MemoryForecast | None:
    known = [(one.memory, one.call) for one in calls if one.memory is not None]
    if not known:
        return None
    largest = sorted(known, key=lambda pair: -pair[0].high)[:at_once]
    _, most = largest[0]
    return MemoryForecast(
        expected=sum(each.expected for each, _ in largest),
        high=sum(each.high for each, _ in largest),
        task=most.task,
        args=most.args,
        at_once=at_once,
        asked_bytes=_asked(plan, most),
        over=sum((asked := _asked(plan, call)) is not None and each.high > asked for each, call in known),
    )


def _asked(plan: Plan, call: PlannedCall) -> int | None:
    task = plan.tasks.get(call.task)
    component = plan.components.get(call.component or (task.component if task is not None else None) or "")
    return component.memory_bytes if component is not None else None


def _cost(plan: Plan, workers: int, wall: ScheduleSpread) -> tuple[ExpectedCost, float | None, float | None]:
    """The cost of so long, and that of the ends of the interval; the plan's own reason where there is no
    rate.
    """
    price = plan.cost.per_worker_hour
    if price is None:
        return plan.cost, None, None
    hours = [workers * seconds / 3600 for seconds in (wall.expected, wall.low, wall.high)]
    cost = replace(plan.cost, amount=price * hours[0], reason=None, worker_hours=hours[0])
    return cost, price * hours[1], price * hours[2]


def _tasks(calls: Sequence[EstimatedCall]) -> dict[str, TaskForecast]:
    by_name = grouped((one.call.task, one) for one in calls)
    return {
        name: TaskForecast(
            calls=len(mine),
            work_s=sum(mean_of(one.duration) for one in mine if one.duration is not None),
            duration_s=_most(one.duration for one in mine),
            peak_memory_bytes=_most(one.memory for one in mine),
        )
        for name, mine in sorted(by_name.items())
    }


def _most(estimates: Iterable[Estimate | None]) -> ScheduleSpread | None:
    known = [each for each in estimates if each is not None]
    most = max(known, key=lambda each: each.expected, default=None)
    return None if most is None else ScheduleSpread(expected=most.expected, low=most.low, high=most.high)


MOST = 100_000
"""So many calls are looked at."""


class PlannedCall(Struct, frozen=True, kw_only=True):
    """One task to run."""

    task: str
    args: dict[str, Any] = {}
    component: str | None = None


class Workload(Struct, frozen=True, kw_only=True):
    """Calls, and what is known of an earlier time that they were run."""

    source: str
    """Where they come from, in words."""
    calls: list[PlannedCall]
    after: list[list[int]] = []
    """For each call the places of those that it waits for; empty where none waits."""
    cut: int = 0
    """Calls that were too many to be looked at."""
    durations: list[float | None] = []
    """Seconds that each took then; empty where they were not run."""
    workers: int = 0
    """Tasks that ran at once then, at most; 0 where they were not run."""
    span_s: float | None = None
    """From the first start to the last end then."""
    around_s: float | None = None
    """What that run took before and after."""


_CALLS = """
SELECT task_id, base_name(task) AS task, args, component, depends_on FROM task_lines WHERE kind = 1
QUALIFY row_number() OVER (PARTITION BY task_id ORDER BY "timestamp", writer, seq) = 1
ORDER BY "timestamp", writer, seq LIMIT $most
"""
_ENDS = """
CREATE TEMP TABLE ends AS
SELECT task_id, attempt, duration_s, began AS since, stopped AS until,
    ($all OR task_id IN (FROM looked_at)) AS looked_at
FROM attempt_intervals WHERE ended IS NOT NULL AND duration_s >= 0 AND isfinite(duration_s)
"""


def calls_of_run(run: Run, *, most: int = MOST) -> Workload:
    """The first `most` calls that a run submitted, in their order, each once however often it was tried."""
    with open_tables([run]) as tables:
        rows = tables.records(_CALLS, {"most": most})
        places = {row["task_id"]: place for place, row in enumerate(rows)}
        cut = tables.scalar("SELECT count(DISTINCT task_id) FROM task_lines WHERE kind = 1") - len(rows)
        # Of a run with too many calls, what is compared with the calls that are looked at are these alone.
        tables.keep("looked_at", {"task_id": "VARCHAR"}, [(task_id,) for task_id in places])
        tables.execute(_ENDS, {"all": not cut})
        took = dict(tables.rows("SELECT task_id, arg_max(duration_s, attempt) FROM ends GROUP BY task_id"))
        lasted = "SELECT (max(until) - min(since)) / 1e9 FROM ends"
        span, whole = tables.scalar(f"{lasted} WHERE looked_at"), tables.scalar(lasted)
        at_once = most_at_once(tables, "SELECT since, until FROM ends WHERE looked_at")
    after = [[places[other] for other in row["depends_on"] or () if other in places] for row in rows]
    wall = run.info.duration_s
    return Workload(
        source=f"the {len(rows):,} calls of {run.run_id}",
        calls=[
            PlannedCall(task=row["task"], args=decoded_args(row["args"]), component=row["component"])
            for row in rows
        ],
        after=after if any(after) else [],
        cut=cut,
        durations=[took.get(task_id) for task_id in places],
        workers=at_once[0] if at_once is not None else 0,
        span_s=span,
        around_s=max(0.0, wall - whole) if wall is not None and whole is not None else None,
    )


def calls_of_file(file: Path) -> Workload:
    """The calls of a file with one JSON object per line: `{"task": "simulate", "args": {"n": 100}}`."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
    calls: list[PlannedCall] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                call = msgspec.json.decode(line, type=PlannedCall)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(
                    f'{file}, line {number}: not a call ({error}); write {{"task": "simulate", "args": '
                    f'{{"n": 100}}}}'
                ) from None
            calls.append(msgspec.structs.replace(call, task=base_name(call.task)))
    if not calls:
        raise UsageError(f"{file} holds no calls: write one JSON object per line, with a task and its args")
    return Workload(
        source=f"the {min(len(calls), MOST):,} calls of {file.name}",
        calls=calls[:MOST],
        cut=max(0, len(calls) - MOST),
    )
