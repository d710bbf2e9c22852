"""The texts and rows of a run's live page, from a live state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.analyze.predict.eta import Eta
from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.session.progress import eta_text
from flightlog.show.phrases import doing_title, moment_text, money_text
from flightlog.show.terminal import brief

if TYPE_CHECKING:
    from flightlog.analyze.live.results import Failed, LiveState, LogLine, Progress

Row = dict[str, Any]
FAILURES, LOG_LINES = 20, 80
"""Maximum of newest items on the page."""
STATUSES = frozenset({"running", "completed", "failed", "interrupted", "crashed", "unknown"})
_WORDS = {
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "interrupted",
    "crashed": "exited unexpectedly",
    "unknown": "of unknown status",
}


class Tile(Struct, frozen=True, kw_only=True):
    """A figure of the headline."""

    path: str
    """Where `flightlog report --format json` has it."""
    label: str
    text: str
    value: str
    """The value itself, as JSON."""
    tone: str = ""


class FeedItem(Struct, frozen=True, kw_only=True):
    """A failure, or a line of the log."""

    key: str
    at: str
    text: str
    about: str = ""
    tone: str = ""
    details: str | None = None
    """What is behind a click; null where there is nothing more."""


class RunView(Struct, frozen=True, kw_only=True):
    """Everything on the page but the figures."""

    status: str
    headline: str
    facts: str
    done: float | None
    progress: str
    tiles: list[Tile]
    problems: list[str]
    error: str
    doing: list[Row]
    doing_title: str
    doing_note: str
    workers: list[Row]
    workers_note: str
    machines: list[Row]
    names: list[Row]
    names_note: str
    slowest: list[Row]
    spans: list[Row]
    open_spans: list[Row]
    metrics: list[Row]
    failures: list[FeedItem]
    failures_note: str
    log: list[FeedItem]


def run_view(state: LiveState) -> RunView:
    """The page's texts and rows. Rows have an `id`, and beside each number that is shown its text as
    `<name>_text`.
    """
    progress = state.progress
    status = state.status if state.status in STATUSES else "unknown"
    stuck = sum(bool(one.stuck) for one in state.doing)
    return RunView(
        status=status,
        headline=_headline(state, status),
        facts=_facts(state),
        done=progress.done,
        progress=_still_reading(state) or _progress(progress, over=state.over),
        tiles=_tiles(state),
        problems=[brief(problem, 400) for problem in state.problems],
        error=brief(state.error or "", 1000),
        doing=[_doing(number, one) for number, one in enumerate(state.doing)],
        doing_title=doing_title(over=state.over),
        doing_note=_note(
            len(state.doing), progress.running, "that run longest", f"{stuck} may be stuck" if stuck else ""
        ),
        workers=_apart([_worker(one) for one in state.workers]),
        workers_note=_note(len(state.workers), state.workers_all, "busy or last seen", ""),
        machines=_apart(_machines(state)),
        names=_apart([_name(one) for one in state.names]),
        names_note=_note(
            len(state.names), state.names_all, "with most tasks", "", at_least=state.names_at_least
        ),
        slowest=[_ended(number, one) for number, one in enumerate(state.slowest)],
        spans=[_span(one) for one in state.spans],
        open_spans=_apart([_open(one) for one in state.open_spans]),
        metrics=[_metric(one) for one in state.metrics],
        failures=_keyed([_failure(one) for one in state.failures[:FAILURES]]),
        failures_note=_note(min(FAILURES, len(state.failures)), state.failures_all, "newest", ""),
        log=_keyed([_line(one) for one in state.log[:LOG_LINES]]),
    )


def _apart(rows: list[Row]) -> list[Row]:
    """The same with ids that are all different: long names that begin alike are cut to one, and a browser
    mixes up such rows.
    """
    seen: dict[str, int] = {}
    for row in rows:
        number = seen[row["id"]] = seen.get(row["id"], 0) + 1
        if number > 1:
            row["id"] = f"{row['id']} {number}"
    return rows


def _headline(state: LiveState, status: str) -> str:
    took = (
        f"for {format_duration(state.elapsed_s)}"
        if status == "running"
        else f"after {format_duration(state.elapsed_s)}"
    )
    return f"{_WORDS[status]} {took}" if state.elapsed_s is not None else _WORDS[status]


def _facts(state: LiveState) -> str:
    parts = [
        f"since {moment_text(state.start_time)}",
        f"on {brief(state.host, 60)}" if state.host else "",
        f"target {brief(state.target, 60)}" if state.target else "",
        brief(state.command, 160),
        *(f"{brief(name, 40)}={brief(value, 40)}" for name, value in list(state.tags.items())[:8]),
    ]
    return " · ".join(part for part in parts if part)


def _still_reading(state: LiveState) -> str:
    """How far the first reading is, where the counts are not those of the whole run yet."""
    if state.reading is None or state.progress.done is not None:
        return ""
    return (
        f"still reading, {format_percent(state.reading)} so far: {plural(state.progress.submitted, 'task')}"
    )


def _progress(progress: Progress, *, over: bool) -> str:
    ended = progress.completed + progress.failed + progress.cancelled
    if progress.done is None:
        return "no tasks were recorded" if over else "no tasks so far"
    of = max(progress.submitted, ended + progress.running)
    parts = [f"{format_count(ended)} of {format_count(of)} tasks ended ({format_percent(progress.done)})"]
    if progress.per_s is not None and not over:
        parts.append(f"{progress.per_s:.3g} a second")
    says_nothing = progress.left_at_least and (progress.left_s or 0.0) < 1
    if (
        progress.left_s is not None
        and progress.left_low_s is not None
        and progress.left_high_s is not None
        and not says_nothing
    ):
        eta = Eta(
            expected=progress.left_s,
            low=progress.left_low_s,
            high=progress.left_high_s,
            at_least=progress.left_at_least,
        )
        parts.append(eta_text(eta))
    return " · ".join(parts)


def _tiles(state: LiveState) -> list[Tile]:
    progress = state.progress
    found = [
        _count("tasks.submitted", "submitted", progress.submitted),
        _count("tasks.running", "running", progress.running, "accent" if progress.running else ""),
        _count("tasks.pending", "waiting", progress.waiting),
        _count("tasks.completed", "completed", progress.completed, "good" if progress.completed else ""),
        _count("tasks.failed", "failed", progress.failed, "bad" if progress.failed else ""),
    ]
    for path, label, number in (
        ("tasks.retried", "retried", progress.retried),
        ("tasks.cancelled", "cancelled", progress.cancelled),
        ("failures.count", "failures", state.failures_all),
        ("spans.count", "spans", state.spans_all),
        ("workers.count", "workers", state.workers_all),
    ):
        if number:
            found.append(_count(path, label, number, "warn" if label in {"retried", "failures"} else ""))
    if state.cache_lookups:
        share = (state.cache_hits or 0) / state.cache_lookups
        found.append(
            Tile(
                path="cache.hit_rate", label="from the cache", text=format_percent(share), value=_json(share)
            )
        )
    if state.cost is not None and state.currency is not None:
        text = money_text(state.cost, state.currency)
        found.append(
            Tile(
                path="cost.total",
                label="cost so far" if not state.over else "cost",
                text=text,
                value=_json(state.cost),
            )
        )
    return found


def _count(path: str, label: str, number: int, tone: str = "") -> Tile:
    return Tile(path=path, label=label, text=format_count(number), value=_json(number), tone=tone)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _note(shown: int, all_there_are: int, which: str, more: str, *, at_least: bool = False) -> str:
    parts = (
        [
            f"the {format_count(shown)} {which} of "
            f"{'more than ' if at_least else ''}{format_count(all_there_are)}"
        ]
        if all_there_are > shown
        else []
    )
    return " · ".join([*parts, *([more] if more else [])])


def _s(row: Row, **numbers: float | None) -> Row:
    """The row with durations in seconds, and as text."""
    return _with_texts(row, numbers, format_duration)


def _bytes(row: Row, **numbers: float | None) -> Row:
    return _with_texts(row, numbers, format_bytes)


def _plain_number(row: Row, **numbers: float | None) -> Row:
    return _with_texts(
        row, numbers, lambda number: f"{number:,.4g}" if isinstance(number, float) else f"{number:,}"
    )


def _with_texts(row: Row, numbers: Mapping[str, float | None], text: Callable[[float], str]) -> Row:
    for name, value in numbers.items():
        row[name] = value
        row[f"{name}_text"] = "" if value is None else text(value)
    return row


def _doing(number: int, one: Any) -> Row:
    row = {
        "id": f"{one.task_id} {one.attempt} {number}",
        "task": brief(one.task, 80),
        "args": brief(one.args, 120),
        "worker": brief(one.worker or "", 60),
        "attempt": one.attempt,
        "state": "may be stuck" if one.stuck else "",
        "tone": "bad" if one.stuck else "",
    }
    return _s(row, elapsed=_whole(one.elapsed_s), usual=one.usual_s)


def _whole(seconds: float | None) -> float | None:
    """Clocks tick by the second: what changes faster would be sent again and again."""
    return seconds if seconds is None or seconds < 1 else float(int(seconds))


def _worker(one: Any) -> Row:
    more = f" and {one.running - 1} more" if one.running > 1 else ""
    row = {
        "id": one.worker,
        "worker": brief(one.worker, 60),
        "host": brief(one.host or "", 60),
        "state": one.state,
        "task": brief(one.task, 80) + more if one.task else "",
        "tone": {"lost": "bad", "busy": "accent"}.get(one.state, ""),
    }
    _plain_number(row, ended=one.ended, failed=one.failed, cores=one.cpu_cores)
    return _bytes(_s(row, since=_whole(one.since_s)), memory=one.memory_bytes)


def _machines(state: LiveState) -> list[Row]:
    rows = []
    for host in state.hosts:
        row = {"id": f"host {host.host}", "name": brief(host.host, 60), "what": "host"}
        _plain_number(row, busy=host.cpu_percent)
        rows.append(_of_memory(row, host.memory_used_bytes, host.memory_total_bytes))
    for number, one in enumerate(state.devices):
        where = f" on {brief(one.host, 60)}" if one.host else ""
        row = {
            "id": f"device {number}",
            "name": f"{brief(one.label, 60)}{where}",
            "what": brief(one.scope, 20),
        }
        _plain_number(row, busy=one.percent)
        rows.append(_of_memory(row, one.memory_used_bytes, one.memory_total_bytes))
    return rows


def _of_memory(row: Row, used: int | None, total: int | None) -> Row:
    _bytes(row, used=used, total=total)
    share = used / total if used is not None and total else None
    row["share"], row["share_text"] = share, "" if share is None else format_percent(share)
    if row["busy_text"]:
        row["busy_text"] += "%"
    return row


def _name(one: Any) -> Row:
    row = {"id": one.name, "name": brief(one.name, 100), "tone": "bad" if one.failed else ""}
    _plain_number(
        row,
        submitted=one.submitted,
        completed=one.completed,
        failed=one.failed,
        running=one.running,
        retried=one.retried,
    )
    return _s(row, mean=one.mean_s, p95=one.p95_s, max=one.max_s, total=one.total_s)


def _ended(number: int, one: Any) -> Row:
    row = {
        "id": f"{one.task_id} {one.attempt} {number}",
        "task": brief(one.task, 80),
        "args": brief(one.args, 120),
        "worker": brief(one.worker or "", 60),
        "at": moment_text(one.at),
    }
    return _s(row, took=one.duration_s, queued=one.queue_s)


def _span(one: Any) -> Row:
    row = {"id": one.name, "name": brief(one.name, 100), "tone": "bad" if one.errors else ""}
    _plain_number(row, ended=one.ended, errors=one.errors, open=one.open)
    return _s(row, mean=one.mean_s, max=one.max_s, total=one.total_s)


def _open(one: Any) -> Row:
    row = {
        "id": one.span_id,
        "name": brief(one.name, 80),
        "tags": brief(one.tags, 120),
        "state": "may be stuck" if one.stuck else "",
        "tone": "bad" if one.stuck else "",
    }
    return _s(row, elapsed=_whole(one.elapsed_s), usual=one.usual_s)


def _metric(one: Any) -> Row:
    row = {"id": one.name, "name": brief(one.name, 100), "at": moment_text(one.at)}
    row["value"], row["value_text"] = one.value, "unknown" if one.value is None else f"{one.value:.6g}"
    return _plain_number(row, step=one.step, count=one.count)


def _failure(one: Failed) -> FeedItem:
    error = ": ".join(part for part in (brief(one.error_type or "", 100), brief(one.message, 300)) if part)
    call = f"{brief(one.task, 80)}({brief(one.args, 100)})" if one.args else brief(one.task, 80)
    again = f", attempt {one.attempt}" if one.attempt > 1 else ""
    where = f" on {brief(one.worker, 60)}" if one.worker else ""
    return FeedItem(
        key=f"{one.at} {one.task_id} {one.attempt} {one.fingerprint}",
        at=moment_text(one.at),
        text=error or "no error was given",
        about=f"{call}{again}{where}{' · retried' if one.retried else ''}",
        tone="warn" if one.retried else "bad",
        details=one.traceback or (one.message if "\n" in one.message else None),
    )


def _line(one: LogLine) -> FeedItem:
    return FeedItem(
        key=f"{one.at} {one.kind} {one.text}",
        at=moment_text(one.at),
        text=brief(one.text, 300),
        about=brief(one.kind, 40).replace("_", " "),
        tone={"error": "bad", "warning": "warn"}.get(one.level, ""),
    )


def _keyed(items: Sequence[FeedItem]) -> list[FeedItem]:
    """The same with keys that are all different."""
    seen: dict[str, int] = {}
    found = []
    for item in items:
        number = seen[item.key] = seen.get(item.key, 0) + 1
        found.append(item if number == 1 else msgspec.structs.replace(item, key=f"{item.key} {number}"))
    return found
