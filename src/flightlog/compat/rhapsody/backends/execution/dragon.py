"""Tasks on the nodes of a Dragon runtime, by its `Batch`; functions are measured where they run."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.backends import base
from flightlog.compat.rhapsody.backends.base import CallResult, StandardBackend, failed
from flightlog.compat.rhapsody.backends.constants import BackendMainStates
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.dragon.engine import check_runtime
from flightlog.store.liveness import this_host

Ended = tuple[str, str, dict[str, Any], dict[str, Any]]
"""A task that has ended: its id, its state, its entries, and what was measured."""


class DragonExecutionBackend(StandardBackend):
    """Runs tasks on the nodes of a Dragon runtime; the program is started by `dragon`.

    `batch_kwargs` go to `dragon.workflows.batch.Batch`, which is `batch`. Of a task's
    `task_backend_specific_kwargs`, `timeout` is in seconds, `process_template` has the options of a
    `ProcessTemplate` to run it in a process of its own, and `process_templates` those of an MPI job as pairs
    of a number of ranks and options; what these return is their exit code, or one for each rank.

    A function is RUNNING when a worker runs it; a command or job once Dragon has it, which does not say when
    it begins. A cancelled task is ended by Dragon.
    """

    def __init__(self, batch_kwargs: dict[str, Any] | None = None, name: str = "dragon") -> None:
        check_runtime(sys.platform, os.environ)
        from dragon.native.queue import Queue
        from dragon.workflows.batch import Batch

        super().__init__(name)
        self.logger = logging.getLogger(__name__)
        self.batch = Batch(**{"task_logs": True, **(batch_kwargs or {})})
        self._starts = Queue()
        self._made: dict[str, tuple[Any, str, Callable[[Any], CallResult]]] = {}
        """By Dragon's id: its task, ours, and how its result is read."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @staticmethod
    def is_available() -> bool:
        """Whether Dragon is installed."""
        from importlib.util import find_spec

        return find_spec("dragon") is not None

    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> None:
        """Submit tasks to Dragon; one that it refuses has failed. Raises RuntimeError after the shutdown."""
        if self._backend_state == BackendMainStates.SHUTDOWN:
            raise RuntimeError("Cannot submit during shutdown")
        self._loop = asyncio.get_running_loop()
        if not self._threads:
            for target in (self._watch_ends, self._watch_starts):
                self._threads.append(threading.Thread(target=target, name="telemetry-dragon", daemon=True))
                self._threads[-1].start()
        for task in tasks:
            self._take(task)
            try:
                self._submit(task)
            except Exception as error:  # noqa: BLE001 - what cannot be sent fails that task alone
                self._ended(task, "FAILED", failed(error))

    async def _cancel(self, uid: str) -> bool:
        with self._lock:
            made = next((one for one, task, _ in self._made.values() if task == uid), None)
        if made is None:
            return False
        try:
            return bool(await asyncio.to_thread(made.cancel))
        except Exception:
            self.logger.warning("Dragon did not cancel %s; its result is discarded", uid, exc_info=True)
            return True

    async def shutdown(self) -> None:
        """Cancel what has not ended, and give the workers back to Dragon; may be called again."""
        if self._backend_state == BackendMainStates.SHUTDOWN:
            return
        self._backend_state = BackendMainStates.SHUTDOWN
        await self.cancel_all_tasks()
        self._over.set()
        await asyncio.to_thread(self._close)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for all tasks that were submitted; those after it begin when they have ended."""
        self.batch.fence(**({} if timeout is None else {"timeout": timeout}))

    def create_ddict(self, *args: Any, **kwargs: Any) -> Any:
        """A distributed dictionary of Dragon's."""
        from dragon.data.ddict.ddict import DDict

        return DDict(*args, **kwargs)

    def _submit(self, task: dict[str, Any]) -> None:
        from dragon.native.process import ProcessTemplate

        uid, function = task["uid"], task.get("function")
        options = task.get("task_backend_specific_kwargs") or {}
        args, kwargs = (
            (task.get("args") or (), task.get("kwargs") or {})
            if function
            else (
                tuple(task.get("arguments") or ()),
                None,
            )
        )
        files = {kind: str(Path(self._work_dir) / f"{uid}.{kind}") for kind in ("stdout", "stderr")}
        batch = self.batch.options(
            name=task.get("name", uid),
            timeout=options.get("timeout", CompatLimits.dragon_timeout_s),
            **(files if task.get("capture_stdio") else {}),
        )
        jobs, alone = options.get("process_templates"), options.get("process_template")
        place = self._place(uid)
        read: Callable[[Any], CallResult] = _exit_code
        if function and jobs is None and alone is None:
            work = base.pack_call(function, args, kwargs, place, uid)
            read = partial(base.unpack_outcome, work)
            submit = partial(batch.function, run_on_worker, work, self._starts)
        else:
            target = partial(_run, function) if inspect.iscoroutinefunction(function) else function
            target = target or task["executable"]

            def template(said: dict[str, Any]) -> Any:
                return ProcessTemplate(target, **{**said, "args": args, "kwargs": kwargs})

            if jobs is None:
                submit = partial(batch.process, template(alone or {}))
            else:
                submit = partial(batch.job, [(ranks, template(said)) for ranks, said in jobs])
        with self._lock:  # or its end would be known before it is
            made = submit()
            self._made[made.uid] = made, uid, read
        if read is _exit_code:
            self._began(task, time.time())

    def _watch_ends(self) -> None:
        while not self._over.is_set() or self._made:
            try:
                found = self.batch.poll(timeout=CompatLimits.dragon_poll_s)
                ended: list[Ended] = []
                while found is not None:
                    ended += self._end_of(found)
                    found = self.batch.poll(timeout=0)
                if ended:
                    self._on_loop(self._deliver, ended)
            except Exception:
                if self._over.is_set():
                    return
                self.logger.warning("Dragon did not say which tasks have ended", exc_info=True)
                self._over.wait(1.0)

    def _end_of(self, tuid: str) -> list[Ended]:
        """What became of a task, or nothing where it is none of ours."""
        from dragon.workflows.batch import TaskCancelledError

        with self._lock:
            known = self._made.pop(tuid, None)
        if known is None:
            return []
        made, uid, read = known
        try:
            called = read(made.get(block=True))
        except TaskCancelledError:
            return [(uid, "CANCELED", {}, {})]
        except Exception as error:  # noqa: BLE001 - the task's own, or of a worker that is gone
            called = CallResult(None, error, {})
        found: dict[str, Any] = {"return_value": called.value, "exit_code": 0}
        if called.error is not None:
            found |= failed(called.error)
        elif read is _exit_code:
            codes = called.value if isinstance(called.value, list) else [called.value]
            found["exit_code"] = next((code for code in codes if code), 0)
        for name, value in _output_of(made, self.tasks.get(uid, {})).items():
            found[name] = value or found.get(name) or ""
        return [(uid, "FAILED" if found["exit_code"] else "DONE", found, called.facts)]

    def _watch_starts(self) -> None:
        with suppress(Exception):  # the runtime is gone
            while (told := self._starts.get()) is not None:
                self._on_loop(self._hear, *told)

    def _on_loop(self, call: Callable[..., None], *args: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(call, *args)

    def _hear(self, uid: str, started_at: float, host: str) -> None:
        task = self.tasks.get(uid)
        if task is not None and task.get("state") != "RUNNING":
            self._began(task, started_at, recorded=self.place_of is not None and host == this_host())

    def _deliver(self, ended: list[Ended]) -> None:
        with self.together():
            for uid, state, found, facts in ended:
                task = self.tasks.get(uid)
                if task is None:
                    continue
                if facts.get("started_at"):
                    self._hear(uid, facts["started_at"], str(facts["worker"]).partition(":")[0])
                self.measured.setdefault(uid, {}).update(facts)
                self._ended(task, state, found)

    def _close(self) -> None:
        """End the threads and the batch."""
        if self._threads:
            self._starts.put(None)
        for thread in self._threads:
            thread.join(CompatLimits.dragon_close_s)
        logs = None
        with suppress(Exception):  # there are none where `task_logs` is False
            logs = self.batch.log_dir()
        try:
            self.batch.join(timeout=CompatLimits.dragon_close_s)
            self.batch.destroy(timeout=CompatLimits.dragon_close_s)
        except Exception:
            self.logger.warning("Dragon's batch did not end in good order", exc_info=True)
            with suppress(Exception):
                self.batch.terminate()
        if logs is not None:
            shutil.rmtree(logs, ignore_errors=True)
        with suppress(Exception):
            self._starts.destroy()


def run_on_worker(work: Work, starts: Any) -> Outcome:
    """Run a function in a process of Dragon's, and say when it began."""
    starts.put((work.task_id, time.time(), this_host()))
    return base.run_packed(work, worker=f"{this_host()}:{os.getpid()}")


def _run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(function(*args, **kwargs))


def _exit_code(value: Any) -> CallResult:
    return CallResult(value, None, {})


def _output_of(made: Any, task: dict[str, Any]) -> dict[str, str | None]:
    """What a task wrote, or where that is if it was to be captured."""
    if task.get("capture_stdio"):
        return {"stdout": made.stdout_path, "stderr": made.stderr_path}
    try:
        return {"stdout": made.get_stdout(block=False), "stderr": made.get_stderr(block=False)}
    except Exception:  # noqa: BLE001 - nothing was written, or task logs are switched off
        return {"stdout": "", "stderr": ""}


def __getattr__(name: str) -> Any:
    if name == "DragonExecutionBackendV3":
        warnings.warn(f"{name} is DragonExecutionBackend now", DeprecationWarning, stacklevel=2)
        return DragonExecutionBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
