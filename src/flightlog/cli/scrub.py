"""Removes secrets from runs that were recorded earlier.

    flightlog scrub latest --dry-run
    flightlog scrub latest
    flightlog scrub run-20260520T035200Z-demo-a1b2c3d4 --pattern 'PATIENT-[0-9]+' --remote

Every text file of a run that has ended is rewritten with the redactor that new runs go through: lines,
documents, the manifest, bundles of out-of-memory errors, logs of followers. Lines keep their number and their
order. The summary, the snapshots, the checksums and the index of runs are made again, so that `flightlog
verify` finds nothing wrong. The output names the files, the number of texts and the kinds of secrets, never
the secrets. A run that is still running is refused.

Each file is replaced in one step: if the command is killed, every file is either old or new, and running the
command again continues.

`--pattern` adds regular expressions to those in `FLIGHTLOG_REDACT`; it may be given several times. In a
pattern with a group, only the text of the group is a secret.

`--remote` sends the cleaned run again to every place that it was copied to from here (`flightlog sync`), and
removes the objects that the copy no longer needs. Remove the rest yourself: versions of objects and backups
that the storage keeps, copies that other hosts sent, local copies of remote runs (`FLIGHTLOG_REMOTE_CACHE`),
a history (`flightlog compact --history`) and exports.

If the name of the folder, which comes from the project, holds a secret, a message says so; the folder is not
renamed. Files that hold no text, such as an allocator's snapshot, are not searched, but named.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightlog.cli.options import RunRefs, RunsDir, changeable_runs_folder, flag, option
from flightlog.cli.output import note, put
from flightlog.core.errors import FlightlogError, UsageError

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.scrub import Scrubbed

DOING = "looking for secrets"


def scrub(
    runs: RunRefs = None,
    dry_run: bool = flag("--dry-run", "Dry run: show what would be removed, and change nothing."),
    pattern: list[str] | None = option(
        "REGEX", "Also remove text that matches this pattern. May be given several times."
    ),
    remote: bool = flag("--remote", "Also replace the remote copies of these runs."),
    runs_dir: RunsDir = None,
) -> None:
    """Remove secrets from recorded runs.

    Example: flightlog scrub latest --dry-run
    """
    from flightlog.core.patterns import pattern_problem
    from flightlog.core.redaction import own_patterns
    from flightlog.core.settings import redact_patterns
    from flightlog.session.secrets import without_secrets
    from flightlog.store import layout
    from flightlog.store.run import find_run
    from flightlog.store.scrub import scrub_run

    for number, given in enumerate(pattern or (), 1):
        problem = pattern_problem(given)
        if problem is not None:
            raise UsageError(f"pattern {number} {problem}")
    own_patterns([*redact_patterns(), *(pattern or ())])
    folder = changeable_runs_folder(runs_dir)
    failed = False
    for path in [find_run(name, runs_dir=folder).absolute() for name in runs or ["latest"]]:
        found = scrub_run(path, dry_run=dry_run, special={layout.MANIFEST: without_secrets}, rebuild=_rebuild)
        _say(found, dry_run)
        if remote:
            failed = not _send(path, dry_run) or failed
    if failed:
        raise typer.Exit(1)


def _say(found: Scrubbed, dry_run: bool) -> None:
    from flightlog.core.text import plural
    from flightlog.show.terminal import clean

    texts = sum(file.texts for file in found.files)
    for file in found.files:
        put(f"  {clean(file.path)}: {plural(file.texts, 'text')} ({', '.join(file.kinds)})\n")
    what = f"{plural(texts, 'text')} in {plural(len(found.files), 'file')}" if texts else "nothing"
    verb = "would be" if dry_run else "was" if texts < 2 else "were"
    put(f"{clean(found.run_id)}: {what} {verb} cleaned\n")
    for name in found.unread:
        note(f"{clean(name)} holds no text, and was not searched")
    if found.folder_kind is not None:
        secret = f"the folder's name holds a secret ({found.folder_kind})"
        note(f"{secret}: rename it, and what names it elsewhere")


def _rebuild(run: Run) -> Iterable[str]:
    """The summary and the snapshots, where there are any; gives the files that checksums are of."""
    from flightlog.analyze.report.report import keep_report
    from flightlog.store import layout
    from flightlog.store.documents import replace_bytes
    from flightlog.store.headline import headline_bytes, headline_of
    from flightlog.store.tables.parquet import snapshot_run

    made = []
    if (run.path / layout.SUMMARY).exists():
        replace_bytes(run.path / layout.SUMMARY, headline_bytes(headline_of(run)), durable=True)
        made.append(layout.SUMMARY)
    if (run.path / layout.PARQUET).is_dir():
        snapshot_run(run)
        keep_report(run)
    return made


def _send(path: Path, dry_run: bool) -> bool:
    """Replace the copies of a run that were sent from here; whether that was done."""
    from flightlog.show.outcomes import synced_text
    from flightlog.store.remote.copies import RemoteCopies
    from flightlog.store.remote.state import list_files, name_of, sole_uploader, states_of
    from flightlog.store.remote.upload import Uploader, sync_with_patience

    done = True
    for state in states_of(path):
        if dry_run:
            put(f"  {state.address}: all files would be sent again\n")
            continue
        try:
            with sole_uploader(path) as other:
                if other is not None:
                    raise UsageError(f"it is being copied by {other}")
                remote = RemoteCopies.open(state.address)
                uploader = Uploader(path, remote)
                put(synced_text(sync_with_patience(uploader, again=[file.path for file in list_files(path)])))
            others = {one.host for one in remote.notes(name_of(path)) if one.uploader != uploader.uploader}
            for host in sorted(others):
                note(f"{state.address} also holds what {host} sent: scrub it there")
        except (FlightlogError, OSError) as error:
            note(f"{state.address}: {error}")
            done = False
    return done
