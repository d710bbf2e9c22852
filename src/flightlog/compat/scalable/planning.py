"""What a session says of itself before it starts: its target, its plan, and what is wrong with its
manifest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from flightlog.session.manifest import Manifest
from flightlog.session.plan import Plan

OBJECTIVES = ("minimize cost", "minimize time", "balance")
POLICIES = ("safe", "aggressive", "manual")


@dataclass(frozen=True)
class ValidationIssue:
    """One thing to know of a manifest, and where it stands."""

    path: str
    message: str
    code: str | None = None


@dataclass
class ValidationReport:
    """All there is to know: errors stop a session, warnings do not."""

    errors: list[ValidationIssue] = field(default_factory=list)
    warnings: list[ValidationIssue] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether a session can start."""
        return not self.errors


@dataclass(frozen=True)
class DeploymentSpec:
    """Where a session runs."""

    target_name: str
    provider_name: str


@dataclass(frozen=True)
class ResourceRequest:
    """What a worker of a component asks for, sizes and times as they are written; None is "not said"."""

    cpus: float | None = None
    memory: str | None = None
    walltime: str | None = None
    gpus: float | None = None


@dataclass(frozen=True)
class ScalePlan:
    """Workers and their resources, by component."""

    workers_by_tag: dict[str, int] = field(default_factory=dict)
    resources_by_tag: dict[str, ResourceRequest] = field(default_factory=dict)


@dataclass(frozen=True)
class DryRunPlan:
    """What would run where."""

    target_name: str
    provider_name: str
    manifest_lock: str
    """SHA-256 of the manifest's text."""
    scale_plan: ScalePlan
    task_to_component: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "version": 1,
            "target": self.target_name,
            "provider": self.provider_name,
            "manifest_lock": self.manifest_lock,
            "task_to_component": dict(self.task_to_component),
            "scale_plan": asdict(self.scale_plan),
        }


def dry_run_plan(plan: Plan, manifest: Manifest) -> DryRunPlan:
    """Flightlog's plan in these words: a worker for each component that a task names."""

    def written(*path: str) -> str | None:
        node = manifest.tree.get(*path)
        return node.value if node is not None and isinstance(node.value, str) else None

    used = {name: made for name, made in plan.components.items() if made.tasks}
    return DryRunPlan(
        target_name=plan.target,
        provider_name=plan.provider,
        manifest_lock=plan.manifest_sha256,
        scale_plan=ScalePlan(
            workers_by_tag=dict.fromkeys(used, 1),
            resources_by_tag={
                name: ResourceRequest(
                    cpus=made.cpus,
                    memory=written("components", name, "memory"),
                    walltime=written("components", name, "walltime")
                    or written("targets", plan.target, "walltime"),
                    gpus=made.gpus,
                )
                for name, made in used.items()
            },
        ),
        task_to_component={
            name: task.component for name, task in plan.tasks.items() if task.component is not None
        },
    )


def adjusted(made: DryRunPlan, workers: int | None, objective: str | None, policy: str | None) -> DryRunPlan:
    """The plan for an objective: for `minimize time` as many workers as the target has, else as it is.

    With the policy `manual` it stays as it is. Other words are a `NotImplementedError`.
    """
    aim, how = (objective or "balance").strip().lower(), (policy or "safe").strip().lower()
    if aim not in OBJECTIVES:
        raise NotImplementedError(f"Unsupported objective: {objective!r}; there are {', '.join(OBJECTIVES)}")
    if how not in POLICIES:
        raise NotImplementedError(f"Unsupported policy: {policy!r}; there are {', '.join(POLICIES)}")
    if aim != "minimize time" or how == "manual" or workers is None:
        return made
    counts = {name: max(count, workers) for name, count in made.scale_plan.workers_by_tag.items()}
    return replace(made, scale_plan=replace(made.scale_plan, workers_by_tag=counts))
