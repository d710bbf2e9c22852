"""Checks that a run is as it was recorded, and says what is lost.

    flightlog verify latest
    flightlog verify run-20260520T035200Z-demo-a1b2c3d4

It compares every file with the checksums that were written when the run closed, computes `summary.json` again and
compares it byte for byte, looks for gaps in the numbers that every writer gave its lines, and compares the Parquet files
of a compacted run with the checksums that were noted when they were written. The exit code is 1 if anything is wrong: a
file that changed, a line that is lost, torn or foreign, a damaged Parquet file, a run that was killed before it closed.
Lost lines are told with their number and the reason: `1,200 of 60,973 read, 59,773 lost: no space left on device`. "None lost"
is said only where that is known; where a process left no count of its lines, it is unknown.
Of a run that is still running, the lines so far are checked.
"""

from __future__ import annotations

import typer

from flightlog.cli.options import RunRef, RunsDir
from flightlog.cli.output import note, put, wants_color

DOING = "checking the run"


def verify(run: RunRef = None, runs_dir: RunsDir = None) -> None:
    """Check that a run is as it was recorded.

    The exit code is 1 if anything is wrong.

    Example: flightlog verify latest
    """
    from flightlog.analyze import verify as check
    from flightlog.show.verification import verification_text
    from flightlog.store.run import open_run

    result = check.verify(open_run(run or "latest", runs_dir=runs_dir, note=note))
    put(verification_text(result, color=wants_color()))
    if not result.ok:
        raise typer.Exit(1)
