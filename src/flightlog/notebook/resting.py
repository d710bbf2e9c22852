"""Sampling that rests while no cell runs: a notebook that is left open over a weekend fills no disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from flightlog.events.resources import ResourceSample
from flightlog.samplers import Sampler

log = logging.getLogger("flightlog")


class WhileBusy:
    """A run's samplers as one, whose samples count while somebody is busy and once after; the others are let
    go.

    They are taken all the same, so that rates are those of the last second and not of the whole rest. `make`
    gives the samplers, or None as long as it cannot. One that raises is left out from then on.
    """

    def __init__(self, make: Callable[[], Sequence[Sampler] | None], is_busy: Callable[[], bool]) -> None:
        self._make, self._is_busy, self._was_busy = make, is_busy, True
        self._samplers: list[Sampler] | None = None

    @property
    def notes(self) -> Sequence[str]:
        """What the samplers complain of."""
        return [text for sampler in self._samplers or () for text in getattr(sampler, "notes", ())]

    def sample(self) -> Sequence[ResourceSample]:
        """What there is to say at this moment; nothing in a rest."""
        busy, before = self._is_busy(), self._was_busy
        self._was_busy = busy
        found = list(self._taken("sample"))
        return found if busy or before else ()

    def last_sample(self) -> Sequence[ResourceSample]:
        """What there is to say at the end."""
        return list(self._taken("last_sample"))

    def close(self) -> None:
        """Let go of what the samplers hold."""
        for sampler in self._samplers or ():
            close = getattr(sampler, "close", None)
            if close is not None:
                close()

    def _taken(self, how: str) -> Iterator[ResourceSample]:
        if self._samplers is None:
            made = self._make()
            if made is None:
                return
            self._samplers = list(made)
        for sampler in list(self._samplers):
            try:
                yield from getattr(sampler, how, sampler.sample)()
            except Exception as error:  # noqa: BLE001 - a sampler that fails is left out, the others go on
                self._samplers.remove(sampler)
                log.warning("sampler %s failed and is left out: %r", type(sampler).__name__, error)
