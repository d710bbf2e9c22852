"""Checks that a run is complete and unchanged, and shows what is lost.

    flightlog verify latest
    flightlog verify run-20260520T035200Z-demo-a1b2c3d4
    flightlog verify latest --repair

It compares every file with the checksums that were written when the run closed, counts the headline numbers
in `summary.json` again and names those that differ (`tasks.completed is 4, counted 5`), looks for gaps in the
numbers that every writer gave its lines, and compares the Parquet files of a compacted run with the checksums
that were noted when they were written. The exit code is 1 if anything is wrong: a file that changed, a line
that is lost, torn or foreign, a damaged Parquet file, a run that was killed before it closed. Lost lines are
shown with their number and the reason: `1,200 of 60,973 read, 59,773 lost: no space left on device`. "None
lost" is shown only where that is known; where a process left no count of its lines, it is unknown. For a run
that is still running, the lines so far are checked.

`--repair` first rebuilds what can be rebuilt from the lines: `summary.json`, damaged Parquet files and the
summary kept beside them; a run that ended without being closed is closed. It lists what it did. The lines
themselves are never changed: a line that is lost or a file of lines that changed cannot be repaired, and is
named. The index of a folder of runs needs no repair: one that is damaged is not used, and replaced by the
next `flightlog list`.

| exit code | means |
|---|---|
| 0 | nothing is wrong; with `--repair`, nothing is wrong any more |
| 1 | something is wrong; with `--repair`, something is that cannot be repaired |
| 2 | there is no such run, or it cannot be repaired: it is running, or a copy of a remote one |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flightlog.cli.options import RunRef, RunsDir, flag, open_named
from flightlog.cli.output import note, put, wants_color
from flightlog.core.errors import UsageError
from flightlog.core.text import first_line

if TYPE_CHECKING:
    from flightlog.store.run import Run

DOING = "checking the run"


def verify(
    run: RunRef = None,
    repair: bool = flag("--repair", "Rebuild damaged files that can be rebuilt from the recorded lines."),
    runs_dir: RunsDir = None,
) -> None:
    """Check that a run is complete and undamaged.

    The exit code is 1 if anything is wrong, after repairing where --repair is given.

    Example: flightlog verify latest
    """
    from flightlog.analyze import verify as check
    from flightlog.show.outcomes import verification_text

    opened = open_named(run, runs_dir=runs_dir)
    if repair:
        opened = _repaired(opened)
    result = check.verify(opened)
    put(verification_text(result, color=wants_color()))
    if not result.ok:
        if repair:
            note("what is wrong above cannot be repaired: it is not known what was recorded there")
        raise typer.Exit(1)


def _repaired(run: Run) -> Run:
    import duckdb

    from flightlog.analyze.verify import repair
    from flightlog.core.settings import read_settings
    from flightlog.store.completing import complete
    from flightlog.store.run import Run
    from flightlog.store.runs_folder import is_copy

    if is_copy(run.path):
        raise UsageError(f"{run.run_id} is at an address, and runs there are only read")
    try:
        done = repair(run, lambda path: complete(path, read_settings(), snapshot=True))
    except duckdb.Error as error:
        raise UsageError(f"{run.path} cannot be repaired: {first_line(str(error))}") from error
    for sentence in done or ("there is nothing to repair",):
        put(f"{run.run_id}: {sentence}\n")
    return Run(run.path, note=note)
