"""Work in the background of a run: the ticker that keeps files fresh, the sampling thread, and the documents
that are kept up to date (`run.json`, `writer.json`, `environment.json`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from math import inf
from pathlib import Path
from typing import Any

from flightlog.core import threads
from flightlog.core.interruption import pass_interruption
from flightlog.events import ResourceSample
from flightlog.record.background_imports import loading
from flightlog.record.clock import monotonic_ns
from flightlog.record.environment import Environment, read_environment
from flightlog.record.followers import follower_pids
from flightlog.record.limits import RecordLimits
from flightlog.record.run import LiveRun
from flightlog.record.task import lane_name
from flightlog.record.values import class_name, error_text
from flightlog.samplers import Sampler, installed_samplers
from flightlog.samplers.process import ProcessSampler, interpreter_wait_s
from flightlog.samplers.usage import running_meters
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document


class Ticker:
    """Calls a function at once and then at an interval, on a daemon thread, until stopped; counts its CPU
    time.

    The first intervals may be shorter, `first_s`. `finish` is called there once it has stopped. Not in a
    subinterpreter, which has to be without threads when it ends.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        tick: Callable[[], None],
        trouble: Callable[[str, str], None],
        finish: Callable[[], None] = lambda: None,
        first_s: Sequence[float] = (),
    ) -> None:
        self.cpu_s = 0.0
        self._first_s = first_s
        self._name, self._interval_s, self._tick, self._trouble = name, interval_s, tick, trouble
        self._finish = finish
        self._stop = threads.Event()
        self._thread = threads.Thread(target=self._run, name=name)
        if threads.in_main_interpreter():
            self._thread.start()

    def tell(self) -> None:
        """Let no other tick begin; does not wait for the one in progress."""
        self._stop.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Let no other tick begin, and wait so long for the one in progress."""
        self.tell()
        self.join(timeout_s)

    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait so long for the end of the thread."""
        if not self._thread.is_current():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        due = time.monotonic()
        for interval_s in chain(self._first_s, repeat(self._interval_s)):
            self._attempt(self._tick, "and goes on")
            self.cpu_s = time.thread_time()
            due = max(due + interval_s, time.monotonic())
            if self._stop.wait(max(due - time.monotonic(), interval_s / 10)):
                self._attempt(self._finish, "at its end")
                return

    def _attempt(self, action: Callable[[], None], then: str) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - the pulse must go on, whatever one beat met
            self._trouble(self._name, f"{self._name} met {error_text(error)} {then}")


class Sampling:
    """Samples the machine at an interval, from a first sample at once to a final one at the end; more often
    in the beginning, since many runs are short.
    """

    def __init__(
        self,
        samplers: Callable[[], Sequence[Sampler]],
        interval_s: float,
        emit: Callable[[ResourceSample], None],
        trouble: Callable[[str, str], None],
    ) -> None:
        self._make, self._samplers = samplers, list[Sampler]()
        self._emit, self._trouble = emit, trouble
        self._made = False
        self._lock, self._emitting = threads.Lock(), threads.Lock()
        self._began: float | None = None
        self._over = False
        first_s = [part * interval_s for part in RecordLimits.first_sample_intervals]
        self._ticker = Ticker("flightlog-sampler", interval_s, self._sample, trouble, self._close, first_s)

    @property
    def cpu_s(self) -> float:
        """CPU time the sampling thread has used."""
        return self._ticker.cpu_s

    def stop(self, wait_s: float = 1.0) -> bool:
        """Take the final sample and end, which the sampling thread does by itself; whether there is a final
        sample.

        One that is being taken is waited for so long, and as long again where it is just being emitted. After
        that nothing is emitted any more.
        """
        in_time = self._lock.acquire(timeout=wait_s)
        try:
            if in_time:
                self._sample_now(final=True)
            else:
                began = self._began
                if began is not None and time.monotonic() - began > RecordLimits.sample_timeout_s:
                    self._trouble("sampling", "a sampler hangs: there is no final sample")
        finally:
            emitted = self._emitting.acquire(timeout=wait_s)
            self._over = True
            if emitted:
                self._emitting.release()
            if in_time:
                self._lock.release()
        self._ticker.tell()
        return in_time

    def join(self, timeout_s: float) -> None:
        """Wait so long until the sampling thread has ended."""
        self._ticker.join(timeout_s)

    def _sample(self) -> None:
        with self._lock:
            if not self._over:
                self._sample_now(final=False)

    def _sample_now(self, final: bool) -> None:
        self._began = time.monotonic()
        if self._made:
            self._take(final)
        else:
            self._made = True
            with threads.quick_handovers(), loading():  # beside busy threads it would take seconds
                self._samplers.extend(self._make())
                self._take(final)  # what a sampler needs it may load with its first sample
        self._began = None

    def _close(self) -> None:
        """Let the samplers' descriptors go."""
        with self._lock:
            for sampler in self._samplers:
                close = getattr(sampler, "close", None)
                if close is not None:
                    close()

    def _take(self, final: bool) -> None:
        for sampler in list(self._samplers):
            try:
                take = getattr(sampler, "last_sample", sampler.sample) if final else sampler.sample
                for sample in take():
                    sample.final = final
                    with self._emitting:  # busy threads may come between the question and what follows
                        if not self._over:
                            self._emit(sample)
                for text in getattr(sampler, "notes", ()):
                    self._trouble(text, text)
            # A sampler that fails is left out, the others go on.
            except BaseException as error:  # noqa: BLE001
                pass_interruption(error)
                if self._over:
                    return
                self._samplers = [one for one in self._samplers if one is not sampler]
                name = class_name(type(sampler))
                self._trouble(
                    f"sampler {name}", f"sampler {name} failed and is left out: {error_text(error)}"
                )


class InterpreterSampling:
    """Samples how long threads wait for the interpreter in a process that joined a run, while it executes
    several tasks side by side; as often as the run samples, at most. One thread.
    """

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._due = -inf

    def sample(self) -> None:
        """Take a sample if it is time for one; takes some milliseconds."""
        interval_s, now = self._run.info.sample_interval_s, time.monotonic()
        if interval_s is None or now < self._due or running_meters() < 2:
            return
        self._due = now + interval_s
        waited_s = interpreter_wait_s()
        if waited_s is not None:
            facts: dict[str, Any] = {"host": self._run.recorder.host, "pid": os.getpid(), "cpu_percent": None}
            self._run.emit(ResourceSample(scope="worker_process", interpreter_wait_s=waited_s, **facts))


def save_heartbeat(run: LiveRun, cpu_s: float) -> None:
    """Say in `run.json` and `writer.json` that this process lives, and what it has recorded so far."""
    save_writer(run, cpu_s)
    if run.owned:
        run.info.heartbeat = run.recorder.files.info.heartbeat
        run.info.duration_s = (monotonic_ns() - run.started_ns) / 1e9
        note_tasks(run)
        save_run(run)


def save_writer(run: LiveRun, cpu_s: float) -> None:
    """Write `writer.json`: that this process lives, and what it has recorded so far."""
    recorder, info = run.recorder, run.recorder.files.info
    info.heartbeat = recorder.clock.now()
    info.counts = {**recorder.counts, **recorder.subscribers.counts()}
    info.background_cpu_s = cpu_s
    recorder.files.save()


def note_tasks(run: LiveRun) -> None:
    """Put the tasks that this process has recorded so far into `run.info`."""
    info, counts = run.info, run.recorder.counts
    info.tasks_submitted = counts.get("task_submitted", 0)
    info.tasks_completed = counts.get("task_completed", 0)
    info.tasks_failed = counts.get("task_failed", 0)


def is_over(path: Path) -> bool:
    """Whether a run has ended, by its own word."""
    found = read_document(path / layout.RUN, layout.RunInfo)
    return found.value is not None and found.value.status in layout.ENDED


def save_run(run: LiveRun) -> None:
    """Write `run.json`, in a folder that may have to be made again."""
    _save(run, run.path / layout.RUN, run.info)


def save_environment(run: LiveRun, environment: Environment | None = None) -> None:
    """Write the environment down, once a run; read now unless it is given."""
    environment = environment or read_environment()
    run.info.git_dirty = environment.git_dirty
    run.info.git_commit = environment.git_commit
    _save(run, run.path / layout.ENVIRONMENT, environment)


def make_samplers(run: LiveRun, chosen: Sequence[Sampler] | None) -> Sequence[Sampler]:
    """The samplers of a run: those chosen, else one of each kind that is installed."""
    if chosen is not None:
        return chosen
    found = installed_samplers()
    made: list[Sampler] = []
    for name, kind in found.found.items():
        try:
            if kind is ProcessSampler:
                worker = lane_name(run.recorder.host, os.getpid(), main=True)
                besides, workers = partial(follower_pids, run.path), run.recorder.worker_processes.copy
                made.append(ProcessSampler(worker=worker, besides=besides, workers=workers))
            else:
                made.append(kind())
        except Exception as error:  # noqa: BLE001 - a sampler of somebody else's
            run.recorder.trouble(f"sampler {name}", f"sampler {name} cannot be used: {error!r}")
    for name, problem in found.failed.items():
        run.recorder.trouble(f"sampler {name}", f"sampler {name} cannot be used: {problem}")
    return made


def _save(run: LiveRun, path: Path, document: object) -> None:
    try:
        try:
            write_document(path, document)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_document(path, document)
    except OSError as error:
        reason = error.strerror or str(error)
        run.recorder.trouble(reason, f"cannot write {path}: {reason}")
