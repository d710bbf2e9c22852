"""All advice that the history of a project gives: what to request, and how to lay the work out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.caching import advise_caching, find_duplicate_calls
from flightlog.analyze.advice.parallelism import advise_chunks, advise_threads, advise_workers
from flightlog.analyze.advice.resources import (
    Recommendation,
    component_settings,
    evidence,
    gain,
    notes,
    reason,
    recommend,
    sentence,
)
from flightlog.analyze.advice.retries import TRANSIENT, advise_retries, is_transient
from flightlog.analyze.advice.statistics import Outcome, RunStatistics, gather, is_uneventful, uneventful
from flightlog.analyze.advice.walltime import advise_walltime
from flightlog.analyze.cost.cost import CostTally
from flightlog.analyze.history.attempts import ProjectHistory, read_past, unreadable
from flightlog.analyze.limits import AdviceLimits
from flightlog.analyze.tallies import copied, grouped
from flightlog.core.displayed import DisplayedResult
from flightlog.core.errors import RunNotFound, UsageError
from flightlog.core.text import base_name, first_line
from flightlog.events import CostRates
from flightlog.events.schema import result_schema
from flightlog.store.documents import document_bytes
from flightlog.store.earlier_runs import check_project, select_runs
from flightlog.store.liveness import Observer
from flightlog.store.readable import Readable
from flightlog.store.run import Run
from flightlog.store.runs_folder import folder_of_runs, place

if TYPE_CHECKING:
    from flightlog.store.headline import Headline


class Advised(DisplayedResult, Struct, frozen=True, kw_only=True):
    """All advice on one project, each with its evidence."""

    project: str
    target: str | None
    """The one it is restricted to."""
    confidence: float
    """The share of later attempts that what is recommended is to be enough for."""
    runs: int
    attempts: int
    older_runs: int
    """Runs of the project that were not read."""
    recommendations: list[Recommendation]
    """By task, those that take most time first; also those that need no change, or have too little
    history."""
    advice: list[Advice]
    """Everything there is to change, what matters most first."""
    changes: dict[str, str]
    """All values to set, by path in the manifest; where two pieces of advice differ, the first one's."""
    conditions: dict[str, str] = {}
    """Of these, by path: what has to hold before it is set. No record tells, so that it is left to the
    user."""
    problems: list[str]
    """What of the history could not be read."""
    silent: dict[str, str] = {}
    """By kind of advice there is none of: why."""
    instead_of: str | None = None
    """The latest run's project, where it has no such task and another project was looked for that has."""


def advise(
    task: str | Readable | None = None,
    *,
    project: str | None = None,
    target: str | None = None,
    confidence: float = 0.95,
    runs_dir: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
) -> Advised:
    """Advice from earlier runs, as `flightlog advise` prints it: on all tasks of a project, or on one, of
    which `sim[3]` means `sim`. A run in place of the task stands for its project and the folder it is in.

    Without a project that of the latest run, or of the latest run that has such a task; `target` restricts it
    to runs on one target. Runs are looked up in `runs_dir`, by default the configured one. Raises
    `RunNotFound` where there is nothing to learn from, and `UsageError` for a confidence that makes no sense.
    """
    check_confidence(confidence)
    if isinstance(task, Readable):
        run, task = task.opened(), None
        project, runs_dir = project or run.info.project, runs_dir or run.home.parent
    folder = folder_of_runs(runs_dir)
    name = None if task is None else base_name(task)
    past = read_past(folder, project=project, target=target, task=name, observer=observer)
    latest = past.project
    if name is not None and project is None and not past.attempts:
        past = _of_another_project(folder, past, target, name, observer) or past
    if not past.runs:
        raise RunNotFound(_no_runs(folder, past, target))
    if not past.attempts:
        raise RunNotFound(_no_attempts(past, folder, name, observer))
    found = advise_on(past, confidence=confidence, target=target, task=name)
    return found if past.project == latest else replace(found, instead_of=latest)


def check_confidence(confidence: float) -> None:
    """A `UsageError` unless it is a share between a half and nearly all."""
    if not AdviceLimits.min_confidence <= confidence <= AdviceLimits.max_confidence:
        raise UsageError(
            f"a confidence of {confidence:g} makes no sense: give the share of attempts that shall have "
            f"enough, from {AdviceLimits.min_confidence} to {AdviceLimits.max_confidence}, such as 0.95"
        )


def advise_on(
    past: ProjectHistory,
    *,
    confidence: float = 0.95,
    target: str | None = None,
    task: str | None = None,
    shape: bool = True,
) -> Advised:
    """The advice that a past gives; without `shape` on requests alone. `target` and `task` (without an index)
    are those it was read for.
    """
    by_name = grouped((attempt.name, attempt) for attempt in past.attempts)
    order = [run.run_id for run in reversed(past.runs)]
    rates = _rates(past.runs)
    found = [recommend(name, these, order, confidence, rates) for name, these in by_name.items()]
    found.sort(key=lambda one: (-(one.worker_s or 0.0), one.task))
    resources = _of_resources(found)
    others = advise_on_work(past.runs, task=task) if shape else None
    ranked = sorted([*resources, *(others.advice if others else ())], key=_rank)
    changes: dict[str, str] = {}
    conditions: dict[str, str] = {}
    for one in ranked:
        for path, value in one.changes.items():
            if path not in changes and one.only_if is not None:
                conditions[path] = one.only_if
            changes.setdefault(path, value)
    return Advised(
        project=past.project or "",
        target=target,
        confidence=confidence,
        runs=len(past.runs),
        attempts=len(past.attempts),
        older_runs=past.older_runs,
        recommendations=found,
        advice=ranked,
        changes=changes,
        conditions=conditions,
        problems=list(dict.fromkeys([*past.problems, *(others.problems if others else ())])),
        silent=others.silent if others else {},
    )


def _of_resources(found: Sequence[Recommendation]) -> list[Advice]:
    """A piece of advice for each task whose request is to be changed; what to set stands with the task that
    decides.
    """
    settings = component_settings(found)
    return [
        Advice(
            kind="resources",
            about=one.task,
            sentence=sentence(one),
            evidence=evidence(one),
            gain=gain(one),
            changes={path: wanted.text for path, wanted in settings.items() if wanted.task == one.task},
        )
        for one in found
        if one.is_to_change
    ]


def _rank(advice: Advice) -> tuple[int, float]:
    """What keeps tasks from failing first, then what saves most worker time, then the rest as it came."""
    killed = advice.evidence.get("memory_killed", 0) if advice.kind == "resources" else 0
    return 0 if killed else 1 if advice.gain_s is not None else 2, -(advice.gain_s or 0.0)


def _rates(runs: Sequence[Run]) -> CostRates | None:
    """What the newest run is charged by, where that is known."""
    try:
        return CostTally.of(event for run in runs[:1] for event in run.events("cost")).rates
    except OSError:
        return None


def _of_another_project(
    runs_dir: Path, past: ProjectHistory, target: str | None, task: str, observer: Observer | None
) -> ProjectHistory | None:
    """The past of the project whose newest runs have such a task, that of the newest run first; None where
    none has.
    """
    others = [name for name in past.projects if name != past.project]
    for name in others[: AdviceLimits.max_projects_searched]:
        runs = select_runs(runs_dir, project=name, headlines=True, observer=observer).runs
        if any(_may_have(run.headline, task) for run in runs):
            found = read_past(runs_dir, project=name, target=target, task=task, observer=observer)
            if found.attempts:
                return found
    return None


def _may_have(headline: Headline | None, task: str) -> bool:
    """Whether a run may have a task of that name; one without a summary may."""
    if headline is None or not headline.is_whole:
        return True
    return any(base_name(name) == task for name in headline.tasks.by_name)


def _no_runs(runs_dir: Path, past: ProjectHistory, target: str | None) -> str:
    check_project(past.project, past.projects, runs_dir)
    if past.problems:
        return f"no run of {past.project!r} in {place(runs_dir)} can be read: {past.problems[0]}"
    return f"no run of {past.project!r} in {place(runs_dir)} was on target {target!r}"


def _no_attempts(past: ProjectHistory, runs_dir: Path, task: str | None, observer: Observer | None) -> str:
    many = f"{len(past.runs)} run{'s' * (len(past.runs) != 1)} of {past.project!r} in {place(runs_dir)}"
    if task is None:
        return (
            f"{many} {'have' if len(past.runs) != 1 else 'has'} no task that began: there is nothing to "
            "learn from"
        )
    there = read_past(runs_dir, project=past.project, observer=observer)
    names = sorted({one.name for one in there.attempts})
    hint = f"; there are {', '.join(names[:10])}{', …' * (len(names) > 10)}" if names else ""
    return f"no attempt of {task!r} in {many}{hint}"


OF_TASKS = frozenset({"chunks", "cache", "retries", "walltime"})
"""Kinds of advice that may be about a task."""


class WorkAdvice(Struct, frozen=True, kw_only=True):
    """All that there is to say on the shape of the work."""

    advice: list[Advice]
    """What pays most first, as far as that is known in worker time."""
    silent: dict[str, str]
    """By kind of advice: why there is none."""
    runs: list[str]
    """The runs that were read, the newest first."""
    problems: list[str]
    """Sentences on runs that could not be read."""


def advise_on_work(runs: Sequence[Run], *, task: str | None = None) -> WorkAdvice:
    """What `runs` (of one project, the newest first) say on how to shape the next one; those that run are
    left out.

    With `task`, what is about that task alone, and `silent` has what may be. Never raises for what stands in
    a run.
    """
    problems: list[str] = []
    read, shapes = read_statistics(runs, problems)
    silent: dict[str, str] = {}
    found: list[Advice] = []
    if not shapes:
        return WorkAdvice(
            advice=[], silent={"shape": "no run that has ended can be read"}, runs=[], problems=problems
        )
    transient = any(
        is_transient(row.error_type) and row.tasks > row.tried_again for s in shapes for row in s.retried
    )
    try:
        repeats, mended = find_duplicate_calls(read, TRANSIENT if transient else ())
    except unreadable() as error:
        repeats, mended = [], []
        problems.append(f"which calls were repeated is not known: {first_line(str(error))}")
    for kind, look in (
        ("workers", _by_target(advise_workers, shapes)),
        ("threads", _by_target(advise_threads, shapes)),
        ("chunks", advise_chunks(shapes)),
        ("cache", advise_caching(shapes, repeats)),
        ("retries", advise_retries(shapes, mended)),
        ("walltime", advise_walltime(shapes)),
    ):
        if isinstance(look, str):
            silent[kind] = look
        else:
            found += look
    # With another kind of workers another number of them is right.
    if any(one.kind == "threads" for one in found):
        found = [one for one in found if one.kind != "workers"]
    if task is not None:
        found = [one for one in found if one.about == task and one.kind in OF_TASKS]
        silent = {kind: why for kind, why in silent.items() if kind in OF_TASKS}
    found.sort(key=lambda one: (-(one.gain_s or 0.0), one.kind, one.about))
    return WorkAdvice(advice=found, silent=silent, runs=[shape.run_id for shape in shapes], problems=problems)


def _by_target(
    look: Callable[[Sequence[RunStatistics]], Outcome], shapes: Sequence[RunStatistics]
) -> Outcome:
    """What a look at the runs of each target gives; the reason for silence is the newest run's target's."""
    looks = [look(of_one) for of_one in grouped((shape.target, shape) for shape in shapes).values()]
    return [one for each in looks if not isinstance(each, str) for one in each] or looks[0]


def read_statistics(runs: Sequence[Run], problems: list[str]) -> tuple[list[Run], list[RunStatistics]]:
    """The newest runs that have ended, and their shapes; what cannot be read is named in `problems`."""
    read: list[Run] = []
    shapes: list[RunStatistics] = []
    tasks = 0
    whole: Counter[str | None] = Counter()
    for run in runs:
        many = tasks + run.info.tasks_submitted > AdviceLimits.max_tasks
        if len(shapes) >= (AdviceLimits.min_runs if many else AdviceLimits.max_runs):
            break
        try:
            if run.status == "running" or any(run.run_id == other.run_id for other in read):
                continue  # a copy counts once
            enough = whole[run.info.target] >= AdviceLimits.max_runs_in_full
            shapes.append(uneventful(run) if enough and is_uneventful(run) else gather(run))
            whole[run.info.target] += 1
        except unreadable() as error:
            problems.append(f"{run.run_id} cannot be read: {first_line(str(error))}")
            continue
        read.append(run)
        tasks += run.info.tasks_submitted
    return read, shapes


class WordedRecommendation(Recommendation, frozen=True, kw_only=True):
    """A recommendation, and how it is said."""

    change: bool
    """Whether the request is to be changed."""
    reason: str
    potential_savings: str | None
    """In words; null where nothing is saved, or the saving is unknown."""
    notes: list[str]


class AdviceDocument(Advised, frozen=True, kw_only=True):
    """What `flightlog advise --format json` writes."""

    # A list is read here, never added to.
    recommendations: list[WordedRecommendation]  # type: ignore[assignment]


def advised_json(advised: Advised) -> bytes:
    """The advice with its words as JSON, indented, ending in a newline."""
    worded = [
        copied(
            WordedRecommendation,
            one,
            change=one.is_to_change,
            reason=reason(one),
            potential_savings=gain(one),
            notes=notes(one),
        )
        for one in advised.recommendations
    ]
    return document_bytes(copied(AdviceDocument, advised, recommendations=worded))


def advice_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON of `flightlog advise`."""
    return result_schema(AdviceDocument, "Flightlog advice")
