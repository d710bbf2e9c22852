"""Read the machine: a sampler is one method, and the built-in ones are loaded the same way as plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flightlog.core.plugins import Plugins, load_all
from flightlog.events.declarations import ResourceSample

ENTRY_POINTS = "flightlog.samplers"
"""The entry-point group that names sampler classes; each is constructed without arguments."""


class Sampler(Protocol):
    """Measures something of the machine, now.

    `sample` is called from one thread at a time, as often as ten times a second, and must not block. It never
    raises: what it cannot measure is None, and where there is nothing to measure the sequence is empty. The
    first call has no rates. Time, writer and the mark of the last sample are the recorder's to fill in. A
    sampler that holds descriptors may have a `close()`; `sample` still works after it. One that measures some
    things less often may have `last_sample`, which is called in place of `sample` at the end. One that has
    something to complain of may have `notes`, a sequence of texts: each is noted in the run once.
    """

    def sample(self) -> Sequence[ResourceSample]:
        """What there is to say at this moment."""
        ...


def installed_samplers() -> Plugins:
    """Every sampler that an installed distribution offers, the built-in ones included, in order of name.

    Takes tens of milliseconds, for it looks at every installed distribution: call it off the user's thread.
    """
    return load_all(ENTRY_POINTS, lambda sampler: None if callable(sampler) else "is no class")
