"""Plain JSONL of any program, with a mapping file that says what its fields mean.

kind: task                 # what a line is: task (the default), span, metric or event
time: finished_at          # a field; dots go into objects: meta.when
time_is: end               # start or end; the end by default, the start of spans
time_unit: s               # of numbers: s, ms, us or ns of Unix time; texts are ISO 8601
name: step                 # a field, or a text behind an equals sign: "=train"
duration: took_ms
duration_unit: ms
status: outcome
failed: [error, crashed]   # what `status` says of a line that failed; others completed
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import SourceLines, hex_id, moment_ns, seconds, text, whole
from flightlog.core.errors import UsageError
from flightlog.events import Metric, TaskStarted, TaskSubmitted, UserEvent
from flightlog.record.values import bounded, clean
from flightlog.store.layout import ELAPSED

NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
Unit = Literal["s", "ms", "us", "ns"]


class MappedLines(Adopter):
    """One JSONL file, packed by gzip or not; never recognized by itself: only a mapping says what the fields
    mean.
    """

    name = "jsonl"
    title = "plain JSONL, with a mapping file (--mapping)"
    missing = "is no file; name the JSONL file"
    any_file = True

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Read line by line."""
        if maker.options.mapping is None:
            raise UsageError(
                f"{source.path} needs a mapping file: say which field is what with --mapping M.yaml"
            )
        mapping = read_mapping(maker.options.mapping)
        lines = SourceLines(source.path)
        table = _MappedRecords(mapping, maker)
        for record in lines:
            table.take(record)
        lines.report(maker.account)
        if not maker.counts:
            raise UsageError(
                f"{source.path} holds no line whose field {mapping.time!r} is a time and {mapping.name!r} a "
                f"name ({lines.read:,} lines were read)"
            )
        maker.describe(project=mapping.project)
        if mapping.elapsed is not None:
            maker.account.note(
                f"{mapping.elapsed} includes waiting, by the mapping: it is recorded as the metric elapsed_s."
            )


adopter = MappedLines()


class _MappedRecords:
    """Turns the lines of one file into the events of a run."""

    def __init__(self, mapping: Mapping, maker: RunMaker) -> None:
        self._mapping, self._maker, self._account = mapping, maker, maker.account
        self._number = 0
        named = [getattr(mapping, name) for name in Mapping.__struct_fields__ if name not in _SETTINGS]
        fields = [field for one in named for field in ([one] if isinstance(one, str) else one or [])]
        self._named = {field.split(".")[0] for field in fields}

    def take(self, record: dict[str, Any]) -> None:
        """Add one line."""
        mapping = self._mapping
        self._number += 1
        at_ns, name = self._moment(record), look_up(record, mapping.name)
        if at_ns is None or not isinstance(name, str | int) or name == "":
            what = "a time" if at_ns is None else "a name"
            self._account.drop(f"lines without {what}")
            return
        label = bounded(str(name), 500)
        if mapping.kind == "metric":
            self._metric(record, label, at_ns)
        elif mapping.kind == "event":
            self._maker.add(UserEvent(name=label, fields=self._tags(record)), at_ns)
        elif mapping.kind == "span":
            self._span(record, label, at_ns)
        else:
            self._task(record, label, at_ns)
        self._account.map(f"lines → {mapping.kind}")

    def _task(self, record: dict[str, Any], name: str, at_ns: int) -> None:
        mapping = self._mapping
        lasted, waited = self._seconds(record, mapping.duration), self._seconds(record, mapping.queue)
        elapsed = self._seconds(record, mapping.elapsed)
        end = at_ns if mapping.ends else at_ns + _ns(lasted or elapsed or 0.0)
        start = end - _ns(lasted) if lasted is not None else (None if mapping.ends else at_ns)
        given = look_up(record, mapping.id)
        common: dict[str, Any] = {
            "task": name,
            "task_id": f"line-{self._number}" if given is None else bounded(str(given), 500),
            "attempt": whole(look_up(record, mapping.attempt)) or 1,
            "parent_id": self._maker.span_id,
        }
        args = clean(_picked(record, mapping.args))[0]
        worker = look_up(record, mapping.worker)
        worker = None if worker is None else bounded(str(worker), 500)
        submitted = start - _ns(waited) if start is not None and waited is not None else start
        if common["attempt"] == 1:
            self._maker.add(TaskSubmitted(args=args, **common), end if submitted is None else submitted)
        if start is not None:
            self._maker.add(TaskStarted(worker=worker, queue_s=waited, **common), start)
        metrics = clean(_picked(record, mapping.metrics), keys_secret=False)
        ended: dict[str, Any] = {
            **common,
            "args": args,
            "worker": worker,
            "duration_s": lasted,
            "queue_s": waited,
            "metrics": {**metrics[0], **({} if elapsed is None else {ELAPSED: elapsed})},
            "nonfinite": metrics[1],
            "tags": self._tags(record),
        }
        how, error_type, message = self._outcome(record)
        self._maker.add_end(how, ended, end, error_type=error_type, message=message)

    def _span(self, record: dict[str, Any], name: str, at_ns: int) -> None:
        mapping = self._mapping
        lasted = self._seconds(record, mapping.duration)
        start = at_ns - _ns(lasted or 0.0) if mapping.ends else at_ns
        metrics, marks = clean(_picked(record, mapping.metrics), keys_secret=False)
        how, error_type, message = self._outcome(record)
        self._maker.add_span(
            start,
            lasted,
            name=name,
            tags=self._tags(record),
            span_id=hex_id(look_up(record, mapping.id), 16) or self._maker.new_span_id(self._number),
            parent_id=hex_id(look_up(record, mapping.parent), 16),
            metrics=metrics,
            status="error" if how == "failed" else "ok",
            nonfinite=marks,
            error_type=error_type,
            error_message=message,
        )
        self._maker.saw(start + _ns(lasted or 0.0))

    def _metric(self, record: dict[str, Any], name: str, at_ns: int) -> None:
        value = look_up(record, self._mapping.value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._account.drop("metrics whose value is no number")
            return
        made, marks = clean({"value": value}, keys_secret=False)
        step = whole(look_up(record, self._mapping.step))
        metric = Metric(name=name, value=made["value"], step=step, nonfinite=marks.get("value"))
        self._maker.add(metric, at_ns)

    def _outcome(
        self, record: dict[str, Any]
    ) -> tuple[Literal["completed", "failed", "cancelled"], str | None, str | None]:
        """How it ended, and of what kind of error and why it failed."""
        mapping = self._mapping
        said, message = look_up(record, mapping.status), look_up(record, mapping.error)
        failed = bool(message)
        if mapping.status is not None:
            failed = (type(said) is bool, said) in [(type(one) is bool, one) for one in mapping.failed]
        if not failed:
            return "cancelled" if said in mapping.cancelled else "completed", None, None
        kind = text(look_up(record, mapping.error_type))
        return "failed", kind, None if message is None else bounded(str(message), 2000)

    def _tags(self, record: dict[str, Any]) -> dict[str, Any]:
        if self._mapping.tags is not None:
            return clean(_picked(record, self._mapping.tags))[0]
        return clean({field: value for field, value in record.items() if field not in self._named})[0]

    def _moment(self, record: dict[str, Any]) -> int | None:
        found = look_up(record, self._mapping.time)
        if isinstance(found, int | float) and not isinstance(found, bool) and self._mapping.time_unit != "s":
            exact = whole(found)
            scale = NS[self._mapping.time_unit]
            found = moment_ns(found * scale / 1e9)  # with what lies outside of all calendars as None
            return found if exact is None or found is None else exact * scale
        return moment_ns(found)

    def _seconds(self, record: dict[str, Any], field: str | None) -> float | None:
        return seconds(look_up(record, field), NS["s"] / NS[self._mapping.duration_unit])


def _picked(record: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    return {field: look_up(record, field) for field in fields}


def _ns(lasted: float) -> int:
    return round(lasted * 1e9)


class Mapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the fields of a line mean. Each is the name of a field, or a text behind `=`; None is not
    recorded.
    """

    time: str
    name: str
    kind: Literal["task", "span", "metric", "event"] = "task"
    time_is: Literal["start", "end"] | None = None
    time_unit: Unit = "s"
    duration: str | None = None
    """Execution alone; where it includes waiting, say `elapsed` instead."""
    duration_unit: Unit = "s"
    elapsed: str | None = None
    """A duration that includes waiting: it becomes the metric `elapsed_s`."""
    queue: str | None = None
    """Waiting before the start, in `duration_unit`."""
    id: str | None = None
    parent: str | None = None
    attempt: str | None = None
    status: str | None = None
    failed: tuple[str | int | bool | float, ...] = ("failed", "error", "FAILED", "ERROR", False)
    cancelled: tuple[str | int | bool | float, ...] = ("cancelled", "canceled", "CANCELLED", "CANCELED")
    error_type: str | None = None
    error: str | None = None
    worker: str | None = None
    value: str | None = None
    """Of a metric."""
    step: str | None = None
    """Of a metric."""
    args: list[str] = []
    metrics: list[str] = []
    tags: list[str] | None = None
    """Fields that become tags; by default all that nothing else names."""
    project: str | None = None
    """What the run is called."""

    @property
    def ends(self) -> bool:
        """Whether `time` is when things ended."""
        return (self.time_is or ("start" if self.kind == "span" else "end")) == "end"


_SETTINGS = {"kind", "time_is", "time_unit", "duration_unit", "failed", "cancelled", "tags", "project"}
"""What a mapping says beside the names of fields."""


def read_mapping(path: Path) -> Mapping:
    """The mapping in a YAML file; a `UsageError` that names what is wrong with it."""
    import yaml

    try:
        found = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the mapping {path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"the mapping {path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise UsageError(f"the mapping {path} holds no names with fields; it needs time and name at least")
    known = Mapping.__struct_fields__
    for name in found:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"the mapping {path} has {name!r}.{hint} It may have {', '.join(known)}")
    try:
        mapping = msgspec.convert(found, Mapping)
    except msgspec.ValidationError as error:
        raise UsageError(f"the mapping {path}: {error}") from None
    if mapping.kind == "metric" and mapping.value is None:
        raise UsageError(f"the mapping {path} is of metrics and does not say which field is the value")
    return mapping


def look_up(record: dict[str, Any], field: str | None) -> Any:
    """The value of a field, where dots go into objects; None where there is none."""
    if field is None:
        return None
    if field.startswith("="):
        return field[1:]
    if field in record:
        return record[field]
    found: Any = record
    for part in field.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
