"""The option `--rates` of several commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flightlog.events import CostRates
    from flightlog.store.run import Run

RatesFile = Annotated[
    Path | None,
    typer.Option(
        "--rates",
        metavar="FILE",
        help="What things cost: a YAML file with the keys of a manifest's cost, or a manifest.",
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
    from flightlog.cli.manifests import problems_noted
    from flightlog.session.rates_file import read_rates

    with problems_noted():
        workers = workers_on_one_machine(run) if run is not None else 1
        return read_rates(file, os.environ, target=target, provider=provider, workers=workers)
