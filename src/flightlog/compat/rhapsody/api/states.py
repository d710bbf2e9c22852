"""What becomes of tasks: their states, and the futures of those who wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from flightlog.compat.rhapsody.api.errors import TaskExecutionError

Task = Any
"""A task, or a dict with the entries of one."""


class TaskStateManager:
    """Hears from backends, writes states into tasks, and wakes who waits.

    Its methods are for the event loop's thread; a backend calls `update_task` from another one by
    `loop.call_soon_threadsafe`. A task ends once: what is reported of one that has ended changes nothing.
    """

    def __init__(self) -> None:
        self._task_futures: dict[str, asyncio.Future[Any]] = {}
        self._terminal_states: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._telemetry_observer: Callable[[dict[str, Any], str], None] | None = None

    def bind_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make futures of this loop."""
        self._loop = loop

    def set_terminal_states(self, states: set[str]) -> None:
        """Say which states are ends."""
        self._terminal_states = states

    def update_task(self, task: Task, state: str, **kwargs: object) -> None:  # noqa: ARG002 - as backends call it
        """A task is in this state now."""
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
        """The future of a task's end; of a task that has ended, one that is done."""
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
