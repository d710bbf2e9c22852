"""The life of a run that this process makes: started, kept alive, and ended with the right status.

SIGTERM or SIGHUP ends a run as interrupted, and the process dies of that signal all the same. The handlers
are set only where the default action stood, so the user's own are never replaced. Python runs them in the
main thread between two instructions; where that thread is inside a long C call, a watching thread does the
work, so that nothing dies later than it would have.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from importlib import import_module
from math import nan
from pathlib import Path
from types import FrameType
from typing import Any

from flightlog.core import threads
from flightlog.core.descriptors import Descriptor, is_open, make_pipe
from flightlog.core.interruption import HandlersWait
from flightlog.core.redaction import redact_text
from flightlog.core.settings import Settings, parse_traceparent
from flightlog.core.threads import in_main_thread, quick_handovers
from flightlog.record.background import (
    Sampling,
    Ticker,
    make_samplers,
    save_environment,
    save_heartbeat,
    save_run,
)
from flightlog.record.background_imports import loading
from flightlog.record.clock import monotonic_ns
from flightlog.record.closing import NEEDED, close_run, is_alone, leave_completing, prepare
from flightlog.record.context import (
    ENVIRONMENT,
    activate,
    active_runs,
    deactivate,
    format_traceparent,
    install,
)
from flightlog.record.environment import Environment, job_here, read_environment, read_identity
from flightlog.record.failure import is_clean_exit
from flightlog.record.followers import finish_followers, start_asked
from flightlog.record.joining import COMMAND, Joined, follow, leave_run, wrapping_run
from flightlog.record.limits import RecordLimits
from flightlog.record.otel_bridge import surrounding_trace
from flightlog.record.recorder import Recorder, measure_cost
from flightlog.record.run import LiveRun
from flightlog.record.span import Span, current
from flightlog.record.task import is_cancellation
from flightlog.record.values import ask, clean, represent, text_of
from flightlog.samplers import Sampler, installed_samplers
from flightlog.samplers.usage import look_at_meters
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.liveness import here, process_start, this_host, unix_time
from flightlog.store.write.writer import new_token
from flightlog.version import __version__

log = logging.getLogger("flightlog")

NO_THREADS = "a subinterpreter is recorded without samples, heartbeats and handling of signals"

_exported: dict[str, str | None] = {}
"""What stood in the environment before the first run that is named there."""
DEADLY = (signal.SIGTERM, signal.SIGHUP)

OnSignal = Callable[[str], None]
_calls: deque[object] = deque(maxlen=64)
"""What the main thread may have yet to call: it must not be freed before."""


@cache
def _load_now() -> None:
    """Import what the background threads of a run would.

    In a program that gevent or eventlet patched, the locks of imports are green ones. A greenlet that needs a
    module that a real thread is just importing may wait for ever.
    """
    with contextlib.suppress(Exception):  # a hook of the program's may raise anything
        installed_samplers()
        for module in (*NEEDED, "flightlog.samplers.cgroup", "flightlog.store.write.finalize"):
            import_module(module)


class OwnedRun:
    """A run that this process made, with everything that must end when it ends."""

    def __init__(
        self, run: LiveRun, settings: Settings, interval_s: float | None, samplers: Sequence[Sampler] | None
    ):
        self.run, self._settings = run, settings
        self._ended = threads.Lock()
        self._before = current.get()
        self._session = os.getsid(0)
        self._process = os.getpid(), run.recorder.files.info.pid_start
        self._parents: list[tuple[int, float | None]] = []
        self._forked_at = 0.0
        self._beats = 0
        self._synced = time.monotonic()
        self._documents = threads.Lock()
        self._environment_saved = self._over = False
        self._to_prepare = [*NEEDED] if settings.complete == "auto" else []
        self._pulse: Ticker | None = None
        self._sampling: Sampling | None = None
        if threads.is_patched():
            _load_now()
        try:
            self._take_hold()
            self._pulse = Ticker(
                "flightlog-pulse", RecordLimits.heartbeat_interval_s, self._beat, run.recorder.trouble
            )
            if interval_s is not None:
                self._sampling = Sampling(
                    lambda: make_samplers(run, samplers), interval_s, run.emit, run.recorder.trouble
                )
        except BaseException:
            self._release()
            raise

    def _take_hold(self) -> None:
        """Make this process record the run."""
        self.run.root._parent = self._before
        current.set(self.run.root)
        activate(self.run)
        install()
        _export()
        signals.begin(self.die)
        self.run.on_fork(self._after_fork)
        atexit.register(self._at_exit)

    def end(self, error: BaseException | None) -> None:
        """End the run with the status that its exit says; nothing where it has ended."""
        with HandlersWait():
            if self._ended.locked():
                return
            if error is None or is_clean_exit(error):
                self._conclude("completed", None)
            elif is_cancellation(type(error)):  # under asyncio Ctrl-C arrives as a CancelledError
                self._conclude("interrupted", type(error).__name__)
            else:
                text = self.run.note_failure(error, "run")
                self._conclude("failed", f"{text.error_type}: {text.message}"[:500])
        self._finish()

    def die(self, signal_name: str) -> None:
        """End the run because a signal ends the process.

        Where other threads run, its files stay open: what they record until the process is dead stands in the
        tails, and the first reader closes them.
        """
        self.run.info.signal = signal_name
        self.conclude("interrupted", signal_name, keep_open=not is_alone())

    def _at_exit(self) -> None:
        self.conclude("interrupted", "the interpreter ended while the run was open")

    def conclude(self, status: str, error: str | None, *, keep_open: bool = False) -> None:
        """End the run with this status, and why in a line; once, and only in the process whose run it is."""
        with HandlersWait():
            self._conclude(status, error, keep_open)
        self._finish()

    def _conclude(self, status: str, error: str | None, keep_open: bool = False) -> None:
        run = self.run
        self._take_over()
        if not run.owned or not self._ended.acquire(blocking=False):
            return
        began = time.perf_counter()
        try:
            with quick_handovers():
                run.ending(status)
                run.info.end_time = run.recorder.clock.now()
                run.info.duration_s = (monotonic_ns() - run.started_ns) / 1e9
                if not keep_open:
                    self._release()
                self._close(status, None if error is None else redact_text(error), began, keep_open)
        except Exception as problem:  # noqa: BLE001 - the program ends as it would have
            run.recorder.trouble("close", f"the run could not be closed in good order: {problem!r}")

    def _finish(self) -> None:
        """Wait for what carries the run elsewhere, which Ctrl-C may cut short; then say what was lost."""
        run = self.run
        if not run.owned:
            return
        waits_s = 0.0 if run.info.status == "interrupted" else self._settings.followers_wait_s
        finish_followers(run.path, waits_s)
        lost = run.recorder.files.tally()
        if lost.lost:
            why = ", ".join(f"{number:,} x {reason}" for reason, number in sorted(lost.reasons.items()))
            number = sum(lost.lost.values())
            events = "1 event was" if number == 1 else f"{number:,} events were"
            run.recorder.trouble("lost", f"{events} lost ({why})")

    def _close(self, status: str, error: str | None, began: float, keep_open: bool) -> None:
        """Write out what the run holds, and see to it that it is completed, at once or later.

        Where other threads want the interpreter, what our own threads are at is hardly waited for: of a run
        that ends in its first moments, the pulse then writes the environment a little later.
        """
        run = self.run
        if run.taken_over and not keep_open:
            leave_run(run.path)  # ends what keeps this process's files fresh
        patient = self._settings.complete == "now" or is_alone()
        if self._pulse is not None:
            self._pulse.tell()
        if self._sampling is not None:
            self._sampling.stop(RecordLimits.end_wait_s if patient else RecordLimits.hasty_end_wait_s)
        run.end_lanes()
        if not keep_open:
            run.root._sink = None
        if patient and self._pulse is not None:
            self._pulse.stop()
        with self._documents:
            run.info.status, run.info.error = status, error
            if self._settings.parquet:
                run.info.to_snapshot = True
            beating = self._pulse is not None and self._pulse.is_alive()
            if not self._environment_saved and (patient or not beating):
                self._environment_saved = True
                save_environment(run)
            run.recorder.files.note_end(run.info)
            if keep_open:
                run.info.to_complete = True
                run.recorder.announce_open(ending=True)
                run.recorder.files.flush()
                save_heartbeat(run, self._cpu_s())
            else:
                close_run(run, self._cpu_s(), began)
            self._over = True
            complete = self._environment_saved
            self._environment_saved |= keep_open
        if keep_open:  # the process dies, and its first reader completes the run
            return
        if complete or self._pulse is None:
            leave_completing(run, self._settings)
        else:  # the interpreter may end soon after the run: the pulse is to write the environment
            atexit.register(self._pulse.join, RecordLimits.end_wait_s)
        if not patient:
            for thread in (self._pulse, self._sampling):
                if thread is not None:
                    thread.join(RecordLimits.hasty_end_wait_s / 10)

    def _release(self) -> None:
        """Take back everything the run had changed in this process."""
        deactivate(self.run)
        if _belongs(current.get(), self.run.recorder):
            current.set(self._before)
        signals.end(self.die)
        atexit.unregister(self._at_exit)
        _export()

    def _beat(self) -> None:
        run = self.run
        look_at_meters()
        run.recorder.announce_open()
        run.recorder.files.flush()
        self._beats += 1
        if self._beats % 2:
            with self._documents:
                if not self._over:
                    save_heartbeat(run, self._cpu_s())
        if self._beats == 1:
            self._first_beat()
        elif self._to_prepare and not self._over:
            prepare(self._to_prepare.pop(0))
        if not self._over and time.monotonic() - self._synced >= RecordLimits.sync_interval_s:
            self._synced = time.monotonic()
            run.recorder.files.sync()

    def _first_beat(self) -> None:
        """What is done once, in the background: the cost of recording is measured, the environment read."""
        measure_cost(self.run.recorder)
        environment = read_environment()
        with self._documents:
            late = self._over and not self._environment_saved
            if not late and not self._environment_saved:
                save_environment(self.run, environment)
            self._environment_saved = True
        if late:
            self._save_late(environment)

    def _save_late(self, environment: Environment) -> None:
        """Write the environment of a run that has ended meanwhile, unless a reader has completed the run
        without.
        """
        with loading():
            from flightlog.store.write.finalize import finalizing, is_to_complete
        with finalizing(self.run.path, wait_s=RecordLimits.end_wait_s) as alone:
            if alone and is_to_complete(self.run.path):
                save_environment(self.run, environment)
                save_run(self.run)
        leave_completing(self.run, self._settings)

    def _cpu_s(self) -> float:
        return (self._pulse.cpu_s if self._pulse else 0.0) + (self._sampling.cpu_s if self._sampling else 0.0)

    def _after_fork(self) -> None:
        self._pulse = self._sampling = None
        self.run.taken_over = False
        self._parents.append(self._process)
        self._process = os.getpid(), process_start(os.getpid())
        self._forked_at = time.time()
        follow(self.run, self._take_over)

    def _take_over(self) -> None:
        """Make the run this process's own where it is a daemon: forked, in a session of its own, its parents
        gone.

        The process that made the run has then left it on purpose and this one goes on in the
        same block. One that lived on for seconds after the fork was no daemon's parent: it crashed.
        """
        run = self.run
        if run.owned or os.getsid(0) == self._session:
            return
        if any(start is not None and process_start(pid) == start for pid, start in self._parents):
            return  # a worker of the daemon's, or a child of one that is about to leave
        found = read_document(run.path / layout.RUN, layout.RunInfo).value
        if found is None or found.pid != run.info.pid or here().status(found) != "crashed":
            return
        if (unix_time(found.heartbeat) or 0.0) - self._forked_at > RecordLimits.daemon_parent_wait_s:
            return
        self._session = os.getsid(0)  # for processes that this one forks
        run.info.pid, run.info.pid_start = os.getpid(), run.recorder.files.info.pid_start
        run.taken_over = True
        signals.begin_in_main_thread(self.die)


def begin(
    settings: Settings,
    project: str | None,
    runs_dir: Path | None,
    tags: Mapping[str, Any],
    options: dict[str, Any],
) -> OwnedRun | Joined:
    """Start a run, or join the one that this program is wrapped in."""
    wrapped = wrapping_run(settings)
    if wrapped is not None:
        return Joined(wrapped)
    started = datetime.now(UTC)
    name = redact_text(default_project() if project is None else text_of(project) or default_project())
    run_id = layout.make_run_id(name, started, new_token())
    # Resolve() would follow links.
    path = Path(os.path.abspath(runs_dir or settings.runs_dir)) / run_id  # noqa: PTH100
    host = this_host()
    inside = bool(active_runs())  # then the environment names that run
    above = (None if inside else surrounding_trace()) or parse_traceparent(settings.traceparent)
    recorder = Recorder(path, host, above[0] if above else os.urandom(16).hex(), owner=True)
    identity = read_identity()
    alone = threads.in_main_interpreter()
    interval = _interval(options["sample_interval_s"]) if alone else None
    provider = None if options["provider"] is None else redact_text(text_of(options["provider"]))
    info = layout.RunInfo(
        run_id=run_id,
        project=name,
        status="running",
        start_time=recorder.clock.now(),
        target=None if options["target"] is None else redact_text(text_of(options["target"])),
        provider=provider,
        duration_s=0.0,
        command=identity.command,
        cwd=identity.cwd,
        host=host,
        pid=os.getpid(),
        pid_start=recorder.files.info.pid_start,
        heartbeat=recorder.clock.now(),
        python=identity.python,
        git_commit=identity.git_commit,
        tags=clean(tags)[0],
        trace_id=recorder.trace_id,
        span_id=recorder.next_id(),
        parent_id=above[1] if above else None,
        writer=recorder.writer,
        sample_interval_s=interval,
        flightlog_version=__version__,
    )
    run = LiveRun(path, info, recorder)
    recorder.files.open_page()
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_document(path / layout.RUN, info)
    except OSError as error:
        reason = error.strerror or str(error)
        recorder.trouble(reason, f"cannot write {path}: {reason}")
    if not alone:
        recorder.trouble("subinterpreter", NO_THREADS)
    # Before the sampling, which is not to see it.
    start_asked(path, settings, recorder.trouble, options.get("sent_otherwise", ()))
    owned = OwnedRun(run, settings, interval, options["samplers"])
    if provider != COMMAND and (job := job_here(host=host)) is not None:
        run.emit(job)
    if settings.device_memory is not None and provider != COMMAND:  # there, it is the command's to do
        from flightlog.record.device.tracking import track_if_asked

        track_if_asked(run)
    return owned


def default_project() -> str:
    """What a run is called that nobody named: the script, or the folder."""
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    if script == "__main__":
        script = Path(sys.argv[0]).parent.name
    try:
        return script or Path.cwd().name or "run"
    except OSError:  # the working directory is gone
        return "run"


def _interval(value: float | None) -> float | None:
    if value is None:
        return None
    seconds = ask(float, value, otherwise=nan)
    if not seconds > 0:
        log.warning(
            "sample_interval_s=%r is no positive number of seconds: sampling every second", represent(value)
        )
        return 1.0
    return max(seconds, RecordLimits.min_sampling_interval_s)


def _belongs(here: Span | None, recorder: Recorder) -> bool:
    while isinstance(here, Span):
        if here._sink is recorder or here._sink is None:
            return True
        here = here._parent
    return False


def _export() -> None:
    """Name the newest run in the environment, for child processes of any kind; without one, what stood
    there.
    """
    owned = [run for run in active_runs() if run.owned]
    if owned:
        newest = owned[-1].info
        values = {
            ENVIRONMENT["flightlog_run"]: str(owned[-1].path),
            ENVIRONMENT["traceparent"]: format_traceparent(newest.trace_id, newest.span_id),
        }
        for name, value in values.items():
            _exported.setdefault(name, os.environ.get(name))
            os.environ[name] = value
        return
    for name, before in _exported.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    _exported.clear()


class SignalWatch:
    """The one watch of a process: calls everybody concerned, the latest first, before a deadly signal kills
    it.

    Python lets only the main thread change signals. Asked by another thread, the watch begins with the next
    one that the main thread asks for, and goes on, without anybody concerned, until then.

    Python writes the numbers of signals into a pipe, known to it by a bare number. Where the program closes
    the pipe, the watching thread reads its end at once, makes another one under the same number, and where
    that is taken asks the main thread to tell Python another one. What remains: a signal that comes before
    the main thread has done so is written into whatever the program has put there, at the high number of a
    kept descriptor.
    """

    def __init__(self) -> None:
        self._listeners: list[OnSignal] = []
        self._ours: list[signal.Signals] = []
        self._wakeup: tuple[Descriptor, Descriptor] | None = None
        self._armed = -1  # the number that Python was told
        self._once = threads.Lock()
        self._pid = os.getpid()

    def begin(self, on_signal: OnSignal) -> None:
        """Call this, with the signal's name, before the process dies."""
        self._listeners.append(on_signal)
        self.settle()

    def begin_in_main_thread(self, on_signal: OnSignal) -> None:
        """The same, from any thread: at once in the main thread, else between two of its instructions.

        Until then the process dies as it would have. One that forks meanwhile leaves its child out.
        """
        if in_main_thread():
            self.begin(on_signal)
        else:
            pid = os.getpid()
            _call_in_main_thread(lambda: self.begin(on_signal) if os.getpid() == pid else None)

    def end(self, on_signal: OnSignal) -> None:
        """Do not call it any more; after the last one, put the default actions back."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(on_signal)
        self.settle()

    def settle(self) -> None:
        """Begin the watch where somebody is concerned, end it where nobody is; in the main thread alone."""
        if not in_main_thread():
            return
        if self._listeners and not self._ours:
            self._pid = os.getpid()
            self._ours = [number for number in DEADLY if signal.getsignal(number) is signal.SIG_DFL]
            if self._ours:
                self._open()
                self.resume()
        elif self._ours and not self._listeners:
            self.pause()
            self._ours = []
            self._close()

    def pause(self) -> None:
        """Put the default actions back for now, where nobody has changed them since."""
        for number in self._ours:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        if self._wakeup is not None:
            found = signal.set_wakeup_fd(-1)
            if found not in (self._armed, -1):
                with contextlib.suppress(OSError, ValueError):  # it is closed by now
                    signal.set_wakeup_fd(found)

    def resume(self) -> None:
        """Handle the signals again, where nobody else does by now."""
        for number in self._ours:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)
        self._arm()

    def _arm(self) -> None:
        """Let Python write into the pipe from now on; where there is none, not into a number that once was
        one.
        """
        if self._wakeup is None and self._armed < 0:
            return
        before, self._armed = self._armed, -1
        if self._wakeup is not None and self._wakeup[1].still_ours():
            self._armed = self._wakeup[1].number
        found = signal.set_wakeup_fd(self._armed, warn_on_full_buffer=False)
        if found not in {before, self._armed, -1}:  # an event loop's: it wakes up for every signal by itself
            with contextlib.suppress(OSError, ValueError):  # it is closed by now
                signal.set_wakeup_fd(found)

    def after_fork(self) -> None:
        """A forked child dies as it would have: it owns no run."""
        self.pause()
        self._listeners, self._ours, self._once = [], [], threads.Lock()
        for one in self._wakeup or ():
            one.close()
        self._wakeup = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._once.acquire(blocking=False):
            self._tell(number)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _tell(self, number: int) -> None:
        for on_signal in reversed(tuple(self._listeners)):
            on_signal(signal.Signals(number).name)

    def _open(self) -> None:
        self._wakeup = _wakeup_pipe()
        if self._wakeup is not None:
            threads.Thread(target=self._wait, args=(self._wakeup,), name="flightlog-signals").start()

    def _close(self) -> None:
        if self._wakeup is not None:
            wakeup, self._wakeup = self._wakeup, None
            wakeup[1].close()  # the waiting thread reads the end, closes its side and ends

    def _wait(self, pipe: tuple[Descriptor, Descriptor]) -> None:
        waiting: tuple[Descriptor, Descriptor] | None = pipe
        while waiting is not None:
            self._listen(waiting[0])
            waiting = self._renew(waiting) if self._wakeup is waiting and os.getpid() == self._pid else None

    def _listen(self, reader: Descriptor) -> None:
        try:
            while data := os.read(reader.fd, 64):
                deadly = [number for number in self._ours if int(number) in data]
                if deadly:
                    self._die(deadly[0])
        except OSError:
            return
        finally:
            reader.close()

    def _renew(self, lost: tuple[Descriptor, Descriptor]) -> tuple[Descriptor, Descriptor] | None:
        """The program has closed the pipe: another one under the number that Python knows, if nobody has it
        yet.
        """
        lost[1].close()
        fresh = None if is_open(self._armed) else _wakeup_pipe()
        if fresh is None or not fresh[1].take(self._armed):
            _call_in_main_thread(partial(self._begin_again, lost))
            return None
        if self._wakeup is not lost:  # the run has ended meanwhile
            return None
        self._wakeup = fresh
        return fresh

    def _begin_again(self, lost: tuple[Descriptor, Descriptor]) -> None:
        if self._wakeup is lost:
            self._open()
            self._arm()

    def _die(self, number: int) -> None:
        """Do what the handler would, if the main thread does not come round to it."""
        threads.sleep(RecordLimits.signal_grace_s)
        if os.getpid() != self._pid or signal.getsignal(number) != self._handle:
            return  # somebody has set a handler since: it is theirs to decide
        if self._once.acquire(blocking=False):
            import ctypes

            self._tell(number)
            ctypes.CDLL(None).signal(int(number), 0)
            os.kill(self._pid, number)


def _wakeup_pipe() -> tuple[Descriptor, Descriptor] | None:
    """A pipe that Python can write into from its signal handler; None where there is none to be had."""
    try:
        reader, writer = make_pipe()
        os.set_blocking(writer.fd, False)
    except OSError:
        return None
    return reader, writer


def _call_in_main_thread(function: Callable[[], None]) -> None:
    """Call it between two instructions of the main thread, the only one that may change signals."""
    import ctypes

    def call(_: int | None) -> int:
        with contextlib.suppress(Exception):
            function()
        return 0

    _calls.append(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call))
    ctypes.pythonapi.Py_AddPendingCall(_calls[-1], None)


signals = SignalWatch()

# Around a fork the default actions stand: a child just forked shares the pipe, and Python throws away signals
# that meet it before it has put itself in order. Forks by other threads than the main one cannot be guarded.


os.register_at_fork(
    before=lambda: signals.pause() if in_main_thread() else None,
    after_in_parent=lambda: signals.resume() if in_main_thread() else None,
    after_in_child=signals.after_fork,
)
