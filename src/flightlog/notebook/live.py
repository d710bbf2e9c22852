"""A run followed in a notebook, and displays that are updated in place."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flightlog.analyze.live.results import update_pause_s
from flightlog.core.displayed import in_notebook
from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration, format_percent
from flightlog.notebook.display import STATUS, display_html
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.runs import count_bar
from flightlog.record.context import active_runs
from flightlog.show.document import Item, Items, Paragraph, Section, StatusLine
from flightlog.show.live import TABLES
from flightlog.show.phrases import doing_title

if TYPE_CHECKING:
    from flightlog.analyze.live.follow import FollowedRun
    from flightlog.analyze.live.results import LiveState
    from flightlog.record.run import LiveRun as Recorded
    from flightlog.session.session import Session
    from flightlog.store.run import Run


class DisplayHandle(Protocol):
    """A display that is on the page."""

    def update(self, html: str) -> None:
        """Show this in its place."""
        ...


class _NotebookDisplay:
    """A display of IPython's, changed by its id."""

    def __init__(self, ipython: Any, html: str) -> None:
        self._handle = ipython.display(_bundle(html), raw=True, display_id=True)

    def update(self, html: str) -> None:
        self._handle.update(_bundle(html), raw=True)


class PrintedDisplay:
    """The same where a display cannot be updated: all of it once, then its first line from time to time.

    A line is written when the status changes (the text before the first ` · `), and otherwise at most every
    `NotebookLimits.print_interval_s`.
    """

    def __init__(
        self,
        html: str,
        *,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._clock = write or _print, clock
        words = words_of(html)
        self._write(f"{words}\n")
        self._note(words)

    def update(self, html: str) -> None:
        """Write its first line, if it is time."""
        line = words_of(html).partition("\n")[0]
        if line.partition(" · ")[0] != self._status or self._clock() >= self._next:
            self._write(f"{line}\n")
            self._note(line)

    def _note(self, line: str) -> None:
        self._status, self._next = line.partition(" · ")[0], self._clock() + NotebookLimits.print_interval_s


def _print(words: str) -> None:
    """On standard output, at once; as escapes what its encoding does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(words.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def words_of(html: str) -> str:
    """The text of the package's HTML, in lines."""
    broken = re.sub(r"</(?:div|tr|li|table|p|h3|dd)>", "\n", html)
    lines = (" ".join(unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in broken.split("\n"))
    return "\n".join(line for line in lines if line)


def _bundle(html: str) -> dict[str, str]:
    """The HTML, and its words for a front end that shows none."""
    return {"text/html": html, "text/plain": words_of(html)}


def show_here(html: str) -> DisplayHandle:
    """Show HTML below the cell that runs; in a console, its words."""
    return _NotebookDisplay(import_module("IPython.display"), html) if in_notebook() else PrintedDisplay(html)


def show_from_here(show: Callable[[str], DisplayHandle]) -> Callable[[str], DisplayHandle]:
    """The same for another thread to call: it shows below the cell that runs now.

    The kernel finds the place by the context. Updates need none, and reach their display whatever cell runs
    then.
    """
    context = copy_context()
    return lambda html: context.run(show, html)


def display_here(value: object) -> None:
    """Display a value below the running cell."""
    ipython: Any = import_module("IPython.display")
    ipython.display(value)


log = logging.getLogger("flightlog")


SHOWN = ("failures", "running", "workers", "resources", "gpu")
"""The tables below the counts."""


def follow(
    run: Run | Recorded | Session | str | os.PathLike[str] = "latest",
    *,
    wait: bool | None = None,
    every_s: float = NotebookLimits.display_interval_s,
    show: Callable[[str], DisplayHandle] = show_here,
    follower: Callable[[Path], FollowedRun] | None = None,
) -> None:
    """Show a run, and go on showing how it stands until it ends or the cell is interrupted.

    `run` is a run, a session, an id, a path, or `latest`. With `wait=False` the cell ends at once and the
    display goes on by itself; so it does by default where this process records the run, which could not end
    while the cell waits for it. At most one update in `every_s` seconds; one that would show the same is not
    sent.
    """
    from flightlog.store.run import path_of

    path = path_of(run)
    if wait is None:
        wait = not _is_recorded_here(path)
    if follower is None:
        from flightlog.analyze.live.follow import FollowedRun

        follower = FollowedRun
    try:
        watched = follower(path)
        state = watched.update(NotebookLimits.read_limit_s)
        shown = show(state_html(state))  # in this cell: what is first shown after its end reaches no page
        if wait:
            _go_on(watched, path, state, shown, every_s)
            return
    except KeyboardInterrupt:  # that is how one stops looking; the run goes on
        return
    threading.Thread(
        target=_aside, args=(watched, path, state, shown, every_s), name="flightlog-follow", daemon=True
    ).start()


def _is_recorded_here(path: Path) -> bool:
    return any(path.resolve() == own.path.resolve() for own in active_runs())


def _pause(pause_s: float, path: Path) -> None:
    """Wait so long, or until a run that this process records has ended."""
    here, until = _is_recorded_here(path), time.monotonic() + pause_s
    while (left_s := until - time.monotonic()) > 0 and (not here or _is_recorded_here(path)):
        time.sleep(min(left_s, NotebookLimits.end_check_s) if here else left_s)


def _go_on(watched: FollowedRun, path: Path, state: LiveState, shown: DisplayHandle, every_s: float) -> None:
    before = state_html(state)
    pause_s = every_s
    while state.status == "running" or state.reading is not None:
        _pause(pause_s, path)
        begun = time.thread_time()
        state = watched.update(NotebookLimits.read_limit_s)
        pause_s = update_pause_s(every_s, time.thread_time() - begun)
        html = state_html(state)
        if html != before:
            shown.update(html)
            before = html


def _aside(watched: FollowedRun, path: Path, state: LiveState, shown: DisplayHandle, every_s: float) -> None:
    try:
        _go_on(watched, path, state, shown, every_s)
    except Exception:  # nobody waits for this thread, and the notebook goes on
        log.warning("the run cannot be followed any more", exc_info=True)


def state_html(state: LiveState) -> str:
    """A run at a moment: how far it is, what fails, what runs, who works."""
    done, problems = state.progress, state.problems
    words = [state.status, state.project]
    if done.submitted:
        words.append(f"{format_count(done.ended)} of {plural(done.submitted, 'task')}")
    words.append(f"{'for' if state.status == 'running' else 'in'} {format_duration(state.elapsed_s)}")
    if state.status == "running" and done.left_s is not None:
        words.append(f"about {format_duration(done.left_s)} left")
    if state.reading is not None:
        words.append(f"{format_percent(state.reading)} read so far")
    counts = {
        word: getattr(done, word) for word in ("completed", "failed", "cancelled", "running", "waiting")
    }
    if len(problems) > 4:
        problems = [*problems[:3], f"… and {len(problems) - 3:,} more problems"]
    tables = []
    for name in SHOWN:
        pane = TABLES[name].pane(state)
        most = NotebookLimits.max_live_failures if name == "failures" else NotebookLimits.max_live_rows
        title = doing_title(over=state.over) if name == "running" else pane.title
        tables.append(Section(title, blocks=[pane.block(most)]))
    return display_html(
        StatusLine(words, STATUS.get(state.status, "quiet")),
        *([Items([Item(state.error, style="bad")])] if state.error else []),
        count_bar(counts, over=state.over),
        *tables,
        *([Items([Item(problem) for problem in problems])] if problems else []),
        Paragraph(state.run_id, "aside"),
    )
