"""Sessions, futures and their progress in a notebook. Displaying a session starts nothing and waits for
nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration
from flightlog.notebook.display import STATUS, display_html
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.live import DisplayHandle, show_from_here, show_here
from flightlog.notebook.runs import Display, count_bar
from flightlog.session.progress import eta_text
from flightlog.show.document import Block, FactsBlock, Item, Items, Paragraph, Section, StatusLine
from flightlog.show.terminal import brief

if TYPE_CHECKING:
    from flightlog.analyze.predict.eta import Eta
    from flightlog.session.futures import TaskFuture
    from flightlog.session.session import Session, SessionState
    from flightlog.session.tracking import Counts

_PLAIN = (bool, int, float, str, type(None))


def counts_display(counts: Counts, eta: Eta | None = None) -> list[Block]:
    """Progress of the tasks, estimated remaining time, and how many ended how."""
    said = [f"{format_count(counts.ended)} of {plural(counts.submitted, 'task')}"]
    if counts.retried:
        said.append(plural(counts.retried, "retry", "retries"))
    if counts.submitted > counts.ended and eta is not None:
        said.append(eta_text(eta))
    ends = {"completed": counts.completed, "failed": counts.failed, "cancelled": counts.cancelled}
    return [Paragraph(" · ".join(said)), count_bar(ends, total=counts.submitted)]


def session_display(session: Session) -> Display:
    """A session: where it runs, how far its tasks are, and which run they are recorded in."""
    seen = session.seen()
    failed = Items([Item(one) for one in seen.failures])
    return [
        StatusLine([seen.state, seen.project, f"on {session.target}"], STATUS.get(seen.state, "quiet")),
        *(counts_display(seen.counts, seen.eta) if seen.counts is not None else []),
        Section("Failed for good", blocks=[failed]),
        _cut_facts(session_facts(session, seen)),
    ]


def _cut_facts(pairs: Sequence[tuple[str, str]]) -> FactsBlock:
    return FactsBlock([(label, brief(value, NotebookLimits.max_value_chars)) for label, value in pairs])


def session_facts(session: Session, seen: SessionState) -> list[tuple[str, str]]:
    """Where it runs, and which run it is."""
    pairs = [("Provider", session.provider), ("Run", seen.run_id or "begins with the first task")]
    return pairs if seen.path is None else [*pairs, ("Recorded in", str(seen.path))]


def future_display(future: TaskFuture) -> Display:
    """What became of a task so far; its result only where that is a number, a text or nothing."""
    state = future.state()
    facts = _cut_facts(future_facts(future, state))
    return [StatusLine([state, future.task], STATUS.get(state, "quiet")), facts]


def future_facts(future: TaskFuture, state: str) -> list[tuple[str, str]]:
    """The task's id, and what is known of it in this state."""
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
    return pairs


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's own `__str__`
        return "its text cannot be shown"


def _result(value: Any) -> str:
    kind = type(value)
    if kind is str and len(value) > 1000:
        return f"a text of {len(value):,} characters"
    if kind is int and value.bit_length() > 1000:
        return f"a number of {value.bit_length():,} bits"
    return repr(value) if kind in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"


log = logging.getLogger("flightlog")


@contextmanager
def displayed(
    counts: Callable[[], Counts],
    eta: Callable[[], Eta | None] | None = None,
    *,
    show: Callable[[str], DisplayHandle] = show_here,
    every_s: float = NotebookLimits.display_interval_s,
) -> Iterator[None]:
    """Show the progress of the tasks twice a second, and at the end how they ended; nothing for sessions that
    end sooner.

    One thread draws. Where a display fails, that is reported once and drawing stops; the tasks continue.
    """
    over, show = threading.Event(), show_from_here(show)

    def draw() -> None:
        shown: DisplayHandle | None = None
        try:
            while not over.wait(every_s):
                html = display_html(*counts_display(counts(), eta() if eta is not None else None))
                if shown is None:
                    shown = show(html)
                else:
                    shown.update(html)
            if shown is not None:
                shown.update(display_html(*counts_display(counts())))
        except Exception:  # whatever the front end met, the tasks are not its business
            log.warning("the progress of the session cannot be displayed", exc_info=True)

    drawing = threading.Thread(target=draw, name="flightlog-progress", daemon=True)
    drawing.start()
    try:
        yield
    finally:
        over.set()
        drawing.join(2.0)
