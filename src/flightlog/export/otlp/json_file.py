"""A run in OTLP's JSON: in memory, or as a file with one `TracesData`, `MetricsData` or `LogsData` per
line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.core.errors import UsageError
from flightlog.export.base import Exported, ExportOptions, refuse, whole_file
from flightlog.export.otlp.batches import OtlpReader
from flightlog.export.otlp.model import NAMES, json_form

if TYPE_CHECKING:
    from flightlog.store.run import Run


def otlp_json(run: Run) -> Iterator[dict[str, Any]]:
    """The run in OTLP's JSON, a few hundred spans, points or records at a time; needs no library.

    Each is the body of a request to `/v1/traces`, `/v1/metrics` or `/v1/logs`, with the key `resourceSpans`,
    `resourceMetrics` or `resourceLogs`. A running run is returned as far as recorded, without its root span.
    """
    reading = OtlpReader(run, environ={})
    batches = (batch for batch in reading.batches(run, last=True) if batch.items)
    return (json_form(batch.signal, reading.resource, batch.items) for batch in batches)


class OtlpJson:
    """The exporter `otlp-json`."""

    name = "otlp-json"
    what = "OpenTelemetry traces, metrics and logs in a file of JSON lines, as collectors read them"
    ending: str | None = ".otlp.jsonl"

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write the file."""
        refuse(self.name, options)
        if output is None:
            raise UsageError("--to otlp-json writes a file: say which")
        counts = dict.fromkeys(NAMES.values(), 0)
        reading = OtlpReader(run, environ={})
        with whole_file(output) as made, made.open("wb") as out:
            for batch in reading.batches(run, last=True):
                if batch.items:
                    form = json_form(batch.signal, reading.resource, batch.items)
                    out.write(msgspec.json.encode(form) + b"\n")
                    counts[NAMES[batch.signal]] += len(batch.items)
                    if options.progress:
                        options.progress(sum(counts.values()), None)
        notes = reading.notes()
        if run.status == "running":
            notes.append("the run is still running: its root span, and what has not ended, are missing")
        return Exported(to=self.name, where=str(output), counts=counts, notes=tuple(notes))


exporter = OtlpJson()
