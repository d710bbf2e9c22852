"""Advice on the shape of the work: workers, threads, chunks, caching, retries and time limits.

Looks over the newest runs that have ended, each read once, and says nothing where they do not agree or are
too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.caching import advise_caching
from flightlog.analyze.advice.chunks import advise_chunks
from flightlog.analyze.advice.gathered import Look, RunShape, gather, is_uneventful, uneventful
from flightlog.analyze.advice.repeats import find_repeats
from flightlog.analyze.advice.retries import TRANSIENT, advise_retries, is_transient
from flightlog.analyze.advice.threads import advise_threads
from flightlog.analyze.advice.walltime import advise_walltime
from flightlog.analyze.advice.workers import advise_workers
from flightlog.errors import FlightlogError

if TYPE_CHECKING:
    from flightlog.store.run import Run

RUNS = 20
"""So many runs are looked at, the newest."""
TASKS = 3_000_000
"""And no more of them, where they have more tasks than these together; but `FEWEST` at least."""
FEWEST = 3
WHOLE = 5
"""So many runs of each target are looked at in full; of older ones only those in which something failed, was
kept in a cache, or ran in a batch job: the rest of them is as the newer ones are, and counts as a run without
any of this."""
OF_TASKS = frozenset({"chunks", "cache", "retries", "walltime"})
"""Kinds of advice that may be about a task."""


class ShapeAdvice(Struct, frozen=True, kw_only=True):
    """All that there is to say on the shape of the work."""

    advice: list[Advice]
    """What pays most first, as far as that is known in worker time."""
    silent: dict[str, str]
    """By kind of advice: why there is none."""
    runs: list[str]
    """The runs that were looked at, the newest first."""
    problems: list[str]
    """Sentences on runs that could not be read."""


def advise_shape(runs: Sequence[Run], *, task: str | None = None) -> ShapeAdvice:
    """What `runs` (of one project, the newest first) say on how to shape the next one; those that run are
    left out.

    With `task`, what is about that task alone, and `silent` has what may be. Never raises for what stands in
    a run.
    """
    problems: list[str] = []
    read, shapes = gather_runs(runs, problems)
    silent: dict[str, str] = {}
    found: list[Advice] = []
    if not shapes:
        return ShapeAdvice(
            advice=[], silent={"shape": "no run that has ended can be read"}, runs=[], problems=problems
        )
    transient = any(
        is_transient(row.error_type) and row.tasks > row.tried_again for s in shapes for row in s.retried
    )
    try:
        repeats, mended = find_repeats(read, TRANSIENT if transient else ())
    except _unreadable() as error:
        repeats, mended = [], []
        problems.append(f"which calls were repeated is not known: {_line(error)}")
    for kind, look in (
        ("workers", _by_target(advise_workers, shapes)),
        ("threads", _by_target(advise_threads, shapes)),
        ("chunks", advise_chunks(shapes)),
        ("cache", advise_caching(shapes, repeats)),
        ("retries", advise_retries(shapes, mended)),
        ("walltime", advise_walltime(shapes)),
    ):
        found += look.advice
        if look.silent is not None:
            silent[kind] = look.silent
    if any(
        one.kind == "threads" for one in found
    ):  # with another kind of workers another number of them is right
        found = [one for one in found if one.kind != "workers"]
    if task is not None:
        found = [one for one in found if one.about == task and one.kind in OF_TASKS]
        silent = {kind: why for kind, why in silent.items() if kind in OF_TASKS}
    found.sort(key=lambda one: (-(one.gain_s or 0.0), one.kind, one.about))
    return ShapeAdvice(
        advice=found, silent=silent, runs=[shape.run_id for shape in shapes], problems=problems
    )


def _by_target(look: Callable[[Sequence[RunShape]], Look], shapes: Sequence[RunShape]) -> Look:
    """What a look at the runs of each target gives; the reason for silence is the newest run's target's."""
    targets: dict[str | None, list[RunShape]] = {}
    for shape in shapes:
        targets.setdefault(shape.target, []).append(shape)
    looks = [look(of_one) for of_one in targets.values()]
    advice = [one for each in looks for one in each.advice]
    return Look(advice=advice) if advice else looks[0]


def gather_runs(runs: Sequence[Run], problems: list[str]) -> tuple[list[Run], list[RunShape]]:
    """The newest runs that have ended, and their shapes; what cannot be read is named in `problems`."""
    read: list[Run] = []
    shapes: list[RunShape] = []
    tasks = 0
    whole: dict[str | None, int] = {}
    for run in runs:
        if len(shapes) == RUNS or (len(shapes) >= FEWEST and tasks + run.info.tasks_submitted > TASKS):
            break
        try:
            if run.status == "running" or any(run.run_id == other.run_id for other in read):
                continue  # a copy counts once
            many = whole.get(run.info.target, 0)
            shapes.append(uneventful(run) if many >= WHOLE and is_uneventful(run) else gather(run))
            whole[run.info.target] = many + 1
        except _unreadable() as error:
            problems.append(f"{run.run_id} cannot be read: {_line(error)}")
            continue
        read.append(run)
        tasks += run.info.tasks_submitted
    return read, shapes


def _unreadable() -> tuple[type[Exception], ...]:
    import duckdb

    return OSError, duckdb.Error, FlightlogError


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
