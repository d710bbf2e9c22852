"""Shows what a session would run, where and with what, without running anything.

    flightlog plan
    flightlog plan --target cluster --format json --output plan.json
    flightlog plan --overlay flightlog.advised.yaml
    flightlog plan --check                # what differs from the last run that has a lock
    flightlog plan --check a1b2c3d4       # from this run

The plan holds the engine's options, the resources of each component, how each task is run, what the last five
runs of the project say of its tasks (durations, CPUs, memory), and the expected cost: the target's rates by
the workers by the median duration of those runs, or the reason why it is unknown. Beside each component
stands what the attempts of the past on this target suggest to ask for, or those elsewhere where there are
none; the manifest's own value is the one that counts. `flightlog advise` says more.

`--overlay` lays an overlay over the manifest: one of its own by name, or a file such as `flightlog advise
--apply` writes.

A plan can be kept and shared: texts that come from variables stand in it as `${NAME}`, and secrets that were
written out are redacted. Variables that are not set are noted; where a number or a name needs one, there is
no plan.

A session keeps a lock with each run: hashes of the manifest and of the task functions' sources, versions of
Python and packages, the git commit, image digests. `--check` holds it against now and lists what differs;
functions are looked up in their files and nothing is imported. The exit code is then 0 if nothing differs and
1 if something does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flightlog.cli.options import (
    AnyFormat,
    Format,
    OutputFile,
    RunsDir,
    TargetName,
    flag,
    manifest_option,
    note_unset,
    option,
    problems_noted,
    run_argument,
    runs_folder,
)
from flightlog.cli.output import json_text, put_or_write, wants_color, width
from flightlog.core.errors import UsageError

if TYPE_CHECKING:
    from flightlog.session.manifest import Manifest

DOING = "reading earlier runs"


def plan(
    run: Annotated[
        str | None,
        run_argument(
            "With --check: the run to check against. Default: the last run of the project that has a lock"
        ),
    ] = None,
    manifest: Annotated[Path | None, manifest_option()] = None,
    target: TargetName = None,
    overlay: Annotated[
        str | None,
        option("O", "Overlay to apply: a name in the manifest, or a file. Default: FLIGHTLOG_OVERLAY"),
    ] = None,
    check: Annotated[bool, flag("--check", "Show what differs from the lock of a run.")] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Dry run: print what --output would contain, and write no file.")
    ] = False,
    output: OutputFile = None,
    format_: AnyFormat = Format.text,
    runs_dir: RunsDir = None,
) -> None:
    """Show what would run where, and what it would cost.

    Example: flightlog plan --target cluster
    """
    if run is not None and not check:
        raise UsageError(f"{run!r} names a run, which only --check takes; name a manifest with --manifest")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")
    from flightlog.session.manifest import load_manifest

    with problems_noted():
        found = load_manifest(manifest)
        if check:
            text, differs = _checked(found, run, target, overlay, runs_folder(runs_dir), format_)
        else:
            to_file = output is not None
            text, differs = _planned(found, target, overlay, runs_folder(runs_dir), format_, to_file), False
    put_or_write(text, None if dry_run else output)
    if differs:
        raise typer.Exit(1)


def _planned(
    manifest: Manifest,
    target: str | None,
    overlay: str | None,
    runs_dir: Path,
    format_: Format,
    to_file: bool,
) -> str:
    from flightlog.session.manifest import pick_target
    from flightlog.session.overlay_file import pick_overlay
    from flightlog.session.plan import make_plan, plan_bytes, read_history, read_suggestions
    from flightlog.show.plan import plan_text

    chosen = pick_target(manifest, target)
    manifest = pick_overlay(manifest, chosen, overlay)
    project = manifest.resolved(os.environ, chosen, raw=True).project.name
    history, suggestions = read_history(runs_dir, project), read_suggestions(runs_dir, project, chosen)
    made = make_plan(manifest, chosen, os.environ, history, suggestions)
    note_unset(manifest, chosen)
    if format_ is Format.json:
        return plan_bytes(made).decode()
    return plan_text(made) if to_file else plan_text(made, width=width(), color=wants_color())


def _checked(
    manifest: Manifest,
    ref: str | None,
    target: str | None,
    overlay: str | None,
    runs_dir: Path,
    format_: Format,
) -> tuple[str, bool]:
    from flightlog.record.environment import read_environment
    from flightlog.session.lock import compare_locks, find_lock, relock
    from flightlog.session.manifest import pick_target
    from flightlog.session.overlay_file import pick_overlay
    from flightlog.show.plan import differences_text
    from flightlog.store.completing import open_run

    chosen = pick_target(manifest, target)
    project = manifest.resolved(os.environ, chosen, raw=True).project.name
    path, before = find_lock(ref, runs_dir, project)
    ran_on = open_run(path).info.target
    if target is None and ran_on in manifest.targets:
        chosen = ran_on
    whole = pick_overlay(manifest, chosen, overlay).for_target(chosen, os.environ)
    after = relock(whole, before, read_environment(cwd=manifest.path.parent), os.environ)
    found = compare_locks(before, after)
    if format_ is Format.json:
        return json_text({"run": path.name, "differences": found}), bool(found)
    return differences_text(path.name, found, color=wants_color()), bool(found)
