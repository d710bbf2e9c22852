"""What is counted: tallies that cost next to nothing, given to OpenTelemetry when it asks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from flightlog.compat.rhapsody.telemetry.events import BaseEvent, ResourceUpdate, seconds_of

COUNTED = {
    "TaskSubmitted": "submitted",
    "TaskStarted": "started",
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskCanceled": "canceled",
}
ENDS = frozenset({"TaskCompleted", "TaskFailed", "TaskCanceled"})
MAX_EXECUTABLES = 100
"""Executables that a metric tells apart; the others are one."""
_NODE = ("cpu_percent", "memory_percent", "gpu_percent")
_KEPT = (*_NODE, "disk_read_bytes", "disk_write_bytes", "net_sent_bytes", "net_recv_bytes")


class Tallies:
    """Counts of tasks and the latest samples of nodes. Thread-safe.

    A task counts once as running, from its start to its end, so that the gauge is never below 0. Memory grows
    with the number of tasks that run, of executables and of nodes, and not with the number of tasks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str, str, str]] = Counter()
        self._running: dict[str, tuple[str, str, str, str]] = {}
        self._nodes: dict[str, tuple[dict[str, str], ResourceUpdate]] = {}
        self._executables: set[str] = set()
        self.timed = 0
        self.total_s = self.least_s = self.most_s = 0.0
        self.record: Callable[[float, dict[str, str]], None] = lambda seconds, labels: None  # noqa: ARG005

    def add(self, event: BaseEvent) -> None:
        """Take one event in."""
        kind = event.event_type
        timed: tuple[float, dict[str, str]] | None = None
        with self._lock:
            if isinstance(event, ResourceUpdate):
                if event.gpu_id is None:
                    key, labels = _node(event)
                    self._nodes[key] = (labels, event)
            elif kind in COUNTED:
                labels_key = self._labels(event)
                self._counts[COUNTED[kind], *labels_key] += 1
                if kind == "TaskStarted" and event.task_id is not None:
                    self._running.setdefault(event.task_id, labels_key)
                elif kind in ENDS:
                    self._running.pop(event.task_id or "", None)
                    timed = self._time(event, labels_key)
        if timed is not None:
            self.record(*timed)  # without the lock: OpenTelemetry has locks of its own

    def count(self, what: str) -> int:
        """How many tasks were submitted, started, completed, failed or canceled, or are running."""
        with self._lock:
            if what == "running":
                return len(self._running)
            return sum(number for key, number in self._counts.items() if key[0] == what)

    def running(self) -> list[str]:
        """The tasks that have started and not ended."""
        with self._lock:
            return list(self._running)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The latest sample of each node, or worker where a backend samples those."""
        with self._lock:
            return {
                key: {"backend": event.backend, "node_id": event.node_id}
                | {name: getattr(event, name) for name in _KEPT}
                for key, (_, event) in self._nodes.items()
            }

    def observed(self, what: str) -> list[tuple[float, dict[str, str]]]:
        """A metric's values with their labels."""
        with self._lock:
            if what in _NODE:
                found = ((getattr(event, what), labels) for labels, event in self._nodes.values())
                return [(value, labels) for value, labels in found if value is not None]
            if what == "running":
                seen = dict.fromkeys((key[1:] for key in self._counts if key[0] == "started"), 0)
                now = Counter(seen)
                now.update(self._running.values())
                return [(number, _named(labels)) for labels, number in now.items()]
            return [(number, _named(key[1:])) for key, number in self._counts.items() if key[0] == what]

    def _labels(self, event: BaseEvent) -> tuple[str, str, str, str]:
        executable = str(event.attributes.get("executable", ""))
        if executable not in self._executables:
            if len(self._executables) < MAX_EXECUTABLES:
                self._executables.add(executable)
            else:
                executable = "other"
        return event.session_id, event.backend or "", executable, str(event.attributes.get("task_type", ""))

    def _time(
        self, event: BaseEvent, labels: tuple[str, str, str, str]
    ) -> tuple[float, dict[str, str]] | None:
        seconds = seconds_of(event)
        if seconds is None or event.attributes.get("incomplete_lifecycle"):
            return None
        self.least_s = seconds if not self.timed else min(self.least_s, seconds)
        self.most_s = max(self.most_s, seconds)
        self.timed += 1
        self.total_s += seconds
        return seconds, _named(labels)


def instrument(meter: Any, tallies: Tallies) -> None:
    """Let a meter of OpenTelemetry's ask the tallies. No label grows with the number of tasks."""
    from opentelemetry.metrics import Observation

    def ask(what: str) -> Callable[[Any], Iterable[Any]]:
        return lambda options: [  # noqa: ARG005 - the SDK's signature
            Observation(value, labels) for value, labels in tallies.observed(what)
        ]

    for what in COUNTED.values():
        meter.create_observable_counter(f"tasks_{what}", [ask(what)], description=f"Tasks {what}")
    meter.create_observable_up_down_counter(
        "tasks_running", [ask("running")], description="Tasks that run now"
    )
    duration = meter.create_histogram(
        "task_duration_seconds", unit="s", description="Execution of a task, without its waiting"
    )
    tallies.record = duration.record
    for name, what in (("cpu", "cpu_percent"), ("memory", "memory_percent"), ("gpu", "gpu_percent")):
        meter.create_observable_gauge(
            f"node_{name}_utilization", [ask(what)], unit="%", description=f"How busy a node's {name} is"
        )


def _named(labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(("session_id", "backend", "executable", "task_type"), labels, strict=True))


def _node(event: ResourceUpdate) -> tuple[str, dict[str, str]]:
    labels = {
        "session_id": event.session_id,
        "backend": event.backend or "",
        "node_id": str(event.node_id or ""),
    }
    key = f"{event.backend}/{event.node_id}"
    worker = event.attributes.get("worker")
    if worker is not None:
        labels["worker"] = str(worker)
        key += f"/{worker}"
    return key, labels
