"""Tasks on this machine: functions in a pool of threads or processes, commands beside them."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from flightlog.compat.rhapsody.backends import base
from flightlog.compat.rhapsody.backends.base import StandardBackend, failed
from flightlog.compat.rhapsody.backends.constants import BackendMainStates


class ConcurrentExecutionBackend(StandardBackend):
    """Runs tasks with the concurrency of the executor's workers, commands and functions together.

    The default executor has `num_workers` threads; awaiting the backend is optional. A task is RUNNING when
    it runs, and not while it waits; in a process pool, when a worker is free for it. A cancelled command is
    killed; a running function cannot be stopped, and its result is discarded.
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
        self._futures: dict[str, asyncio.Task[None]] = {}
        workers = getattr(executor, "_max_workers", None)
        self._slots = asyncio.Semaphore(workers if isinstance(workers, int) else 1 << 30)

    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> list[asyncio.Task[None]]:
        """Start tasks; returns the asyncio tasks that run them."""
        for task in tasks:
            self._take(task)
            future = asyncio.create_task(self._handle_task(task), name=f"task {task['uid']}")
            self._futures[task["uid"]] = future
        return [self._futures[task["uid"]] for task in tasks]

    async def _cancel(self, uid: str) -> bool:
        return uid in self._futures and self._futures[uid].cancel()

    async def shutdown(self) -> None:
        """Cancel what has not ended, wait for functions that run, and shut the executor down."""
        self._backend_state = BackendMainStates.SHUTDOWN
        left = list(self._futures.values())
        await self.cancel_all_tasks()
        if left:
            await asyncio.wait(left)
        await asyncio.to_thread(self.executor.shutdown, wait=True)

    async def _handle_task(self, task: dict[str, Any]) -> None:
        try:
            async with self._slots:
                task, state = await self._execute_task(task)
            self._ended(task, state)
        finally:
            self._futures.pop(task["uid"], None)

    async def _execute_task(self, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
        try:
            execute = self._execute_function if task.get("function") else self._execute_command
            return await execute(task)
        except Exception as error:  # noqa: BLE001 - a command that is not there, what cannot be pickled
            task.update(failed(error), return_value=None)
            return task, "FAILED"

    async def _execute_function(self, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
        uid, function = task["uid"], task["function"]
        args, kwargs = task.get("args") or (), task.get("kwargs") or {}
        loop = asyncio.get_running_loop()
        place = self._place(uid)
        if isinstance(self.executor, ProcessPoolExecutor):
            work = base.pack_call(function, args, kwargs, place, uid)
            future = self.executor.submit(base.run_packed, work)
            self._began(task, time.time(), recorded=place is not None)
            called = base.unpack_outcome(work, await _finished(future))
        else:

            def began(started_at: float, worker: str | None) -> None:
                with suppress(RuntimeError):  # the loop is closed already
                    loop.call_soon_threadsafe(partial(self._began, task, started_at, worker=worker))

            call = partial(function, *args, **kwargs)
            called = await _finished(self.executor.submit(base.run_here, call, place, began))
        self.measured.setdefault(uid, {}).update(called.facts)
        if called.error is not None:
            task.update(failed(called.error), return_value=None)
            return task, "FAILED"
        task.update(return_value=called.value, stdout=str(called.value), stderr="", exit_code=0)
        return task, "DONE"

    async def _execute_command(self, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
        found = await base.run_command(task, self._work_dir, lambda at: self._began(task, at))
        self.measured.setdefault(task["uid"], {}).update(found.pop("measured"))
        task.update(found)
        return task, "DONE" if task["exit_code"] == 0 else "FAILED"


async def _finished(future: Future[Any]) -> Any:
    """The result of a worker; a cancelled caller waits for it too, so that the slot is held until then."""
    waiting = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not future.cancel():
            with suppress(Exception):
                await waiting
        raise
