"""The runs there are: listed newest first, found by name, and removed when they are old or too many."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flightlog.core.errors import UsageError
from flightlog.store import layout
from flightlog.store.documents import Document, read_document
from flightlog.store.headline import Headline
from flightlog.store.index import CostOf, CountHeadline, RunIndex
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, here, unix_time
from flightlog.store.read.files import writer_folders
from flightlog.store.read.writers import (
    read_writer,
    read_writers,
    refused_from_the_start,
    run_as_it_ended,
    tells_of_loss,
)
from flightlog.store.runs_folder import fetch_documents

_REMOVED = ".removed-"

Progress = Callable[[int, int], None]
"""Is told how many are done, and of how many."""


@dataclass(frozen=True)
class RunEntry:
    """One run in a list, from its `run.json` alone."""

    path: Path
    run_id: str
    project: str
    status: str
    """As of now: a run that claims to be running, and is not, has `crashed`; `unknown` where neither
    `run.json` nor the process that owns the run tells."""
    start_time: str | None
    end_time: str | None
    duration_s: float | None
    tasks_submitted: int | None
    tasks_completed: int | None
    tasks_failed: int | None
    size_bytes: int | None
    """None unless asked for."""
    problem: str | None = None
    """What is wrong with `run.json`."""
    lines_lost: int | None = None
    """Lines of the record that are known to be lost; None where no loss is known."""
    to_complete: bool = False
    """Whether the run has ended and is not in its final form yet: of several processes' tasks only one's are
    counted."""


@dataclass(frozen=True)
class PastRun:
    """One run of a history."""

    entry: RunEntry
    info: RunInfo | None
    """`run.json` as it stands; None where it cannot be read."""
    headline: Headline | None
    """What `summary.json` says; None where there is none, as of a run that was killed or is very large."""


def list_runs(
    runs_dir: Path, *, sizes: bool = False, observer: Observer | None = None, progress: Progress | None = None
) -> list[RunEntry]:
    """The runs of a folder, the newest first by their start time; none where the folder is missing.

    A look at each run's `run.json`, which is read where it changed since the last time (see
    `store/index.py`); `sizes` adds a walk through each. A run whose `run.json` cannot be read is listed with
    what its name says, and the problem. `progress` is told how many runs were looked at, and of how many.
    """
    runs = past_runs(runs_dir, headlines=False, sizes=sizes, observer=observer, progress=progress)
    return [run.entry for run in runs]


def past_runs(
    runs_dir: Path,
    *,
    narrow: Callable[[list[Path]], list[Path]] | None = None,
    completed: bool = False,
    choose: Callable[[list[RunEntry]], list[RunEntry]] = lambda entries: entries,
    headlines: bool = True,
    sizes: bool = False,
    task: str | None = None,
    count: CountHeadline | None = None,
    cost_of: CostOf | None = None,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> list[PastRun]:
    """The runs of a folder, each with its headline numbers if `headlines` are wanted, from one look at all of
    them.

    `narrow` is given the paths of all runs and gives those to look at. With `completed`, runs that did not
    complete are left out before anything but their `run.json` is read. `choose` is given the entries of the
    rest, the newest first, and gives those that are wanted; it may raise. `task` is the name of a task whose
    numbers are wanted whatever the number of names in a run. `count` gives the headline of a run that ended
    and has no summary, `cost_of` the cost of one that ended, where that is wanted. Summaries of runs that are
    not chosen are not opened. `progress` is told how many runs were looked at, and of how many: of all for
    their documents, then of those chosen for their headlines.
    """
    observer, every = observer or here(), run_paths(runs_dir)
    paths = every if narrow is None else narrow(every)
    with RunIndex(runs_dir, every) as index:
        reads = dict(zip(paths, index.infos(_watched(paths, progress)), strict=True))
        if completed:
            reads = {
                path: one for path, one in reads.items() if one.value and one.value.status == "completed"
            }
        entries = (_entry(path, read, sizes, observer, index.lines_lost) for path, read in reads.items())
        newest = sorted(entries, key=lambda one: (unix_time(one.start_time) or 0.0, one.run_id), reverse=True)
        chosen = choose(newest)
        if headlines:
            fetch_documents([entry.path for entry in chosen], layout.SUMMARY)
        wanted = _watched([entry.path for entry in chosen], progress)
        found = index.headlines(wanted, task, count, cost_of) if headlines else [None] * len(chosen)
        return [
            PastRun(entry, reads[entry.path].value, one) for entry, one in zip(chosen, found, strict=True)
        ]


def _watched(paths: Sequence[Path], progress: Progress | None) -> Iterable[Path]:
    """The paths, each told of when it is its turn."""
    if progress is None:
        yield from paths
        return
    for number, path in enumerate(paths):
        progress(number, len(paths))
        yield path


def run_paths(runs_dir: Path) -> list[Path]:
    """The run directories of a folder, in no order. A link to a run beside it counts once, as the run."""
    try:
        with os.scandir(runs_dir) as found:
            entries = [entry for entry in found if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:
        return []
    paths = [runs_dir / entry.name for entry in entries if not entry.is_symlink()]
    linked = [runs_dir / entry.name for entry in entries if entry.is_symlink()]
    runs = [path for path in paths if is_run(path)]
    known = {path.resolve() for path in runs} if linked else set()
    return runs + [path for path in linked if path.resolve() not in known and is_run(path)]


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory: by its name, or because it holds `run.json`."""
    return layout.is_run_id(path.name) or (path / layout.RUN).is_file()


def start_of(run_id: str) -> str | None:
    """The start time that a run's name tells, to the second; None if the name is no run id."""
    if not layout.is_run_id(run_id):
        return None
    try:
        return f"{datetime.strptime(run_id[4:20], '%Y%m%dT%H%M%SZ'):%Y-%m-%dT%H:%M:%S.%fZ}"
    except ValueError:
        return None


def project_of(run_id: str) -> str:
    """The project that a run's name tells; the whole name if it is no run id."""
    return run_id[21:-9] if layout.is_run_id(run_id) else run_id


def size_of(path: Path) -> int:
    """Bytes of all files in a run directory, links not followed; what vanishes meanwhile counts as
    nothing.
    """
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - a path a file is slow
            except OSError:
                continue
    return total


def plan_gc(
    entries: Iterable[RunEntry], older_than_s: float | None, max_bytes: int | None, now: float
) -> list[RunEntry]:
    """Which runs to remove, the oldest first; never one that runs.

    All that ended longer than `older_than_s` ago (or, where the end is unknown, started), then the oldest
    until the rest takes `max_bytes` at most. Runs that live count in that total. A run whose time is unknown
    is kept by age, and goes first for its size. `now` is Unix seconds.
    """
    ordered = sorted(entries, key=lambda entry: (unix_time(entry.start_time) or 0.0, entry.run_id))
    if max_bytes is not None and any(entry.size_bytes is None for entry in ordered):
        raise ValueError("a limit in bytes needs the runs' sizes: list_runs(…, sizes=True)")
    ended = [entry for entry in ordered if entry.status != "running"]
    chosen = {entry.path for entry in ended if older_than_s is not None and _age_s(entry, now) > older_than_s}
    if max_bytes is not None:
        total = sum(entry.size_bytes or 0 for entry in ordered if entry.path not in chosen)
        for entry in ended:
            if total > max_bytes and entry.path not in chosen:
                chosen.add(entry.path)
                total -= entry.size_bytes or 0
    return [entry for entry in ended if entry.path in chosen]


def _age_s(entry: RunEntry, now: float) -> float:
    moment = unix_time(entry.end_time) or unix_time(entry.start_time)
    return -1.0 if moment is None else now - moment


def remove_run(entry: RunEntry, *, observer: Observer | None = None) -> None:
    """Delete a run's directory, after a last look: a run that lives, a link, or another folder is a
    `UsageError`.

    The directory first gets a hidden name, so that nobody sees half a run; see `finish_removals`.
    """
    path, observer = entry.path, observer or here()
    if path.is_symlink():
        raise UsageError(f"{path} is a link and was not removed; remove the run it points to")
    if not path.is_dir() or not is_run(path):
        raise UsageError(f"{path} is not a run directory and was not removed")
    alive = _alive(path, observer)
    if alive is not None:
        raise UsageError(f"{path} was not removed: {alive}")
    hidden = path.with_name(f"{_REMOVED}{path.name}")
    path.rename(hidden)
    _delete(hidden)


def finish_removals(runs_dir: Path) -> int:
    """Delete what interrupted removals left behind; gives how many there were."""
    left = [path for path in runs_dir.glob(f"{_REMOVED}run-*") if path.is_dir() and not path.is_symlink()]
    for path in left:
        _delete(path)
    return len(left)


def _delete(folder: Path) -> None:
    from shutil import rmtree  # brings every compression module along

    rmtree(folder)


def _alive(path: Path, observer: Observer) -> str | None:
    info = read_document(path / layout.RUN, RunInfo).value
    if info is not None and observer.status(run_as_it_ended(path, info, observer)) == "running":
        return f"it is running (process {info.pid} on {info.host})"
    for folder, name in writer_folders(path):
        writer = read_writer(folder, name).value
        if writer is not None and observer.writer_alive(writer):
            return f"process {writer.pid} on {writer.host} still writes into it"
    if info is None and observer.now - path.stat().st_mtime < StoreLimits.heartbeat_timeout_s:
        return "it may be starting: it has no run.json, and was changed within the last minute"
    return None


def infer_run(path: Path, run_id: str, writers: Iterable[WriterInfo], observer: Observer) -> RunInfo:
    """What name and writers tell of a run whose `run.json` is missing or unreadable, without its tasks.

    `unknown` where the process that owns the run left nothing, or did not say how the run ended. It started
    when that process began to record: a run's name is no measurement.
    """
    info = RunInfo(run_id=run_id, project=project_of(run_id), status="unknown", start_time="")
    owner = next((writer for writer in writers if writer.owner), None)
    if owner is None:
        return info
    info.start_time = owner.started if unix_time(owner.started) is not None else ""
    info.host, info.pid, info.pid_start = owner.host, owner.pid, owner.pid_start
    info.heartbeat, info.writer = owner.heartbeat or None, owner.writer
    info.status = "running"  # for its page and the observer to hold against the machine
    ended = run_as_it_ended(path, info, observer)
    if ended.status == "running" and owner.closed:
        ended.status = "unknown"
    return ended


def missing_document(path: Path, problem: str | None) -> str:
    """What is wrong with `run.json`, and why nothing else tells how the run ended where that is known."""
    refused = (
        "; the disk had no room even for the page of 4 KiB that says how a run ended: its status and what it "
        "lost are unknown"
        if refused_from_the_start(path)
        else ""
    )
    return f"{problem or layout.RUN}{refused}"


def _entry(
    path: Path, read: Document[RunInfo], sizes: bool, observer: Observer, count_lost: Callable[[Path], int]
) -> RunEntry:
    noted = read.value
    info = (
        infer_run(path, path.name, read_writers(path)[0], observer)
        if noted is None
        else run_as_it_ended(path, noted, observer)
    )
    status = observer.status(info)
    lost = info.lines_lost if isinstance(info.lines_lost, int) else 0
    unfinished = noted is None or noted.status not in layout.ENDED or noted.to_complete is True
    if unfinished and status in layout.ENDED and tells_of_loss(path):
        lost = count_lost(path)
    return RunEntry(
        path,
        info.run_id,
        info.project,
        status,
        _start(info),
        info.end_time,
        info.duration_s,
        None if noted is None else info.tasks_submitted,
        None if noted is None else info.tasks_completed,
        None if noted is None else info.tasks_failed,
        size_of(path) if sizes else None,
        read.problem if noted is not None else missing_document(path, read.problem),
        lost or None,
        noted is not None and (info.to_complete is True or info.status != noted.status),
    )


def _start(info: RunInfo) -> str | None:
    return info.start_time if unix_time(info.start_time) is not None else start_of(info.run_id)
