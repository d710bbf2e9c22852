"""A task that no engine runs: the code inside `with run.task(...)`, recorded with what it used."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from flightlog.events import TaskCancelled, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted
from flightlog.record.clock import monotonic_ns
from flightlog.record.failure import is_clean_exit
from flightlog.record.span import Span, current
from flightlog.record.values import bounded, clean, text_of
from flightlog.samplers.usage import UsageMeter

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun


class TaskSpan(Span):
    """One attempt of one task, from `__enter__` to `__exit__`; spans inside it have it as parent.

    It has a span's interface: `metrics`, `tags`, `add_metric`, `set_status`, `duration`. It is recorded in `tasks`
    alone. An exception makes it failed; cancellation, Ctrl-C and a closed generator make it cancelled; `set_status`
    with "error" makes it failed for code that returns its errors.
    """

    shown_open = False  # its start is an event of its own

    def __init__(self, run: LiveRun, name: str, args: dict[str, Any]) -> None:
        super().__init__(name, {})
        self._run, self._args = run, args
        self._meter = UsageMeter()

    def __enter__(self) -> Self:
        run = self._run
        here = current.get()
        if here is None or here._sink is not run.recorder:
            here = run.root
        if here._sink is None:
            return self
        self._sink, self._parent = run.recorder, here
        self.span_id = run.recorder.next_id()
        run.recorder.open[self.span_id] = self
        current.set(self)
        self._start = monotonic_ns()
        args, _ = clean(self._args)
        self._args = args
        start = run.recorder.clock.iso(self._start)
        ids = self._ids()
        run.emit(TaskSubmitted(timestamp=start, args=args, **ids))
        run.emit(TaskStarted(timestamp=start, worker=run.lane(), queue_s=0.0, **ids))
        self._meter.start()
        self._start = monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        start, run = self._start, self._run
        if start is None:
            super().__exit__(None, None, None)
            return
        usage = self._meter.stop()
        seconds = (monotonic_ns() - start) / 1e9
        metrics, marks = clean(self.metrics, keys_secret=False)
        tags, tag_marks = clean(self.tags)
        ended: dict[str, Any] = {
            **self._ids(),
            "args": self._args,
            "worker": run.lane(),
            "duration_s": seconds,
            "queue_s": 0.0,
            "cpu_s": usage.cpu_s,
            "cpu_scope": usage.cpu_scope,
            "peak_rss_bytes": usage.peak_rss_bytes,
            "rss_scope": usage.rss_scope,
            "read_bytes": usage.read_bytes,
            "write_bytes": usage.write_bytes,
            "tags": tags,
            "metrics": metrics,
            "nonfinite": {**tag_marks, **marks},
        }
        run.recorder.open.pop(self.span_id, None)
        self.duration_s, self._start, self._sink = seconds, None, None
        super().__exit__(None, None, None)
        if _is_cancellation(kind):
            run.emit(TaskCancelled(reason=kind.__name__ if kind else None, **ended))
        elif kind is not None and error is not None and not is_clean_exit(error):
            facts = {"task": self.name, "task_id": self.span_id, "attempt": 1, "worker": ended["worker"]}
            text = run.note_failure(error, "task", span_id=self.span_id, **facts)
            run.emit(
                TaskFailed(
                    error_type=text.error_type,
                    error_message=text.message,
                    fingerprint=text.fingerprint,
                    **ended,
                )
            )
        elif self.status == "error":
            run.emit(
                TaskFailed(error_type=None, error_message=bounded(text_of(self.error_message), 2000), **ended)
            )
        else:
            run.emit(TaskCompleted(**ended))

    def _ids(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "task_id": self.span_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "parent_id": self.parent_id,
        }


def _is_cancellation(kind: type[BaseException] | None) -> bool:
    if kind is None:
        return False
    return issubclass(kind, KeyboardInterrupt | GeneratorExit) or any(
        base.__name__ == "CancelledError" for base in kind.__mro__
    )


def lane_name(host: str, pid: int, *, main: bool = False) -> str:
    """What a worker is called that nobody named: its process, and its thread where that is not the main one."""
    thread = threading.current_thread()
    base = f"{host}:{pid}"
    return base if main or thread is threading.main_thread() else f"{base}/{thread.name}"
