"""What tasks and components requested: the plan of a session, and what was requested as it ran."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.store import layout
from flightlog.store.read.files import read_regular

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

LARGEST_PLAN = 16 << 20
_NOT_ENFORCED = frozenset({"local", None})
"""Providers that give no worker a limit of its own; None is a run without a session."""


class RequestedResources(Struct, frozen=True, kw_only=True):
    """What one task could use, and where its manifest says so; None is "not said"."""

    component: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    walltime_s: float | None = None
    timeout_s: float | None = None
    retries: int | None = None
    in_manifest: bool = False
    """Whether the component stands in the run's manifest."""
    task_in_manifest: bool = False


class Plans(Struct, frozen=True, kw_only=True):
    """The plan and the requests of a run."""

    manifest: str | None
    """Name of the manifest's file; None where the run had none."""
    target: str | None
    workers: int | None
    components: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    by_component: dict[str, dict[str, Any]]
    """What was requested, by component, the latest."""
    by_task: dict[str, dict[str, Any]]
    by_id: dict[str, dict[str, Any]]
    enforced: bool = False
    """Whether the provider gives its workers no more memory than they ask for."""
    cgroup_bytes: int | None = None
    """What the cgroup of the run's own process allows, as it was when the run began; None where it has no
    limit."""
    host_bytes: int | None = None
    problem: str | None = None

    def of(self, task: str | None, component: str | None, task_id: str | None) -> RequestedResources:
        """What this task could use."""
        planned = self.tasks.get(task or "", {})
        name = (
            component
            or _text(planned.get("component"))
            or _text(self.by_task.get(task or "", {}).get("component"))
        )
        known: dict[str, Any] = {}
        for source in (
            self.components.get(name or "", {}),
            self.by_component.get(name or "", {}),
            self.by_task.get(task or "", {}),
            self.by_id.get(task_id or "", {}),
        ):
            known |= {key: value for key, value in source.items() if value is not None}
        return RequestedResources(
            component=name,
            cpus=_number(known.get("cpus")),
            memory_bytes=_whole(known.get("memory_bytes")),
            walltime_s=_number(known.get("walltime_s")),
            timeout_s=_number(planned.get("timeout_s")),
            retries=_whole(planned.get("retries")),
            in_manifest=name in self.components,
            task_in_manifest=task in self.tasks,
        )


def read_plans(run: Run, connection: duckdb.DuckDBPyConnection, task_ids: Collection[str]) -> Plans:
    """Plan and requests of a run; requests of single submissions for these tasks alone."""
    document, problem = _document(run, layout.PLAN)
    machine, _ = _document(run, layout.ENVIRONMENT)
    by_component: dict[str, dict[str, Any]] = {}
    by_task: dict[str, dict[str, Any]] = {}
    by_id: dict[str, dict[str, Any]] = {}
    for task, component, task_id, *values in connection.execute(
        _REQUESTS, {"ids": list(task_ids)}
    ).fetchall():
        said = dict(zip(("cpus", "memory_bytes", "walltime_s"), values, strict=True)) | {
            "component": component
        }
        if task_id:
            by_id[task_id] = said
        elif task:
            by_task[task] = said
        elif component:
            by_component[component] = said
    return Plans(
        manifest=_text(document.get("manifest")),
        target=_text(document.get("target")) or run.info.target,
        workers=_whole(document.get("workers")),
        components=_objects(document.get("components")),
        tasks=_objects(document.get("tasks")),
        by_component=by_component,
        by_task=by_task,
        by_id=by_id,
        problem=problem,
        enforced=run.info.provider not in _NOT_ENFORCED,
        cgroup_bytes=_whole(machine.get("cgroup_memory_bytes")),
        host_bytes=_whole(machine.get("memory_bytes")),
    )


def _document(run: Run, name: str) -> tuple[dict[str, Any], str | None]:
    file = run.path / name
    try:
        found = msgspec.json.decode(read_regular(file, LARGEST_PLAN))
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        return {}, f"{name} cannot be read, so what was asked for is known in part: {why}"
    return (found, None) if isinstance(found, dict) else ({}, f"{name} holds no JSON object")


def _objects(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict):
        return {}
    return {str(name): inner for name, inner in value.items() if isinstance(inner, dict)}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    """A number that a column could hold; None for anything else that a document may say."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 63
    return float(value) if known else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


_REQUESTS = """
SELECT task_name(task), component, task_id, cpus, memory_bytes, walltime_s FROM resources
WHERE event = 'resource_request' AND (task_id IS NULL OR task_id IN (SELECT unnest($ids::VARCHAR[])))
QUALIFY row_number() OVER (PARTITION BY task, component, task_id ORDER BY "timestamp" DESC) <= 1
ORDER BY "timestamp" LIMIT 10000
"""
