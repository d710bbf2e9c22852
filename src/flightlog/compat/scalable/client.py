"""`ScalableClient`: functions in, futures out."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Self

from flightlog.core.errors import UsageError
from flightlog.core.text import words
from flightlog.record.run import LiveRun
from flightlog.session.client import task_name
from flightlog.session.futures import TaskFuture
from flightlog.session.session import RunAccess

if TYPE_CHECKING:
    from flightlog.compat.scalable.session.session import ScalableSession

log = logging.getLogger("flightlog")

DASK_OPTIONS = words(
    "actor actors allow_other_workers batch_size fifo_timeout priority pure resources workers"
)
"""Scheduling options of Dask's client; they are not passed to the function."""
FLIGHTLOG_OPTIONS = ("component", "task", "timeout")
"""Options of Flightlog's client that in Scalable are arguments of the function."""

_CONTAINERS = (list, tuple, set, frozenset)
_warned: set[str] = set()


class ScalableClient(RunAccess):
    """Submits functions to the workers; thread-safe while the session is open.

    `ScalableClient(cluster)` uses a running Dask cluster (its address, the cluster object or a client of it),
    and records a run of its own until `close`.
    """

    def __init__(self, cluster: Any, *args: Any, **kwargs: Any) -> None:
        """The client of a session, or of a Dask cluster; further arguments of Dask's client are ignored."""
        from flightlog.compat.scalable.session.session import ScalableSession, session_on_cluster

        if args or kwargs:
            names = ", ".join(kwargs) or "further arguments"
            log.warning("ScalableClient takes the cluster alone; left out: %s", names)
        self._owns = not isinstance(cluster, ScalableSession)
        self.session: ScalableSession = session_on_cluster(cluster) if self._owns else cluster
        self._client = self.session.session.client if self._owns else self.session._session.client

    @property
    def client(self) -> Self:
        """Itself, so that `with ScalableSession… as session: session.client.map(…)` works too."""
        return self

    @property
    def telemetry(self) -> LiveRun:
        """The run: `subscribe`, `emit`, `event`, `metric`, `task`."""
        return self.session.telemetry

    def submit(
        self, func: Callable[..., Any], /, *args: Any, tag: str | None = None, n: int = 1, **kwargs: Any
    ) -> TaskFuture:
        """Run `func(*args, **kwargs)` as a task on a worker of the component `tag`; returns its future.

        `key` and `retries` are Dask's. A task runs on one worker: `n` beyond 1 is ignored with a warning, as
        are Dask's other scheduling options.
        """
        function, options, rest = _split_options(func, n, kwargs)
        return self._client.submit(function, *args, tag=tag, **options, **rest)

    def map(
        self,
        func: Callable[..., Any],
        /,
        *parameters: Iterable[Any],
        tag: str | None = None,
        n: int = 1,
        **kwargs: Any,
    ) -> list[TaskFuture]:
        """Submit a task per set of arguments, up to the end of the shortest; all have the function's name."""
        function, options, rest = _split_options(func, n, kwargs)
        return self._client.map(function, *parameters, tag=tag, **options, **rest)

    def gather(self, futures: Any, errors: Literal["raise", "skip", "return"] = "raise") -> Any:
        """The results of a future, or of nested lists, tuples, sets and dictionaries of them, in the same
        shape.

        The first exception is raised; with `skip` failed ones are left out, with `return` the exception takes
        their place.
        """
        if errors not in ("raise", "skip", "return"):
            raise UsageError(f"errors={errors!r} is none of 'raise', 'skip' and 'return'")
        if isinstance(futures, Iterator):
            futures = list(futures)
        found = list(dict.fromkeys(_futures_in(futures)))
        results = self._client.gather(found, errors="raise" if errors == "raise" else "return")
        known = dict(zip(found, results, strict=True))
        failed = {one for one in found if one.cancelled() or one.exception() is not None}
        return _replaced(futures, known, failed if errors == "skip" else set())

    def as_completed(
        self, futures: Iterable[TaskFuture], timeout: float | None = None
    ) -> Iterator[TaskFuture]:
        """The futures, each when it is done."""
        return self._client.as_completed(futures, timeout)

    def cancel(self, futures: TaskFuture | Iterable[TaskFuture], *_args: Any, **_options: Any) -> None:
        """Cancel one or several tasks."""
        for one in _futures_in(futures):
            self._client.cancel(one)

    def record_artifact(self, location: str | os.PathLike[str], **facts: Any) -> None:
        """As `ScalableSession.record_artifact`."""
        self.session.record_artifact(location, **facts)

    def close(self, timeout: Any = None) -> None:  # noqa: ARG002 - the interface
        """End the run of a client that was created on a cluster; that of a session ends with the session."""
        if self._owns:
            self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._owns:
            self.session.close(error)


def _split_options(
    func: Callable[..., Any], n: int, kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    """The function, the options for Flightlog's client, and the function's keyword arguments."""
    options = {"task": kwargs.pop("_scalable_task_name", None)}
    for name in ("key", "retries"):
        if name in kwargs:
            options[name] = kwargs.pop(name)
    for hint in sorted(DASK_OPTIONS & kwargs.keys()):
        del kwargs[hint]
        _warn_once(f"{hint}= is Dask's own, and has no meaning here")
    if n != 1:
        _warn_once(f"n={n!r}: a task runs on one worker here")
    bound = {name: kwargs.pop(name) for name in FLIGHTLOG_OPTIONS if name in kwargs}
    if bound:
        options["task"] = options["task"] or task_name(func)
        return functools.partial(func, **bound), options, kwargs
    return func, options, kwargs


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def _futures_in(value: Any) -> Iterator[TaskFuture]:
    if isinstance(value, TaskFuture):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _futures_in(each)
    elif isinstance(value, (*_CONTAINERS, Iterator)):
        for each in value:
            yield from _futures_in(each)
    elif isinstance(value, Future):
        raise UsageError(f"{value!r} is not one of this client's futures")


def _replaced(value: Any, known: Mapping[TaskFuture, Any], skipped: set[TaskFuture]) -> Any:
    """The value with results in place of futures."""

    def kept(each: Any) -> bool:
        return not (isinstance(each, TaskFuture) and each in skipped)

    if isinstance(value, TaskFuture):
        return known[value] if kept(value) else None
    if isinstance(value, Mapping):
        return {key: _replaced(each, known, skipped) for key, each in value.items() if kept(each)}
    if isinstance(value, _CONTAINERS):
        return type(value)(_replaced(each, known, skipped) for each in value if kept(each))
    return value
