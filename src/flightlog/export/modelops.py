"""A run as ModelOps' job files: `telemetry/jobs/<run id>/summary.json` and `spans.jsonl`.

    telemetry/jobs/<job>/summary.json    totals, and by name: durations and metrics
    telemetry/jobs/<job>/spans.jsonl     one span per line, tasks included

Times in the lines are seconds. `start_time` and `end_time` count from an arbitrary origin, as ModelOps' do:
pandas reads small numbers as numbers, so `start_time + duration` works. `started_at` counts from 1970, which
pandas reads as a date; it makes lines of several machines comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from flightlog.core.intervals import Intervals, length
from flightlog.export.base import Exported, ExportOptions, refuse, whole_folder
from flightlog.export.limits import ExportLimits
from flightlog.store.documents import write_document
from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.store.run import Run

CALIBRATION = "algorithm.ask"
"""A run with spans of this name is a calibration."""
_QUERY = """
WITH marked_spans AS (
    SELECT span_id, max(nonfinite::VARCHAR) AS nonfinite
    FROM span_events WHERE len(nonfinite::VARCHAR) > 2 GROUP BY span_id
), marked_tasks AS (
    SELECT task_id, attempt, max(nonfinite::VARCHAR) AS nonfinite
    FROM task_events WHERE len(nonfinite::VARCHAR) > 2 GROUP BY task_id, attempt
), timed_attempts AS (
    SELECT *, TRY(epoch_ns(started_at)) AS began, TRY(epoch_ns(ended_at)) AS ended,
        TRY(round(duration_s * 1e9)::BIGINT) AS lasted FROM attempts
)
SELECT * FROM (
    SELECT TRY(epoch_ns(started_at)) AS start_ns, TRY(round(duration_s * 1e9)::BIGINT) AS length_ns,
        open AS unfinished, name, NULL AS args, tags::VARCHAR AS tags, metrics::VARCHAR AS metrics, span_id,
        parent_id, CASE WHEN status <> 'ok' THEN coalesce(error_type, status) END AS error, error_message,
        marked_spans.nonfinite AS nonfinite
    FROM spans LEFT JOIN marked_spans USING (span_id)
    UNION ALL BY NAME
    SELECT coalesce(began, TRY(ended - lasted)) AS start_ns,
        coalesce(lasted, TRY(ended - began)) AS length_ns,
        state = 'running' AS unfinished, task AS name, args::VARCHAR AS args, tags::VARCHAR AS tags,
        metrics::VARCHAR AS metrics, span_id, parent_id, error_message,
        CASE WHEN state IN ('failed', 'cancelled') THEN coalesce(error_type, state) END AS error,
        marked_tasks.nonfinite AS nonfinite
    FROM timed_attempts LEFT JOIN marked_tasks USING (task_id, attempt)
)
WHERE start_ns IS NOT NULL
ORDER BY start_ns, span_id
"""


class ModelOpsExporter:
    """`--to modelops`: a folder that ModelOps' own storage opens, and `flightlog.compat.modelops`."""

    name = "modelops"
    what = "ModelOps' summary.json and spans.jsonl, in a folder"
    ending: str | None = ""

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write both files; the spans in the order of their starts, tasks among them with arguments and tags
        as tags.

        `start_time` and `end_time` count from the start of the first. What failed or was cancelled has the
        tags `error` and `error_msg`, as ModelOps' own spans do.
        """
        assert output is not None
        refuse(self.name, options)
        calibration = bool(run.sql("SELECT 1 FROM span_events WHERE name = ? LIMIT 1", [CALIBRATION]).rows())
        summary = ModelOpsSummary("calibration" if calibration else "simulation")
        spans = unfinished = 0
        zero_ns: int | None = None
        with whole_folder(output) as made:
            folder = job_folder(made, run.run_id)
            folder.mkdir(parents=True)
            with (folder / SPANS).open("wb") as out:
                for one in _spans(run):
                    zero_ns = one["start_ns"] if zero_ns is None else zero_ns
                    failed = "error" in one["tags"]
                    summary.add(one["name"], one["start_ns"], one["end_ns"], one["metrics"], failed=failed)
                    out.write(msgspec.json.encode(span_line(**one, zero_ns=zero_ns)) + b"\n")
                    spans += 1
                    unfinished += one["end_ns"] is None
            write_document(folder / SUMMARY, {"job_id": run.run_id, **summary.to_dict()})
        notes = (*((f"without an end: {unfinished:,} spans",) if unfinished else ()), *run.problems)
        return Exported(to=self.name, where=str(output), counts={"spans": spans}, notes=notes)


exporter = ModelOpsExporter()


def _spans(run: Run) -> Iterator[dict[str, Any]]:
    """Every span and attempt that began, as the arguments of `span_line`."""
    with open_tables([run]) as tables:
        for start_ns, length_ns, unfinished, name, args, tags, metrics, *more in tables.rows(_QUERY):
            span_id, parent_id, error, why, nonfinite = more
            failure = {} if error is None else {"error": error, "error_msg": why or ""}
            yield {
                "name": name or "",
                "start_ns": start_ns,
                "end_ns": None if unfinished or length_ns is None else start_ns + length_ns,
                "tags": {**_object(args), **_object(tags), **failure},
                "metrics": _object(metrics),
                "span_id": span_id,
                "parent_id": parent_id,
                "nonfinite": _object(nonfinite),
            }


def _object(text: str | None) -> dict[str, Any]:
    found = None if text is None else msgspec.json.decode(text)
    return found if isinstance(found, dict) else {} if found is None else {"args": found}


SUMMARY, SPANS = "summary.json", "spans.jsonl"


def job_name(job_id: str) -> str:
    """A job's folder name: the id itself if it consists of letters, digits and `_.-~`.

    Other characters are percent-encoded (`%2F`), so that no id leads out of the folder and no two ids share
    one; an id that is too long ends in a digest.
    """
    name = quote(str(job_id), safe="", errors="surrogatepass") or "%"
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if len(name) > ExportLimits.max_job_name_bytes:
        digest = sha256(str(job_id).encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[: ExportLimits.max_job_name_bytes - 17]}-{digest[:16]}"
    return name


def job_folder(root: Path, job_id: str) -> Path:
    """The folder of a job's two files, under the folder that contains `telemetry`."""
    return root / "telemetry" / "jobs" / job_name(job_id)


def span_line(
    *,
    name: str,
    start_ns: int,
    end_ns: int | None,
    metrics: Mapping[str, Any],
    tags: Mapping[str, Any],
    span_id: str | int | None = None,
    parent_id: str | int | None = None,
    nonfinite: Mapping[str, str] | None = None,
    zero_ns: int,
) -> dict[str, Any]:
    """A line of `spans.jsonl`. Nanoseconds since 1970; `end_ns` is None while the span is open.

    `zero_ns` is where the clock of `start_time` and `end_time` begins.

    `duration` is exact, where the difference of the two times loses some 0.2 µs. Metrics and tags are JSON
    values.
    """
    line: dict[str, Any] = {
        "name": name,
        "start_time": (start_ns - zero_ns) / 1e9,
        "end_time": None if end_ns is None else (end_ns - zero_ns) / 1e9,
        "duration": None if end_ns is None else (end_ns - start_ns) / 1e9,
        "metrics": dict(metrics),
        "tags": dict(tags),
        "span_id": span_id,
        "parent_id": parent_id,
        "started_at": start_ns / 1e9,
    }
    if nonfinite:
        line["nonfinite"] = dict(nonfinite)
    return line


class ModelOpsSummary:
    """Adds spans up to what `summary.json` holds, in any order; not thread-safe.

    Memory grows with the number of names, and by 16 bytes for each stretch of time between which no span was
    open.
    """

    def __init__(self, job_type: str = "simulation") -> None:
        self._job_type = job_type
        self._open = 0
        self._covered = Intervals()
        self._names: dict[str, _Named] = {}

    def add(
        self,
        name: str,
        start_ns: int,
        end_ns: int | None,
        metrics: Mapping[str, Any] | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Add a span; times in nanoseconds of any one clock, `end_ns` None while it is open.

        Numeric metrics count, lists of numbers element by element; other values, NaN and infinities are left
        out.
        """
        named = self._names.setdefault(name, _Named())
        named.count += 1
        named.errors += failed
        if end_ns is None:
            self._open += 1
        else:
            self._covered.add(start_ns, end_ns)
            named.durations.add((end_ns - start_ns) / 1e9)
        for key, value in (metrics or {}).items():
            for one in value if isinstance(value, list | tuple) else (value,):
                number = _number(one)
                if number is not None:
                    named.metrics.setdefault(str(key), _Figures()).add(number)

    def to_dict(self) -> dict[str, Any]:
        """The document so far. `total_duration` is the time during which a span was open; `summed_duration`
        adds all up.
        """
        return {
            "job_type": self._job_type,
            "total_spans": sum(named.count for named in self._names.values()),
            "open_spans": self._open,
            "total_duration": length(self._covered.union()) / 1e9,
            "summed_duration": sum(named.durations.total for named in self._names.values()),
            "by_name": {name: named.to_dict() for name, named in self._names.items()},
        }


def _number(value: Any) -> float | None:
    try:
        return value if isinstance(value, int | float) and isfinite(value) else None
    except OverflowError:  # a whole number beyond all floats
        return None


class _Figures(Struct):
    """Numbers, added up."""

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.least = value if self.least is None else min(self.least, value)
        self.greatest = value if self.greatest is None else max(self.greatest, value)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class _Named(Struct):
    """All spans of one name."""

    count: int = 0
    errors: int = 0
    durations: _Figures = field(default_factory=_Figures)
    metrics: dict[str, _Figures] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "count": self.count,
            "errors": self.errors,
            "total_duration": self.durations.total,
            "mean_duration": self.durations.mean,
            "max_duration": self.durations.greatest,
            "min_duration": self.durations.least,
        }
        if self.metrics:
            shown["metrics"] = {
                key: {"mean": one.mean, "sum": one.total, "count": one.count}
                for key, one in self.metrics.items()
            }
        return shown
