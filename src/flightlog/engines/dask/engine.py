"""The engine over Dask: a cluster of this machine, one that runs somewhere, or that of a client that is
given.

Attempts are handed to Dask through a client of the engine's own; workers say what became of each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, ClassVar, cast

import distributed  # noqa: F401 - what this engine needs: without it, it is said what to install
import msgspec

from flightlog.core.errors import UsageError
from flightlog.core.grouping import grouped
from flightlog.engines import program
from flightlog.engines.attempts import CLOSED, STUCK, Attempt
from flightlog.engines.contract import Outcome, PooledEngine, Reports, WorkerView, refused
from flightlog.engines.dask import attempt as on_worker
from flightlog.engines.dask import messages as m
from flightlog.engines.dask.cluster import Connection, adapt, address_in, connect, local_cluster, scheduler_of
from flightlog.engines.dask.observer import ClusterObserver
from flightlog.engines.dask.scheduler_plugin import OWN_PREFIX
from flightlog.engines.dask.watched_workers import WorkerDeath
from flightlog.engines.dispatcher import ClusterBackend, Dispatcher
from flightlog.engines.execute import Started
from flightlog.engines.limits import DaskLimits
from flightlog.engines.local import usable_cpus
from flightlog.engines.options import DaskOptions
from flightlog.engines.processes import ExitReason, start_of
from flightlog.engines.program import refuse_while_main_is_imported
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


class DaskEngine(PooledEngine):
    """Runs attempts on a Dask cluster; the contract of `Engine`, and thread-safe as that says.

    The cluster is that of a `client` (synchronous or asynchronous, which stays the caller's alone: the engine
    opens one of its own), that at an `address` or of a `scheduler_file`; else one is started on this machine,
    with `n_workers` workers (default: usable CPUs over threads) of `threads_per_worker` threads each
    (default: 1), each a process unless `processes` is false. With `min_workers` or `max_workers` it grows and
    shrinks with the work.

    Each attempt is one Dask task, which Dask never runs a second time: the loss of its worker is its end,
    with what Dask, the nanny and the kernel say of it. One that its worker had not begun is handed out again.

    What runs can be ended where its worker is a process with a nanny, executes one task at a time, and
    belongs to a cluster that this engine started, or `end_workers` says that it may: the process and those
    below it are ended, and the nanny starts another. Elsewhere nothing can be ended: a timeout is reported at
    once, the thread is written off, and the worker takes the next task while the thread still runs;
    cancelling does nothing.

    A cluster that the engine did not start is left running, as it was found. Several engines may share one.
    On the thread whose event loop the cluster lives on, nothing can end while the engine closes: close it
    from another thread (`async with` does). All `options` are fields of `DaskOptions`.
    """

    options: ClassVar[type[msgspec.Struct]] = DaskOptions
    """What it takes by name, beside its own arguments."""
    dumps = staticmethod(program.dumps)
    """How calls are pickled for its workers, which do not import the program."""

    def __init__(
        self,
        *,
        client: Any = None,
        end_workers: bool | None = None,
        kill_grace_s: float = 2.0,
        **options: Any,
    ) -> None:
        cluster = msgspec.structs.asdict(DaskOptions(**options))
        named = {name: cluster.pop(name) for name in ("address", "scheduler_file")} | {"client": client}
        given = [name for name, value in named.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} name one cluster each: give one of them")
        asked = [name for name, value in cluster.items() if value is not None]
        if given and asked:
            raise UsageError(
                f"{asked[0]} is for a cluster that is started here; {given[0]} names one that runs: leave "
                "one of them out"
            )
        self._where, self._cluster_options = named, cluster
        self._end_workers = end_workers if end_workers is not None else not given
        self._grace_s = kill_grace_s
        super().__init__()

    _run_path: str | None = None
    _job_of: Callable[[str], str | None] | None = None
    """Gives the batch job that a worker was started in, on the engine's thread; None if they live in no
    jobs."""

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Connect to the cluster, or start it: seconds. A `UsageError` where that cannot be done.

        On a thread that runs an event loop it does not wait: the cluster may live on that loop. What goes
        wrong then is the reason that all attempts are lost.
        """
        super().start(run_path, reports)
        if not _in_event_loop():
            self._pool.opened.result()

    def _make_pool(self, run_path: str | None) -> Dispatcher:
        refuse_while_main_is_imported("an engine")
        self._run_path = run_path
        self._backend = DaskCluster(
            self._open, run_path, may_end=self._end_workers, grace_s=self._grace_s, job_of=self._job_of
        )
        return Dispatcher(self._backend, 1, self._grace_s)

    def _open(self) -> Connection:
        if self._where["client"] is not None:
            return Connection(connect(*scheduler_of(self._where["client"])))
        address = self._where["address"]
        if self._where["scheduler_file"] is not None:
            address = address_in(self._where["scheduler_file"])
        if address is not None:
            return Connection(connect(address))
        cluster = self._cluster = self._make_cluster()
        try:
            client = connect(cluster)
            self._scale(cluster)
            return Connection(client, cluster)
        except BaseException:
            cluster.close(timeout=5.0)
            raise

    def _make_cluster(self) -> Any:
        """A cluster that is started here, and ends with the connection to it."""
        options = dict(self._cluster_options)
        fewest, most = options.pop("min_workers"), options.pop("max_workers")
        threads = options["threads_per_worker"] = options["threads_per_worker"] or 1
        if options["n_workers"] is None:
            adapts = fewest is not None or most is not None
            options["n_workers"] = (fewest or 0) if adapts else max(1, usable_cpus() // threads)
        options["memory_limit"] = options.pop("memory_limit_bytes")
        return local_cluster(options)

    def _scale(self, cluster: Any) -> None:
        """Let a cluster that was started here have the workers it is to have."""
        adapt(cluster, self._cluster_options["min_workers"], self._cluster_options["max_workers"])


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


log = logging.getLogger("flightlog")

LEFT = "the session left the cluster; the worker goes on"


class DaskCluster(ClusterBackend):
    """A Dask cluster that this process has a client on, which schedules attempts itself. Everything happens
    on the dispatcher's thread, but for what is said to be from any.

    `connect` opens the connection. `may_end` says that worker processes may be ended with a task that runs in
    them, `job_of` that workers live in jobs of a batch system: it gives the job that a worker was started in,
    or None where that is not known.
    """

    slots = sys.maxsize

    def __init__(
        self,
        connect: Callable[[], Connection],
        run_path: str | None,
        *,
        may_end: bool,
        grace_s: float,
        job_of: Callable[[str], str | None] | None = None,
    ) -> None:
        super().__init__()
        self.id = secrets.token_hex(4)
        self._connect, self._may_end, self._grace_s = connect, may_end, grace_s
        self._run_path, self._job_of = run_path, job_of
        self._run = next((run for run in active_runs() if str(run.path) == run_path), None)
        self.jobs: dict[str, str] = {}
        """Batch jobs that workers were found in, by the workers' addresses."""
        self._started_in: dict[str, str] = {}
        """The same as the engine has started them: a worker may be gone before it could tell."""
        self._batch: list[Attempt] = []
        """Attempts that are handed to Dask next."""
        self._futures: dict[int, Any] = {}
        """What Dask calls the attempts that it has, by their number."""
        self._running: dict[int, Attempt] = {}
        self._overdue: dict[int, Attempt] = {}
        """Attempts that seem to run over their time, by their number; their workers are asked."""
        self._unwanted: dict[str, dict[int, str]] = {}
        """Attempts to be ended on a worker that is being asked about others, and why."""
        self._spent: list[object] = []
        """Futures of attempts that are over: Dask forgets a task with the last reference to its future."""
        self._host = this_host()
        self._roster = Roster()
        self._connection: Connection | None = None
        self._left = False

    # --- from any thread

    def can_end(self, attempt: Attempt) -> bool:
        """Whether it has not begun, or runs alone in a process that may be ended."""
        return attempt.begun is None or self._roster.is_endable(attempt.worker)

    def views(self) -> Iterator[WorkerView]:
        """The workers there are."""
        return iter(self._roster.views(list(self._running.values())))

    # --- as backend

    def open(self, dispatcher: Dispatcher) -> None:
        """Connect to the cluster, or start it."""
        super().open(dispatcher)
        opened = time.time()
        connection = self._connection = self._connect()
        is_ours = connection.cluster is not None
        self._roster.opened = opened if is_ours else None
        self.closed = CLOSED if is_ours and self._may_end else f"{CLOSED}; {STUCK}"
        client = self._client = connection.client
        try:
            self._address: str = client.scheduler.address
            notes = m.watch_name(self.id)
            client.subscribe_topic(notes, lambda event: self._loop.post(self._on_notes, event[1]))
            self._observer = ClusterObserver(
                client,
                self._observed,
                sampled_host=self._host if self._run is not None else None,
                engine=self.id,
                heard=self._heard,
                run_path=self._run_path,
            )
            self._comm = client.scheduler_comm
        except BaseException:
            self._connection = None
            connection.close(5.0)
            raise
        dispatcher.launch()
        self._look_at_the_scheduler()

    def close(self) -> None:
        """Leave the cluster as it was."""
        connection = self._connection
        if connection is None:
            return
        self._left = True
        reason = LEFT if connection.cluster is None else CLOSED
        try:
            self._have_workers_leave()
            self._observer.stop(reason)
            self._loop.run_posted()  # what the observer had to say last
            for worker, job_id in self._started_in.items():
                self._on_job(JobStarted(job_id=job_id, raw_job_id=job_id, worker=worker))
        finally:
            connection.close(5.0)
            on_worker.forget_began(self.id)

    # --- as worker

    def send(self, attempt: Attempt) -> None:
        """Hand an attempt to Dask, together with those that follow at once."""
        self._batch.append(attempt)
        if len(self._batch) == 1:
            self._loop.post(self._send_batches)

    def end_attempt(self, attempt: Attempt, why: str) -> None:
        """End an attempt that was judged; where it runs, with its process if that may be ended."""
        worker = attempt.worker
        if attempt.begun is None or worker is None:
            self._futures.pop(attempt.serial, None)  # with which Dask cancels it
            self.end(attempt, Outcome(end="cancelled"))
            return
        assert attempt.verdict is not None
        end, reason = attempt.verdict
        self._lose(attempt, ExitReason(reason))
        if why != CLOSED:
            why = reason if end == "timed_out" else f"{attempt.work.task} was cancelled: {reason}"
            self._be_rid_of(worker, [attempt.serial], why)

    def asks_whether_over(self, attempt: Attempt) -> bool:
        """Where its process can be ended: that knows whether the attempt is over, and this may not have been
        heard yet.
        """
        if attempt.worker is None or not self._roster.is_endable(attempt.worker):
            return False
        self._overdue[attempt.serial] = attempt
        self._be_rid_of(attempt.worker, [attempt.serial], attempt.overrun)
        self._loop.later(self._grace_s + 2 * DaskLimits.answer_timeout_s, partial(self._end_overdue, attempt))
        return True

    def _send_batches(self) -> None:
        waiting, self._batch = deque(each for each in self._batch if not each.over), []
        while waiting:
            batch: list[Attempt] = []
            size = 0
            while (
                waiting and len(batch) < DaskLimits.max_batch_attempts and size < DaskLimits.max_batch_bytes
            ):
                batch.append(waiting.popleft())
                size += len(batch[-1].work.call)
            try:
                futures = self._submit(batch)
            # Dask refuses: a client that is closed, a call that is too large.
            except Exception as error:  # noqa: BLE001
                for each in batch:
                    self.end(each, Outcome(end="lost", reason=f"Dask does not take it: {error}"))
                continue
            self._futures.update((each.serial, future) for each, future in zip(batch, futures, strict=True))

    # --- what is heard

    def _observed(self, events: Iterable[Event]) -> None:
        """Something happened on the cluster; from any thread."""
        for event in events:
            if isinstance(event, WorkerEvent):
                self._loop.post(self._on_worker, event)
            elif isinstance(event, JobStarted):
                self._loop.post(self._on_job, event)
            elif self._run is not None:
                self._run.emit(event)

    def _heard(self, kind: str, *facts: Any) -> None:
        """Dask says what became of attempts that their workers cannot tell of; from any thread."""
        handle: dict[str, Callable[..., None]] = {
            m.RESTART: partial(self._lose_all, "the Dask cluster was restarted"),
            m.GONE: self._on_gone,
            m.REFUSED: self._on_refused,
            m.LOST: self._on_lost,
        }
        self._loop.post(handle[kind], *facts)

    def _look_at_the_scheduler(self) -> None:
        if self._client.status != "running" or self._client.scheduler_comm is not self._comm:
            reason = f"the connection to the Dask scheduler at {self._address} was lost"
            self._dispatcher.attempts.shut("lost", reason)
            self._lose_all(reason)
        self._loop.later(DaskLimits.scheduler_check_interval_s, self._look_at_the_scheduler)

    def _on_notes(self, message: bytes) -> None:
        """A worker says what became of attempts."""
        if self._left:
            return
        said = on_worker.decode_notes(message)
        self._roster.note(said, self._may_end)
        begun: dict[int, None] = {}
        for note in said.notes:
            attempt = self.held.get(note.serial)
            if note.started is not None:
                begun[note.serial] = None
                if attempt is not None and attempt.begun is None:
                    self._start(attempt, said.worker, said.host, note.started)
            if note.outcome is not None:
                begun.pop(note.serial, None)
                if attempt is not None and note.kept:
                    self._soon(self._fetch_result, attempt, self._futures.get(note.serial), note.outcome)
                elif attempt is not None:
                    self.end(attempt, note.outcome)
        strays = [serial for serial in begun if serial not in self.held]
        if strays:  # cancelled before it was known that they had begun
            self._be_rid_of(said.worker, strays, "its task was cancelled")

    def _on_job(self, job: JobStarted) -> None:
        if job.worker is not None and job.worker not in self.jobs:
            self.jobs[job.worker] = job.job_id
            if self._run is not None:
                self._run.emit(job)

    def _start(self, attempt: Attempt, worker: str, host: str, started: Started) -> None:
        if host != self._host:  # the clock of another host says nothing here
            started = msgspec.structs.replace(started, monotonic_ns=monotonic_ns())
        self._running[attempt.serial] = attempt
        self._dispatcher.started(attempt, worker, started)

    def _be_rid_of(self, worker: str, serials: list[int], why: str) -> None:
        """Let a worker execute nothing that nobody waits for: end it with its task, or let it wait for that
        no more.
        """
        if not self._roster.is_endable(worker):
            self._soon(self._give_up, worker, serials)
        elif worker in self._roster.ended:  # it is asked already, and may go on
            self._unwanted.setdefault(worker, {}).update(dict.fromkeys(serials, why))
        else:
            self._roster.ended[worker] = why
            self._soon(self._end_process, worker, serials)

    def _on_answer(self, worker: str, serials: list[int], ends: bool) -> None:
        """A worker that was asked to end if it runs one of these attempts does so, or goes on."""
        unwanted = self._unwanted.pop(worker, {})
        if ends:
            for serial in (*serials, *unwanted):
                if serial in self._overdue:
                    self._end_overdue(self._overdue[serial])
            return
        for serial in serials:  # it had ended by itself; what became of it is on its way
            self._overdue.pop(serial, None)
        self._roster.ended.pop(worker, None)
        for serial, why in unwanted.items():
            self._be_rid_of(worker, [serial], why)

    def _end_overdue(self, attempt: Attempt) -> None:
        """Report an attempt that ran over its time, if it is not known to have ended."""
        if attempt.serial in self._overdue:
            self._dispatcher.attempts.judge(attempt, "timed_out", attempt.overrun)
            self._lose(attempt, ExitReason(attempt.overrun))

    def release(self, attempt: Attempt) -> None:
        """Dask has an attempt no more; it forgets the task with its future."""
        super().release(attempt)
        self._running.pop(attempt.serial, None)
        self._overdue.pop(attempt.serial, None)
        if (future := self._futures.pop(attempt.serial, None)) is not None:
            self._spent.append(future)
            if len(self._spent) == 1:
                self._loop.later(DaskLimits.future_release_delay_s, self._forget_spent)

    def _forget_spent(self) -> None:
        spent, self._spent = self._spent, []
        self._client.loop.add_callback(spent.clear)  # on its own thread that costs a tenth

    def _lose(self, attempt: Attempt, death: ExitReason, at_ns: int | None = None) -> None:
        self.lose(attempt, death, self._roster.home(attempt.worker), at_ns)

    def _lose_all(self, reason: str) -> None:
        for attempt in list(self.held.values()):
            self._lose(attempt, ExitReason(reason))

    # --- what the scheduler says

    def _on_worker(self, event: WorkerEvent) -> None:
        self._dispatcher.attempts.worker(self._roster.take(event))
        if self._job_of is not None and isinstance(event, WorkerReady) and not self._left:
            job_id = self._job_of(event.worker)
            if job_id is not None:
                self._started_in[event.worker] = job_id

    def _attempt_of(self, key: str) -> Attempt | None:
        return self.held.get(int(key.rsplit("-", 2)[1]))

    def _on_gone(self, key: str) -> None:
        if (attempt := self._attempt_of(key)) is not None:
            self._lose(attempt, ExitReason("its result went with the worker that had it"))

    def _on_refused(self, key: str) -> None:
        """Dask could not even begin an attempt."""
        attempt = self._attempt_of(key)
        future = None if attempt is None else self._futures.get(attempt.serial)
        if future is not None:
            future.add_done_callback(lambda done: self._loop.post(self._refuse, attempt, _error_of(done)))

    def _refuse(self, attempt: Attempt, error: BaseException) -> None:
        if not attempt.over:
            self.end(attempt, refused(error, "Dask could not run it"))

    def _on_lost(self, worker: str, keys: list[str], death: WorkerDeath, at_ns: int) -> None:
        """A worker ended: what it had not begun is handed out again, the rest is lost."""
        began = death.began
        why: ExitReason = death
        if worker in self._roster.ended:
            why = ExitReason(self._roster.ended[worker])
        attempts = [attempt for key in keys if (attempt := self._attempt_of(key)) is not None]
        for attempt in sorted(attempts, key=lambda each: -each.serial):  # those put back keep their order
            if attempt.begun is None and began is not None and attempt.serial in began:
                host = self._roster.home(worker)[0] or ""
                self._start(attempt, worker, host, began[attempt.serial])
            if attempt.may_be_retried and began is not None:
                attempt.mishaps += 1
                self.release(attempt)
                self._dispatcher.attempts.put_back(attempt)  # its function was never called
                continue
            if attempt.serial in self._overdue and worker in self._roster.ended:
                self._dispatcher.attempts.judge(attempt, "timed_out", attempt.overrun)
            attempt.worker, reason = worker, why.reason
            if attempt.begun is None and began is None:
                reason = f"{reason}; whether the task had begun is not known"
            self._lose(attempt, msgspec.structs.replace(why, reason=reason), at_ns)

    # --- what is asked of Dask

    def _submit(self, attempts: Sequence[Attempt]) -> Sequence[Any]:
        """A Dask future for each attempt, in their order; all are run before those that are submitted
        later.
        """
        import dask

        keys, orders = [], []
        for each in attempts:
            order = on_worker.DaskOrder(self.id, each.serial, msgspec.structs.replace(each.work, args={}))
            orders.append(on_worker.encode(order))
            name = key_name(each.work.task)
            keys.append(f"{OWN_PREFIX}{name}-{self.id}-{each.serial}-{each.mishaps}")
        options = {"key": keys, "pure": False, "retries": 0, "fifo_timeout": "0 ms"}
        # Dask's advice on large messages is for programs of its own.
        large = sum(map(len, orders)) > DaskLimits.large_message_bytes
        quiet = {"distributed.admin.large-graph-warning-threshold": "1 TiB"} if large else {}
        with dask.config.set(quiet) if quiet else nullcontext():
            return cast("Sequence[Any]", self._client.map(on_worker.run_attempt, orders, **options))

    def _have_workers_leave(self) -> None:
        """Have workers send what they have recorded, and forget the engine, as far as the cluster still
        answers; waits.
        """
        if self._client.status == "running":
            try:
                self._client.run(on_worker.leave, self.id, DaskLimits.settle_timeout_s, on_error="ignore")
            except Exception as error:  # noqa: BLE001 - a cluster that is gone has nothing to forget
                log.debug("leaving the Dask cluster: %s", error)

    def _soon(self, asked: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Have one of the coroutines below run on the client's event loop."""
        self._client.loop.add_callback(asked, *args)

    async def _give_up(self, worker: str, serials: list[int]) -> None:
        """Let a worker wait no more for these attempts."""
        with suppress(Exception):
            await self._client.run(on_worker.give_up, self.id, serials, workers=[worker], on_error="ignore")

    async def _end_process(self, worker: str, serials: list[int]) -> None:
        """End a worker's process, and those below it, if it runs one of these attempts; by its nanny, if it
        does not listen and is still there then.
        """
        by = time.monotonic() + self._grace_s + DaskLimits.answer_timeout_s
        asked = asyncio.ensure_future(self._ask_to_end(worker, serials))
        for _ in range(2):
            await asyncio.wait([asked], timeout=DaskLimits.attempt_answer_timeout_s)
        ends = not asked.done() or asked.result()
        self._loop.post(self._on_answer, worker, serials, ends)
        if not ends:
            return
        await asyncio.sleep(max(0.0, by - time.monotonic()))
        if asked.done() and not asked.result():  # an answer that came late
            self._loop.post(self._on_answer, worker, serials, False)
            return
        asked.cancel()
        with suppress(Exception):
            if worker in self._roster.ended and self._roster.is_there(worker):
                await self._client.restart_workers(
                    [worker], timeout=DaskLimits.answer_timeout_s, raise_for_error=False
                )

    async def _ask_to_end(self, worker: str, serials: list[int]) -> bool:
        """Whether a worker ends its process, as far as it can still say so."""
        with suppress(Exception):
            answers = await self._client.run(
                on_worker.end_process, self.id, serials, self._grace_s, workers=[worker], on_error="ignore"
            )
            return answers.get(worker) is not False
        return True

    async def _fetch_result(self, attempt: Attempt, future: Any, outcome: Outcome) -> None:
        """Fetch a result that waits on its worker."""
        try:
            outcome.result = await self._client.gather(future)
        except Exception as error:  # noqa: BLE001 - whatever came between
            outcome.end, outcome.reason = "lost", f"its result could not be fetched: {error}"
        self._loop.post(self.end, attempt, outcome)


@lru_cache(maxsize=1024)
def key_name(task: str) -> str:
    """A task's name in its key: letters, which Dask takes for the kind of task whose duration it learns and
    shows.
    """
    return re.sub(r"[^A-Za-z]+", "", task)[:40] or "task"


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

    def note(self, said: on_worker.WorkerNotes, may_end: bool) -> None:
        """A worker has written; it may be ended if it executes one task at a time."""
        self._endable[said.worker] = said.alone and may_end
        self._homes[said.worker] = (said.host, said.pid)

    def take(self, event: WorkerEvent) -> WorkerEvent:
        """What is to be told of something that happened to a worker: the loss of one that was ended is no
        loss.
        """
        address = event.worker
        if not isinstance(event, WorkerLost | WorkerRemoved):
            self._homes[address] = (event.host, event.pid)
            self._ready[address] = time.monotonic()
            if address in self._departed:  # another one, at an address that was used before
                self._departed.discard(address)
                self.ended.pop(address, None)
            return event if self.opened is None else with_launch(event, self.opened)
        ready = self._ready.pop(address, None)
        self._departed.add(address)
        if isinstance(event, WorkerRemoved) or address not in self.ended:
            return event
        up_s = None if ready is None else time.monotonic() - ready
        who: dict[str, Any] = {"worker": address, "host": event.host, "pid": event.pid}
        return WorkerRemoved(timestamp=event.timestamp, reason=self.ended[address], uptime_s=up_s, **who)

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
        running = grouped((one.worker, one.work.task_id) for one in attempts if not one.over)
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
    since = opened if event.pid == os.getpid() else start_of(event.pid)
    if since is None or not event.timestamp:
        return event
    launch_s = datetime.fromisoformat(event.timestamp).timestamp() - since
    if launch_s < 0:
        return event
    if isinstance(event, WorkerReady):
        return event if event.launch_s is not None else msgspec.structs.replace(event, launch_s=launch_s)
    stamp = datetime.fromtimestamp(since, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return msgspec.structs.replace(event, timestamp=stamp)
