"""Attempts on a Dask cluster: one thread hands them to Dask through a client of its own, listens to the
workers and sees to it that each attempt ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, cast

import msgspec
from msgspec import Struct

from flightlog.engines.attempts import Attempt, AttemptRegistry, End
from flightlog.engines.contract import Outcome, WorkerView
from flightlog.engines.dask.attempt import (
    STUCK,
    DaskOrder,
    WorkerNotes,
    decode_job,
    decode_parcel,
    encode,
    end_process,
    forget_began,
    give_up,
    introduce,
    leave,
    read_began,
    relay_topic_of,
    run_attempt,
    topic_of,
)
from flightlog.engines.dask.cluster import Connection
from flightlog.engines.dask.messages import Arrivals
from flightlog.engines.dask.scheduler_plugin import Once
from flightlog.engines.execute import Started
from flightlog.engines.exit_reason import Death
from flightlog.events import (
    Event,
    JobStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.record.clock import monotonic_ns
from flightlog.record.context import active_runs
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

BATCH = 512
"""Attempts that are handed to Dask together at most."""
BATCH_BYTES = 1 << 20
LOOK_S = 0.5
"""How often to look whether the scheduler is still there."""
TRIES = 3
"""Hand-outs of one attempt that may come to nothing because its worker died before it began."""
CLOSED = "the engine was closed"
LEFT = "the session left the cluster; the worker goes on"


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


class DaskPool:
    """The working half of `DaskEngine`: everything happens on its thread, but for what is said to be from
    any.

    `connect` opens the connection; what it raises is in `failed` once `connected` is set. `may_end` says that
    worker processes may be ended with a task that runs in them, `job_of` that workers live in jobs of a batch
    system: it gives the job that a worker was started in, or None where that is not known.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        ledger: AttemptRegistry,
        run_path: str | None,
        *,
        may_end: bool,
        grace_s: float,
        job_of: Callable[[str], str | None] | None = None,
    ) -> None:
        self.id = secrets.token_hex(4)
        self.connected = threading.Event()
        self.failed: BaseException | None = None
        self._connect, self._ledger, self._may_end, self._grace_s = connect, ledger, may_end, grace_s
        self._run_path, self._job_of = run_path, job_of
        self._run = next((run for run in active_runs() if str(run.path) == run_path), None)
        self.jobs: dict[str, str] = {}
        """Batch jobs that workers were found in, by the workers' addresses."""
        self._started_in: dict[str, str] = {}
        """The same as the engine has started them: a worker may be gone before it could tell."""
        self._said: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._attempts: dict[int, Attempt] = {}
        self._running: dict[int, Attempt] = {}
        self._spent: list[object] = []
        """Futures of attempts that are over: Dask forgets a task with the last reference to its future."""
        self._host = this_host()
        self._roster = Roster()
        self._land: Callable[[], object] = lambda: True
        """Waits for the last that workers send home of a run directory they do not see."""
        self._close_by: float | None = None
        self.thread = threading.Thread(target=self._work, name="flightlog-dask", daemon=True)

    # --- from any thread

    def wake(self) -> None:
        """Attempts wait in the ledger."""
        self._said.put(())

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up: one that has not begun, or runs alone in a process that may be ended."""
        cancelled, attempt = self._ledger.cancel(task_id, reason, running=self._can_end)
        if attempt is not None:
            if attempt.begun is None:
                self._ledger.end(attempt, Outcome(end="cancelled", reason=reason))
            self._said.put((self._on_cancelled, attempt))
        return cancelled

    def views(self) -> list[WorkerView]:
        """The workers there are."""
        return self._roster.views(list(self._running.values()))

    def close(self, by: float) -> None:
        """End everything; what runs may go on until then, on the monotonic clock, by the most impatient of
        all calls.
        """
        self._said.put((self._on_close, by))
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def _can_end(self, attempt: Attempt) -> bool:
        return attempt.begun is None or self._roster.is_endable(attempt.worker)

    # --- the thread

    def _work(self) -> None:
        try:
            self._open()
        except BaseException as error:  # noqa: BLE001 - whoever started the engine gets it
            self.failed = error
            self.connected.set()
            self._ledger.shut("lost", f"there is no Dask cluster: {error}")
            return
        self.connected.set()
        try:
            while self._close_by is None or (self._attempts and time.monotonic() < self._close_by):
                self._hand_out()
                self._listen()
                self._look_at_the_scheduler()
        except BaseException as error:  # nobody may wait for ever for an end that is never told
            log.exception("the engine failed; its tasks are lost")
            self._give_all_up("lost", f"the engine failed: {type(error).__name__}: {error}")
        finally:
            self._leave()

    def _open(self) -> None:
        opened = time.time()
        connection = self._connection = self._connect()
        self._roster.opened = opened if connection.cluster is not None else None
        client = self._client = connection.client
        try:
            self._remote = ClusterClient(client, self.id, self._said.put)
            client.subscribe_topic(topic_of(self.id), self._on_event)
            if self._run_path is not None:
                from flightlog.engines.relay.chunks import ChunkReceiver

                landing = ChunkReceiver(self._run_path)
                self._land = landing.close
                topic = relay_topic_of(self.id)
                client.subscribe_topic(topic, Arrivals(client, topic, landing.take).on_event)
            client.register_plugin(Once(self.id, client.id))
            from flightlog.engines.dask.observer import ClusterObserver

            sampled = self._host if self._run is not None else None
            self._observer = ClusterObserver(
                client, self._observed, own_prefix=OWN_PREFIX, sampled_host=sampled
            )
            self._losses = Losses(self._remote, self._observer.death_of, self._roster.ended, self._lose)
            self._comm = client.scheduler_comm
        except BaseException:
            connection.close(5.0)
            raise

    def _observed(self, event: Event) -> None:
        """Something happened on the cluster; from any thread."""
        if isinstance(event, WorkerEvent):
            self._said.put((self._on_worker, event))
        elif self._run is not None:
            self._run.emit(event)

    def _on_event(self, event: tuple[float, Any]) -> None:
        """A message by way of the scheduler; on the client's event loop."""
        message = event[1]
        if isinstance(message, bytes):
            self._said.put((self._on_parcel, message))
        else:
            self._said.put((self._on_scheduler, *message))

    def _listen(self) -> None:
        """Wait for what is said, and take all there is."""
        patience_s = LOOK_S
        if self._close_by is not None:
            patience_s = min(patience_s, max(0.0, self._close_by - time.monotonic()))
        try:
            said = self._said.get(timeout=patience_s)
            while True:
                if said:
                    said[0](*said[1:])
                said = self._said.get_nowait()
        except Empty:
            if self._spent:
                spent, self._spent = self._spent, []
                self._client.loop.add_callback(spent.clear)  # on its own thread that costs a tenth

    def _look_at_the_scheduler(self) -> None:
        if self._client.status != "running" or self._client.scheduler_comm is not self._comm:
            reason = f"the connection to the Dask scheduler at {self._remote.address} was lost"
            self._ledger.shut("lost", reason)
            self._give_all_up("lost", reason)

    # --- handing out

    def _hand_out(self) -> None:
        while batch := self._next_batch():
            try:
                futures = self._remote.submit(batch, self._may_end)
            # Dask refuses: a client that is closed, a call that is too large.
            except Exception as error:  # noqa: BLE001
                for each in batch:
                    self._end(each, Outcome(end="lost", reason=f"Dask does not take it: {error}"))
                continue
            for each, future in zip(batch, futures, strict=True):
                each.holder = future
                self._attempts[each.serial] = each

    def _next_batch(self) -> list[Attempt]:
        """The attempts that have waited longest, in their order."""
        batch: list[Attempt] = []
        size = 0
        while len(batch) < BATCH and size < BATCH_BYTES:
            attempt = self._ledger.next()
            if attempt is None:
                break
            if not attempt.over:
                batch.append(attempt)
                size += len(attempt.work.call)
        return batch

    # --- what workers say

    def _on_parcel(self, message: bytes) -> None:
        parcel = decode_parcel(message)
        self._roster.note(parcel)
        if parcel.job is not None:
            self._on_job(parcel.job)
        begun: dict[int, None] = {}
        for note in parcel.notes:
            attempt = self._attempts.get(note.serial)
            if note.started is not None:
                begun[note.serial] = None
                if attempt is not None and attempt.begun is None:
                    self._start(attempt, parcel.worker, parcel.host, note.started)
            if note.outcome is not None:
                begun.pop(note.serial, None)
                if attempt is not None and note.kept:
                    self._remote.bring(attempt, note.outcome, self._end)
                elif attempt is not None:
                    self._end(attempt, note.outcome)
                    if note.outcome.end == "timed_out" and parcel.endable:
                        self._end_worker(parcel.worker, note.outcome.reason or "a task ran over its time")
        strays = [serial for serial in begun if serial not in self._attempts]
        if strays:  # cancelled before it was known that they had begun
            self._be_rid_of(parcel.worker, strays, "its task was cancelled")

    def _on_job(self, job: JobStarted) -> None:
        if job.worker is not None and job.worker not in self.jobs:
            self.jobs[job.worker] = job.job_id
            if self._run is not None:
                self._run.emit(job)

    def _start(self, attempt: Attempt, worker: str, host: str, started: Started) -> None:
        if host != self._host:  # the clock of another host says nothing here
            started = msgspec.structs.replace(started, monotonic_ns=monotonic_ns())
        self._running[attempt.serial] = attempt
        self._ledger.start(attempt, worker, started)

    def _be_rid_of(self, worker: str, serials: list[int], why: str) -> None:
        """Let a worker execute nothing that nobody waits for: end it with its task, or let it wait for that
        no more.
        """
        if self._roster.is_endable(worker):
            self._end_worker(worker, why)
        else:
            self._remote.give_up(worker, serials)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        self._attempts.pop(attempt.serial, None)
        self._running.pop(attempt.serial, None)
        if attempt.holder is not None:
            self._spent.append(attempt.holder)
            attempt.holder = None
        self._ledger.end(attempt, outcome)

    def _cut_short(
        self, attempt: Attempt, end: End, reason: str, death: Death | None = None, at_ns: int | None = None
    ) -> None:
        outcome = self._ledger.cut_short(attempt, end, reason, at_ns)
        outcome.host, outcome.pid = self._roster.home(attempt.worker)
        if death is not None:
            outcome.exit_code, outcome.signal = death.exit_code, death.signal
        self._end(attempt, outcome)

    # --- giving up

    def _on_cancelled(self, attempt: Attempt) -> None:
        """An attempt was judged as cancelled; it may have begun in the very moment."""
        worker, serial = attempt.worker, attempt.serial
        if attempt.begun is None or worker is None:
            self._attempts.pop(serial, None)
            attempt.holder = None
            return
        assert attempt.verdict is not None
        self._cut_short(attempt, *attempt.verdict)
        self._be_rid_of(worker, [serial], f"{attempt.work.task} was cancelled: {attempt.verdict[1]}")

    def _end_worker(self, address: str, why: str) -> None:
        if address not in self._roster.ended:
            self._roster.ended[address] = why
            self._remote.end_process(address, self._grace_s, self._roster.is_there)

    def _on_close(self, by: float) -> None:
        self._close_by = by if self._close_by is None else min(by, self._close_by)
        for attempt in list(self._attempts.values()):
            if attempt.begun is None:
                self._end(attempt, Outcome(end="cancelled", reason=CLOSED))

    def _give_all_up(self, end: End, reason: str) -> None:
        for attempt in list(self._attempts.values()):
            self._cut_short(attempt, end, reason)

    # --- what the scheduler says

    def _on_worker(self, event: WorkerEvent) -> None:
        self._ledger.worker(self._roster.take(event))
        if self._job_of is not None and isinstance(event, WorkerReady):
            self._remote.ask_for_job(event.worker)
            if (job_id := self._job_of(event.worker)) is not None:
                self._started_in[event.worker] = job_id

    def _on_scheduler(self, what: str, key: str, worker: str | None, nanny: str | None) -> None:
        if what == "restart":
            self._give_all_up("lost", "the Dask cluster was restarted")
            return
        attempt = self._attempts.get(int(key.rsplit("-", 2)[1]))
        if attempt is None:
            return
        if what == "gone":
            self._cut_short(attempt, "lost", "its result went with the worker that had it")
        elif what == "moved" and worker is not None:
            self._losses.add(attempt, worker, nanny)
        elif attempt.holder is not None:
            self._remote.ask_why(attempt, self._on_erred)

    def _on_erred(self, attempt: Attempt, error: BaseException) -> None:
        """Dask gives an attempt up: its worker died, or it could not even be begun there."""
        from distributed.scheduler import KilledWorker

        if attempt.over:
            return
        if not isinstance(error, KilledWorker):
            text = f"Dask could not run it: {error}"
            kind = type(error).__name__
            self._end(attempt, Outcome(end="failed", error_type=kind, error_message=text))
            return
        self._losses.add(attempt, error.last_worker.address, error.last_worker.nanny)

    def _lose(self, attempt: Attempt, loss: Loss) -> None:
        began = loss.began
        if attempt.begun is None and began is not None and attempt.serial in began:
            host = self._roster.home(loss.worker)[0] or ""
            self._start(attempt, loss.worker, host, began[attempt.serial])
        if (
            attempt.begun is None
            and began is not None
            and attempt.mishaps < TRIES
            and attempt.verdict is None
        ):
            attempt.mishaps += 1
            self._attempts.pop(attempt.serial, None)
            attempt.holder = None
            self._ledger.put_back(attempt)  # its function was never called
            return
        reason = loss.death.reason
        if attempt.begun is None:
            attempt.worker = loss.worker
            reason += "; whether the task had begun is not known" if began is None else ""
        self._cut_short(attempt, "lost", reason, loss.death, loss.at_ns)

    # --- the end

    def _leave(self) -> None:
        """Report what is left as cancelled, and leave the cluster as it was."""
        ours = self._connection.cluster is not None
        self._give_all_up("cancelled", CLOSED if ours and self._may_end else f"{CLOSED}; {STUCK}")
        self._ledger.shut("cancelled", CLOSED)
        try:
            self._remote.leave(self._land, self._on_job)
            self._observer.stop(CLOSED if ours else LEFT)
            self._dismiss(CLOSED if ours else LEFT)
            for worker, job_id in self._started_in.items():
                self._on_job(JobStarted(job_id=job_id, raw_job_id=job_id, worker=worker))
        finally:
            self._connection.close(5.0)
            forget_began(self.id)

    def _dismiss(self, reason: str) -> None:
        """Tell the end of all workers, as far as this engine is concerned."""
        while not self._said.empty():  # what the observer had to say last
            said = self._said.get()
            if said and said[0] == self._on_worker:
                said[0](*said[1:])
        for event in self._roster.dismiss(reason):
            self._ledger.worker(event)


class Loss(Struct, frozen=True):
    """A worker that died."""

    worker: str
    at_ns: int
    """When that was heard of, on this host's monotonic clock."""
    death: Death
    began: dict[int, Started] | None
    """Attempts it had begun and not ended; None where nobody can tell."""


class Losses:
    """Dead workers, each looked into once. One thread at a time.

    `lose` gets every attempt with its loss, the last handed out first; `ended` are workers that the engine
    ended itself, and why.
    """

    def __init__(
        self,
        remote: ClusterClient,
        death_of: Callable[[str], Death | None],
        ended: Mapping[str, str],
        lose: Callable[[Attempt, Loss], None],
    ) -> None:
        self._remote, self._death_of, self._ended, self._lose = remote, death_of, ended, lose
        self._waiting: dict[str, list[Attempt]] = {}
        self._heard: dict[str, int] = {}
        self._known: dict[str, Loss] = {}

    def add(self, attempt: Attempt, address: str, nanny: str | None) -> None:
        """An attempt went with a worker, which had this nanny."""
        if address in self._known:
            self._lose(attempt, self._known[address])
        elif address in self._waiting:
            self._waiting[address].append(attempt)
        else:
            self._waiting[address] = [attempt]
            self._heard[address] = monotonic_ns()
            self._remote.look_into(address, nanny, self._death_of, self._on_looked_into)

    def _on_looked_into(self, address: str, death: Death, began: dict[int, Started] | None) -> None:
        if address in self._ended:
            death = Death(self._ended[address])
        loss = self._known[address] = Loss(address, self._heard.pop(address), death, began)
        for attempt in sorted(self._waiting.pop(address), key=lambda each: -each.serial):
            if not attempt.over:
                self._lose(attempt, loss)  # the last first: those that are put back keep their order


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
            # A cluster that is gone has nothing to be taken away from.
            except Exception as error:  # noqa: BLE001
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
