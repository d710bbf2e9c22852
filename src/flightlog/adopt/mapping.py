"""The mapping file of plain JSONL: which field is the time, the name, the duration, …

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

from flightlog.errors import UsageError

NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
Unit = Literal["s", "ms", "us", "ns"]


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


_NOTHING = object()


def look_up(record: dict[str, Any], field: str | None) -> Any:
    """What a line says in a field, dots going into objects; None where it says nothing."""
    if field is None:
        return None
    if field.startswith("="):
        return field[1:]
    if field in record:
        return record[field]
    found: Any = record
    for part in field.split("."):
        found = found.get(part, _NOTHING) if isinstance(found, dict) else _NOTHING
        if found is _NOTHING:
            return None
    return found
