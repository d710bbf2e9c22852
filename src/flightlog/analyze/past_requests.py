"""What attempts had asked for: by their task, their component, or the worker that ran them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.store import layout
from flightlog.store.documents import read_document

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run


class Requested(Struct, frozen=True, kw_only=True):
    """What was asked for, or given; None is "not said"."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float | None = None
    walltime_s: float | None = None

    def else_(self, other: Requested) -> Requested:
        """What the two say; this one counts where both say something."""
        return Requested(
            cpus=other.cpus if self.cpus is None else self.cpus,
            memory_bytes=other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
            gpus=other.gpus if self.gpus is None else self.gpus,
            walltime_s=other.walltime_s if self.walltime_s is None else self.walltime_s,
        )


NOTHING = Requested()


class _Need(Struct, frozen=True):
    """A component of `plan.json`, as far as it is needed; fields of another type are passed over."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float | None = None
    walltime_s: float | None = None


class _Limit(Struct, frozen=True):
    timeout_s: float | None = None
    component: str | None = None


class _Plan(Struct, frozen=True):
    components: dict[str, _Need] = {}
    tasks: dict[str, _Limit] = {}


class Requests:
    """The requests of several runs. What is said of one submission counts before its task's, that before its
    component's, and all of them before what its worker was given; a plan fills in where events are lost.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, runs: list[Run]) -> None:
        """Read `resources` and `workers` of the connection, and the runs' plans. Raises `duckdb.Error`."""
        self._said: dict[tuple[str, str, str], Requested] = {}
        self._timeouts: dict[tuple[str, str], float] = {}
        self._hosts: dict[tuple[str, str], str] = {}
        for run in runs:
            self._read_plan(run.run_id, run.path)
        for run_id, worker, host, *given in connection.execute(_LAUNCHED).fetchall():
            self._said[run_id, "worker", worker] = _requested(*given)
            if host is not None:
                self._hosts[run_id, worker] = host
        for run_id, task_id, task, component, *asked in connection.execute(_REQUESTED).fetchall():
            kind = "task_id" if task_id is not None else "task" if task is not None else "component"
            name = task_id or task or component
            if name is not None:
                self._said[run_id, kind, name] = _requested(*asked)

    def of(
        self, run_id: str, task_id: str, names: tuple[str, str], component: str | None, worker: str | None
    ) -> Requested:
        """What one attempt had; `names` are its task's as recorded, and without an index."""
        found = NOTHING
        for kind, name in (
            ("task_id", task_id),
            ("task", names[0]),
            ("task", names[1]),
            ("component", component),
            ("worker", worker),
            ("plan", component),
        ):
            said = None if name is None else self._said.get((run_id, kind, name))
            found = found if said is None else found.else_(said)
        return found

    def timeout_s(self, run_id: str, name: str) -> float | None:
        """The longest an attempt of this task might run by the plan; None where it does not say."""
        return self._timeouts.get((run_id, name))

    def host(self, run_id: str, worker: str | None) -> str | None:
        """Where a worker ran; None where nobody said."""
        return None if worker is None else self._hosts.get((run_id, worker))

    def _read_plan(self, run_id: str, folder: Path) -> None:
        plan = read_document(folder / layout.PLAN, _Plan).value
        if plan is None:
            return
        for name, need in plan.components.items():
            self._said[run_id, "plan", name] = Requested(**msgspec.structs.asdict(need))
        for name, limit in plan.tasks.items():
            if limit.timeout_s is not None:
                self._timeouts[run_id, name] = limit.timeout_s
            if limit.component in plan.components:
                self._said.setdefault(
                    (run_id, "task", name),
                    Requested(**msgspec.structs.asdict(plan.components[limit.component])),
                )


def _requested(cpus: Any, memory_bytes: Any, gpus: Any, walltime_s: Any = None) -> Requested:
    """As the events have it; 0 and less is no amount of CPU or memory that anybody asks for."""
    return Requested(
        cpus=cpus if cpus is not None and cpus > 0 else None,
        memory_bytes=memory_bytes if memory_bytes is not None and memory_bytes > 0 else None,
        gpus=gpus,
        walltime_s=walltime_s if walltime_s is not None and walltime_s > 0 else None,
    )


_REQUESTED = """
SELECT run_id, task_id, task, component, cpus, memory_bytes, gpus, walltime_s
FROM resources WHERE event = 'resource_request' ORDER BY timestamp
"""
_LAUNCHED = """
SELECT
    run_id, worker, arg_max(host, timestamp), arg_max(cpus, timestamp), arg_max(memory_bytes, timestamp),
    arg_max(gpus, timestamp)
FROM workers WHERE worker IS NOT NULL GROUP BY run_id, worker
"""
