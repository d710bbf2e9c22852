"""Plugins of a Dask worker and of its nanny: what happens inside watched tasks is recorded as theirs, and
the nanny reports why a worker process died, which only its parent knows.

`Worker.execute` of this one worker is wrapped for as long as the plugin stands: it runs in an asyncio task of
its own, whose context Dask hands on to the thread or coroutine that executes the user's function. The
function, its arguments, its result and its exceptions are not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin

from flightlog.core.redaction import redact_text
from flightlog.engines.dask import messages as m
from flightlog.engines.dask.attempt import read_began
from flightlog.engines.dask.messages import hand_over, topics, watch_name
from flightlog.engines.limits import DaskLimits
from flightlog.engines.processes import describe_exit
from flightlog.engines.relay.recording import UNSAMPLED, WorkerRecording
from flightlog.events import UserEvent
from flightlog.record.context import CARRIES_CONTEXT
from flightlog.record.environment import job_here
from flightlog.record.failure import FailureText, describe
from flightlog.record.run import LiveRun
from flightlog.record.span import RootSpan, current
from flightlog.record.values import bounded
from flightlog.samplers import Sampler
from flightlog.samplers.cgroup import OomKills
from flightlog.samplers.process import interpreter_wait_s
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")


class WorkerWatch(WorkerPlugin):
    """Watches one worker. Hooks run on the worker's event loop; no hook raises into it.

    `place` names the run that spans inside watched tasks belong to; without one they are left alone. `token`
    is what the span ids of tasks begin with. The machine is sampled unless it is `sampled_host`.
    """

    def __init__(self, token: str, place: dict[str, str], sampled_host: str | None) -> None:
        self.name = watch_name(token)
        self._token, self._place, self._sampled_host = token, place, sampled_host
        self._worker: Any = None
        self._recording: WorkerRecording
        self._run: LiveRun | None = None
        self._execute: Any = None
        self._wrapper: Any = None
        self._beating: asyncio.Task[None] | None = None
        self._waiting: deque[m.Message] = deque()
        self._dropped = 0
        self._said: set[int] = set()
        self._last_transfer: object = None
        self._samplers: Sequence[Sampler] | None = None
        self._stopped = False

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerWatch, (self._token, self._place, self._sampled_host)

    async def setup(self, worker: Any) -> None:
        """Begin to watch."""
        self._worker = worker
        host, address = this_host(), worker.address
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        job = job_here(os.environ, worker=address, host=host)
        self._say([m.HELLO, time.time(), address, host, os.getpid(), cpus, job])
        known = worker.transfer_incoming_log
        self._last_transfer = known[-1] if known else None
        if self._place:
            self._recording = WorkerRecording(address, UNSAMPLED, self._send_home)
            self._run = await asyncio.to_thread(self._recording.join, self._place)
        for executor in worker.executors.values():
            if "ThreadPoolExecutor" in str(type(executor)):  # as Dask itself tells those that get the context
                setattr(executor, CARRIES_CONTEXT, True)
        self._execute = worker.execute
        self._wrapper = self._wrapped(worker.execute)
        worker.execute = self._wrapper
        self._beating = asyncio.create_task(self._beat_forever())

    async def teardown(self, worker: Any) -> None:
        """Leave the worker as it was; what was recorded elsewhere than in the run directory is sent home
        first.
        """
        if self._beating is not None:
            self._beating.cancel()
        # Where somebody else has wrapped it since, ours stays in between and does nothing.
        self._stopped = True
        if worker.execute is self._wrapper:
            worker.execute = self._execute
        run, self._run = self._run, None
        try:
            self._beat()
        except Exception:
            log.debug("the last beat of the watch on this worker failed", exc_info=True)
        self._say_what_is_lost(run)
        if run is not None and not run.owned:
            await asyncio.to_thread(self._recording.leave, DaskLimits.leave_timeout_s)

    def _say_what_is_lost(self, run: LiveRun | None) -> None:
        """The scheduler was not to be reached to the last: what it was to be told is counted in the run
        itself.
        """
        lost = self._dropped + len(self._waiting)
        if not lost:
            return
        self._waiting.clear()
        self._dropped = 0
        if run is None or run.recorder.closed:
            log.warning("%d reports of this worker did not reach the Dask scheduler", lost)
            return
        run.emit(UserEvent(name="dask.dropped", fields={"messages": lost, "worker": self._worker.address}))

    # --- inside tasks

    def _send_home(self, parcel: bytes) -> None:
        """Hand a parcel to the scheduler, which passes it on; waits until it did. Never on the event loop."""
        hand_over(self._worker, topics(self.name)[2], parcel)

    def _wrapped(self, execute: Any) -> Any:
        async def watched(key: Any, *, stimulus_id: str) -> Any:
            task = self._worker.state.tasks.get(key)
            if self._stopped or task is None or not task.annotations or self.name not in task.annotations:
                return await execute(key, stimulus_id=stimulus_id)
            run, run_id, delay = self._run, task.run_id, float(self._worker.scheduler_delay)
            if run is not None and not run.recorder.closed:
                # This coroutine runs in a context of its own, so nobody else sees it.
                current.set(RootSpan(run.recorder, run.info.trace_id, span_id(self._token, run_id), run.root))
            task.metadata[self.name] = delay  # it travels with the news that the task has finished
            event = await execute(key, stimulus_id=stimulus_id)
            if type(event).__name__ == "ExecuteFailureEvent":
                self._report_failure(key, run_id, event, delay)
            return event

        return watched

    def _report_failure(self, key: Any, run_id: int, event: Any, delay: float) -> None:
        """Why an attempt failed, said before Dask says that it did: of one that is retried the scheduler
        keeps nothing.
        """
        try:
            text, worker = _described(event), self._worker.address
            what = (text.error_type, text.message, text.traceback, text.fingerprint)
            when = (event.start, event.stop, delay)
            self._say([m.FAILED, self._now(), m.text_of_key(key), run_id, worker, *what, *when])
            self._flush()
        except Exception:
            log.debug("a failure could not be described", exc_info=True)

    # --- what the worker tells

    async def _beat_forever(self) -> None:
        beats = 0
        while True:
            try:
                self._beat()
                beats += 1
                if beats % DaskLimits.reports_per_sample == 0:
                    for sample in await asyncio.to_thread(self._sample, len(self._said) > 1):
                        self._say(sample)
            except Exception:
                log.debug("a beat of the watch on this worker failed", exc_info=True)
            await asyncio.sleep(DaskLimits.worker_report_interval_s)

    def _beat(self) -> None:
        """Say which tasks execute, and what was fetched from other workers."""
        worker, delay = self._worker, self._worker.scheduler_delay
        running: set[int] = set()
        for task in (*worker.state.executing, *worker.state.long_running):
            if task.start_time is None or not task.annotations or self.name not in task.annotations:
                continue
            running.add(task.run_id)
            if task.run_id in self._said:
                continue
            fetched = [step["start"] for step in task.startstops if step["action"] == "transfer"]
            key, start = m.text_of_key(task.key), task.start_time + delay
            self._say([m.RUNNING, self._now(), key, task.run_id, worker.address, start, fetched, delay])
        self._said = running
        for entry in self._new_transfers():
            who, span = (worker.address, entry["who"]), (entry["start"], entry["stop"])
            self._say([m.TRANSFER, self._now(), *who, *span, entry["total"], len(entry["keys"]), delay])
        self._flush()

    def _new_transfers(self) -> list[dict[str, Any]]:
        latest_first = reversed(self._worker.transfer_incoming_log)
        found = list(takewhile(lambda entry: entry is not self._last_transfer, latest_first))
        if found:
            self._last_transfer = found[0]
        return found[::-1]

    def _sample(self, several: bool) -> list[m.Message]:
        """Measure how long threads wait for the interpreter while several tasks run in them; and the machine
        and its GPUs, unless the client does: several workers of a host may, and the observer takes one's
        word.
        """
        waited_s = interpreter_wait_s() if several else None
        address = self._worker.address
        waits = [] if waited_s is None else [[m.INTERPRETER, self._now(), address, waited_s]]
        if self._sampled_host == this_host():
            return waits
        if self._samplers is None:
            from flightlog.samplers.gpu import GpuSampler
            from flightlog.samplers.host import HostSampler

            self._samplers = (HostSampler(), GpuSampler())
        import msgspec

        host, now = this_host(), self._now()
        return [
            *waits,
            *(
                [m.NODE, now, host, address, msgspec.json.encode(sample)]
                for sampler in self._samplers
                for sample in sampler.sample()
            ),
        ]

    def _now(self) -> float:
        return time.time() + float(self._worker.scheduler_delay)

    def _say(self, message: m.Message) -> None:
        if len(self._waiting) >= DaskLimits.max_waiting_reports:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(message)

    def _flush(self) -> None:
        """Send what waits, if there is a way; Dask's own stream keeps the order, and does not block."""
        stream = getattr(self._worker, "batched_stream", None)
        if not self._waiting or stream is None or stream.comm is None or stream.comm.closed():
            return
        messages = list(self._waiting)
        if self._dropped:
            messages.insert(0, [m.DROPPED, self._now(), self._dropped, self._worker.address])
        self._worker.log_event(topics(self.name)[0], m.encode(messages))
        self._waiting.clear()
        self._dropped = 0


def _is_of_dask(filename: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in filename for name in ("distributed", "dask"))


def _described(event: Any) -> FailureText:
    """A failure as Dask has it, which is pickled."""
    from distributed.protocol.pickle import loads

    error = loads(event.exception.data)  # type: ignore[no-untyped-call]
    if isinstance(error, BaseException):
        trace = error.__traceback__
        while trace is not None and _is_of_dask(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        if trace is not None:
            error.__traceback__ = trace  # the task's own frames, without Dask's around them
        return describe(error)
    words = bounded(redact_text(event.exception_text), 2000)
    where = bounded(redact_text(event.traceback_text), 16_000)
    return FailureText(error_type=words.partition("(")[0], message=words, traceback=where, fingerprint="")


def span_id(token: str, run_id: int) -> str:
    """The span id of one execution, known alike to the worker and to the observer."""
    return f"{token}{run_id & 0xFFFFFFFF:08x}"


_UNKNOWN = 255
"""What Dask has for the exit code of a process that somebody else has waited for."""


class NannyWatch(NannyPlugin):
    """Listens for the end of the worker's process: exit code or signal, and what the kernel says of
    memory.
    """

    restart = False

    def __init__(self, token: str) -> None:
        self.name, self._token = watch_name(token), token
        self._nanny: Any = None
        self._oom: OomKills | None = None
        self._stopped = False
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return NannyWatch, (self._token,)

    def setup(self, nanny: Any) -> None:
        """Listen, to the process there is and to those that follow it."""
        self._nanny, self._oom = nanny, OomKills()
        self._wrap(nanny, "_on_worker_exit_sync")  # for processes that follow
        if nanny.process is not None:
            self._wrap(nanny.process, "on_exit")

    def teardown(self, nanny: Any) -> None:  # noqa: ARG002 - Dask's interface
        """Listen no more; what others have wrapped since passes everything on."""
        self._stopped = True
        for owner, name, ours, before in self._wrapped:
            if getattr(owner, name) is ours:
                setattr(owner, name, before)
        self._wrapped = []

    def _wrap(self, owner: Any, name: str) -> None:
        before: Callable[[int], None] | None = getattr(owner, name)

        def on_exit(exit_code: int) -> None:
            try:
                if not self._stopped:
                    self._report(exit_code)
            except Exception:
                log.debug("the end of a worker could not be told", exc_info=True)
            if before is not None:
                before(exit_code)

        setattr(owner, name, on_exit)
        self._wrapped.append((owner, name, on_exit, before))

    def _report(self, exit_code: int) -> None:
        nanny = self._nanny
        assert self._oom is not None
        address = nanny.process.worker_address if nanny.process is not None else None
        if address is None:
            return
        death = describe_exit(None if exit_code == _UNKNOWN else exit_code, self._oom)
        began = list(read_began(self._token, address).items())
        message = [m.DEATH, time.time(), address, death.reason, death.exit_code, death.signal, began]
        nanny.log_event(topics(self.name)[0], m.encode([message]))
