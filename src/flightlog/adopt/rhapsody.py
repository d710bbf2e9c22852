"""RHAPSODY's checkpoint files: one JSONL file per session, with sections of events, spans and metrics.

Every checkpoint repeats the spans; the last copy counts. Ids are hex without leading zeros. A task's
`TaskStarted` is written before the backend's own queue and its duration counts from there, so neither is
taken for a start or an execution time; in files that Flightlog wrote (`compat.rhapsody`) both are.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from flightlog import events
from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import DurationTotals, Record, SourceLines, files, first_objects
from flightlog.core.errors import UsageError
from flightlog.record.values import bounded, clean
from flightlog.store.layout import ELAPSED

_ENDS: dict[str, tuple[str, Literal["completed", "failed", "cancelled"]]] = {
    "TaskCompleted": ("completed", "completed"),
    "TaskFailed": ("failed", "failed"),
    "TaskCanceled": ("canceled", "cancelled"),
    "TaskCancelled": ("canceled", "cancelled"),
}
"""Events that end a task: what the account calls it, and how it ended."""
_COMMON = {"event_id", "event_type", "event_time", "emit_time", "session_id", "name", "section", "trace_id"}
"""Fields of an event that user events do not repeat."""
_SUFFIXES = (".jsonl", ".jsonl.gz")
_SUBMITTED = "submitted "
"""Prefix of the keys of submission times, by task id; no span id begins so."""
_COUNTED = {
    f"Task{how.capitalize()}": f"tasks_{how}" for how in ("submitted", "completed", "failed", "canceled")
}


class RhapsodyCheckpoints(Adopter):
    """One checkpoint file, or a folder of them, recognized by the sections and session ids of their lines."""

    name = "rhapsody"
    title = "RHAPSODY telemetry checkpoint"
    one, several = "events of a RHAPSODY session", "RHAPSODY checkpoints"
    missing = "holds no checkpoint of RHAPSODY: no JSONL file of events with a section"
    any_file = True  # perhaps all its first lines are damaged

    def find(self, path: Path) -> list[Path]:
        """Every checkpoint file, by name."""
        candidates = files(path) if path.is_dir() else [path]
        return [one for one in candidates if one.name.endswith(_SUFFIXES) and _is_checkpoint(one)]

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Read in two passes: spans first, because they come after the events they belong to."""
        _Checkpoint(source.path, maker).adopt()


adopter = RhapsodyCheckpoints()


def _is_checkpoint(file: Path) -> bool:
    return any(
        record.get("section") == "event" and "event_type" in record and "session_id" in record
        for record in first_objects(file)
    )


class _Checkpoint:
    """Turns one checkpoint file into the events of a run."""

    def __init__(self, file: Path, maker: RunMaker) -> None:
        self._file, self._maker, self._scratch, self._account = file, maker, maker.store, maker.account
        self._counted: Counter[str] = Counter()
        self._totals = Record()
        self._elapsed = DurationTotals()
        self._session: str | None = None
        self._ended = False
        self._backends: dict[str, None] = {}
        self._ours: Record | None = None
        """Attributes of the session's start, where Flightlog wrote the file."""

    def adopt(self) -> None:
        self._read_spans()
        lines = SourceLines(self._file)
        for record in lines:
            section = record.get("section")
            if section == "event":
                self._event(record)
            elif section == "metric":
                self._totals = record
                self._account.drop("metric lines, totals at a checkpoint (recomputed)")
            elif section != "span":
                self._account.drop("lines of no known section")
        lines.report(self._account)
        if not self._session:
            raise UsageError(f"{self._file} holds no event of a RHAPSODY session")
        self._write_spans()
        self._describe()

    def _read_spans(self) -> None:
        """Store each span once, and find the session's own, which is the run."""
        repeated = 0
        for record in SourceLines(self._file):
            if record.get("section") == "event" and record.get("event_type") == "SessionStarted":
                self._maker.trace_id = record.hex_id("trace_id", 32) or self._maker.trace_id
                self._maker.span_id = record.hex_id("span_id") or self._maker.span_id
                about = record.object("attributes")
                if about.get("recorder") == "flightlog":
                    self._ours = about
            if record.get("section") != "span":
                continue
            span_id = record.hex_id("span_id")
            if span_id is None:
                self._account.drop("spans without an id")
            elif not self._scratch.put(span_id, record):
                repeated += 1
        self._account.drop("repetitions of spans at later checkpoints", repeated)

    def _event(self, record: Record) -> None:
        kind, at_ns = record.text("event_type") or "event", record.moment_ns("event_time")
        if at_ns is None:
            self._account.drop("events without a time")
            return
        self._session = self._session or record.text("session_id") or "session"
        if backend := record.text("backend"):
            self._backends[backend] = None
        if kind in _COUNTED:
            self._counted[_COUNTED[kind]] += 1
        if kind in {"SessionStarted", "SessionEnded"}:
            ends = kind == "SessionEnded"
            self._ended |= ends
            self._maker.saw(at_ns)
            self._account.map(f"{kind} → {'end' if ends else 'start'} of the run")
        elif kind == "ResourceUpdate":
            self._resource(record, at_ns)
        elif kind.startswith("Task") and record.text("task_id"):
            self._task(kind, record, at_ns)
        else:
            self._other(kind, record, at_ns)

    def _task(self, kind: str, record: Record, at_ns: int) -> None:
        attributes = record.object("attributes")
        executable = attributes.text("executable")
        name = executable if executable not in {None, "None"} else attributes.text("task_type")
        span_id = record.hex_id("span_id")
        found = self._scratch.get(span_id) if span_id is not None else None
        span = Record(found) if isinstance(found, dict) else None
        parent = None if span is None else span.hex_id("parent_span_id")
        common: dict[str, Any] = {
            "task": bounded(name or "task", 500),
            "task_id": str(record["task_id"]),
            "trace_id": self._maker.trace_id,
            "span_id": span_id,
            "parent_id": parent or self._maker.span_id,
        }
        if kind == "TaskSubmitted":
            if self._ours is not None:
                self._scratch.put(f"{_SUBMITTED}{common['task_id']}", at_ns)
            self._maker.add(events.TaskSubmitted(args={}, **common), at_ns, kept="tasks submitted")
        elif kind == "TaskStarted" and self._ours is not None:
            waited = self._waited(common["task_id"], at_ns)
            started = events.TaskStarted(worker=None, queue_s=waited, **common)
            self._maker.add(started, at_ns, kept="tasks started")
        elif kind == "TaskQueued":
            self._maker.add(events.TaskQueued(**common), at_ns, kept="tasks queued")
        elif kind in _ENDS:
            self._end(kind, record, span, common, at_ns)
        else:
            self._other(kind, record, at_ns)

    def _end(
        self, kind: str, record: Record, span: Record | None, common: dict[str, Any], at_ns: int
    ) -> None:
        attributes = record.object("attributes")
        metrics: dict[str, Any] = {}
        # Of a task that nobody saw start, the duration is written as 0 and is not known.
        unseen = attributes.get("incomplete_lifecycle") is True
        elapsed = None if unseen else record.seconds("duration_seconds")
        executed = None
        if elapsed is not None and self._ours is not None:
            executed = elapsed
            self._account.keep("task durations")
        elif elapsed is not None:
            metrics[ELAPSED] = elapsed
            self._elapsed.add(elapsed)
            self._account.map("task durations, waiting in the backend included → metric elapsed_s")
        if span is not None:
            lasted = span.seconds("duration_ms", 1000)
            if lasted is not None:
                metrics["span_s"] = lasted
            self._account.map("spans of tasks → span and parent of the task, metric span_s")
            self._scratch.remove(str(common["span_id"]))
        said = {**attributes, "backend": record.get("backend"), "node": record.get("node_id")}
        said.pop("error_type", None)
        tags = {name: value for name, value in said.items() if value is not None and value != "None"}
        ended: dict[str, Any] = {
            **common,
            "args": {},
            "worker": None,
            "duration_s": executed,
            "metrics": metrics,
            "tags": clean(tags)[0],
        }
        error = record.text("error_type") if kind == "TaskFailed" else None
        error = None if error == "unknown" else error
        why = "RHAPSODY recorded no reason" if kind == "TaskFailed" and error is None else None
        called, how = _ENDS[kind]
        self._maker.add_end(how, ended, at_ns, kept=f"tasks {called}", error_type=error, message=why)

    def _waited(self, task_id: str, at_ns: int) -> float | None:
        """Seconds from a task's submission to its start; None where the submission is not in the file."""
        submitted = self._scratch.get(f"{_SUBMITTED}{task_id}")
        self._scratch.remove(f"{_SUBMITTED}{task_id}")
        return None if submitted is None else max(0, at_ns - submitted) / 1e9

    def _resource(self, record: Record, at_ns: int) -> None:
        node, gpu = record.text("node_id"), record.whole("gpu_id")
        cpu, memory, busy = (record.number(name) for name in ("cpu_percent", "memory_percent", "gpu_percent"))
        samples: list[events.Event] = []
        if gpu is not None:
            of_gpu: dict[str, Any] = {"gpu_index": gpu, "gpu_percent": busy}
            samples.append(events.ResourceSample(scope="gpu", host=node, cpu_percent=None, **of_gpu))
        elif cpu is not None:
            samples.append(events.ResourceSample(scope="node", host=node, cpu_percent=cpu))
        if gpu is None and memory is not None:
            samples.append(events.Metric(name=f"memory_percent {node or 'node'}", value=memory))
            self._account.map("memory in percent of the node → metric memory_percent")
        for event in samples:
            self._maker.add(event, at_ns)
        if samples:
            self._account.keep("samples of nodes and GPUs")
        moved = ("disk_read_bytes", "disk_write_bytes", "net_sent_bytes", "net_recv_bytes")
        if any(record.number(name) for name in moved):
            self._account.drop("bytes of disk and network (over which time is not recorded)")
        if not samples:
            self._other("ResourceUpdate", record, at_ns)

    def _other(self, kind: str, record: Record, at_ns: int) -> None:
        """Add a user event for what has no event of its own."""
        why = ", written before the backend's queue" if kind == "TaskStarted" else ""
        self._maker.add_other(f"rhapsody.{kind}", record, at_ns, what=f"{kind}{why}", but=_COMMON)

    def _write_spans(self) -> None:
        """Add the spans that belong to no task; the session's is the run itself."""
        for span_id, found in self._scratch.named():
            if span_id.startswith(_SUBMITTED):
                continue
            record = Record(found)
            begin, end = record.whole("start_ns"), record.whole("end_ns")
            if begin is None:
                self._account.drop("spans without a start")
                continue
            if span_id == self._maker.span_id:
                self._account.map("span of the session → the run")
                self._maker.describe(start_ns=begin, **({} if end is None else {"end_ns": end}))
                continue
            error = record.get("status_code") == "ERROR"
            reason = record.text("status_description")
            self._maker.add_span(
                begin,
                None if end is None else max(0, end - begin) / 1e9,
                name=record.text("name") or "span",
                tags=clean(record.object("attributes"))[0],
                span_id=span_id,
                parent_id=record.hex_id("parent_span_id"),
                status="error" if error else "ok",
                error_message=bounded(reason, 2000) if error and reason else None,
                kept="spans",
            )

    def _describe(self) -> None:
        self._maker.describe(
            project=self._session,
            status="completed" if self._ended else "crashed",
            target=", ".join(name for name in self._backends if name != "rhapsody") or None,
            provider="rhapsody",
            tags={"rhapsody_session_id": self._session},
        )
        whose = "RHAPSODY's task durations count from before the backend's queue"
        self._account.note(self._elapsed.note(whose))
        if self._ours is not None:
            run = self._ours.text("run")
            self._account.note(
                "Flightlog wrote this file, so durations are execution time only."
                + (f" It recorded the session itself too, with more: {bounded(run, 200)}." if run else "")
            )
        if not self._ended:
            self._account.note("The session has no end in the file: the run ends here with its last event.")
        for name in _COUNTED.values():
            stated, counted = self._totals.whole(name), self._counted[name]
            if stated is not None and stated != counted:
                what = f"counts {stated:,} {name}, the events are {counted:,}"
                self._account.problem(f"the last checkpoint {what}")
