"""Copies runs to remote storage: S3, Azure Blob Storage, Google Cloud Storage, a folder, or any address
fsspec knows.

    flightlog sync latest --to s3://bucket/runs
    flightlog sync --all
    flightlog sync --status

Without `--to` the address is that of `FLIGHTLOG_RUNS_DIR_REMOTE`; where that is set, every run is copied
while it runs, by a separate process. Only what is new is sent. Every upload is checked by size and checksum,
or read back where the storage has no checksums. A copy can be read at any time, even an interrupted one, and
the next call continues it. After the run has ended, its files are at the address as they are here:
`s3://bucket/runs/<run>/tasks.jsonl`.

`--follow` waits until the run has ended and is copied completely. `--verify` reads every byte of the copy,
and sends again what is missing or damaged; the exit code is 1 if that does not repair it. `--status` needs no
network, and shows the state of the copies that were made from here: `complete`, `behind`, `copying` or
`never`.

Credentials come from the provider's own variables, files and roles, never from the address. If the storage
does not answer, uploads are retried for a minute, or, while a run is recorded, until five minutes after its
end; then the exit code is 1. Nothing is lost: the run is still here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import json_text, note, put, wants_color
from flightlog.cli.progress import progress
from flightlog.core.errors import FlightlogError, RemoteError, UsageError

if TYPE_CHECKING:
    from flightlog.store.remote.copies import RemoteCopies

DOING = "looking at what to copy"


def sync(
    runs: options.RunRefs = None,
    every: options.EveryRun = False,
    to: str | None = option(
        "ADDRESS", "Where to copy to, such as s3://bucket/runs. Default: FLIGHTLOG_RUNS_DIR_REMOTE"
    ),
    follow: bool = flag("--follow", "Keep copying until the run has ended and is copied completely."),
    verify: bool = flag("--verify", "Read every byte of the copies again, and repair them."),
    status: bool = flag("--status", "Show sync status, without network access."),
    runs_dir: options.RunsDir = None,
    format_: options.AnyFormat = "text",
) -> None:
    """Copy runs to remote storage, only what is new.

    The exit code is 1 if anything could not be copied, or a copy is not as it should be.

    Example: flightlog sync latest --to s3://bucket/runs
    """
    if every and runs:
        raise UsageError("give either --all or runs, not both")
    if sum((follow, verify, status)) > 1:
        raise UsageError("--follow, --verify and --status exclude each other")
    paths = _chosen(runs, every or (status and not runs), runs_dir)
    if follow and len(paths) != 1:
        raise UsageError("--follow takes one run")
    if status:
        _say_status(paths, format_)
        return
    remote = _open(to, paths)
    if _verify(paths, remote, format_) if verify else _copy(paths, remote, follow, format_):
        raise typer.Exit(1)


def _chosen(runs: list[str] | None, every: bool, runs_dir: str | None) -> list[Path]:
    from flightlog.store.catalogue import run_paths
    from flightlog.store.remote.objects import is_address
    from flightlog.store.run import find_run

    if any(is_address(name) for name in runs or ()):
        raise UsageError("runs are copied from a local folder: name a run, and the address with --to")
    if every:
        folder = options.changeable_runs_folder(runs_dir)
        paths = [path.absolute() for path in sorted(run_paths(folder))]
        if not paths:
            note(f"there are no runs in {folder}")
        return paths
    named = [name for name in runs or ["latest"] if "/" not in name]
    folder = options.changeable_runs_folder(runs_dir) if named else Path()
    return [find_run(name, runs_dir=folder).absolute() for name in runs or ["latest"]]


def _open(to: str | None, paths: list[Path]) -> RemoteCopies:
    from flightlog.core.settings import read_settings
    from flightlog.store.remote.copies import RemoteCopies
    from flightlog.store.remote.objects import protocol_of

    address = to or read_settings().remote
    if address is None:
        raise UsageError(
            "name the destination: --to ADDRESS, or FLIGHTLOG_RUNS_DIR_REMOTE; for example s3://bucket/runs"
        )
    remote = RemoteCopies.open(address)
    if protocol_of(remote.address) == "file":
        to_folder = Path(remote.address.removeprefix("file://")).resolve()
        for path in paths:
            if to_folder == path.parent.resolve() or to_folder.is_relative_to(path.resolve()):
                raise UsageError(f"{to_folder} already contains these runs")
    return remote


def _copy(paths: list[Path], remote: RemoteCopies, follow: bool, format_: options.Format) -> bool:
    from flightlog.show.outcomes import synced_text
    from flightlog.store.completing import complete_ended
    from flightlog.store.remote.state import sole_uploader
    from flightlog.store.remote.upload import Uploader, sync_with_patience
    from flightlog.store.remote.upload import follow as follow_run

    failed, results = False, list[object]()
    for number, path in enumerate(paths, 1):
        try:
            with sole_uploader(path) as other:
                if other is not None:
                    note(f"{path.name} is already being copied by {other}")
                    continue
                if not follow:
                    complete_ended(path)
                uploader = Uploader(path, remote)
                with progress("following run" if follow else "copying run") as tell:
                    tell(number, len(paths))
                    synced = follow_run(uploader, on_trouble=note) if follow else sync_with_patience(uploader)
        except (FlightlogError, OSError) as error:
            note(f"{path.name}: {error}")
            failed = True
            if isinstance(error, RemoteError) and error.kind not in {"gone", "changed"}:
                break  # the next run would meet the same
            continue
        results.append(synced)
        if format_ == "text":
            put(synced_text(synced))
    if format_ == "json":
        put(json_text(results))
    return failed


def _verify(paths: list[Path], remote: RemoteCopies, format_: options.Format) -> bool:
    from flightlog.show.outcomes import check_text
    from flightlog.store.liveness import here
    from flightlog.store.remote.copies import check_copy
    from flightlog.store.remote.state import name_of, sole_uploader
    from flightlog.store.remote.upload import Uploader, sync_with_patience

    checks = []
    for number, path in enumerate(paths, 1):
        with progress("reading copy") as tell:
            tell(number, len(paths))
            check = check_copy(path, name_of(path), remote, here())
        if check.problems:
            for problem in check.problems:
                note(f"{path.name}: {problem}; it is sent again")
            with sole_uploader(path) as other:
                if other is None:
                    sync_with_patience(Uploader(path, remote), again=check.broken)
            check = check_copy(path, name_of(path), remote, here())
        checks.append(check)
        if format_ == "text":
            put(check_text(check, color=wants_color()))
    if format_ == "json":
        put(json_text(checks))
    return any(check.problems for check in checks)


def _say_status(paths: list[Path], format_: options.Format) -> None:
    from flightlog.show.outcomes import copies_text
    from flightlog.store.remote.state import copies_of

    copies = [copy for path in paths for copy in copies_of(path)]
    put(json_text(copies) if format_ == "json" else copies_text(copies, color=wants_color()))
