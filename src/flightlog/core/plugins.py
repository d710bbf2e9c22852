"""Plugins: engines, samplers, exporters and rules that installed distributions offer by entry points.

One policy for all of them. Where several distributions use one name, a foreign one takes the place of
Flightlog's own, and of several foreign ones the first in order of their address does. A plugin that cannot be
loaded costs nobody else anything: where all are loaded (`load_all`) it is named with the reason, and where it
is the one asked for (`load`) the error says what to install.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from msgspec import Struct

from flightlog.core.descriptors import folder_names, read_bytes
from flightlog.core.errors import MissingExtra, UsageError


class PluginPoint(Struct, frozen=True):
    """The entry point of a plugin."""

    name: str
    value: str
    """Its address: module, attribute and extras, such as `flightlog.export.otlp.exporter:EXPORTER [otel]`."""
    package: str
    """The distribution that offers it."""

    @property
    def is_own(self) -> bool:
        """Whether it is one of Flightlog's own."""
        return self.value.startswith("flightlog.")

    def load(self) -> Any:
        """Import it; raises ImportError, AttributeError, or whatever its module raises."""
        module, _, attribute = self.value.partition("[")[0].partition(":")
        try:
            found: Any = import_module(module.strip())
        except (
            KeyError
        ):  # of importlib's own, where locks or thread numbers change under it (gevent's patching)
            found = import_module(module.strip())
        for step in filter(None, attribute.strip().split(".")):
            found = getattr(found, step)
        return found

    def missing_extra(self, what: str, error: ImportError, extra: str | None = None) -> MissingExtra:
        """The error for a package that it needs and that is not installed."""
        extras = re.findall(r"\[(.*)\]", self.value) or (
            [extra] if extra and self.package == "flightlog" else []
        )
        wanted = f"{self.package}[{','.join(extras)}]" if extras else error.name or self.package
        return MissingExtra(
            f"the {what} {self.name!r} needs what is not installed here ({error}): pip install '{wanted}'"
        )


class Plugins(Struct, frozen=True):
    """What the distributions of this installation offer under one group of entry points."""

    found: Mapping[str, Any]
    """What was loaded, by name."""
    failed: Mapping[str, str]
    """Why others could not be loaded, by name."""


def plugin_points(group: str) -> dict[str, PluginPoint]:
    """The entry points of a group by name, in order of name; none is loaded. Takes tens of milliseconds."""
    points: dict[str, PluginPoint] = {}
    for point in sorted(_read_points(group), key=lambda point: (point.name, point.is_own, point.value)):
        points.setdefault(point.name, point)
    return points


def load_all(group: str, problem_with: Callable[[Any], str | None]) -> Plugins:
    """Load every plugin of a group. `problem_with` says what is wrong with one that was loaded, or None."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, point in plugin_points(group).items():
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - the import of a plugin may raise anything
            failed[name] = f"{point.value}: {type(error).__name__}: {error}"
            continue
        problem = problem_with(loaded)
        if problem is None:
            found[name] = loaded
        else:
            failed[name] = f"{point.value}: {problem}"
    return Plugins(found, failed)


def load(group: str, name: str, what: str, extra: str | None = None) -> Any:
    """Load the plugin of this name. `what` says what it is, such as "exporter".

    `UsageError` where there is none, with the nearest right name, or where its entry point leads to nothing;
    `MissingExtra` where what it needs is not installed. `extra` is the extra of Flightlog to install then,
    where the entry point names none.
    """
    points = plugin_points(group)
    if name not in points:
        known = f"Installed are {', '.join(points)}." if points else "None is installed."
        raise UsageError(f"there is no {what} {name!r}.{did_you_mean(name, points)} {known}")
    point = points[name]
    try:
        return point.load()
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "flightlog":
            raise UsageError(f"the {what} {name!r} leads nowhere: {error}") from error
        raise point.missing_extra(what, error, extra) from error
    except AttributeError as error:
        raise UsageError(f"the {what} {name!r} leads nowhere: there is no {point.value}") from error


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` Did you mean 'otlp'?`, or nothing where no name is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(names), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _read_points(group: str) -> list[PluginPoint]:
    """The entry points of a group, in the order of the import path.

    Read here and not by `importlib.metadata`, which opens each file by a bare number: samplers are looked up
    on a thread of Flightlog's, in the middle of the program. That one is asked only where distributions lie
    elsewhere than in folders.
    """
    elsewhere = any(hasattr(one, "find_distributions") and one is not PathFinder for one in sys.meta_path)
    try:
        files = {} if elsewhere else _entry_point_files()
    except NotADirectoryError:
        elsewhere = True
    if elsewhere:
        from importlib.metadata import entry_points

        return [
            PluginPoint(point.name, point.value, "flightlog" if point.dist is None else point.dist.name)
            for point in entry_points(group=group)
        ]
    return [point for package, file in files.items() for point in _points_in(file, group, package)]


def _entry_point_files() -> dict[str, str]:
    """Where the entry points of each distribution stand, the first one of a name; NotADirectoryError of an
    archive.
    """
    found: dict[str, str] = {}
    for folder in dict.fromkeys(one or "." for one in sys.path):
        try:
            names = folder_names(folder)
        except NotADirectoryError:
            raise
        except OSError:
            continue
        for name in sorted(names):
            stem, _, kind = name.rpartition(".")
            if name == "EGG-INFO" and folder.endswith(".egg"):
                stem = os.path.basename(folder)  # noqa: PTH119 - as the import path has it
            elif kind not in ("dist-info", "egg-info"):
                continue
            key = re.sub(r"[-_.]+", "-", stem.partition("-")[0]).lower()
            found.setdefault(key, f"{folder}/{name}/entry_points.txt")
    return found


def _points_in(file: str, group: str, package: str) -> list[PluginPoint]:
    try:
        data = read_bytes(file)
    except OSError:  # most distributions have none
        return []
    points, section = [], ""
    if group.encode() in data:
        for line in data.decode("utf-8", "replace").splitlines():
            name, equals, value = line.strip().partition("=")
            if name.startswith("["):
                section = name.strip("[] ")
            elif equals and section == group and not name.startswith(("#", ";")):
                points.append(PluginPoint(name.strip(), value.strip(), package))
    return points
