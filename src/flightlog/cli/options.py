"""Options that several commands share, and messages of those that read a manifest or a file of rates."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flightlog.cli.output import note
from flightlog.core.errors import FlightlogError, ManifestError, UsageError
from flightlog.core.settings import expanded, read_settings, runs_address
from flightlog.core.units import parse_age, parse_size
from flightlog.store.runs_folder import address_of, folder_at_hand, folder_of_runs

if TYPE_CHECKING:
    from flightlog.events import CostRates
    from flightlog.session.manifest import Manifest
    from flightlog.store.run import Run


Format = Literal["text", "json"]
"""How a result is written."""


PageFormat = Literal["text", "json", "md", "html"]
"""How a result is written that can be a page as well."""


def option(metavar: str, help: str, *names: str, default: Any = None, **more: Any) -> Any:  # noqa: A002
    """The default of a parameter that is an option with a value, called as the parameter is unless it is
    given other names.
    """
    return typer.Option(default, *names, metavar=metavar, help=help, **more)


def flag(name: str, help: str, *, default: bool | None = False, **more: Any) -> Any:  # noqa: A002
    """The default of a parameter that is an option which is there or not."""
    return typer.Option(default, name, help=help, **more)


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Run ids for the shell, the newest first."""
    from flightlog.store.catalogue import list_runs

    entries = list_runs(folder_at_hand(ctx.params.get("runs_dir")))
    return [name for name in ("latest", *(e.run_id for e in entries)) if name.startswith(incomplete)]


def complete_folder(incomplete: str) -> list[str]:
    """Folders for the shell, by name."""
    start, _, _ = incomplete.rpartition("/")
    where = expanded(f"{start}/" if incomplete.startswith("/") else start or ".")
    try:
        names = sorted(entry.name for entry in where.iterdir() if entry.is_dir())
    except (OSError, RuntimeError):
        return []
    found = [f"{start}/{name}/" if "/" in incomplete else f"{name}/" for name in names]
    return [name for name in found if name.startswith(incomplete)]


def runs_folder(given: str | None) -> Path:
    """The folder of runs to read: as given, else as configured; of an address, local copies, up to date."""
    return folder_of_runs(given, note=note)


def recording_folder(given: str | None) -> Path:
    """The folder of runs to record into: as given, else as configured; a `UsageError` for an address that is
    given.

    One that is configured is passed over, since a command that is to run must run: the recorder says so.
    """
    if address_of(given) is not None:
        raise UsageError(_only_read("--runs-dir"))
    return read_settings().runs_dir if given is None else expanded(given)


def changeable_runs_folder(given: str | None) -> Path:
    """As `readable_runs_folder`; a `UsageError` for an address, given or configured: runs there are only
    read.
    """
    _check_changeable(given)
    return readable_runs_folder(given)


def _check_changeable(given: str | None) -> None:
    if address_of(runs_address() if given is None else given) is not None:
        raise UsageError(_only_read("FLIGHTLOG_RUNS_DIR" if given is None else "--runs-dir"))


def _only_read(name: str) -> str:
    """The address itself stays out: it may hold a password."""
    return f"{name} is an address, and runs there are only read: name a folder; `flightlog sync` copies runs"


def readable_runs_folder(given: str | None) -> Path:
    """As `runs_folder`; a `UsageError` where it is no folder. One that is configured may still have to be
    made.
    """
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


def writable_runs_folder(given: str | None) -> Path:
    """As `recording_folder`, made where it is missing; a `UsageError` where no run can be written into it."""
    import tempfile

    _check_changeable(given)
    folder = recording_folder(given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".flightlog-", dir=folder):
            return folder
    except FileExistsError:
        raise UsageError(f"{folder} is not a folder, so no run can be recorded there") from None
    except OSError as error:
        raise UsageError(f"no run can be recorded in {folder}: {error.strerror or error}") from None


_OUTPUT = "Write to this file instead of standard output."
OutputFile = Annotated[Path | None, option("F", _OUTPUT, "--output", "-o", default=...)]
_RUNS_DIR = "Folder or remote address of the runs. Default: FLIGHTLOG_RUNS_DIR or .flightlog/runs"
RunsDir = Annotated[
    str | None, option("D", _RUNS_DIR, "--runs-dir", default=..., autocompletion=complete_folder)
]


def run_argument(help: str, metavar: str = "RUN", default: Any = None) -> Any:  # noqa: A002
    """An argument that names runs, which the shell completes."""
    return typer.Argument(
        default, metavar=metavar, help=help, autocompletion=complete_run, show_default=False
    )


_RUN = "'latest', a run id, a unique prefix of one, its tag job_id, a path or an address. Default: latest"
RunRef = Annotated[str | None, run_argument(_RUN, default=...)]
RunId = Annotated[
    str | None, option("ID", "Same as RUN.", "--run-id", default=..., autocompletion=complete_run)
]
_RUNS = "'latest', run ids, unique prefixes of them, or paths. Default: latest"
RunRefs = Annotated[list[str] | None, run_argument(_RUNS, default=...)]
EveryRun = Annotated[bool, typer.Option("--all", help="Every run in the folder.")]
AnyFormat = Annotated[Format, typer.Option("--format", help="Output format.")]
AnyPageFormat = Annotated[PageFormat, typer.Option("--format", help="Output format.")]


def open_named(*names: str | None, runs_dir: str | None) -> Run:
    """The run that an argument or an option names, else the latest; a `UsageError` for several names, and for
    a recording of another tool.
    """
    from flightlog.store import layout
    from flightlog.store.completing import open_run

    named = list(dict.fromkeys(name for name in names if name is not None))
    if len(named) > 1:
        raise UsageError(f"name one run, not {len(named)}: {', '.join(named)}")
    run = open_run(named[0] if named else "latest", runs_dir=runs_dir, note=note)
    if not (run.path / layout.RUN).exists():
        from flightlog.adopt import adopters

        found = (adopter.recognize(run.path) for adopter in adopters().values())
        if (what := next(filter(None, found), None)) is not None:
            how = f"`flightlog adopt {run.path}` makes one of it"
            raise UsageError(f"{run.path} is no run of Flightlog, but {what}: {how}")
    return run


def refuse_alone(given: Mapping[str, object], why: str) -> None:
    """A `UsageError` for the first option that is given, where it means nothing without another."""
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} {why}")


def removal_limits(older_than: str | None, max_bytes: str | None) -> tuple[float | None, int | None]:
    """Seconds and bytes of `--older-than` and `--max-bytes`; a `UsageError` where neither is given."""
    if older_than is None and max_bytes is None:
        raise UsageError("name what to remove: --older-than AGE, --max-bytes SIZE, or both")
    age_s = None if older_than is None else parse_age(older_than)
    return age_s, None if max_bytes is None else parse_size(max_bytes)


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
    return typer.Option(None, "--manifest", metavar="F", help=start + _MANIFEST)


ManifestFile = Annotated[
    Path | None, typer.Argument(metavar="MANIFEST", help=f"M{_MANIFEST}", show_default=False)
]
_TARGET = (
    "Target of the manifest. Default: FLIGHTLOG_TARGET, else Slurm's if available, else local, else the only "
    "one"
)
TargetName = Annotated[
    str | None, option("T", _TARGET, "--target", default=..., autocompletion=complete_target)
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


_RATES = "YAML file with prices: the keys of a manifest's cost section, or a manifest."
RatesFile = Annotated[Path | None, option("FILE", _RATES, "--rates", default=...)]


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
