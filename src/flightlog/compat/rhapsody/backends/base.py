"""The base of backends; and what the backends of this package share: measured calls and commands."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple, Self

from flightlog.compat.rhapsody.backends.constants import BackendMainStates, StateMapper
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.execute import awaited, execute
from flightlog.engines.program import dumps
from flightlog.events import Usage
from flightlog.record.clock import monotonic_ns
from flightlog.record.context import RUN, TRACEPARENT, format_traceparent
from flightlog.record.run import LiveRun
from flightlog.record.task import AttemptSpan
from flightlog.session.tracking import value_of
from flightlog.store.liveness import this_host, unix_time

MEASURED = (*Usage.__struct_fields__, "worker", "tags", "metrics", "nonfinite")
"""What a worker measures of a task, by the names of `TaskEnded`; durations apart."""


class BaseBackend(ABC):
    """Runs tasks, and calls a callback with every state of each.

    A backend may have `measured`, a dict by task id that telemetry reads: `started_at` and `ended_at` in Unix
    seconds, and the fields of `flightlog.events.TaskEnded`.
    """

    supports_implicit_data_linking: bool = False
    supports_explicit_data_linking: bool = False
    _callback_func: Callable[[dict[str, Any], str], Any]

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._work_dir = str(Path.cwd())
        self._callback_func = lambda task, state: None  # noqa: ARG005 - until a session registers
        self.is_attached = False
        self.attached_to: list[str] = []

    @property
    def name(self) -> str:
        """The backend's name; by default that of its class."""
        return self._name or type(self).__name__

    @abstractmethod
    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> Any:
        """Run tasks; the callback is called with every state of each."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Cancel what runs, and free all resources."""

    @abstractmethod
    def state(self) -> Any:
        """The backend's own state."""

    @abstractmethod
    def task_state_cb(self, task: dict[str, Any], state: str) -> Any:
        """A task has entered this state."""

    def register_callback(self, func: Callable[[dict[str, Any], str], Any]) -> None:
        """Set the function that is called with every task and state."""
        self._callback_func = func

    @abstractmethod
    def get_task_states_map(self) -> Any:
        """The backend's names of task states."""

    @abstractmethod
    def build_task(self, task: dict[str, Any]) -> Any:
        """Prepare a task."""

    def link_implicit_data_deps(  # noqa: B027
        self, src_task: dict[str, Any], dst_task: dict[str, Any]
    ) -> None:
        """Pass the data of one task to another, where that is supported."""

    def link_explicit_data_deps(  # noqa: B027 - a hook that most leave alone
        self,
        src_task: dict[str, Any] | None = None,
        dst_task: dict[str, Any] | None = None,
        file_name: str | None = None,
        file_path: str | None = None,
    ) -> dict[str, Any] | None:
        """Pass a file to a task, where that is supported; returns its `target`."""

    @abstractmethod
    async def cancel_task(self, uid: str) -> bool:
        """Cancel a task; returns whether it was tried."""
        raise NotImplementedError("Not implemented in the base backend")


class StandardBackend(BaseBackend):
    """A backend that is awaited before use, or used with `async with`, with the default names of states.

    `tasks` holds those that have not ended, `measured` what telemetry reads. Telemetry sets `place_of`, which
    gives the place of a task in a run, and `together`, in which several states are recorded at once. For one
    event loop.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        StateMapper.register_backend_states_with_defaults(backend=self)
        StateMapper.register_backend_tasks_states_with_defaults(backend=self)
        self.tasks: dict[str, dict[str, Any]] = {}
        self.measured: dict[str, dict[str, Any]] = {}
        self.place_of: Callable[[str], RunPlace | None] | None = None
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        self._initialized = False
        self._backend_state = BackendMainStates.INITIALIZED

    @classmethod
    async def create(cls, *args: Any, **options: Any) -> Self:
        """Create a backend that is ready for use; takes the arguments of the class."""
        return await cls(*args, **options)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._async_init().__await__()

    async def _async_init(self) -> Self:
        self._initialized = True
        return self

    def get_task_states_map(self) -> StateMapper:
        """The default names of task states."""
        return StateMapper(backend=self)

    async def state(self) -> str:
        """INITIALIZED, RUNNING once it was given tasks, or SHUTDOWN."""
        return self._backend_state.value

    def task_state_cb(self, task: dict[str, Any] | None = None, state: str | None = None) -> Any:
        """Nothing: states go to the registered callback."""

    def build_task(self, task: Any, task_desc: Any = None, task_specific_kwargs: Any = None) -> Any:
        """Nothing: tasks are run as they are."""

    async def cancel_task(self, uid: str) -> bool:
        """Cancel a task; returns whether it had not ended. A running function goes on where it cannot be
        stopped, and its result is discarded.
        """
        task = self.tasks.get(uid)
        if task is None or not await self._cancel(uid):
            return False
        self._ended(task, "CANCELED")
        return True

    async def _cancel(self, _uid: str) -> bool:
        """Cancel what runs a task; whether there is something."""
        return True

    async def cancel_all_tasks(self) -> int:
        """Cancel every task that has not ended; returns their number."""
        return sum([await self.cancel_task(uid) for uid in list(self.tasks)])

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self.shutdown()

    def _take(self, task: dict[str, Any]) -> None:
        self._backend_state = BackendMainStates.RUNNING
        self.tasks[task["uid"]] = task

    def _place(self, uid: str) -> RunPlace | None:
        return self.place_of(uid) if self.place_of is not None else None

    def _began(self, task: dict[str, Any], started_at: float, **facts: Any) -> None:
        """Report that a task has started, unless it was cancelled; `recorded`: the run has its start
        already.
        """
        if task["uid"] in self.tasks:
            self.measured.setdefault(task["uid"], {}).update(facts, started_at=started_at)
            self._callback_func(task, "RUNNING")

    def _ended(self, task: dict[str, Any], state: str, found: dict[str, Any] | None = None) -> None:
        """Report that a task has ended; later ends of it are ignored."""
        if self.tasks.pop(task["uid"], None) is None:
            return
        task.update(found or {})
        try:
            self._callback_func(task, state)
        finally:
            self.measured.pop(task["uid"], None)


class RunPlace(NamedTuple):
    """The place of a task in a run."""

    run: LiveRun
    task: str
    span_id: str
    parent_id: str
    submitted: float

    def carrier(self) -> dict[str, str]:
        """The run and the parent span, for another process."""
        trace = format_traceparent(self.run.info.trace_id, self.parent_id)
        return {TRACEPARENT: trace, RUN: str(self.run.path)}


class CallResult(NamedTuple):
    """The value or exception of a call, and what was measured."""

    value: Any
    error: BaseException | None
    facts: dict[str, Any]


OnStart = Callable[[float, str | None], None]
"""Called with the Unix time of a task's start, and its worker."""


def run_here(call: Callable[[], Any], place: RunPlace | None, began: OnStart) -> CallResult:
    """Call a function or coroutine function on this thread, measured; spans inside it belong to the task."""
    return copy_context().run(_run_here, call, place, began)


def _run_here(call: Callable[[], Any], place: RunPlace | None, began: OnStart) -> CallResult:
    span = AttemptSpan(place.task if place is not None else "task")
    worker = None
    if place is not None:
        run = place.run
        worker = run.lane()
        span.open_in(run.recorder.open.get(place.parent_id, run.root), place.span_id)
    value: Any = None
    error: BaseException | None = None
    started_at = time.time()
    began(started_at, worker)
    span.measure()
    try:
        value = awaited(call())
    # Whatever a task ends with is its outcome, not the worker's end.
    except BaseException as raised:  # noqa: BLE001
        error = raised
        if raised.__traceback__ is not None and raised.__traceback__.tb_next is not None:
            raised.__traceback__ = raised.__traceback__.tb_next  # the task's own frames, without this one
    measured = span.close(monotonic_ns())
    times = {"started_at": started_at, "ended_at": started_at + (measured["duration_s"] or 0.0)}
    return CallResult(value, error, {**measured, "worker": worker, **times})


def pack_call(function: Callable[..., Any], args: Any, kwargs: Any, place: RunPlace | None, uid: str) -> Work:
    """A pickled call for another process; raises what pickling raises."""
    where: dict[str, Any] = {"task": "task", "submitted": time.time(), "span_id": "0" * 16}
    if place is not None:
        where = {name: getattr(place, name) for name in where}
    where["place"] = {} if place is None else place.carrier()
    call = dumps((function, tuple(args), dict(kwargs)))
    return Work(task_id=uid, attempt=1, call=call, args={}, args_bytes=0, **where)


def run_packed(work: Work, alone: bool = True, worker: str | None = None) -> Outcome:
    """Run a pickled call, measured, in the process that received it; by default each thread is a worker."""
    if worker is None:
        thread = threading.current_thread()
        name = "" if thread is threading.main_thread() else f"/{thread.name}"
        worker = f"{this_host()}:{os.getpid()}{name}"
    return execute(work, worker=worker, alone=alone, dumps=dumps)


def unpack_outcome(work: Work, outcome: Outcome) -> CallResult:
    """The result of a call in another process."""
    value, outcome, error = value_of(work, outcome)
    facts = {name: getattr(outcome, name) for name in (*MEASURED, "duration_s", "queue_s")}
    facts |= {"started_at": unix_time(outcome.started), "ended_at": unix_time(outcome.ended)}
    return CallResult(value, error, facts)


def failed(error: BaseException) -> dict[str, Any]:
    """The entries of a task that has failed by an error."""
    return {"exception": error, "stdout": "", "stderr": str(error), "exit_code": 1}


async def run_command(task: dict[str, Any], folder: str, began: Callable[[float], None]) -> dict[str, Any]:
    """Run the command of a task; returns its output, its exit code, and its times.

    `shell`, `cwd` and `env` are in `task_backend_specific_kwargs`. With `capture_stdio` the output goes to
    files in the folder, and their paths are returned. A command whose task is cancelled is killed with all
    its children: it has a process session of its own.
    """
    options = task.get("task_backend_specific_kwargs") or {}
    command = [task["executable"], *(task.get("arguments") or [])]
    with ExitStack() as files:
        kinds = ("stdout", "stderr")
        paths = [str(Path(folder) / f"{task['uid']}.{kind}") for kind in kinds if task.get("capture_stdio")]
        opened: list[Any] = [files.enter_context(Path(path).open("wb")) for path in paths]
        where: dict[str, Any] = {name: options.get(name) for name in ("cwd", "env")}
        where |= zip(kinds, opened or [asyncio.subprocess.PIPE] * 2, strict=True)
        where["start_new_session"] = True
        started_at, began_ns = time.time(), time.monotonic_ns()
        if options.get("shell", False):
            process = await asyncio.create_subprocess_shell(" ".join(command), **where)
        else:
            process = await asyncio.create_subprocess_exec(*command, **where)
        began(started_at)
        try:
            said = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            raise
    duration_s = (time.monotonic_ns() - began_ns) / 1e9
    output = paths or [(text or b"").decode(errors="replace") for text in said]
    measured = {"started_at": started_at, "ended_at": started_at + duration_s, "duration_s": duration_s}
    code = process.returncode
    return {"stdout": output[0], "stderr": output[1], "exit_code": code, "measured": measured}
