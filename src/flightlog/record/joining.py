"""Processes that did not make a run and record into it: forked, spawned, launched, or attached by a
carrier.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from flightlog.core import threads
from flightlog.core.settings import Settings, asks_for_device_memory, parse_traceparent, read_settings
from flightlog.core.threads import quick_handovers
from flightlog.record import span as spans
from flightlog.record.background import InterpreterSampling, Ticker, is_over, save_heartbeat
from flightlog.record.closing import close_writer, is_alone, leave_completing
from flightlog.record.context import activate, active_runs, deactivate, has_ended, install
from flightlog.record.failure import is_clean_exit
from flightlog.record.limits import RecordLimits
from flightlog.record.recorder import Recorder, measure_cost
from flightlog.record.run import LiveRun
from flightlog.record.span import RootSpan, current
from flightlog.samplers.usage import look_at_meters
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

_refused: set[str] = set()
_left: set[str] = set()
"""Runs that this process joined and left after they had ended: its own late work still belongs to them."""
_leaving: dict[str, Callable[[], None]] = {}
"""How this process leaves each run that it has joined."""

COMMAND = "command"
"""The provider of runs made by `flightlog run`: a Python program inside one records into it."""


def join(path: str | os.PathLike[str]) -> LiveRun | None:
    """Record into a run that another process made and that goes on; None where there is none.

    That is said once. It is no warning where the run has ended: a pool may start a worker that comes too
    late.
    """
    folder = Path(path)
    for run in active_runs():
        if run.path == folder:
            _track(run)
            return run
    before = str(folder) in _left
    if has_ended(str(folder)) and not before:
        return None
    found = read_document(folder / layout.RUN, layout.RunInfo)
    if found.value is None or (found.value.status in layout.ENDED and not before):
        if str(folder) not in _refused and len(_refused) < RecordLimits.max_warned_folders:
            _refused.add(str(folder))
            level = logging.INFO if found.value is not None else logging.WARNING
            log.log(level, "no run can be joined at %s: %s", folder, found.problem or "it has ended")
        return None
    run = LiveRun(folder, found.value, Recorder(folder, this_host(), found.value.trace_id, owner=False))
    activate(run)
    install()
    follow(run)
    run.on_fork(lambda: follow(run))
    _track(run)
    return run


def leave_run(path: str | os.PathLike[str]) -> None:
    """Stop recording into a run that this process joined, and close its files here; nothing where it has not.

    It may be joined again.
    """
    leave = _leaving.pop(str(Path(path)), None)
    if leave is not None:
        leave()


def _track(run: LiveRun) -> None:
    """Track device memory where the environment asks for it; one that tracks already goes on."""
    if asks_for_device_memory():
        from flightlog.record.device.tracking import track_if_asked

        track_if_asked(run)


def join_from_environment() -> LiveRun | None:
    """Join the run that `FLIGHTLOG_RUN` names, at the span that `TRACEPARENT` names."""
    settings = read_settings()
    if not settings.enabled:
        spans.set_mode(spans.OFF)
        return None
    if settings.run is None:
        return None
    run = join(settings.run)
    ids = parse_traceparent(settings.traceparent)
    if run is not None and ids is not None and ids[0] == run.info.trace_id:
        run.root = RootSpan(run.recorder, ids[0], ids[1])
    return run


def wrapping_run(settings: Settings) -> LiveRun | None:
    """The run of the `flightlog run` that this program was started by, joined; None without one."""
    if settings.run is None:
        return None
    found = read_document(Path(settings.run) / layout.RUN, layout.RunInfo)
    if found.value is None or found.value.provider != COMMAND:
        return None
    made_here = any(run.owned and run.run_id == found.value.run_id for run in active_runs())
    return None if made_here else join_from_environment()


class Joined:
    """`flightlog.record` inside `flightlog run`: the same run; its end is the command's, its failure is
    noted.
    """

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self._before = current.get()
        current.set(run.root)

    def end(self, error: BaseException | None) -> None:
        """Go back to where the context was."""
        current.set(self._before)
        if error is not None and not is_clean_exit(error):
            self.run.note_failure(error, "run")

    def conclude(self, status: str, error: str | None) -> None:
        """Nothing: the run is another process's to end."""


def follow(run: LiveRun, on_beat: Callable[[], None] = lambda: None) -> None:
    """Keep a joined run's files fresh from this process, from its first line on, and call `on_beat` before
    each time.

    When the run has ended and this process has nothing more to say, it leaves: a pool's worker serves many
    runs.
    """
    pulses: list[Ticker] = []
    pid = os.getpid()
    saving = threads.RLock()
    idle, lines = 0, 0
    interpreter = InterpreterSampling(run)

    def cpu_s() -> float:
        return pulses[0].cpu_s if pulses else 0.0

    def beat() -> None:
        on_beat()
        look_at_meters()
        interpreter.sample()
        run.recorder.announce_open()
        run.recorder.files.flush()
        with saving:
            if not run.recorder.closed:
                save_heartbeat(run, cpu_s())
        nonlocal idle, lines
        said = sum(run.recorder.files.info.lines.values())
        idle, lines = (0, said) if said != lines or run.recorder.open else (idle + 1, lines)
        if idle >= RecordLimits.idle_beats_before_check and is_over(run.path):
            leave()

    def leave() -> None:
        if os.getpid() != pid or run.recorder.closed:
            return
        run.recorder.closed = True
        settings = read_settings()
        with quick_handovers():
            _leaving.pop(str(run.path), None)
            _left.add(str(run.path))
            deactivate(run)
            run.end_lanes()
            run.root._sink = None
            for pulse in pulses:
                pulse.tell()
            with saving:
                close_writer(run, cpu_s())
            for pulse in pulses:
                pulse.join(1.0 if settings.complete == "now" or is_alone() else 0.01)
            atexit.unregister(leave)
            if is_over(run.path):  # nobody else will put these lines where they belong
                leave_completing(run, settings)

    def started() -> None:
        run.recorder.on_open = lambda: None
        measure_cost(run.recorder)
        run.recorder.files.save()  # from its first line on, a killed process is known to have been here
        pulses.append(
            Ticker("flightlog-pulse", RecordLimits.heartbeat_interval_s, beat, run.recorder.trouble)
        )
        atexit.register(leave)
        if "multiprocessing.util" in sys.modules:  # its children end without atexit
            from multiprocessing.util import Finalize

            Finalize(None, leave, exitpriority=-100)

    run.recorder.closed = False
    run.recorder.on_open = started
    _leaving[str(run.path)] = leave
