"""`ScalableSession`: a manifest and a target, recorded as a run; its plan and its validation."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from flightlog.compat.scalable import manifest as scalable_manifest
from flightlog.compat.scalable.client import ScalableClient
from flightlog.compat.scalable.manifest import AUTO, EnvironmentVariables, Translation
from flightlog.core.errors import UsageError
from flightlog.core.settings import read_settings
from flightlog.record.run import LiveRun
from flightlog.session.manifest import Manifest, parse_manifest
from flightlog.session.plan import Plan, make_plan
from flightlog.session.session import RunAccess, Session
from flightlog.store import layout
from flightlog.store.completing import complete
from flightlog.store.write.finalize import is_to_complete

log = logging.getLogger("flightlog")


STREAMS = ("tasks", "resources", "workers", "failures", "cache", "artifacts", "cost")
"""The files of events that a run of Scalable has, whatever happened."""
OBJECTIVES = ("minimize cost", "minimize time", "balance")
POLICIES = ("safe", "aggressive", "manual")


class ScalableSession(RunAccess):
    """Runs functions on a target of a `scalable.yaml`, and records a run.

    `with` gives the client; or call `start` and `close`. First use starts it. Leaving the block cancels tasks
    that have not ended: gather first. The run's status is that of the block.
    """

    def __init__(
        self,
        manifest: Manifest | str | os.PathLike[str] | None = None,
        *,
        target: str | None = None,
        environ: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """As `from_yaml`."""
        environ = os.environ if environ is None else environ
        self._translation = Translation()
        if not isinstance(manifest, Manifest):
            manifest, self._translation = scalable_manifest.load_scalable(manifest, environ)
        added = scalable_manifest.translated_variables(environ)
        self._environ = {**environ, **added}
        wanted = None if target == AUTO else target
        named = wanted or self._environ.get("FLIGHTLOG_TARGET", "").strip()
        if named in self._translation.unsupported:
            raise UsageError(
                f"there is no engine for the provider {self._translation.unsupported[named]!r} of target "
                f"{named!r} in {manifest.name}; a Dask cluster there can be used with `provider: dask` and "
                "its `address`"
            )
        if not named and self._translation.unsupported and not self._translation.here:
            names = ", ".join(self._translation.unsupported)
            raise UsageError(
                f"none of the targets of {manifest.name} has an engine here: {names}; "
                "name `local` to run on this machine"
            )
        if "FLIGHTLOG_RUNS_DIR" in added:
            options.setdefault("runs_dir", added["FLIGHTLOG_RUNS_DIR"])
        self.manifest = manifest
        wanted = wanted or _default_target(manifest, self._environ)
        self._session = Session(manifest, target=wanted, environ=self._environ, **options)
        self._variables = EnvironmentVariables()
        self._client: ScalableClient | None = None

    @classmethod
    def from_yaml(
        cls, path: str | os.PathLike[str] | None = None, *, target: str | None = None, **options: Any
    ) -> Self:
        """The session of a manifest, by default that of `SCALABLE_MANIFEST` or `./scalable.yaml`, on a
        target.

        Without `target`, or with `auto`: that of `SCALABLE_TARGET`, that of Slurm inside a Slurm job,
        `local`, or the first. `options` are those of `flightlog.Session`. Raises `ManifestError` for an
        invalid manifest.
        """
        return cls(path, target=target, **options)

    @property
    def target_name(self) -> str:
        """The name of its target."""
        return self._session.target

    @property
    def spec(self) -> DeploymentSpec:
        """The target and its provider."""
        return DeploymentSpec(self._session.target, self._session.provider)

    def validate(self) -> ValidationReport:
        """Errors of the target, such as unset variables; and warnings for ignored options."""
        return ValidationReport(
            errors=[
                ValidationIssue(problem.path, problem.text, "E_UNSET" if problem.unset else None)
                for problem in self._session.manifest.problems(self._environ, self.target_name)
            ],
            warnings=[
                ValidationIssue(each.path, f"is left out: {each.why}", "W_LEFT_OUT")
                for each in self._translation.ignored
            ],
        )

    def plan(
        self, *, dry_run: bool = False, objective: str | None = None, policy: str | None = None
    ) -> DryRunPlan:
        """What would run where; starts nothing, whatever `dry_run` is. Objectives: see `adjusted_plan`."""
        del dry_run
        whole = self._session.manifest.for_target(self.target_name, self._environ)  # with its overlays
        made = make_plan(whole, self.target_name, self._environ)
        return adjusted_plan(dry_run_plan(made, whole), made.workers, objective, policy)

    def start(self, plan: DryRunPlan | None = None) -> ScalableClient:
        """Start the run and the workers; returns the client, each time the same.

        Raises `ValueError` for a plan of another target; the numbers of workers come from the manifest.
        """
        if plan is not None and plan.target_name != self.target_name:
            raise ValueError(
                f"plan target {plan.target_name!r} does not match session target {self.target_name!r}"
            )
        if self._client is None:
            ours, name = f"targets.{self.target_name}.", self.manifest.name
            for each in self._translation.ignored:
                if not each.path.startswith("targets.") or f"{each.path}.".startswith(ours):
                    log.warning("%s:%d: %s is left out: %s", name, each.line, each.path, each.why)
            self._variables.put()
            try:
                self._session.start()
            except BaseException:
                self._variables.take_back()
                raise
            self._make_files()
            self._client = ScalableClient(self)
        return self._client

    def _make_files(self) -> None:
        """Make the files of events that Scalable's runs always have, so that those without an event are
        empty and not missing.
        """
        if (path := self._session.seen().path) is None:
            return
        with suppress(OSError):  # the recorder tells of a disk that cannot be written
            for stream in STREAMS:
                layout.stream_file(path, stream).touch()

    def close(self, error: BaseException | None = None) -> None:
        """End the workers and the run, which failed if there is an error; may be called again."""
        try:
            self._session.close(error)
            path = self._session.seen().path
            if path is not None:
                self._complete(path)
        finally:
            self._variables.take_back()

    def _complete(self, path: Path) -> None:
        """Complete the run, whose files are read without Flightlog, too; where that fails, its first reader
        does.
        """
        try:
            if is_to_complete(path):
                complete(path, read_settings(self._environ))
        except Exception as error:  # noqa: BLE001 - full disk, damage; the program goes on
            log.warning("the files of %s are not complete yet: %s", path, error)

    @property
    def session(self) -> Session:
        """Flightlog's own session, started."""
        self.start()
        return self._session

    @property
    def client(self) -> ScalableClient:
        """The client, which submits tasks to the workers."""
        return self.start()

    @property
    def telemetry(self) -> LiveRun:
        """The run: `subscribe`, `emit`, `event`, `metric`, `task`."""
        return self.session.telemetry

    def record_artifact(
        self,
        location: str | os.PathLike[str],
        *,
        kind: str | None = None,
        artifact_name: str | None = None,
        task_name: str | None = None,
        component: str | None = None,
        size_bytes: int | None = None,
        digest: str | None = None,
        name: str | None = None,
        **metadata: Any,
    ) -> None:
        """Record an output of the run: a file, a folder or a URI.

        Size and checksum are measured where it can be read; given ones are recorded as `stated_…`.
        """
        said = {
            "task": task_name,
            "component": component,
            "stated_size_bytes": size_bytes,
            "stated_digest": digest,
        }
        known = {key: value for key, value in said.items() if value is not None}
        self.session.record_artifact(location, kind=kind, name=artifact_name or name, **known, **metadata)

    def __enter__(self) -> ScalableClient:
        return self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close(error)


def _default_target(manifest: Manifest, environ: Mapping[str, str]) -> str | None:
    """The target where none is named: inside a Slurm job that of Slurm, else a local one, else the first.

    Slurm being installed is not enough to submit jobs. None where a variable names the target.
    """
    if environ.get("FLIGHTLOG_TARGET", "").strip():
        return None
    wanted = ["local"]
    if environ.get("SLURM_JOB_ID") or environ.get("SLURM_CLUSTER_NAME"):
        wanted.insert(0, "slurm")
    for provider in wanted:
        if provider in manifest.targets:
            return provider
        for name in manifest.targets:
            if manifest.provider(name, environ) == provider:
                return name
    return manifest.targets[0]


def session_on_cluster(cluster: Any) -> ScalableSession:
    """A session on a running Dask cluster: an address, a cluster, or a client of one."""
    address = cluster if isinstance(cluster, str) else getattr(cluster, "scheduler_address", None)
    if address is None:
        address = getattr(getattr(cluster, "scheduler", None), "address", None)
    if not isinstance(address, str) or not address:
        raise UsageError(
            f"{type(cluster).__name__} is no Dask cluster: give its address, the cluster, or a "
            "ScalableSession"
        )
    source = (
        "version: 1\nproject:\n  name: scalable\n"
        f"targets:\n  dask:\n    provider: dask\n    address: {address}\n"
    )
    return ScalableSession(parse_manifest(source, Path("scalable.yaml")), target="dask")


@dataclass(frozen=True)
class ValidationIssue:
    """One problem of a manifest, and its path there."""

    path: str
    message: str
    code: str | None = None


@dataclass
class ValidationReport:
    """The problems of a manifest: errors stop a session, warnings do not."""

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
    """The resource request of a component's workers, sizes and times as written; None is not set."""

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
    """Flightlog's plan in Scalable's form: one worker per component that a task names."""
    written = manifest.tree.text
    longest = written("targets", plan.target, "walltime")
    resources: dict[str, ResourceRequest] = {}
    for name, made in plan.components.items():
        if made.tasks:
            memory, walltime = (written("components", name, key) for key in ("memory", "walltime"))
            resources[name] = ResourceRequest(made.cpus, memory, walltime or longest, made.gpus)
    scale = ScalePlan(dict.fromkeys(resources, 1), resources)
    tasks = {name: task.component for name, task in plan.tasks.items() if task.component is not None}
    return DryRunPlan(plan.target, plan.provider, plan.manifest_sha256, scale, tasks)


def adjusted_plan(
    made: DryRunPlan, workers: int | None, objective: str | None, policy: str | None
) -> DryRunPlan:
    """The plan for an objective: `minimize time` takes all workers of the target, others change nothing.

    The policy `manual` changes nothing either. Raises `NotImplementedError` for unknown objectives and
    policies.
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
