"""The exporter contract, the exporters that are installed, and outputs that appear only when complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Protocol, cast
from uuid import uuid4

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.plugins import load, plugin_points
from flightlog.core.text import first_line

if TYPE_CHECKING:
    from flightlog.store.run import Run

ENTRY_POINTS = "flightlog.exporters"


class ExportOptions(Struct, frozen=True, kw_only=True):
    """Options of an export; an exporter that does not support one raises `UsageError`."""

    tables: tuple[str, ...] = ()
    """Tables to write, of those `flightlog sql` has; empty for all. For csv, json and parquet."""
    endpoint: str | None = None
    """Address of a server; None for what the standard variables say, or the default."""
    follow: bool = False
    """Go on while the run is running, and end with it."""
    again: bool = False
    """Resend what the server has accepted before."""
    progress: Callable[[int, int | None], None] | None = None
    """Called with the amount done and the total, None if unknown."""


class Exported(Struct, frozen=True, kw_only=True):
    """What came of an export."""

    to: str
    """The exporter's name."""
    where: str
    """The file, folder or address it went to."""
    counts: dict[str, int]
    """How many of what, in the order to be shown: `{"slices": 120, "counters": 3000}`."""
    notes: tuple[str, ...] = ()
    """Sentences on what is missing or was left out, and why; empty if the export is complete."""


class Exporter(Protocol):
    """One way out; found by entry point, the built-in ones too."""

    name: str
    what: str
    """Its output in one line, for `--help`."""
    ending: str | None
    """End of the default file name (`.trace.json.gz`), empty for a folder, None if nothing is written
    here."""

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write `run` to `output` (None where `ending` is None), whole or not at all; bounded memory at any
        size.

        Runs that are running, killed or damaged are exported as far as they go, with a note. Raises
        `FlightlogError` with one clear message where it cannot be done.
        """
        ...


def ending_of(exporter: Exporter, options: ExportOptions) -> str | None:
    """End of the default file name with these options; empty for a folder, None if nothing is written
    here.

    An exporter that writes a folder or a file, as the options say, has a method `ending_for` for it.
    """
    by_options: Callable[[ExportOptions], str | None] | None = getattr(exporter, "ending_for", None)
    return exporter.ending if by_options is None else by_options(options)


def refuse(name: str, options: ExportOptions, *, takes: Collection[str] = ()) -> None:
    """Raise a `UsageError` for an option that this exporter does not support; `takes` names the supported
    fields.
    """
    refused = {"tables": "--table", **{name: f"--{name}" for name in ("endpoint", "follow", "again")}}
    for field, option in refused.items():
        if field not in takes and getattr(options, field):
            raise UsageError(f"{option} does not go with --to {name}: leave it out")


def exporter_names() -> list[str]:
    """The names of all exporters that are installed, in order; none of them is loaded."""
    return [*plugin_points(ENTRY_POINTS)]


def find_exporter(name: str) -> Exporter:
    """The exporter of this name.

    `UsageError` for a name that no installed distribution offers, with the nearest right one; `MissingExtra`
    where what the exporter needs is not installed.
    """
    return cast("Exporter", load(ENTRY_POINTS, name, "exporter"))


@contextmanager
def extras_of(name: str) -> Iterator[None]:
    """Within it, a library that is not installed is a `MissingExtra` that names what to install for the
    exporter.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "flightlog":
            raise UsageError(f"the exporter {name!r} leads nowhere: {error}") from error
        raise plugin_points(ENTRY_POINTS)[name].missing_extra("exporter", error) from error


ASIDE = "flightlog-"
"""How the names of our folders among the temporary files begin."""


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """A path beside `output` to write to; renamed to `output` when the context ends without an error, and
    removed otherwise.

    An existing file is replaced. Errors of the system and of DuckDB become a `UsageError` with the reason.
    """
    made = _beside(output)
    try:
        with _as_usage_errors(output):
            yield made
            made.replace(output)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A new folder beside `output` to write into; renamed to `output` when the context ends without an error,
    and removed otherwise.

    In an existing folder, files of the same names are replaced and others kept. Errors of the system and of
    DuckDB become a `UsageError` with the reason.
    """
    made = _beside(output)
    try:
        with _as_usage_errors(output):
            made.mkdir()
            yield made
            if output.is_dir() and any(output.iterdir()):
                _move_into(made, output)
            else:
                made.replace(output)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _beside(output: Path) -> Path:
    return output.absolute().with_name(f".{output.name[:100]}.{uuid4().hex}.tmp")


def _move_into(made: Path, output: Path) -> None:
    for folder, _, names in os.walk(made):
        inside = output / Path(folder).relative_to(made)
        inside.mkdir(exist_ok=True)
        for name in names:
            (Path(folder) / name).replace(inside / name)


@contextmanager
def _as_usage_errors(output: Path) -> Iterator[None]:
    """An `OSError` or an error of DuckDB's as a `UsageError` of one line, without the names of our own
    passing files.
    """
    import duckdb

    try:
        yield
    except (OSError, duckdb.Error) as error:
        full = "No space left on device" in str(error)
        reason = "No space left on device" if full else first_line(str(error))
        if full and f"{gettempdir()}{os.sep}{ASIDE}" in str(error):
            reason = (
                f"no space is left in {gettempdir()}, where parts of it wait meanwhile; name a folder with "
                "more room in TMPDIR"
            )
        elif isinstance(error, OSError):
            named = Path(os.fsdecode(error.filename)).name if error.filename is not None else None
            ours = named is None or named.startswith(f".{output.name[:100]}.")
            reason = f"{error.strerror or error}{'' if ours else f' ({error.filename})'}"
        raise UsageError(f"cannot write {output}: {reason}") from error
