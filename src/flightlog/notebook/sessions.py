"""A session and its futures in a notebook. Looking at a session starts nothing and waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flightlog.notebook.elements import (
    BAD,
    GOOD,
    NEW,
    QUIET,
    WARN,
    Part,
    bar,
    facts,
    fragment,
    headline,
    line,
    sentences,
    text,
    title,
)
from flightlog.session.progress import eta_text
from flightlog.show.phrases import count_text
from flightlog.units import format_count, format_duration

if TYPE_CHECKING:
    from flightlog.session.eta import Eta
    from flightlog.session.futures import TaskFuture
    from flightlog.session.session import Session
    from flightlog.session.tracking import Counts

_PLAIN = (bool, int, float, str, type(None))
_STATES: Mapping[str, str] = {"not started": QUIET, "open": NEW, "closed": QUIET}
_ENDS: Mapping[str, str] = {
    "waiting": QUIET, "running": NEW, "completed": GOOD, "failed": BAD, "cancelled": WARN,
}  # fmt: skip


def counts_html(counts: Counts, eta: Eta | None = None) -> str:
    """How far the tasks are: a bar and its figures, and how long it still takes where that is known."""
    left = max(0, counts.submitted - counts.ended)
    parts = [
        Part(f"{format_count(counts.completed)} completed", counts.completed, GOOD),
        Part(f"{format_count(counts.failed)} failed", counts.failed, BAD),
        Part(f"{format_count(counts.cancelled)} cancelled", counts.cancelled, WARN),
    ]
    said = [f"{format_count(counts.ended)} of {count_text(counts.submitted, 'task')}"]
    if counts.retried:
        said.append(count_text(counts.retried, "retry", "retries"))
    if left and eta is not None:
        said.append(eta_text(eta))
    return line(" · ".join(text(one) for one in said)) + bar(parts, counts.submitted)


def session_html(session: Session) -> str:
    """A session: where it runs, how far its tasks are, and which run they are recorded in."""
    seen = session.seen()
    said = [
        f'<b style="color:{_STATES[seen.state]}">{seen.state}</b>',
        text(seen.project),
        f"on {text(session.target)}",
    ]
    pairs = [("Provider", session.provider), ("Run", seen.run_id or "begins with the first task")]
    if seen.path is not None:
        pairs.append(("Recorded in", str(seen.path)))
    return fragment(
        headline(" · ".join(said)),
        counts_html(seen.counts, seen.eta) if seen.counts is not None else "",
        title("Failed for good") + sentences(seen.failures) if seen.failures else "",
        facts(pairs),
    )


def future_html(future: TaskFuture) -> str:
    """What became of a task so far; its result only where that is a number, a text or nothing."""
    state = future.state()
    pairs = [("Task id", future.task_id)]
    if future.duration_s is not None:
        pairs.append(("Took", format_duration(future.duration_s)))
    if future.worker is not None:
        pairs.append(("Worker", future.worker))
    error = future.exception(0) if state == "failed" else None
    if error is not None:
        pairs.append(("Error", f"{type(error).__name__}: {_words(error)}"))
    elif state == "completed":
        pairs.append(("Result", _result(future.result(0))))
    color = _ENDS[state]
    return fragment(headline(f'<b style="color:{color}">{state}</b> · {text(future.task)}'), facts(pairs))


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's own `__str__`
        return "its text cannot be told"


def _result(value: Any) -> str:
    kind = type(value)
    if kind is str and len(value) > 1000:
        return f"a text of {len(value):,} characters"
    if kind is int and value.bit_length() > 1000:
        return f"a number of {value.bit_length():,} bits"
    return repr(value) if kind in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"
