"""What an exporter is: a run in, a file, a folder or a message to a server out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from flightlog.store.run import Run

ENTRY_POINTS = "flightlog.exporters"


class ExportOptions(Struct, frozen=True, kw_only=True):
    """What was asked for beside the run and the place; an exporter that cannot do a thing raises `UsageError`."""

    tables: tuple[str, ...] = ()
    """Tables to write, of those `flightlog sql` has; empty for all. For csv, json and parquet."""
    endpoint: str | None = None
    """Address of a server; None for what the standard variables say, or the default."""
    follow: bool = False
    """Go on while the run is running, and end with it."""
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
    """End of the default file name (`.trace.json.gz`), empty for a folder, None if nothing is written here."""

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write `run` to `output` (None where `ending` is None), whole or not at all; bounded memory at any size.

        Runs that are running, killed or damaged are exported as far as they go, with a note. Raises `FlightlogError`
        with one clear message where it cannot be done.
        """
        ...
