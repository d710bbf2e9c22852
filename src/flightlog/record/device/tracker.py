"""A tracker: samples the memory of a framework's devices into a run, on a thread of its own.

Readings of allocators and drivers become events: samples, new peaks and alerts. Figures come from the
framework's allocator, once there is one, and from the GPU's driver. A framework that takes long to answer is
asked less often. In a distributed job the tracker measures how far apart the ranks' clocks are.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Literal
from uuid import uuid4

from msgspec import Struct, structs

from flightlog.core import threads
from flightlog.events import DeviceMemory
from flightlog.events.devices.records import fill_unknown_counters, resolve_distributed_identity
from flightlog.record.background import Ticker, is_over
from flightlog.record.clock import Clock, monotonic_ns
from flightlog.record.context import active_runs
from flightlog.record.device import oom
from flightlog.record.limits import TrackingLimits
from flightlog.record.recorder import Recorder
from flightlog.record.run import LiveRun
from flightlog.record.span import RootSpan, Span, current
from flightlog.record.task import AttemptSpan
from flightlog.record.values import bounded, text_of
from flightlog.samplers.frameworks import AUTO, HOST, Allocator, AllocatorReading, find_allocator
from flightlog.samplers.gpu.driver import Depth, Device, GpuDriver, open_driver


class Options(Struct, frozen=True):
    """How to track. Percentages are of the device's memory; None switches an alert off."""

    framework: str = AUTO
    interval_s: float = 0.1
    warning_percent: float | None = 85.0
    critical_percent: float | None = 95.0
    change_bytes: int = 64 << 20
    snapshot_bytes: int = TrackingLimits.max_snapshot_bytes


class DeviceMemoryTracker:
    """What tracks in one process; from `flightlog.track_device_memory`. Any thread may call it, nothing
    raises.
    """

    def __init__(self, run: LiveRun, options: Options, source: DeviceSource | None = None) -> None:
        self.options = options
        self.snapshot_bytes = options.snapshot_bytes
        self._run, self._recorder = run, run.recorder
        self._source = source or DeviceSource(options.framework)
        self._maker = EventMaker(self._recorder, options.interval_s)
        self._watches: dict[int, DeviceWatch] = {}
        self._last: dict[int, AllocatorReading] = {}
        self._recent: deque[DeviceMemory] = deque(maxlen=TrackingLimits.max_recent_events)
        self._lock = threads.RLock()  # a signal handler may end the run in the middle of a sample
        self._pid = os.getpid()
        self._pace = SamplingPace()
        self._hangs = False
        self._observed = False
        self.samples = 0
        """How many readings were recorded so far."""
        self._ticks = 0
        self._failed: set[str] = set()
        self._stopped = False
        self._at_exit: Any = None
        self._ticker: Ticker | None = None
        self.on_stop: Callable[[], None] = lambda: None

    @property
    def session_id(self) -> str:
        """The session that the events are of."""
        return self._maker.session_id

    @property
    def allocator(self) -> Allocator | None:
        """The framework's allocator, once there is one."""
        return self._source.allocator

    def begin(self) -> None:
        """Sample at the interval, on a thread of its own, which ends before the interpreter does."""
        oom.register(self._recorder, self)
        atexit.register(self._end)  # else it could be inside the framework while that is taken down
        self._ticker = Ticker(
            "flightlog-device-memory", self.options.interval_s, self._tick, self._recorder.trouble
        )

    def sample(self) -> None:
        """Take a sample now: for a phase shorter than the interval."""
        self._sample(_here(self._recorder))

    def dump(self, reason: str = "on request") -> Path | None:
        """Write a bundle as for an out of memory; gives its folder, or None where the run has no room for
        more.
        """
        if self._stopped or os.getpid() != self._pid:
            return None
        return oom.dump(self._recorder, bounded(text_of(reason), 500), reporter=self, seen_by="request")

    def align(self) -> int | None:
        """Measure how far this rank's clock is from rank 0's, in ns, and record it; None where that cannot be
        had.

        All ranks of `torch.distributed` must call it: it communicates. Analysis then puts ranks on one clock.
        """
        try:
            offset = offset_to_first_rank(sys.modules.get("torch"), self._recorder.clock)
        except Exception as error:  # noqa: BLE001 - whatever the program's process group answers
            self._trouble(error, "the clocks of the ranks could not be compared")
            return None
        if offset is not None:
            self._sample(_here(self._recorder), clock_offset_ns=offset)
        return offset

    def report(self, facts: Mapping[str, Any], here: Span | None = None) -> Sequence[DeviceMemory]:
        """Record an `error` event with a fresh reading; gives the last events."""
        if self._locked():
            try:
                try:
                    self._last |= self._source.read()
                except Exception as error:  # noqa: BLE001 - a framework that has just run out of memory
                    self._trouble(error, "the framework's memory could not be read")
                device = facts.get("device_id", max(self._last, key=self._fullness, default=None))
                if device in self._last:
                    where = here or _here(self._recorder)
                    self._emit([self._event("error", device, where, **_clock(), **facts)])
            finally:
                self._release()
        return tuple(self._recent)

    def stop(self) -> None:
        """Take the last sample and end the session; once, and only in the process that began it."""
        self._finish(last_sample=True)

    def _end(self) -> None:
        """The process ends: where nothing was recorded so far, it is too late to begin."""
        self._finish(last_sample=self.samples > 0)

    def _finish(self, *, last_sample: bool) -> None:
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.stop(timeout_s=1.0)
        atexit.unregister(self._end)
        if self._at_exit is not None:
            self._at_exit.cancel()
        self.on_stop()
        if self._locked():
            try:
                if last_sample:
                    self._sample(_here(self._recorder), ending=True)
                if self._last:
                    summary: dict[str, Any] = {
                        "samples": self.samples,
                        "tracking_cpu_s": ticker.cpu_s if ticker is not None else None,
                        "failures": len(self._failed),
                        "peak_bytes_by_device": {str(d): w.peak_bytes for d, w in self._watches.items()},
                    }
                    self._emit([self._event("stop", min(self._last), None, **summary)])
                self._source.close()
            except Exception as error:  # noqa: BLE001 - the program ends as it would have
                self._trouble(error, "the tracking of device memory could not end in good order")
            finally:
                self._release()
        oom.stop_observing(self._recorder)
        oom.unregister(self._recorder, self)

    def _tick(self) -> None:
        self._ticks += 1
        look = not self._run.owned and self._ticks % TrackingLimits.end_check_interval == 0
        if look and (self._run not in active_runs() or is_over(self._run.path)):
            self.stop()
            return
        if not self._pace.run(lambda: self._sample(innermost(list(self._recorder.open.values())))):
            self._recorder.count("device_samples_missed")

    def _locked(self) -> bool:
        """Take the lock; not where another thread has had it for long: a driver that hangs must not hold us
        up.
        """
        taken = self._lock.acquire(timeout=0 if self._hangs else TrackingLimits.sample_lock_timeout_s)
        self._hangs = not taken
        return taken

    def _release(self) -> None:
        self._hangs = False  # whoever had it for long is done
        self._lock.release()

    def _sample(self, here: Span | None, *, ending: bool = False, **more: Any) -> None:
        if os.getpid() != self._pid or (self._stopped and not ending):
            return
        if not self._locked():
            self._recorder.count("device_samples_missed")
            return
        try:
            found = self._source.read()
            if found:
                self._look_for_rank()
            if found and not self._observed and self.allocator is not None:
                self._observed = self._observe_oom(self.allocator)
            for device, reading in found.items():
                self._take(device, reading, here, more)
            if self._source.failed is not None:
                self._trouble(self._source.failed, "the memory of a device could not be read")
        except Exception as error:  # noqa: BLE001 - the framework's own errors stay here
            self._trouble(error, "the framework's memory could not be read")
        finally:
            self._release()

    def _look_for_rank(self) -> None:
        """A process may become a rank late: what comes from then on is a session of that rank."""
        if not self._last:
            self._maker.identity = identity()
        elif self._maker.identity["world_size"] == 1 and self.samples % TrackingLimits.rank_interval == 0:
            later = EventMaker(self._recorder, self.options.interval_s)
            if later.identity["world_size"] > 1:
                self._emit([self._event("stop", min(self._last), None, reason="the process became a rank")])
                self._maker = later
                self._last.clear()
                self._watches.clear()

    def _take(self, device: int, reading: AllocatorReading, here: Span | None, more: dict[str, Any]) -> None:
        now = monotonic_ns()
        first = not self._last
        self._last[device] = reading
        events = []
        if first:
            allocator = self.allocator
            known = allocator.capabilities.as_metadata() if allocator is not None else {}
            events.append(self._event("start", device, here, now, memory_capabilities=known, **_clock()))
        watch = self._watches.get(device)
        if watch is None:
            alerts = Alerts(self.options.warning_percent, self.options.critical_percent)
            watch = self._watches[device] = DeviceWatch(alerts, self.options.change_bytes)
        for kind, change in watch.observe(reading):
            events.append(self._event(kind, device, here, now, change, **more))
        self.samples += 1
        self._emit(events)
        if first and not self._stopped:
            self._end_with_the_process()

    def _event(
        self, kind: str, device: int, here: Span | None, now: int | None = None, change: int = 0, **more: Any
    ) -> DeviceMemory:
        allocator = self._source.allocator
        assert allocator is not None
        more.pop("device_id", None)
        reading = self._last[device]
        return self._maker.make(
            kind, allocator, device, reading, change=change, here=here, now_ns=now, **more
        )

    def _emit(self, events: list[DeviceMemory]) -> None:
        self._recent.extend(events)
        self._recorder.emit_all(events)

    def _fullness(self, device: int) -> tuple[float, int]:
        reading = self._last[device]
        return percent_used(reading) or 0.0, reading.allocated_bytes or 0

    def _observe_oom(self, allocator: Allocator) -> bool:
        if allocator.name not in ("torch.cuda", "torch.rocm"):
            return True
        return (
            oom.observe(sys.modules.get("torch"), self._recorder)
            or self._ticks > TrackingLimits.end_check_interval
        )

    def _trouble(self, error: Exception, what: str) -> None:
        """Say once for each kind of error, in the log and as an `error` event, and go on."""
        kind = type(error).__name__
        if kind in self._failed:
            return
        self._failed.add(kind)
        self._recorder.trouble(f"device memory {kind}", f"{what}: {kind}: {bounded(text_of(error), 500)}")
        if self._last:
            facts: dict[str, Any] = {"message": bounded(text_of(error), 2000), "reason": what, **_clock()}
            self._emit([self._event("error", min(self._last), None, error_type=kind, **facts)])

    def _end_with_the_process(self) -> None:
        """Stop before the process leaves the run: whoever registers last is called first."""
        atexit.unregister(self._end)
        atexit.register(self._end)
        if "multiprocessing.util" in sys.modules:  # its children end without atexit
            from multiprocessing.util import Finalize

            self._at_exit = Finalize(None, self._end, exitpriority=-99)


class UntrackedDevices:
    """Tells of the devices at an out of memory that nobody tracked: one reading, and nothing from before."""

    snapshot_bytes = TrackingLimits.max_snapshot_bytes

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._source = DeviceSource()
        self.allocator: Allocator | None = None

    def report(self, facts: Mapping[str, Any], here: Span | None = None) -> Sequence[DeviceMemory]:
        """Record an `error` event for each device in use, the one it is about last; none where none can be
        read.
        """
        maker = EventMaker(self._recorder, 0.0)
        try:
            found = self._source.read()
        except Exception as error:  # noqa: BLE001 - a framework that has just run out of memory
            self._recorder.trouble(
                "device memory", f"the framework's memory could not be read: {text_of(error)}"
            )
            return ()
        finally:
            self._source.close()
        self.allocator = allocator = self._source.allocator
        if allocator is None:
            return ()
        about = facts.get("device_id")
        devices = sorted(found.items(), key=lambda one: (one[0] == about, percent_used(one[1]) or 0.0))
        said = {key: value for key, value in facts.items() if key != "device_id"} | _clock()
        where = here or _here(self._recorder)
        events = [maker.make("error", allocator, *one, here=where, **said) for one in devices]
        self._recorder.emit_all(events)
        return events


def _here(recorder: Recorder) -> Span | None:
    """The innermost open span of this thread, else of the process."""
    here = current.get()
    if here is not None and here._sink is recorder and here.name:
        return here
    return innermost(list(recorder.open.values()))


def _clock() -> dict[str, int]:
    return {"monotonic_ns": monotonic_ns()}


class DeviceSource:
    """Readings of the devices that a program uses; one thread at a time. May raise what the framework raises.

    `failed` is what the last reading met on a device, while others could be read.
    """

    def __init__(
        self,
        wanted: str = AUTO,
        *,
        find: Callable[[str], Allocator | None] = find_allocator,
        driver: Callable[[], GpuDriver | None] = open_driver,
    ) -> None:
        self.allocator: Allocator | None = None
        self._wanted, self._find, self._open = wanted, find, driver
        self._driver: GpuDriver | None = None
        self._driver_asked = False
        self._devices: Mapping[int, Device] = {}
        self._looked = 0
        self.failed: Exception | None = None

    def look(self) -> Allocator | None:
        """The allocator of the program's framework, as soon as it has one."""
        found = self.allocator
        self._looked += 1
        on_host = found is not None and found.name.endswith(".cpu") and not self._wanted.endswith(".cpu")
        if found is None or (on_host and self._looked % TrackingLimits.accelerator_check_interval == 0):
            self.allocator = self._find(self._wanted) or found
        return self.allocator

    def read(self) -> dict[int, AllocatorReading]:
        """Every device in use that can be read, by its number: its allocator's figures, and its memory by
        everyone.
        """
        self.failed = None
        allocator = self.look()
        if allocator is None:
            return {}
        found: dict[int, AllocatorReading] = {}
        for device in allocator.devices():
            try:
                reading = allocator.read(device)
            except Exception as error:  # noqa: BLE001 - one device that is lost must not hide the others
                self.failed = error
                continue
            found[device] = structs.replace(reading, **self._use(allocator, device, reading))
        if self.failed is not None and not found:
            raise self.failed
        return found

    def close(self) -> None:
        """Let the driver go."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _use(self, allocator: Allocator, device: int, reading: AllocatorReading) -> dict[str, Any]:
        """What is known of the device by the best source: driver, framework's runtime, allocator."""
        if device != HOST and not self._driver_asked:
            self._driver_asked = True
            self._driver = self._open()
            if self._driver is not None:
                self._devices = {known.ordinal: known for known in self._driver.devices()}
        known = self._devices.get(device)
        if self._driver is not None and known is not None:
            now = self._driver.read(known, Depth.MEMORY)
            if now.memory_used_bytes is not None:
                sizes = now.memory_used_bytes, now.memory_free_bytes, now.memory_total_bytes
                return _device(*sizes, device_uuid=known.mig or known.uuid)
        ask: Any = getattr(allocator, "device_memory", None)
        if ask is not None:
            try:
                free, total = ask(device)
                return _device(max(total - free, 0), free, total)
            except Exception as error:  # noqa: BLE001 - the allocator's own figures are worth having without
                self.failed = error
        return {"device_source": None if reading.device_used_bytes is None else "driver"}


def _device(used: int, free: int | None, total: int | None, **more: Any) -> dict[str, Any]:
    sizes = {"device_used_bytes": used, "device_free_bytes": free, "device_total_bytes": total}
    return {**sizes, "device_source": "driver", **more}


class SamplingPace:
    """Says whether the next reading is due; one thread. By CPU time: what only waits costs the program
    nothing.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._not_before = float("-inf")

    def run(self, reading: Callable[[], None]) -> bool:
        """Take the reading if it is due; whether it was."""
        if self._clock() < self._not_before:
            return False
        began = self._cpu()
        try:
            reading()
        finally:
            rest_s = TrackingLimits.rest_factor * (self._cpu() - began)
            self._not_before = self._clock() + min(rest_s, TrackingLimits.max_rest_s)
        return True


def offset_to_first_rank(torch: Any, clock: Clock) -> int | None:
    """The clock of this rank minus rank 0's, in ns: the median over rounds in which all ranks leave a barrier
    together.

    As good as ranks leave a barrier together: tens of microseconds on one host, a network's round trip
    otherwise. None without a process group. Every rank must call it; it may raise what the process group
    raises.
    """
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    offsets = []
    for _ in range(TrackingLimits.calibration_rounds):
        distributed.barrier()
        mine = monotonic_ns() + clock.anchor_ns
        sent = torch.tensor([mine], dtype=torch.int64, device=device)
        distributed.broadcast(sent, src=0)
        offsets.append(mine - int(sent.item()))
    return 0 if distributed.get_rank() == 0 else round(median(offsets))


_IN_METADATA = (
    *("device_uuid", "peak_allocated_bytes", "peak_reserved_bytes"),
    *("inactive_split_bytes", "largest_free_bytes", "limit_bytes"),
)


class EventMaker:
    """Builds the events of one session: one tracker in one process."""

    def __init__(self, recorder: Recorder, interval_s: float) -> None:
        self.session_id = str(uuid4())
        self.identity = identity()
        self._recorder = recorder
        self._common: dict[str, Any] = {
            "schema_version": 3,
            "session_id": self.session_id,
            "sampling_interval_ms": round(interval_s * 1000),
            "pid": os.getpid(),
            "host": recorder.host or "unknown",
        }

    def make(
        self,
        kind: str,
        allocator: Allocator,
        device: int,
        reading: AllocatorReading,
        *,
        change: int = 0,
        here: Span | None = None,
        now_ns: int | None = None,
        **more: Any,
    ) -> DeviceMemory:
        """An event of a moment, now unless said. v3 knows no unknown counter: it is 0, or the nearest that is
        known, and `metadata.memory_capabilities` says that it is unknown.
        """
        now = monotonic_ns() if now_ns is None else now_ns
        clock = self._recorder.clock
        allocated, reserved = reading.allocated_bytes, reading.reserved_bytes
        used, source = reading.device_used_bytes, reading.device_source
        if used is None:
            used, source = max((n for n in (allocated, reserved) if n is not None), default=None), "allocator"
        counters: dict[str, Any] = {
            "allocator_allocated_bytes": allocated,
            "allocator_reserved_bytes": reserved,
            "allocator_change_bytes": None if allocated is None else change,
            "device_used_bytes": used,
        }
        unknown = {**allocator.capabilities.unknown(), **fill_unknown_counters(counters)}
        found: dict[str, Any] = {name: getattr(reading, name) for name in _IN_METADATA}
        found |= {"device_used_source": source, "ooms": reading.ooms or None}
        metadata = {name: value for name, value in found.items() if value is not None}
        if unknown:
            metadata["memory_capabilities"] = {"backend": allocator.capabilities.backend, **unknown}
        free, total = reading.device_free_bytes, reading.device_total_bytes
        if total is not None:
            counters["device_used_bytes"] = min(counters["device_used_bytes"], total)
        return DeviceMemory(
            timestamp=clock.iso(now),
            timestamp_ns=now + clock.anchor_ns,
            event_type=kind,
            collector=f"flightlog.{allocator.name}",
            device_id=device,
            allocator_active_bytes=reading.active_bytes,
            allocator_inactive_bytes=reading.inactive_bytes,
            device_free_bytes=free if free is None or total is None else min(free, total),
            device_total_bytes=total,
            **counters,
            context=bounded(text_of(here.name), 200) if here is not None else None,
            metadata={**metadata, **place_of(here), **more},
            **self._common,
            **self.identity,
        )


def identity(environ: Mapping[str, str] | None = None, modules: Mapping[str, Any] | None = None) -> Any:
    """Rank and size of this process: as `torch.distributed` knows them, else as the launcher's variables say.

    What cannot be is one process alone; never raises.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {}
    distributed = (sys.modules if modules is None else modules).get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            given = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
            local = environ.get("LOCAL_RANK", "")
            given["local_rank"] = int(local) if local.isdigit() else None
    except Exception:  # noqa: BLE001 - a library of somebody else's, in the middle of whatever it does
        given = {}
    for known in (given, {}):
        with suppress(ValueError):
            return resolve_distributed_identity(**known, env=environ)
    return resolve_distributed_identity()


def innermost(spans: Iterable[Span]) -> Span | None:
    """The span that was opened last and is still open: what the process is doing, as far as its spans say."""
    return next((span for span in reversed(list(spans)) if span.name), None)


def place_of(here: Span | None) -> dict[str, str]:
    """Where a span stands: its id, the path of names to it, and the task it is inside of."""
    if here is None:
        return {}
    names: list[str] = []
    task: str | None = None
    span: Span | None = here
    while span is not None and not isinstance(span, RootSpan):
        names.append(text_of(span.name))
        if task is None and isinstance(span, AttemptSpan):
            task = span.task_id or span.span_id
        span = span._parent
    path = bounded("/".join(reversed(names)), TrackingLimits.max_path_characters)
    place = {"span_id": here.span_id, "span_path": path}
    return place if task is None else {**place, "task_id": task}


class DeviceWatch:
    """One device over a tracker's life: readings in order, from one thread at a time."""

    def __init__(self, alerts: Alerts, change_bytes: int) -> None:
        self.peak_bytes: int | None = None
        self._reported_peak = 0
        self._alerts, self._change_bytes = alerts, change_bytes
        self._allocated: int | None = None

    def observe(self, reading: AllocatorReading) -> list[tuple[str, int]]:
        """The events of a reading, each with its type and its change of allocated bytes since the event
        before.

        First `sample`, or `allocation` or `deallocation` where the change is large; then, of the same reading
        and so without change, `peak`, and `warning` or `critical`. The first reading's peak is where it
        begins.
        """
        allocated, change = reading.allocated_bytes, 0
        first = self._allocated is None
        if allocated is not None:
            change = allocated - (allocated if self._allocated is None else self._allocated)
            self._allocated = allocated
        kind = "sample"
        if abs(change) >= self._change_bytes:
            kind = "allocation" if change > 0 else "deallocation"
        events = [(kind, change)]
        counted = [n for n in (allocated, reading.peak_allocated_bytes, self.peak_bytes) if n is not None]
        self.peak_bytes = max(counted, default=None)
        if self.peak_bytes is not None and (
            first or self.peak_bytes >= self._reported_peak + TrackingLimits.peak_step_bytes
        ):
            if not first:
                events.append(("peak", 0))
            self._reported_peak = self.peak_bytes
        alert = self._alerts.observe(percent_used(reading))
        if alert is not None:
            events.append((alert, 0))
        return events


def percent_used(reading: AllocatorReading) -> float | None:
    """How full it is: the device by everyone, or what the allocator has of its own limit, whichever is
    fuller.
    """
    used, total, allocated = reading.device_used_bytes, reading.device_total_bytes, reading.allocated_bytes
    parts = ((used, total), (allocated, reading.limit_bytes or total))
    return max((100 * part / whole for part, whole in parts if whole and part is not None), default=None)


Alert = Literal["critical", "warning"]


class Alerts:
    """Tells when memory gets short: `observe` each reading in order; not thread-safe.

    A level that was reported is reported again only after a reading below its threshold less
    `margin_percent`. A reading that reaches both thresholds is critical, and the warning counts as reported.
    None as a threshold switches it off.
    """

    def __init__(
        self,
        warning_percent: float | None,
        critical_percent: float | None,
        margin_percent: float = TrackingLimits.threshold_margin_percent,
    ) -> None:
        self._thresholds: dict[Alert, float | None] = {
            "critical": critical_percent,
            "warning": warning_percent,
        }
        self._margin = margin_percent
        self._reported: set[Alert] = set()

    def observe(self, percent: float | None) -> Alert | None:
        """What to report of this reading; nothing of an unknown one."""
        if percent is None:
            return None
        levels = [(level, at) for level, at in self._thresholds.items() if at is not None]
        new = [level for level, at in levels if percent >= at and level not in self._reported]
        if new:
            self._reported |= self._thresholds.keys() if new[0] == "critical" else {"warning"}
        self._reported &= {level for level, at in levels if percent >= at - self._margin}
        return new[0] if new else None
