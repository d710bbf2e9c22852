"""Attempts as tasks of Ray: on a Ray started here, or on a cluster that runs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.engines.contract import PooledEngine, Resources, check_counts
from flightlog.engines.dispatcher import Dispatcher
from flightlog.engines.program import refuse_while_main_is_imported
from flightlog.engines.ray.cluster import check_answer, check_form
from flightlog.engines.ray.pool import RayCluster, RayOptionsOf

NO_REPORTS_HOME = {"RAY_USAGE_STATS_ENABLED": "0"}


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

    `log_to_driver` shows here what tasks print. Notices of Ray's own are kept from this program's output.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        namespace: str | None = None,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        object_store_memory_bytes: int | None = None,
        max_workers: int | None = None,
        cpus_per_task: float = 1.0,
        gpus_per_task: float = 0.0,
        env_vars: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        include_dashboard: bool = False,
        log_to_driver: bool = True,
        kill_grace_s: float = 2.0,
        components: Mapping[str, Resources] | None = None,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra(
                f"the provider 'ray' needs Ray, which cannot be imported here ({error}): pip install "
                "'flightlog[ray]'"
            ) from error
        if address is not None:
            check_form(address)
        check_counts(max_workers=max_workers, num_cpus=num_cpus)
        given = {"num_cpus": num_cpus, "num_gpus": num_gpus, "object_store_memory": object_store_memory_bytes}
        if address is not None and any(value is not None for value in given.values()):
            names = [name for name, value in given.items() if value is not None]
            verb = "is" if len(names) == 1 else "are"
            raise UsageError(
                f"{', '.join(names)} {verb} for a Ray that is started here, and there is an address, "
                f"{address!r}"
            )
        environment: dict[str, Any] = {"env_vars": dict(env_vars)} if env_vars else {}
        if working_dir is not None:
            environment["working_dir"] = working_dir
        self._ray = ray
        self._address, self._namespace = address, namespace
        self._started_with = {
            **{name: value for name, value in given.items() if value is not None},
            "include_dashboard": include_dashboard,
        }
        self._log_to_driver, self._grace_s = log_to_driver, kill_grace_s
        self._max_workers = max_workers
        options: dict[str, Any] = {"num_cpus": cpus_per_task, "num_gpus": gpus_per_task}
        if environment:
            options["runtime_env"] = environment
        self._options = RayOptionsOf(options, components or {})
        super().__init__()
        self._connection: Hush | None = None
        """There while a connection is that this engine has made."""

    def _make_pool(self, run_path: str | None) -> Dispatcher:
        """Connect to Ray, or start it; seconds where it is started."""
        refuse_while_main_is_imported("an engine")
        began = time.time()
        if not self._ray.is_initialized():
            self._connect()
        cluster = RayCluster(
            self._ray,
            self._max_workers,
            self._options,
            self._grace_s,
            run_path,
            began,
            far=self._address is not None,
        )
        return Dispatcher(cluster, 1, self._grace_s)

    def dumps(self, value: Any) -> bytes:
        """The value as a pickle for workers, which do not import the program."""
        from flightlog.engines.ray.worker import dumps

        return dumps(value)

    def _closed(self) -> None:
        """End Ray itself, if it was started here."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            self._ray.shutdown()
            connection.end()

    def _connect(self) -> None:
        options: dict[str, Any] = {
            "namespace": self._namespace,
            "log_to_driver": self._log_to_driver,
            "configure_logging": False,
        }
        if self._address is None:
            options |= {"address": "local", **self._started_with}
        else:
            check_answer(self._address)
            options["address"] = self._address
        hush = Hush()
        try:
            with (
                no_notices(self._ray),
                _environment(NO_REPORTS_HOME if self._address is None else {}),
                _own_sigterm(),
            ):
                self._ray.init(**options)
        except (ConnectionError, OSError, ValueError, RuntimeError) as error:
            hush.end()
            what = (
                "no Ray could be started here"
                if self._address is None
                else f"no Ray answers at {self._address}"
            )
            raise UsageError(f"{what}: {error}") from None  # it says all that Ray says
        self._connection = hush


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that Ray starts, where nobody has set them; gone afterwards."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep the program's way of taking SIGTERM, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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


class Hush:
    """Ray's logger without what is below an error, until `end`: Ray writes to stderr by itself."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("ray")
        self._level = self._logger.level
        self._logger.setLevel(max(self._level, logging.ERROR))

    def end(self) -> None:
        """The logger as it was."""
        self._logger.setLevel(self._level)


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
