"""Plain JSONL of any program, by a small mapping file that says what its fields mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flightlog.adopt.base import Source
from flightlog.adopt.ids import hex_id, span_id
from flightlog.adopt.lines import SourceLines
from flightlog.adopt.making import RunMaker
from flightlog.adopt.mapping import NS, Mapping, look_up, read_mapping
from flightlog.adopt.times import moment_ns, seconds, text, whole
from flightlog.errors import UsageError
from flightlog.events import (
    Failure,
    Metric,
    SpanEvent,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    UserEvent,
)
from flightlog.record.values import bounded
from flightlog.record.values import clean as clean_values
from flightlog.store.adopted import ELAPSED


class MappedLines:
    """One JSONL file, packed by gzip or not; never recognized by itself."""

    name = "jsonl"
    title = "plain JSONL, with a mapping file (--mapping)"

    def recognize(self, path: Path) -> str | None:  # noqa: ARG002 - the protocol's
        """Nothing: what fields mean, a mapping says."""
        return None

    def sources(self, path: Path) -> Sequence[Source]:
        """The file."""
        if not path.is_file():
            raise UsageError(f"{path} is no file; name the JSONL file")
        return [Source(path, (path,))]

    def adopt(self, source: Source, maker: RunMaker) -> None:
        """Line by line."""
        if maker.options.mapping is None:
            raise UsageError(
                f"{source.path} needs a mapping file: say which field is what with --mapping M.yaml"
            )
        mapping = read_mapping(maker.options.mapping)
        lines = SourceLines(source.path)
        table = _Lines(mapping, maker)
        for record in lines:
            table.take(record)
        lines.report(maker.account)
        if not maker.counts:
            raise UsageError(
                f"{source.path} holds no line whose field {mapping.time!r} is a time and {mapping.name!r} a "
                "name "
                f"({lines.read:,} lines were read)"
            )
        maker.describe(project=mapping.project or source.path.name.split(".")[0])
        if mapping.elapsed is not None:
            maker.account.note(
                f"{mapping.elapsed} includes waiting, by the mapping: it stands as the metric elapsed_s."
            )


class _Lines:
    """The lines of one file on their way into a run."""

    def __init__(self, mapping: Mapping, maker: RunMaker) -> None:
        self._mapping, self._maker, self._account = mapping, maker, maker.account
        self._number = 0
        one = mapping
        named = (
            one.time,
            one.name,
            one.duration,
            one.elapsed,
            one.queue,
            one.id,
            one.parent,
            one.attempt,
            one.status,
            one.error_type,
            one.error,
            one.worker,
            one.value,
            one.step,
            *one.args,
            *one.metrics,
        )
        self._named = {field.split(".")[0] for field in named if field is not None}

    def take(self, record: dict[str, Any]) -> None:
        """One line."""
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
        args = clean({field: look_up(record, field) for field in mapping.args})[0]
        worker = look_up(record, mapping.worker)
        worker = None if worker is None else bounded(str(worker), 500)
        submitted = start - _ns(waited) if start is not None and waited is not None else start
        if common["attempt"] == 1:
            self._maker.add(TaskSubmitted(args=args, **common), end if submitted is None else submitted)
        if start is not None:
            self._maker.add(TaskStarted(worker=worker, queue_s=waited, **common), start)
        metrics = clean({field: look_up(record, field) for field in mapping.metrics}, keys_secret=False)
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
        how = self._how(record)
        if how == "failed":
            error_type, message = self._error(record)
            self._maker.add(TaskFailed(error_type=error_type, error_message=message, **ended), end)
            self._maker.add(
                Failure(
                    scope="task",
                    error_type=error_type,
                    message=message,
                    traceback=None,
                    fingerprint=None,
                    task=name,
                    task_id=common["task_id"],
                    attempt=common["attempt"],
                    worker=worker,
                ),
                end,
            )
        else:
            self._maker.add((TaskCancelled if how == "cancelled" else TaskCompleted)(**ended), end)

    def _span(self, record: dict[str, Any], name: str, at_ns: int) -> None:
        mapping = self._mapping
        lasted = self._seconds(record, mapping.duration)
        start = at_ns - _ns(lasted or 0.0) if mapping.ends else at_ns
        metrics, marks = clean(
            {field: look_up(record, field) for field in mapping.metrics}, keys_secret=False
        )
        failed = self._how(record) == "failed"
        error_type, message = self._error(record) if failed else (None, None)
        self._maker.add(
            SpanEvent(
                name=name,
                tags=self._tags(record),
                metrics=metrics,
                status="error" if failed else "ok",
                duration_s=lasted,
                trace_id=self._maker.trace_id,
                span_id=hex_id(look_up(record, mapping.id), 16) or span_id(self._maker, self._number),
                parent_id=hex_id(look_up(record, mapping.parent), 16) or self._maker.span_id,
                nonfinite=marks,
                error_type=error_type,
                error_message=message,
            ),
            start,
        )
        self._maker.saw(start + _ns(lasted or 0.0))

    def _metric(self, record: dict[str, Any], name: str, at_ns: int) -> None:
        value = look_up(record, self._mapping.value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._account.drop("metrics whose value is no number")
            return
        made, marks = clean({"value": value}, keys_secret=False)
        self._maker.add(
            Metric(
                name=name,
                value=made["value"],
                step=whole(look_up(record, self._mapping.step)),
                nonfinite=marks.get("value"),
            ),
            at_ns,
        )

    def _how(self, record: dict[str, Any]) -> str:
        mapping = self._mapping
        said = look_up(record, mapping.status)
        if mapping.status is None:
            return "failed" if mapping.error is not None and look_up(record, mapping.error) else "completed"
        if any(said == one and isinstance(said, bool) == isinstance(one, bool) for one in mapping.failed):
            return "failed"
        return "cancelled" if said in mapping.cancelled else "completed"

    def _error(self, record: dict[str, Any]) -> tuple[str | None, str | None]:
        kind, message = look_up(record, self._mapping.error_type), look_up(record, self._mapping.error)
        return text(kind), None if message is None else bounded(str(message), 2000)

    def _tags(self, record: dict[str, Any]) -> dict[str, Any]:
        if self._mapping.tags is not None:
            return clean({field: look_up(record, field) for field in self._mapping.tags})[0]
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


def clean(found: dict[str, Any], *, keys_secret: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """As the recorder cleans values; most lines have nothing to clean."""
    return clean_values(found, keys_secret=keys_secret) if found else ({}, {})


def _ns(lasted: float) -> int:
    return round(lasted * 1e9)
