"""The snippets of the beginner's tutorial on telemetry, steps 2 to 5, run as they are on the demo's run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from flightlog.demo.sweep import sweep
from flightlog.store.run import Run

SCENARIOS = 12

READ_LINES = """
import json

# Read task events line by line
with open(".flightlog/runs/run-.../tasks.jsonl") as f:
    for line in f:
        event = json.loads(line)
        print(f"{event['timestamp']} | {event['event']} | {event.get('task', '')}")
"""

READ_WITH_PANDAS = """
import pandas as pd

# Load all task events into a DataFrame
tasks = pd.read_json(".flightlog/runs/run-.../tasks.jsonl", lines=True)

# Filter to completions and compute statistics
completed = tasks[tasks["event"] == "task_completed"]
print(f"Total tasks: {len(completed)}")
print(f"Average duration: {completed['duration_s'].mean():.2f}s")
print(f"Slowest task: {completed['duration_s'].max():.2f}s")
print(f"Fastest task: {completed['duration_s'].min():.2f}s")
"""

SLOWEST = """
# Find the 5 slowest tasks
slowest = completed.nlargest(5, "duration_s")[["task", "duration_s"]]
print(slowest)
"""

IDLE = """
resources = pd.read_json(".flightlog/runs/run-.../resources.jsonl", lines=True)
print(f"Average CPU utilization: {resources['cpu_percent'].mean():.1f}%")
"""

CACHING = """
cache = pd.read_json(".flightlog/runs/run-.../cache.jsonl", lines=True)
hit_rate = cache[cache["result"] == "hit"].shape[0] / len(cache) * 100
print(f"Cache hit rate: {hit_rate:.1f}%")
"""

TREND = """
import os
import json

# Load metadata from all runs
runs_dir = ".flightlog/runs"
runs = []
for run_name in sorted(os.listdir(runs_dir)):
    run_meta = os.path.join(runs_dir, run_name, "run.json")
    if os.path.exists(run_meta):
        with open(run_meta) as f:
            runs.append(json.load(f))

# Plot duration over time (if matplotlib available)
for r in runs:
    print(f"{r['start_time']}: {r['duration_s']:.1f}s ({r['tasks_completed']} tasks)")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(sweep(tmp_path_factory.mktemp("tutorial") / "runs", SCENARIOS, workers=2).path)


def output_of(snippets: list[str], run: Run) -> tuple[list[str], dict[str, Any]]:
    """What the last of the snippets prints, by line, and the names they leave."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    for snippet in snippets:
        printed = io.StringIO()
        here = snippet.replace(".flightlog/runs/run-...", str(run.path)).replace(
            ".flightlog/runs", str(Path(run.path).parent)
        )
        with contextlib.redirect_stdout(printed):
            exec(here, names)
    return printed.getvalue().splitlines(), names


def number_in(line: str) -> float:
    found = re.search(r": (\d+(?:\.\d+)?)(s|%)?$", line)
    assert found is not None, line
    return float(found[1])


def test_step_2_reads_the_events_line_by_line(run):
    lines, _ = output_of([READ_LINES], run)
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \| \w+ \| run_simulation", line)
        for line in lines
    )
    kinds = [line.split(" | ")[1] for line in lines]
    steps = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert steps == {
        "task_submitted": SCENARIOS + 1,
        "task_queued": SCENARIOS + 2,
        "task_started": SCENARIOS + 2,
        "task_completed": SCENARIOS,
        "task_retried": 1,
        "task_failed": 1,
    }


def test_step_2_computes_statistics_with_pandas(run):
    lines, _ = output_of([READ_WITH_PANDAS], run)
    assert [line.partition(":")[0] for line in lines] == [
        "Total tasks", "Average duration", "Slowest task", "Fastest task",
    ]  # fmt: skip
    total, average, slowest, fastest = map(number_in, lines)
    assert total == SCENARIOS
    assert 0 < fastest <= average <= slowest


def test_step_4_finds_the_slowest_tasks(run):
    lines, names = output_of([READ_WITH_PANDAS, SLOWEST], run)
    assert lines[0].split() == ["task", "duration_s"]
    assert len(lines) == 6
    assert all("run_simulation" in line for line in lines[1:])
    durations = list(names["slowest"]["duration_s"])
    assert durations == sorted(names["completed"]["duration_s"], reverse=True)[:5]


def test_step_4_sees_whether_workers_sit_idle(run):
    [line], _ = output_of([READ_WITH_PANDAS, IDLE], run)
    assert line.startswith("Average CPU utilization: ")
    assert number_in(line) > 0


def test_step_4_sees_whether_caching_helps(run):
    [line], _ = output_of([READ_WITH_PANDAS, CACHING], run)
    # Each of the scenarios is simulated, and looks up one of eight solutions.
    assert 0 <= number_in(line) <= round(100 * (SCENARIOS - 8) / (2 * SCENARIOS), 1)


def test_step_5_prints_a_line_for_each_run(run):
    [line], names = output_of([TREND], run)
    [meta] = names["runs"]
    assert line == f"{run.info.start_time}: {meta['duration_s']:.1f}s ({SCENARIOS} tasks)"
    assert meta["duration_s"] > 0
