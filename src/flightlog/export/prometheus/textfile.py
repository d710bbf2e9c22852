"""`--to prometheus`: the metrics of a run in a file for node_exporter's textfile collector."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.exposition import generate_latest

from flightlog.core.errors import UsageError
from flightlog.export.base import Exported, ExportOptions
from flightlog.export.limits import PrometheusLimits
from flightlog.export.prometheus.run_metrics import RunMetrics, RunWatch, families
from flightlog.store.documents import replace_bytes
from flightlog.store.liveness import here
from flightlog.store.run import Run


class TextfileExporter:
    """Writes the metrics of one run; a reader of the file sees the old ones or the new ones, whole."""

    name = "prometheus"
    what = "metrics of the run in a text file, for node_exporter's textfile collector"
    ending = ".prom"

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write the file, with `follow` again and again until the run is over."""
        if output is None:
            raise UsageError("--to prometheus writes a file: say where, with --output")
        watch = RunWatch(run.path)
        while True:
            metrics = watch.look(here())
            series = _write(metrics, output)
            if not options.follow or metrics.status != "running":
                break
            self._sleep(PrometheusLimits.textfile_interval_s)
        note = "the run is running: these are its metrics so far; --follow keeps them up to date"
        notes = (note,) if metrics.status == "running" else ()
        return Exported(to=self.name, where=str(output), counts={"series": series}, notes=notes)


def _write(metrics: RunMetrics, output: Path) -> int:
    found = list(families([metrics], now_of_ended=True))
    registry: Any = SimpleNamespace(collect=lambda: found)
    try:
        replace_bytes(output, generate_latest(registry))
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
    return sum(len(family.samples) for family in found)


exporter = TextfileExporter()
