"""Context follows work into threads, greenlets, executors and processes by itself while a run is recorded.

Four entry points of the standard library are wrapped when the first run starts: starting a thread, handing
work to an executor, starting a multiprocessing process and starting a subprocess. Each does exactly what it
did, and outside a run nothing else. Only the place in the run travels, never the user's own context
variables.

gevent tells of each greenlet that is spawned; of eventlet the two places where it makes greenlets are
wrapped. Neither is imported here.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any

from flightlog.core.interruption import pass_interruption
from flightlog.record.active import active_runs, remember_parent
from flightlog.record.carrier import RUN, TRACEPARENT, attach, attached, carrier
from flightlog.record.span import Span, current

ENVIRONMENT = {RUN: "FLIGHTLOG_RUN", TRACEPARENT: "TRACEPARENT"}
"""The variables that carry a place in a run into child processes."""

CARRIES_CONTEXT = "_flightlog_carries_context"
"""Set on an executor whose owner hands the context over by itself, as Dask's workers do."""

log = logging.getLogger("flightlog")

_installed: set[str] = set()


_ENTRANCES = (
    ("threading", "Thread", "start", "_start_thread"),
    ("concurrent.futures.thread", "ThreadPoolExecutor", "submit", "_submit"),
    ("concurrent.futures.process", "ProcessPoolExecutor", "submit", "_submit"),
    ("multiprocessing.process", "BaseProcess", "start", "_start_process"),
    ("subprocess", "Popen", "__init__", "_open_process"),
    ("eventlet.greenthread", "GreenThread", "__init__", "_make_green_thread"),
    ("eventlet", "greenthread", "_spawn_n", "_spawn_function"),
)


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


def _wrap(key: str, owner: Any, method: str, prepare: Callable[..., tuple[Any, dict[str, Any]]]) -> None:
    """Let `prepare` change the arguments of a call inside a run; whatever it meets, the call is made."""
    if key in _installed:
        return
    _installed.add(key)
    original = getattr(owner, method)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if active_runs():
            try:
                args, kwargs = prepare(args, kwargs)
            except BaseException as error:
                pass_interruption(error)
                log.debug("a place in a run did not travel along", exc_info=True)
        return original(*args, **kwargs)

    setattr(owner, method, wrapper)


def _start_thread(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    remember_parent(args[0])
    return args, kwargs


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


def _make_green_thread(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    _place_greenlet(args[0])
    return args, kwargs


def _spawn_function(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    here = current.get()
    if here is None:
        return args, kwargs
    seconds, function, *rest = args
    return (seconds, functools.partial(_call_inside, here, function), *rest), kwargs


def _call_inside(here: Span, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that a new greenlet begins with."""
    current.set(here)
    return function(*args, **kwargs)


def _submit(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if getattr(args[0], CARRIES_CONTEXT, False):
        return args, kwargs
    place = carrier()
    if not place:
        return args, kwargs
    executor, function, *rest = args
    return (executor, Attached(place, function), *rest), kwargs


class Attached:
    """A callable that runs where it was handed over: the place travels with it, in this process or
    another.
    """

    def __init__(self, place: dict[str, str], function: Callable[..., Any]) -> None:
        self.place, self.function = place, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, attached."""
        with attached(self.place):
            return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Attached, (self.place, self.function)


def _start_process(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    place = carrier()
    if place:
        args[0]._flightlog_place = Arrival(place)
    return args, kwargs


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


def _open_process(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Name the current span in the environment; one that was given is left as it is.

    The run itself stands in `os.environ`, so outside any span there is nothing to do.
    """
    if len(args) > 11 or kwargs.get("env") is not None:
        return args, kwargs
    place = {ENVIRONMENT[key]: value for key, value in carrier().items()}
    if not place or all(os.environ.get(name) == value for name, value in place.items()):
        return args, kwargs
    return args, {**kwargs, "env": {**os.environ.copy(), **place}}
