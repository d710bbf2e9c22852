"""Scalable's run directories: tasks, cache lookups, failures, artifacts, requests.

Its `running` is written at submission and its `duration_s` counts from there, so neither is taken for a start
or an execution time: the first becomes `task_queued`, the second the task's metric `elapsed_s`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

from flightlog import events
from flightlog.adopt import source_files
from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import Record, SourceLines, document
from flightlog.core.units import parse_age, parse_size
from flightlog.record.values import bounded, clean
from flightlog.store.layout import ELAPSED

_STREAMS = ("tasks", "cache", "failures", "artifacts", "resources", "workers", "cost")
_LEFT_OUT = {
    "manifest.yaml": "it holds variables expanded, so perhaps secrets",
    "plan.json": "its requests and components are taken",
    "manifest.lock": "its hash stands in run.json",
    "summary.json": "recomputed",
}
"""Documents that are not in the run, and why."""
_WORKERS: dict[str, Callable[..., Any]] = {
    "launched": events.WorkerLaunched,
    "ready": events.WorkerReady,
    "lost": partial(events.WorkerLost, reason=None),
    "removed": partial(events.WorkerRemoved, reason=None),
}
_ENDS: dict[str, Callable[..., Any]] = {
    "succeeded": events.TaskCompleted,
    "failed": events.TaskFailed,
    "cancelled": events.TaskCancelled,
}
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ScalableRuns(Adopter):
    """One run directory, or a folder of them, recognized by the fields of `run.json`, which no other tool
    has.
    """

    name = "scalable"
    title = "Scalable run directory"
    one, several = "a Scalable run directory", "Scalable run directories"
    missing = "holds no run directory of Scalable: no run.json with a project_name"

    def find(self, path: Path) -> list[Path]:
        """Every run directory, by name."""
        if path.name == "run.json":
            path = path.parent
        return source_files.first_with((path, path / "runs", path / ".scalable" / "runs"), _is_run)

    def files_of(self, recording: Path) -> Sequence[Path]:
        """Its documents and streams."""
        names = ["run.json", *(f"{stream}.jsonl" for stream in _STREAMS), *_LEFT_OUT]
        return [recording / name for name in names if (recording / name).is_file()]

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Read stream by stream; tasks first, because failures name them by id alone."""
        _RunDirectory(source.path, maker).adopt()


adopter = ScalableRuns()


def _is_run(folder: Path) -> bool:
    run = document(folder / "run.json")
    return "project_name" in run and "provider_name" in run and "flightlog_version" not in run


class _RunDirectory:
    """Turns one run directory into the events of a run."""

    def __init__(self, path: Path, maker: RunMaker) -> None:
        self._path, self._maker, self._scratch, self._account = path, maker, maker.store, maker.account
        self._run = document(path / "run.json")
        self._plan = document(path / "plan.json")
        self._components = self._plan.object("task_to_component")
        self._start_ns = self._run.moment_ns("started_at")
        self._elapsed = source_files.DurationTotals()

    def adopt(self) -> None:
        self._describe()
        self._requests()
        takers: dict[str, Callable[[Record, int], None]] = {
            "tasks": self._task,
            "cache": self._cache,
            "failures": self._failure,
            "artifacts": self._artifact,
            "resources": self._resource,
            "workers": self._worker,
            "cost": self._other,
        }
        for stream, take in takers.items():
            file = self._path / f"{stream}.jsonl"
            if not file.is_file():
                continue
            lines = SourceLines(file)
            for record in lines:
                at_ns = record.moment_ns("timestamp")
                if at_ns is None:
                    self._account.problem(f"{file.name}: a line without a time stands at the run's start")
                take(record, self._start_ns or 0 if at_ns is None else at_ns)
            lines.report(self._account)
        self._notes()

    def _describe(self) -> None:
        run = self._run
        status = run.get("status")
        ended = status in ("completed", "failed", "interrupted")
        self._maker.describe(
            project=run.text("project_name") or "scalable",
            status=status if ended else "crashed",
            start_ns=self._start_ns,
            end_ns=run.moment_ns("finished_at"),
            target=run.text("target_name"),
            provider=run.text("provider_name"),
            manifest_hash=run.text("manifest_lock"),
            tags={"scalable_run_id": run.get("run_id")},
        )
        if not ended:
            self._account.note(
                f"The recording says that the run is {status}: it was not closed, and ends here with its "
                "last event."
            )
        for name, why in _LEFT_OUT.items():
            if (self._path / name).is_file():
                self._account.drop(f"{name} ({why})")

    def _requests(self) -> None:
        """Add the resource requests of the plan, by task."""
        by_tag = self._plan.object("scale_plan").object("resources_by_tag")
        for component, asked in by_tag.items():
            tasks: list[str | None] = [task for task, of in self._components.items() if of == component]
            for task in tasks or [None] if isinstance(asked, dict) else []:
                at_ns = self._start_ns or 0
                what = "component's resources in plan.json → resource_request"
                self._request(Record(asked), "", at_ns, task=task, component=component, mapped=what)

    def _request(
        self,
        asked: Record,
        prefix: str,
        at_ns: int,
        *,
        kept: str | None = None,
        mapped: str | None = None,
        **whose: Any,
    ) -> None:
        request = events.ResourceRequest(
            cpus=asked.number(f"{prefix}cpus"),
            memory_bytes=_size(asked.get(f"{prefix}memory")),
            gpus=asked.number(f"{prefix}gpus"),
            walltime_s=_seconds(asked.get(f"{prefix}walltime")),
            **whose,
        )
        self._maker.add(request, at_ns, kept=kept, mapped=mapped)

    def _task(self, record: Record, at_ns: int) -> None:
        name = record.text("function_name") or record.text("task_name") or "task"
        task_id, state = record.text("task_id"), record.get("state")
        component = record.text("component") or self._components.text(name)
        if task_id is None:
            self._other(record, at_ns)
            return
        common: dict[str, Any] = {"task": bounded(name, 500), "task_id": task_id, "component": component}
        account, message = self._account, record.text("error_message")
        ended = _ENDS.get(str(state))
        if state == "submitted":
            self._scratch.put(task_id, name)
            submitted = events.TaskSubmitted(args={}, parent_id=self._maker.span_id, **common)
            self._maker.add(submitted, at_ns, kept="tasks submitted")
        elif state == "running":
            what = "task lines `running`, written at submission → task_queued"
            self._maker.add(events.TaskQueued(**common), at_ns, mapped=what)
        elif state == "retried":
            self._maker.add(events.TaskRetried(reason=message, **common), at_ns, kept="tasks retried")
        elif ended is None:
            self._other(record, at_ns)
        if ended is None:
            return
        tags = {"task_name": record.get("task_name"), "key": record.get("worker"), "tag": record.get("tag")}
        elapsed = record.seconds("duration_s")
        common |= {"args": {}, "worker": None, "duration_s": None, "tags": _known(tags)}
        common["metrics"] = {} if elapsed is None else {ELAPSED: elapsed}
        if ended is events.TaskFailed:  # the failure itself is a line of its own stream
            common["error_type"] = record.text("error_type")
            common["error_message"] = None if message is None else bounded(message, 2000)
        self._maker.add(ended(**common), at_ns, kept=f"tasks {state}")
        if elapsed is not None:
            self._elapsed.add(elapsed)
            account.map("task durations, from submission to end → metric elapsed_s")
        if tags["key"] is not None:
            account.map("task field `worker`, which holds the task's key → tag key")

    def _cache(self, record: Record, at_ns: int) -> None:
        hit, key = record.get("hit"), record.text("key_digest")
        took = record.seconds("duration_s")
        name = record.text("function_name") or record.text("task_name")
        if not isinstance(hit, bool) or name is None:
            self._other(record, at_ns)
            return
        made = self._scratch.get(f"cache\0{key}") if hit and key is not None else None
        lookup = events.CacheLookup(
            task=bounded(name, 500),
            result="hit" if hit else "miss",
            key=key,
            duration_s=took if hit else None,
            saved_s=made,
        )
        self._maker.add(lookup, at_ns, kept="cache lookups")
        if not hit and took is not None:
            self._account.map("durations of misses, which include the computation → saved_s of later hits")
            if key is not None:
                self._scratch.put(f"cache\0{key}", took)

    def _failure(self, record: Record, at_ns: int) -> None:
        task_id, message = record.text("task_id"), record.text("message")
        failure = events.Failure(
            scope="run" if task_id is None else "task",
            error_type=record.text("failure_class"),
            message=None if message is None else bounded(message, 2000),
            traceback=None,
            fingerprint=None,
            task_id=task_id,
            task=None if task_id is None else self._scratch.get(task_id),
        )
        self._maker.add(failure, at_ns, kept="failures")

    def _artifact(self, record: Record, at_ns: int) -> None:
        name, uri = record.text("artifact_name"), record.text("location")
        if uri is None:
            self._other(record, at_ns)
            return
        digest = record.text("digest")
        about = {"task_name": record.get("task_name"), "component": record.get("component"), "digest": digest}
        artifact = events.ArtifactRecorded(
            name=bounded(name or uri, 500),
            uri=bounded(uri),
            kind=record.text("kind"),
            size_bytes=record.whole("size_bytes"),
            sha256=digest if digest is not None and _SHA256.fullmatch(digest) else None,
            metadata=_known(about),
        )
        self._maker.add(artifact, at_ns, kept="artifacts")

    def _resource(self, record: Record, at_ns: int) -> None:
        asked = ("requested_cpus", "requested_memory", "requested_walltime", "requested_gpus")
        if any(record.get(name) is not None for name in ("observed_cpu", "observed_memory_gb")):
            self._other(record, at_ns)
        elif any(record.get(name) is not None for name in asked):
            task_id = record.text("entity_id") if record.get("entity_type") == "task" else None
            task = self._scratch.get(task_id) if task_id is not None else None
            whose = {"task": task, "component": record.text("component"), "task_id": task_id}
            self._request(record, "requested_", at_ns, kept="resource requests", **whose)
        else:
            self._account.drop("resource lines in which every figure is null")

    def _worker(self, record: Record, at_ns: int) -> None:
        worker, made = record.text("worker_id"), _WORKERS.get(str(record.get("state")))
        if worker is None or made is None:
            self._other(record, at_ns)
            return
        event = made(worker=worker, host=None, pid=None, component=record.text("component"))
        self._maker.add(event, at_ns, kept="worker events")

    def _other(self, record: Record, at_ns: int) -> None:
        """Add a user event for a line that has no event of its own."""
        kind = record.text("event_type") or "line"
        state = record.text("state")
        what = f"{kind} lines{f' `{state}`' if state else ''}"
        common = {"event_type", "run_id", "schema_version", "timestamp"}
        self._maker.add_other(f"scalable.{kind}", record, at_ns, what=what, but=common)

    def _notes(self) -> None:
        self._account.note(self._elapsed.note("Scalable's task durations count from submission"))
        self._account.note("Times are whole seconds, as Scalable writes them.")


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are known, bounded and redacted."""
    return clean({name: value for name, value in fields.items() if value is not None})[0]


def _size(value: Any) -> int | None:
    """Bytes, of a text such as `2G`."""
    return source_files.whole(source_files.parsed(parse_size, value) if isinstance(value, str) else value)


def _seconds(value: Any) -> float | None:
    """Seconds, of `01:30:00`, `90m` or a number."""
    if not isinstance(value, str):
        return source_files.number(value)
    if re.fullmatch(r"\d+(:\d{1,2}){1,2}", value):
        return float(reduce(lambda found, part: 60 * found + int(part), value.split(":"), 0))
    return source_files.parsed(parse_age, value)
