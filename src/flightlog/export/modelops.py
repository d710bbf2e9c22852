"""A run in the shape of ModelOps: `telemetry/jobs/<run id>/summary.json` and `spans.jsonl`, tasks and spans
alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.export.base import Exported, ExportOptions, refuse
from flightlog.export.destination import whole_folder
from flightlog.export.modelops_format import SPANS, SUMMARY, JobSummary, job_folder, span_line
from flightlog.store.documents import write_document
from flightlog.store.tables.large import rows_of

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
)
SELECT * FROM (
    SELECT TRY(epoch_ns(started_at)) AS start_ns, TRY(round(duration_s * 1e9)::BIGINT) AS length_ns,
           open AS unfinished, name, NULL AS args, tags::VARCHAR AS tags, metrics::VARCHAR AS metrics, span_id,
           parent_id, CASE WHEN status <> 'ok' THEN coalesce(error_type, status) END AS error, error_message,
           marked_spans.nonfinite AS nonfinite
    FROM spans LEFT JOIN marked_spans USING (span_id)
    UNION ALL BY NAME
    SELECT coalesce(TRY(epoch_ns(started_at)), TRY(epoch_ns(ended_at) - round(duration_s * 1e9)::BIGINT)) AS start_ns,
           coalesce(TRY(round(duration_s * 1e9)::BIGINT), TRY(epoch_ns(ended_at) - epoch_ns(started_at))) AS length_ns,
           state = 'running' AS unfinished, task AS name, args::VARCHAR AS args, tags::VARCHAR AS tags,
           metrics::VARCHAR AS metrics, span_id, parent_id,
           CASE WHEN state IN ('failed', 'cancelled') THEN coalesce(error_type, state) END AS error, error_message,
           marked_tasks.nonfinite AS nonfinite
    FROM attempts LEFT JOIN marked_tasks USING (task_id, attempt)
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
        summary = JobSummary("calibration" if calibration else "simulation")
        spans = unfinished = 0
        zero_ns: int | None = None
        with whole_folder(output) as made:
            folder = job_folder(made, run.run_id)
            folder.mkdir(parents=True)
            with (folder / SPANS).open("wb") as out:
                for one in _rows(run):
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


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    """Every span and attempt that began, as the arguments of `span_line`."""
    for row in rows_of(run, _QUERY, {"attempts", "spans", "span_events", "task_events"}):
        start_ns, length_ns, unfinished, name, args, tags, metrics, span_id, parent_id, error, why, odd = row
        yield {
            "name": name or "",
            "start_ns": start_ns,
            "end_ns": None if unfinished or length_ns is None else start_ns + length_ns,
            "tags": {**_object(args), **_object(tags), **_failure(error, why)},
            "metrics": _object(metrics),
            "span_id": span_id,
            "parent_id": parent_id,
            "nonfinite": _object(odd),
        }


def _failure(error: str | None, why: str | None) -> dict[str, str]:
    return {} if error is None else {"error": error, "error_msg": why or ""}


def _object(text: str | None) -> dict[str, Any]:
    found = None if text is None else msgspec.json.decode(text)
    return found if isinstance(found, dict) else {} if found is None else {"args": found}
