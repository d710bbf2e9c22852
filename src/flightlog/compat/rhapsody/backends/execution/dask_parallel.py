"""Tasks on a Dask cluster, each measured on the worker that runs it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import Any, Self

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.api.errors import BackendError
from flightlog.compat.rhapsody.backends import base
from flightlog.compat.rhapsody.backends.base import StandardBackend, failed
from flightlog.compat.rhapsody.backends.constants import BackendMainStates
from flightlog.core.errors import MissingExtra
from flightlog.engines.contract import Outcome, Work
from flightlog.store.liveness import this_host

_COMMAND = ("uid", "executable", "arguments", "capture_stdio", "task_backend_specific_kwargs")
_COMMAND_OPTIONS = ("cwd", "shell", "env")


class DaskExecutionBackend(StandardBackend):
    """Runs tasks on the workers of a Dask cluster.

    A given client or cluster stays open at the end; without either a local cluster is started and closed.
    `resources` are further arguments of `distributed.Client`. A task is RUNNING when a worker runs it. Its
    `task_backend_specific_kwargs` go to `Client.submit`. A cancelled command is killed by its worker.
    """

    def __init__(
        self,
        resources: dict[str, Any] | None = None,
        name: str = "dask",
        cluster: Any | None = None,
        client: Any | None = None,
    ) -> None:
        if not self.is_available():
            raise MissingExtra("Dask is not installed: pip install 'flightlog[dask]'")
        super().__init__(name)
        self.logger = logging.getLogger(__name__)
        self._client: Any = None
        self._given, self._cluster, self._resources = client, cluster, resources or {}
        self._futures: dict[str, Any] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._topic = f"flightlog-rhapsody-{id(self):x}-{time.time_ns():x}"

    @staticmethod
    def is_available() -> bool:
        """Whether Dask is installed."""
        from importlib.util import find_spec

        return find_spec("distributed") is not None

    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> None:
        """Submit tasks to the cluster; one that it refuses has failed. Raises `BackendError` without a
        client.
        """
        self._require_ready()
        if self._client is None or self._client.status != "running":
            found = getattr(self._client, "status", None)
            raise BackendError(self.name, f"Dask client is not usable (status={found!r})")
        if not all(task.get("function") or task.get("executable") for task in tasks):
            raise ValueError("Task must specify either 'function' or 'executable'")
        for task in tasks:
            self._take(task)
            try:
                work, future = await self._submit(task)
            # What cannot be pickled, placed or sent fails that task alone.
            except Exception as error:  # noqa: BLE001
                self._ended(task, "FAILED", failed(error))
                continue
            self._futures[task["uid"]] = future
            waiting = asyncio.create_task(self._follow(task, work, future), name=f"task {task['uid']}")
            self._waiting[task["uid"]] = waiting

    async def cancel_task(self, uid: str) -> bool:
        """As for all backends, once it was awaited."""
        self._require_ready()
        return await super().cancel_task(uid)

    async def _cancel(self, uid: str) -> bool:
        future = self._futures.get(uid)
        if future is not None:
            await future.cancel()
        return future is not None

    async def shutdown(self) -> None:
        """Cancel what has not ended; close the client if this backend created it."""
        self._backend_state = BackendMainStates.SHUTDOWN
        client, self._client = self._client, None
        if client is None:
            self.tasks.clear()
            self._initialized = False
            return
        await self.cancel_all_tasks()
        if self._waiting:
            await asyncio.wait(list(self._waiting.values()), timeout=5)
        client.unsubscribe_topic(self._topic)
        if self._given is None:
            await client.close()
        self._initialized = False

    async def _async_init(self) -> Self:
        if self._initialized:
            return self
        import distributed

        connect: Any = distributed.Client
        how = getattr(self._given, "asynchronous", None)
        if self._given is not None and not how:
            raise ValueError(
                "DaskExecutionBackend requires a Client that was created with asynchronous=True, "
                f"and was given one with asynchronous={how!r}"
            )
        cluster = () if self._cluster is None else (self._cluster,)
        self._client = self._given or await connect(*cluster, asynchronous=True, **self._resources)
        subscribed = self._client.subscribe_topic(self._topic, self._hear)
        if inspect.isawaitable(subscribed):
            await subscribed
        self._initialized = True
        return self

    async def _submit(self, task: dict[str, Any]) -> tuple[Work, Any]:
        options = dict(task.get("task_backend_specific_kwargs") or {})
        place = self._place(task["uid"])
        if task.get("executable"):
            for name in _COMMAND_OPTIONS:
                options.pop(name, None)
            command = {name: task.get(name) for name in _COMMAND}
            work = base.pack_call(_run_command_there, (command, self._work_dir), {}, place, task["uid"])
        else:
            args, kwargs = task.get("args") or (), task.get("kwargs") or {}
            work = base.pack_call(task["function"], args, kwargs, place, task["uid"])
        wanted = options.get("resources") or {}
        if wanted and not await self._can_have(wanted):
            raise RuntimeError(
                f"No worker can satisfy resources {wanted}. Workers must be started with matching "
                '--resources flags (e.g. dask worker <scheduler> --resources "GPU=1").'
            )
        options.setdefault("key", task["uid"])  # two tasks of one call are two tasks
        options.setdefault("pure", False)
        return work, self._client.submit(_call_on_worker, work, self._topic, **options)

    async def _follow(self, task: dict[str, Any], work: Work, future: Any) -> None:
        try:
            called = base.unpack_outcome(work, await future)
        except asyncio.CancelledError:
            self._ended(task, "CANCELED")
            return
        except Exception as error:  # noqa: BLE001 - lost with its worker, or not to be unpickled
            self._ended(task, "FAILED", failed(error))
            return
        finally:
            self._futures.pop(task["uid"], None)
            self._waiting.pop(task["uid"], None)
        started_at = called.facts["started_at"]
        if task.get("state") != "RUNNING" and started_at is not None:  # the word of it comes another way
            here = str(called.facts["worker"]).partition(":")[0] == this_host()
            self._began(task, started_at, recorded=self.place_of is not None and here)
        self.measured.setdefault(task["uid"], {}).update(called.facts)
        found = {"return_value": called.value, "stdout": "", "stderr": "", "exit_code": 0}
        if called.error is not None:
            found = failed(called.error)
        elif task.get("executable"):
            found = called.value
        over = called.error is None and found["exit_code"] == 0
        self._ended(task, "DONE" if over else "FAILED", found)

    async def _hear(self, event: tuple[Any, Any]) -> None:
        """A worker has started a task."""
        uid, started_at, host = event[1]
        task = self.tasks.get(uid)
        if task is not None and task.get("state") != "RUNNING":
            self._began(task, started_at, recorded=self.place_of is not None and host == this_host())

    async def _can_have(self, resources: dict[str, float]) -> bool:
        found = await self._client.scheduler.identity()
        return any(
            all(worker.get("resources", {}).get(name, 0) >= wanted for name, wanted in resources.items())
            for worker in found.get("workers", {}).values()
        )

    def _require_ready(self) -> None:
        if not self._initialized:
            raise RuntimeError(
                "DaskExecutionBackend must be awaited before use. "
                "Use: backend = await DaskExecutionBackend(resources)"
            )


def _call_on_worker(work: Work, topic: str) -> Outcome:
    from distributed import get_worker

    get_worker().log_event(topic, (work.task_id, time.time(), this_host()))
    return base.run_packed(work, alone=False)


async def _run_command_there(task: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run a command on a worker, and kill it once the worker has been told to forget its task."""
    from distributed import get_worker

    worker = get_worker()
    key, known = worker.get_current_task(), worker.state.tasks
    running = asyncio.ensure_future(base.run_command(task, folder, lambda started_at: None))  # noqa: ARG005
    while not (await asyncio.wait({running}, timeout=CompatLimits.cancel_poll_s))[0]:
        held = known.get(key)
        if held is None or held.state == "cancelled":
            running.cancel()
    found = running.result()
    found.pop("measured")
    return found
