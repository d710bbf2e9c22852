"""A session: backends, the tasks submitted to them, the states of tasks, and telemetry."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightlog.compat.rhapsody.api.errors import TaskExecutionError

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager

__all__ = ["Session", "TaskStateManager"]


Task = Any
"""A task, or a dict with the entries of one."""


class Session:
    """Submits tasks to backends and waits for them; an async context manager that closes everything.

    Backends write the output of commands to a folder named by `uid` below `work_dir`, by default the working
    directory. For one event loop.
    """

    def __init__(
        self, backends: list[Any] | None = None, uid: str | None = None, work_dir: str | None = None
    ) -> None:
        self.uid = uid or f"rhapsody.session.{uuid.uuid4().hex[:8]}"
        self.work_dir = work_dir or str(Path.cwd())
        self.backends: dict[str, Any] = {}
        self._exec_backends: dict[str, Any] = {}
        self._state_manager = TaskStateManager()
        self._telemetry: TelemetryManager | None = None
        self._resource_poll_interval = 5.0
        for backend in backends or []:
            self.add_backend(backend)

    def add_backend(self, backend: Any) -> None:
        """Add a backend; one without `submit_tasks` is only closed with the session."""
        self.backends[backend.name] = backend
        if not hasattr(backend, "submit_tasks"):
            return
        folder = Path(self.work_dir) / self.uid
        folder.mkdir(parents=True, exist_ok=True)
        backend._work_dir = str(folder)
        backend.is_attached = True
        backend.attached_to.append(self.uid)
        self._exec_backends[backend.name] = backend
        backend.register_callback(self._state_manager.update_task)
        if hasattr(backend, "get_task_states_map"):
            self._state_manager._terminal_states.update(backend.get_task_states_map().terminal_states)
        if self._telemetry is not None:
            self._attach_telemetry(backend)

    async def submit_tasks(self, tasks: list[Any]) -> list[asyncio.Future[Any]]:
        """Submit tasks, each to the backend it names or to the first one; returns the futures of their ends.

        Raises ValueError for an unknown backend, and RuntimeError where there is none at all; then no task
        has been submitted.
        """
        self._state_manager.bind_loop(asyncio.get_running_loop())
        if not self._exec_backends:
            raise RuntimeError("No task-executing backend configured in Session")
        for task in tasks:
            wanted = task.get("backend")
            if wanted and wanted not in self._exec_backends:
                raise ValueError(
                    f"Backend '{wanted}' requested by task {task['uid']} not found in Session. "
                    f"Available backends: {list(self._exec_backends)}"
                )
        with nullcontext() if self._telemetry is None else self._telemetry.together():
            futures, by_backend = self._sort(tasks)
        await asyncio.gather(
            *(self._exec_backends[name].submit_tasks(group) for name, group in by_backend.items())
        )
        return futures

    def _sort(self, tasks: list[Any]) -> tuple[list[asyncio.Future[Any]], dict[str, list[Any]]]:
        """The futures of tasks, and the tasks by backend; they are submitted to the session, and queued."""
        futures = []
        by_backend: dict[str, list[Any]] = {}
        for task in tasks:
            if task.get("state") in self._state_manager._terminal_states:  # once more
                task.update(dict.fromkeys(("state", "exception", "exit_code", "return_value", "response")))
            future = self._state_manager.get_wait_future(task["uid"], task)
            if hasattr(task, "bind_future"):
                task.bind_future(future)
            futures.append(future)
            task["task_type"] = type(task).__name__
            if not task.get("backend"):
                task["backend"] = next(iter(self._exec_backends))
            by_backend.setdefault(task["backend"], []).append(task)
            if self._telemetry is not None:
                self._telemetry._on_task_state_change(task, "CREATED")
                self._telemetry._on_task_state_change(task, "SUBMITTED")
        if self._telemetry is not None:
            for task in chain(*by_backend.values()):
                self._telemetry._on_task_state_change(task, "QUEUED")
        return futures, by_backend

    async def wait_tasks(self, tasks: list[Any], timeout: float | None = None) -> list[Any]:
        """Wait until all have ended, also by failing; returns the tasks. Raises TimeoutError after so many
        seconds.
        """
        futures = [self._state_manager.get_wait_future(task["uid"], task) for task in tasks]
        if futures:
            _, left = await asyncio.wait(futures, timeout=timeout)
            if left:
                done = len(tasks) - len(left)
                raise TimeoutError(f"Timeout after {timeout}s: {done}/{len(tasks)} tasks completed")
        return tasks

    async def start_telemetry(
        self,
        resource_poll_interval: float = 5.0,
        checkpoint_interval: float | None = None,
        checkpoint_path: str | None = None,
        span_processors: list[Any] | None = None,
        metric_readers: list[Any] | None = None,
        resource: Any | None = None,
    ) -> TelemetryManager:
        """Start telemetry, which also records a run, until the session ends. Call it before submitting tasks.

        Machines are sampled every `resource_poll_interval` seconds. `checkpoint_path` is the folder of the
        checkpoint file; metrics are written there every `checkpoint_interval` seconds, and at the end. The
        rest is OpenTelemetry's: additional span processors and metric readers, another resource.
        """
        from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager

        self._resource_poll_interval = resource_poll_interval
        telemetry = self._telemetry = TelemetryManager(
            self.uid, checkpoint_interval, checkpoint_path, span_processors, metric_readers, resource
        )
        self._state_manager._telemetry_observer = telemetry._on_task_state_change
        for backend in self.backends.values():
            self._attach_telemetry(backend)
        try:
            await telemetry.start()
        except BaseException:
            self._telemetry = self._state_manager._telemetry_observer = None
            raise
        return telemetry

    def get_telemetry(self) -> TelemetryManager:
        """The telemetry of this session; raises RuntimeError while there is none."""
        if self._telemetry is None:
            raise RuntimeError("Telemetry not started. Call `await session.start_telemetry()` first.")
        return self._telemetry

    async def close(self) -> None:
        """Shut the backends down, and then stop the telemetry, so that it gets the ends of all tasks."""
        try:
            for backend in self.backends.values():
                await backend.shutdown()
        finally:
            telemetry, self._telemetry = self._telemetry, None
            if telemetry is not None:
                await telemetry.stop()
                self._state_manager._telemetry_observer = None

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._telemetry is not None:
            self._telemetry._error = error  # then the run has failed of it
        await self.close()

    def _attach_telemetry(self, backend: Any) -> None:
        assert self._telemetry is not None
        self._telemetry.attach_backend(
            backend, session_id=self.uid, backend_name=backend.name, interval=self._resource_poll_interval
        )


class TaskStateManager:
    """Sets the states of tasks as backends report them, and completes their futures.

    For the event loop's thread; from another thread a backend calls `update_task` by
    `loop.call_soon_threadsafe`. A task ends once: later reports change nothing.
    """

    def __init__(self) -> None:
        self._task_futures: dict[str, asyncio.Future[Any]] = {}
        self._terminal_states: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._telemetry_observer: Callable[[dict[str, Any], str], None] | None = None

    def bind_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this event loop for futures."""
        self._loop = loop

    def set_terminal_states(self, states: set[str]) -> None:
        """Set the states in which a task has ended."""
        self._terminal_states = states

    # As backends call it.
    def update_task(self, task: Task, state: str, **kwargs: object) -> None:  # noqa: ARG002
        """A task has entered this state."""
        over = task.get("state") in self._terminal_states
        known = task["uid"] in self._task_futures
        if over and not known:
            return
        task["state"] = state
        if self._telemetry_observer is not None:
            self._telemetry_observer(task, state)
        if state in self._terminal_states and known:
            future = self._task_futures.pop(task["uid"])
            if not future.done():
                _settle(future, task)

    def get_wait_future(self, uid: str, task: Task) -> asyncio.Future[Any]:
        """The future of a task's end; done already for a task that has ended."""
        if self._loop is None:
            self.bind_loop(asyncio.get_running_loop())
        assert self._loop is not None
        future = self._task_futures.get(uid)
        if future is None:
            future = self._loop.create_future()
            if task.get("state") in self._terminal_states:
                _settle(future, task)
            else:
                self._task_futures[uid] = future
        return future


def _settle(future: asyncio.Future[Any], task: Task) -> None:
    error, code = task.get("exception"), task.get("exit_code")
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    elif isinstance(error, BaseException):  # would end the event loop, or cannot be raised by a future
        future.set_exception(TaskExecutionError(task["uid"], repr(error), code))
    elif code is not None and code != 0:
        future.set_exception(TaskExecutionError(task["uid"], task.get("stderr") or "", code))
    else:
        future.set_result(task)
        return
    future.exception()  # seen: `wait_tasks` and the task tell of it, so nobody needs to be warned
