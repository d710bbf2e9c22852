"""Workers, hosts and devices of a run: who is there, what each does, and how it did over the last minutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.analyze.live.levels import Level, Sampled
from flightlog.analyze.live.results import NAME, DeviceNow, HostNow, WorkerNow
from flightlog.analyze.live.tasks import Attempt
from flightlog.analyze.tallies import grouped
from flightlog.core.intervals import peak
from flightlog.core.text import cut
from flightlog.core.time import SECOND, moment
from flightlog.events import (
    ResourceSample,
    TaskStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.events.devices import DeviceMemory

LISTED_WORKERS = 200
ENOUGH = 3
"""Number of attempts that show whether a worker executes several at once."""
_ORDER = (WorkerLaunched, WorkerReady, WorkerLost, WorkerRemoved)
_BUSY, _IDLE, _STARTING, _LOST, _GONE = range(5)


class OneWorker:
    """What is known of one worker."""

    __slots__ = ("bounds", "ended", "failed", "host", "sample", "seen", "step")

    def __init__(self) -> None:
        self.host: str | None = None
        self.ended = self.failed = 0
        self.step: tuple[str, int, int, type[WorkerEvent]] | None = None
        self.sample: ResourceSample | None = None
        self.seen: int | None = None
        self.bounds: tuple[int, int] | None = None

    def heard(self, at: int | None) -> None:
        """It showed a sign of life."""
        if at is not None and (self.seen is None or at > self.seen):
            self.seen = at

    def worked(self, began: int, until: int) -> None:
        """It executed something in this interval."""
        known = self.bounds
        self.bounds = (began, until) if known is None else (min(known[0], began), max(known[1], until))


class LiveWorkers:
    """Takes what tasks, workers and samples say, in any order. Memory grows with the workers there ever
    were.
    """

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        self.up_level = Level()
        self._workers: dict[str, OneWorker] = {}
        self._samples: dict[str, ResourceSample] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def of(self, name: str) -> OneWorker:
        """What is known of a worker."""
        found = self._workers.get(name)
        if found is None:
            found = self._workers[name] = OneWorker()
        return found

    def add(self, event: WorkerEvent) -> None:
        """A step in the life of a worker."""
        worker = self.of(event.worker)
        at = moment(event.timestamp)
        self.events.append(event)
        worker.heard(at)
        if event.host is not None:
            worker.host = event.host if worker.host is None else min(worker.host, event.host)
        step = (event.timestamp, _ORDER.index(type(event)), event.seq, type(event))
        if worker.step is None or step[:3] > worker.step[:3]:
            worker.step = step
        if isinstance(event, WorkerLaunched):
            self.up_level.add(at, 1)
        elif isinstance(event, WorkerLost | WorkerRemoved):
            self.up_level.add(at, -1)

    def started(self, event: TaskStarted, at: int | None) -> None:
        """A task began on it."""
        if event.worker is not None:
            self.of(event.worker).heard(at)

    def ended(self, one: Attempt) -> None:
        """A task ended on it."""
        if one.worker is not None:
            worker = self.of(one.worker)
            worker.ended += 1
            worker.failed += one.state == "failed"
            worker.heard(one.until)
            if one.ran is not None:
                worker.worked(*one.ran)

    def sampled(self, event: ResourceSample) -> None:
        """Its process tree was measured. A process that no task and no worker event names is none of the
        workers.
        """
        if event.worker is not None:
            known = self._samples.get(event.worker)
            if known is None or event.timestamp > known.timestamp:
                self._samples[event.worker] = event

    @property
    def up(self) -> int:
        """Workers that are up, by their events."""
        ends = {WorkerLost, WorkerRemoved}
        return sum(one.step is not None and one.step[3] not in ends for one in self._workers.values())

    def began(self, name: str) -> int | None:
        """When the first task of a worker began, of those that ended."""
        found = self._workers.get(name)
        return None if found is None or found.bounds is None else found.bounds[0]

    def results(
        self, running: Iterable[Attempt], ended: Sequence[Attempt], until: int | None, *, over: bool
    ) -> list[WorkerNow]:
        """Busy workers first, then by name; `ended` are the last attempts that did."""
        doing = grouped((one.worker, one) for one in running if one.worker is not None)
        for name, several in doing.items():
            if len(several) > 1:
                doing[name] = _at_once(several, [one.ran for one in ended if one.worker == name])
        states = {name: _state(one, name in doing, over=over) for name, one in self._workers.items()}
        named = sorted(states, key=lambda name: (states[name], name))[:LISTED_WORKERS]
        return [self._result(name, states[name], doing.get(name, []), until) for name in named]

    def _result(self, name: str, state: int, doing: list[Attempt], until: int | None) -> WorkerNow:
        one, sample = self._workers[name], self._samples.get(name)
        if sample is not None:
            one.heard(moment(sample.timestamp))
        task = min(doing, key=lambda each: (each.at, each.last.task_id), default=None)
        began = None if task is None else task.since
        since = None if began is None or until is None else max(0, until - began) / SECOND
        fresh = sample is not None and state not in {_GONE, _LOST}
        return WorkerNow(
            worker=cut(name, NAME),
            host=one.host or (sample.host if sample is not None else None),
            state=("busy", "idle", "starting", "lost", "gone")[state],
            task=None if task is None else cut(task.last.task, NAME),
            task_id=None if task is None else cut(task.last.task_id, NAME),
            since_s=since,
            ended=one.ended,
            failed=one.failed,
            cpu_cores=sample.cpu_cores if sample is not None and fresh else None,
            memory_bytes=sample.rss_bytes if sample is not None and fresh else None,
            seen_s=None if one.seen is None or until is None else max(0, until - one.seen) / SECOND,
            running=len(doing),
        )


def _at_once(running: list[Attempt], ended: Sequence[tuple[int, int] | None]) -> list[Attempt]:
    """Those of a worker's attempts that it executes by now, where it has always executed one after the other:
    the end of the one may be read later than the start of the next.
    """
    known = [ran for ran in ended if ran is not None]
    if len(known) < ENOUGH or peak(known) > 1:
        return running
    return [max(running, key=lambda one: (one.at, one.order))]


def _state(one: OneWorker, busy: bool, *, over: bool) -> int:
    kind = one.step[3] if one.step is not None else None
    if kind is WorkerLost:
        return _LOST
    if kind is WorkerRemoved or over:
        return _GONE
    if busy:
        return _BUSY
    return _STARTING if kind is WorkerLaunched and not one.ended else _IDLE


PLACES = 500
"""Maximum number of hosts, and of devices, that are tracked; further ones are left out, and a note says
so."""
LISTED_MACHINES = 64
DRAWN = 16
Key = tuple[object, ...]
Window = tuple[str, int, int]
"""When it begins, as a timestamp and in nanoseconds, and when it ends."""


class _Place:
    """A host or a device, with its latest sample, and what that says: memory in use and memory there is, in
    bytes, and how busy it is, in percent.
    """

    def __init__(self, label: str, host: str | None, scope: str) -> None:
        self.label, self.host, self.scope = label, host, scope
        self.latest: ResourceSample | DeviceMemory | None = None
        self.said: tuple[int | None, int | None, float | None] = (None, None, None)
        self.load, self.memory = Sampled("mean"), Sampled("most")

    def add(
        self, event: ResourceSample | DeviceMemory, used: int | None, total: int | None, percent: float | None
    ) -> None:
        at = moment(event.timestamp)
        self.load.add(at, percent)
        self.memory.add(at, used)
        if self.latest is None or _when(event) > _when(self.latest):
            self.latest, self.said = event, (used, total, percent)

    def seen_s(self, until: int | None) -> float | None:
        """How long ago it was sampled last."""
        at = None if self.latest is None else moment(self.latest.timestamp)
        return None if at is None or until is None else max(0, until - at) / SECOND


class LiveMachines:
    """Takes samples of nodes and GPUs and device-memory events, in any order."""

    def __init__(self) -> None:
        self.left_out = False
        self._places: dict[str, dict[Key, _Place]] = {"node": {}, "device": {}, "allocator": {}}
        """Hosts, GPUs, and what ranks tracked themselves."""

    def set_limit(self, limit: int) -> None:
        """Set a moment near now: what claims to be later does not push the past out of the charts."""
        for place in (*self._hosts(), *self._devices()):
            place.load.limit = place.memory.limit = limit

    def add(self, event: ResourceSample) -> None:
        """A sample; those of workers and tasks are passed over."""
        if event.scope == "node":
            name = event.host or "unknown"
            use = (event.memory_used_bytes, event.memory_total_bytes, event.cpu_percent)
            self._take("node", (name,), name, event, *use)
        elif event.scope == "gpu":
            key = (event.host, event.gpu_index, event.gpu_uuid, event.gpu_mig)
            index, uuid = event.gpu_index, cut(event.gpu_uuid or "GPU", NAME)
            label = f"{uuid if index is None else f'GPU {index}'}{' (MIG)' * bool(event.gpu_mig)}"
            use = (event.gpu_memory_used_bytes, event.gpu_memory_total_bytes, event.gpu_percent)
            self._take("device", key, label, event, *use)

    def tracked(self, event: DeviceMemory) -> None:
        """What a process counted of a device's memory."""
        key = (event.host, event.rank, event.pid, event.device_id)
        label = f"rank {event.rank}, device {event.device_id}"
        use = (event.allocator_allocated_bytes, event.device_total_bytes, None)
        self._take("allocator", key, label, event, *use)

    def _take(
        self, scope: str, key: Key, label: str, event: ResourceSample | DeviceMemory, *use: Any
    ) -> None:
        known = self._places[scope]
        place = known.get(key)
        if place is None:
            if len(known) >= PLACES:
                self.left_out = True
                return
            place = known[key] = _Place(label, event.host, scope)
        place.add(event, *use)

    def samples(self) -> list[ResourceSample]:
        """The latest of each host and of each GPU."""
        places = (*self._places["node"].values(), *self._places["device"].values())
        return [place.latest for place in places if isinstance(place.latest, ResourceSample)]

    def hosts(self, until: int | None) -> list[HostNow]:
        """In order of their names."""
        return [
            HostNow(
                host=cut(place.label, NAME),
                cpu_percent=place.said[2],
                memory_used_bytes=place.said[0],
                memory_total_bytes=place.said[1],
                seen_s=place.seen_s(until),
            )
            for place in self._hosts()[:LISTED_MACHINES]
        ]

    def devices(self, until: int | None) -> list[DeviceNow]:
        """GPUs first, then what ranks tracked themselves."""
        return [
            DeviceNow(
                label=cut(place.label, NAME),
                host=None if place.host is None else cut(place.host, NAME),
                scope=place.scope,
                memory_used_bytes=place.said[0],
                memory_total_bytes=place.said[1],
                percent=place.said[2],
                seen_s=place.seen_s(until),
            )
            for place in self._devices()[:LISTED_MACHINES]
        ]

    def _hosts(self) -> list[_Place]:
        return sorted(self._places["node"].values(), key=lambda place: place.label)

    def _devices(self, *scopes: str) -> list[_Place]:
        return [
            place
            for scope in scopes or ("device", "allocator")
            for place in sorted(
                self._places[scope].values(), key=lambda one: (one.host or "", len(one.label), one.label)
            )
        ]

    def cpu(self, window: Window) -> Chart | None:
        """Of each host, in percent."""
        return self._chart("percent", [(host.label, host.load, None) for host in self._hosts()], window)

    def memory(self, window: Window) -> Chart | None:
        """Of each host, in bytes."""
        lines = [(host.label, host.memory, host.said[1]) for host in self._hosts()]
        return self._chart("bytes", lines, window)

    def device_memory(self, window: Window) -> Chart | None:
        """By rank where ranks tracked it, else by device; in bytes."""
        shown = self._devices("allocator") or self._devices("device")
        hosts = {one.host for one in shown}
        lines = [
            (one.label if len(hosts) < 2 else f"{one.host}: {one.label}", one.memory, one.said[1])
            for one in shown
        ]
        return self._chart("bytes", lines, window)

    def _chart(
        self, unit: Literal["percent", "bytes"], lines: list[tuple[str, Sampled, int | None]], window: Window
    ) -> Chart | None:
        text, since, until = window
        series: list[ChartSeries] = []
        for label, sampled, limit in lines[:DRAWN]:
            at, value = sampled.points(since, until)
            if at:
                series.append(ChartSeries(label=cut(label, NAME), at_s=at, value=value, limit=limit))
        if not series:
            return None
        notes = [f"{len(lines) - DRAWN} more are not drawn"] if len(lines) > DRAWN else []
        return Chart(
            since=text, length_s=max(0, until - since) / SECOND, unit=unit, series=series, notes=notes
        )


def _when(event: ResourceSample | DeviceMemory) -> tuple[str, str, int]:
    return event.timestamp, event.writer, event.seq
