"""Tasks on this machine: functions in a pool of threads or processes, commands beside them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.backends import base
from flightlog.compat.rhapsody.backends.base import CallResult, StandardBackend, failed
from flightlog.compat.rhapsody.backends.constants import BackendMainStates
from flightlog.record.context import CARRIES_CONTEXT


class ConcurrentExecutionBackend(StandardBackend):
    """Runs tasks with the concurrency of the executor's workers, commands and functions together.

    The default executor has `num_workers` threads; awaiting the backend is optional. A task is RUNNING when
    it runs, and not while it waits; in a process pool, when a worker is free for it. A cancelled command is
    killed; a running function cannot be stopped, and its result is discarded, as is that of one which a
    process pool has taken for its next free worker.
    """

    def __init__(
        self, executor: Executor | None = None, name: str = "concurrent", *, num_workers: int | None = None
    ) -> None:
        super().__init__(name)
        self.logger = logging.getLogger(__name__)
        executor = executor or ThreadPoolExecutor(num_workers)
        if not isinstance(executor, Executor):
            raise TypeError("Executor must be ThreadPoolExecutor or ProcessPoolExecutor")
        self.executor = executor
        workers = getattr(executor, "_max_workers", None)
        self._free = workers if isinstance(workers, int) else 1 << 30
        # Calls that the executor has before it has workers for them: these need not wait for the next one.
        self._most_ahead = min(self._free, CompatLimits.calls_ahead) + CompatLimits.calls_ahead
        self._ahead: OrderedDict[str, _Call] = OrderedDict()
        self._waiting: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._running: dict[str, _Call | asyncio.Task[None]] = {}
        self._commands: set[asyncio.Task[None]] = set()
        self._ends: dict[str, asyncio.Future[str]] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        """What workers say, for the event loop."""
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> list[asyncio.Future[str]]:
        """Start tasks; returns the futures of their ends, which give the final states."""
        self._loop = asyncio.get_running_loop()
        for task in tasks:
            self._take(task)
            self._waiting[task["uid"]] = task
            self._ends[task["uid"]] = self._loop.create_future()
        ends = [self._ends[task["uid"]] for task in tasks]
        with self.together():
            self._fill()
        return ends

    async def _execute_task(self, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Run one task; gives it and its final state. Backends that are derived from RHAPSODY's use it."""
        (end,) = await self.submit_tasks([task])
        return task, await end

    _execute_function = _execute_command = _execute_task

    async def _cancel(self, uid: str) -> bool:
        if self._waiting.pop(uid, None) is not None:
            return True
        self._ahead.pop(uid, None)
        running = self._running.pop(uid, None)
        if running is not None:
            running.cancel()
        return running is not None

    async def shutdown(self) -> None:
        """Cancel what has not ended, wait for functions that run, and shut the executor down."""
        self._backend_state = BackendMainStates.SHUTDOWN
        await self.cancel_all_tasks()
        if self._commands:
            await asyncio.wait(list(self._commands))
        await asyncio.to_thread(self.executor.shutdown, wait=True)
        self._listen()

    def _fill(self) -> None:
        """Start tasks while workers are free, and let pools have a few more."""
        while self._free > 0 and (self._ahead or self._waiting):
            if self._ahead:
                uid, call = next(iter(self._ahead.items()))
                if not call.begins_here:
                    break  # a free thread takes it
                self._begin(call)
                continue
            uid, task = self._waiting.popitem(last=False)
            if task.get("function"):
                self._call(uid, task)
                continue
            self._free -= 1
            command = asyncio.create_task(self._run_command(uid, task), name=f"task {uid}")
            self._running[uid] = command
            self._commands.add(command)
        if len(self._ahead) > self._most_ahead // 2:
            return
        while len(self._ahead) < self._most_ahead and self._waiting and not self._commands:
            uid, task = next(iter(self._waiting.items()))
            if not task.get("function"):
                break
            del self._waiting[uid]
            self._call(uid, task)

    def _call(self, uid: str, task: dict[str, Any]) -> None:
        """Give the function of a task to the executor."""
        function, args, kwargs = task["function"], task.get("args") or (), task.get("kwargs") or {}
        place = self._place(uid)
        with suppress(AttributeError):
            setattr(self.executor, CARRIES_CONTEXT, place is not None)  # then the call has its place with it
        future: Future[Any]
        try:
            if isinstance(self.executor, ProcessPoolExecutor):
                work = base.pack_call(function, args, kwargs, place, uid)
                call = _Call(task, partial(base.unpack_outcome, work), begins_here=True)
                call.recorded = place is not None
                future = self.executor.submit(base.run_packed, work)
            else:
                call = _Call(task)
                began = partial(self._say_began, call)
                future = self.executor.submit(base.run_here, partial(function, *args, **kwargs), place, began)
        except Exception as error:  # noqa: BLE001 - what cannot be pickled, a pool that is broken
            self._end_call(task, CallResult(None, error, {}))
            return
        call.future = future
        self._ahead[uid] = self._running[uid] = call
        future.add_done_callback(lambda _: self._say(partial(self._returned, call)))

    def _begin(self, call: _Call, started_at: float | None = None, **facts: Any) -> None:
        """The function of a task has a worker."""
        self._ahead.pop(call.task["uid"], None)
        self._free -= 1
        call.began = True
        if self._running.get(call.task["uid"]) is call:
            self._began(call.task, started_at or time.time(), recorded=call.recorded, **facts)

    def _say_began(self, call: _Call, started_at: float, worker: str | None) -> None:
        self._say(partial(self._begin, call, started_at, worker=worker))

    def _say(self, what: Callable[[], None]) -> None:
        """Let the event loop do something, from any thread; it is woken once for all that is said at once."""
        self._inbox.append(what)
        if not self._woken:
            self._woken = True
            assert self._loop is not None
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._listen)

    def _listen(self) -> None:
        self._woken = False
        with self.together():
            while self._inbox:
                try:
                    self._inbox.popleft()()
                except Exception:
                    self.logger.exception("the state of a task could not be reported")
            self._fill()

    def _returned(self, call: _Call) -> None:
        uid, future = call.task["uid"], call.future
        assert future is not None
        current = self._running.get(uid) is call
        if current and not call.began and not future.cancelled():
            self._begin(call)
        if call.began:
            self._free += 1
        if not current:  # it was cancelled, and perhaps submitted again
            return
        self._ahead.pop(uid, None)
        del self._running[uid]
        try:
            called = call.read(future.result())
        # A pool that broke, or a result that cannot be unpickled.
        except BaseException as error:  # noqa: BLE001
            called = CallResult(None, error, {})
        self._end_call(call.task, called)

    def _end_call(self, task: dict[str, Any], called: CallResult) -> None:
        self.measured.setdefault(task["uid"], {}).update(called.facts)
        if called.error is not None:
            self._ended(task, "FAILED", {**failed(called.error), "return_value": None})
            return
        found = {"return_value": called.value, "stdout": str(called.value), "stderr": "", "exit_code": 0}
        self._ended(task, "DONE", found)

    async def _run_command(self, uid: str, task: dict[str, Any]) -> None:
        command = asyncio.current_task()
        assert command is not None
        try:
            found = await base.run_command(task, self._work_dir, lambda at: self._began(task, at))
            self.measured.setdefault(uid, {}).update(found.pop("measured"))
            self._ended(task, "DONE" if found["exit_code"] == 0 else "FAILED", found)
        except Exception as error:  # noqa: BLE001 - a command that is not there
            self._ended(task, "FAILED", {**failed(error), "return_value": None})
        finally:
            if self._running.get(uid) is command:
                del self._running[uid]
            self._commands.discard(command)
            self._free += 1
            self._fill()

    def _ended(self, task: dict[str, Any], state: str, found: dict[str, Any] | None = None) -> None:
        end = self._ends.pop(task["uid"], None)
        try:
            super()._ended(task, state, found)
        finally:
            if end is not None and not end.done():
                end.cancel() if state == "CANCELED" else end.set_result(state)


class _Call:
    """The function of a task, in the hands of an executor.

    `begins_here`: the executor does not say when a worker begins with it.
    """

    __slots__ = ("began", "begins_here", "future", "read", "recorded", "task")

    def __init__(
        self,
        task: dict[str, Any],
        read: Callable[[Any], CallResult] | None = None,
        *,
        begins_here: bool = False,
    ) -> None:
        self.task, self.read, self.begins_here = task, read or _as_it_is, begins_here
        self.began = self.recorded = False
        self.future: Future[Any] | None = None

    def cancel(self) -> None:
        """Do not call it, where that is possible still."""
        if self.future is not None:
            self.future.cancel()


def _as_it_is(called: CallResult) -> CallResult:
    return called
