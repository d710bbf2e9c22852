"""The place in a run: which runs this process records, where a thread stands in them, and how that travels.

A carrier is a place as a small mapping of strings. While a run is recorded the place follows work into
threads, greenlets, executors, pools and processes by itself. Five entry points of the standard library are
wrapped when the first run starts: starting a thread, handing work to an executor or to a pool, starting a
multiprocessing process and starting a subprocess. Each does exactly what it did, and outside a run nothing
else. Only the place in the run travels, never the user's own context variables.

Workers of an executor or a pool may be older than the run, or serve several: joblib keeps those of loky. So
each piece of work says where it belongs; once a worker was used in a run, work from outside of any run says
that it belongs nowhere.

gevent tells of each greenlet that is spawned; of eventlet the two places where it makes greenlets are
wrapped. Neither is imported here.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from flightlog.core import threads
from flightlog.core.interruption import pass_interruption
from flightlog.core.settings import parse_traceparent, read_settings
from flightlog.record import span as spans
from flightlog.record.limits import RecordLimits
from flightlog.record.span import RootSpan, Span, current, find_parent
from flightlog.record.values import text_of

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun

log = logging.getLogger("flightlog")

_runs: list[LiveRun] = []
_lock = threads.RLock()
_inherited = "_flightlog_parent"
_served = "_flightlog_served"
"""On an executor or a pool of processes that was used in a run: where its latest work came from."""
_NOWHERE = Span("", {})
"""What a thread inherits that belongs to no run."""

_ended: set[str] = set()
_told_unattributed = False
_join_from_environment: Callable[[], LiveRun | None] = lambda: None  # noqa: E731
_join: Callable[[str], LiveRun | None] = lambda _path: None  # noqa: E731

RUN = "flightlog_run"
TRACEPARENT = "traceparent"
ENVIRONMENT = {RUN: "FLIGHTLOG_RUN", TRACEPARENT: "TRACEPARENT"}
"""The variables that carry a place in a run into child processes."""
CARRIES_CONTEXT = "_flightlog_carries_context"
"""Set on an executor whose owner hands the context over by itself, as Dask's workers do."""
_installed: set[str] = set()
_Changed = tuple[Any, dict[str, Any]] | None
"""The arguments of a call as they are to be, or None for as they are."""
_ENTRANCES = (
    ("threading", "Thread", "start", "_start_thread"),
    ("concurrent.futures.thread", "ThreadPoolExecutor", "submit", "_submit"),
    ("concurrent.futures.process", "ProcessPoolExecutor", "submit", "_submit_to_process"),
    ("loky.process_executor", "ProcessPoolExecutor", "submit", "_submit_to_process"),
    ("joblib.externals.loky.process_executor", "ProcessPoolExecutor", "submit", "_submit_to_process"),
    *(
        ("multiprocessing.pool", "Pool", method, "_submit_to_process")
        for method in ("apply_async", "_map_async", "imap", "imap_unordered")
    ),
    ("multiprocessing.process", "BaseProcess", "start", "_start_process"),
    ("subprocess", "Popen", "__init__", "_open_process"),
    ("eventlet.greenthread", "GreenThread", "__init__", "_make_green_thread"),
    ("eventlet", "greenthread", "_spawn_n", "_spawn_function"),
)
_NEEDED = sys.version_info < (3, 12)
_kept: defaultdict[str, Context] = defaultdict(copy_context)


def activate(run: LiveRun) -> None:
    """Let spans find this run."""
    with _lock:
        _runs.append(run)
        spans.set_mode(spans.ACTIVE)
        guard_contexts()


def deactivate(run: LiveRun) -> None:
    """Let no more spans find this run, nor this process join it again."""
    with _lock:
        if len(_ended) >= RecordLimits.max_remembered_ended_runs:
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


def join_with(
    from_environment: Callable[[], LiveRun | None], by_path: Callable[[str], LiveRun | None]
) -> None:
    """Set how a run of another process is joined: the one that the environment names, or one by its path."""
    global _join_from_environment, _join
    _join_from_environment, _join = from_environment, by_path


def _find_run() -> bool:
    """Join the run that the environment names, once; whether there is one."""
    spans.set_mode(spans.IDLE)
    return _join_from_environment() is not None


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


def format_traceparent(trace_id: str, span_id: str) -> str:
    """W3C trace context, version 00, sampled."""
    return f"00-{trace_id}-{span_id}-01"


def carrier() -> dict[str, str]:
    """Where code is now: hand it to `attached` in another thread, process or host. Empty outside any run."""
    run = current_run()
    here = current.get()
    if here is None or here._sink is None:
        here = find_parent(here)
    if run is None or here is None:
        return {}
    return {TRACEPARENT: format_traceparent(here.trace_id, here.span_id), RUN: str(run.path)}


@contextmanager
def attached(context: Mapping[str, str] | None) -> Iterator[None]:
    """Record what happens inside as part of the place a carrier came from.

    In a process that does not record that run yet, it joins it as a writer of its own. A carrier that is
    empty or says nothing useful changes nothing.
    """
    place = _place(context)
    if place is None:
        yield
        return
    before = current.get()
    current.set(place)
    try:
        yield
    finally:
        current.set(before)


@contextmanager
def _outside_of_runs() -> Iterator[None]:
    """Record nothing of what happens inside, though this process may record a run."""
    thread, before = threading.current_thread(), current.get()
    started_in = getattr(thread, _inherited, None)
    current.set(None)
    setattr(thread, _inherited, _NOWHERE)
    try:
        yield
    finally:
        setattr(thread, _inherited, started_in)
        current.set(before)


def attach(context: Mapping[str, str]) -> None:
    """Attach this context for good: what a new process does first."""
    place = _place(context)
    if place is not None:
        current.set(place)


def _place(context: Mapping[str, str] | None) -> Span | None:
    try:
        if context is None:
            return None
        ids, path = parse_traceparent(context.get(TRACEPARENT)), context.get(RUN)
        if ids is None or not issubclass(type(path), str):
            return None
        path = text_of(path)
        run = next((run for run in active_runs() if str(run.path) == path), None)
        if run is None:
            run = _join(path)
    except BaseException as error:  # noqa: BLE001 - no carrier of ours, or from nowhere
        pass_interruption(error)
        return None
    if run is None:
        return None
    here = run.recorder.open.get(ids[1])
    return here if here is not None else RootSpan(run.recorder, ids[0], ids[1], parent=run.root)


def install() -> None:
    """Wrap what is imported by now; called at each run's start, so that a later import is found by the next
    run.
    """
    for module, name, method, prepare in _ENTRANCES:
        owner = getattr(sys.modules.get(module), name, None)  # another thread may be importing it just now
        if owner is not None:
            _wrap(f"{module}.{name}.{method}", owner, method, globals()[prepare])
    on_spawn = getattr(getattr(sys.modules.get("gevent"), "Greenlet", None), "add_spawn_callback", None)
    if on_spawn is not None:
        on_spawn(_greenlet_spawned)  # which keeps it once, however often it is told


def _wrap(key: str, owner: Any, method: str, prepare: Callable[..., _Changed]) -> None:
    """Let `prepare` change the arguments of a call inside a run, or leave them (None); whatever it meets, the
    call is made.
    """
    if key in _installed:
        return
    _installed.add(key)
    original = getattr(owner, method)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if active_runs() or prepare is _submit_to_process:
            try:
                args, kwargs = prepare(args, kwargs) or (args, kwargs)
            except BaseException as error:
                pass_interruption(error)
                log.debug("a place in a run did not travel along", exc_info=True)
        return original(*args, **kwargs)

    setattr(owner, method, wrapper)


def _start_thread(args: Any, _kwargs: dict[str, Any]) -> None:
    """Note on a thread that is about to start what it is started in."""
    here = current.get()
    if here is None and getattr(threading.current_thread(), _inherited, None) is _NOWHERE:
        here = _NOWHERE
    if here is not None:
        setattr(args[0], _inherited, here)


def _greenlet_spawned(greenlet: Any) -> None:
    """Let a greenlet begin in the span that it is spawned in. gevent calls this before the greenlet
    starts.
    """
    if active_runs():
        try:
            _place_greenlet(greenlet)
        except Exception:
            log.debug("a place in a run did not travel along", exc_info=True)


def _place_greenlet(greenlet: Any) -> None:
    """Every greenlet has a context of its own, which is empty unless somebody gave it one."""
    here = current.get()
    if here is None:
        return
    if greenlet.gr_context is None:
        greenlet.gr_context = Context()
    if current not in greenlet.gr_context:
        greenlet.gr_context.run(current.set, here)


def _make_green_thread(args: Any, _kwargs: dict[str, Any]) -> None:
    _place_greenlet(args[0])


def _spawn_function(args: Any, kwargs: dict[str, Any]) -> _Changed:
    here = current.get()
    if here is None:
        return None
    seconds, function, *rest = args
    return (seconds, functools.partial(_call_inside, here, function), *rest), kwargs


def _call_inside(here: Span, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that a new greenlet begins with."""
    current.set(here)
    return function(*args, **kwargs)


def _submit(args: Any, kwargs: dict[str, Any]) -> _Changed:
    place = {} if getattr(args[0], CARRIES_CONTEXT, False) else carrier()
    return _with_place(place, args, kwargs) if place else None


def _submit_to_process(args: Any, kwargs: dict[str, Any]) -> _Changed:
    """Send the place along with the function that another process is to call.

    A thread of the executor's own, in which callbacks submit more, goes on with what came before. Outside of
    any run nothing is sent, but to workers that recorded one: that it belongs nowhere.
    """
    pool = args[0]
    before = getattr(pool, _served, None)
    place = carrier() if active_runs() and not getattr(pool, CARRIES_CONTEXT, False) else {}
    if threading.current_thread() is getattr(pool, "_executor_manager_thread", None) and before is not None:
        place = before if any(str(run.path) == before[RUN] for run in active_runs()) else place
    if place:
        setattr(pool, _served, place)
    return _with_place(place, args, kwargs) if place or before is not None else None


def _with_place(place: dict[str, str], args: Any, kwargs: dict[str, Any]) -> _Changed:
    pool, *rest = args
    if not rest:  # `apply_async(func=…)`
        return args, {**kwargs, "func": Attached(place, kwargs["func"])}
    return (pool, Attached(place, rest[0]), *rest[1:]), kwargs


class Attached:
    """A callable that runs where it was handed over: the place travels with it, in this process or another.
    Without a place it belongs to no run.
    """

    def __init__(self, place: dict[str, str], function: Callable[..., Any]) -> None:
        self.place, self.function = place, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, attached."""
        with attached(self.place) if self.place else _outside_of_runs():
            return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """The function alone arrives in a worker that cannot import Flightlog, as one that was started before
        the program's path led to it.
        """
        return eval, (_ARRIVING, {"place": self.place, "function": self.function})


_ARRIVING = (
    "__import__('flightlog.record.context', fromlist=['context']).Attached(place, function)"
    " if __import__('importlib.util', fromlist=['util']).find_spec('flightlog') else function"
)
"""Makes an `Attached` in another process, by names of the standard library alone."""


def _start_process(args: Any, _kwargs: dict[str, Any]) -> None:
    install()  # a pool that starts its workers has been imported by now
    place = carrier()
    if place:
        args[0]._flightlog_place = Arrival(place)


class Arrival:
    """A place that attaches itself where it is unpickled: in a spawned child, before its work begins."""

    def __init__(self, place: dict[str, str]) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (self.place,)


def arrive(place: dict[str, str]) -> Arrival:
    """Attach a new process to the place it was started from."""
    attach(place)
    return Arrival(place)


def _open_process(args: Any, kwargs: dict[str, Any]) -> _Changed:
    """Name the current span in the environment; one that was given is left as it is.

    The run itself stands in `os.environ`, so outside any span there is nothing to do.
    """
    given = len(args) > 11 or kwargs.get("env") is not None
    place = {} if given else {ENVIRONMENT[key]: value for key, value in carrier().items()}
    if all(os.environ.get(name) == value for name, value in place.items()):
        return None
    return args, {**kwargs, "env": {**os.environ.copy(), **place}}


class _Keeper:
    """Each attribute asked for is a copy of the context, kept until the next one of that name."""

    __getattribute__: Any = _kept.__missing__


# The callback is C from end to end: a function of ours would be a place for signal handlers to come in.
_keep = partial(getattr, _Keeper())


# Python 3.11 can lose a thread's context variables: there, setting one may start a garbage collection in its
# middle. Code that runs inside that collection (a finalizer, or a signal handler that a collection's callback
# lets in) and sets one as well takes away the memory the first setting still reads, and with bad luck all
# variables of the thread are gone, the user's own included. Spans set a context variable each, so they would
# bring it about. Holding a copy of the context from the beginning of each collection keeps that memory alive.
# From Python 3.12 on collections start between instructions only.


def guard_contexts() -> None:
    """Begin, before all other callbacks."""
    if _NEEDED and _keep not in gc.callbacks:
        gc.callbacks.insert(0, _keep)


def stop_guarding() -> None:
    """Let go."""
    if _keep in gc.callbacks:
        gc.callbacks.remove(_keep)
        _kept.clear()
