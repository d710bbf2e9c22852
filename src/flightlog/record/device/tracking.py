"""`flightlog.track_device_memory`: a framework's memory on its devices, sampled into the run; and the same in
processes of a run whose code does not call it, by environment and inside `flightlog run`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakSet

from flightlog.core import threads
from flightlog.core.settings import read_settings
from flightlog.core.text import words
from flightlog.record.context import current_run
from flightlog.record.device import oom
from flightlog.record.device.tracker import DeviceMemoryTracker, DeviceSource, Options
from flightlog.record.failure import is_out_of_memory
from flightlog.record.limits import TrackingLimits
from flightlog.record.run import LiveRun
from flightlog.samplers.frameworks import AUTO, NAMES, Allocator, find_allocator

log = logging.getLogger("flightlog")

_tracking: dict[LiveRun, DeviceMemoryTracker] = {}
_watched: WeakSet[LiveRun] = WeakSet()
"""Runs whose end ends the tracking."""
_tracking_lock = threads.RLock()
_LAUNCHERS = words(
    "torchrun torch.distributed.run torch.distributed.launch accelerate accelerate.commands.launch"
    " deepspeed deepspeed.launcher.runner deepspeed.launcher.launch"
)
_TAKE_NEXT = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SITECUSTOMIZE = Path(__file__).parent / "sitecustomize"
"""Put first on `PYTHONPATH` of a command: Python imports the `sitecustomize` in it by itself."""


class NoTracker:
    """The tracker of a program that is not recorded: the same interface, and nothing behind it."""

    session_id = ""
    allocator = None

    def sample(self) -> None:
        """Nothing."""

    def dump(self, reason: str = "on request") -> None:
        """Nothing."""

    def align(self) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class Tracking:
    """A block during which device memory is tracked: `with flightlog.track_device_memory() as tracker:`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tracker: DeviceMemoryTracker | None = None
        self._mine = False

    def __enter__(self) -> DeviceMemoryTracker | NoTracker:
        try:
            run = current_run()
            if run is None:
                return NoTracker()
            self._tracker, self._mine = start_tracking(run, self._options)
            return self._tracker
        except Exception:
            log.warning("device memory cannot be tracked; the program goes on without", exc_info=True)
            return NoTracker()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        tracker, self._tracker = self._tracker, None
        if tracker is None:
            return
        if error is not None and is_out_of_memory(error):
            oom.dump_error(tracker._recorder, error)
        if self._mine:
            tracker.stop()
            if not tracker.samples and os.getpid() == tracker._pid:
                wanted = tracker.options.framework
                what = "torch, JAX or TensorFlow" if wanted == AUTO else wanted
                tracker._recorder.trouble(
                    "device memory", f"no device memory was recorded: the program used no {what} meanwhile"
                )


def start_tracking(
    run: LiveRun, options: Options, source: DeviceSource | None = None
) -> tuple[DeviceMemoryTracker, bool]:
    """The tracker of this process in a run, and whether it is new: one that is there already is shared as it
    is.
    """
    with _tracking_lock:
        there = _tracking.get(run)
        if there is not None:
            return there, False
        tracker = _tracking[run] = DeviceMemoryTracker(run, options, source)
        if run not in _watched:
            _watched.add(run)
            run.on_end(lambda _status: _tracking[run].stop() if run in _tracking else None)
    tracker.on_stop = lambda: _forget(run)
    try:
        tracker.begin()
    except BaseException:
        _forget(run)
        raise
    return tracker, True


def track_device_memory(
    framework: str = AUTO,
    interval_s: float = 0.1,
    *,
    warning_percent: float | None = 85.0,
    critical_percent: float | None = 95.0,
    change_bytes: int = 64 << 20,
    snapshot_bytes: int = TrackingLimits.max_snapshot_bytes,
) -> Tracking:
    """Record the memory of a framework's devices while a block executes, as in `with … as tracker:`.

    `framework` is `torch`, `jax`, `tensorflow` (or with a kind of device, as `torch.cuda`), or `auto`:
    whichever the program has imported and started up, looked for at each sample until there is one; nothing
    is ever imported or started up from here. Sampled every `interval_s` seconds on a thread of its own. An
    event is an `allocation` or `deallocation` where the bytes in use have changed by `change_bytes`;
    `warning` and `critical` come when the device is so full, and again only after it was 5 points emptier.
    Its context is the span that was opened last and is still open in the process; `tracker.sample()` samples
    at once, for phases shorter than the interval.

    Out of memory leaves a bundle in the run's folder `oom`, with the allocator's snapshot of at most
    `snapshot_bytes`. Outside a run it does nothing. Where this process tracks already, that tracker is shared
    and its options hold. A forked child does not go on tracking.
    """
    options = Options(framework, interval_s, warning_percent, critical_percent, change_bytes, snapshot_bytes)
    return Tracking(checked(options))


def track_if_asked(run: LiveRun) -> None:
    """Track this process in a run for as long as both go on, where `FLIGHTLOG_DEVICE_MEMORY` asks for it."""
    try:
        settings = read_settings()
        if settings.device_memory is not None:
            asked = Options(framework=settings.device_memory, interval_s=settings.device_memory_interval_s)
            options = checked(asked)
            start_tracking(run, options, DeviceSource(options.framework, find=find_in_workers))
    except Exception:
        log.warning("device memory cannot be tracked; the program goes on without", exc_info=True)


def checked(options: Options) -> Options:
    """The options with what makes no sense replaced, and said."""
    given = {name: getattr(options, name) for name in Options.__struct_fields__}
    usual = Options()
    if options.framework not in NAMES:
        log.warning(
            "framework %r is not known (use %s): whichever is imported is tracked",
            options.framework,
            ", ".join(NAMES),
        )
        given["framework"] = AUTO
    for name in ("interval_s", "warning_percent", "critical_percent", "change_bytes", "snapshot_bytes"):
        value = given[name]
        if value is None and name.endswith("_percent"):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e18:
            given[name] = getattr(usual, name)
            log.warning("%s=%r is no positive number: %s is used", name, value, given[name])
    given["interval_s"] = max(float(given["interval_s"]), TrackingLimits.min_interval_s)
    return Options(**given)


def _forget(run: LiveRun) -> None:
    with _tracking_lock:
        _tracking.pop(run, None)


def _after_fork() -> None:
    global _tracking_lock
    _tracking_lock = threads.RLock()
    _tracking.clear()
    oom.forget()


os.register_at_fork(after_in_child=_after_fork)


def tracking_environment(framework: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make the Python processes of a command track their device memory, by name."""
    path = [str(_SITECUSTOMIZE), *filter(None, [environ.get("PYTHONPATH")])]
    return {"FLIGHTLOG_DEVICE_MEMORY": framework or AUTO, "PYTHONPATH": os.pathsep.join(path)}


def find_in_workers(wanted: str) -> Allocator | None:
    """As `find_allocator`, and none in processes that only serve others: their memory is nobody's
    question.
    """
    return None if is_helper() else find_allocator(wanted)


def is_helper(argv: Sequence[str] | None = None) -> bool:
    """Whether this process is a launcher of ranks, or a daemonic child as data loaders have them."""
    argv = sys.orig_argv if argv is None else argv
    if "RANK" not in os.environ and _program(argv) in _LAUNCHERS:
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(process.current_process().daemon)


def _program(argv: Sequence[str]) -> str | None:
    """The module or the script's name that Python was started with; its arguments are its own."""
    rest = iter(argv[1:])
    for word in rest:
        if word in _TAKE_NEXT:
            next(rest, None)
        elif not word.startswith("-"):
            return os.path.basename(word)  # noqa: PTH119 - a word, and no path to look at
        elif not word.startswith("--"):
            if word.endswith("m"):
                return next(rest, None)
            if word == "-" or word.endswith("c"):
                return None
    return None
