"""Out of memory on a device: what is worth knowing of that moment, as a bundle in the run.

`RUN/oom/<n>-<time>/` holds `bundle.json` (what, when, where, which spans were open, the allocator's figures,
the environment), `events.jsonl` (the last device-memory events, schema v3) and the allocator's snapshot where
there is one.
"""

from __future__ import annotations

import os
import pickle
import platform
import re
import shutil
import stat
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, ref

import msgspec

from flightlog.core import threads
from flightlog.core.descriptors import folder_names, read_bytes
from flightlog.events import DeviceMemory
from flightlog.events.devices.records import telemetry_event_to_dict
from flightlog.record.clock import monotonic_ns
from flightlog.record.failure import describe
from flightlog.record.limits import TrackingLimits
from flightlog.record.recorder import Recorder
from flightlog.record.span import Span
from flightlog.record.values import bounded, clean, text_of
from flightlog.samplers.frameworks import Allocator, whole
from flightlog.store import layout
from flightlog.store.documents import write_document

if TYPE_CHECKING:
    from flightlog.record.device.tracker import DeviceMemoryTracker, UntrackedDevices

MemoryReporter: TypeAlias = "DeviceMemoryTracker | UntrackedDevices"
"""Who can tell of the devices at that moment: a tracker, or somebody who looks for the first time."""

BUNDLE, EVENTS = "bundle.json", "events.jsonl"

_IN_EVENTS = ("message", "error_type", "requested_bytes", "device_id")
_VARIABLES = re.compile(
    r"(PYTORCH|TORCH|CUDA|HIP|ROCR|HSA|NVIDIA_VISIBLE|XLA|JAX|NCCL|OMP|MKL"
    r"|TF_(FORCE|GPU|XLA|CUDA|ENABLE|NUM))_\w+"
    r"|SLURM_(JOB_ID|PROCID|LOCALID|NTASKS|NNODES)|(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE"
)

_reporters: WeakKeyDictionary[Recorder, MemoryReporter] = WeakKeyDictionary()
_seen: dict[int, Any] = {}
_lock = threads.RLock()
_seen_lock = threads.RLock()

_BUNDLE = re.compile(r"(\d+)-\d{8}T\d{6}Z")
PICKLE, SHORT = "snapshot.pickle", "snapshot.json"

_SIZES = ("total_size", "allocated_size", "active_size", "requested_size")

_FIRST_VERSION = (2, 2)
"""Before it, the observer was called with the allocator locked: no statistics could be read there."""

_attached_in: int | None = None
_listener: Any = None
_unclaimed: deque[Observed] = deque(maxlen=TrackingLimits.max_bundles)
_here = threads.local()


def register(recorder: Recorder, reporter: MemoryReporter) -> None:
    """Let this reporter tell of what happens in a run."""
    _reporters[recorder] = reporter


def unregister(recorder: Recorder, reporter: MemoryReporter) -> None:
    """Let it tell no more."""
    if _reporters.get(recorder) is reporter:
        del _reporters[recorder]


def dump_error(recorder: Recorder, error: BaseException, here: Span | None = None, **facts: Any) -> None:
    """Write a bundle for an exception that means out of memory, once, however many spans it passes through.
    Never raises.
    """
    try:
        if not _is_new(error):
            return
        text = describe(error)
        said = {name: getattr(text, name) for name in ("error_type", "message", "traceback")}
        observed = claim(error)
        if observed is not None:  # the allocator told of it before it was raised
            document = msgspec.json.decode(read_bytes(observed / BUNDLE))
            if isinstance(document, dict):
                more = {**clean(said | facts)[0], "raised": True}
                write_document(observed / BUNDLE, {**document, **more})
        else:
            dump(recorder, "out of memory", here=here, **said, seen_by="exception", oom=True, **facts)
    # The user's exception goes on, whatever becomes of its bundle.
    except Exception as problem:  # noqa: BLE001
        recorder.trouble("oom", f"an out of memory could not be recorded: {text_of(problem)}")


def dump(
    recorder: Recorder,
    reason: str,
    *,
    reporter: MemoryReporter | None = None,
    here: Span | None = None,
    reserve: int = 0,
    oom: bool = False,
    **facts: Any,
) -> Path | None:
    """Write a bundle and an `error` event; gives its folder, or None where there is no room. Never raises."""
    slot: Slot | None = None
    lock = _lock
    if not lock.acquire(timeout=TrackingLimits.bundle_lock_timeout_s):
        recorder.count("oom_bundles_left_out")
        return None
    try:
        from flightlog.record.device.tracker import UntrackedDevices

        reporter = reporter or _reporters.get(recorder) or UntrackedDevices(recorder)
        in_event: dict[str, Any] = {"reason": reason, **({"oom": True} if oom else {})}
        in_event |= {key: facts[key] for key in _IN_EVENTS if key in facts}
        events = reporter.report(in_event, here)
        slot = take_slot(recorder.path, reserve=reserve)
        if slot is None:
            recorder.count("oom_bundles_left_out")
            return None
        lines = [msgspec.json.encode(telemetry_event_to_dict(event)) + b"\n" for event in events]
        (slot.folder / EVENTS).write_bytes(b"".join(lines))
        stamp = datetime.now(UTC)
        document = _document(recorder, events, {"reason": reason, "oom": oom, **facts}, stamp)
        left = min(reporter.snapshot_bytes, slot.left - sum(map(len, lines)) - (1 << 20))
        allocator = reporter.allocator
        if allocator is not None and left > 0:
            document["snapshot"] = _snapshot(slot.folder, allocator, left)
        write_document(slot.folder / BUNDLE, document)
        folder = slot.keep(stamp.strftime("%Y%m%dT%H%M%SZ"))
        slot = None
        return folder
    # A full disk, a framework in a bad state: the program goes on.
    except Exception as problem:  # noqa: BLE001
        recorder.count("oom_bundles_failed")
        recorder.trouble("oom", f"what there is to know of an out of memory cannot be written: {problem}")
        return None
    finally:
        if slot is not None:
            slot.give_up()
        lock.release()


def _snapshot(folder: Path, allocator: Allocator, limit: int) -> dict[str, Any] | None:
    try:
        taken = allocator.snapshot()
    except Exception as error:  # noqa: BLE001 - a framework that has just run out of memory
        return {"files": [], "complete": False, "note": f"the framework gave none: {text_of(error)}"}
    return None if taken is None else write_snapshot(folder, taken, limit)


def _document(
    recorder: Recorder, events: Sequence[DeviceMemory], facts: dict[str, Any], stamp: datetime
) -> dict[str, Any]:
    last = events[-1] if events else None
    spans = list(recorder.open.values())[-TrackingLimits.max_spans :]
    requested = facts.get("requested_bytes")
    document: dict[str, Any] = {
        "bundle_version": 1,
        "timestamp": stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "time_ns": last.timestamp_ns if last is not None and last.event_type == "error" else time.time_ns(),
        "run_id": recorder.path.name,
        "host": recorder.host,
        "pid": os.getpid(),
        **clean(facts)[0],
        "requested_bytes": requested if requested is not None else requested_in(facts.get("message")),
        "spans": [_span(span) for span in spans if span.name],
        "environment": clean(
            {name: value for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)},
            limit=500,
        )[0],
        "versions": _versions(),
    }
    if last is not None:
        document |= {
            name: getattr(last, name)
            for name in ("session_id", "collector", "rank", "local_rank", "world_size", "job_id")
        }
        document |= {
            "device_id": facts.get("device_id", last.device_id),
            "context": last.context,
            "span_path": last.metadata.get("span_path"),
        }
        if document["device_id"] == last.device_id:
            document |= _figures(last)
    return document


def _figures(last: DeviceMemory) -> dict[str, Any]:
    unknown = last.metadata.get("memory_capabilities", {})

    def known(group: str, name: str) -> int | None:
        value: int | None = getattr(last, f"{group}_{name}_bytes")
        return None if unknown.get(f"supports_{group}_{name}") is False else value

    allocator = {
        f"{name}_bytes": known("allocator", name) for name in ("allocated", "reserved", "active", "inactive")
    }
    more = ("peak_allocated", "peak_reserved", "inactive_split", "largest_free", "limit")
    counted = last.metadata
    allocator |= {f"{name}_bytes": counted[f"{name}_bytes"] for name in more if f"{name}_bytes" in counted}
    device = {f"{name}_bytes": known("device", name) for name in ("used", "free", "total")}
    return {"allocator": allocator, "device": {**device, "source": last.metadata.get("device_used_source")}}


def _span(span: Span) -> dict[str, Any]:
    start = span._start
    return {
        "name": bounded(text_of(span.name), 200),
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "elapsed_s": None if start is None else (monotonic_ns() - start) / 1e9,
        "tags": clean(dict(span.tags), limit=200)[0],
    }


def _versions() -> dict[str, str]:
    names, built = ("torch", "jax", "jaxlib", "tensorflow", "numpy"), ("cuda", "hip")
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    torch = getattr(sys.modules.get("torch"), "version", None)
    found |= {f"torch.{name}": getattr(torch, name, None) or None for name in built}
    known = {name: bounded(text_of(version), 50) for name, version in found.items() if version is not None}
    return {"python": platform.python_version(), **known}


def requested_in(message: object) -> int | None:
    """The size that a framework's message says could not be had, to the message's own two decimals."""
    from flightlog.events.devices.oom_message import parse_request

    return parse_request(message).tried_bytes if isinstance(message, str) else None


def _is_new(error: BaseException) -> bool:
    """Whether this exception was not met before; it is not kept alive, for its frames hold the device's
    memory.
    """
    with _seen_lock:
        now = time.monotonic()
        for key, (when, alive) in list(_seen.items()):
            if alive() is None if alive is not None else now - when > TrackingLimits.same_exception_s:
                del _seen[key]
        if id(error) in _seen:
            return False
        try:
            alive = ref(error)
        except TypeError:  # exceptions built in have no weak references
            alive = None
        _seen[id(error)] = (now, alive)
        return True


def forget() -> None:
    """Begin anew in a forked child."""
    global _lock, _seen_lock
    _lock, _seen_lock = threads.RLock(), threads.RLock()
    _reporters.clear()
    _seen.clear()


class Slot:
    """A place for one bundle: fill `folder`, then `keep` it or `give_up`. Nobody sees a bundle before it is
    kept.
    """

    def __init__(self, folder: Path, number: int, left: int) -> None:
        self.folder, self.number, self.left = folder, number, left

    def keep(self, stamp: str) -> Path:
        """Make it a bundle, in one step; `stamp` is its time, as `20261115T151200Z`. Raises OSError."""
        kept = self.folder.with_name(f"{self.number}-{stamp}")
        self.folder.rename(kept)
        return kept

    def give_up(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)


def bundles(run: Path) -> list[Path]:
    """The bundles of a run, first one first."""
    try:
        names = folder_names(run / layout.OOM)
    except OSError:
        return []
    found = [(int(name[1]), run / layout.OOM / name[0]) for name in map(_BUNDLE.fullmatch, names) if name]
    return [path for _, path in sorted(found)]


def take_slot(run: Path, *, reserve: int = 0) -> Slot | None:
    """A place for the next bundle; None where the run has as many, or as large ones, as it may have.

    `reserve` places are left for others. The oldest bundles stay: the first out of memory matters most.
    Raises OSError.
    """
    home = run / layout.OOM
    home.mkdir(parents=True, exist_ok=True)
    for number in range(1, TrackingLimits.max_bundles - reserve + 1):
        if number in _numbers(run):
            continue
        folder = home / f".{number}"
        try:
            folder.mkdir()
        except FileExistsError:  # another process fills it just now
            continue
        if number in _numbers(run):  # it was kept between our look and our step
            folder.rmdir()
            continue
        left = TrackingLimits.max_bundle_bytes - size_of(home)
        if left <= 0:
            folder.rmdir()
            return None
        return Slot(folder, number, left)
    return None


def _numbers(run: Path) -> set[int]:
    return {int(path.name.partition("-")[0]) for path in bundles(run)}


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, however many of them others rename or remove meanwhile."""
    total = 0
    with suppress(OSError):  # it is no longer there
        for name in folder_names(folder):
            with suppress(OSError):
                found = os.lstat(folder / name)
                total += size_of(folder / name) if stat.S_ISDIR(found.st_mode) else found.st_size
    return total


class TooLargeError(Exception):
    """The snapshot does not fit."""


class _Bounded:
    """A file that refuses to grow past its limit."""

    def __init__(self, file: Any, limit: int) -> None:
        self._file, self._left = file, limit

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise TooLargeError
        return int(self._file.write(data))


def write_snapshot(folder: Path, snapshot: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Write what fits into `limit` bytes, and say what that is: files, whether all is there, and why not.

    `snapshot.json` holds the largest segments without their blocks; `snapshot.pickle` the snapshot as the
    framework gave it, which its own viewer opens. Raises OSError.
    """
    said: dict[str, Any] = {"files": [], "complete": False}
    room = limit // 4 // TrackingLimits.max_segment_bytes
    short = shortened(snapshot, max(min(TrackingLimits.max_segments, room), 0))
    data = msgspec.json.encode(short)
    if len(data) <= limit:
        (folder / SHORT).write_bytes(data)
        said["files"].append(SHORT)
        limit -= len(data)
    try:
        with (folder / PICKLE).open("wb") as file:
            pickle.dump(dict(snapshot), _Bounded(file, limit), protocol=4)
        said["files"].append(PICKLE)
        said["complete"] = True
    except TooLargeError:
        (folder / PICKLE).unlink()
        said["note"] = f"{PICKLE} would be larger than the {limit:,} bytes there are for it"
    return said


def shortened(snapshot: Mapping[str, Any], most: int = TrackingLimits.max_segments) -> dict[str, Any]:
    """The totals of a snapshot and its largest segments: sizes, kinds, numbers of blocks, largest free
    block.
    """
    segments = [s for s in _listed(snapshot.get("segments")) if isinstance(s, Mapping)]
    short = [_segment(segment) for segment in segments]
    short.sort(key=lambda segment: -(segment["total_size"] or 0))
    return {
        "segments_total": len(short),
        **{name: sum(segment[name] or 0 for segment in short) for name in _SIZES},
        "blocks": sum(segment["blocks"] for segment in short),
        "largest_free_block": max((segment["largest_free_block"] for segment in short), default=0),
        "free_in_split_segments": sum(
            (segment["total_size"] or 0) - (segment["active_size"] or 0)
            for segment in short
            if segment["active_size"]
        ),
        "history_entries": sum(len(_listed(trace)) for trace in _listed(snapshot.get("device_traces"))),
        "segments": short[:most],
    }


def _segment(segment: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [b for b in _listed(segment.get("blocks")) if isinstance(b, Mapping)]
    free = [whole(b.get("size")) or 0 for b in blocks if b.get("state") == "inactive"]
    return {
        "device": whole(segment.get("device")),
        "segment_type": str(segment.get("segment_type"))[:20],
        **{name: whole(segment.get(name)) for name in _SIZES},
        "blocks": len(blocks),
        "largest_free_block": max(free, default=0),
    }


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


class Observed(NamedTuple):
    """A bundle that waits for the exception it may be of."""

    at: float
    thread: int
    requested_bytes: int
    folder: Path


def observe(torch: Any, recorder: Recorder) -> bool:
    """Hear of each out of memory on CUDA from now on; whether that can be had. CUDA is never started up for
    it.
    """
    global _attached_in, _listener
    _listener = ref(recorder)
    attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized() or _version(torch) < _FIRST_VERSION:
        return False
    if _attached_in != os.getpid():
        _attached_in = os.getpid()
        attach(_on_oom)
    return True


def stop_observing(recorder: Recorder) -> None:
    """Tell this run no more."""
    global _listener
    if _listener is not None and _listener() is recorder:
        _listener = None


def claim(error: BaseException) -> Path | None:
    """The bundle that the observer wrote for this exception of PyTorch's a moment ago, if it did; once.

    Several threads may run out at once, and what ran out in a thread of autograd's is raised in another one:
    it is the latest of the size that the exception names, one of the same thread before others.
    """
    if not _unclaimed or type(error).__module__.partition(".")[0] != "torch":
        return None
    asked, mine, now = requested_in(text_of(error)), threads.get_ident(), time.monotonic()
    fitting = [
        one
        for one in tuple(_unclaimed)
        if now - one.at < TrackingLimits.observer_to_exception_s
        and (asked is None or abs(one.requested_bytes - asked) <= TrackingLimits.max_rounding * max(asked, 1))
    ]
    if not fitting:
        return None
    found = max(fitting, key=lambda one: (one.thread == mine, one.at))
    with suppress(ValueError):  # another thread was quicker
        _unclaimed.remove(found)
        return found.folder
    return None


def _on_oom(device: int, requested: int, allowed: int, free: int) -> None:
    """Called by the allocator in the thread that ran out of memory. An exception here would reach the
    program.
    """
    recorder = _listener() if _listener is not None else None
    if recorder is None or getattr(_here, "busy", False):
        return
    _here.busy = True
    mine = threads.get_ident()
    try:
        for one in tuple(_unclaimed):
            if one.thread == mine:  # nothing came of it: the thread has gone on
                with suppress(ValueError):
                    _unclaimed.remove(one)
        written = dump(
            recorder,
            "out of memory",
            reserve=TrackingLimits.reserved_bundles,
            oom=True,
            seen_by="allocator",
            raised=None,
            device_id=device,
            requested_bytes=requested,
            allowed_bytes=allowed,
            free_bytes=free,
            message=f"the allocator of device {device} could not get {requested:,} bytes: "
            f"{free:,} bytes are free",
        )
        if written is not None:
            _unclaimed.append(Observed(time.monotonic(), mine, requested, written))
    except Exception as error:  # noqa: BLE001 - see above
        recorder.trouble("oom observer", f"an out of memory could not be looked at: {error!r}")
    finally:
        _here.busy = False


def _version(torch: Any) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", str(getattr(torch, "__version__", "")))
    return (int(found[1]), int(found[2])) if found else (0, 0)
