"""Read the machine: a sampler is one method, and the built-in ones come through the same door as plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

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
    from importlib.metadata import entry_points

    found: dict[str, Callable[[], Sampler]] = {}
    failed: dict[str, str] = {}
    origin: dict[str, str] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        if origin.setdefault(point.name, point.value) != point.value:
            failed[f"{point.name} ({point.value})"] = f"the name is taken by {origin[point.name]}"
            continue
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - a plugin's import may raise anything, and must not hurt the run
            failed[point.name] = f"{point.value}: {type(error).__name__}: {error}"
            continue
        if callable(loaded):
            found[point.name] = loaded
        else:
            failed[point.name] = f"{point.value}: is no class"
    return InstalledSamplers(found, failed)
