"""The engine of one machine: worker processes, or threads of this process."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from flightlog.core.errors import UsageError
from flightlog.engines.contract import PooledEngine, Reports
from flightlog.engines.program import refuse_main_without_a_file, refuse_while_main_is_imported
from flightlog.samplers.cgroup import cgroup_limits

if TYPE_CHECKING:
    from flightlog.engines.threads import ThreadPool
    from flightlog.engines.worker_pool import ProcessPool

START_METHODS = ("spawn", "forkserver", "fork")


class LocalEngine(PooledEngine):
    """Runs attempts on this machine; the contract of `Engine`, and thread-safe as that says.

    `max_workers` is how many workers there are at most (default: usable CPUs over `threads_per_worker`); they
    are launched as there is work. With `processes` each is a process that executes `threads_per_worker` tasks
    at once, else there are that many threads of this process for each. `start_method` is that of
    `multiprocessing`.

    A task over its timeout, or cancelled while it runs, is ended with its process and the processes below it:
    SIGTERM, and SIGKILL after `kill_grace_s` seconds. A thread cannot be ended: a timeout is reported at
    once, the thread is written off and replaced, and cancelling does nothing. Nor can one of several tasks of
    a process: it is written off, and its process ends when the tasks beside it have.

    Running tasks may take `timeout_s` seconds more when the engine is closed; those that wait are cancelled
    at once.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        processes: bool = True,
        threads_per_worker: int = 1,
        start_method: Literal["spawn", "forkserver", "fork"] = "spawn",
        kill_grace_s: float = 2.0,
    ) -> None:
        threads = _at_least_one("threads_per_worker", threads_per_worker)
        if max_workers is None:
            max_workers = max(1, usable_cpus() // threads)
        _at_least_one("max_workers", max_workers)
        if start_method not in START_METHODS:
            raise UsageError(f"start_method is {start_method!r}; it may be {', '.join(START_METHODS)}")
        if not kill_grace_s >= 0:
            raise UsageError(f"kill_grace_s is {kill_grace_s!r}; it must be a number of seconds, 0 or more")
        self._processes, self._start_method = processes, start_method
        self._pool: ProcessPool | ThreadPool
        if processes:
            from flightlog.engines.worker_pool import ProcessPool

            self._pool = ProcessPool(max_workers, threads, start_method, kill_grace_s)
        else:
            from flightlog.engines.threads import ThreadPool

            self._pool = ThreadPool(max_workers * threads)
        super().__init__()

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        self._begin()
        if self._processes:
            _refuse_patched_sockets()
            refuse_while_main_is_imported("an engine")
            if self._start_method != "fork":
                refuse_main_without_a_file()
        self._pool.start(run_path, reports)
        # After multiprocessing has registered its own, which would wait for workers that nobody has told to
        # end.
        self._close_at_exit()


def usable_cpus() -> int:
    """CPUs this process may use: by its affinity and by the quota of its cgroup, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = cgroup_limits().cpus
    return max(1, found if quota is None else min(found, int(quota)))


def _refuse_patched_sockets() -> None:
    """A `UsageError` where gevent or eventlet patched what worker processes are talked to with."""
    for library, module, asked in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        is_patched = getattr(sys.modules.get(module), asked, None)
        if is_patched is not None and (is_patched("socket") or is_patched("thread")):
            raise UsageError(
                f"worker processes cannot be used in a program that {library} has patched: "
                "use threads (`processes: false`), or run the session in a program of its own"
            )


def _at_least_one(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} is {value!r}; it must be a whole number, 1 or more")
    return value
