"""A large run asked in three ways, each in a process of its own: bare DuckDB, from its lines, from
Parquet."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.large_run import write_large_run

ROUNDS = 3

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""What each way printed, round by round."""


def three_ways(module: str, tasks: int, compacted: Sequence[str] = ("parquet",)) -> Figures:
    """Run `python -m module WAY RUN` for a run of so many tasks, bare DuckDB and lines in turn, then the ways
    of a compacted run; and what compacting took."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ("bare", "lines", "compact", *compacted)}
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        run = write_large_run(Path(folder) / "lines", tasks)
        for _ in range(ROUNDS):
            for way in ("bare", "lines"):
                found[way].append(_in_a_process(module, way, run))
        found["compact"].append(_cost_of("compact", str(run)))
        for way in compacted:
            found[way] = [_in_a_process(module, way, run) for _ in range(ROUNDS)]
    return found


def medians(found: Figures, *figures: str) -> dict[str, float]:
    """The median of these figures of each way that has them, as `bare_seconds` and so on."""
    return {
        f"{way}_{what}": statistics.median(one[what] for one in rounds)
        for way, rounds in found.items()
        for what in figures
        if what in rounds[0]
    }


def peak_megabytes() -> float:
    """The most memory this process held; `getrusage` would count its parent's, from before it was this
    program."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _cost_of(*command: str) -> dict[str, float]:
    """What a command of Flightlog's took."""
    before = perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "flightlog", *command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return {
        "seconds": perf_counter() - before,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
    }


def _in_a_process(module: str, way: str, run: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_run(module, way, run))
    return answer


def _run(module: str, *args: str | Path) -> str:
    return subprocess.run(
        [sys.executable, "-m", module, *args], capture_output=True, text=True, check=True
    ).stdout
