"""Context follows work into threads, executors and processes by itself while a run is recorded.

Four entry points of the standard library are wrapped when the first run starts: starting a thread, handing work to
an executor, starting a multiprocessing process and starting a subprocess. Each does exactly what it did, and outside
a run nothing else. Only the place in the run travels, never the user's own context variables.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from flightlog.interruption import pass_interruption
from flightlog.record.active import active_runs, remember_parent
from flightlog.record.carrier import RUN, TRACEPARENT, attach, attached, carrier

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
)


def install() -> None:
    """Wrap what is imported by now; called at each run's start, so that a later import is found by the next run."""
    for module, name, method, prepare in _ENTRANCES:
        owner = getattr(sys.modules.get(module), name, None)  # another thread may be importing it just now
        if owner is not None:
            _wrap(f"{module}.{name}", owner, method, globals()[prepare])


def _wrap(key: str, owner: type, method: str, prepare: Callable[..., tuple[Any, dict[str, Any]]]) -> None:
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


def _submit(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if getattr(args[0], CARRIES_CONTEXT, False):
        return args, kwargs
    place = carrier()
    if not place:
        return args, kwargs
    executor, function, *rest = args
    return (executor, Attached(place, function), *rest), kwargs


class Attached:
    """A callable that runs where it was handed over: the place travels with it, in this process or another."""

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
