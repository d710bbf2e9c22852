"""Attempts whose worker died or left: what became of it, and which of them had begun, is found out first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from flightlog.engines.dask.remote import Remote
from flightlog.engines.death import Death
from flightlog.engines.execute import Started
from flightlog.engines.ledger import Attempt
from flightlog.record.clock import monotonic_ns


class Loss(Struct, frozen=True):
    """A worker that died."""

    worker: str
    at_ns: int
    """When that was heard of, on this host's monotonic clock."""
    death: Death
    began: dict[int, Started] | None
    """Attempts it had begun and not ended; None where nobody can tell."""


class Losses:
    """Dead workers, each looked into once. One thread at a time.

    `lose` gets every attempt with its loss, the last handed out first; `ended` are workers that the engine
    ended itself, and why.
    """

    def __init__(
        self,
        remote: Remote,
        death_of: Callable[[str], Death | None],
        ended: Mapping[str, str],
        lose: Callable[[Attempt, Loss], None],
    ) -> None:
        self._remote, self._death_of, self._ended, self._lose = remote, death_of, ended, lose
        self._waiting: dict[str, list[Attempt]] = {}
        self._heard: dict[str, int] = {}
        self._known: dict[str, Loss] = {}

    def add(self, attempt: Attempt, address: str, nanny: str | None) -> None:
        """An attempt went with a worker, which had this nanny."""
        if address in self._known:
            self._lose(attempt, self._known[address])
        elif address in self._waiting:
            self._waiting[address].append(attempt)
        else:
            self._waiting[address] = [attempt]
            self._heard[address] = monotonic_ns()
            self._remote.look_into(address, nanny, self._death_of, self._on_looked_into)

    def _on_looked_into(self, address: str, death: Death, began: dict[int, Started] | None) -> None:
        if address in self._ended:
            death = Death(self._ended[address])
        loss = self._known[address] = Loss(address, self._heard.pop(address), death, began)
        for attempt in sorted(self._waiting.pop(address), key=lambda each: -each.serial):
            if not attempt.over:
                self._lose(attempt, loss)  # the last first: those that are put back keep their order
