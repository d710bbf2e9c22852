"""Which rules of alerts hold for a run, in any state: by its live state, its tables, and users' queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from flightlog.analyze.limits import AlertLimits, LiveLimits
from flightlog.analyze.live.follow import NO_HEARTBEAT, FollowedRun
from flightlog.analyze.live.recent import STAMP
from flightlog.analyze.live.results import LiveState, args_text
from flightlog.core.alerts import AlertRule
from flightlog.core.errors import FlightlogError
from flightlog.core.text import base_name, cut, first_line, plural
from flightlog.core.time import SECOND, moment, timestamp_of
from flightlog.core.units import format_bytes, format_duration
from flightlog.store.earlier_runs import EarlierRuns
from flightlog.store.headline import headline_of
from flightlog.store.liveness import this_host
from flightlog.store.run import Run
from flightlog.store.runs_folder import is_copy
from flightlog.store.slowdown import slower_than_before
from flightlog.store.tables.query import ask
from flightlog.store.tables.run_tables import read_again

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class Found(NamedTuple):
    """What a rule found: something new where its cause is, or `at`, the time of the latest sign of it."""

    cause: str
    message: str
    at: str
    values: Mapping[str, Any] = {}


class Look(NamedTuple):
    """What rules of the state are asked of."""

    state: LiveState
    at: str
    """Now."""
    failed: Sequence[Mapping[str, Any]]
    """Failed tasks, the newest first; see `_FAILED`."""
    last_sign: str | None = None
    """Of a run that may have crashed on another host: when its last heartbeat came."""


Answer = tuple[dict[str, list[Found]], list[dict[str, Any]]]
"""What rules find in the tables, and failed tasks."""


class RuleWatch:
    """Looks again and again which rules hold. The run may be running, ended, or the copy of a remote one."""

    def __init__(
        self, path: Path, rules: Callable[[], Sequence[AlertRule]], *, now: Callable[[], float] = time.time
    ) -> None:
        self.path, self._rules, self._now = path, rules, now
        self._run = FollowedRun(path, now=now, history=EarlierRuns(Run(path)), question=self._ask_tables)

    def look(self) -> tuple[LiveState, list[tuple[AlertRule, Found]], list[str]]:
        """The state of the run, what each rule finds now, and why queries cannot be answered.

        A run of another host whose heartbeats have stopped counts as running for some time.
        """
        state = self._run.update()
        now = round(self._now() * SECOND)
        at = timestamp_of(now)
        answer: Answer = self._run.answer or ({}, [])
        answers, failed = answer
        last_sign = state.end_time if self._may_live(state, now) else None
        if last_sign is not None:
            silence = f"{NO_HEARTBEAT} {(now - (moment(last_sign) or 0)) / SECOND:.0f} s"
            state = replace(state, status="running", end_time=None, problems=[silence, *state.problems])
        seen = Look(state, at, failed, last_sign)
        found: list[tuple[AlertRule, Found]] = []
        problems: list[str] = []
        for rule in self._rules():
            if rule.kind in _OF_TABLES:
                mine: Sequence[Found] = answers.get(rule.text, ())
            elif rule.kind == "query":
                try:
                    mine = self._query(rule, at)
                except FlightlogError as error:
                    problems.append(f"{cut(rule.text, 60)!r}: {error}")
                    continue
            elif rule.kind == "slower than usual":
                mine = self._slower(state)
            else:
                mine = list(_OF_STATE[rule.kind](seen))
            found += [(rule, one) for one in mine]
        return state, found, problems

    def _may_live(self, state: LiveState, now: int) -> bool:
        """Whether a run that looks crashed may be alive: its process cannot be seen from here."""
        silence = now - (moment(state.end_time) or 0)
        elsewhere = state.host != this_host() or is_copy(self.path)
        return state.status == "crashed" and elsewhere and silence < AlertLimits.max_silence_s * SECOND

    def _ask_tables(self, tables: RunTables) -> Answer:
        asked = {rule.text: rule for rule in self._rules() if rule.kind in _OF_TABLES}
        found = {text: list(_OF_TABLES[rule.kind](tables, rule)) for text, rule in asked.items()}
        if not tables.scalar("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'failure_records'"):
            return found, []
        settled = timestamp_of(round((self._now() - AlertLimits.retry_wait_s) * SECOND))
        return found, tables.records(_FAILED, {"settled": settled, "most": AlertLimits.max_causes})

    def _query(self, rule: AlertRule, at: str) -> list[Found]:
        row = _first_row(self.path, rule.text)
        if row is None:
            return []
        values = {name: _plain(value) for name, value in row.items()}
        said = args_text(values, AlertLimits.max_message_chars)
        return [Found("", f"the query gives a row: {said}", at, values)]

    def _slower(self, state: LiveState) -> list[Found]:
        if state.status != "completed":
            return []
        run = Run(self.path)
        slower = slower_than_before(run.info, headline_of(run), EarlierRuns(run).runs)
        if slower is None:
            return []
        values = {"ratio": slower.ratio, "usual_s": slower.usual_s, "runs": slower.runs, "task": slower.task}
        return [Found("", f"the run was {slower.sentence}", state.end_time or "", values)]


def _plain(value: object) -> object:
    """A value as JSON can have it."""
    number = isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)
    return value if value is None or number else str(value)


@read_again
def _first_row(path: Path, query: str) -> dict[str, Any] | None:
    with ask([Run(path)], query) as answer:
        rows = next(answer.batches(), [])
        return dict(zip(answer.columns, rows[0], strict=True)) if rows else None


# --- of the state -----------------------------------------------------------------------------------------

_ENDS = {
    "completed": "the run completed",
    "failed": "the run failed",
    "interrupted": "the run was interrupted",
    "crashed": "the run crashed: its process is gone",
}


def _ended(state: LiveState) -> str:
    """How the run ended, and why."""
    why = f": {first_line(state.error, AlertLimits.max_message_chars)}" if state.error else ""
    return f"{_ENDS.get(state.status, 'the run is over')}{why}"


def _finished(look: Look) -> Iterator[Found]:
    state = look.state
    if state.over:
        progress = state.progress
        after = "" if state.elapsed_s is None else f" after {format_duration(state.elapsed_s)}"
        tasks = f"; {plural(progress.known, 'task')}, {progress.failed} failed" if progress.known else ""
        values = {"status": state.status, "elapsed_s": state.elapsed_s, "tasks": progress.known}
        yield Found("", f"{_ended(state)}{after}{tasks}", state.end_time or look.at, values)


def _run_failed(look: Look) -> Iterator[Found]:
    state = look.state
    if state.status in {"failed", "interrupted", "crashed"}:
        yield Found("the run", _ended(state), state.end_time or look.at, {"error": state.error})
    elif look.last_sign is not None:
        yield Found("no heartbeat", f"the run may have crashed: {state.problems[0]}", look.last_sign)


def _tasks_failed(look: Look) -> Iterator[Found]:
    """One for each name of tasks and class of error; of a task that has just failed it may not be recorded
    yet that it is retried.
    """
    state, seen = look.state, set()
    for one in look.failed:
        task, task_id, error_type = (
            cut(one[name], LiveLimits.max_line_chars) if one[name] else None
            for name in ("task", "task_id", "error_type")
        )
        task = task or "a task"
        cause = f"{base_name(task)}: {error_type}"
        if (one["young"] and not state.over) or cause in seen:
            continue
        seen.add(cause)
        error = ": ".join(filter(None, (error_type, first_line(one["words"] or ""))))
        so_far = "" if state.over else " so far"
        failed = f"{state.progress.failed:,} of {plural(state.progress.known, 'task')} failed{so_far}"
        message = f"{task} failed: {cut(error, AlertLimits.max_message_chars)} ({failed})"
        values = {"task": task, "task_id": task_id, "error_type": error_type}
        yield Found(cause, message, one["at"] or "", {**values, "failed": state.progress.failed})


def _failed(look: Look) -> Iterator[Found]:
    yield from _run_failed(look)
    yield from _tasks_failed(look)


def _stuck(look: Look) -> Iterator[Found]:
    """One for each name, by the task or span of that name that takes longest."""
    state, at, seen = look.state, look.at, set()
    if state.over:
        return
    for problem in state.problems:
        if problem.startswith(NO_HEARTBEAT):
            yield Found("no heartbeat", problem, at)
    stuck: list[tuple[str, str, float | None, float | None]] = [
        (one.task, f" on {one.worker}" if one.worker else "", one.elapsed_s, one.usual_s)
        for one in state.doing
        if one.stuck
    ]
    stuck += [(f"span {one.name}", "", one.elapsed_s, one.usual_s) for one in state.open_spans if one.stuck]
    for name, where, elapsed_s, usual_s in stuck:
        cause = base_name(name)
        if cause not in seen and (elapsed_s or 0.0) >= AlertLimits.min_stuck_s:
            seen.add(cause)
            usual = "" if usual_s is None else f", p95 of its name is {format_duration(usual_s)}"
            message = f"{name}{where} may be stuck: it runs for {format_duration(elapsed_s or 0.0)}{usual}"
            yield Found(cause, message, at, {"elapsed_s": elapsed_s, "usual_s": usual_s})


_OF_STATE: dict[str, Callable[[Look], Iterator[Found]]] = {
    "failed": _failed,
    "run failed": _run_failed,
    "tasks failed": _tasks_failed,
    "finished": _finished,
    "stuck": _stuck,
}

# --- of the tables ----------------------------------------------------------------------------------------

_FAILED = f"""
SELECT failures.task, task_id, failures.error_type, words, {STAMP.format("failures.moment")} AS at,
    coalesce(failures.moment > $settled::TIMESTAMP, false) AS young
FROM failure_records AS failures LEFT JOIN attempt_intervals AS attempts USING (task_id, attempt)
WHERE task_id IS NOT NULL AND NOT coalesce(attempts.retried, false)
QUALIFY row_number() OVER (
    PARTITION BY failures.name, failures.error_type, young ORDER BY failures.moment DESC NULLS LAST, task_id
) = 1
ORDER BY failures.moment DESC NULLS LAST, task_id LIMIT $most
"""  # noqa: S608 - constants
"""The newest failed attempts that were not retried, one for each name of tasks and class of error, and one
more where that may still be retried."""
_VALUES = f"""
SELECT name, step, writer, seq, "timestamp", {STAMP.format('"timestamp"')} AS at, nonfinite,
    coalesce(value, CASE nonfinite WHEN 'inf' THEN 'inf'::DOUBLE WHEN '-inf' THEN '-inf'::DOUBLE END) AS value
FROM metrics WHERE event = 'metric' AND name = $name
"""  # noqa: S608 - constants
_HELD = f"""
SELECT step, value, "at" FROM (
    SELECT *, sum((value {{operator}} $limit)::INT) OVER (
        PARTITION BY writer ORDER BY seq ROWS BETWEEN {{before}} PRECEDING AND CURRENT ROW
    ) AS held FROM ({_VALUES})
) WHERE held > {{before}} ORDER BY "timestamp" DESC LIMIT 1
"""  # noqa: S608 - constants
"""The last of so many values in a row, each process by itself, that are all above or below a limit."""
_NOT_FINITE = f"""
SELECT step, nonfinite, "at" FROM ({_VALUES}) WHERE nonfinite IN (SELECT unnest($kinds))
ORDER BY "timestamp" DESC LIMIT 1
"""  # noqa: S608 - constants
_SAMPLES = {
    "memory": {
        "resources": """
            SELECT coalesce(host, 'unknown') || CASE WHEN scope = 'cgroup' THEN ', limit of the run' ELSE ''
                END AS place, memory_used_bytes AS used, memory_total_bytes AS total, "timestamp"
            FROM resources WHERE event = 'resource_sample' AND scope IN ('node', 'cgroup')
        """
    },
    "gpu memory": {
        "resources": """
            SELECT coalesce(host, 'unknown') || ', GPU ' || coalesce(gpu_index::VARCHAR, gpu_uuid, '?')
                AS place, gpu_memory_used_bytes AS used, gpu_memory_total_bytes AS total, "timestamp"
            FROM resources WHERE event = 'resource_sample' AND scope = 'gpu'
        """,
        "devices": """
            SELECT coalesce(host, 'unknown') || ', device ' || coalesce(device_id::VARCHAR, '?') AS place,
                device_used_bytes AS used, device_total_bytes AS total, "timestamp" FROM devices
        """,
    },
}
_FULL = """
SELECT place, max_by(used, "timestamp") AS used, max_by(total, "timestamp") AS total, max({stamp}) AS at
FROM ({samples}) WHERE total > 0 AND used {operator} $limit * total GROUP BY place ORDER BY place
"""


def _metric(tables: RunTables, rule: AlertRule) -> Iterator[Found]:
    if "metrics" in tables.streams:
        held = _HELD.format(operator=rule.operator, before=rule.steps - 1)
        for row in tables.records(held, {"name": rule.metric, "limit": rule.limit}):
            where = "" if row["step"] is None else f" at step {row['step']}"
            yield Found("", f"{rule.text}: {row['value']:g}{where}", row["at"] or "", row)


def _nonfinite(tables: RunTables, rule: AlertRule) -> Iterator[Found]:
    if "metrics" in tables.streams:
        kinds = ["nan"] if rule.only_nan else ["nan", "inf", "-inf"]
        for row in tables.records(_NOT_FINITE, {"name": rule.metric, "kinds": kinds}):
            where = "" if row["step"] is None else f" at step {row['step']}"
            value = row["nonfinite"].replace("nan", "NaN")
            yield Found("", f"{rule.metric} is {value}{where}", row["at"] or "", row)


def _memory(tables: RunTables, rule: AlertRule) -> Iterator[Found]:
    samples = " UNION ALL ".join(
        query for stream, query in _SAMPLES[rule.kind].items() if stream in tables.streams
    )
    if samples:
        stamp = STAMP.format('"timestamp"')
        full = _FULL.format(samples=samples, operator=rule.operator, stamp=stamp)
        for row in tables.records(full, {"limit": rule.limit}):
            used, total = row["used"], row["total"]
            said = f"{used / total:.0%} in use, {format_bytes(used)} of {format_bytes(total)}"
            yield Found(row["place"], f"{rule.kind} of {row['place']}: {said}", row["at"] or "", row)


_OF_TABLES: dict[str, Callable[[RunTables, AlertRule], Iterator[Found]]] = {
    "metric": _metric,
    "nonfinite": _nonfinite,
    "memory": _memory,
    "gpu memory": _memory,
}
