"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How a result is written."""

    text = "text"
    json = "json"


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Run ids for the shell, the newest first."""
    from flightlog.store.catalogue import list_runs

    entries = list_runs(runs_folder(ctx.params.get("runs_dir")))
    return [name for name in ("latest", *(e.run_id for e in entries)) if name.startswith(incomplete)]


def runs_folder(given: Path | None) -> Path:
    """The folder of runs: as given, else as configured."""
    if given is not None:
        return given.expanduser()
    from flightlog.settings import read_settings

    return read_settings().runs_dir


RunsDir = Annotated[
    Path | None,
    typer.Option(
        "--runs-dir", metavar="D", help="Folder of runs. Default: FLIGHTLOG_RUNS_DIR or .flightlog/runs"
    ),
]
RunRef = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="'latest', a run id, a unique prefix of one, or a path. Default: latest",
        autocompletion=complete_run,
        show_default=False,
    ),
]
AnyFormat = Annotated[Format, typer.Option("--format", help="How to write it.")]
