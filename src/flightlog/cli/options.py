"""Options that several commands share."""

from __future__ import annotations

import stat
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flightlog.errors import UsageError


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


def readable_runs_folder(given: Path | None) -> Path:
    """As `runs_folder`; a `UsageError` where it is no folder. One that is configured may still have to be made."""
    folder = runs_folder(given)
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise UsageError(f"{folder} is not a folder, so it holds no runs")
    except FileNotFoundError:
        if given is not None:
            raise UsageError(f"there is no folder {folder}") from None
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror or error}") from None
    return folder


def writable_runs_folder(given: Path | None) -> Path:
    """As `runs_folder`, made where it is missing; a `UsageError` where no run can be written into it."""
    import tempfile

    folder = runs_folder(given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".flightlog-", dir=folder):
            return folder
    except FileExistsError:
        raise UsageError(f"{folder} is not a folder, so no run can be recorded there") from None
    except OSError as error:
        raise UsageError(f"no run can be recorded in {folder}: {error.strerror or error}") from None


OutputFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="F", help="Write to this file, and nothing to standard output."),
]
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
RunId = Annotated[
    str | None,
    typer.Option("--run-id", metavar="ID", help="The same as RUN.", autocompletion=complete_run),
]
AnyFormat = Annotated[Format, typer.Option("--format", help="How to write it.")]
