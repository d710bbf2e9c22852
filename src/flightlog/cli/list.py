"""Lists the runs of a folder, the newest first.

    flightlog list
    flightlog list --project demo --status failed
    flightlog list --format json

`completed, 3,121 lost` means that so many lines of the recording are lost, for example on a full disk: the
number that `flightlog verify` finds. `flightlog report` says why.

A run that is marked as running but whose process is gone is listed as `crashed`. Its duration and its tasks
are lower bounds, as of its last heartbeat: `≥ 35 of ≥ 131`. A report reads the events, and has the exact
numbers. The tasks of another user's run that ended, and that its user has not read yet, are lower bounds,
too. In a narrow terminal columns are left out, then run ids are cut in the middle, so that a run is one line;
the last eight digits of an id identify the run, too. In a pipe nothing is cut. A run whose `run.json` cannot
be read is listed with what its folder's name and its processes tell, and the reason below; its status is
`unknown` if it left nothing else, for example where the disk was full when it started.

The JSON is a list of objects with `run_id`, `project`, `status`, `start_time`, `end_time`, `duration_s`,
`tasks_submitted`, `tasks_completed`, `tasks_failed`, `lines_lost`, `path` and `problem`; unknown values are
null, and so is `lines_lost` where no loss is known. The numbers of a run that has no `end_time` are those of
its last heartbeat.
"""

from __future__ import annotations

from pathlib import Path

from flightlog.cli.limits import CliLimits
from flightlog.cli.options import AnyFormat, RunsDir, option, readable_runs_folder
from flightlog.cli.output import columns, json_text, note, put, wants_color
from flightlog.cli.progress import progress
from flightlog.core.errors import UsageError
from flightlog.store.tables.connection import path_text

DOING = "listing runs"


def list_(
    runs_dir: RunsDir = None,
    project: str | None = option("P", "Only runs of this project."),
    status: str | None = option("S", "Only running, completed, failed, interrupted or crashed runs."),
    limit: int | None = option(
        "N", f"Only the newest N runs. Default: {CliLimits.max_listed_runs} in text, all in JSON", min=0
    ),
    format_: AnyFormat = "text",
) -> None:
    """List runs, the newest first.

    Example: flightlog list --project demo --limit 5
    """
    from flightlog.show.runs import runs_text
    from flightlog.store import catalogue, layout
    from flightlog.store.runs_folder import place

    statuses = {"running", "unknown", *layout.ENDED}
    if status is not None and status not in statuses:
        raise UsageError(f"status {status!r} is none of {', '.join(sorted(statuses))}")
    folder = readable_runs_folder(runs_dir)
    with progress("reading run") as tell:
        every = catalogue.list_runs(folder, progress=tell)
    if _complete([entry.path for entry in every if entry.to_complete]):
        every = catalogue.list_runs(folder)
    entries = [one for one in every if project in {None, one.project} and status in {None, one.status}]
    if format_ == "json":
        put(json_text([_object(entry) for entry in entries[:limit]]))
        return
    shown = entries[: CliLimits.max_listed_runs if limit is None else limit]
    put(runs_text(shown, width=columns(), color=wants_color()))
    if not entries:
        note(
            f"no runs in {place(folder)}" if project is status is None else f"no such runs in {place(folder)}"
        )
    else:
        _note_problems([f"{path_text(entry.path.name)}: {entry.problem}" for entry in shown if entry.problem])
        _note_copies([entry.path for entry in shown if entry.status != "running"])
    if limit is None and len(entries) > len(shown):
        older = len(entries) - len(shown)
        note(f"{older:,} older {'run is' if older == 1 else 'runs are'} not shown; see --limit")


def _note_problems(problems: list[str]) -> None:
    """Say what is wrong with the documents of runs, of the first few one by one."""
    for problem in problems[: CliLimits.max_listed_problems]:
        note(problem)
    if len(problems) > CliLimits.max_listed_problems:
        left = len(problems) - CliLimits.max_listed_problems
        note(f"and {left:,} more with such a problem; --format json has all")


def _complete(paths: list[Path]) -> bool:
    """Complete runs that ended and were not completed, the newest first; whether any was."""
    from flightlog.store.completing import complete_ended

    done = False
    with progress("completing run") as tell:
        for number, path in enumerate(paths[: CliLimits.max_completed_runs], 1):
            tell(number, len(paths))
            done = complete_ended(path, wait_s=0) or done  # those that others complete come later
    return done


def _note_copies(paths: list[Path]) -> None:
    """Say where runs should have been copied to and were not, at least not wholly."""
    from flightlog.store.remote.state import unfinished_copies

    lacking = sum(any(copy.state != "copying" for copy in unfinished_copies(path)) for path in paths)
    if lacking:
        runs, copies = ("run here has a copy", "is") if lacking == 1 else ("runs here have copies", "are")
        note(f"{lacking:,} {runs} elsewhere that {copies} not whole; see `flightlog sync --status`")


def _object(entry: object) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(entry, enc_hook=path_text)
    found.pop("size_bytes")
    found.pop("to_complete")
    return found
