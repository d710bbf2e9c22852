"""A run of very many tasks to Perfetto and Parquet: seconds and peak memory, beside reading the same lines
bare.

python -m bench.export 1000000
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench.large_run import write_large_run
from bench.ways import peak_megabytes

TASKS = 200_000
"""So many in the routine; a million takes minutes."""
LIMIT_MEGABYTES = 600
WAYS = ("bare", "perfetto", "parquet")


def measure(tasks: int = TASKS, ways: tuple[str, ...] = WAYS) -> dict[str, float]:
    """Seconds, peak memory and size of each way, each in a process of its own."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        run = write_large_run(Path(folder) / "runs", tasks)
        for way in ways:
            done = subprocess.run(
                [sys.executable, "-m", "bench.export", way, run, Path(folder) / way],
                capture_output=True,
                text=True,
                check=True,
            )
            found |= {f"{way}_{what}": value for what, value in json.loads(done.stdout).items()}
    return found


def _export(way: str, run: Path, output: Path) -> None:
    """Export one way, or go through every line bare; print how long that took and how much memory it held."""
    begun = perf_counter()
    if way == "bare":
        size = sum(len(json.loads(line)) for file in run.glob("*s.jsonl") for line in file.open("rb"))
    else:
        from flightlog.export.base import ExportOptions, find_exporter
        from flightlog.store.run import Run

        find_exporter(way).export(Run(run), output, ExportOptions())
        files = output.rglob("*") if output.is_dir() else [output]
        size = sum(file.stat().st_size for file in files if file.is_file())
    figures = {"seconds": perf_counter() - begun, "megabytes": peak_megabytes(), "bytes": size}
    print(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        _export(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        for what, value in measure(*map(int, sys.argv[1:])).items():
            print(f"{what:<20} {value:,.2f}")
