"""What a run has cost so far."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.analyze.charging import Used
from flightlog.analyze.cost import CostTally
from flightlog.analyze.live.workers import LiveWorkers
from flightlog.analyze.rates import Sizes
from flightlog.events import Event, JobStarted
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.lines import AnyEvent


class _Cost(Struct):
    total: float | None = None
    currency: str | None = None


class _Summary(Struct):
    cost: _Cost


class LiveCost:
    """By the run's rates and the time its workers have lived; of a run that is over, what its summary
    says.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tally = CostTally()
        self._told = False
        self._jobs: dict[str, Sizes] = {}

    def add(self, event: AnyEvent) -> None:
        """An event of the stream `cost`."""
        self._told = True
        if isinstance(event, Event):
            self._tally.add(event)

    def job(self, event: JobStarted) -> None:
        """A worker lives in a batch job, which says what it was given."""
        if event.worker is not None:
            said = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
            self._jobs[event.worker] = self._jobs.get(event.worker, Sizes()).else_(said)

    def total(
        self,
        workers: LiveWorkers,
        provider: str | None,
        started: int | None,
        until: int | None,
        *,
        over: bool,
    ) -> tuple[float | None, str | None]:
        """The sum and its currency; null where it is not known."""
        if over:
            summed = read_document(self._run / layout.SUMMARY, _Summary).value
            if summed is not None:
                return summed.cost.total, summed.cost.currency
        used = Used(ended=over, provider=provider, told=self._told)
        if (
            self._tally.rates is not None
        ):  # else nothing is reckoned by the hour, and thousands of workers cost time here
            used = self._used(workers, used, started, until)
        said = self._tally.summary(used)
        return said.total, said.currency

    def _used(self, workers: LiveWorkers, used: Used, started: int | None, until: int | None) -> Used:
        given = workers.lives.given()
        for name, job in self._jobs.items():
            given[name] = given.get(name, Sizes()).else_(job)
        return msgspec.structs.replace(
            used,
            lifetimes=workers.lives.lifetimes(workers.bounds(), until),
            components=workers.lives.components(),
            given=given,
            wall_ns=None if started is None or until is None else max(0, until - started),
        )
