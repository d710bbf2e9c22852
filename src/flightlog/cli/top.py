"""Shows a run as it happens, in the terminal: progress, workers, machines, GPUs, failures and the slowest
tasks.

    flightlog top                                  # the run that is running, or else the latest
    flightlog top run-20260520T035200Z-demo-a1b2c3d4 --interval 5
    flightlog top --once                           # one frame as text, for a log or a mail
    ssh cluster flightlog top --once --runs-dir /scratch/runs

It reads the run's files and nothing else: the run need not know of it, may have been started before, by any
engine, on any machine that shares the folder, and is not slowed down by it. An address such as
`s3://bucket/runs` works as well. It needs the extra `tui`; `--once` needs nothing. Where there is no
terminal, or one that can only print (`TERM=dumb`), one frame is printed.

The keys are listed at the foot of the view, all of them under `?`; [the live view](../top.md) says what each
pane shows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.cli.options import RunsDir, flag, option, readable_runs_folder, run_argument
from flightlog.cli.output import draws_braille, is_terminal, note, put_text, text_options
from flightlog.cli.progress import end_progress
from flightlog.core.errors import MissingExtra, RunNotFound

if TYPE_CHECKING:
    from flightlog.analyze.live.follow import FollowedRun

DOING = "reading the run"


def top(
    run: str | None = run_argument(
        "'latest', a run id, a unique prefix, a path or an address. Default: the newest running run,"
        " or else the latest"
    ),
    runs_dir: RunsDir = None,
    once: bool = flag("--once", "Print the view once as text, and exit."),
    interval: float = option("S", "Seconds between two refreshes.", min=0.1, max=3600.0, default=1.0),
) -> None:
    """Watch a run in the terminal.

    Example: flightlog top latest --interval 2
    """
    path = _chosen(run, runs_dir)
    if not once and (why := _why_no_view()):
        note(f"{why}: one frame is printed, as with --once")
        once = True
    if once:
        from flightlog.show.live import live_text

        put_text(live_text(_followed(path).update(), **text_options()))
        return
    try:
        from flightlog.tui.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise MissingExtra(
            "flightlog top needs Textual, which is not installed here: pip install 'flightlog[tui]'; "
            "--once prints one frame without it"
        ) from error
    from flightlog.store.catalogue import list_runs

    end_progress()  # the terminal is the view's now
    TopApp(
        path,
        open_live=_followed,
        runs=lambda: list_runs(path.parent),
        interval_s=interval,
        ascii_only=not draws_braille(),
    ).run()


def _why_no_view() -> str | None:
    """Why a view cannot be drawn here; None where it can."""
    if not all(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))):  # Textual draws on standard error
        return "this is no terminal"
    if os.environ.get("TERM") == "dumb":
        return "this terminal can only print (TERM is dumb)"
    return None


def _followed(path: Path) -> FollowedRun:
    from flightlog.analyze.live.follow import FollowedRun
    from flightlog.store.earlier_runs import EarlierRuns
    from flightlog.store.run import Run

    return FollowedRun(path, history=EarlierRuns(Run(path)))


def _chosen(named: str | None, runs_dir: str | None) -> Path:
    """The run that is named; else the newest of those that are running, or of all."""
    from flightlog.store.catalogue import list_runs
    from flightlog.store.run import find_run
    from flightlog.store.runs_folder import place

    if named is not None:
        return find_run(named, runs_dir=runs_dir, note=note)
    folder = readable_runs_folder(runs_dir)
    entries = list_runs(folder)
    if not entries:
        raise RunNotFound(f"there are no runs in {place(folder)}; record one, or name another folder of runs")
    return next((entry for entry in entries if entry.status == "running"), entries[0]).path.absolute()
