"""The engine over Slurm: Dask workers in jobs, which `dask-jobqueue` submits."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dask_jobqueue  # noqa: F401 - what this engine needs: without it, it is said what to install
from msgspec import structs

from flightlog.core.errors import FlightlogError, UsageError
from flightlog.engines.contract import Resources
from flightlog.engines.dask.cluster import adapt, steady
from flightlog.engines.dask.engine import DaskEngine
from flightlog.engines.limits import EngineLimits
from flightlog.engines.options import SlurmOptions
from flightlog.record.context import active_runs

log = logging.getLogger("flightlog")


class SlurmEngine(DaskEngine):
    """Runs attempts on Dask workers in Slurm jobs; the contract of `DaskEngine` on a cluster of its own.

    A job holds `processes` worker processes (default: 1) of `threads_per_worker` threads each (default: 1)
    each. The scheduler runs in this process, so nodes must be able to reach this machine, by `interface`
    where there are several.

    What a job asks for: `cpus`, `memory_bytes`, `gpus` and `walltime_s`, for the whole job. Where those are
    not said, a worker gets what the largest of the `components` needs, each resource for itself: all jobs are
    alike. What nobody says is left to Slurm. `queue` is another word for `partition`.

    There are `n_workers` workers, or between `min_workers` and `max_workers` with the work; by default 1.
    They wait in Slurm's queue, and attempts wait for them. The jobs' output goes to `log_directory`, by
    default a folder `slurm` beside the runs. When the engine closes, its jobs are cancelled, and what Slurm's
    accounting says of them is merged into the run. All `options` are fields of `SlurmOptions`.
    """

    options = SlurmOptions

    def __init__(
        self, *, kill_grace_s: float = 2.0, components: Mapping[str, Resources] | None = None, **options: Any
    ) -> None:
        super().__init__(kill_grace_s=kill_grace_s)
        given = SlurmOptions(**options)
        partition, queue, processes = given.partition, given.queue, given.processes or 1
        if partition is not None and queue is not None and partition != queue:
            raise UsageError(
                f"partition is {partition!r} and queue is {queue!r}: they are one thing, say it once"
            )
        said = {name: getattr(given, name) for name in Resources.__struct_fields__}
        needed = largest((components or {}).values(), processes)
        asked = structs.replace(needed, **{name: value for name, value in said.items() if value is not None})
        self._bounds = (given.n_workers, given.min_workers, given.max_workers)
        self._log_directory = given.log_directory
        self._jobs: dict[str, None] = {}
        directives = {name: getattr(given, name) for name in ("qos", "constraint", "reservation")}
        self._options = job_options(
            asked,
            processes=processes,
            threads=given.threads_per_worker or 1,
            directives=[f"--{name}={value}" for name, value in directives.items() if value is not None]
            + list(given.job_extra_directives),
        ) | {
            "queue": partition or queue,
            **{name: getattr(given, name) for name in ("account", "interface", "local_directory", "python")},
            "job_script_prologue": list(given.job_script_prologue),
        }

    def close(self, timeout_s: float = 10.0) -> None:
        """End the jobs; then merge into the run what Slurm's accounting says of them."""
        pool = getattr(self, "_pool", None)
        first = pool is not None and pool.is_running
        if first:
            self._note_jobs()
        super().close(timeout_s)
        self._jobs.update(dict.fromkeys(self._backend.jobs.values() if pool is not None else ()))
        if first and self._jobs and self._run_path is not None:
            self._account(self._run_path)

    def _scale(self, cluster: Any) -> None:
        wanted, fewest, most = self._bounds
        if fewest is None and most is None:
            cluster.scale(n=wanted or 1)
        else:
            adapt(cluster, fewest if fewest is not None else wanted, most)

    def _make_cluster(self) -> Any:
        from dask_jobqueue.slurm import SLURMCluster

        folder = self._log_directory
        if folder is None and self._run_path is not None:
            folder = str(Path(self._run_path).parent.parent / "slurm")
        try:
            return steady(SLURMCluster)(
                log_directory=folder,
                job_name="flightlog-worker",
                scheduler_options={"dashboard_address": ":0"},
                **{name: value for name, value in self._options.items() if value is not None},
            )
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise UsageError(f"no Dask cluster on Slurm can be started: {error}") from error

    def _job_of(self, worker: str) -> str | None:
        """By the name that the cluster gave the worker: that of its job, with a number where a job holds
        several.
        """
        there = getattr(getattr(self._cluster, "scheduler", None), "workers", {}).get(worker)
        name = str(getattr(there, "name", ""))
        jobs = getattr(self._cluster, "workers", {})
        job_id = getattr(jobs.get(name) or jobs.get(name.rpartition("-")[0]), "job_id", None)
        return str(job_id) if job_id else None

    def _note_jobs(self) -> None:
        """Remember the jobs there were: the cluster forgets those that it ends."""
        workers = list(getattr(self._cluster, "workers", {}).values())
        ids = (getattr(worker, "job_id", None) for worker in workers)
        self._jobs.update((str(job_id), None) for job_id in ids if job_id)

    def _account(self, run_path: str) -> None:
        from flightlog.engines.slurm.events import merge_accounting

        run = next((run for run in active_runs() if str(run.path) == run_path), None)
        if run is None:
            return
        try:
            merged = merge_accounting(
                Path(run_path),
                list(self._jobs),
                emit=run.emit,
                patience_s=EngineLimits.accounting_end_timeout_s,
            )
        except FlightlogError as error:
            log.warning(
                "Slurm's accounting is not in the run: %s. `flightlog adopt --slurm` adds it later", error
            )
            return
        if left := [*merged.waiting, *merged.missing]:
            log.warning(
                "Slurm's accounting did not have the end of %s within %g s. `flightlog adopt --slurm %s` "
                "adds it later",
                "job " + left[0] if len(left) == 1 else f"{len(left)} jobs",
                EngineLimits.accounting_end_timeout_s,
                ",".join(left),
            )


def largest(components: Iterable[Resources], processes: int) -> Resources:
    """What a job of so many workers needs so that any component can run in it; None where no component
    says.
    """
    parts, needed = list(components), dict[str, Any]()
    for name in Resources.__struct_fields__:
        said = [value for part in parts if (value := getattr(part, name)) is not None]
        needed[name] = max(said) * (1 if name == "walltime_s" else processes) if said else None
    return Resources(**needed)


def job_options(
    asked: Resources, *, processes: int, threads: int, directives: Sequence[str]
) -> dict[str, Any]:
    """The arguments of `SLURMCluster` for a job like this."""
    lines, skipped, worker_args = list(directives), [], []
    memory = asked.memory_bytes
    if memory is None:
        # Dask-jobqueue insists on a figure. It is kept from Slurm, whose own default holds, and from the
        # workers.
        memory, skipped, worker_args = processes << 30, ["--mem="], ["--memory-limit", "auto"]
    if asked.gpus:
        lines.append(f"--gres=gpu:{math.ceil(asked.gpus)}")
    return {
        "cores": processes * threads,
        "processes": processes,
        "memory": f"{memory} B",
        "job_mem": f"{math.ceil(memory / 2**20)}M",
        "job_cpu": None if asked.cpus is None else max(1, math.ceil(asked.cpus)),
        "walltime": None if asked.walltime_s is None else slurm_time(asked.walltime_s),
        "job_extra_directives": lines,
        "job_directives_skip": skipped,
        "worker_extra_args": worker_args,
    }


def slurm_time(seconds: float) -> str:
    """A duration as Slurm reads it, `days-hours:minutes:seconds`; parts of a second count as one."""
    whole = max(1, math.ceil(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    return f"{days}-{hours:02}:{rest // 60:02}:{rest % 60:02}"
