"""The workers of a watched Dask cluster: what the plugins tell of them becomes worker events, samples and
spans.

A worker is called by its address. Of one that went away the scheduler hears before its nanny says what it
died of; what there is to say of it waits a little for that.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.core.units import format_bytes
from flightlog.engines.dask import messages as m
from flightlog.engines.dask.watched_tasks import bound, meaning_of, plain_stimulus
from flightlog.engines.execute import Started
from flightlog.engines.limits import DaskLimits
from flightlog.engines.processes import ExitReason
from flightlog.events import (
    Event,
    JobStarted,
    ResourceSample,
    SpanEvent,
    UserEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)

OnDeath = Callable[["WorkerDeath"], Iterable[Event]]

_STIMULI = {
    "handle-worker-cleanup": "its connection to the scheduler closed",
    "check-worker-ttl": "it sent no heartbeat",
    "worker-send-comm-fail": "the scheduler could not send to it",
    "send-all-comm-fail": "the scheduler could not send to it",
    "nanny-close": "its nanny unregistered it",
    "retire-workers": "it was retired",
    "close-worker": "it was told to close",
    "restart": "the cluster was restarted",
}
_sample = msgspec.json.Decoder(ResourceSample).decode


class WorkerDeath(ExitReason, frozen=True):
    """How a worker ended: Dask's reason, its exit code and signal, and the kernel's word on memory, as far as
    known.
    """

    began: dict[int, Started] | None = None
    """Attempts of an engine that it had begun and not ended, by their numbers; None where nobody can tell."""


class _ObservedWorker(Struct):
    """A worker as far as it is known."""

    address: str
    since: float
    host: str | None = None
    pid: int | None = None
    cpus: float | None = None
    nthreads: int | None = None
    memory_bytes: int | None = None
    gpus: float | None = None
    introduced: bool = False
    sampled: float | None = None
    offset_told: bool = False

    @property
    def who(self) -> dict[str, Any]:
        """Name, host and process, as all events of it have them."""
        return {"worker": self.address, "host": self.host, "pid": self.pid}


class Workers:
    """Turns messages into events; one thread at a time.

    `next_id` gives ids of spans, `clock` seconds.
    """

    def __init__(
        self,
        *,
        iso: Callable[[float], str],
        trace_id: str | None,
        parent_id: str | None,
        next_id: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.iso, self.trace_id, self.parent_id = iso, trace_id, parent_id
        self._next_id, self._clock = next_id, clock
        self.parent_of_transfer: Callable[[str, float], str | None] = lambda _worker, _start: None
        """Gives the span of the task that a transfer was made for."""
        self._workers: dict[str, _ObservedWorker] = {}
        self._scheduler_host: str | None = None
        self._gone: OrderedDict[str, str] = OrderedDict()
        """Why workers went away, in Dask's words."""
        self._nannies: OrderedDict[str, WorkerDeath] = OrderedDict()
        self._over_limit: OrderedDict[str, int] = OrderedDict()
        self._deferred: list[tuple[float, str, OnDeath]] = []
        self._transfers: list[tuple[float, m.Message]] = []
        self._speaker: dict[str, str] = {}
        """The worker whose word is taken on its host."""

    def take(self, message: m.Message) -> list[Event]:
        """The events that a message means; none where it is not about workers."""
        match message[0]:
            case m.SCHEDULER:
                self._scheduler_host = message[2]
            case m.WORKER:
                return self._added(message)
            case m.HELLO:
                return self._hello(message)
            case m.WORKER_GONE:
                return self._removed(message)
            case m.MEMORY_RESTART:
                self._over_limit[message[2]] = message[3]
                bound(self._over_limit, DaskLimits.max_remembered_workers)
            case m.DEATH:
                began = {serial: Started(*start) for serial, start in message[6]}
                _, _, address, reason, exit_code, signal, _ = message
                self._nannies[address] = WorkerDeath(reason, exit_code, signal, began)
                bound(self._nannies, DaskLimits.max_remembered_workers)
            case m.METRICS:
                return self._metrics(message)
            case m.NODE:
                return self._node(message)
            case m.INTERPRETER:
                return self._interpreter(message)
            case m.TRANSFER:
                self._transfers.append((self._clock() + DaskLimits.explanation_wait_s, message))
        return []

    def due(self, *, all_of_it: bool = False) -> list[Event]:
        """What has waited long enough, or whose wait is over because the answer came."""
        now, waiting = self._clock(), []
        events: list[Event] = []
        for until, worker, make in self._deferred:
            if all_of_it or now >= until or worker in self._nannies:
                events += make(self.death_of(worker))
            else:
                waiting.append((until, worker, make))
        self._deferred = waiting
        ready = [one for until, one in self._transfers if all_of_it or now >= until]
        self._transfers = self._transfers[len(ready) :]
        return events + [self._transfer(one) for one in ready]

    def defer(self, worker: str, make: OnDeath, patience_s: float = DaskLimits.explanation_wait_s) -> None:
        """Emit what `make` gives for a worker's end, when that is known."""
        self._deferred.append((self._clock() + patience_s, worker, make))

    @property
    def awaits_reasons(self) -> bool:
        """Whether some end is not told yet, for its reason may come. From any thread."""
        return bool(self._deferred)

    def is_beside_scheduler(self, address: str | None) -> bool:
        """Whether a worker is known to be on the scheduler's host, so that they share a clock."""
        worker = self._workers.get(address or "")
        return worker is not None and worker.pid is not None and worker.host == self._scheduler_host

    def death_of(self, address: str) -> WorkerDeath:
        """How a worker ended, as far as known by now: everything that is known of it, the surest first."""
        parts = []
        if address in self._over_limit:
            rss = format_bytes(self._over_limit[address])
            parts.append(f"its nanny ended it for memory: {rss} resident was over its limit")
        nanny = self._nannies.get(address)
        if nanny is not None:
            parts.append(nanny.reason)
        if address in self._gone:
            parts.append(self._gone[address])
        reason = "; ".join(parts) or "Dask lost its worker; nobody saw how it ended"
        return msgspec.structs.replace(nanny or WorkerDeath(reason), reason=reason)

    def end(self, at: float, reason: str) -> Iterable[Event]:
        """All that is left to say, when watching ends."""
        yield from self.due(all_of_it=True)
        for worker in self._workers.values():
            yield from self._introduce(worker)
            up_s = max(at - worker.since, 0.0)
            yield WorkerRemoved(timestamp=self.iso(at), reason=reason, uptime_s=up_s, **worker.who)
        self._workers = {}

    # --- coming and going

    def _added(self, message: m.Message) -> list[Event]:
        _, at, address, host, nthreads, memory_bytes, gpus = message
        if address not in self._workers:  # one that came back at an old address has not died yet
            for known in (self._gone, self._nannies, self._over_limit):
                known.pop(address, None)
        worker = self._workers.setdefault(address, _ObservedWorker(address, at))
        worker.since = min(worker.since, at)
        worker.nthreads, worker.memory_bytes, worker.gpus = nthreads, memory_bytes, gpus
        worker.host = worker.host or host
        return self._introduce(worker) if worker.pid is not None else []

    def _hello(self, message: m.Message) -> list[Event]:
        _, at, address, host, pid, cpus, job = message
        if address in self._gone and address not in self._workers:
            return []
        worker = self._workers.setdefault(address, _ObservedWorker(address, at))
        worker.host, worker.pid, worker.cpus = host, pid, cpus
        jobs: list[Event] = [] if job is None else [msgspec.convert(job, JobStarted)]
        return (self._introduce(worker) if worker.nthreads is not None else []) + jobs

    def _introduce(self, worker: _ObservedWorker) -> list[Event]:
        """Say that a worker is there, once, when its host and process id are known; or late, without."""
        if worker.introduced:
            return []
        worker.introduced = True
        size: dict[str, Any] = {"memory_bytes": worker.memory_bytes, "gpus": worker.gpus}
        cpus = None if worker.nthreads is None else float(worker.nthreads)
        stamp = self.iso(worker.since)
        launched = WorkerLaunched(timestamp=stamp, cpus=cpus, **size, **worker.who)
        return [launched, WorkerReady(timestamp=stamp, **worker.who)]

    def _removed(self, message: m.Message) -> list[Event]:
        _, at, address, stimulus, expected = message
        if address not in self._workers:
            return []
        worker = self._workers.pop(address)
        events = self._introduce(worker)
        plain = plain_stimulus(stimulus)
        meaning = meaning_of(plain, _STIMULI)
        self._gone[address] = f"Dask: {plain}" + (f" ({meaning})" if meaning else "")
        bound(self._gone, DaskLimits.max_remembered_workers)
        self._speaker = {host: who for host, who in self._speaker.items() if who != address}
        who = {"timestamp": self.iso(at), **worker.who}
        if expected:
            uptime_s = max(at - worker.since, 0.0)
            return [*events, WorkerRemoved(reason=self._gone[address], uptime_s=uptime_s, **who)]

        def lost(death: WorkerDeath) -> list[Event]:
            return [WorkerLost(reason=death.reason, exit_code=death.exit_code, signal=death.signal, **who)]

        self.defer(address, lost)
        return events

    # --- what they use

    def _metrics(self, message: m.Message) -> list[Event]:
        _, at, address, found = message
        worker = self._workers.get(address)
        if worker is None or (worker.pid is None and at - worker.since < DaskLimits.explanation_wait_s):
            return []
        interval_s = None if worker.sampled is None else at - worker.sampled
        worker.sampled = at
        cores = found["cpu"] / 100 if "cpu" in found else None
        percent = None if cores is None or not worker.cpus else min(100 * cores / worker.cpus, 100.0)
        sample = ResourceSample(
            timestamp=self.iso(at),
            scope="worker",
            **worker.who,
            cpu_percent=percent,
            cpu_cores=cores,
            cpus=worker.cpus,
            interval_s=interval_s,
            rss_bytes=found.get("memory"),
            memory_total_bytes=worker.memory_bytes,
            managed_bytes=found.get("managed_bytes"),
            spilled_bytes=found.get("spilled_bytes", {}).get("disk"),
        )
        return [*self._introduce(worker), *self._offset(worker, at, found.get("time_delay")), sample]

    def _interpreter(self, message: m.Message) -> list[Event]:
        _, at, address, waited_s = message
        worker = self._workers.get(address)
        if worker is None:
            return []
        facts = {**worker.who, "cpu_percent": None, "interpreter_wait_s": waited_s}
        return [ResourceSample(timestamp=self.iso(at), scope="worker_process", **facts)]

    def _offset(self, worker: _ObservedWorker, at: float, offset_s: float | None) -> list[Event]:
        """How far a worker's clock is behind the scheduler's, as Dask estimates it; once, where they are two
        clocks.
        """
        if worker.offset_told or offset_s is None or self.is_beside_scheduler(worker.address):
            return []
        worker.offset_told = True
        fields = {"worker": worker.address, "host": worker.host, "offset_s": offset_s}
        return [UserEvent(timestamp=self.iso(at), name="dask.clock_offset", fields=fields)]

    def _node(self, message: m.Message) -> list[Event]:
        _, at, host, address, encoded = message
        if self._speaker.setdefault(host, address) != address:
            return []
        with suppress(msgspec.DecodeError):
            sample = _sample(encoded)
            sample.timestamp = self.iso(at)
            return [sample]
        return []

    def _transfer(self, message: m.Message) -> Event:
        _, _, worker, source, start, stop, total, keys, delay = message
        return SpanEvent(
            timestamp=self.iso(start - delay),
            name="dask.transfer",
            tags={"source": source, "worker": worker},
            metrics={"bytes": total, "keys": keys},
            status="ok",
            duration_s=max(stop - start, 0.0),
            trace_id=self.trace_id or "",
            span_id=self._next_id(),
            parent_id=self.parent_of_transfer(worker, start) or self.parent_id,
        )
