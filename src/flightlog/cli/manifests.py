"""What the commands that read a manifest share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flightlog.cli.output import note
from flightlog.core.errors import ManifestError

if TYPE_CHECKING:
    from flightlog.session.manifest import Manifest


def complete_target(ctx: typer.Context, incomplete: str) -> list[str]:
    """Targets of the manifest for the shell; none where it cannot be read."""
    from flightlog.core.errors import FlightlogError
    from flightlog.session.manifest import load_manifest

    try:
        names = load_manifest(ctx.params.get("manifest")).targets
    except (FlightlogError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


ManifestFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="MANIFEST",
        help="The manifest, or its folder. Default: flightlog.yaml here or above",
        show_default=False,
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="T",
        help="Target of the manifest. Default: FLIGHTLOG_TARGET, Slurm's if it is here, local, the only one",
        autocompletion=complete_target,
    ),
]


@contextmanager
def problems_noted() -> Iterator[None]:
    """Every problem of a manifest on a line of standard error, and exit code 1."""
    try:
        yield
    except ManifestError as error:
        for problem in error.problems:
            note(problem)
        raise typer.Exit(1) from None


def note_unset(manifest: Manifest, target: str) -> None:
    """A line for each variable that is not set: a plan can do without some of them, a session cannot."""
    for problem in manifest.problems(os.environ, target):
        if problem.unset:
            note(problem.sentence(manifest.name))
