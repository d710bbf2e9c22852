"""Which runs this process records, and which of them a thread or a span belongs to."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from flightlog.core import threads
from flightlog.core.settings import read_settings
from flightlog.record import span as spans
from flightlog.record.reentry import guard_contexts, stop_guarding
from flightlog.record.span import Span, current

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun

log = logging.getLogger("flightlog")

_runs: list[LiveRun] = []
_lock = threads.RLock()
_inherited = "_flightlog_parent"
MAX_ENDED = 10_000
_ended: set[str] = set()
_told_unattributed = False


def activate(run: LiveRun) -> None:
    """Let spans find this run."""
    with _lock:
        _runs.append(run)
        spans.set_mode(spans.ACTIVE)
        guard_contexts()


def deactivate(run: LiveRun) -> None:
    """Let no more spans find this run, nor this process join it again."""
    with _lock:
        if len(_ended) >= MAX_ENDED:
            _ended.clear()
        _ended.add(str(run.path))
        if run in _runs:
            _runs.remove(run)
        if not _runs:
            spans.set_mode(_first_mode())
            stop_guarding()


def has_ended(path: str) -> bool:
    """Whether this process recorded a run at that path, and does so no more."""
    return path in _ended


def active_runs() -> tuple[LiveRun, ...]:
    """The runs that are being recorded, oldest first."""
    return tuple(_runs)


def run_of(here: Span | None) -> LiveRun | None:
    """The active run a span belongs to."""
    if here is None:
        return None
    for run in reversed(_runs):
        if run.recorder is here._sink:
            return run
    return None


def current_run() -> LiveRun | None:
    """The run that code here is recorded in, or None."""
    if spans._mode == spans.UNSURE:
        spans._find_run()
    here = current.get()
    if here is None or run_of(here) is None:
        here = spans.find_parent(here)
    return run_of(here)


def remember_parent(thread: threading.Thread) -> None:
    """Note on a thread that is about to start what it is started in."""
    here = current.get()
    if here is not None:
        setattr(thread, _inherited, here)


def _find_parent() -> Span | None:
    """For a thread without context: the span it was started in, else the only run there is.

    A thread that was started in a run belongs to that run, also when it is over: then it belongs to none.
    """
    global _told_unattributed
    started_in = here = getattr(threading.current_thread(), _inherited, None)
    while isinstance(here, Span):
        if run_of(here) is not None:
            return here
        here = here._parent
    runs = _runs
    if started_in is not None or not runs:
        return None
    if len(runs) == 1:
        return runs[0].root
    for run in runs:
        run.recorder.count("spans_unattributed")
    if not _told_unattributed:
        _told_unattributed = True
        log.warning(
            "several runs are active and a span was opened in a thread that none of them started: it is not "
            "recorded. Wrap the thread's work in flightlog.attached(carrier)."
        )
    return None


def _find_run() -> bool:
    """Join the run that the environment names, once; whether there is one."""
    from flightlog.record.joining import join_from_environment

    spans.set_mode(spans.IDLE)
    return join_from_environment() is not None


def _after_fork() -> None:
    global _lock
    _lock = threads.RLock()
    for run in list(_runs):
        run.after_fork()


def _first_mode() -> int:
    settings = read_settings()
    if not settings.enabled:
        return spans.OFF
    return spans.IDLE if settings.run is None else spans.UNSURE


spans.connect(_find_run, _find_parent)
spans.set_mode(_first_mode())
os.register_at_fork(after_in_child=_after_fork)
