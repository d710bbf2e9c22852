"""Removes old runs, by age, by size or both; never one that is running.

    flightlog gc --older-than 30d --dry-run
    flightlog gc --older-than 30d --max-bytes 10GB

Runs that ended longer ago than `--older-than` are removed first, then the oldest ones until the rest takes no
more than `--max-bytes`. Ages are written as `45s`, `90m`, `12h`, `30d` or `1w`; sizes as bytes, or with a
unit: `10GB` counts in 1000s, `10GiB` and `10G` in 1024s.

A run that should be copied elsewhere (`flightlog sync`) and has no complete copy yet is kept, unless
`--force` is given.

`--dry-run` shows what would be removed, and removes nothing. A run that could not be removed, or is kept for
its copy, is named on standard error, and the exit code is 1.
"""

from __future__ import annotations

import time
from pathlib import Path

import typer

from flightlog.cli.options import RunsDir, changeable_runs_folder, flag, option, removal_limits
from flightlog.cli.output import note, put
from flightlog.cli.progress import progress
from flightlog.core.errors import FlightlogError, UsageError

DOING = "looking at the runs"


def gc(
    older_than: str | None = option("AGE", "Remove runs that ended longer ago than this, such as 30d."),
    max_bytes: str | None = option("SIZE", "Remove the oldest runs until the rest fits, such as 10GB."),
    force: bool = flag("--force", "Also remove runs that should have been copied elsewhere and are not yet."),
    dry_run: bool = flag("--dry-run", "Dry run: show what would be removed."),
    runs_dir: RunsDir = None,
) -> None:
    """Remove old runs, never one that is running.

    Example: flightlog gc --older-than 30d --max-bytes 10GB --dry-run
    """
    from flightlog.core.text import plural
    from flightlog.core.units import format_bytes
    from flightlog.show.terminal import clean
    from flightlog.store.catalogue import finish_removals, list_runs, plan_gc, remove_run

    age_s, limit = removal_limits(older_than, max_bytes)
    folder = changeable_runs_folder(runs_dir)
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}")
    if not dry_run:
        finish_removals(folder)
    with progress("measuring run") as tell:
        entries = list_runs(folder, sizes=True, progress=tell)
    gone, freed, failed = 0, 0, False
    going = plan_gc(entries, age_s, limit, time.time())
    with progress("removing run") as tell:
        for number, entry in enumerate(going, 1):
            tell(number, len(going))
            if not force and (why := _kept_for(entry.path)):
                note(f"{clean(entry.run_id)} is kept: {why}; --force removes it anyway")
                failed = True
                continue
            if not dry_run:
                try:
                    remove_run(entry)
                except (FlightlogError, OSError) as error:
                    note(str(error))
                    failed = True
                    continue
            gone += 1
            freed += entry.size_bytes or 0
            put(f"{clean(entry.run_id)}  {format_bytes(entry.size_bytes)}\n")
    left = sum(entry.size_bytes or 0 for entry in entries) - freed
    removed = "Would remove" if dry_run else "Removed"
    rest = f"{plural(len(entries) - gone, 'run')}, {format_bytes(left)} left"
    put(f"{removed} {plural(gone, 'run')}, {format_bytes(freed)}; {rest}.\n")
    if failed:
        raise typer.Exit(1)


def _kept_for(run: Path) -> str | None:
    """Why a run should stay for a copy of it; None where it may go."""
    from flightlog.show.outcomes import incomplete_copy_text
    from flightlog.store.remote.state import unfinished_copies

    return next(map(incomplete_copy_text, unfinished_copies(run)), None)
