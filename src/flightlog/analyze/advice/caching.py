"""Caching: functions that compute the same again and again, and caches that never hit.

Duplicate calls are found by the digest of their arguments and their code. Calls whose arguments were recorded
in part only (arrays by their shape, long texts cut, secrets hidden) are left out, as two of them may look
alike and differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.analyze.advice.base import Advice, manifest_duration, round_duration, worker_time
from flightlog.analyze.advice.statistics import Outcome, RunStatistics
from flightlog.analyze.findings.cache_misses import NEW_CALL
from flightlog.analyze.limits import AdviceLimits
from flightlog.core.units import format_bytes, format_duration, format_percent
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.tables.connection import records
from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


ALONE = "its result depends on its arguments alone"
LASTS = "its results stay right for that long"
"""What has to hold for a cache, and for one that keeps results longer."""


def advise_caching(shapes: Sequence[RunStatistics], repeats: Sequence[DuplicateCalls]) -> Outcome:
    """Functions worth caching, by what was called again; and caches without a hit, by the reasons they
    gave.
    """
    asked = {name for shape in shapes for name in (*shape.cached_tasks, *shape.cache)}
    advice: list[Advice] = []
    why: list[str] = []
    for one in repeats:
        if one.name in asked:
            continue
        reason = _why_not(one, shapes)
        if reason is None:
            advice.append(_worth(one, shapes))
        elif one.repeated_s >= AdviceLimits.min_cache_saving_s:
            why.append(f"{one.name}: {reason}")
    cached = sorted({name for shape in shapes for name in shape.cache})
    advice += [found for name in cached if (found := _never_hits(name, shapes)) is not None]
    silent = "; ".join(why[:3]) or f"no call took long and was made again in {len(shapes)} runs"
    return advice or silent


def _why_not(one: DuplicateCalls, shapes: Sequence[RunStatistics]) -> str | None:
    """Why nothing is advised of a function that computes the same again; None where it is worth caching."""
    again = one.calls - one.different
    planned = [shape.planned.task(one.name) for shape in shapes]
    least = max(AdviceLimits.min_cache_saving_s, AdviceLimits.min_cache_saving_share * one.total_s)
    if one.repeated_s < least or again < AdviceLimits.min_repeated_calls:
        return "too little of it is repeated"
    if one.total_s < AdviceLimits.min_call_s * one.calls:
        return "its calls are too short to gain by a lookup"
    if one.unlike:
        return f"{one.unlike} calls gave another result for the same arguments"
    if any(task.cache is not None for task in planned):
        return "the manifest says how it is cached"
    if any(task.outputs for task in planned) or one.write_bytes >= AdviceLimits.max_written_bytes:
        return "it makes files, which a cached result would not"
    return None


def _worth(one: DuplicateCalls, shapes: Sequence[RunStatistics]) -> Advice:
    again = one.calls - one.different
    a_run = one.repeated_s / one.runs
    key = shapes[0].planned.target is not None
    how = "`cache: true` in the manifest, or `@flightlog.cacheable`" if key else "`@flightlog.cacheable`"
    alike = ", and gave a result of the same size" if one.results_known else ""
    return Advice(
        kind="cache",
        about=one.name,
        sentence=(
            f"Cache {one.name} ({how}): {again:,} of {one.calls:,} calls in {one.runs} "
            f"run{'s' * (one.runs != 1)} repeated an earlier one{alike}; it would have saved "
            f"{format_duration(one.repeated_s)} of {format_duration(one.total_s)}. Only if {ALONE}."
        ),
        evidence={
            "runs": one.runs,
            "calls": one.calls,
            "repeated_calls": again,
            "total_s": one.total_s,
            "repeated_s": one.repeated_s,
            "results_compared": one.results_known,
        },
        gain=f"{worker_time(a_run)} a run, {format_percent(one.repeated_s / one.total_s)} of its time",
        gain_s=a_run,
        changes={f"tasks.{one.name}.cache": "true"} if key else {},
        only_if=ALONE,
    )


def _never_hits(name: str, shapes: Sequence[RunStatistics]) -> Advice | None:
    used = [(shape, shape.cache[name]) for shape in shapes if name in shape.cache]
    uses = [use for _, use in used]
    lookups = sum(use.hits + use.misses + use.bypassed for use in uses)
    few = len(used) < AdviceLimits.min_runs_without_hit or lookups < AdviceLimits.min_lookups_without_hit
    if few or any(use.hits for use in uses):
        return None
    counted = sum((Counter(use.reasons) for use in uses), Counter[str]())
    reasons = dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))
    if not reasons:
        return None
    main = next(iter(reasons))
    spent = sum(use.lookup_s for use in uses) / len(uses)
    kept = sum(use.kept_bytes for use in uses)
    evidence: dict[str, Any] = {
        "runs": len(used),
        "lookups": lookups,
        "hits": 0,
        "misses": sum(use.misses for use in uses),
        "bypassed": sum(use.bypassed for use in uses),
        "reasons": reasons,
        "lookup_s": spent,
        "kept_bytes": kept,
    }
    told = ", ".join(f"{reason} ({number:,})" for reason, number in list(reasons.items())[:3])
    what, changes, gain = _mend(name, main, [shape for shape, _ in used], reasons, spent, kept)
    return Advice(
        kind="cache",
        about=name,
        sentence=(
            f"The cache of {name} never had what it was asked for: {lookups:,} lookups in {len(used)} "
            f"runs, no hit: {told}. {what}"
        ),
        evidence=evidence,
        gain=gain,
        gain_s=None,
        changes=changes,
        only_if=LASTS if f"tasks.{name}.cache.ttl" in changes else None,
    )


def _mend(
    name: str,
    reason: str,
    shapes: Sequence[RunStatistics],
    reasons: dict[str, int],
    spent_s: float,
    kept_bytes: int,
) -> tuple[str, dict[str, str], str | None]:
    """What to do about a reason, the manifest's change, and what it gives."""
    planned = shapes[0].planned.task(name)
    cost = f"{format_duration(spent_s)} of lookups a run" + (
        f", and {format_bytes(kept_bytes)} written in vain" if kept_bytes else ""
    )
    if all(one in NEW_CALL for one in reasons):
        text = (
            "Every call is a new one: do without the cache, or name arguments that do not change the "
            "result in `ignore`."
        )
        return text, {f"tasks.{name}.cache": "false"} if planned.cache else {}, cost
    if reason == "expired":
        apart = _apart(shapes)
        lives = planned.cache.get("ttl_s") if isinstance(planned.cache, dict) else None
        if apart is None:
            return "Results are too old when they are asked for: raise its `ttl`.", {}, None
        longer = manifest_duration(round_duration(3 * apart))
        told = f" of {format_duration(lives)}" if lives else ""
        text = (
            f"Runs are {format_duration(apart)} apart, and its `ttl`{told} is over by then: set {longer}, "
            f"only if {LASTS}."
        )
        return text, {f"tasks.{name}.cache.ttl": longer} if lives else {}, None
    return _REMEDIES.get(reason, "`flightlog cache explain` says more."), {}, None


_REMEDIES = {
    "code changed": "Its code, or code that it calls, changes between runs; `flightlog cache explain` names "
    "it.",
    "damaged": "What is kept cannot be read: look at the disk, and clear it with `flightlog cache`.",
}


def _apart(shapes: Sequence[RunStatistics]) -> float | None:
    """How long it is from one run to the next, the median; None where that is not known."""
    begun = sorted(shape.started for shape in shapes if shape.started is not None)
    between = [later - earlier for earlier, later in pairwise(begun)]
    found = median(between) if between else 0.0
    return found if found > 0 else None


MEMORY = "512MB"


class DuplicateCalls(Struct, frozen=True, kw_only=True):
    """Completed calls of one function over several runs. Calls are the same if name, arguments and code
    are.
    """

    name: str
    runs: int
    """In which it was called."""
    calls: int
    different: int
    total_s: float
    repeated_s: float
    """Time of all but the first of the calls that were the same."""
    unlike: int
    """Calls that were the same and gave results of different sizes: not of their arguments alone."""
    results_known: bool
    """Whether the sizes of all results are known."""
    write_bytes: float
    """Written to storage by a call, the mean; 0 where that is unknown."""


class Mended(Struct, frozen=True, kw_only=True):
    """Calls of one task that failed of one kind of error, and those of them that completed at another
    time.
    """

    name: str
    error_type: str
    calls: int
    completed: int


class _Function(Struct, frozen=True):
    sha256: str | None = None


class _Lock(Struct, frozen=True):
    functions: dict[str, _Function] = {}


_CALLS = r"""
CREATE OR REPLACE TEMP VIEW calls AS
SELECT run_id, name, hash(coalesce(own.code, whole.code), name, args_digest) AS call, event, duration_s,
    result_bytes,
    write_bytes, error_type
FROM (
    SELECT run_id, event, base_name(task) AS name, args_digest, duration_s,
        result_bytes,
        write_bytes, error_type
    FROM task_events
    WHERE event IN ('task_completed', 'task_failed') AND args_digest IS NOT NULL AND task IS NOT NULL
        AND NOT regexp_matches(CAST(args AS VARCHAR), '"<|… \[\+|\[redacted\]|^\{"command":')
) JOIN whole USING (run_id) LEFT JOIN own USING (run_id, name)
"""
_REPEATS = """
WITH same AS (
    SELECT name, call, count(*) AS times, sum(duration_s) AS total,
        max(result_bytes) - min(result_bytes) AS apart,
        count(result_bytes) AS known, sum(coalesce(write_bytes, 0)) AS written
    FROM calls WHERE event = 'task_completed' AND duration_s BETWEEN 0 AND 2e9 GROUP BY name, call
), seen AS (
    SELECT name, count(DISTINCT run_id) AS runs FROM calls WHERE event = 'task_completed' GROUP BY name
)
SELECT name, any_value(seen.runs) AS runs, sum(times)::BIGINT AS calls, count(*) AS different,
    sum(total) AS total_s, coalesce(sum(total - total / times), 0) AS repeated_s,
    count(*) FILTER (times > 1 AND apart > 0) AS unlike, sum(known) = sum(times) AS results_known,
    (sum(written) / sum(times))::DOUBLE AS write_bytes
FROM same JOIN seen USING (name) GROUP BY name HAVING max(times) > 1 ORDER BY repeated_s DESC, name
"""
_MENDED = """
WITH failing AS (
    SELECT DISTINCT name, error_type, call FROM calls
    WHERE event = 'task_failed' AND regexp_extract(error_type, '[^.]*$') IN (SELECT unnest($kinds::VARCHAR[]))
), done AS (
    SELECT DISTINCT call FROM calls WHERE event = 'task_completed' AND call IN (SELECT call FROM failing)
)
SELECT name, error_type, count(*) AS calls, count(done.call) AS completed
FROM failing LEFT JOIN done USING (call)
GROUP BY name, error_type ORDER BY name, error_type
"""


def find_duplicate_calls(
    runs: Sequence[Run], transient: Collection[str] = ()
) -> tuple[list[DuplicateCalls], list[Mended]]:
    """Functions of which calls were made again, and failed calls that completed at another time.

    The latter for the kinds of errors in `transient` alone. Takes some 50 bytes of memory for each different
    call. Raises `OSError` or `duckdb.Error` where files cannot be read.
    """
    if not runs:
        return [], []
    with open_tables(runs) as tables:
        tables.execute(f"SET memory_limit = '{MEMORY}'")
        _note_code(tables, runs)
        tables.execute(_CALLS)
        repeats = [DuplicateCalls(**row) for row in tables.records(_REPEATS)]
        if not transient:
            return repeats, []
        found = records(tables.execute(_MENDED, {"kinds": list(transient)}))
    return repeats, [Mended(**row) for row in found]


def _note_code(tables: RunTables, runs: Sequence[Run]) -> None:
    """What stands for the code of each run, and of those of its functions whose source the lock knows.

    A run whose code is unknown is compared with no other run.
    """
    clean = {run.run_id: run.info.git_commit if run.info.git_dirty is False else None for run in runs}
    whole = [(run_id, commit or run_id) for run_id, commit in clean.items()]
    own: list[tuple[str, str, str]] = []
    for run in runs:
        lock = read_document(run.path / layout.LOCK, _Lock).value or _Lock()
        found = {name.rpartition(".")[2]: it.sha256 for name, it in lock.functions.items() if it.sha256}
        own += [(run.run_id, name, sha256) for name, sha256 in found.items()]
    tables.keep("whole", {"run_id": "VARCHAR", "code": "VARCHAR"}, whole)
    tables.keep("own", {"run_id": "VARCHAR", "name": "VARCHAR", "code": "VARCHAR"}, own)
