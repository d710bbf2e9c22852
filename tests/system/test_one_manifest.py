"""One manifest with five targets gives five runs, whose reports differ only where the engines do."""

from __future__ import annotations

import re
import sys
from typing import Any

import msgspec
import pytest
from engine_programs import RECORDED, RESULTS, SCRIPTS, agreed, sweep

import flightlog
from flightlog.analyze.report.report import report_bytes, report_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TARGETS = ("local", "dask", "slurm", "ray", "dragon")
LAUNCHERS = {"dragon": [SCRIPTS / "dragon", "-s"]}
MANIFEST = """\
version: 1
project:
  name: sweep
targets:
  local: {provider: local, max_workers: 2}
  dask: {provider: dask, n_workers: 2, threads_per_worker: 1}
  slurm: {provider: slurm, n_workers: 2, cpus: 1, memory: 500MiB, walltime: 10m, account: lab}
  ray: {provider: ray, num_cpus: 2, object_store_memory: 80MiB}
  dragon: {provider: dragon, max_workers: 2}
"""

MEASURED = re.compile(
    r"(_s|_bytes|_percent|_at)$|^(total|mean|min|max|p50|p95|p99|last|since|timestamp|first)$"
)
"""What a report measures: two runs on one engine differ there."""
WHERE = {
    "run": {"run_id", "target", "provider", "start_time", "end_time", "command", "cwd", "manifest_hash"},
    "tasks": {"slowest"},
    "details": {"slowest"},
    "completeness": {"lines", "writers"},
    "cost": {"reason"},
}
"""Names, places, what comes first of equals, how many processes and lines that took, and why a cost is not
known: what runs here alone is free."""
OF_THE_ENGINE = {
    "workers",
    "resources",
    "time",
    "concurrency",
    "critical_path",
    "findings",
    "verdict",
    "overhead",
    "jobs",
}
"""The sections that tell of workers and of waiting: on every engine the same questions, answered by that
engine."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, slurm: Any) -> dict[str, dict[str, Any]]:
    """The report of the same sweep on each target, as JSON."""
    found = {}
    for target in TARGETS:
        folder = tmp_path_factory.mktemp(target)
        env = {**(slurm.environ if target == "slurm" else {}), "MANIFEST": MANIFEST}
        told, _ = sweep(LAUNCHERS.get(target, [sys.executable]), target, folder, env)
        assert (agreed(told), told["results"]) == (RECORDED, RESULTS), target
        [path] = (folder / "home" / "runs").glob("run-*")
        report = report_on(flightlog.open_run(path))
        found[target] = msgspec.json.decode(report_bytes(report))
    return found


NAMED = {"worker", "workers", "task_id", "marks"}
"""Names that a run gives to its workers and tasks, and the folder that the program was given."""


def unmeasured(value: Any) -> Any:
    """A part of a report without what was measured; lists in an order that does not depend on it."""
    if isinstance(value, dict):
        return {
            name: unmeasured(one)
            for name, one in value.items()
            if not MEASURED.search(name) and name not in NAMED
        }
    if isinstance(value, list):
        return sorted((unmeasured(one) for one in value), key=repr)
    return value


def said(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says of the work itself."""
    return {
        section: unmeasured({name: one for name, one in part.items() if name not in WHERE.get(section, ())})
        if isinstance(part, dict)
        else unmeasured(part)
        for section, part in report.items()
        if section not in OF_THE_ENGINE
    }


@pytest.mark.parametrize("target", TARGETS[1:])
def test_the_work_is_told_as_on_local_processes(reports: dict[str, dict[str, Any]], target: str) -> None:
    assert said(reports[target]) == said(reports["local"])


@pytest.mark.parametrize("target", TARGETS)
def test_every_engine_answers_where_the_time_went(reports: dict[str, dict[str, Any]], target: str) -> None:
    report = reports[target]
    assert (report["run"]["target"], report["run"]["provider"]) == (target, target)
    assert report["workers"]["count"] >= 1
    assert report["time"]["basis"] == "workers"
    assert report["time"]["whole"]["attempts"] == 10
    assert report["time"]["without_worker"] == 0
    assert report["concurrency"]["peak"] >= 1
    assert report["critical_path"]["of"] == "tasks"
    assert report["tasks"]["queue_s"]["count"] == 10
    assert report["tasks"]["by_name"]["simulate"]["cpu_s"] is not None
    assert report["tasks"]["by_name"]["simulate"]["peak_rss_bytes"] is not None


def test_only_slurm_has_jobs(reports: dict[str, dict[str, Any]]) -> None:
    assert {target for target in TARGETS if reports[target]["jobs"]} == {"slurm"}
