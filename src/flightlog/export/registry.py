"""The exporters there are: those of Flightlog and those that other distributions offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from flightlog.core.errors import UsageError
from flightlog.core.plugins import load, plugin_points
from flightlog.export.base import ENTRY_POINTS

if TYPE_CHECKING:
    from flightlog.export.base import Exporter


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
