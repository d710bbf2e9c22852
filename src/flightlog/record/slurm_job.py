"""The Slurm job that this process runs in, by the variables that Slurm sets; no command of Slurm's is
asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from flightlog.events import JobStarted

MAX_CHARS = 500
"""Longest text that is kept of a variable."""
_GROUP = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
MB = 1 << 20


def job_here(
    environ: Mapping[str, str] | None = None,
    *,
    worker: str | None = None,
    task_id: str | None = None,
    host: str | None = None,
) -> JobStarted | None:
    """The job this process runs in, bound to a worker or a task where one is named; None outside a job.

    What the variables do not say, or say in a way that cannot be read, is None. Never raises.
    """
    environ = os.environ if environ is None else environ
    raw = _text(environ, "SLURM_JOB_ID") or _text(environ, "SLURM_JOBID")
    if raw is None:
        return None
    array, index = _text(environ, "SLURM_ARRAY_JOB_ID"), _number(environ, "SLURM_ARRAY_TASK_ID")
    in_array = array is not None and index is not None
    cpus = _added_up(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    nodes = _number(environ, "SLURM_JOB_NUM_NODES") or _number(environ, "SLURM_NNODES")
    return JobStarted(
        job_id=f"{array}_{index}" if in_array else raw,
        cluster=_text(environ, "SLURM_CLUSTER_NAME"),
        raw_job_id=raw,
        array_job_id=array if in_array else None,
        array_index=index if in_array else None,
        array_size=_number(environ, "SLURM_ARRAY_TASK_COUNT") if in_array else None,
        name=_text(environ, "SLURM_JOB_NAME"),
        user=_text(environ, "SLURM_JOB_USER"),
        partition=_text(environ, "SLURM_JOB_PARTITION"),
        account=_text(environ, "SLURM_JOB_ACCOUNT"),
        qos=_text(environ, "SLURM_JOB_QOS"),
        nodes=_text(environ, "SLURM_JOB_NODELIST"),
        cpus=cpus,
        memory_bytes=_memory(environ, nodes, cpus),
        gpus=_gpus(environ, nodes),
        walltime_s=_walltime(environ),
        worker=worker,
        task_id=task_id,
        host=host,
        restarts=_number(environ, "SLURM_RESTART_COUNT"),
        submit_host=_text(environ, "SLURM_SUBMIT_HOST"),
        submit_dir=_text(environ, "SLURM_SUBMIT_DIR"),
    )


def _text(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name, "").strip()
    return value.encode("utf-8", "backslashreplace").decode()[:MAX_CHARS] or None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None


def _added_up(text: str) -> int | None:
    """All of `8(x2),4`; None for anything else."""
    groups = [_GROUP.fullmatch(group) for group in text.split(",")]
    if not all(groups):
        return None
    return sum(int(group[1]) * int(group[2] or 1) for group in groups if group is not None)


def _memory(environ: Mapping[str, str], nodes: int | None, cpus: int | None) -> int | None:
    """On all nodes; Slurm writes 0 for all that a node has, which is not known here."""
    on_node, by_cpu = _number(environ, "SLURM_MEM_PER_NODE"), _number(environ, "SLURM_MEM_PER_CPU")
    if on_node and nodes:
        return on_node * nodes * MB
    return by_cpu * cpus * MB if by_cpu and cpus else None


def _gpus(environ: Mapping[str, str], nodes: int | None) -> int | None:
    whole = _number(environ, "SLURM_GPUS")
    if whole is not None:
        return whole
    here = _number(environ, "SLURM_GPUS_ON_NODE")
    return here * nodes if here is not None and nodes else None


def _walltime(environ: Mapping[str, str]) -> float | None:
    """As newer versions tell it, by start and end."""
    start, end = _number(environ, "SLURM_JOB_START_TIME"), _number(environ, "SLURM_JOB_END_TIME")
    return float(end - start) if start and end and end > start else None
