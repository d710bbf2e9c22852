"""Read the machine: a sampler is one method, and the built-in ones come through the same door as plugins."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from operator import itemgetter
from typing import Any, Protocol

from msgspec import Struct

from flightlog.descriptors import folder_names, read_bytes
from flightlog.events.resources import ResourceSample

ENTRY_POINTS = "flightlog.samplers"
"""The entry-point group that names sampler classes; each is constructed without arguments."""


class Sampler(Protocol):
    """Measures something of the machine, now.

    `sample` is called from one thread at a time, as often as ten times a second, and must not block. It never
    raises: what it cannot measure is None, and where there is nothing to measure the sequence is empty. The
    first call has no rates. Time, writer and the mark of the last sample are the recorder's to fill in. A
    sampler that holds descriptors may have a `close()`; `sample` still works after it. One that
    measures some things less often may have `last_sample`, which is called in place of `sample` at the end. One that
    has something to complain of may have `notes`, a sequence of texts: each is noted in the run once.
    """

    def sample(self) -> Sequence[ResourceSample]:
        """What there is to say at this moment."""
        ...


class InstalledSamplers(Struct, frozen=True):
    """The samplers this installation knows, and those it could not load."""

    found: Mapping[str, Callable[[], Sampler]]
    """Sampler classes by name."""
    failed: Mapping[str, str]
    """Why a sampler could not be loaded, by name."""


def installed_samplers() -> InstalledSamplers:
    """Every sampler that an installed distribution offers, the built-in ones included, in order of name.

    Takes tens of milliseconds, for it looks at every installed distribution: call it off the user's thread. A
    sampler that cannot be loaded stands in `failed` and costs nobody else anything.
    """
    found: dict[str, Callable[[], Sampler]] = {}
    failed: dict[str, str] = {}
    origin: dict[str, str] = {}
    for name, value in sorted(_entry_points(), key=itemgetter(0)):
        if origin.setdefault(name, value) != value:
            failed[f"{name} ({value})"] = f"the name is taken by {origin[name]}"
            continue
        try:
            module, _, attribute = value.partition("[")[0].partition(":")
            loaded: Any = import_module(module.strip())
            for step in filter(None, attribute.strip().split(".")):
                loaded = getattr(loaded, step)
        except Exception as error:  # noqa: BLE001 - a plugin's import may raise anything, and must not hurt the run
            failed[name] = f"{value}: {type(error).__name__}: {error}"
            continue
        if callable(loaded):
            found[name] = loaded
        else:
            failed[name] = f"{value}: is no class"
    return InstalledSamplers(found, failed)


def _entry_points() -> list[tuple[str, str]]:
    """Names and values of the entry points of our group, in the order of the import path.

    Read here and not by `importlib.metadata`, which opens each file by a bare number, in the middle of the program. That
    one is asked only where distributions lie elsewhere than in folders.
    """
    elsewhere = any(hasattr(one, "find_distributions") and one is not PathFinder for one in sys.meta_path)
    try:
        files = [] if elsewhere else _entry_point_files()
    except NotADirectoryError:
        elsewhere = True
    if elsewhere:
        from importlib.metadata import entry_points

        return [(point.name, point.value) for point in entry_points(group=ENTRY_POINTS)]
    return [point for file in files for point in _points_in(file)]


def _entry_point_files() -> list[str]:
    """Where the entry points of each distribution stand, the first one of a name; NotADirectoryError of an archive."""
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
                stem = os.path.basename(folder)  # noqa: PTH119 - a folder of the import path, as it stands there
            elif kind not in ("dist-info", "egg-info"):
                continue
            key = re.sub(r"[-_.]+", "-", stem.partition("-")[0]).lower()
            found.setdefault(key, f"{folder}/{name}/entry_points.txt")
    return list(found.values())


def _points_in(file: str) -> list[tuple[str, str]]:
    try:
        data = read_bytes(file)
    except OSError:  # most distributions have none
        return []
    points, section = [], ""
    if ENTRY_POINTS.encode() in data:
        for line in data.decode("utf-8", "replace").splitlines():
            name, equals, value = line.strip().partition("=")
            if name.startswith("["):
                section = name.strip("[] ")
            elif equals and section == ENTRY_POINTS and not name.startswith(("#", ";")):
                points.append((name.strip(), value.strip()))
    return points
