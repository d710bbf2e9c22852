"""Options and messages shared by the commands that read a manifest or a file of rates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flightlog.cli.output import note
from flightlog.core.errors import FlightlogError, ManifestError

if TYPE_CHECKING:
    from flightlog.events import CostRates
    from flightlog.session.manifest import Manifest
    from flightlog.store.run import Run


def complete_target(ctx: typer.Context, incomplete: str) -> list[str]:
    """Targets of the manifest for the shell; none where it cannot be read."""
    from flightlog.session.manifest import load_manifest

    try:
        names = load_manifest(ctx.params.get("manifest")).targets
    except (FlightlogError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


_MANIFEST = "anifest file, or its folder. Default: flightlog.yaml in the current folder or above"


def manifest_option(goes_with: str = "") -> Any:
    """`--manifest`; `goes_with` is the option without which it means nothing."""
    start = f"With {goes_with}: m" if goes_with else "M"
    return typer.Option("--manifest", metavar="F", help=start + _MANIFEST)


ManifestFile = Annotated[
    Path | None, typer.Argument(metavar="MANIFEST", help=f"M{_MANIFEST}", show_default=False)
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="T",
        help=(
            "Target of the manifest. Default: FLIGHTLOG_TARGET, else Slurm's if available, else local, "
            "else the only one"
        ),
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


RatesFile = Annotated[
    Path | None,
    typer.Option(
        "--rates",
        metavar="FILE",
        help="YAML file with prices: the keys of a manifest's cost section, or a manifest.",
    ),
]


def rates_in(
    file: Path | None, *, target: str | None, provider: str | None, run: Run | None = None
) -> CostRates | None:
    """The rates in a file, for a run of this target; None without a file. What is wrong with it is said line
    by line.

    The `run`, where there is one already, tells how many workers shared a machine.
    """
    if file is None:
        return None
    from flightlog.analyze.cost.cost import workers_on_one_machine
    from flightlog.session.manifest import read_rates

    with problems_noted():
        workers = workers_on_one_machine(run) if run is not None else 1
        return read_rates(file, os.environ, target=target, provider=provider, workers=workers)
