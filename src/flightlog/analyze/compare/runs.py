"""The figures of each compared run and the tables behind them; why one side took longer than the other; and
what differs in the environment: code, packages, Python, machine, manifest, settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.analyze.compare.results import EnvironmentChange, Share, WallExplained
from flightlog.analyze.cost.cost import run_cost
from flightlog.analyze.limits import CompareLimits
from flightlog.analyze.report.time_shares import Shares, TimeSplit, shares
from flightlog.analyze.tallies import by_two_keys
from flightlog.core.time import SECOND, moment
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.tables.connection import text
from flightlog.store.tables.intervals import make_attempt_intervals, make_span_intervals
from flightlog.store.tables.views import USED
from flightlog.store.tables.worker_time import TRANSFER
from flightlog.store.tables.workers import make_workers

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


class WorkByName(Struct, frozen=True):
    """What one name of task, or of span, came to in one run."""

    count: float = 0.0
    seconds: float = 0.0
    saved_s: float = 0.0
    """What a cache spared it."""

    @property
    def whole_s(self) -> float:
        """All that was asked for."""
        return self.seconds + self.saved_s

    @property
    def each_s(self) -> float | None:
        """How long one takes, if nothing is cached."""
        return self.whole_s / self.count if self.count else None


class ComparedRunFigures(Struct, frozen=True, kw_only=True):
    """One run in numbers. Counts are 0 where there is nothing, everything else is null where nobody
    measured.
    """

    wall_s: float | None
    time: Shares | None
    work: Mapping[str, WorkByName]
    """By task name, of completed tasks; by span name, their own time, where there are no tasks."""
    work_kind: str
    counts: dict[str, int]
    cpu_s: float | None
    peak_rss_bytes: int | None
    read_bytes: int | None
    write_bytes: int | None
    lookups: int
    hits: int
    saved_s: float | None
    cost: float | None
    currency: str | None


_MEASURED = ("cpu_s", "peak_rss_bytes", "read_bytes", "write_bytes")
_COMPARED = f"""
CREATE TABLE compared AS
SELECT run_id, task, task_id, attempt, component, state, retried, worker, submitted_at, queued_at, started_at,
    ended_at, queue_s, duration_s, {", ".join(_MEASURED)}, args_digest, depends_on, {{span_id}} AS span_id
FROM attempts
"""  # noqa: S608 - constants
_COMPARED_SPANS = """
CREATE TABLE compared_spans AS
SELECT run_id, name, span_id, parent_id, status, timestamp AS started_at, duration_s
FROM span_events WHERE event = 'span'
"""
_UNENDED = """
SELECT count(*) > 0 FROM (SELECT run_id, span_id FROM span_events WHERE event = 'span_open')
ANTI JOIN compared_spans USING (run_id, span_id)
"""
_OPEN_SPANS = """
CREATE TABLE open_spans AS
SELECT run_id, name, span_id, parent_id, status, started_at, duration_s FROM spans WHERE {any}
"""
"""Spans without an end, up to the last sign of life of their process; to find them takes long, so that they
are read only if there are any."""
_SIDES = """
CREATE TABLE sides AS
SELECT unnest($1::VARCHAR[]) AS run_id, unnest($2::INT[]) AS side, unnest($3::INT[]) AS run
"""
_LEFT_OUT = ", ".join(f"NULL AS {name}" for name in USED if name not in _MEASURED)
_DIGESTED = """
CREATE OR REPLACE TABLE compared AS
SELECT compared.* REPLACE (coalesce(args_digest, digest) AS args_digest) FROM compared LEFT JOIN (
    SELECT run_id, task_id, md5(max(args::VARCHAR)) AS digest FROM task_events
    WHERE event = 'task_submitted' AND args IS NOT NULL GROUP BY run_id, task_id
) USING (run_id, task_id)
"""
"""Tasks that a program records by itself have arguments and no digest of them; arguments take long to
read."""
_FAILED = """
CREATE TABLE failed_tasks AS
SELECT run_id, task, task_id, timestamp, error_type, error_message, fingerprint
FROM task_events WHERE event = 'task_failed' AND {any}
"""
"""Texts of errors take as long to read as all durations, so that they are read only if anything failed."""
_LOOKUPS = """
CREATE TABLE lookups AS
SELECT run_id, task_id, count(*) FILTER (result = 'hit') AS hits, count(*) FILTER (result = 'miss') AS misses,
    sum(CAST(round_even(greatest(least(saved_s - coalesce(duration_s, 0), 9e9), -9e9) * 1e9, 0) AS BIGINT))
        FILTER (result = 'hit' AND saved_s IS NOT NULL) AS saved_ns
FROM cache GROUP BY ALL
"""
_LOOKED_UP = """
SELECT run_id, sum(hits)::BIGINT, sum(misses)::BIGINT, sum(saved_ns) / 1e9 FROM lookups GROUP BY ALL
"""
_COUNTS = """
SELECT run_id, count(submitted_at), count(*) FILTER (state = 'completed'),
    count(*) FILTER (state = 'failed' AND NOT retried), count(*) FILTER (state = 'cancelled'),
    count(*) FILTER (retried), sum(cpu_s), max(peak_rss_bytes), sum(read_bytes)::HUGEINT,
    sum(write_bytes)::HUGEINT
FROM compared GROUP BY run_id
"""
_COUNTED = ("submitted", "completed", "failed", "cancelled", "retried")
_SAMPLED = """
SELECT run_id, sum(cpu_s), max(peak), sum(read_bytes)::HUGEINT, sum(write_bytes)::HUGEINT FROM (
    SELECT run_id, max(cpu_s) - min(cpu_s) AS cpu_s, max(greatest(peak_rss_bytes, rss_bytes)) AS peak,
        max(read_bytes) - min(read_bytes) AS read_bytes, max(write_bytes) - min(write_bytes) AS write_bytes
    FROM resources WHERE event = 'resource_sample' AND scope = 'worker' GROUP BY run_id, host, worker, pid
) GROUP BY run_id
"""
_WORK = """
SELECT run_id, task, count(*), sum(in_ns(duration_s)) / 1e9, coalesce(sum(saved_ns), 0) / 1e9
FROM compared LEFT JOIN lookups USING (run_id, task_id)
WHERE state = 'completed' AND duration_s >= 0 AND isfinite(duration_s) GROUP BY ALL
"""
_SPAN_WORK = """
SELECT run_id, name, count(*), sum(in_ns(self_s)) / 1e9, 0.0
FROM spans WHERE self_s IS NOT NULL AND NOT open GROUP BY ALL
"""


def prepare(tables: RunTables, sides: Sequence[Sequence[Run]]) -> None:
    """Make the tables `sides`, `compared`, `compared_spans`, `open_spans`, `failed_tasks` and `lookups`;
    attempts and spans are read once.

    They are there for every cursor of the tables, so that the runs' times can be taken side by side.
    """
    tables.make(["attempts", "spans", "resources", "task_events"])
    rows = [(run.run_id, side, number) for side, runs in enumerate(sides) for number, run in enumerate(runs)]
    tables.execute(_SIDES, [list(column) for column in zip(*rows, strict=True)])
    tables.execute(_COMPARED_SPANS)
    tables.execute(_OPEN_SPANS.format(any="open" if tables.scalar(_UNENDED) else "false"))
    tables.execute(
        "CREATE TABLE transfers AS SELECT * FROM compared_spans WHERE regexp_matches(name, ?)", [TRANSFER]
    )
    tables.execute(_LOOKUPS)
    # The ids of tasks' spans take long to read, too. They tell transfers, and which spans a cache spared.
    known = tables.scalar(
        "SELECT (SELECT count(*) > 0 FROM transfers) OR "
        "coalesce((SELECT bool_or(hits > 0) FROM lookups), false) AND (SELECT count(*) > 0 FROM "
        "compared_spans)"
    )
    tables.execute(_COMPARED.format(span_id="span_id" if known else "NULL::VARCHAR"))
    if tables.scalar("SELECT count(*) > 0 FROM compared WHERE args_digest IS NULL"):
        tables.execute(_DIGESTED)
    failed = tables.scalar("SELECT count(*) > 0 FROM compared WHERE state = 'failed'")
    tables.execute(_FAILED.format(any="true" if failed else "false"))


def read_figures(tables: RunTables, runs: Sequence[Run]) -> dict[str, ComparedRunFigures]:
    """The figures of each run, by its id, after `prepare`."""
    counts, sampled, lookups = (
        {run_id: rest for run_id, *rest in tables.execute(statement).fetchall()}
        for statement in (_COUNTS, _SAMPLED, _LOOKED_UP)
    )
    kind = "task" if counts else "span"
    rows = tables.rows(_WORK if counts else _SPAN_WORK)
    work = by_two_keys((run_id, name, WorkByName(*numbers)) for run_id, name, *numbers in rows)
    walls = {run.run_id: run.ending().duration_s for run in runs}
    with ThreadPoolExecutor(CompareLimits.parallel_runs) as pool:
        times = list(pool.map(lambda run: _time(tables, run, walls[run.run_id]), runs))
    found: dict[str, ComparedRunFigures] = {}
    for run, time in zip(runs, times, strict=True):
        tasks = counts.get(run.run_id, [0] * len(_COUNTED) + [None] * len(_MEASURED))
        trees = sampled.get(run.run_id, [None] * len(_MEASURED))
        used = [tree if tree is not None else task for tree, task in zip(trees, tasks[-4:], strict=True)]
        hits, misses, saved_s = lookups.get(run.run_id, (0, 0, None))
        cost = run_cost(run)
        found[run.run_id] = ComparedRunFigures(
            wall_s=walls[run.run_id],
            time=time,
            work=work.get(run.run_id, {}),
            work_kind=kind,
            counts=dict(zip(_COUNTED, tasks, strict=False)),
            **dict(zip(_MEASURED, used, strict=True)),
            lookups=hits + misses,
            hits=hits,
            saved_s=saved_s,
            cost=cost.total,
            currency=cost.currency,
        )
    return found


def _time(whole: RunTables, run: Run, wall_s: float | None) -> Shares | None:
    """Where the time of one run went, on a cursor of its own, in which its attempts stand for those of all
    runs.
    """
    start = moment(run.info.start_time)
    until = None if start is None or wall_s is None else start + round(wall_s * SECOND)
    tables = whole.cursor((start, until))
    one = text(run.run_id)
    tables.execute(f"""
        CREATE OR REPLACE TEMP VIEW attempts AS
        SELECT *, {_LEFT_OUT}, NULL::VARCHAR AS parent_id, NULL::BIGINT AS result_bytes,
            NULL::JSON AS args, NULL::VARCHAR AS error_type, NULL::JSON AS metrics
        FROM compared WHERE run_id = {one}
    """)  # noqa: S608 - quoted, and ours
    try:
        make_attempt_intervals(tables, until, "FROM attempts")
        make_workers(tables, until, run.events("workers"))
        # Where workers are known, their time is split, and of spans only transfers matter.
        known = tables.scalar("SELECT count(*) > 0 FROM worker_facts")
        sources = {"transfers": False} if known else {"compared_spans": False, "open_spans": True}
        columns = "SELECT *, duration_s AS self_s"
        spans = " UNION ALL ".join(
            f"{columns}, {is_open} AS open FROM {source} WHERE run_id = {one}"
            for source, is_open in sources.items()
        )
        make_span_intervals(tables, spans)
        return shares(tables)
    finally:
        tables.close()


_PARTS = {
    "retries": ("failed_s", "attempts that failed or were retried"),
    "queue": ("scheduler_s", "scheduling overhead"),
    "idle": ("idle_s", "workers with nothing to do"),
    "startup": ("startup_s", "workers starting up"),
    "in flight": ("unfinished_s", "work whose end was not recorded"),
}


def explain(
    before: Sequence[ComparedRunFigures], after: Sequence[ComparedRunFigures]
) -> WallExplained | None:
    """Why `after` took longer or shorter; None where a wall time is unknown or nothing tells.

    Wall time is worker time over the workers there were. What differs in each part of worker time counts by
    the mean of both sides' workers; the workers that differ count by the mean of both sides' worker time.
    Work is split into how many tasks there were, how long one takes with what caches spared it, and what
    caches spared. A task's time counts with the share of it that held a worker.
    """
    sides = [_Side(runs) for runs in (before, after) if all(run.wall_s is not None for run in runs)]
    if len(sides) != 2 or any(side.basis is None or side.total_s <= 0 for side in sides):
        return None
    old, new = sides
    if old.basis != new.basis:
        return None
    basis = old.basis
    assert basis is not None
    scale = (old.scale + new.scale) / 2
    shares = []
    for what, (part, words) in _PARTS.items():
        if basis == "wall" and what == "idle":
            # There is nobody to be idle.
            what, words = "unrecorded", "time outside of tasks and spans"  # noqa: PLW2901
        shares.append(_share(what, old.part(part), new.part(part), scale, words))
    if basis == "workers":
        moved = (old.total_s + new.total_s) / 2 * (new.scale - old.scale)
        detail = f"{_number(1 / old.scale)} → {_number(1 / new.scale)} workers on average"
        shares.append(Share(what="workers", seconds=moved, detail=detail))
    shares += _work(old, new, scale, basis)
    wanted = new.wall_s - old.wall_s
    rest = wanted - math.fsum(share.seconds for share in shares)
    told = [share for share in shares if abs(share.seconds) > 1e-9]
    told.sort(key=lambda share: (-abs(share.seconds), share.what))
    rest += math.fsum(share.seconds for share in shares) - math.fsum(share.seconds for share in told)
    return WallExplained(
        basis=basis, difference_s=wanted, shares=told, not_explained_s=0.0 if abs(rest) < 1e-9 else rest
    )


class _Side:
    """The means over the runs of one side."""

    def __init__(self, runs: Sequence[ComparedRunFigures]) -> None:
        splits = [run.time.whole for run in runs if run.time is not None]
        bases = {None if run.time is None else run.time.basis for run in runs}
        self.basis = bases.pop() if len(bases) == 1 else None
        self.wall_s = _mean([run.wall_s or 0.0 for run in runs])
        self._splits: list[TimeSplit] = splits
        self.total_s = self.part("total_s") if splits else 0.0
        self.scale = self.wall_s / self.total_s if self.total_s > 0 else 0.0
        self.held_s = self.part("run_s") + self.part("transfer_s") if splits else 0.0
        self.kind = runs[0].work_kind
        self.work = {
            name: WorkByName(
                *(
                    _mean([getattr(run.work.get(name, _NOTHING), field) for run in runs])
                    for field in WorkByName.__struct_fields__
                )
            )
            for name in sorted({name for run in runs for name in run.work})
        }
        self.work_s = math.fsum(work.seconds for work in self.work.values())

    def part(self, name: str) -> float:
        return _mean([getattr(split, name) or 0.0 for split in self._splits])


_NOTHING = WorkByName()


def _work(old: _Side, new: _Side, scale: float, basis: str) -> list[Share]:
    """Work: how many, how long, what caches spared, and how much went on side by side."""
    if not old.work_s and not new.work_s:
        return [_share("work", old.held_s, new.held_s, scale, "work")]
    densities = [side.held_s / side.work_s for side in (old, new) if side.work_s]
    density = math.fsum(densities) / len(densities)
    names = sorted(old.work.keys() | new.work.keys())
    both = {name: (old.work.get(name, _NOTHING), new.work.get(name, _NOTHING)) for name in names}
    moved = {name: _split(*works) for name, works in both.items()}
    counts, lengths = ({name: parts[n] for name, parts in moved.items()} for n in (0, 1))
    saved = [math.fsum(work.saved_s for work in side.work.values()) for side in (old, new)]
    each = density * scale
    how_many = {name: f"{_number(was.count)} → {_number(now.count)}" for name, (was, now) in both.items()}
    how_long = {
        name: f"{format_duration(was.each_s)} → {format_duration(now.each_s)} each"
        + ", if nothing were cached" * bool(was.saved_s or now.saved_s)
        for name, (was, now) in both.items()
    }
    shares = [
        _named(f"number of {old.kind}s", counts, each, how_many),
        _named(f"duration of {old.kind}s", lengths, each, how_long),
        Share(
            what="cache",
            seconds=(saved[0] - saved[1]) * each,
            detail=f"caches spared {format_duration(saved[0])} → {format_duration(saved[1])} of work",
        ),
    ]
    if basis == "wall" and len(densities) == 2:
        apart = (old.work_s + new.work_s) / 2 * (densities[1] - densities[0]) * scale
        ran = [f"{_number(1 / value) if value else 'none'}" for value in densities]
        shares.append(Share(what="overlap", seconds=apart, detail=f"{ran[0]} → {ran[1]} at once on average"))
    return shares


def _split(old: WorkByName, new: WorkByName) -> tuple[float, float]:
    """The difference of all that was asked for, by how many there were and by how long one takes."""
    was, now = old.each_s, new.each_s
    if was is None or now is None:
        return new.whole_s - old.whole_s, 0.0
    return (new.count - old.count) * (was + now) / 2, (old.count + new.count) / 2 * (now - was)


def _named(what: str, seconds: dict[str, float], each: float, details: dict[str, str]) -> Share:
    largest = sorted(seconds, key=lambda name: (-abs(seconds[name]), name))
    few = largest[: CompareLimits.max_names_per_share]
    told = [f"{name}: {details[name]}" for name in few if abs(seconds[name] * each) > 1e-9]
    return Share(what=what, seconds=math.fsum(seconds.values()) * each, detail="; ".join(told))


def _share(what: str, old: float, new: float, scale: float, words: str) -> Share:
    detail = f"{words}: {format_duration(old)} → {format_duration(new)}"
    return Share(what=what, seconds=(new - old) * scale, detail=detail)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _number(value: float) -> str:
    return format_count(round(value, 1))


LOCK = "manifest.lock"
_NONE = "none"
_MACHINE = {
    "cpu_model": "CPU",
    "cpus_logical": "CPUs",
    "cpus_usable": "usable CPUs",
    "cgroup_cpus": "CPU quota",
    "memory_bytes": "memory",
    "cgroup_memory_bytes": "memory limit",
    "platform": "system",
    "kernel": "kernel",
    "machine": "architecture",
}


Facts = dict[tuple[str, str], str]
"""What a run was made of, by kind and name. What is unknown is not there."""


def compare_environments(before: Sequence[Run], after: Sequence[Run]) -> list[EnvironmentChange]:
    """What differs, in the order code, packages, Python, machine, settings; what one side does not know is
    left out.

    In a group, a difference is a set of values that the other side does not have.
    """
    old, new = [environment_of(run) for run in before], [environment_of(run) for run in after]
    keys: dict[tuple[str, str], None] = {}
    for facts in (*old, *new):
        keys |= dict.fromkeys(key for key in facts if key[0] in _ORDER)
    found = []
    for what, name in keys:
        sides = [[facts.get((what, name), _absent(what, facts)) for facts in side] for side in (old, new)]
        known = [sorted({value for value in side if value is not None}) for side in sides]
        if known[0] and known[1] and known[0] != known[1]:
            was, now = (_shown(values) for values in known)
            found.append(EnvironmentChange(what=what, name=name, before=was, after=now))
    return sorted(found, key=lambda one: (_ORDER.index(one.what), one.name if one.what == "package" else ""))


_ORDER = (
    *("git", "function", "manifest", "image", "package", "python", "flightlog"),
    *("host", "machine", "target", "provider", "command", "variable", "tag"),
)
_LISTS = {"package", "variable", "tag", "function", "image"}
"""Kinds that are lists: where a run has the list, what is not on it was not there."""


def _absent(what: str, facts: Facts) -> str | None:
    return _NONE if what in _LISTS and ("known", what) in facts else None


def _shown(values: list[str]) -> str | None:
    if values == [_NONE]:
        return None
    more = f", … ({len(values)} values)" if len(values) > CompareLimits.max_environment_values else ""
    return ", ".join(values[: CompareLimits.max_environment_values]) + more


def environment_of(run: Run) -> Facts:
    """What one run was made of, by kind and name; what is unknown is not there."""
    return {key: value for key, value in _pairs(run) if value is not None}


def _pairs(run: Run) -> Iterator[tuple[tuple[str, str], str | None]]:
    info = run.info
    around = read_document(run.path / layout.ENVIRONMENT, dict[str, Any]).value or {}
    lock = read_document(run.path / LOCK, dict[str, Any]).value or {}
    commit = info.git_commit or around.get("git_commit")
    dirty = around.get("git_dirty") if info.git_dirty is None else info.git_dirty
    yield ("git", "commit"), _text(commit)[:12] if commit else None
    yield ("git", "branch"), _text(around.get("git_branch")) or None
    yield ("git", "uncommitted changes"), None if dirty is None else "yes" if dirty else "no"
    manifest = info.manifest_hash or lock.get("manifest_sha256")
    yield ("manifest", ""), _text(manifest)[:12] if manifest else None
    functions = lock.get("functions")
    yield from _list(
        "function", functions, lambda it: _text(it.get("sha256") if isinstance(it, dict) else None)[:12]
    )
    yield from _list("image", lock.get("images"), _text)
    packages = around.get("packages") or lock.get("packages")
    yield from _list("package", packages, lambda value: _text(value) or "installed")
    yield ("python", ""), _text(info.python or around.get("python")) or None
    yield ("flightlog", ""), _text(info.flightlog_version) or None
    yield ("host", ""), info.host or None
    for field, name in _MACHINE.items():
        value = around.get(field)
        if field.startswith("cgroup") and around and value is None:
            yield ("machine", name), "no limit"
        elif value is not None:
            yield ("machine", name), format_bytes(value) if field.endswith("_bytes") else _text(value)
    yield ("target", ""), info.target
    yield ("provider", ""), info.provider
    yield ("command", ""), " ".join(info.command) or None
    yield from _list("variable", around.get("variables"), _text)
    yield from _list("tag", info.tags, _text)


def _list(what: str, values: Any, shown: Any) -> Iterator[tuple[tuple[str, str], str | None]]:
    if isinstance(values, dict):
        yield ("known", what), "yes"
        for name, value in values.items():
            yield (what, str(name)), shown(value) or None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except (RecursionError, UnicodeEncodeError):
        return "…"
