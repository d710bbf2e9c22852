"""What an engine asks of a Dask cluster, through a client of its own; answers come back as calls on the
engine's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

import msgspec

from flightlog.engines.attempts import Attempt
from flightlog.engines.contract import Outcome, WorkerView
from flightlog.engines.dask.attempt import (
    DaskOrder,
    WorkerNotes,
    decode_job,
    encode,
    end_process,
    give_up,
    introduce,
    leave,
    read_began,
    relay_topic_of,
    run_attempt,
    topic_of,
)
from flightlog.engines.execute import Started
from flightlog.engines.exit_reason import Death
from flightlog.events import JobStarted, WorkerEvent, WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

OWN_PREFIX = "flightlog-"
"""What the keys of our tasks begin with."""
LARGE_BYTES = 8_000_000
"""Dask warns of a little more than this in one message."""
DEATH_S = 3.0
"""How long to wait for word on what a worker died of."""
ANSWER_S = 5.0
"""How long a nanny or a worker may take to answer."""
SETTLE_S = 10.0
"""How long workers that do not see the run directory may take to send what they have recorded."""


@lru_cache(maxsize=1024)
def key_name(task: str) -> str:
    """A task's name in its key: letters, which Dask takes for the kind of task whose duration it learns and
    shows.
    """
    return re.sub(r"[^A-Za-z]+", "", task)[:40] or "task"


class ClusterClient:
    """A client's cluster. Nothing here waits but `leave`; `say` takes a function and its arguments to the
    engine's thread.
    """

    def __init__(self, client: Any, engine: str, say: Callable[[tuple[Any, ...]], None]) -> None:
        self._client, self._engine, self._say = client, engine, say
        self.address: str = client.scheduler.address

    def submit(self, attempts: Sequence[Attempt], may_end: bool) -> Sequence[Any]:
        """A Dask future for each attempt, in their order; all are run before those that are submitted
        later.
        """
        import dask

        keys = [
            f"{OWN_PREFIX}{key_name(each.work.task)}-{self._engine}-{each.serial}-{each.mishaps}"
            for each in attempts
        ]
        works = [msgspec.structs.replace(each.work, args={}) for each in attempts]
        orders = [
            encode(DaskOrder(self._engine, each.serial, may_end, work))
            for each, work in zip(attempts, works, strict=True)
        ]
        options = {"key": keys, "pure": False, "retries": 0, "fifo_timeout": "0 ms"}
        # Dask's advice on large messages is for programs of its own.
        large = sum(map(len, orders)) > LARGE_BYTES
        with (
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})
            if large
            else nullcontext()
        ):
            return cast("Sequence[Any]", self._client.map(run_attempt, orders, **options))

    def give_up(self, worker: str, serials: Sequence[int]) -> None:
        """Let a worker wait no more for these attempts."""
        self._later(self._give_up, worker, list(serials))

    def ask_for_job(self, worker: str) -> None:
        """Let a worker say which batch job it lives in."""
        self._later(self._ask_for_job, worker)

    def end_process(self, worker: str, grace_s: float, is_there: Callable[[str], bool]) -> None:
        """End a worker's process, and those below it; by its nanny, if it does not listen and is still there
        then.
        """
        self._later(self._end_process, worker, grace_s, is_there)

    def bring(self, attempt: Attempt, outcome: Outcome, then: Callable[[Attempt, Outcome], None]) -> None:
        """Fetch a result that waits on its worker."""
        self._later(self._bring, attempt, outcome, attempt.holder, then)

    def ask_why(self, attempt: Attempt, then: Callable[[Attempt, BaseException], None]) -> None:
        """Why Dask gave up on an attempt."""
        future: Any = attempt.holder
        future.add_done_callback(lambda done: self._say((then, attempt, _error_of(done))))

    def look_into(
        self,
        worker: str,
        nanny: str | None,
        death_of: Callable[[str], Death | None],
        then: Callable[[str, Death, dict[int, Started] | None], None],
    ) -> None:
        """What a worker died of, and what it had begun; None where nobody knows."""
        self._later(self._look_into, worker, nanny, death_of, then)

    def leave(self, land: Callable[[], object], on_job: Callable[[JobStarted], None]) -> None:
        """Take everything that was installed away again, as far as the cluster still answers.

        `land` waits for what workers sent home last, before nobody listens any more. `on_job` gets the batch
        jobs that workers live in.
        """

        def dismiss_workers() -> None:
            answers = self._client.run(leave, self._engine, SETTLE_S, on_error="ignore")
            for job in map(decode_job, answers.values()):
                if job is not None:
                    on_job(job)

        if self._client.status != "running":
            return  # nobody would answer
        for step in (
            dismiss_workers,
            land,
            lambda: self._client.unsubscribe_topic(topic_of(self._engine)),
            lambda: self._client.unsubscribe_topic(relay_topic_of(self._engine)),
            lambda: self._client.unregister_scheduler_plugin(f"flightlog-once-{self._engine}"),
        ):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - a cluster that is gone has nothing to be taken away from
                log.debug("leaving the Dask cluster: %s", error)

    # --- on the client's event loop

    def _later(self, function: Callable[..., Any], *args: Any) -> None:
        self._client.loop.add_callback(function, *args)

    async def _give_up(self, worker: str, serials: list[int]) -> None:
        with suppress(Exception):
            await self._client.run(give_up, self._engine, serials, workers=[worker], on_error="ignore")

    async def _ask_for_job(self, worker: str) -> None:
        with suppress(Exception):
            await self._client.run(introduce, self._engine, workers=[worker], on_error="ignore")

    async def _end_process(self, worker: str, grace_s: float, is_there: Callable[[str], bool]) -> None:
        with suppress(Exception):
            await self._client.run(end_process, grace_s, workers=[worker], wait=False, on_error="ignore")
        await asyncio.sleep(grace_s + ANSWER_S)
        with suppress(Exception):
            if is_there(worker):
                await self._client.restart_workers([worker], timeout=ANSWER_S, raise_for_error=False)

    async def _bring(
        self, attempt: Attempt, outcome: Outcome, future: Any, then: Callable[[Attempt, Outcome], None]
    ) -> None:
        try:
            outcome.result = await self._client.gather(future)
        except Exception as error:  # noqa: BLE001 - whatever came between
            outcome.end, outcome.reason = "lost", f"its result could not be fetched: {error}"
        self._say((then, attempt, outcome))

    async def _look_into(
        self,
        worker: str,
        nanny: str | None,
        death_of: Callable[[str], Death | None],
        then: Callable[[str, Death, dict[int, Started] | None], None],
    ) -> None:
        began = await self._ask_what_began(worker, nanny)
        death = death_of(worker)
        by = asyncio.get_running_loop().time() + DEATH_S
        while not _is_enough(death, nanny) and asyncio.get_running_loop().time() < by:
            await asyncio.sleep(0.02)
            death = death_of(worker)
        self._say((then, worker, death or Death("Dask lost its worker; nobody saw how it ended"), began))

    async def _ask_what_began(self, worker: str, nanny: str | None) -> dict[int, Started] | None:
        if nanny is None:
            return None
        call = {"function": pickle.dumps(read_began), "args": pickle.dumps((self._engine, worker))}
        try:
            answer = await asyncio.wait_for(self._client.rpc(nanny).run(**call), ANSWER_S)
            return answer["result"] if answer["status"] == "OK" else None
        except Exception as error:  # noqa: BLE001 - the nanny went with its worker
            log.debug("the nanny %s does not answer: %s", nanny, error)
            return None


def _is_enough(death: Death | None, nanny: str | None) -> bool:
    """Whether there is no more to be heard of an end: a nanny knows the exit code, and says it a moment
    later.
    """
    return death is not None and (nanny is None or death.exit_code is not None or death.signal is not None)


def _error_of(future: Any) -> BaseException:
    error: BaseException | None = future.exception() if future.status == "error" else None
    return error or RuntimeError(f"Dask says it is {future.status}")


class Roster:
    """Workers by address. One thread changes it; `views` and `is_endable` are for any.

    `opened`, Unix time, is when a cluster that the engine starts was begun; None where it finds one running.
    """

    def __init__(self) -> None:
        self.opened: float | None = None
        self.ended: dict[str, str] = {}
        """Workers that the engine ends itself, and why."""
        self._homes: dict[str, tuple[str | None, int | None]] = {}
        """Host and process of every worker that was heard of."""
        self._ready: dict[str, float] = {}
        """When each that is there was ready, on the monotonic clock."""
        self._departed: set[str] = set()
        self._endable: dict[str, bool] = {}

    def note(self, parcel: WorkerNotes) -> None:
        """A worker has written."""
        self._endable[parcel.worker] = parcel.endable
        self._homes[parcel.worker] = (parcel.host, parcel.pid)

    def take(self, event: WorkerEvent) -> WorkerEvent:
        """What is to be told of something that happened to a worker: the loss of one that was ended is no
        loss.
        """
        address = event.worker
        if not isinstance(event, WorkerLost | WorkerRemoved):
            self._homes[address] = (event.host, event.pid)
            self._ready[address] = time.monotonic()
            self._departed.discard(address)
            return event if self.opened is None else with_launch(event, self.opened)
        ready = self._ready.pop(address, None)
        self._departed.add(address)
        if isinstance(event, WorkerRemoved) or address not in self.ended:
            return event
        up_s = None if ready is None else time.monotonic() - ready
        return WorkerRemoved(
            timestamp=event.timestamp,
            worker=address,
            host=event.host,
            pid=event.pid,
            reason=self.ended[address],
            uptime_s=up_s,
        )

    def dismiss(self, reason: str) -> list[WorkerEvent]:
        """The end of all that are there, as far as the engine is concerned."""
        now, told = time.monotonic(), []
        for address, ready in list(self._ready.items()):
            host, pid = self._homes[address]
            removed = WorkerRemoved(worker=address, host=host, pid=pid, reason=reason, uptime_s=now - ready)
            told.append(self.take(removed))
        self._departed.update(self._homes)
        return told

    def home(self, address: str | None) -> tuple[str | None, int | None]:
        """Host and process of a worker; None where they are not known."""
        return self._homes.get(address or "", (None, None))

    def is_there(self, address: str) -> bool:
        """Whether it is up, as far as known."""
        return address in self._ready

    def is_endable(self, address: str | None) -> bool:
        """Whether it is a process that may be ended with the task it executes."""
        return self._endable.get(address or "", False)

    def views(self, attempts: Iterable[Attempt]) -> list[WorkerView]:
        """The workers there are, and which of these attempts each executes."""
        running: dict[str, list[str]] = {}
        for attempt in attempts:
            if attempt.worker is not None and not attempt.over:
                running.setdefault(attempt.worker, []).append(attempt.work.task_id)
        return [
            WorkerView(worker=address, host=host, pid=pid, running=tuple(running.get(address, ())))
            for address, (host, pid) in list(self._homes.items())
            if address not in self._departed
        ]


def with_launch(event: WorkerEvent, opened: float) -> WorkerEvent:
    """A launch at the moment it happened, and a ready that says how long that was; others, and what is not
    known, as it is.

    The launch is the start of the worker's process; of one that is a thread here it is `opened`, Unix time,
    when the cluster was begun.
    """
    if event.host != this_host() or event.pid is None or not isinstance(event, WorkerLaunched | WorkerReady):
        return event
    since = opened if event.pid == os.getpid() else _start_of(event.pid)
    if since is None or not event.timestamp:
        return event
    launch_s = datetime.fromisoformat(event.timestamp).timestamp() - since
    if launch_s < 0:
        return event
    if isinstance(event, WorkerReady):
        return event if event.launch_s is not None else msgspec.structs.replace(event, launch_s=launch_s)
    stamp = datetime.fromtimestamp(since, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return msgspec.structs.replace(event, timestamp=stamp)


def _start_of(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
