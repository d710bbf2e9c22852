"""The exporters there are: those of Flightlog and those that other distributions offer, through the same door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from flightlog.errors import MissingExtra, UsageError
from flightlog.export.base import ENTRY_POINTS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from flightlog.export.base import Exporter


def exporter_names() -> list[str]:
    """The names of all exporters that are installed, in order; none of them is loaded."""
    return sorted(_points())


def find_exporter(name: str) -> Exporter:
    """The exporter of this name.

    `UsageError` for a name that no installed distribution offers, with the nearest right one; `MissingExtra` where
    what the exporter needs is not installed.
    """
    points = _points()
    if name not in points:
        from difflib import get_close_matches

        near = get_close_matches(name, points, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        known = f"There are {', '.join(sorted(points))}." if points else "None is installed."
        raise UsageError(f"there is no exporter {name!r}.{hint} {known}")
    with extras_of(name):
        try:
            return cast("Exporter", points[name].load())
        except AttributeError as error:
            raise UsageError(
                f"the exporter {name!r} leads nowhere: there is no {points[name].value}"
            ) from error


@contextmanager
def extras_of(name: str) -> Iterator[None]:
    """Within it, a library that is not installed is a `MissingExtra` that names what to install for the exporter."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "flightlog":
            raise UsageError(f"the exporter {name!r} leads nowhere: {error}") from error
        raise MissingExtra(
            f"exporting to {name} needs what is not installed here ({error}): pip install '{_wanted(name, error)}'"
        ) from error


def _wanted(name: str, error: ImportError) -> str:
    point = _points()[name]
    package = point.dist.name if point.dist is not None else "flightlog"
    return f"{package}[{','.join(point.extras)}]" if point.extras else error.name or package


def _points() -> dict[str, EntryPoint]:
    """Entry points by name; where several distributions share one, the same always wins, and ours does."""
    from importlib.metadata import entry_points

    found = sorted(
        entry_points(group=ENTRY_POINTS), key=lambda p: (p.value.startswith("flightlog."), p.value)
    )
    return {point.name: point for point in found}
