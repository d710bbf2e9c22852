"""Every query of the dashboards for Grafana returns data from a real Prometheus that scrapes a real run."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_server import Prometheus, eventually, free_port, installed, prometheus, running

import flightlog
from flightlog.events import CacheLookup, CostRates, ResourceSample, TaskRetried
from flightlog.record.run import LiveRun

pytestmark = pytest.mark.system

FLIGHTLOG = [sys.executable, "-m", "flightlog"]
GPU: dict[str, Any] = {
    "gpu_index": 0,
    "gpu_name": "a GPU",
    "gpu_percent": 50.0,
    "gpu_memory_used_bytes": 5,
    "gpu_memory_total_bytes": 10,
    "gpu_process_memory_bytes": 4,
    "gpu_power_w": 100.0,
    "gpu_temperature_c": 60.0,
}


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    installed()


@pytest.fixture
def dashboards(tmp_path: Path) -> Path:
    """What the command writes."""
    folder = tmp_path / "dashboards"
    subprocess.run([*FLIGHTLOG, "serve-metrics", "--grafana", str(folder)], check=True, capture_output=True)
    return folder


def queries(dashboard: Any, chosen: dict[str, str]) -> dict[str, str]:
    """Every query by where it stands, with the variables put in; those of variables as what they look for."""
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked is not None
            found[f"${variable['name']}"] = f"count by ({asked[2]}) ({asked[1]})"
    values = {"__rate_interval": "10s", **chosen}
    made = {name: re.sub(r"\$(\w+)", lambda one: values[one[1]], query) for name, query in found.items()}
    assert not any("$" in query for query in made.values())
    return made


def without_data(server: Prometheus, asked: dict[str, str]) -> list[str]:
    """Where a query gives nothing but what is no number."""
    return [name for name, query in asked.items() if all(map(math.isnan, server.ask(query).values()))]


def check(server: Prometheus, asked: dict[str, str]) -> None:
    missing = list(asked)

    def looked() -> None:
        missing[:] = without_data(server, {name: asked[name] for name in missing})
        assert missing == []

    eventually(looked)


def work(run: LiveRun, over: threading.Event) -> None:
    """A run in which something of everything happens, again and again."""
    run.emit(CostRates(currency="EUR", source="a test", per_worker_hour=3600.0))
    while not over.wait(0.1):
        with run.task("simulate"):
            pass
        with run.task("again") as task:
            task.set_status("error", "returned")
            task_id = task.span_id
        run.emit(TaskRetried(task="again", task_id=task_id, reason="returned"))
        try:
            with run.task("bad"):
                raise ValueError("no convergence")
        except ValueError:
            pass
        run.emit(CacheLookup(task="simulate", result="hit", key="k", saved_s=0.25))
        run.emit(ResourceSample(scope="gpu", host="here", cpu_percent=None, **GPU))


@contextmanager
def working(run: LiveRun) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=work, args=(run, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_every_query_of_the_dashboard_of_runs_returns_data(dashboards: Path, tmp_path: Path) -> None:
    dashboard = json.loads((dashboards / "flightlog.json").read_text())
    runs, port = tmp_path / "runs", free_port()
    runs.mkdir()
    command = [*FLIGHTLOG, "serve-metrics", "--port", str(port), "--runs-dir", str(runs)]
    with (
        running(command, f"http://127.0.0.1:{port}/metrics", tmp_path / "serve.log") as page,
        prometheus(tmp_path, [page]) as server,
        flightlog.record("sweep", runs_dir=runs, sample_interval_s=0.2) as run,
        working(run),
    ):
        asked = queries(dashboard, {"project": "sweep", "run": run.run_id})
        assert len(asked) > 35
        check(server, asked)
        assert without_data(server, queries(dashboard, {"project": "other", "run": ".*"})) != []


def test_every_query_of_the_dashboard_of_rhapsody_returns_data(dashboards: Path, tmp_path: Path) -> None:
    dashboard = json.loads((dashboards / "rhapsody.json").read_text())
    port, over = free_port(), tmp_path / "over"
    program = Path(__file__).with_name("rhapsody_session.py")
    command = [
        "env",
        f"FLIGHTLOG_RUNS_DIR={tmp_path / 'runs'}",
        sys.executable,
        str(program),
        str(port),
        str(over),
    ]
    with (
        running(command, f"http://127.0.0.1:{port}/metrics", tmp_path / "session.log") as page,
        prometheus(tmp_path, [page]) as server,
    ):
        eventually(lambda: _some(server.ask("tasks_submitted_total")))
        [session] = server.ask("count by (session_id) (tasks_submitted_total)")
        asked = queries(dashboard, {"session": session.removeprefix("session_id=")})
        assert len(asked) > 15
        check(server, asked)
        over.touch()


def _some(found: object) -> None:
    assert found
