"""What all pages of a dashboard share: one listing of the runs and their keys in addresses, results computed
once for all viewers, and followed runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from flightlog.analyze.live.follow import FollowedRuns
from flightlog.show.terminal import brief
from flightlog.store import layout
from flightlog.store.catalogue import PastRun, RunEntry, past_runs
from flightlog.store.liveness import unix_time
from flightlog.store.read.files import stamp_at
from flightlog.store.runs_folder import RunsPlace, place
from flightlog.web.limits import WebLimits

if TYPE_CHECKING:
    from flightlog.export.prometheus.server import MetricsPage
    from flightlog.store.run import Run

Result = TypeVar("Result")

STATUSES = ("running", "completed", "failed", "interrupted", "crashed", "unknown")


class Dashboard:
    """One folder of runs, shown to any number of viewers. Its methods belong to the event loop, and never
    block it.
    """

    def __init__(self, given: str | None = None, *, live: FollowedRuns | None = None) -> None:
        self.runs = RunsFolder(given)
        self.results = SharedResults()
        self.listing_results = SharedResults(threads=1)
        self.live = FollowedRuns() if live is None else live
        self.metrics: MetricsPage | None = None
        """Created on first use."""
        self.patience_s = WebLimits.progress_shown_after_s
        self._took_s = 0.0

    async def listing(self, *, now: bool = False) -> Listing:
        """The runs, as of a moment ago; `now` as of now."""
        age = 0.0 if now else max(WebLimits.run_list_interval_s, 4 * self._took_s)
        return await self.listing_results.get("runs", self._look, max_age_s=age)

    def _look(self) -> Listing:
        began = time.monotonic()
        found = self.runs.look()
        self._took_s = time.monotonic() - began
        return found

    async def find(self, key: str) -> RunRow | None:
        """The run of that name; one that began since the last look is found, too."""
        found = (await self.listing()).find(key)
        return found or (await self.listing(now=True)).find(key)

    async def of_run(self, what: str, row: RunRow, compute: Callable[[Run], Result]) -> Result:
        """A result computed from a run once for all viewers, until the run's documents change."""
        return await self.of_runs(what, (row,), lambda runs: compute(runs[0]))

    async def of_runs(
        self, what: str, rows: tuple[RunRow, ...], compute: Callable[[tuple[Run, ...]], Result]
    ) -> Result:
        """As `of_run`, of several runs."""

        def work() -> Result:
            from flightlog.store.run import Run

            return compute(tuple(Run(row.path) for row in rows))

        # The documents of a run that goes on change all the time.
        stamps = [None if row.status == "running" else stamp_at(str(row.path / layout.RUN)) for row in rows]
        key = (what, *((row.key, stamp) for row, stamp in zip(rows, stamps, strict=True)))
        goes_on = any(row.status == "running" for row in rows)
        return await self.results.get(key, work, max_age_s=WebLimits.running_run_reuse_s if goes_on else None)

    async def of_history(self, what: tuple[object, ...], compute: Callable[[Path], Result]) -> Result:
        """What is computed of the folder, once for all viewers and for a short while."""
        folder = (await self.listing()).folder
        return await self.results.get(what, lambda: compute(folder), max_age_s=WebLimits.running_run_reuse_s)

    def close(self) -> None:
        """Let go of everything that runs."""
        self.live.close()
        self.results.close()
        self.listing_results.close()


class _SharedResult(NamedTuple):
    future: Future[Any]
    done: float | None
    """When; None before that."""
    size: int
    failed: bool = False

    def is_good(self, now: float, max_age_s: float | None) -> bool:
        """Whether it is what somebody gets who asks now."""
        limits = (max_age_s, WebLimits.failure_reuse_s if self.failed else None)
        return self.done is None or all(now - self.done <= most for most in limits if most is not None)


class SharedResults:
    """Computations by key. A result is given to all who ask for its key, until it is too old or others need
    the room.

    `get` belongs to an event loop and never blocks it; everything else is thread-safe. A computation that
    raises raises to all who wait for it or ask within `WebLimits.failure_reuse_s`, and is retried for
    the next. The threads end with the process, in the middle of what they do; `close` lets them end earlier,
    and cancels what waits for its turn.
    """

    def __init__(
        self,
        *,
        threads: int = WebLimits.max_threads,
        kept: int = WebLimits.max_cached_results,
        kept_bytes: int = WebLimits.max_cached_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._most_bytes, self._clock = kept, kept_bytes, clock
        self._kept: OrderedDict[Hashable, _SharedResult] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._work: queue.SimpleQueue[tuple[Hashable, Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._run, name=f"flightlog-ui-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def get(
        self, key: Hashable, compute: Callable[[], Result], *, max_age_s: float | None = None
    ) -> Result:
        """The result for the key, computed unless there is one that is no older than `max_age_s`."""
        return await asyncio.wrap_future(self.begin(key, compute, max_age_s=max_age_s))

    def begin(
        self, key: Hashable, compute: Callable[[], Result], *, max_age_s: float | None = None
    ) -> Future[Result]:
        """As `get`, at once: what will be the result."""
        now = self._clock()
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known.is_good(now, max_age_s):
                self._kept.move_to_end(key)
                return known.future
            future: Future[Any] = Future()
            future.set_running_or_notify_cancel()  # who stops waiting cancels it for nobody
            self._kept[key] = _SharedResult(future, None, 0)
            self._kept.move_to_end(key)
        self._work.put((key, future, compute))
        return future

    def close(self) -> None:
        """Begin nothing more, and let the threads end after what they do now."""
        self._closed = True
        for _ in self._threads:
            self._work.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end after `close`, at most this long for each."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            if self._closed:
                work[1].set_exception(CancelledError())
            else:
                self._compute(*work)

    def _compute(self, key: Hashable, future: Future[Any], compute: Callable[[], Any]) -> None:
        result: Any = None
        problem: BaseException | None = None
        try:
            result = compute()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            problem = error
        size = len(result) if isinstance(result, str | bytes) else 0
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known.future is future:
                self._kept[key] = _SharedResult(future, self._clock(), size, problem is not None)
            self._make_room()
        if problem is None:
            future.set_result(result)
        else:
            future.set_exception(problem)

    def _make_room(self) -> None:
        held = sum(one.size for one in self._kept.values())
        for key, one in list(self._kept.items())[:-1]:  # the one used last stays, however large
            if len(self._kept) <= self._most and held <= self._most_bytes:
                return
            if one.done is not None:
                held -= one.size
                del self._kept[key]


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class RunRow(Struct, frozen=True, kw_only=True):
    """A run in the list; its texts are clean and not long. Unknown is null."""

    key: str
    """What it is called in addresses."""
    entry: RunEntry
    """The run as recorded: its texts are not clean."""
    run_id: str
    project: str
    status: str
    started: float | None
    """In seconds since 1970."""
    host: str | None
    target: str | None
    tags: tuple[str, ...]
    """`name=value`, or the name alone where the value is true or empty."""
    commit: str | None
    error: str | None

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.entry.path


class Listing(Struct, frozen=True, kw_only=True):
    """The runs at a moment, the newest first."""

    place: str
    folder: Path
    rows: tuple[RunRow, ...]
    notes: tuple[str, ...]
    """What to know of it: that a remote does not answer, say."""
    by_key: dict[str, RunRow]

    def find(self, key: str) -> RunRow | None:
        """The run of that name, exactly."""
        return self.by_key.get(key)


def key_of(path: Path) -> str:
    """A run's key in addresses: its folder's name if that is plain, else a digest of it; never a path."""
    name = path.name
    if _PLAIN.fullmatch(name):
        return name
    return "~" + hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


class RunsFolder:
    """The runs of a place. Not for the event loop: `look` reads, one call at a time."""

    def __init__(self, given: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = RunsPlace(given, clock=clock)
        self._looking = threading.Lock()
        self.looks = 0

    def look(self) -> Listing:
        """The current runs; problems of a remote are in the notes."""
        with self._looking:
            self.looks += 1
            folder = self.place.folder()
            rows = tuple(map(_row, past_runs(folder, headlines=False)))
            by_key = {row.key: row for row in reversed(rows)}  # of several of one name the first
            notes = self.place.notes
            return Listing(place=place(folder), folder=folder, rows=rows, notes=notes, by_key=by_key)


def _row(one: PastRun) -> RunRow:
    entry, info = one.entry, one.info
    return RunRow(
        key=key_of(entry.path),
        entry=entry,
        run_id=brief(entry.run_id),
        project=brief(entry.project),
        status=brief(entry.status, 40),
        started=unix_time(entry.start_time),
        host=brief(info.host) if info and info.host else None,
        target=brief(info.target) if info and info.target else None,
        tags=tuple(_tag(name, value) for name, value in (info.tags if info else {}).items()),
        commit=brief(info.git_commit, 12) if info and info.git_commit else None,
        error=brief(entry.problem or (info.error if info else None)) or None,
    )


def _tag(name: str, value: object) -> str:
    return brief(name, 60) if value in (True, None, "") else brief(f"{name[:60]}={str(value)[:120]}", 100)
