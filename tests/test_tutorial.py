"""The snippets of the beginner's tutorial on telemetry, steps 2 to 5, run as they are on the demo's run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from builders.runs import at, make_run
from builders.tutorial_snippets import CACHING, IDLE, READ_LINES, READ_WITH_PANDAS, SLOWEST, TREND

from flightlog.demo.sweep import sweep
from flightlog.events import ResourceSample
from flightlog.store.run import Run

SCENARIOS = 12


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
        "Total tasks",
        "Average duration",
        "Slowest task",
        "Fastest task",
    ]
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


def test_what_workers_used_is_told_apart_from_the_machine_and_the_whole_program(tmp_path):
    """On a machine that others keep busy, as the page on Scalable has it."""
    page = (Path(__file__).parents[1] / "docs" / "compat-scalable.md").read_text()
    [expression] = re.findall(r"`(resources\[.*?\)`)\.", page, re.DOTALL)
    used = [("node", None, 2.0), ("worker", "vm:1", 1.2), ("worker_process", "vm:2", 0.8)]
    samples = [
        ResourceSample(
            timestamp=at(second),
            scope=scope,
            worker=worker,
            host="vm",
            cpu_cores=cores,
            cpu_percent=50 * cores,
            cpus=2,
        )
        for second in range(5)
        for scope, worker, cores in (*used, ("worker_process", "vm:3", 0.4))
    ]
    path = make_run(tmp_path, samples)
    names: dict[str, Any] = {}
    load = IDLE.splitlines()[1].replace(".flightlog/runs/run-...", str(path))
    exec(f"import pandas as pd\n{load}\nanswer = {expression.rstrip('`')}", names)
    assert names["answer"] == pytest.approx(0.6)


def test_step_4_sees_whether_caching_helps(run):
    [line], _ = output_of([READ_WITH_PANDAS, CACHING], run)
    # Each of the scenarios is simulated, and looks up one of eight solutions.
    assert 0 <= number_in(line) <= round(100 * (SCENARIOS - 8) / (2 * SCENARIOS), 1)


def test_step_5_prints_a_line_for_each_run(run):
    [line], names = output_of([TREND], run)
    [meta] = names["runs"]
    assert line == f"{run.info.start_time}: {meta['duration_s']:.1f}s ({SCENARIOS} tasks)"
    assert meta["duration_s"] > 0
