"""The runs of the dashboard: one listing of the folder for all viewers, and keys of runs in addresses."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from flightlog.show.terminal import brief
from flightlog.store.catalogue import PastRun, past_runs
from flightlog.store.liveness import unix_time
from flightlog.store.runs_folder import RunsPlace, place

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class RunRow(Struct, frozen=True, kw_only=True):
    """A run in the list; its texts are clean and not long. Unknown is null."""

    key: str
    """What it is called in addresses."""
    path: Path
    run_id: str
    project: str
    project_name: str
    """The project as it is called in the record, whatever that is; never shown."""
    status: str
    start_time: str | None
    started: float | None
    """The same, in seconds since 1970."""
    ended: bool
    duration_s: float | None
    submitted: int | None
    completed: int | None
    failed: int | None
    host: str | None
    target: str | None
    tags: tuple[str, ...]
    """`name=value`, or the name alone where the value is true or empty."""
    commit: str | None
    error: str | None
    problem: str | None


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
    """What a run is called in addresses: its folder's name where that is plain, else a digest of it; never a
    path.
    """
    name = path.name
    if _PLAIN.fullmatch(name):
        return name
    return "~" + hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


class RunsFolder:
    """The runs of a place. Not for the event loop: `look` reads, and one look is taken at a time."""

    def __init__(self, given: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = RunsPlace(given, clock=clock)
        self._looking = threading.Lock()
        self.looks = 0

    def look(self) -> Listing:
        """The runs as of now; what is wrong with a remote is in the notes."""
        with self._looking:
            self.looks += 1
            folder = self.place.folder()
            rows = _rows(past_runs(folder, figures=False))
            named: dict[str, RunRow] = {}
            for row in rows:
                named.setdefault(row.key, row)
            return Listing(
                place=place(folder), folder=folder, rows=rows, notes=self.place.notes, by_key=named
            )


def _rows(found: Iterable[PastRun]) -> tuple[RunRow, ...]:
    return tuple(_row(one) for one in found)


def _row(one: PastRun) -> RunRow:
    entry, info = one.entry, one.info
    return RunRow(
        key=key_of(entry.path),
        path=entry.path,
        run_id=brief(entry.run_id),
        project=brief(entry.project),
        project_name=entry.project,
        status=brief(entry.status, 40),
        start_time=entry.start_time,
        started=unix_time(entry.start_time),
        ended=entry.end_time is not None,
        duration_s=entry.duration_s,
        submitted=entry.tasks_submitted,
        completed=entry.tasks_completed,
        failed=entry.tasks_failed,
        host=brief(info.host) if info and info.host else None,
        target=brief(info.target) if info and info.target else None,
        tags=tuple(_tag(name, value) for name, value in (info.tags if info else {}).items()),
        commit=brief(info.git_commit, 12) if info and info.git_commit else None,
        error=brief(info.error) if info and info.error else None,
        problem=brief(entry.problem) if entry.problem else None,
    )


def _tag(name: str, value: object) -> str:
    return brief(name, 60) if value in (True, None, "") else brief(f"{name[:60]}={str(value)[:120]}", 100)
