"""Recommends resources for the next run, from what earlier attempts really used.

    flightlog advise
    flightlog advise --task run_simulation
    flightlog advise --target cluster --confidence 0.99
    flightlog advise --apply                # writes flightlog.advised.yaml, never the manifest

For each task of the latest run's project, or of the project that has `--task`: what it requests now, what is
recommended, why, and what that saves. `sim[3]` counts as `sim`. Failed attempts count, too: one that was
killed at 8 GB needed more than 8 GB. Memory that grows with an argument is detected, and shown by size. The
less history there is, the more headroom is added; with fewer than five measured attempts there is no
recommendation, and the text says how many are missing. Further advice follows: on workers, threads, chunks,
caches, retries and time limits, each with its evidence.

A recommendation should be enough for 95 % of later attempts; `--confidence` sets another share. The newest 50
runs of the project count; after a lasting change, only the runs since then.

`--apply` writes the settings to an overlay beside the manifest. Caching and retries are written as comments:
only you know whether a function may be cached or run twice. Nothing uses the file until you choose it:

    flightlog plan --overlay flightlog.advised.yaml
    FLIGHTLOG_OVERLAY=flightlog.advised.yaml python sweep.py

[Advice](../advice.md) explains how the numbers are computed, and how accurate they are on histories with
known needs.

In Python the same is `flightlog.advise(task)`, whose fields are those of the JSON; its `text()` is this text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import note, put_result
from flightlog.core.errors import UsageError
from flightlog.core.text import plural

if TYPE_CHECKING:
    from flightlog.analyze.advice.advise import Advised
    from flightlog.session.manifest import Manifest

DOING = "reading earlier runs"


def advise(
    task: str | None = option("T", "Only tasks with this name."),
    target: str | None = option("T", "Only runs on this target. Default: all targets"),
    project: str | None = option(
        "P",
        "Only runs of this project. Default: the project of the latest run, or of --task; "
        "with --apply, of the manifest",
    ),
    confidence: float = option(
        "C", "Share of attempts for which the recommendation should be enough.", default=0.95
    ),
    apply: bool = flag("--apply", "Write the recommended settings to an overlay beside the manifest."),
    manifest: Path | None = options.manifest_option("--apply"),
    format_: options.AnyFormat = "text",
    runs_dir: options.RunsDir = None,
) -> None:
    """Recommend resources for the next run, and say why.

    Example: flightlog advise --task run_simulation
    """
    from flightlog.analyze.advice.advise import advise as advised_by
    from flightlog.analyze.advice.advise import advised_json
    from flightlog.show.advice import advice_text

    into = None
    if apply:
        into, project = _manifest(manifest, project)
    found = advised_by(
        task,
        project=project,
        target=target,
        confidence=confidence,
        runs_dir=options.readable_runs_folder(runs_dir),
    )
    put_result(found, format_, advice_text, encode=advised_json, apply_hint=not apply)
    if into is not None:
        _apply(found, into)


def _manifest(file: Path | None, project: str | None) -> tuple[Manifest, str]:
    """The manifest that an overlay is written beside, and its project; advice on another one has no place
    there.
    """
    from flightlog.session.manifest import load_manifest

    with options.problems_noted():
        found = load_manifest(file)
        name = found.resolved(os.environ, raw=True).project.name
    if project is not None and project != name:
        raise UsageError(
            f"{found.name} is of project {name!r}: advice on {project!r} cannot be written beside it"
        )
    return found, name


def _apply(found: Advised, manifest: Manifest) -> None:
    """Write the overlay, and say where it is and how it is used; on standard error, for the output may be
    JSON.
    """
    from flightlog.session.overlay import write_advised

    with options.problems_noted():
        written = write_advised(manifest, found)
    for problem in written.left_out:
        note(problem)
    for path, condition in written.commented.items():
        note(f"{path}: {found.changes[path]} is your decision: only if {condition}")
    if written.path is None:
        more = "else " if written.commented else ""
        note(f"there is nothing {more}to set in the manifest: no overlay was written")
        return
    aside = ", the above as comments" if written.commented else ""
    values = plural(len(written.changes), "value")
    note(f"wrote {written.path}, with {values}{aside}; nothing uses it yet")
    note(f"see what it changes: flightlog plan --overlay {written.path}")
    note(
        f"run with it: FLIGHTLOG_OVERLAY={written.path}, or Session.from_yaml(overlay={str(written.path)!r})"
    )
