"""The latest of a run: lines of its log, and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from flightlog.analyze.failures import collect_failures
from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.results import Failed, LogLine, args_text
from flightlog.analyze.tallies import Newest, json_object
from flightlog.core.text import cut, cut_end, first_line
from flightlog.core.units import format_bytes, format_duration
from flightlog.events import Event, kind_of

if TYPE_CHECKING:
    from flightlog.store.read.lines import AnyEvent
    from flightlog.store.tables.run_tables import RunTables

Level = Literal["info", "warning", "error"]
Said = tuple[str, Level]
STAMP = "strftime({}, '%Y-%m-%dT%H:%M:%S.%fZ')"
_LOGGED = {
    "tasks": """
        SELECT ['task_retried', 'task_completed', 'task_failed', 'task_cancelled'][kind - 3] AS kind, task,
            task_id, attempt, error_type, error_message, reason, delay_s, "timestamp", writer, seq
        FROM task_lines WHERE kind IN (4, 6, 7)
    """,
    "failures": """
        SELECT 'failure' AS kind, scope, error_type, message, "timestamp", writer, seq
        FROM failures WHERE event = 'failure' AND scope <> 'task' AND task_id IS NULL
    """,
    "devices": """
        SELECT 'alert' AS kind, event_type, host, rank, device_id, device_used_bytes, device_total_bytes,
            context, "timestamp", writer, seq
        FROM devices WHERE event_type IN ('warning', 'critical', 'error')
    """,
}
"""Events that are logged, of the streams that are tables; all others are logged as they are read."""
_NEWEST_OF = """
SELECT *, {stamp} AS at FROM ({rows}) ORDER BY "timestamp" DESC, writer DESC, seq DESC LIMIT {few}
"""


class LiveLog:
    """The last lines of all streams together. Takes events in any order, but for those of tables."""

    def __init__(self) -> None:
        self._lines: Newest[LogLine] = Newest(LiveLimits.max_log_lines)
        self.count = 0
        """How many lines were made so far."""

    def add(self, event: AnyEvent) -> None:
        """Take one event; kinds that are not logged are ignored, and a line is made only where it is kept."""
        if isinstance(event, Event) and self._lines.would_keep(event.timestamp):
            made = _WORDS.get(kind_of(event)) or (_of_user if type(event).of_user else None)
            if made is not None:
                line = _line(kind_of(event), event.timestamp, made(event))
                key = (event.timestamp, f"{type(event).stream} {event.writer}", event.seq, line.text)
                self._lines.add(key, line)
                self.count += 1

    def lines(self, tables: RunTables, more: Sequence[LogLine], tasks: bool) -> list[LogLine]:
        """The newest first; `more` are lines that come from no event, `tasks` is whether any failed, was
        retried or cancelled.
        """
        found = [*more[::-1], *self._lines.items()]
        for stream, rows in _LOGGED.items():
            if stream in tables.streams and (tasks or stream != "tasks"):
                few, stamp = LiveLimits.max_log_lines, STAMP.format('"timestamp"')
                for row in tables.records(_NEWEST_OF.format(rows=rows, few=few, stamp=stamp)):
                    made = _WORDS[row["kind"]](SimpleNamespace(**row))
                    found.append(_line(row["kind"], row["at"] or "", made))
        return sorted(found, key=lambda line: line.at, reverse=True)[: LiveLimits.max_log_lines]


def _line(kind: str, at: str, said: Said) -> LogLine:
    text, level = said
    return LogLine(
        at=at,
        kind=cut(kind, LiveLimits.max_name_chars),
        text=cut(text, LiveLimits.max_line_chars),
        level=level,
    )


def _name(text: str | None) -> str:
    return cut("unknown" if text is None else text, LiveLimits.max_name_chars)


def _task(event: Any) -> str:
    again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{_name(event.task)} {_name(event.task_id)}{again}"


def _error(kind: str | None, message: str | None) -> str:
    parts = (_name(kind or ""), first_line(message, LiveLimits.max_line_chars))
    return ": ".join(part for part in parts if part) or "no error was given"


def _because(reason: str | None) -> str:
    return f": {first_line(reason, LiveLimits.max_line_chars)}" if reason else ""


def _on(host: str | None) -> str:
    return f" on {_name(host)}" if host else ""


def _retried(event: Any) -> Said:
    after = f" in {format_duration(event.delay_s)}" if event.delay_s else ""
    return f"{_task(event)} is retried{after}{_because(event.reason)}", "warning"


def _ready(event: Any) -> Said:
    after = f" after {format_duration(event.launch_s)}" if event.launch_s is not None else ""
    return f"worker {_name(event.worker)} is ready{after}", "info"


def _artifact(event: Any) -> Said:
    size = f", {format_bytes(event.size_bytes)}" if event.size_bytes is not None else ""
    return f"artifact {_name(event.name)}{size}", "info"


def _job_started(event: Any) -> Said:
    return f"runs in {event.scheduler} job {_name(event.job_id)}{_on(event.nodes or event.host)}", "info"


def _job_accounted(event: Any) -> Said:
    level: Level = "info" if event.state == "COMPLETED" else "warning"
    return f"job {_name(event.job_id)} is {_name(event.state)}{_because(event.reason)}", level


def _alert(event: Any) -> Said:
    used = f"{format_bytes(event.device_used_bytes)} of {format_bytes(event.device_total_bytes)} in use"
    device = "an unknown device" if event.device_id is None else f"device {event.device_id}"
    rank = "" if event.rank is None else f", rank {event.rank}"
    where = f"memory of {device}{_on(event.host)}{rank}"
    return (
        f"{where}: {used}{_because(event.context)}",
        "warning" if event.event_type == "warning" else "error",
    )


def _with_fields(name: str, fields: Mapping[str, Any]) -> Said:
    said = args_text(fields)
    return f"{_name(name)}: {said}" if said else _name(name), "info"


def _of_user(event: Event) -> Said:
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in _COMMON}
    return _with_fields(kind_of(event), fields)


_COMMON = frozenset(Event.__struct_fields__)
_WORDS: dict[str, Callable[[Any], Said]] = {
    "task_failed": lambda one: (f"{_task(one)} failed: {_error(one.error_type, one.error_message)}", "error"),
    "task_retried": _retried,
    "task_cancelled": lambda one: (f"{_task(one)} was cancelled{_because(one.reason)}", "warning"),
    "failure": lambda one: (f"{one.scope} failed: {_error(one.error_type, one.message)}", "error"),
    "worker_launched": lambda one: (f"worker {_name(one.worker)} was launched{_on(one.host)}", "info"),
    "worker_ready": _ready,
    "worker_lost": lambda one: (
        f"worker {_name(one.worker)} was lost{_because(one.reason or one.signal)}",
        "error",
    ),
    "worker_removed": lambda one: (f"worker {_name(one.worker)} was removed{_because(one.reason)}", "info"),
    "artifact_recorded": _artifact,
    "job_started": _job_started,
    "job_accounted": _job_accounted,
    "user_event": lambda one: _with_fields(one.name, one.fields),
    "alert": _alert,
}
"""Kinds of events that are logged, in words."""

_LISTED = f"""
SELECT failure_records.*, {STAMP.format("failure_records.moment")} AS at, retried, args
FROM failure_records LEFT JOIN attempt_intervals USING (task_id, attempt)
ORDER BY failure_records.moment DESC NULLS LAST, task_id, attempt, scope, failure_records.error_type,
    fingerprint LIMIT $few
"""  # noqa: S608 - constants
_TEXTS = f"""
SELECT task_id, coalesce(attempt, 1), {STAMP.format('"timestamp"')}, message, coalesce(traceback, output_tail)
FROM failures WHERE task_id IN (SELECT unnest($ids)) OR task_id IS NULL
ORDER BY "timestamp" DESC, writer, seq LIMIT $few
"""  # noqa: S608 - constants


def failures_of(tables: RunTables) -> tuple[int, list[Failed]]:
    """How many failures there are, as the report counts them, and the newest ones."""
    collect_failures(tables)
    few = LiveLimits.max_listed_failures
    rows = tables.records(_LISTED, {"few": few})
    texts: dict[tuple[str, Any], tuple[str | None, str | None]] = {}
    ids = [row["task_id"] for row in rows if row["task_id"] is not None]
    for task_id, attempt, at, *said in tables.execute(_TEXTS, {"ids": ids, "few": 4 * few}).fetchall():
        texts.setdefault((task_id or "", attempt if task_id else at), (said[0], said[1]))
    found = []
    for row in rows:
        task_id = row["task_id"]
        key = (task_id or "", row["attempt"] if task_id else row["at"])
        message, traceback = texts.get(key, (None, None))
        scope = "the run" if row["scope"] == "run" else f"a {row['scope'] or 'part that is not named'}"
        found.append(
            Failed(
                at=row["at"] or "",
                task=_name(row["task"]) if row["task"] else scope,
                task_id=_short(task_id),
                attempt=row["attempt"] or 1,
                args=args_text(json_object(row["args"])),
                worker=_short(row["worker"]),
                error_type=_short(row["error_type"]),
                message=cut(message or row["words"] or "", LiveLimits.max_message_chars),
                traceback=cut_end(traceback, LiveLimits.max_traceback_chars),
                retried=bool(row["retried"]),
                fingerprint=_short(row["fingerprint"] or None),
            )
        )
    return tables.scalar("SELECT count(*) FROM failure_records"), found


def _short(text: str | None) -> str | None:
    return None if text is None else cut(text, LiveLimits.max_line_chars)
