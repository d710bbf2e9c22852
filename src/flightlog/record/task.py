"""A task that no engine runs: the code inside `with run.task(...)`, recorded with what it used."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from flightlog.core.threads import is_patched
from flightlog.events import TaskCancelled, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted, usage_of
from flightlog.record.clock import monotonic_ns
from flightlog.record.failure import is_clean_exit
from flightlog.record.fast_values import are_harmless
from flightlog.record.span import Span, current
from flightlog.record.values import bases_of, bounded, class_name, clean, text_of
from flightlog.samplers.usage import UsageMeter

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun


class AttemptSpan(Span):
    """One attempt of one task while it executes, and what it used; whoever runs it records it.

    It has a span's interface: `metrics`, `tags`, `add_metric`, `set_status`, `duration`. Spans opened between
    `open_in` and `close` have it as parent.
    """

    shown_open = False  # its start is an event of its own
    task_id: str | None = None

    def __init__(self, name: str) -> None:
        super().__init__(name, {})
        self._meter = UsageMeter()

    def open_in(self, parent: Span, span_id: str) -> None:
        """Be the current span of this context, inside another one that is open."""
        sink = parent._sink
        if sink is not None:
            self._sink, self._parent, self.span_id = sink, parent, span_id
            sink.open[span_id] = self
            current.set(self)

    def measure(self) -> None:
        """Execution begins now, on this thread."""
        self._meter.start()
        self._start = monotonic_ns()

    def close(self, end: int) -> dict[str, Any]:
        """Execution is over: how long it took, what it used, what the code inside set; named as in
        `TaskEnded`.

        `end` is when, read once from `monotonic_ns` for whoever needs it: the duration reaches from the start
        to the moment that the end is told by, to the nanosecond.
        """
        start = self._start
        usage = self._meter.stop()
        self.duration_s = None if start is None else (end - start) / 1e9
        metrics, marks = clean(self.metrics, keys_secret=False)
        tags, tag_marks = clean(self.tags)
        sink, self._sink, self._start = self._sink, None, None
        if sink is not None:
            sink.open.pop(self.span_id, None)
        super().__exit__(None, None, None)  # the context goes back to the parent
        return {
            "duration_s": self.duration_s,
            **usage_of(usage),
            "tags": tags,
            "metrics": metrics,
            "nonfinite": {**tag_marks, **marks},
        }


class TaskSpan(AttemptSpan):
    """One attempt of one task, from `__enter__` to `__exit__`; spans inside it have it as parent.

    It is recorded in `tasks` alone. An exception makes it failed; cancellation, Ctrl-C and a closed generator
    make it cancelled; `set_status` with "error" makes it failed for code that returns its errors.
    """

    def __init__(self, run: LiveRun, name: str, args: dict[str, Any]) -> None:
        super().__init__(name)
        self._run, self._args = run, args
        self._submitted = self._told = False
        self._measured: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        run = self._run
        here = current.get()
        if here is None or here._sink is not run.recorder:
            here = run.root
        if here._sink is None:
            return self
        self._submitted, self._told, self._measured = False, False, None
        try:
            self.open_in(here, run.recorder.next_id())
            if not are_harmless(self._args, {}):
                self._args, _ = clean(self._args)
            start = run.recorder.clock.now()
            ids = self._ids()
            self._submitted = True
            run.emit(TaskSubmitted(timestamp=start, args=self._args, **ids))
            run.emit(TaskStarted(timestamp=start, worker=run.lane(), queue_s=0.0, **ids))
            self.measure()
        except BaseException as error:  # a signal handler's: the block is not entered
            if self._submitted:
                self._start = self._start or monotonic_ns()
                self.__exit__(type(error), error, None)
            else:
                self.close(monotonic_ns())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._start is None:
            super().__exit__(None, None, None)
            return
        end = monotonic_ns()
        try:
            self._end(kind, error, end)
        except BaseException:  # a signal handler's
            self._end(kind, error, end)
            raise

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, end: int) -> None:
        """Record how it ended, once: a second call goes on where an exception of a signal handler ended the
        first.
        """
        run = self._run
        if self._measured is None:
            self._measured = self.close(end)
        ended: dict[str, Any] = {
            "timestamp": run.recorder.clock.iso(end),
            **self._ids(),
            **self._measured,
            "args": self._args,
            "worker": run.lane(),
            "queue_s": 0.0,
        }
        if self._told:
            return
        event: TaskCancelled | TaskFailed | TaskCompleted
        if is_cancellation(kind):
            event = TaskCancelled(reason=class_name(kind) if kind else None, **ended)
        elif kind is not None and error is not None and not is_clean_exit(error):
            facts = {"task": self.name, "task_id": self.span_id, "attempt": 1, "worker": ended["worker"]}
            text = run.note_failure(error, "task", span_id=self.span_id, **facts)
            ended |= {"error_type": text.error_type, "error_message": text.message}
            event = TaskFailed(fingerprint=text.fingerprint, **ended)
        elif self.status == "error":
            message = bounded(text_of(self.error_message), 2000)
            event = TaskFailed(error_type=None, error_message=message, **ended)
        else:
            event = TaskCompleted(**ended)
        self._told = True
        run.emit(event)

    def _ids(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "task_id": self.span_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "parent_id": self.parent_id,
        }


def is_cancellation(kind: type[BaseException] | None) -> bool:
    """Whether an exception of this class gives a task up, rather than failing it."""
    if kind is None:
        return False
    return issubclass(kind, KeyboardInterrupt | GeneratorExit) or any(
        class_name(base) in ("CancelledError", "GreenletExit") for base in bases_of(kind)
    )


def lane_name(host: str, pid: int, *, main: bool = False) -> str:
    """What a worker is called that nobody named: its process, and its thread where that is not the main one.

    A greenlet that was not started as a `threading.Thread` is no worker of its own.
    """
    base = f"{host}:{pid}"
    if main:
        return base
    thread = threading.current_thread()
    if thread is threading.main_thread() or (is_patched() and isinstance(thread, threading._DummyThread)):
        return base
    return f"{base}/{text_of(thread.name)}"
