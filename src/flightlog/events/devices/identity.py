"""Which of many processes an event comes from: its place in a distributed job, and its session where none is
named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from flightlog.events.devices.values import optional_text, whole_from

_RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),  # Slurm
)
_JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


def stable_legacy_session_id(*parts: object) -> str:
    """A session id for records that name none: the same parts give the same id. Parts that are None are left
    out.
    """
    return f"legacy-{uuid5(NAMESPACE_URL, '::'.join(str(part) for part in parts if part is not None))}"


def resolve_distributed_identity(
    *,
    job_id: Any = None,
    rank: Any = None,
    local_rank: Any = None,
    world_size: Any = None,
    metadata: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`job_id`, `rank`, `local_rank` and `world_size` of a process.

    What is given counts before what `metadata` says, and that before the launcher's variables in `env`:
    torchrun, Open MPI or Slurm, the first of them that sets both rank and size. What nobody says is one
    process alone; a local rank that nobody says is the rank. Raises ValueError for what cannot be.
    """
    given = {"job_id": job_id, "rank": rank, "local_rank": local_rank, "world_size": world_size}
    said = metadata or {}
    found = {name: value if value is not None else said.get(name) for name, value in given.items()}
    if env is not None:
        ranks_known = all(found[name] is not None for name in ("rank", "local_rank", "world_size"))
        inferred = {"job_id": _job_of(env)} | ({} if ranks_known else _ranks_of(env))
        found |= {name: value for name, value in inferred.items() if found[name] is None}
    if found["world_size"] is None:
        found["world_size"] = 1
    if found["rank"] is None:
        found["rank"] = 0
    if found["local_rank"] is None:
        found["local_rank"] = found["rank"]
    return _checked(**found)


def _checked(job_id: Any, rank: Any, local_rank: Any, world_size: Any) -> dict[str, Any]:
    job = optional_text(job_id, "job_id")
    ranks = {"rank": whole_from(0, rank, "rank"), "local_rank": whole_from(0, local_rank, "local_rank")}
    size = whole_from(1, world_size, "world_size")
    for name, number in ranks.items():
        if number >= size:
            raise ValueError(f"{name} must be < world_size")
    return {"job_id": job, **ranks, "world_size": size}


def _job_of(env: Mapping[str, str]) -> str | None:
    named = (env.get(variable, "").strip() for variable in _JOB_VARIABLES)
    return next((job for job in named if job), None)


def _ranks_of(env: Mapping[str, str]) -> dict[str, int]:
    for rank, local_rank, world_size in _RANK_VARIABLES:
        if rank in env and world_size in env:
            local = env.get(local_rank, "")
            found = {
                "rank": _number(env[rank], "rank"),
                "local_rank": _number(local if local.strip() else env[rank], "local_rank"),
                "world_size": _number(env[world_size], "world_size"),
            }
            for name, least in (("rank", 0), ("local_rank", 0), ("world_size", 1)):
                whole_from(least, found[name], name)
            return found
    return {}


def _number(value: str, field: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ValueError(f"{field} must be an integer") from error
