"""The exporter contract, and the exporters that are installed: a run in, a file, a folder or a message out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.plugins import load, plugin_points

if TYPE_CHECKING:
    from flightlog.store.run import Run

ENTRY_POINTS = "flightlog.exporters"


class ExportOptions(Struct, frozen=True, kw_only=True):
    """What was asked for beside the run and the place; an exporter that cannot do a thing raises
    `UsageError`.
    """

    tables: tuple[str, ...] = ()
    """Tables to write, of those `flightlog sql` has; empty for all. For csv, json and parquet."""
    endpoint: str | None = None
    """Address of a server; None for what the standard variables say, or the default."""
    follow: bool = False
    """Go on while the run is running, and end with it."""
    again: bool = False
    """Send once more what the server has taken before."""
    progress: Callable[[int, int | None], None] | None = None
    """Is told how much is done, and of how much if that is known."""


class Exported(Struct, frozen=True, kw_only=True):
    """What came of an export."""

    to: str
    """The exporter's name."""
    where: str
    """The file, folder or address it went to."""
    counts: dict[str, int]
    """How many of what, in the order to be shown: `{"slices": 120, "counters": 3000}`."""
    notes: tuple[str, ...] = ()
    """Sentences on what is missing or was left out, and why; empty if all of the run is there."""


class Exporter(Protocol):
    """One way out; found by entry point, the built-in ones too."""

    name: str
    what: str
    """What it gives, in a line, for `--help`."""
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


@runtime_checkable
class EndingByOptions(Protocol):
    """An exporter that writes a folder or a file, as the options say; then this counts, and not `ending`."""

    def ending_for(self, options: ExportOptions) -> str | None:
        """End of the default file name, empty for a folder."""
        ...


def ending_of(exporter: Exporter, options: ExportOptions) -> str | None:
    """End of the default file name with these options; empty for a folder, None if nothing is written
    here.
    """
    return exporter.ending_for(options) if isinstance(exporter, EndingByOptions) else exporter.ending


def refuse(name: str, options: ExportOptions, *, takes: Collection[str] = ()) -> None:
    """Raise a `UsageError` for an option that this exporter has no use for; `takes` are the fields it has."""
    for field, option in (
        ("tables", "--table"),
        ("endpoint", "--endpoint"),
        ("follow", "--follow"),
        ("again", "--again"),
    ):
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
