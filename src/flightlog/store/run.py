"""A run, opened: running, closed, killed or half-copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.core.displayed import Displayed
from flightlog.core.errors import AmbiguousRun, DamagedRun, RunNotFound, UsageError
from flightlog.core.settings import expanded
from flightlog.events import kind_of
from flightlog.events.codec import Decoded, UnknownEvent
from flightlog.store import layout
from flightlog.store.catalogue import (
    infer_run,
    is_run,
    list_runs,
    missing_document,
    past_runs,
    run_paths,
    size_of,
)
from flightlog.store.documents import read_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import Observer, here, latest, unix_time
from flightlog.store.read.events import Completeness, RunReading
from flightlog.store.read.files import find_parts, size_at
from flightlog.store.read.lines import AnyEvent
from flightlog.store.read.writers import has_said_its_end, read_writers, run_as_it_ended
from flightlog.store.readable import Readable
from flightlog.store.runs_folder import Note, address_of, fetch_run, folder_of_runs, place, remote_run, warn

if TYPE_CHECKING:
    from flightlog.store.tables.query import Parameters, Table


@dataclass(frozen=True)
class Ending:
    """When a run ended, or its last heartbeat, and how long it took; None where that is unknown."""

    end_time: str | None
    duration_s: float | None


class Run(Displayed, Readable):
    """What stands in a run directory. Documents are read when the run is opened, events when they are asked
    for.

    Never changes the directory; the copy of a remote run is first brought up to date. `problems` are
    sentences on the documents; what is wrong with the events `completeness()` says.

    The tables of a run are attributes, `run.tasks.df()`, and `run.sql("SELECT …")` asks anything of them.
    """

    def __init__(
        self, path: Path, *, observer: Observer | None = None, home: Path | None = None, note: Note = warn
    ) -> None:
        self.path = path
        self._note, self._noted = note, set[str]()
        self.home = home or path
        """Where the run itself stands, where this is a copy of it as of one moment."""
        self.observer = observer or here()
        unfetched = fetch_run(path)
        read = read_document(path / layout.RUN, RunInfo)
        self._info = read.value
        self.inferred = read.value is None
        """Whether `run.json` is missing or unreadable, and `info` made up from name, writers and events."""
        self._writers, problems = read_writers(path)
        for writer in self._writers:
            if not writer.closed and writer.owner and not self.observer.writer_alive(writer):
                writer.closed = has_said_its_end(writer, None if self._info is None else self.info)
        if self.inferred:
            unknown = (
                ""
                if infer_run(path, path.name, self._writers, self.observer).start_time
                else "; when it started, and with it how long it took, is unknown"
            )
            problems.insert(
                0,
                f"{missing_document(path, read.problem)}; the run is described by its folder's name "
                f"and its events{unknown}",
            )
        elif read.problem:
            problems.insert(0, read.problem)
        self.problems = (*problems, *unfetched)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def run_id(self) -> str:
        """The run's name, which its folder usually bears."""
        return self._info.run_id if self._info else self.path.resolve().name

    @cached_property
    def info(self) -> RunInfo:
        """`run.json`, with its end where that could not be written there; its status may be out of date,
        `status` is not.
        """
        if self._info is None:
            return self._infer()
        info = run_as_it_ended(self.path, self._info, self.observer)
        if (
            info.to_complete is True or info is not self._info
        ):  # it has the tasks of the process that owns the run alone
            info.tasks_submitted, info.tasks_completed, info.tasks_failed = map(
                max, (info.tasks_submitted, info.tasks_completed, info.tasks_failed), self.counted_tasks()
            )
        return info

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed`, `interrupted` or `crashed`, as of when the run was opened.

        `unknown` where `run.json` is missing and no writer tells.
        """
        return self.observer.status(self.info)

    def streams(self) -> list[str]:
        """The names of the streams there are files of."""
        return sorted(find_parts(self.path))

    def events(self, stream: str) -> Iterator[AnyEvent]:
        """Every event of a stream once, older ones of each writer first; none if there is no such stream."""
        return self.read().events(stream)

    def records(self, stream: str) -> Iterator[Decoded]:
        """Every event of a stream once, with the fields its declaration does not know."""
        return self.read().records(stream)

    def opened(self) -> Run:
        """The run itself."""
        return self

    def sql(self, query: str, params: Parameters | None = None) -> Table:
        """As of `Readable`."""
        from flightlog.store.tables.query import Table

        return Table([self], query, params)

    def writers(self) -> list[WriterInfo]:
        """The processes that wrote, the owner first, then in order of their start."""
        return sorted(self._writers, key=lambda info: (not info.owner, info.started, info.writer))

    def is_written(self) -> bool:
        """Whether a process may still write into the run: it is running, or a writer that has not closed
        lives.
        """
        return self.status == "running" or any(map(self.observer.writer_alive, self._writers))

    def counted_tasks(self) -> tuple[int, int, int]:
        """Tasks submitted, completed and failed, as the processes that wrote have counted them."""
        submitted, completed, failed = (
            sum(writer.counts.get(kind, 0) for writer in self._writers)
            for kind in ("task_submitted", "task_completed", "task_failed")
        )
        return submitted, completed, failed

    def read(self) -> RunReading:
        """A new reading, which counts on the way how complete the streams are that it goes through."""
        return RunReading(
            self.path,
            self._writers,
            self.problems,
            lambda: self.status == "running",
            self.info.tasks_submitted or 0,
        )

    def completeness(self, reading: RunReading | None = None) -> Completeness:
        """How complete the run is. Goes through every stream, less those `reading` has gone through."""
        return (reading or self.read()).completeness()

    def ending(self, reading: RunReading | None = None) -> Ending:
        """When the run ended and how long it took.

        A run that is running has no end, and its duration goes up to its last heartbeat. A run that was
        killed ended with its last event or heartbeat; finding that goes through the streams `reading` has not
        gone through.
        """
        info, status = self.info, self.status
        if info.end_time is not None:
            known = info.duration_s
            return Ending(info.end_time, self._since_start(info.end_time) if known is None else known)
        beats = [info.heartbeat, *(writer.heartbeat for writer in self._writers)]
        if status == "running":
            return Ending(None, self._since_start(latest(*beats)))
        _, last = (reading or self.read()).span()
        end = latest(last, *beats)
        return Ending(end, self._since_start(end))

    def size_bytes(self) -> int:
        """Bytes of all files of the run."""
        return size_of(self.path)

    def tell_damaged_snapshot(self, what: str) -> None:
        """Tell whoever opened the run, once, that a file in `parquet/` was not read: `parquet/tasks.parquet
        is missing`.
        """
        if what not in self._noted:
            self._noted.add(what)
            self._note(
                f"{self.run_id}: {what}. The answer comes from the lines instead; "
                f"`flightlog compact {self.run_id}` repairs it"
            )

    def _since_start(self, timestamp: str | None) -> float | None:
        start, end = unix_time(self.info.start_time), unix_time(timestamp)
        return None if start is None or end is None else round(max(0.0, end - start), 6)

    def _infer(self) -> RunInfo:
        """What name, writers and events tell of a run whose `run.json` is missing or unreadable."""
        # Whether the run goes on is not known before this is.
        reading = RunReading(self.path, self._writers, self.problems, lambda: True)
        counts = dict.fromkeys(("task_submitted", "task_completed", "task_failed"), 0)
        for event in reading.events("tasks"):
            kind = event.kind if isinstance(event, UnknownEvent) else kind_of(event)
            if kind in counts:
                counts[kind] += 1
        info = infer_run(self.path, self.run_id, self._writers, self.observer)
        info.tasks_submitted, info.tasks_completed, info.tasks_failed = counts.values()
        return info


def open_found(path: Path, *, observer: Observer | None = None, note: Note = warn) -> Run:
    """Open the run in a folder that `find_run` gave; `DamagedRun` where nothing of it can be read."""
    run = Run(path, observer=observer, note=note)
    if (
        run.inferred
        and not run.writers()
        and not any(size_at(part.path) for parts in find_parts(path).values() for part in parts)
    ):
        raise DamagedRun(f"{path} holds nothing that can be read ({'; '.join(run.problems)})")
    return run


def path_of(given: object) -> Path:
    """The folder of a run, a recording or a session, by its `path`; of anything else what `find_run` finds.

    Raises `UsageError` for what names no run, and what `find_run` raises.
    """
    path = getattr(given, "path", None)
    if isinstance(path, Path) and not isinstance(given, os.PathLike):
        return path
    if not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"{type(given).__name__} is no run: give one that is opened, its id, its path, or 'latest'"
        )
    return find_run(given)


def find_run(
    ref: str | os.PathLike[str] = "latest",
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
    note: Note = warn,
) -> Path:
    """The directory of the run that `open_run` (see `store/completing.py`) would open."""
    address = address_of(ref)
    if address is not None:
        return remote_run(address, note=note)
    if not isinstance(ref, str) or "/" in ref or os.sep in ref:
        return _run_at(expanded(ref))
    if not ref:
        raise UsageError("an empty name names no run; 'latest' is the run that started last")
    folder = folder_of_runs(runs_dir, run_id=ref if layout.is_run_id(ref) else None, note=note)
    if ref in {"latest", "last"}:
        runs = list_runs(folder, observer=observer)
        if not runs:
            raise RunNotFound(
                f"there are no runs in {place(folder)}; record one, or name another folder of runs"
            )
        return runs[0].path
    paths = run_paths(folder)
    for path in paths:
        if path.name == ref:
            return path
    token = ref.removeprefix("run-")
    begin = {path for path in paths if path.name.startswith(ref) or path.name[-8:].startswith(token)}
    if not begin and Path(ref).is_dir():
        return _run_at(Path(ref))
    of_job = _latest_of_job(ref, folder, observer)
    matches = sorted(begin | of_job)
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(path.name for path in matches[:5]) + (", …" if len(matches) > 5 else "")
        or_job = " or have the tag job_id" if of_job else ""
        raise AmbiguousRun(f"{len(matches)} runs in {place(folder)} begin with{or_job} {ref!r}: {shown}")
    raise RunNotFound(_not_found(ref, folder, [path.name for path in paths]))


def _latest_of_job(job_id: str, folder: Path, observer: Observer | None) -> set[Path]:
    """The newest run that is tagged with the id of a job; none where there is none."""
    for run in past_runs(folder, headlines=False, observer=observer):
        tag = None if run.info is None else run.info.tags.get("job_id")
        if tag is not None and str(tag) == job_id:
            return {run.entry.path}
    return set()


def _run_at(path: Path) -> Path:
    if not path.is_dir():
        raise RunNotFound(f"there is no folder {path}")
    if not is_run(path) and not find_parts(path):
        inside = len(run_paths(path))
        hint = f"; it holds {inside} run{'s' * (inside != 1)}: name one of them" if inside else ""
        raise RunNotFound(f"{path} is not a run directory: it has neither {layout.RUN} nor events{hint}")
    return path.absolute()


def _not_found(ref: str, folder: Path, names: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(ref, names, n=3, cutoff=0.6)
    hint = f"; close: {', '.join(close)}" if close else ""
    return f"no run {ref!r} in {place(folder)}, which holds {len(names)} run{'s' * (len(names) != 1)}{hint}"
