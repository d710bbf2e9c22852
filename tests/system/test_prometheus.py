"""Debian's Prometheus scrapes a run while it runs, and answers what the report says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_server import (
    complaints,
    eventually,
    fetch,
    free_port,
    installed,
    node_exporter,
    prometheus,
    running,
)

import flightlog
from flightlog.events import CacheLookup, TaskRetried

pytestmark = pytest.mark.system

FLIGHTLOG = [sys.executable, "-m", "flightlog"]


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    installed()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def page(runs: Path, tmp_path: Path) -> Iterator[str]:
    """`flightlog serve-metrics` of the folder of runs: the address of its page."""
    port = free_port()
    command = [*FLIGHTLOG, "serve-metrics", "--port", str(port), "--runs-dir", str(runs)]
    with running(command, f"http://127.0.0.1:{port}/metrics", tmp_path / "serve.log") as address:
        yield address


def work(run: Any, number: int = 20) -> None:
    """Tasks of two names, some of which fail, one of which is retried, and lookups in a cache."""
    for seed in range(number):
        try:
            with run.task("simulate" if seed % 2 else 'a "hostile"\\name\n', seed=seed):
                if seed % 5 == 4:
                    raise ValueError("no convergence")
        except ValueError:
            continue
        run.emit(CacheLookup(task="simulate", result="hit" if seed % 3 else "miss", key="k", saved_s=0.25))
    with run.task("again") as task:
        task.set_status("error", "returned")
    run.emit(TaskRetried(task="again", task_id=task.task_id, reason="returned"))
    with run.task("again"):
        pass


def report(runs: Path) -> Any:
    command = [*FLIGHTLOG, "report", "latest", "--runs-dir", str(runs), "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_prometheus_answers_what_the_report_says(runs: Path, page: str, tmp_path: Path) -> None:
    with prometheus(tmp_path, [page]) as server:
        with flightlog.record("sweep", runs_dir=runs, sample_interval_s=0.1) as run:
            work(run)
            with run.task("the long one"):
                eventually(lambda: _equal(server.ask('sum(flightlog_tasks{state="running"})'), {"": 1.0}))
                eventually(
                    lambda: _equal(server.ask('sum(flightlog_run_status{status="running"})'), {"": 1.0})
                )
                eventually(lambda: _some(server.ask("flightlog_node_cpu_ratio >= 0 <= 1")))
                eventually(lambda: _some(server.ask("flightlog_node_memory_size_bytes > 0")))
        said = report(runs)
        tasks, cache = said["tasks"], said["cache"]
        eventually(lambda: _equal(server.ask('sum(flightlog_run_status{status="completed"})'), {"": 1.0}))
        assert server.ask("sum by (state) (flightlog_tasks)") == {
            f"state={state}": float(tasks[state])
            for state in ("pending", "running", "completed", "failed", "cancelled")
        }
        assert server.ask("sum(flightlog_tasks_submitted_total)") == {"": float(tasks["submitted"])}
        assert server.ask("sum(flightlog_tasks_retried_total)") == {"": float(tasks["retried"])}
        assert server.ask("sum by (task) (flightlog_task_duration_seconds_count)") == {
            f"task={name}": float(one["completed"]) for name, one in tasks["by_name"].items()
        }
        total = sum(one["duration_s"]["total"] for one in tasks["by_name"].values())
        assert server.ask("sum(flightlog_task_duration_seconds_sum)")[""] == pytest.approx(total)
        assert server.ask("sum by (result) (flightlog_cache_lookups_total)") == {
            "result=hit": float(cache["hits"]),
            "result=miss": float(cache["misses"]),
            "result=bypass": float(cache["bypassed"]),
        }
        assert server.ask("sum(flightlog_workers_seen_total)") == {"": float(said["workers"]["count"])}
        assert server.ask("sum(flightlog_run_duration_seconds)")[""] == pytest.approx(
            said["run"]["duration_s"]
        )
        assert server.ask("sum(flightlog_recorder_lost_lines_total)") == {"": 0.0}
        middle = server.ask("histogram_quantile(0.5, sum by (le) (flightlog_task_duration_seconds_bucket))")[
            ""
        ]
        assert 0 <= middle <= 0.1
        assert server.target_errors() == []


def test_promtool_finds_nothing_wrong_with_the_page(runs: Path, page: str) -> None:
    with flightlog.record("sweep", runs_dir=runs, sample_interval_s=0.1) as run:
        work(run)
        assert complaints(fetch(page)) == ""
    assert complaints(fetch(page)) == ""


def test_node_exporter_takes_the_file_of_a_run(runs: Path, tmp_path: Path) -> None:
    with flightlog.record("sweep", runs_dir=runs, sample_interval_s=0.1) as run:
        work(run)
    textfiles = tmp_path / "textfiles"
    textfiles.mkdir()
    command = [*FLIGHTLOG, "export", "latest", "--runs-dir", str(runs), "--to", "prometheus", "-o"]
    subprocess.run([*command, str(textfiles / "sweep.prom")], check=True, capture_output=True)
    assert complaints((textfiles / "sweep.prom").read_text()) == ""
    with node_exporter(tmp_path, textfiles) as address, prometheus(tmp_path, [address]) as server:
        eventually(lambda: _equal(server.ask("sum(node_textfile_scrape_error)"), {"": 0.0}))
        tasks = report(runs)["tasks"]
        eventually(
            lambda: _equal(
                server.ask('sum(flightlog_tasks{state="completed"})'), {"": float(tasks["completed"])}
            )
        )


def _equal(found: object, expected: object) -> None:
    assert found == expected


def _some(found: dict[str, float]) -> dict[str, float]:
    assert found
    return found
