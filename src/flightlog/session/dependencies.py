"""Calls that travel, and the futures in their arguments: where a call is pickled, each stands for its
result.
"""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.engines.execute import plain_dumps, unpickled

if TYPE_CHECKING:
    from flightlog.session.futures import TaskFuture


class Packed(Struct):
    """A call as bytes, and the tasks whose results it needs."""

    call: bytes
    """Pickled (function, args, kwargs); futures that are not done are placeholders."""
    futures: list[TaskFuture]
    """Every future in it, in order of appearance, once each."""
    awaited: list[TaskFuture]
    """Those of them that are placeholders."""


class _Here(threading.local):
    found: dict[str, tuple[TaskFuture, bool]] | None = None
    """While a call is pickled: the futures met so far, and whether each is a placeholder."""
    values: Mapping[str, bytes] | None = None
    """While a call is unpickled: the results that its placeholders stand for."""


_here = _Here()


def pack(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    of: Callable[..., Any] | None = None,
    dumps: Callable[[Any], bytes] = plain_dumps,
) -> Packed:
    """The call as it is now: what is changed in its arguments later does not change it.

    A `UsageError` says what cannot be pickled, and of which call; `of` is the function, where another one
    calls it. A call without futures costs nothing more than its pickling, by `dumps`.
    """
    _here.found = {}
    try:
        call = dumps((function, tuple(args), dict(kwargs)))
        met = _here.found.values()
        return Packed(call, [one for one, _ in met], [one for one, left in met if left])
    except Exception as error:
        raise UsageError(_refusal(of or function, error)) from error
    finally:
        _here.found = None


def fill(call: bytes, futures: Sequence[TaskFuture], dumps: Callable[[Any], bytes] = plain_dumps) -> bytes:
    """A packed call with the results of the futures it needs, all of which have completed."""
    values = {one.task_id: dumps(one.result(0)) for one in futures}
    return pickle.dumps((call_filled, (call, values), {}), pickle.HIGHEST_PROTOCOL)


def call_filled(call: bytes, values: Mapping[str, bytes]) -> Any:
    """In the worker: make the call, with results in place of the placeholders."""
    _here.values = values
    try:
        function, args, kwargs = unpickled(call)
    finally:
        _here.values = None
    return function(*args, **kwargs)


def leave_placeholder(future: TaskFuture) -> tuple[Any, ...]:
    """How a future is pickled: as its result, where it is there, else as a placeholder for it."""
    if _here.found is None:
        raise TypeError(
            "a future of a task is pickled only as an argument of another task: take its result()"
        )
    there = future.done() and not future.cancelled() and future.exception(0) is None
    _here.found[future.task_id] = future, not there
    if there:
        return _same, (future.result(0),)
    return _result_of, (future.task_id,)


def _same(value: Any) -> Any:
    return value


def _result_of(task_id: str) -> Any:
    assert _here.values is not None, "a call with placeholders is made by `call_filled`"
    return pickle.loads(_here.values[task_id])  # noqa: S301 - from the session that this worker belongs to


def _refusal(function: Callable[..., Any], error: Exception) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__name__
    text = f"the call of {name} cannot be sent to a worker: {type(error).__name__}: {error}."
    if "<locals>" in name or "<lambda>" in name:
        text += " Define the function at the top of a module, where workers can import it."
    return text
