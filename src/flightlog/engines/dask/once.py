"""On the scheduler: every attempt of an engine runs once at most, and its engine is told when Dask gives it
up.
"""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

from flightlog.engines.dask.attempt import relay_topic_of, topic_of
from flightlog.engines.dask.parcel_gate import ParcelGate, heard_topic

NOWHERE = "flightlog://nowhere"
"""The address of no worker."""


class Once(SchedulerPlugin):
    """Keeps Dask from running an engine's attempts again, which it would do with what a dead worker had.

    It touches nothing but keys of its engine. It also empties the scheduler's memory of the engine's
    messages, which would keep a thousand of them, and leaves by itself when the engine's client is gone.
    """

    def __init__(self, engine: str, client: str) -> None:
        self.name = f"flightlog-once-{engine}"
        self._mark, self._client = f"-{engine}-", client
        self._topic = topic_of(engine)
        self._relay_topic = relay_topic_of(engine)
        self._scheduler: Any = None
        self._gate: ParcelGate | None = None
        self._places: dict[str, Any] = {}
        """The workers that our tasks were given to."""

    async def start(self, scheduler: Any) -> None:
        """Registered."""
        self._scheduler = scheduler
        self._gate = ParcelGate(scheduler, self._relay_topic, self._pass_on)

    def update_graph(self, scheduler: Any, *, tasks: list[Any], **_more: Any) -> None:
        """New tasks: the first loss of a worker is one too many for ours."""
        for key in tasks:
            if self._is_ours(key):
                scheduler.tasks[key].suspicious = scheduler.allowed_failures

    def transition(self, key: Any, start: str, finish: str, *_args: Any, **_more: Any) -> None:
        """A task changed its state."""
        if not self._is_ours(key):
            return
        if finish == "processing":
            self._places[key] = self._scheduler.tasks[key].processing_on
        elif finish == "erred":
            self._places.pop(key, None)
            self._tell("erred", key)
        elif finish == "released" and start in {"processing", "memory"}:
            place = self._places.pop(key, None)
            task = self._scheduler.tasks.get(key)
            if (
                task is not None and task.who_wants
            ):  # it would be run again: its worker leaves, or left with the result
                nanny = None if place is None else place.nanny
                self._tell("moved" if start == "processing" else "gone", key, place and place.address, nanny)
                task.worker_restrictions = {NOWHERE}  # until it is forgotten, which cannot be done from here
                self._scheduler.loop.add_callback(self._forget, key)
        elif finish == "forgotten":
            self._places.pop(key, None)

    def _forget(self, key: str) -> None:
        if self._client in self._scheduler.clients:
            self._scheduler.client_releases_keys([key], self._client, stimulus_id=self.name)

    def restart(self, scheduler: Any) -> None:  # noqa: ARG002 - Dask's signature
        """Somebody restarted the cluster: all tasks are forgotten."""
        self._tell("restart", "")

    def log_event(self, topic: str, msg: Any) -> None:
        """An event was sent on: what the scheduler keeps of ours serves nobody."""
        heard = topic == heard_topic(self._relay_topic)
        if heard and self._gate is not None:
            self._gate.hear(int(msg))
        if heard or topic == self._topic:
            broker = getattr(self._scheduler, "_broker", None)
            if broker is not None:
                broker.truncate(topic)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client is gone: ours may have died without a word."""
        if client == self._client and self.name in scheduler.plugins:
            scheduler.remove_plugin(self.name)

    def _pass_on(self, parcel: bytes) -> None:
        event = (time(), parcel)
        self._scheduler.client_send(self._client, {"op": "event", "topic": self._relay_topic, "event": event})

    def _is_ours(self, key: Any) -> bool:
        return isinstance(key, str) and key.startswith("flightlog-") and self._mark in key

    def _tell(self, what: str, key: str, worker: str | None = None, nanny: str | None = None) -> None:
        self._scheduler.log_event(self._topic, [what, key, worker, nanny])
