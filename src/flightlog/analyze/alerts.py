"""Which rules of alerts hold for a run, in any state: by its live state, its tables, and users' queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.analyze.limits import AlertLimits
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
from flightlog.store.run import Run
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


class RuleWatch:
    """Looks again and again which rules hold. The run may be running, ended, or the copy of a remote one."""

    def __init__(
        self, path: Path, rules: Callable[[], Sequence[AlertRule]], *, now: Callable[[], float] = time.time
    ) -> None:
        self.path, self._rules, self._now = path, rules, now
        self._run = FollowedRun(path, now=now, history=EarlierRuns(Run(path)), question=self._ask_tables)

    def look(self) -> tuple[LiveState, list[tuple[AlertRule, Found]], list[str]]:
        """The state of the run, what each rule finds now, and why queries cannot be answered."""
        state = self._run.update()
        at = timestamp_of(round(self._now() * SECOND))
        answers: dict[str, list[Found]] = self._run.answer or {}
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
                mine = list(_OF_STATE[rule.kind](state, at))
            found += [(rule, one) for one in mine]
        return state, found, problems

    def _ask_tables(self, tables: RunTables) -> dict[str, list[Found]]:
        asked = {rule.text: rule for rule in self._rules() if rule.kind in _OF_TABLES}
        return {text: list(_OF_TABLES[rule.kind](tables, rule)) for text, rule in asked.items()}

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


def _finished(state: LiveState, at: str) -> Iterator[Found]:
    if state.over:
        progress = state.progress
        after = "" if state.elapsed_s is None else f" after {format_duration(state.elapsed_s)}"
        tasks = f"; {plural(progress.known, 'task')}, {progress.failed} failed" if progress.known else ""
        values = {"status": state.status, "elapsed_s": state.elapsed_s, "tasks": progress.known}
        yield Found("", f"{_ended(state)}{after}{tasks}", state.end_time or at, values)


def _run_failed(state: LiveState, at: str) -> Iterator[Found]:
    if state.over and state.status != "completed":
        yield Found("the run", _ended(state), state.end_time or at, {"error": state.error})


def _tasks_failed(state: LiveState, at: str) -> Iterator[Found]:
    """One for each name of tasks and class of error; of a task that has just failed it may not be recorded
    yet that it is retried.
    """
    settled = (moment(at) or 0) - round(AlertLimits.retry_wait_s * SECOND)
    seen = set()
    for one in state.failures:  # the newest first
        cause = f"{base_name(one.task)}: {one.error_type}"
        young = not state.over and (moment(one.at) or 0) > settled
        if one.task_id is None or one.retried or young or cause in seen:
            continue
        seen.add(cause)
        error = ": ".join(filter(None, (one.error_type, first_line(one.message))))
        so_far = "" if state.over else " so far"
        failed = f"{state.progress.failed:,} of {plural(state.progress.known, 'task')} failed{so_far}"
        message = f"{one.task} failed: {cut(error, AlertLimits.max_message_chars)} ({failed})"
        values = {"task": one.task, "task_id": one.task_id, "error_type": one.error_type}
        yield Found(cause, message, one.at, {**values, "failed": state.progress.failed})


def _failed(state: LiveState, at: str) -> Iterator[Found]:
    yield from _run_failed(state, at)
    yield from _tasks_failed(state, at)


def _stuck(state: LiveState, at: str) -> Iterator[Found]:
    """One for each name, by the task or span of that name that takes longest."""
    seen = set()
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


_OF_STATE: dict[str, Callable[[LiveState, str], Iterator[Found]]] = {
    "failed": _failed,
    "run failed": _run_failed,
    "tasks failed": _tasks_failed,
    "finished": _finished,
    "stuck": _stuck,
}

# --- of the tables ----------------------------------------------------------------------------------------

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
