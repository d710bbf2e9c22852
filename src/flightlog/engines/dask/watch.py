"""`flightlog.watch`: records what a Dask client that exists already does, without a change to the program."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flightlog.core.errors import UsageError
from flightlog.record.context import RUN, TRACEPARENT, carrier, current_run
from flightlog.record.recording import NoopRun, Recording, record

if TYPE_CHECKING:
    from flightlog.engines.dask.observer import ClusterObserver
    from flightlog.record.run import LiveRun

log = logging.getLogger("flightlog")

_lock = threading.Lock()


class Watched:
    """A client that is being watched, until `close`, the end of a `with` block, of the client or of the
    program.

    `run` is the run that is recorded into: one of its own, or the one that was open when watching began,
    which goes on afterwards. In a coroutine use `async with`, or `await` it before submitting. Who watches a
    client that is watched into the same run already shares that, and everything is recorded once, until the
    last of them is closed.
    """

    run: LiveRun

    def __init__(
        self,
        client: Any,
        project: str | None,
        runs_dir: str | os.PathLike[str] | None,
        tags: Mapping[str, Any] | None,
    ) -> None:
        self._client = client
        self._recording: Recording | None = None
        self._observer: ClusterObserver | None = None
        self._ending: asyncio.Future[None] | None = None
        self._closed = False
        self._watchers: Watchers | None = None
        found = current_run()
        if found is not None:
            self.run = found
        else:
            self._recording = record(project, runs_dir=runs_dir, tags=tags, provider="dask")
            self.run = self._recording.__enter__()
        if isinstance(self.run, NoopRun):
            return
        self._watchers = watchers = watchers_of(client)
        shared = watchers.add(self)
        if shared is not None:
            self._observer = shared._observer
        else:
            self._observe(client)
        self.run.on_end(lambda _status: self._end_observer())
        atexit.register(self.close)

    def _observe(self, client: Any) -> None:
        from flightlog.engines.dask.observer import ClusterObserver

        run = self.run
        place = carrier()
        if place.get(RUN) != str(run.path):
            place = {RUN: str(run.path), TRACEPARENT: f"00-{run.info.trace_id}-{run.root.span_id}-01"}
        sampled = run.recorder.host if run.info.sample_interval_s is not None else None
        self._observer = ClusterObserver(client, run.recorder.emit_all, place=place, sampled_host=sampled)

    def close(self, error: BaseException | None = None) -> Awaitable[None] | None:
        """Watch no more, and end the run if it was made for this, failed where there is an error. Never
        raises; once.

        In a coroutine of an asynchronous client it gives something to await, else None.
        """
        if self._closed:
            return None
        self._closed = True
        atexit.unregister(self.close)
        is_last = self._watchers is None or self._watchers.remove(self)
        ends = is_last or self._recording is not None  # with our run it ends for the others, too
        left = self._observer.stop() if self._observer is not None and ends else None
        if left is None:
            self._end_run(error)
            return None
        return self._after(left, error)

    async def _after(self, left: Awaitable[None], error: BaseException | None) -> None:
        await left
        self._end_run(error)

    def _end_run(self, error: BaseException | None) -> None:
        if self._recording is not None:
            self._recording.__exit__(type(error) if error is not None else None, error, None)

    def _end_observer(self) -> None:
        """The run ends first: what has arrived is recorded, and the rest is as it is."""
        if self._observer is not None:
            left = self._observer.stop()
            if left is not None:
                with suppress(RuntimeError):
                    self._ending = asyncio.ensure_future(left)

    def __enter__(self) -> LiveRun:
        if self._observer is not None and self._observer.is_installing:
            log.warning("the first tasks may be missed: an asynchronous client is watched with `async with`")
        return self.run

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        left = self.close(error)
        if left is not None:
            self._ending = asyncio.ensure_future(left)

    async def __aenter__(self) -> LiveRun:
        await self
        return self.run

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        left = self.close(error)
        if left is not None:
            await left

    def __await__(self) -> Generator[Any, None, Watched]:
        if self._observer is not None:
            yield from self._observer.installed().__await__()
        return self


class Watchers:
    """Who watches one client, each into a run; thread-safe. While there are any, they are closed before the
    client is.
    """

    def __init__(self, client: Any) -> None:
        self._all: list[Watched] = []
        # An asynchronous client is closed by `_close`, also at the end of its `async with`.
        self._name = "_close" if client.asynchronous else "close"
        self._before = client.__dict__.get(self._name)
        closing = getattr(client, self._name)

        def close(*args: Any, **kwargs: Any) -> Any:
            """As the client's own, after the last of what was watched has been recorded."""
            for watched in list(self._all):
                watched.close()
            return closing(*args, **kwargs)

        async def close_later(*args: Any, **kwargs: Any) -> Any:
            for watched in list(self._all):
                left = watched.close()
                if left is not None:
                    await left
            return await closing(*args, **kwargs)

        self._hook = close_later if client.asynchronous else close
        setattr(client, self._name, self._hook)

    def add(self, watched: Watched) -> Watched | None:
        """One more; gives one that watches into the same run already, if there is one."""
        with _lock:
            shared = next((one for one in self._all if one.run is watched.run), None)
            self._all.append(watched)
            return shared

    def remove(self, watched: Watched) -> bool:
        """One less; whether nobody is left that watches into its run. The last leaves the client as it
        was.
        """
        client = watched._client
        with _lock:
            if watched in self._all:
                self._all.remove(watched)
            if not self._all:
                _watchers.pop(id(client), None)
                if client.__dict__.get(self._name) is self._hook:
                    if self._before is None:
                        del client.__dict__[self._name]
                    else:
                        client.__dict__[self._name] = self._before
            return all(one.run is not watched.run for one in self._all)


_watchers: dict[int, Watchers] = {}
"""By the client's `id`: those that watch keep it alive."""


def watchers_of(client: Any) -> Watchers:
    """Who watches a client."""
    with _lock:
        return _watchers.get(id(client)) or _watchers.setdefault(id(client), Watchers(client))


def watch(
    client: Any,
    *,
    project: str | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    tags: Mapping[str, Any] | None = None,
) -> Watched:
    """Record what is submitted to Dask through `client`: futures, delayed objects and collections.

    `with flightlog.watch(client) as run:`, or `watched = flightlog.watch(client)` and later
    `watched.close()`; without it, watching ends when the client is closed or the program ends. Inside
    `flightlog.record(...)` it records into that run, and else into one of its own: `project`, `runs_dir` and
    `tags` are as for `flightlog.record`. With an asynchronous client, `async with`, or `await
    flightlog.watch(client)`.

    A `UsageError` if `client` is no `distributed.Client`; after that nothing here raises into the program.
    """
    kind = next((base for base in type(client).__mro__ if base.__module__ == "distributed.client"), None)
    if kind is None:
        raise UsageError(
            f"flightlog.watch takes a distributed.Client, and was given {type(client).__name__}: "
            f"{client!r:.100}"
        )
    return Watched(client, project, runs_dir, tags)
