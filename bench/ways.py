"""A large run asked in three ways, each in a process of its own: bare DuckDB, from its lines, from Parquet."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.large_run import write_large_run
from flightlog.store.parquet import snapshot_run
from flightlog.store.run import Run

ROUNDS = 3

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""What each way printed, round by round."""


def three_ways(module: str, tasks: int) -> Figures:
    """Run `python -m module WAY RUN` for a run of so many tasks, bare DuckDB and lines in turn, then Parquet."""
    found: dict[str, list[dict[str, Any]]] = {"bare": [], "lines": [], "parquet": []}
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        run = write_large_run(Path(folder) / "lines", tasks)
        for _ in range(ROUNDS):
            for way in ("bare", "lines"):
                found[way].append(_in_a_process(module, way, run))
        snapshot_run(Run(run))
        for _ in range(ROUNDS):
            found["parquet"].append(_in_a_process(module, "parquet", run))
    return found


def medians(found: Figures, *figures: str) -> dict[str, float]:
    """The median of these figures of each way, as `bare_seconds` and so on."""
    return {
        f"{way}_{what}": statistics.median(one[what] for one in rounds)
        for way, rounds in found.items()
        for what in figures
    }


def _in_a_process(module: str, way: str, run: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", module, way, run], capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
