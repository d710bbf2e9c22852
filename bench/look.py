"""What is drawn of a run of very many tasks, beside its report alone: time, peak memory, and the size of what
is drawn.

python -m bench.look 1000000

Both are asked in turn, each in a process of its own; the report has its details, as a page shows them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.large_run import write_large_run
from bench.ways import ROUNDS, peak_megabytes
from flightlog.store.run import Run

TASKS = 200_000
"""So many in the routine; a million takes minutes."""


def measure(tasks: int = TASKS) -> dict[str, float]:
    """Medians of seconds, CPU seconds and peak memory of each way, and how much larger the look's are."""
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        return measure_run(write_large_run(Path(folder), tasks))


def measure_run(run: Path) -> dict[str, float]:
    """The same of a run that is there."""
    found: dict[str, list[dict[str, Any]]] = {"report": [], "look": []}
    for _ in range(ROUNDS):
        for way, rounds in found.items():
            answer = subprocess.run(
                [sys.executable, "-m", "bench.look", way, run], capture_output=True, text=True, check=True
            )
            rounds.append(json.loads(answer.stdout))
    assert len({one["tasks"] for rounds in found.values() for one in rounds}) == 1
    figures = {
        f"{way}_{what}": statistics.median(one[what] for one in rounds)
        for way, rounds in found.items()
        for what in ("seconds", "cpu_seconds", "megabytes")
    }
    for what in ("seconds", "cpu_seconds", "megabytes"):
        figures[f"{what}_ratio"] = figures[f"look_{what}"] / figures[f"report_{what}"]
    figures["drawn_megabytes"] = found["look"][0]["drawn_bytes"] / 1e6
    return figures


def _measured(way: str, run: Path) -> None:
    import msgspec

    from flightlog.analyze.charts.report_with_charts import report_with_charts
    from flightlog.analyze.limits import ReportLimits
    from flightlog.analyze.report.report import report_on

    ReportLimits.min_kept_report_bytes = 1 << 62  # type: ignore[misc] # neither is kept, nor taken from there
    begun = perf_counter()
    look = report_with_charts(Run(run)) if way == "look" else None
    report = look.report if look is not None else report_on(Run(run))
    figures = {
        "seconds": perf_counter() - begun,
        "cpu_seconds": process_time(),
        "megabytes": peak_megabytes(),
        "tasks": report.tasks.completed,
        "drawn_bytes": len(msgspec.json.encode(look.drawn)) if look is not None else 0,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _measured(sys.argv[1], Path(sys.argv[2]))
    else:
        for what, value in measure(*map(int, sys.argv[1:])).items():
            print(f"{what:<22} {value:,.2f}")
