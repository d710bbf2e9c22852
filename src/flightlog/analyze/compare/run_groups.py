"""Runs and groups of runs by how people name them: `latest`, an id, a path, `project:last5`, or several with
commas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import islice
from pathlib import Path

from msgspec import Struct

from flightlog.core.errors import RunNotFound, UsageError
from flightlog.store.catalogue import RunEntry, list_runs
from flightlog.store.completing import open_run
from flightlog.store.earlier_runs import check_project
from flightlog.store.liveness import Observer
from flightlog.store.readable import Readable
from flightlog.store.run import Run
from flightlog.store.runs_folder import folder_of_runs, place

Reference = str | os.PathLike[str] | Readable
"""One run, or, as a text, a group."""

_OF_PROJECT = re.compile(r"(?P<project>.+):(?P<which>latest|last(?P<count>\d{0,6}))", re.DOTALL)


class RunGroup(Struct, frozen=True):
    """The runs that a reference means, the newest first; never none."""

    asked: str
    runs: tuple[Run, ...]


class _Folder:
    """A folder of runs, listed once and when it is first needed."""

    def __init__(self, path: Path, observer: Observer | None) -> None:
        self.path = path
        self.observer = observer

    @cached_property
    def entries(self) -> list[RunEntry]:
        return list_runs(self.path, observer=self.observer)

    @property
    def projects(self) -> list[str]:
        return list(dict.fromkeys(entry.project for entry in self.entries))

    def open(self, ref: str | os.PathLike[str]) -> Run:
        return open_run(ref, runs_dir=self.path, observer=self.observer)


def find_groups(
    before: Reference | Iterable[Reference] | None,
    after: Reference | Iterable[Reference] | None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
) -> tuple[RunGroup, RunGroup]:
    """The two sides of a comparison.

    Without both, the last two runs of the latest run's project; without `after`, the latest run of the
    project of `before`. `project:last5` before means the five before those of the other side, so that no run
    is compared with itself; runs that are still running are left out of such a group. Raises `UsageError` for
    a run that stands on both sides of a group, or is there in two copies, and whatever `open_run` raises.
    """
    folder = _Folder(folder_of_runs(runs_dir), observer)
    if before is None and after is not None:
        raise UsageError("name the runs to compare with before the others, as in: compare BEFORE AFTER")
    if before is None:
        newest, older = _last_two(folder)
        pair = RunGroup(older.run_id, (older,)), RunGroup(newest.run_id, (newest,))
    elif after is None:
        asked = before if isinstance(before, str | os.PathLike | Readable) else list(before)
        old = _group(asked, folder, ())
        project = old.runs[0].info.project
        new = _of_project(f"{project}:latest", project, 1, folder, (), live=True)
        if len(old.runs) > 1:
            old = _group(asked, folder, {new.runs[0].path.resolve()})
        if new.runs[0].path in {run.path for run in old.runs}:
            raise UsageError(
                f"{new.runs[0].run_id} is the latest run of {project!r}: name another one to compare it with"
            )
        pair = old, new
    else:
        new = _group(after, folder, ())
        pair = _group(before, folder, {run.path.resolve() for run in new.runs}), new
    _check(*pair)
    return pair


def _last_two(folder: _Folder) -> tuple[Run, Run]:
    entries = folder.entries
    project = check_project(None, folder.projects, folder.path)
    same = [entry for entry in entries if entry.project == project]
    if len(same) < 2:
        raise RunNotFound(
            f"{entries[0].run_id} is the only run of {project!r} in {place(folder.path)}; name two runs to "
            "compare"
        )
    return folder.open(same[0].path), folder.open(same[1].path)


def _group(asked: Reference | Iterable[Reference], folder: _Folder, without: Collection[Path]) -> RunGroup:
    if isinstance(asked, Readable):
        opened = asked.opened()
        return RunGroup(opened.run_id, (opened,))
    if isinstance(asked, str):
        return RunGroup(asked, _runs(asked, folder, without))
    if isinstance(asked, os.PathLike):
        return RunGroup(str(asked), (folder.open(asked),))
    groups = [_group(one, folder, without) for one in asked]
    if not groups:
        raise UsageError("a side of a comparison needs a run")
    return RunGroup(
        ", ".join(group.asked for group in groups), _sorted(run for group in groups for run in group.runs)
    )


def _runs(asked: str, folder: _Folder, without: Collection[Path]) -> tuple[Run, ...]:
    parts = [part.strip() for part in asked.split(",")] if not Path(asked).is_dir() else [asked]
    if not all(parts):
        raise UsageError(f"{asked!r} names no run between two commas")
    found: list[Run] = []
    for part in parts:
        of_project = None if "/" in part else _OF_PROJECT.fullmatch(part)
        if of_project is None:
            found.append(folder.open(part))
            continue
        count = int(of_project["count"] or 1)
        if not count:
            raise UsageError(f"{part!r} asks for no run; the last five are {of_project['project']}:last5")
        live = of_project["which"] in {"latest", "last"}
        found += _of_project(part, of_project["project"], count, folder, without, live=live).runs
    return _sorted(found)


def _of_project(
    asked: str, project: str, count: int, folder: _Folder, without: Collection[Path], *, live: bool
) -> RunGroup:
    check_project(project, folder.projects, folder.path)
    wanted = (
        entry
        for entry in folder.entries
        if entry.project == project
        and (live or entry.status != "running")
        and entry.path.resolve() not in without
    )
    entries = list(islice(wanted, count))
    if not entries:
        raise RunNotFound(
            f"{asked!r} means no run: {project!r} has no other runs in {place(folder.path)} that have ended"
        )
    return RunGroup(asked, tuple(folder.open(entry.path) for entry in entries))


def _sorted(runs: Iterable[Run]) -> tuple[Run, ...]:
    once = {run.path.resolve(): run for run in runs}
    return tuple(sorted(once.values(), key=lambda run: (run.info.start_time, run.run_id), reverse=True))


def _check(before: RunGroup, after: RunGroup) -> None:
    paths: dict[str, Path] = {}
    for run in (*before.runs, *after.runs):
        known = paths.setdefault(run.run_id, run.path.resolve())
        if known != run.path.resolve():
            raise UsageError(
                f"{known} and {run.path} are copies of one run, {run.run_id}: a run is not compared with "
                "itself"
            )
    both = {run.run_id for run in before.runs} & {run.run_id for run in after.runs}
    if both:
        raise UsageError(f"{min(both)} stands on both sides: a run is not compared with itself")
