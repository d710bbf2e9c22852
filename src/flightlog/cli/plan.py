"""Shows what a session would run, where and with what, without running anything.

    flightlog plan
    flightlog plan --target cluster --format json --output plan.json
    flightlog plan --overlay flightlog.advised.yaml
    flightlog plan --check                # what differs from the last run that has a lock
    flightlog plan --check a1b2c3d4       # from this run

The plan holds the engine's options, the resources of each component, how each task is run, what the last five
runs of the project say about its tasks (durations, CPUs, memory), and the expected cost: the target's rates
times the workers times the median duration of those runs, or the reason why it is unknown. Beside each
component is the resource request that earlier attempts on this target suggest, or those elsewhere where there
are none; the value of the manifest is the one that is used. `flightlog advise` has details.

`--overlay` applies an overlay to the manifest: one of its own by name, or a file such as the one that
`flightlog advise --apply` writes.

A plan can be kept and shared: values of variables appear as `${NAME}`, and secrets in the manifest are
redacted. Variables that are not set are noted; where a number or a name needs one, there is no plan.

A session keeps a lock with each run: hashes of the manifest and of the task functions' sources, versions of
Python and packages, the git commit, image digests. `--check` compares it with the present state and lists
what differs; functions are looked up in their files, and nothing is imported. The exit code is then 0 if
nothing differs, and 1 otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import check_file, json_text, put_or_write, text_options, wants_color
from flightlog.core.errors import UsageError

if TYPE_CHECKING:
    from flightlog.session.lock import Difference
    from flightlog.session.manifest import Manifest
    from flightlog.session.plan import Plan

DOING = "reading earlier runs"


def plan(
    run: str | None = options.run_argument(
        "With --check: the run to check against. Default: the last run of the project that has a lock"
    ),
    manifest: Path | None = options.manifest_option(),
    target: options.TargetName = None,
    overlay: str | None = option(
        "O", "Overlay to apply: a name in the manifest, or a file. Default: FLIGHTLOG_OVERLAY"
    ),
    check: bool = flag("--check", "Show what differs from the lock of a run."),
    dry_run: bool = flag("--dry-run", "Dry run: print what --output would contain, and write no file."),
    output: options.OutputFile = None,
    format_: options.AnyFormat = "text",
    runs_dir: options.RunsDir = None,
) -> None:
    """Show what would run where, and what it would cost.

    Example: flightlog plan --target cluster
    """
    if run is not None and not check:
        raise UsageError(f"{run!r} names a run, which only --check takes; name a manifest with --manifest")
    check_file(output)
    from flightlog.session.manifest import load_manifest, pick_target
    from flightlog.show.plan import differences_text, plan_text

    differences: list[Difference] = []
    with options.problems_noted():
        found, folder = load_manifest(manifest), options.runs_folder(runs_dir)
        if check:
            name, differences = _differences(found, run, target, overlay, folder)
        else:
            made = _planned(found, pick_target(found, target), overlay, folder)
    if format_ == "json":
        text = json_text({"run": name, "differences": differences} if check else made)
    elif check:
        text = differences_text(name, differences, color=wants_color())
    else:
        text = plan_text(made, **text_options(output))
    put_or_write(text, None if dry_run else output)
    if differences:
        raise typer.Exit(1)


def _planned(manifest: Manifest, target: str, overlay: str | None, runs_dir: Path) -> Plan:
    from flightlog.session.overlay import pick_overlay
    from flightlog.session.plan import make_plan, read_history, read_suggestions

    manifest = pick_overlay(manifest, target, overlay)
    project = manifest.resolved(os.environ, target, raw=True).project.name
    history, suggestions = read_history(runs_dir, project), read_suggestions(runs_dir, project, target)
    made = make_plan(manifest, target, os.environ, history, suggestions)
    options.note_unset(manifest, target)
    return made


def _differences(
    manifest: Manifest, ref: str | None, target: str | None, overlay: str | None, runs_dir: Path
) -> tuple[str, list[Difference]]:
    """The run with a lock, and what differs from it now."""
    from flightlog.record.environment import read_environment
    from flightlog.session.lock import compare_locks, find_lock, relock
    from flightlog.session.manifest import pick_target
    from flightlog.session.overlay import pick_overlay
    from flightlog.store.completing import open_run

    chosen = pick_target(manifest, target)
    project = manifest.resolved(os.environ, chosen, raw=True).project.name
    path, before = find_lock(ref, runs_dir, project)
    ran_on = open_run(path).info.target
    if target is None and ran_on in manifest.targets:
        chosen = ran_on
    whole = pick_overlay(manifest, chosen, overlay).for_target(chosen, os.environ)
    after = relock(whole, before, read_environment(cwd=manifest.path.parent), os.environ)
    return path.name, compare_locks(before, after)
