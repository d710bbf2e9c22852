"""Watches a Dask cluster through one client: installs the plugins, hears what they tell, and emits events.

A thread of its own turns what arrives into events, so neither the client's event loop nor the user's threads
do. Nothing here raises into the program; what cannot be had is said once in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from distributed.utils import sync

from flightlog.core.settings import parse_traceparent
from flightlog.engines.dask import messages as m
from flightlog.engines.dask.messages import Arrivals, text_of_key, topics, watch_name
from flightlog.engines.dask.scheduler_plugin import EngineWatch, SchedulerWatch, drain, takes_names
from flightlog.engines.dask.watched_tasks import Lives
from flightlog.engines.dask.watched_workers import WorkerDeath, Workers
from flightlog.engines.dask.worker_plugin import NannyWatch, WorkerWatch
from flightlog.engines.limits import DaskLimits
from flightlog.engines.relay.chunks import ChunkReceiver
from flightlog.events import Event, Failure, UserEvent
from flightlog.record.clock import Clock, monotonic_ns
from flightlog.record.context import RUN, TRACEPARENT
from flightlog.record.span import current
from flightlog.version import __version__

log = logging.getLogger("flightlog")

GONE_S = 2 * DaskLimits.parcel_interval_s
"""How long those of a worker without a nanny wait for what the scheduler has to say of it."""
_OF_ATTEMPTS = frozenset({m.LOST, m.GONE, m.REFUSED, m.RESTART})
_OF_TASKS = frozenset({m.SUBMITTED, m.QUEUED, m.ASSIGNED, m.DONE})
"""The messages that make up almost all of the traffic, and are about tasks alone."""


class ClusterObserver:
    """Everything that happens in a cluster, as events, from now until `stop`.

    `client` is a `distributed.Client`, synchronous or not. `emit` gets all events, many at a time, on a
    thread of the observer's. Emitted are worker events, resource samples, transfers (spans called
    `dask.transfer`), and the task events of what this client submits. `place`, a carrier, is the run that
    spans inside those tasks belong to: without it they are left alone. `sampled_host` is a host that somebody
    else samples.

    An engine, whose attempts are tasks with keys that have `engine`, eight hex digits, in them, hears by
    `heard` what their workers cannot say: `GONE` or `REFUSED` and a key, `RESTART`, or `LOST`, a worker, the
    keys that went with it, its death, and when that was heard of on this host's monotonic clock. `run_path`
    is the run that its workers send chunks for. A cluster that cannot be watched is an error then.

    Made on the event loop of an asynchronous client, it is installed by and by: `await observer.installed()`
    before submitting, or the first tasks are missed. Everywhere else it is installed when it is made.
    """

    def __init__(
        self,
        client: Any,
        emit: Callable[[Iterable[Event]], None],
        *,
        place: dict[str, str] | None = None,
        sampled_host: str | None = None,
        engine: str | None = None,
        heard: Callable[..., None] = lambda *_facts: None,
        run_path: str | None = None,
    ) -> None:
        self._client, self._emit, self._engine, self._heard_of_attempts = client, emit, engine, heard
        self._late_s = DaskLimits.last_parcels_timeout_s if engine is None else DaskLimits.settle_timeout_s
        token = engine or os.urandom(4).hex()
        self.name = watch_name(token)
        _, down, parcels = topics(self.name)
        place = place or {}
        ids = parse_traceparent(place.get(TRACEPARENT)) or (None, None)
        self._clock = Clock()
        own = os.urandom(4).hex()
        span_ids = (f"{own}{number:08x}" for number in count())
        self._hooks = ClientHooks(client)
        next_id = span_ids.__next__
        self._workers = Workers(iso=self._iso, trace_id=ids[0], parent_id=ids[1], next_id=next_id)
        self._lives = Lives(token, self._workers, self._hooks.requests)
        self._plugins = (
            SchedulerWatch(self.name, client.id) if engine is None else EngineWatch(engine, client.id),
            NannyWatch(token),
            WorkerWatch(token, place, sampled_host),
        )
        self._receiver = ChunkReceiver(place.get(RUN, run_path))
        self._arrived: SimpleQueue[bytes | None] = SimpleQueue()
        self._lost: dict[str, list[str]] = {}
        """Keys of an engine's attempts that went with their worker, and wait for how that ended."""
        self._messages = Arrivals(client, down, self._arrived.put)
        self._chunks = Arrivals(client, parcels, self._receiver.take)
        self._status = self._reason = ""
        self._stopping = threading.Lock()
        self.stopped = threading.Event()
        """Set when everything has been emitted."""
        self.lost: str | None = None
        """Why the scheduler is not heard any more, if so."""
        self._thread = threading.Thread(target=self._work, name="flightlog-dask", daemon=True)
        self._thread.start()
        self._installing: asyncio.Task[None] | None = None
        if _on_loop_of(client):
            self._installing = asyncio.ensure_future(self._install())
        else:
            try:
                sync(client.loop, self._install)
            except Exception as error:
                if engine is not None:
                    self._finish("")  # or its thread would wait for ever
                    raise
                log.warning("the Dask cluster cannot be watched: %r", error)

    @property
    def is_installing(self) -> bool:
        """Whether tasks that are submitted now may be missed: `installed` was not waited for."""
        return self._installing is not None and not self._installing.done()

    async def installed(self) -> None:
        """Wait until everything that happens from now on will be heard of."""
        if self._installing is not None:
            await self._installing

    def stop(self, reason: str = "no longer watched") -> Awaitable[None] | None:
        """Remove the plugins, emit what is left, and end; what is in flight stays so. Never raises; once.

        `reason` is why the workers that are still there are no longer seen. On the event loop of the client
        it gives something to await; everywhere else it waits, some seconds at most.
        """
        if not self._stopping.acquire(blocking=False):
            return asyncio.sleep(0) if _on_loop_of(self._client) else None
        self._status = self._client.status
        if _on_loop_of(self._client):
            return self._stop(reason)
        try:
            if self._client.status == "running":
                at_most_s = (
                    3 * DaskLimits.end_step_timeout_s + 2 * DaskLimits.last_parcels_timeout_s + self._late_s
                )
                sync(self._client.loop, self._stop, reason, callback_timeout=at_most_s)
            else:
                self._finish(reason)
        # The cluster may be gone, and the program ends as it would have.
        except Exception as error:  # noqa: BLE001
            log.debug("the plugins could not be removed: %r", error)
            self._finish(reason)
        self.stopped.wait(self._late_s)
        return None

    # --- on the client's event loop

    async def _install(self) -> None:
        client = self._client
        for arrivals in (self._messages, self._chunks):
            client.subscribe_topic(arrivals.topic, arrivals.on_event)
        scheduler, nanny, worker = self._plugins
        for plugin, what in ((scheduler, "scheduler"), (nanny, "nannies"), (worker, "workers")):
            try:
                await asyncio.wait_for(
                    client.register_plugin(plugin, name=self.name), DaskLimits.install_timeout_s
                )
            except Exception as error:
                if self._engine is not None and plugin is scheduler:
                    raise
                advice = f"Is flightlog {__version__} installed there?"
                log.warning("Dask's %s cannot be watched: %r. %s", what, error, advice)
        # Before anything is submitted: a graph that goes out without its span's name has lost it.
        if await _tried(client.run_on_scheduler(takes_names)):
            self._hooks.name_stimuli()

    async def _stop(self, reason: str) -> None:
        client = self._client
        heard_by = time.monotonic() + 2 * DaskLimits.parcel_interval_s
        await _tried(client.unregister_worker_plugin(name=self.name))
        await self._hear_of_deaths(heard_by)
        await _tried(client.unregister_worker_plugin(name=self.name, nanny=True))
        drained = await _tried(client.run_on_scheduler(drain, self.name))
        if drained is not None:
            sent, files, rest = drained
            until = time.monotonic() + DaskLimits.last_parcels_timeout_s
            while (self._messages.number < sent or self._chunks.number < files) and time.monotonic() < until:
                await asyncio.sleep(0.01)
            for parcel in rest:
                self._arrived.put(parcel)
        try:
            for arrivals in (self._messages, self._chunks):
                client.unsubscribe_topic(arrivals.topic)
        except Exception as error:  # noqa: BLE001 - a client that is closed has forgotten them anyway
            log.debug("a topic could not be unsubscribed: %r", error)
        self._finish(reason)
        while not self.stopped.is_set():
            await asyncio.sleep(0.005)

    async def _hear_of_deaths(self, heard_by: float) -> None:
        """Let nannies tell why workers have died that the scheduler has just lost, as long as someone listens
        there.
        """
        by = heard_by + DaskLimits.explanation_wait_s + 2 * DaskLimits.parcel_wait_s
        while time.monotonic() < (by if self._workers.awaits_reasons else heard_by):
            if self._client.status != "running":
                return  # nothing would come
            await asyncio.sleep(0.01)

    # --- on the observer's own thread

    def _finish(self, reason: str) -> None:
        self._hooks.remove()
        self._reason = reason
        self._arrived.put(None)

    def _work(self) -> None:
        while True:
            try:
                parcel = self._arrived.get(timeout=DaskLimits.parcel_wait_s)
            except Empty:
                self._emit(self._workers.due())
                self._look_for_scheduler(self._client.status)
                continue
            try:
                if parcel is None:
                    break
                self._emit(self._events(parcel))
                self._emit(self._workers.due())
            except Exception:
                log.warning("what a Dask cluster told could not be recorded", exc_info=True)
        try:
            self._look_for_scheduler(self._status)
            self._emit(self._workers.end(time.time(), self._reason))
            self._emit(self._late_requests())
            self._receiver.close(self._late_s)
        except Exception:
            log.warning("the last that a Dask cluster told could not be recorded", exc_info=True)
        self.stopped.set()

    def _look_for_scheduler(self, status: str) -> None:
        """Say that the scheduler is gone, once: a client that had a connection tries to get one again, or
        closes itself.
        """
        gone = status == "connecting" or (status == "closed" and self._lives.in_flight)
        if self.lost is not None or not gone or not self._messages.number:
            return
        where = getattr(self._client.scheduler, "address", None)
        left = self._lives.in_flight
        self.lost = (
            f"the connection to the Dask scheduler{f' at {where}' if where else ''} was lost; "
            f"{'no task was' if not left else 'one task was' if left == 1 else f'{left:,} tasks were'} in "
            "flight"
        )
        kind = "SchedulerLost"
        self._emit(
            [Failure(scope="run", error_type=kind, message=self.lost, traceback=None, fingerprint=None)]
        )

    def _events(self, parcel: bytes) -> Iterable[Event]:
        for message in m.decode(parcel):
            for one in m.decode(message[2]) if message[0] == m.UP else (message,):
                try:
                    events = list(self._lives.take(one) if one[0] in _OF_TASKS else self._take(one))
                except Exception:
                    log.warning("a message of a Dask cluster was not understood: %.200r", one, exc_info=True)
                    continue
                yield from events

    def _take(self, message: m.Message) -> Iterable[Event]:
        if message[0] == m.DROPPED:
            who = {"worker": message[3]} if len(message) > 3 else {}
            yield UserEvent(
                timestamp=self._iso(message[1]), name="dask.dropped", fields={"messages": message[2], **who}
            )
        elif message[0] in _OF_ATTEMPTS:
            self._hear_of_attempt(*message)
        else:
            yield from self._workers.take(message)
            yield from self._lives.take(message)

    def _hear_of_attempt(self, kind: str, _at: float, *facts: Any) -> None:
        if kind != m.LOST:
            self._heard_of_attempts(kind, *facts)
            return
        key, worker, has_nanny = facts
        if worker in self._lost:
            self._lost[worker].append(key)
            return
        self._lost[worker], at_ns = [key], monotonic_ns()

        def tell(death: WorkerDeath) -> Iterable[Event]:
            self._heard_of_attempts(m.LOST, worker, self._lost.pop(worker), death, at_ns)
            return ()

        self._workers.defer(worker, tell, DaskLimits.nanny_wait_s if has_nanny else GONE_S)

    def _late_requests(self) -> Iterable[Event]:
        """Results that were asked for again after their task had ended."""
        for key, number in self._hooks.left():
            fields = {"task_id": self._lives.task_id_of(key), "requests": number}
            yield UserEvent(name="dask.requested_again", fields=fields)

    def _iso(self, unix_s: float) -> str:
        return self._clock.iso(int(unix_s * 1e9) - self._clock.anchor_ns)


def _on_loop_of(client: Any) -> bool:
    """Whether this is the thread of the client's event loop, which must not be made to wait."""
    try:
        return asyncio.get_running_loop() is client.loop.asyncio_loop
    except RuntimeError:
        return False


async def _tried(step: Awaitable[Any]) -> Any:
    """What a step gives; None where it fails or takes too long: the cluster may be gone, or going."""
    try:
        return await asyncio.wait_for(step, DaskLimits.end_step_timeout_s)
    except Exception as error:  # noqa: BLE001 - whatever the cluster answers, the other steps are taken
        log.debug("the Dask cluster did not answer: %r", error)
        return None


class ClientHooks:
    """The hooks of one client; thread-safe, as far as dictionaries are."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._again: dict[str, int] = {}
        self._send = getattr(client, "_send_to_scheduler", None)
        self._inc_ref = getattr(client, "_inc_ref", None)
        self._named = self._removed = False
        self._lock = threading.Lock()
        if self._inc_ref is not None and hasattr(client, "refcount"):
            client._inc_ref = self._counted

    def name_stimuli(self) -> None:
        """Let each graph say which span it was submitted in: the scheduler can take that."""
        with self._lock:
            if self._send is not None and not self._named and not self._removed:
                self._named = True
                self._client._send_to_scheduler = self._sent

    def requests(self, key: str) -> int:
        """How often this client asked for a key until now; from now on, counted anew."""
        return self._again.pop(key, 0) + 1

    def left(self) -> Iterable[tuple[str, int]]:
        """Keys that were asked for after `requests` had been, and how often."""
        return [(key, number) for key, number in list(self._again.items())[: DaskLimits.max_reported_keys]]

    def remove(self) -> None:
        """Leave the client as it was."""
        with self._lock:
            self._removed = True
            for name, ours in (("_inc_ref", self._counted), ("_send_to_scheduler", self._sent)):
                if self._client.__dict__.get(name) == ours:
                    del self._client.__dict__[name]

    def _counted(self, key: Any) -> Any:
        if key in self._client.refcount and len(self._again) < DaskLimits.max_counted_keys:
            text = text_of_key(key)
            self._again[text] = self._again.get(text, 0) + 1
        assert self._inc_ref is not None
        return self._inc_ref(key)

    def _sent(self, message: dict[str, Any]) -> Any:
        if message.get("op") == "update-graph" and "stimulus_id" not in message:
            here = current.get()
            if here is not None and here._sink is not None:
                # Dask samples the parts of a message with more than ten, by the program's `random`.
                if not message.get("actors", True):
                    del message["actors"]  # as the scheduler has it without
                message["stimulus_id"] = f"update-graph-{time.time()}-by-{here.span_id}"
        assert self._send is not None
        return self._send(message)
