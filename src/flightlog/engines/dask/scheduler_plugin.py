"""A plugin in Dask's scheduler: it reports what becomes of a client's tasks and of all workers, and for an
engine it makes sure that every attempt runs at most once.

The scheduler's own thread does no more for a transition than to append a small tuple; tuples are encoded and
sent ten times a second. What waits is bounded: where the client does not listen for long, the oldest is
dropped, and counted.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import suppress
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

from flightlog.engines.dask import messages as m
from flightlog.engines.dask.messages import ChunkGate, heard_topic, topics, watch_name
from flightlog.engines.limits import DaskLimits
from flightlog.store.liveness import this_host

_WORKERS_CLIENT = "Client-worker-"
"""How Dask names the clients that tasks use to submit more tasks."""
OWN_PREFIX = "flightlog-"
"""What the keys of engines' attempts begin with."""
_METRICS = ("cpu", "memory", "managed_bytes", "spilled_bytes")


class SchedulerWatch(SchedulerPlugin):
    """Notes what concerns `client`; everything runs on the scheduler's thread.

    Tasks are those the client submitted, and those that tasks submitted where no other client is connected.
    Each is annotated with this plugin's name, so that workers know them. `up` is the topic on which workers
    and nannies report, `down` the one the client listens on.
    """

    def __init__(self, name: str, client: str, *, capacity: int = DaskLimits.max_waiting_messages) -> None:
        self.name = name
        self.up, self.down, self.parcels = topics(name)
        self._client = client
        self._ring: deque[tuple[Any, ...]] = deque()
        self._capacity = self._limit = capacity
        self._dropped = 0
        self.sent = 0
        self._acknowledged = 0
        self._mine: dict[Any, int] = {}
        """Attempts so far of every task that the scheduler knows; negative when it has ended."""
        self._seen: dict[str, float] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._scheduler: Any = None
        self._gate: ChunkGate | None = None

    # --- the life of the plugin

    async def start(self, scheduler: Any) -> None:
        """Begin: the workers that are there are the first news."""
        self._scheduler = scheduler
        self._gate = ChunkGate(scheduler, self.parcels, lambda parcel: self._send(self.parcels, parcel))
        self._put((m.SCHEDULER, time(), this_host()))
        for address in list(scheduler.workers):
            self._put(self._worker(address))
        self._flushing = asyncio.create_task(self._flush_forever())

    def stop(self) -> None:
        """Send nothing any more."""
        if self._flushing is not None:
            self._flushing.cancel()

    async def close(self) -> None:
        """The scheduler ends: what is left goes out at once."""
        self._flush()
        self.stop()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """The client is gone, in good order or not: nobody is left to record for, so leave the cluster as it
        was.
        """
        if client == self._client:
            self.stop()
            scheduler._ongoing_background_tasks.call_soon(_withdraw, scheduler, self.name)

    # --- what happens

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: list[Any], stimulus_id: str, **_more: Any
    ) -> None:
        """Tasks were submitted."""
        if client != self._client and not self._is_from_my_task(scheduler, client):
            return
        now, mine = time(), self._mine
        names: dict[int, list[str]] = {}
        new: list[tuple[Any, ...]] = []
        for key in tasks:
            if key in mine:
                continue  # it is asked for again
            task = scheduler.tasks.get(key)
            if task is None or task.state in ("memory", "erred"):
                continue  # computed before anybody watched
            mine[key] = 1 if task.state == "processing" else 0
            task.annotations = {**(task.annotations or {}), self.name: 1}
            depends_on = [m.text_of_key(other.key) for other in task.dependencies] or None
            spec = task.run_spec
            new.append((m.text_of_key(key), depends_on, arguments_of(spec, names), size_of_arguments(spec)))
        by = stimulus_id.rpartition("-by-")[2] if "-by-" in stimulus_id else None
        count = DaskLimits.max_tasks_per_message  # a large graph is many messages, so that parcels stay small
        for first in range(0, len(new), count):
            self._put((m.SUBMITTED, now, by, new[first : first + count]))

    def transition(
        self, key: Any, start: str, finish: str, *_args: Any, stimulus_id: str = "", **facts: Any
    ) -> None:
        """A task changed its state."""
        if finish == "waiting" or (attempt := self._mine.get(key)) is None:
            return
        if attempt < 0 and finish in ("released", "memory", "erred"):
            return  # it has ended; its result is copied or given up
        now, text = time(), key if type(key) is str else str(key)
        if finish == "forgotten":
            del self._mine[key]
            if attempt >= 0:
                self._put((m.FORGOTTEN, now, text, stimulus_id))
            return
        if finish in ("processing", "queued", "no-worker"):
            if attempt < 0:
                self._put((m.ANEW, now, text, stimulus_id))
                self._mine[key] = attempt = 0
            if finish != "processing":
                self._put((m.QUEUED, now, text, attempt + 1))
                return
            self._mine[key] = attempt + 1
            task = self._scheduler.tasks[key]
            worker = task.processing_on.address if task.processing_on is not None else None
            self._put((m.ASSIGNED, now, text, attempt + 1, worker, task.run_id))
        elif finish == "memory":
            self._mine[key] = -1
            task = self._scheduler.tasks[key]
            delay = (facts.get("metadata") or {}).get(self.name)
            if delay is not None and task.metadata:
                task.metadata.pop(self.name, None)
            worker, nbytes, steps = facts.get("worker"), facts.get("nbytes"), facts.get("startstops")
            wanted = len(task.who_wants or ())
            self._put((m.DONE, now, text, attempt, task.run_id, worker, nbytes, wanted, steps, delay))
        elif finish == "erred":
            self._mine[key] = -1
            task = self._scheduler.tasks[key]
            blame = task.exception_blame or task
            words = facts.get("exception_text") or task.exception_text or blame.exception_text
            words = str(words)[:2000] if words else None
            worker, steps, blamed = facts.get("worker"), facts.get("startstops"), m.text_of_key(blame.key)
            self._put((m.ERRED, now, text, attempt, task.run_id, worker, blamed, words, steps))
        elif start == "processing":
            self._put((m.RELEASED, now, text, attempt, self._scheduler.tasks[key].run_id, stimulus_id))

    def add_worker(self, scheduler: Any, worker: str) -> None:  # noqa: ARG002 - Dask's interface
        """A worker joined the cluster."""
        self._put(self._worker(worker))

    def log_event(self, topic: str, msg: Any) -> None:
        """Something was said: by our workers and nannies, by the client, or by Dask of its workers."""
        if topic == self.up:
            self._forget(topic)
            self._put((m.UP, time(), msg))
        elif topic == heard_topic(self.parcels):
            self._forget(topic)
            if self._gate is not None:
                self._gate.hear(int(msg))
        elif topic == heard_topic(self.down):
            self._forget(topic)
            self._acknowledged = max(self._acknowledged, int(msg))
        elif topic == "all" and msg.get("action") == "remove-worker":
            self._seen.pop(msg["worker"], None)
            self._put((m.WORKER_GONE, time(), msg["worker"], msg["stimulus_id"], bool(msg["expected"])))
        elif topic == "worker-restart-memory":
            self._put((m.MEMORY_RESTART, time(), msg["worker"], msg["rss"]))

    def drain(self) -> tuple[int, int, list[bytes]]:
        """The number of parcels that were sent, that of parcels of files, and what is left, which is handed
        over here.
        """
        rest = []
        while self._ring:
            rest.append(self._parcel())
        return self.sent, self._gate.sent if self._gate is not None else 0, rest

    # --- how it is sent

    def _put(self, message: tuple[Any, ...]) -> None:
        ring = self._ring
        if len(ring) >= self._limit:
            self._make_room()
        ring.append(message)

    def _make_room(self) -> None:
        """A graph of many tasks comes at once: a few messages for each task that Dask itself holds are always
        kept.
        """
        self._limit = max(self._capacity, DaskLimits.waiting_messages_per_task * len(self._scheduler.tasks))
        while len(self._ring) >= self._limit:
            self._ring.popleft()
            self._dropped += 1

    async def _flush_forever(self) -> None:
        sampled = 0.0
        while True:
            await asyncio.sleep(DaskLimits.parcel_interval_s)
            now = time()
            if now - sampled >= DaskLimits.scheduler_sample_interval_s:
                sampled = now
                self._sample()
            self._flush()

    def _flush(self) -> None:
        while self._ring and self.sent - self._acknowledged < DaskLimits.max_unacknowledged_parcels:
            parcel = self._parcel()
            self.sent += 1
            self._send(self.down, parcel)

    def _parcel(self) -> bytes:
        ring = self._ring
        messages = [ring.popleft() for _ in range(min(DaskLimits.max_messages_per_parcel, len(ring)))]
        if self._dropped:
            messages.insert(0, (m.DROPPED, time(), self._dropped))
            self._dropped = 0
        return m.encode([_plain(message) for message in messages])

    def _send(self, topic: str, parcel: bytes) -> None:
        """To this client alone, and not by the scheduler's log of events, which would keep it."""
        self._scheduler.client_send(self._client, {"op": "event", "topic": topic, "event": (time(), parcel)})

    def _forget(self, topic: str) -> None:
        self._scheduler._broker.truncate(topic)

    def _sample(self) -> None:
        """What the last heartbeat of each worker said, if it is new."""
        for address, worker in self._scheduler.workers.items():
            if self._seen.get(address) != worker.last_seen:
                self._seen[address] = worker.last_seen
                found = {name: worker.metrics[name] for name in _METRICS if name in worker.metrics}
                found["time_delay"] = worker.time_delay
                self._put((m.METRICS, worker.last_seen, address, found))

    def _worker(self, address: str) -> tuple[Any, ...]:
        worker = self._scheduler.workers[address]
        memory, gpus = worker.memory_limit or None, worker.resources.get("GPU")
        return m.WORKER, time(), address, worker.host, worker.nthreads, memory, gpus

    def _is_from_my_task(self, scheduler: Any, client: str) -> bool:
        """Whether a task's own client can only be one of a task of ours."""
        if not client.startswith(_WORKERS_CLIENT):
            return False
        people = [name for name in scheduler.client_comms if not name.startswith(_WORKERS_CLIENT)]
        return people == [self._client]


async def takes_names(dask_scheduler: Any = None) -> bool:
    """Whether a client may name what it submits, as it may its span: `update_graph` passes the name on to
    `SchedulerWatch`.
    """
    return "stimulus_id" in inspect.signature(dask_scheduler.update_graph).parameters


async def drain(name: str, dask_scheduler: Any = None) -> tuple[int, int, list[bytes]]:
    """End the plugin of that name on the scheduler: how many parcels of both kinds it had sent, and what it
    had not.
    """
    plugin = dask_scheduler.plugins.pop(name, None)
    if plugin is None:
        return 0, 0, []
    plugin.stop()
    found: tuple[int, int, list[bytes]] = plugin.drain()
    return found


async def _withdraw(scheduler: Any, name: str) -> None:
    scheduler.plugins.pop(name, None)
    if name in scheduler.worker_plugins:
        await scheduler.unregister_worker_plugin(None, name)
    if name in scheduler.nanny_plugins:
        await scheduler.unregister_nanny_plugin(None, name)


def _plain(message: tuple[Any, ...]) -> tuple[Any, ...]:
    """Dask's own records of what a task did, where there are any, as short lists."""
    kind = message[0]
    if kind in (m.DONE, m.ERRED) and message[8]:
        steps = [(d["action"], d["start"], d["stop"]) for d in message[8]]
        return (*message[:8], steps, *message[9:])
    return message


_PLAIN: frozenset[Any] = frozenset({int, float, bool, str, type(None)})
_BIG = 1 << 63
_OF_ARRAYS = frozenset({"cupy", "numpy", "pyarrow.lib", "torch"})
"""Modules whose types may be asked for their size; a type of the program's own may do anything then."""


def arguments_of(spec: Any, known: dict[int, list[str]]) -> dict[str, Any] | None:
    """Arguments by name; None where nothing can be said. What is no number or short text is named by its
    type.

    `known` are the names of parameters, by the identity of the function: those of a graph are looked up once.
    """
    args, kwargs = getattr(spec, "args", None), getattr(spec, "kwargs", None)
    if not isinstance(args, tuple) or not isinstance(kwargs, dict) or not (args or kwargs):
        return None
    function: Any = getattr(spec, "func", None)
    if id(function) not in known:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        known[id(function)] = []
        with suppress(TypeError, ValueError):
            parameters = inspect.signature(function).parameters.values()
            known[id(function)] = [one.name for one in parameters if one.kind in kinds]
    names = known[id(function)]
    found: dict[str, Any] = {}
    for number, value in enumerate(args[: DaskLimits.max_arguments]):
        found[names[number] if number < len(names) else str(number)] = _glimpse(value)
    for name, value in list(kwargs.items())[: DaskLimits.max_arguments]:
        found[str(name)] = _glimpse(value)
    return found


def size_of_arguments(spec: Any) -> int | None:
    """Bytes of arrays among the arguments, which are sent with the call; None where there are none."""
    args, kwargs = getattr(spec, "args", None), getattr(spec, "kwargs", None)
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        return None
    size = 0
    for value in (*args, *kwargs.values()):
        if type(value).__module__ in _OF_ARRAYS:
            with suppress(Exception):  # sparse ones have none to tell
                size += int(value.nbytes)
    return size or None


def _glimpse(value: Any) -> Any:
    kind = type(value)
    if kind.__name__ in ("Alias", "TaskRef"):  # the result of another task, by its key
        return str(getattr(value, "target", value.key))[: DaskLimits.max_argument_characters]
    if kind not in _PLAIN:
        return f"<{kind.__name__}>"
    if kind is str and len(value) > DaskLimits.max_argument_characters:
        return value[: DaskLimits.max_argument_characters] + "…"
    return str(value) if kind is int and not -_BIG <= value < _BIG else value


NOWHERE = "flightlog://nowhere"
"""The address of no worker."""


class EngineWatch(SchedulerWatch):
    """Watches for an engine, whose attempts are tasks of its own client and reported by their workers.

    It keeps Dask from running one again, which it would do with what a dead worker had, and says what Dask
    does with them that their workers cannot say.
    """

    def __init__(self, engine: str, client: str) -> None:
        super().__init__(watch_name(engine), client)
        self._engine = engine
        self._places: dict[str, Any] = {}
        """The workers that attempts were given to."""

    def update_graph(self, scheduler: Any, *, tasks: list[Any], **more: Any) -> None:
        """New tasks: the first loss of a worker is one too many for attempts."""
        for key in tasks:
            if self._is_attempt(key):
                scheduler.tasks[key].suspicious = scheduler.allowed_failures
        others = [key for key in tasks if not self._is_attempt(key)]
        super().update_graph(scheduler, tasks=others, **more)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **facts: Any) -> None:
        """A task changed its state."""
        if not self._is_attempt(key):
            super().transition(key, start, finish, *args, **facts)
        elif finish == "processing":
            self._places[key] = self._scheduler.tasks[key].processing_on
        elif finish == "erred":
            place = self._places.pop(key, None)
            killed = facts.get("worker") is not None and "startstops" not in facts
            self._tell_lost(key, place if killed else None)
        elif finish == "released" and start in {"processing", "memory"}:
            place, task = self._places.pop(key, None), self._scheduler.tasks.get(key)
            # It would be run again: its worker leaves, or left with the result.
            if task is not None and task.who_wants:
                if start == "memory":
                    self._tell(m.GONE, key)
                else:
                    self._tell_lost(key, place)
                task.worker_restrictions = {NOWHERE}  # until it is forgotten, which cannot be done from here
                self._scheduler.loop.add_callback(self._let_go, key)
        elif finish == "forgotten":
            self._places.pop(key, None)

    def restart(self, scheduler: Any) -> None:  # noqa: ARG002 - Dask's signature
        """Somebody restarted the cluster: all tasks are forgotten."""
        self._tell(m.RESTART)

    def log_event(self, topic: str, msg: Any) -> None:
        """What workers note of attempts goes to the engine: the scheduler's own log keeps nothing of it."""
        if topic == self.name:
            self._forget(topic)
        else:
            super().log_event(topic, msg)

    def _let_go(self, key: str) -> None:
        if self._client in self._scheduler.clients:
            self._scheduler.client_releases_keys([key], self._client, stimulus_id=self.name)

    def _is_attempt(self, key: Any) -> bool:
        return isinstance(key, str) and key.startswith(OWN_PREFIX) and f"-{self._engine}-" in key

    def _tell_lost(self, key: str, place: Any) -> None:
        if place is None:
            self._tell(m.REFUSED, key)
        else:
            self._tell(m.LOST, key, place.address, bool(place.nanny))

    def _tell(self, kind: str, *facts: Any) -> None:
        """Say something that must not be dropped; at once, after what waits as far as the client takes it."""
        self._flush()
        self.sent += 1
        self._send(self.down, m.encode([(kind, time(), *facts)]))
