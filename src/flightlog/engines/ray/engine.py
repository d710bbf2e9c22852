"""Attempts as tasks of Ray: on a Ray started here, or on a cluster that runs."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.units import format_bytes
from flightlog.engines.attempts import CLOSED, NOWHERE, Attempt
from flightlog.engines.contract import Outcome, PooledEngine, Resources, WorkerView, check_counts
from flightlog.engines.dispatcher import ClusterBackend, Dispatcher
from flightlog.engines.limits import RayLimits
from flightlog.engines.options import RayOptions
from flightlog.engines.processes import ExitReason, WatchedProcess, descendants, describe_exit, end_all
from flightlog.engines.program import refuse_while_main_is_imported
from flightlog.engines.ray.worker import Began, RayHome, RayOrder, decode_done, dumps, run_attempt
from flightlog.engines.relay.channel import encode
from flightlog.events import WorkerLaunched, WorkerReady
from flightlog.record.clock import Clock
from flightlog.samplers.cgroup import OomKills

NO_REPORTS = "RAY_USAGE_STATS_ENABLED"


class RayEngine(PooledEngine):
    """Runs attempts as tasks of Ray, scheduled by Ray; the contract of `Engine`, and thread-safe as that
    says.

    `address` is that of a running cluster, or `auto`; without it the Ray that this process is connected to
    already is used, or one is started here with `num_cpus`, `num_gpus` and `object_store_memory_bytes`, and
    ended at the close. A cluster that was not started here is left running, and so is a connection that was
    made before.

    At most `max_workers` attempts are with Ray at once; without it as many as keep the cluster busy. A task
    asks for the CPUs, GPUs and memory of its component, as far as `components` have them, else for
    `cpus_per_task` and `gpus_per_task`. `env_vars` are set for the workers; `working_dir` is sent to them.

    Workers are Ray's own processes, each told of when it first executes a task. A task over its timeout, or
    cancelled while it runs, is ended with its process and, on this host, the processes below it: SIGTERM, and
    SIGKILL after `kill_grace_s` seconds. No task is tried twice by Ray itself.

    `log_to_driver` shows here what tasks print, unless it is false. Notices of Ray's own are kept from this
    program's output. All `options` are fields of `RayOptions`.
    """

    options: ClassVar[type[Struct]] = RayOptions
    """What it takes by name, beside its own arguments."""
    dumps = staticmethod(dumps)
    """How calls are pickled for its workers, which do not import the program."""

    def __init__(
        self, *, kill_grace_s: float = 2.0, components: Mapping[str, Resources] | None = None, **options: Any
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra(
                f"the provider 'ray' needs Ray, which cannot be imported here ({error}): pip install "
                "'flightlog[ray]'"
            ) from error
        given = self._given = RayOptions(**options)
        if given.address is not None:
            check_form(given.address)
        check_counts(max_workers=given.max_workers, num_cpus=given.num_cpus)
        self._started_with = _said(
            num_cpus=given.num_cpus,
            num_gpus=given.num_gpus,
            object_store_memory=given.object_store_memory_bytes,
        )
        if given.address is not None and self._started_with:
            verb = "is" if len(self._started_with) == 1 else "are"
            raise UsageError(
                f"{', '.join(self._started_with)} {verb} for a Ray that is started here, and there is an "
                f"address, {given.address!r}"
            )
        environment = _said(
            env_vars=dict(given.env_vars) if given.env_vars else None, working_dir=given.working_dir
        )
        common = _said(
            num_cpus=given.cpus_per_task, num_gpus=given.gpus_per_task, runtime_env=environment or None
        )
        self._options = RayOptionsOf(common, components or {})
        self._ray, self._grace_s = ray, kill_grace_s
        super().__init__()
        self._connection: ExitStack | None = None
        """There while a connection is that this engine has made."""

    def _make_pool(self, run_path: str | None) -> Dispatcher:
        """Connect to Ray, or start it; seconds where it is started."""
        refuse_while_main_is_imported("an engine")
        began, given = time.time(), self._given
        if not self._ray.is_initialized():
            self._connect()
        limits, far = (given.max_workers, self._options, self._grace_s), given.address is not None
        return Dispatcher(RayCluster(self._ray, *limits, run_path, began, far), 1, self._grace_s)

    def _closed(self) -> None:
        """End Ray itself, if it was started here."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            self._ray.shutdown()
            connection.close()

    def _connect(self) -> None:
        given, here = self._given, self._given.address is None
        options: dict[str, Any] = {
            "address": given.address or "local",
            "namespace": given.namespace,
            "log_to_driver": given.log_to_driver is not False,
            "configure_logging": False,
        }
        if given.address is None:
            options |= {**self._started_with, "include_dashboard": bool(given.include_dashboard)}
        else:
            check_answer(given.address)
        with ExitStack() as connection, ExitStack() as meanwhile, no_notices(self._ray):
            # Below an error it writes to stderr by itself, for as long as it is connected.
            logger = logging.getLogger("ray")
            connection.callback(logger.setLevel, logger.level)
            logger.setLevel(max(logger.level, logging.ERROR))
            if threading.current_thread() is threading.main_thread():  # Ray sets a handler of its own
                meanwhile.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
            if here and NO_REPORTS not in os.environ:  # nobody has said that its processes may report
                os.environ[NO_REPORTS] = "0"
                meanwhile.callback(os.environ.pop, NO_REPORTS, None)
            try:
                self._ray.init(**options)
            except (ConnectionError, OSError, ValueError, RuntimeError) as error:
                what = "no Ray could be started here" if here else f"no Ray answers at {given.address}"
                raise UsageError(f"{what}: {error}") from None  # it says all that Ray says
            self._connection = connection.pop_all()


def _said(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


log = logging.getLogger("flightlog")


class QuietSubscriber:
    """Takes the notices that Ray would print ("A worker died …") and gives them to the log, for those who
    look there.
    """

    def __init__(self, subscriber: Any) -> None:
        self._subscriber = subscriber

    def poll(self, *args: Any, **options: Any) -> tuple[None, None]:
        """Wait for a notice, and keep it."""
        _, notice = self._subscriber.poll(*args, **options)
        if notice is not None:
            log.debug("Ray says: %s", notice.get("error_message"))
        return None, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)


@contextmanager
def no_notices(ray: Any) -> Iterator[None]:
    """Connect to Ray inside: this connection brings no notices into the program's output.

    Ray has no switch for them. What they are taken from is its own affair: where it is not as expected, they
    stay.
    """
    inside: Any = getattr(ray, "_raylet", None)
    subscriber = getattr(inside, "GcsErrorSubscriber", None)
    if subscriber is None:
        yield
        return
    inside.GcsErrorSubscriber = lambda *args, **options: QuietSubscriber(subscriber(*args, **options))
    try:
        yield
    finally:
        inside.GcsErrorSubscriber = subscriber


_REFUSALS = ("RuntimeEnvSetupError", "TaskUnschedulableError", "TaskPlacementGroupRemoved", "OutOfDiskError")
_SAYS_NOTHING = ("WorkerCrashedError", "TaskCancelledError")
"""Errors whose text is the same whatever happened."""
_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""Ray's names of resources, by those of a task's options."""


class RayCluster(ClusterBackend):
    """A Ray that this process is connected to, which schedules attempts itself.

    At most `max_workers` attempts are with Ray at once; where that is None, as many as keep it busy.
    `options` are those of its tasks. `began` is the Unix time from which on Ray's processes concern the run,
    `far` that they may not see the files of this host. Everything happens on the dispatcher's thread.
    """

    refuses = "it cannot be handed to Ray"

    def __init__(
        self,
        ray: Any,
        max_workers: int | None,
        options: RayOptionsOf,
        grace_s: float,
        run_path: str | None,
        began: float,
        far: bool,
    ) -> None:
        super().__init__()
        self._ray, self._max_workers, self._grace_s = ray, max_workers, grace_s
        self.slots = max_workers or RayLimits.min_attempts_ahead
        self._options = options
        self._remotes: dict[tuple[str, str | None], Any] = {}
        self._waiting_for: set[str] = set()
        self._refs: dict[int, Any] = {}
        """What Ray calls the attempts that it has, by their number."""
        self._sent: dict[int, float] = {}
        """The Unix time at which it was given them."""
        self._on: dict[int, RayWorker] = {}
        """Those that run, and where."""
        self._workers: dict[str, RayWorker] = {}
        """Ray's processes that have executed attempts, by Ray's own name for each."""
        self._oom, self._clock = OomKills(), Clock()
        self._nodes = Nodes(ray, lambda nodes: self._loop.post(self._see, nodes))
        self._home = RayHome(ray, run_path, self._begun)
        self._began_at, self._far = began, far

    # --- as backend

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin."""
        super().open(dispatcher)
        self._home.open(self._loop, self)
        if self._far:
            self._home.reach_far()
        self._review_nodes()

    def close(self) -> None:
        """All is over. Ray's processes are left to Ray."""
        self._home.close()
        for worker in self._workers.values():
            worker.close()

    # --- as worker

    def views(self) -> Iterator[WorkerView]:
        """The processes of Ray's that have executed attempts and are there."""
        return (worker.view() for worker in list(self._workers.values()))

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and of no worker that died the reason is still to be found."""
        return not self.held and not any(worker.lost for worker in self._workers.values())

    def send(self, attempt: Attempt) -> None:
        """Hand an attempt to Ray."""
        work = attempt.work
        remote = self._remote(work.task, work.component)
        order = encode(RayOrder(attempt.serial, self._home.setup, msgspec.structs.replace(work, args={})))
        mailbox = self._home.mailbox
        self._sent[attempt.serial] = time.time()
        ref = remote.remote(order) if mailbox is None else remote.remote(order, mailbox)
        self._refs[attempt.serial] = ref
        future: Future[bytes] = ref.future()
        future.add_done_callback(lambda done: self._loop.post(self._answered, attempt, done))

    def stop(self) -> None:
        """Have all workers leave the run; they go on."""
        self._home.dismiss()
        for worker in list(self._workers.values()):
            self._remove(worker, ExitReason(worker.why_ended or CLOSED), expected=True)
        super().stop()

    def _remove(self, worker: RayWorker, death: ExitReason, *, expected: bool) -> None:
        del self._workers[worker.ray_worker]
        worker.close()
        up_s = worker.uptime_s(self._began_at)
        self._dispatcher.attempts.worker_ended(worker.facts, death, expected=expected, uptime_s=up_s)

    def end_attempt(self, attempt: Attempt, why: str) -> None:
        """Have Ray end an attempt that was judged, with the process that executes it."""
        worker = self._on.get(attempt.serial)
        if worker is not None:
            worker.why_ended = why
            if worker.watched is not None and (below := descendants(worker.pid)):
                end_all(below, "terminate")
                self._loop.later(self._grace_s, partial(end_all, below, "kill"))
        try:
            self._ray.cancel(self._refs[attempt.serial], force=True)
        # Ray's connection may be gone; the attempt ends all the same.
        except Exception as error:  # noqa: BLE001
            log.warning("Ray could not be told to end %s: %s", attempt.work.task, error)
        self._loop.later(RayLimits.forced_end_s, partial(self._write_off, attempt))

    def _remote(self, task: str, component: str | None) -> Any:
        """The function Ray runs, under the task's own name and with what its component asks for."""
        remote = self._remotes.get((task, component))
        if remote is None:
            remote = self._ray.remote(**self._options.of(component))(run_attempt)
            if len(self._remotes) < RayLimits.max_task_names:
                remote = self._remotes[task, component] = remote.options(name=task)
        return remote

    # --- what workers and Ray say

    def _begun(self, began: Began, is_here: bool = False) -> None:
        """A worker says that it executes an attempt; one that is here is a process of this host by the number
        it says.
        """
        attempt = self.held.get(began.serial)
        if attempt is None or attempt.over or attempt.begun is not None:
            return
        worker = self._workers.get(began.ray_worker) or self._meet(began, is_here)
        worker.running[attempt.serial], self._on[attempt.serial] = attempt, worker
        self._dispatcher.started(attempt, worker.name, began.started)
        if attempt.verdict is not None:
            worker.why_ended = worker.why_ended or "a task was cancelled"

    def _meet(self, began: Began, is_here: bool) -> RayWorker:
        info, sent = worker_info(self._ray, began.ray_worker), self._sent.get(began.serial)
        worker = RayWorker(began, info, is_here, sent)
        self._workers[began.ray_worker] = worker
        launched = self._timestamp(worker.launched)
        tell = self._dispatcher.attempts.worker
        tell(WorkerLaunched(timestamp=launched, **worker.facts))
        ready = max(launched, self._timestamp(worker.ready))
        tell(WorkerReady(timestamp=ready, launch_s=worker.launch_s, **worker.facts))
        if worker.watched is not None:
            self._loop.watch(worker.watched.fd, worker, lambda _events: self._gone(worker))
        return worker

    def _timestamp(self, moment: float | None) -> str:
        """A moment in Unix time as a timestamp, not before this engine began: what was before is of no
        concern to its run.
        """
        return self._clock.iso(int(max(moment or 0.0, self._began_at) * 1e9) - self._clock.anchor_ns)

    def _answered(self, attempt: Attempt, answer: Future[bytes]) -> None:
        """Ray says what became of its task."""
        self._home.listen()  # what it said itself comes first, be it with its last breath
        error = answer.exception()
        if error is not None:
            self._failed(attempt, error)
        else:
            done = decode_done(answer.result())
            if done.began is not None:
                self._begun(done.began)
            if done.mute:
                self._home.reach_far()
            worker = self._on.get(attempt.serial)
            self.end(attempt, done.outcome)
            if worker is not None and not worker.running:
                worker.why_ended = None  # what should have ended it came too late

    def release(self, attempt: Attempt) -> None:
        """Ray has an attempt no more."""
        super().release(attempt)
        self._refs.pop(attempt.serial, None)
        self._sent.pop(attempt.serial, None)
        worker = self._on.pop(attempt.serial, None)
        if worker is not None:
            worker.running.pop(attempt.serial, None)

    # --- ends that are not the task's own

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        worker, refused = self._on.get(attempt.serial), refusal(error)
        if attempt.verdict is None and refused is not None:
            self.end(attempt, refused)
        elif worker is None:  # it never began
            self.lose(attempt, ExitReason(words_of(error) or "Ray lost it before it began"))
        else:
            worker.lost.append(attempt)
            self.release(attempt)
            worker.said = worker.said or words_of(error)
            if worker.watched is None:
                worker.over = True
            self._loop.later(RayLimits.forced_end_s, partial(self._bury, worker))
            self._bury_if_known(worker)
            self._dispatcher.review(self)

    def _gone(self, worker: RayWorker, looks: int = 0) -> None:
        """The process of a worker is over; the kernel may need a moment to tell how."""
        if worker.watched is None:
            return
        if looks == 0:
            self._loop.unwatch(worker.watched.fd, worker)
            # The number is the program's now: Ray tells of the worker's end.
            if not worker.watched.is_watched():
                worker.close()
                return
        worker.exit_code = worker.watched.exit_code()
        if worker.exit_code is None and looks < RayLimits.max_exit_polls:
            self._loop.later(RayLimits.exit_poll_interval_s, partial(self._gone, worker, looks + 1))
            return
        worker.over = True
        self._loop.later(RayLimits.forced_end_s, partial(self._bury, worker))
        self._bury_if_known(worker)

    def _bury_if_known(self, worker: RayWorker) -> None:
        """Tell of a death when both have spoken: the kernel of the process, and Ray of what it executed."""
        if worker.over and not worker.running:
            self._bury(worker)

    def _bury(self, worker: RayWorker) -> None:
        if self._workers.get(worker.ray_worker) is not worker or not (worker.over or worker.lost):
            return
        if worker.watched is not None:
            self._loop.unwatch(worker.watched.fd, worker)
        worker.lost += worker.running.values()
        info = RayWorkerInfo() if worker.lost else worker_info(self._ray, worker.ray_worker)
        expected = worker.why_ended is not None or info.intended
        if expected:
            death = ExitReason(worker.why_ended or info.detail or "Ray ended it")
        else:
            death = self._death_of(worker)
        self._remove(worker, death, expected=expected)
        for attempt in worker.lost:
            self.lose(attempt, death, (worker.host, worker.pid))
        self._dispatcher.review(self)

    def _death_of(self, worker: RayWorker) -> ExitReason:
        """What a worker died of: by the kernel where it can be asked, and in Ray's words where they say
        more.
        """
        death, words = ExitReason("its process is gone"), worker.said
        if worker.exit_code is not None:
            death = describe_exit(worker.exit_code, self._oom)
        elif words is None:
            words = worker_info(self._ray, worker.ray_worker).detail
        if words:
            death = msgspec.structs.replace(death, reason=f"{death.reason}; Ray says: {words}")
        return death

    def _write_off(self, attempt: Attempt) -> None:
        if not attempt.over and attempt.serial in self.held:
            self.lose(attempt, ExitReason("Ray does not end it"))

    # --- now and then

    def _review_nodes(self) -> None:
        """Ask how large the cluster is, and see whether it is there at all."""
        if self._nodes.missing_s() > RayLimits.cluster_gone_s:
            silence = f"nobody has listened where Ray's head was for {RayLimits.cluster_gone_s:g} s"
            self._lose_all(f"{silence}: the cluster is gone")
        self._nodes.ask()
        self._loop.later(RayLimits.review_interval_s, self._review_nodes)

    def _see(self, nodes: list[dict[str, Any]]) -> None:
        """How large the cluster is, and who has gone unseen."""
        if len(nodes) > 1:
            self._home.reach_far()
        if self._max_workers is None:
            cpus = sum(node["Resources"].get("CPU", 0.0) for node in nodes)
            self.slots = max(RayLimits.min_attempts_ahead, int(2 * cpus))
        self._warn_of_unmet([node["Resources"] for node in nodes])
        for worker in list(self._workers.values()):
            unseen = worker.watched is None and not worker.running
            if unseen and not worker_info(self._ray, worker.ray_worker).alive:
                worker.over = True
                self._bury(worker)
        self._dispatcher.review(self)

    def _lose_all(self, reason: str) -> None:
        """Tell the ends that Ray will not tell any more, of what it has and of what comes."""
        self._dispatcher.attempts.shut("lost", reason)
        for attempt in list(self.held.values()):
            worker = self._on.get(attempt.serial)
            self.lose(attempt, ExitReason(reason), (worker.host, worker.pid) if worker else NOWHERE)

    def _warn_of_unmet(self, nodes: list[dict[str, float]]) -> None:
        """Say, once, what tasks wait for that no node has: Ray waits for ever, and says it nowhere else."""
        waiting = {attempt.work.component for attempt in self.held.values() if attempt.begun is None}
        for component in waiting:
            unmet = self._options.unmet(component, nodes)
            if unmet is not None and unmet not in self._waiting_for:
                self._waiting_for.add(unmet)
                log.warning("tasks wait for a node with %s, and the cluster has none", unmet)


def refusal(error: BaseException) -> Outcome | None:
    """The outcome of an attempt that Ray could not run at all, or whose own frame failed; None if it was
    lost.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    cause, text, trace = error, str(error), None
    if "RayTaskError" in kinds:
        cause, trace = getattr(error, "cause", None) or error, text
        text = f"the worker could not execute it: {cause}"
    elif "RayError" in kinds:
        if not kinds.intersection(_REFUSALS):
            return None
        text = text.strip()
    return Outcome(end="failed", error_type=type(cause).__name__, error_message=text, traceback=trace)


def words_of(error: BaseException) -> str | None:
    """What an error of Ray's says that the kernel does not: its first lines, on one; None if that is
    nothing.
    """
    if type(error).__name__ in _SAYS_NOTHING:
        return None
    text = " ".join(str(error).split())
    return text[:500] or type(error).__name__


class RayOptionsOf:
    """The options of Ray tasks: what is the same for all, and what the components of a manifest ask for."""

    def __init__(self, common: Mapping[str, Any], components: Mapping[str, Resources]) -> None:
        self._common = {"num_cpus": 1.0, "num_gpus": 0.0, **common, "max_retries": 0}
        self._asked = {
            name: _said(num_cpus=one.cpus, num_gpus=one.gpus, memory=one.memory_bytes)
            for name, one in components.items()
        }

    def of(self, component: str | None) -> dict[str, Any]:
        """The options of a task of this component; None is one that has none."""
        return {**self._common, **self._asked.get(component or "", {})}

    def unmet(self, component: str | None, nodes: Iterable[Mapping[str, float]]) -> str | None:
        """What no node has of what such a task asks for, in words; None if one could run it.

        `nodes` are the resources of each, by Ray's names. Without any node nothing is known.
        """
        asked = {_NAMES[key]: value for key, value in self.of(component).items() if key in _NAMES and value}
        there = list(nodes)
        if not there or any(
            all(node.get(name, 0) >= value for name, value in asked.items()) for node in there
        ):
            return None
        return ", ".join(_in_words(name, value) for name, value in asked.items())


def _in_words(name: str, value: float) -> str:
    if name == "memory":
        return f"{format_bytes(value)} of memory"
    return f"{value:g} {name}{'' if value == 1 else 's'}"


class RayWorkerInfo(Struct, frozen=True, kw_only=True):
    """What Ray itself says of a worker; None is unknown."""

    alive: bool = True
    launched: float | None = None
    """Unix time at which its process was started, and at which it was there."""
    ready: float | None = None
    intended: bool = False
    """Whether it went as Ray or its program wanted."""
    detail: str | None = None


class RayWorker:
    """One process of Ray's that has executed an attempt of this engine."""

    def __init__(self, began: Began, info: RayWorkerInfo, is_here: bool, sent: float | None = None) -> None:
        self.facts, self.ray_worker = began.facts, began.ray_worker
        self.name, self.host, self.pid = (began.facts[name] for name in ("worker", "host", "pid"))
        self.running: dict[int, Attempt] = {}
        self.why_ended: str | None = None
        """Why its engine has it ended."""
        self.over = False
        """Whether its process has ended, and the kernel has said how if it ever will."""
        self.exit_code: int | None = None
        self.said: str | None = None
        """What Ray says of its end."""
        self.lost: list[Attempt] = []
        """What it executed when it ended."""
        self.launched = began.process_start if info.launched is None else info.launched
        if sent is not None and info.ready is not None and info.ready < sent:
            self.launched = sent  # Ray had it at hand: nobody waited for it before
        self.ready = began.ready or info.ready or time.time()
        """When it could execute attempts, which it imports Flightlog for."""
        self.watched: WatchedProcess | None = None
        if is_here:
            with suppress(OSError):
                self.watched = WatchedProcess(self.pid)

    @property
    def launch_s(self) -> float | None:
        """From its launch to when it was ready."""
        return None if self.launched is None else max(0.0, self.ready - self.launched)

    def uptime_s(self, since: float) -> float:
        """Seconds from when it was ready, or from a moment after that, to now."""
        return max(0.0, time.time() - max(since, self.ready))

    def view(self) -> WorkerView:
        """The worker as it is now."""
        running = [attempt.work.task_id for attempt in list(self.running.values()) if not attempt.over]
        return WorkerView(**self.facts, running=tuple(running))

    def close(self) -> None:
        """Watch it no more."""
        if self.watched is not None:
            self.watched.close()
            self.watched = None


def worker_info(ray: Any, ray_worker: str) -> RayWorkerInfo:
    """What Ray itself says of a worker; nothing where it cannot be asked, or does not have it."""
    try:
        state: Any = import_module("ray._private.state").state
        common: Any = import_module("ray.core.generated.common_pb2")
        tables: Any = import_module("ray.core.generated.gcs_pb2")
        state._connect_and_get_accessor()
        raw = state._global_state_accessor.get_worker_info(ray.WorkerID.from_hex(ray_worker))
        row = tables.WorkerTableData.FromString(raw)
    except Exception:  # noqa: BLE001 - it has none, or its tables have changed: then less is known
        return RayWorkerInfo()
    return RayWorkerInfo(
        alive=row.is_alive,
        launched=_unix(row.worker_launch_time_ms),
        ready=_unix(row.worker_launched_time_ms),
        intended=row.exit_type in (common.INTENDED_USER_EXIT, common.INTENDED_SYSTEM_EXIT),
        detail=first_sentence(row.exit_detail),
    )


def first_sentence(text: str) -> str | None:
    """The first sentence of what Ray says, on one line; None if it says nothing."""
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".") or None


def _unix(milliseconds: int) -> float | None:
    return milliseconds / 1000 if 0 < milliseconds < 1 << 62 else None


START_ONE = (
    "start one there with `ray start --head`, or leave `address` out to have one for this session alone"
)


def check_form(address: str) -> None:
    """A `UsageError` unless this is an address that an engine can use: `auto`, or `host:port`."""
    if address.startswith("ray://"):
        raise UsageError(
            f"the address {address!r} is that of Ray's client server, through which workers cannot be "
            "followed: start the program on a node of the cluster, with `address: auto`"
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"address is {address!r}; it may be auto, or host:port as in 10.0.0.1:6379")


def check_answer(address: str) -> None:
    """A `UsageError`, after at most `probe_timeout_s`, unless somebody listens there, or where `auto` leads.

    What listens may yet be something else than Ray.
    """
    found = _resolved(address)
    try:
        probe(found)
    except OSError as error:
        where = address if found == address else f"{found}, which is what `address: {address}` means here"
        raise UsageError(f"no Ray answers at {where} ({error}): {START_ONE}") from None


def probe(address: str, patience_s: float = RayLimits.probe_timeout_s) -> None:
    """`OSError`, after at most `patience_s`, unless somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=patience_s).close()


def _resolved(address: str) -> str:
    """Where `auto` leads, as Ray finds it; all other addresses as they are."""
    if address != "auto":
        return address
    find = import_module("ray._private.services").canonicalize_bootstrap_address
    try:
        return str(find(address, None))
    except ConnectionError:
        raise UsageError(
            f"no Ray runs on this machine that `address: auto` could mean: {START_ONE}"
        ) from None


class Nodes:
    """Asks Ray which nodes live, one question at a time. `tell` gets the answer, on a thread of its own.

    Ray's head is looked for before Ray is asked; where it is not there, nothing is told, and `missing_s`
    grows.
    """

    def __init__(
        self,
        ray: Any,
        tell: Callable[[list[dict[str, Any]]], None],
        *,
        probe: Callable[[str], None] = probe,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._tell, self._probe, self._clock = ray, tell, probe, clock
        self._asking: threading.Thread | None = None
        self._missing_since: float | None = None

    def ask(self) -> None:
        """Have the question answered, unless the last one still waits for its answer."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self.look, name="flightlog-nodes", daemon=True)
            self._asking.start()

    def missing_s(self) -> float:
        """For how long nobody has listened where Ray's head is; 0.0 if somebody did last time."""
        since = self._missing_since
        return 0.0 if since is None else self._clock() - since

    def look(self) -> None:
        """Ask, and wait for the answer."""
        try:
            try:
                self._probe(str(self._ray.get_runtime_context().gcs_address))
            except OSError:
                if self._missing_since is None:
                    self._missing_since = self._clock()
                return
            self._missing_since = None
            nodes = [node for node in self._ray.nodes() if node["Alive"]]
        except Exception as error:  # noqa: BLE001 - a cluster that does not answer now may answer later
            log.debug("Ray did not say which nodes there are: %s", error)
            return
        self._tell(nodes)
