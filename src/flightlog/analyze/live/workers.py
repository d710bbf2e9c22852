"""Workers, hosts and devices of a run: who is there, what each does, and how it did over the last minutes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.analyze.live.levels import Level, Sampled
from flightlog.analyze.live.results import NAME, DeviceNow, HostNow, WorkerNow
from flightlog.analyze.live.tasks import EndedAttempt, LiveAttempt
from flightlog.analyze.report.workers import WorkerTally
from flightlog.core.text import cut
from flightlog.core.time import SECOND, moment
from flightlog.events import (
    ResourceSample,
    TaskFailed,
    TaskStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.events.devices import DeviceMemory

LISTED_WORKERS = 200
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

    def worked(self, began: int | None, at: int | None) -> None:
        """It executed something from `began` to `at`."""
        self.heard(at)
        if began is not None and at is not None:
            known = self.bounds
            self.bounds = (began, at) if known is None else (min(known[0], began), max(known[1], at))


class LiveWorkers:
    """Takes what tasks, workers and samples say, in any order. Memory grows with the workers there ever
    were.
    """

    def __init__(self) -> None:
        self.lives = WorkerTally()
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
        self.lives.add(event)
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

    def ended(self, done: EndedAttempt) -> None:
        """A task ended on it."""
        if done.event.worker is not None:
            worker = self.of(done.event.worker)
            worker.ended += 1
            worker.failed += isinstance(done.event, TaskFailed)
            worker.worked(done.began, done.at)

    def sampled(self, event: ResourceSample) -> None:
        """Its process tree was measured. A process that no task and no worker event names is none of the
        workers.
        """
        if event.worker is not None:
            known = self._samples.get(event.worker)
            if known is None or event.timestamp > known.timestamp:
                self._samples[event.worker] = event

    def bounds(self) -> dict[str, tuple[int, int] | None]:
        """The first start and the last end of each that executed something."""
        return {
            name: one.bounds for name, one in self._workers.items() if one.ended or one.bounds is not None
        }

    def results(self, running: Iterable[LiveAttempt], until: int | None, *, over: bool) -> list[WorkerNow]:
        """Busy workers first, then by name."""
        doing: dict[str, list[LiveAttempt]] = {}
        for one in running:
            if one.event.worker is not None:
                doing.setdefault(one.event.worker, []).append(one)
        states = {name: _state(one, name in doing, over=over) for name, one in self._workers.items()}
        named = sorted(states, key=lambda name: (states[name], name))[:LISTED_WORKERS]
        return [self._result(name, states[name], doing.get(name, []), until) for name in named]

    def _result(self, name: str, state: int, doing: list[LiveAttempt], until: int | None) -> WorkerNow:
        one, sample = self._workers[name], self._samples.get(name)
        if sample is not None:
            one.heard(moment(sample.timestamp))
        task = min(doing, key=lambda each: (each.event.timestamp, each.event.task_id), default=None)
        since = None if task is None or task.at is None or until is None else max(0, until - task.at) / SECOND
        fresh = sample is not None and state not in {_GONE, _LOST}
        return WorkerNow(
            worker=cut(name, NAME),
            host=one.host or (sample.host if sample is not None else None),
            state=("busy", "idle", "starting", "lost", "gone")[state],
            task=None if task is None else cut(task.event.task, NAME),
            task_id=None if task is None else cut(task.event.task_id, NAME),
            since_s=since,
            ended=one.ended,
            failed=one.failed,
            cpu_cores=sample.cpu_cores if sample is not None and fresh else None,
            memory_bytes=sample.rss_bytes if sample is not None and fresh else None,
            seen_s=None if one.seen is None or until is None else max(0, until - one.seen) / SECOND,
            running=len(doing),
        )


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
Window = tuple[str, int, int]
"""When it begins, as a timestamp and in nanoseconds, and when it ends."""


class _Host:
    def __init__(self) -> None:
        self.latest: ResourceSample | None = None
        self.cpu, self.memory = Sampled("mean"), Sampled("most")


class _LiveDevice:
    def __init__(self, label: str, host: str | None, scope: str) -> None:
        self.label, self.host, self.scope = label, host, scope
        self.at: tuple[str, str, int] = ("", "", -1)
        self.used: int | None = None
        self.total: int | None = None
        self.percent: float | None = None
        self.memory = Sampled("most")


class LiveMachines:
    """Takes samples of nodes and GPUs and device-memory events, in any order. `limit` is a moment near
    now.
    """

    def __init__(self) -> None:
        self.left_out = False
        self._hosts: dict[str, _Host] = {}
        self._gpus: dict[tuple[object, ...], _LiveDevice] = {}
        self._ranks: dict[tuple[object, ...], _LiveDevice] = {}

    def set_limit(self, limit: int) -> None:
        """What claims to be later than this does not push the past out of the charts."""
        for host in self._hosts.values():
            host.cpu.limit = host.memory.limit = limit
        for device in self._devices():
            device.memory.limit = limit

    def add(self, event: ResourceSample) -> None:
        """A sample; those of workers and tasks are passed over."""
        if event.scope == "node":
            name = event.host or "unknown"
            host = self._hosts.get(name)
            if host is None:
                if len(self._hosts) >= PLACES:
                    self.left_out = True
                    return
                host = self._hosts[name] = _Host()
            at = moment(event.timestamp)
            host.cpu.add(at, event.cpu_percent)
            host.memory.add(at, event.memory_used_bytes)
            if host.latest is None or _when(event) > _when(host.latest):
                host.latest = event
        elif event.scope == "gpu":
            key = (event.host, event.gpu_index, event.gpu_uuid, event.gpu_mig)
            label = (
                f"GPU {event.gpu_index}"
                if event.gpu_index is not None
                else cut(event.gpu_uuid or "GPU", NAME)
            )
            device = self._of(
                self._gpus, key, label + (" (MIG)" if event.gpu_mig else ""), event.host, "device"
            )
            if device is not None:
                device.memory.add(moment(event.timestamp), event.gpu_memory_used_bytes)
                if _when(event) > device.at:
                    device.at = _when(event)
                    device.used, device.total = event.gpu_memory_used_bytes, event.gpu_memory_total_bytes
                    device.percent = event.gpu_percent

    def tracked(self, event: DeviceMemory) -> None:
        """What a process counted of a device's memory."""
        key = (event.host, event.rank, event.pid, event.device_id)
        label = f"rank {event.rank}, device {event.device_id}"
        device = self._of(self._ranks, key, label, event.host, "allocator")
        if device is not None:
            device.memory.add(moment(event.timestamp), event.allocator_allocated_bytes)
            if _when(event) > device.at:
                device.at = _when(event)
                device.used, device.total = event.allocator_allocated_bytes, event.device_total_bytes

    def _of(
        self,
        known: dict[tuple[object, ...], _LiveDevice],
        key: tuple[object, ...],
        label: str,
        host: str | None,
        scope: str,
    ) -> _LiveDevice | None:
        found = known.get(key)
        if found is None:
            if len(known) >= PLACES:
                self.left_out = True
                return None
            found = known[key] = _LiveDevice(label, host, scope)
        return found

    def hosts(self, until: int | None) -> list[HostNow]:
        """In order of their names."""
        found = [(name, host.latest) for name, host in sorted(self._hosts.items()) if host.latest is not None]
        return [
            HostNow(
                host=cut(name, NAME),
                cpu_percent=last.cpu_percent,
                memory_used_bytes=last.memory_used_bytes,
                memory_total_bytes=last.memory_total_bytes,
                seen_s=_ago(last.timestamp, until),
            )
            for name, last in found[:LISTED_MACHINES]
        ]

    def devices(self, until: int | None) -> list[DeviceNow]:
        """GPUs first, then what ranks tracked themselves."""
        return [
            DeviceNow(
                label=cut(one.label, NAME),
                host=None if one.host is None else cut(one.host, NAME),
                scope=one.scope,
                memory_used_bytes=one.used,
                memory_total_bytes=one.total,
                percent=one.percent,
                seen_s=_ago(one.at[0], until),
            )
            for one in list(self._devices())[:LISTED_MACHINES]
        ]

    def _devices(self) -> Iterator[_LiveDevice]:
        for known in (self._gpus, self._ranks):
            yield from sorted(known.values(), key=lambda one: (one.host or "", len(one.label), one.label))

    def cpu(self, window: Window) -> Chart | None:
        """Of each host, in percent."""
        return self._chart(
            "percent", [(name, host.cpu, None) for name, host in sorted(self._hosts.items())], window
        )

    def memory(self, window: Window) -> Chart | None:
        """Of each host, in bytes."""
        lines = [
            (name, host.memory, host.latest.memory_total_bytes if host.latest is not None else None)
            for name, host in sorted(self._hosts.items())
        ]
        return self._chart("bytes", lines, window)

    def device_memory(self, window: Window) -> Chart | None:
        """By rank where ranks tracked it, else by device; in bytes."""
        ranks = [one for one in self._devices() if one.scope == "allocator"]
        shown = ranks or list(self._devices())
        hosts = {one.host for one in shown}
        lines = [
            (one.label if len(hosts) < 2 else f"{one.host}: {one.label}", one.memory, one.total)
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


def _ago(timestamp: str, until: int | None) -> float | None:
    at = moment(timestamp)
    return None if at is None or until is None else max(0, until - at) / SECOND
