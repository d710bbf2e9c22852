"""What earlier runs of a project say of how long tasks take, and what a run that has just begun makes of
it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import at, make_run
from builders.task_events import completed, started, submitted

from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.tasks import UsualDuration
from flightlog.cli.main import main
from flightlog.core.stats import Distribution
from flightlog.store import layout
from flightlog.store.earlier_runs import EarlierRuns
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run


def earlier(runs: Path, clock: str, durations: list[float], project: str = "demo", **facts: object) -> Path:
    """A run that ended, and has a summary."""
    events = [completed(f"t{n}", 10.0, lasted) for n, lasted in enumerate(durations)]
    path = make_run(runs / "making", events, project=project, **facts)  # type: ignore[arg-type]
    name = f"run-20260520T{clock}00Z-{project}-a1b2c3d4"
    moved = path.rename(runs / name)
    document = (moved / layout.RUN).read_text().replace(path.name, name)
    (moved / layout.RUN).write_text(document)
    if facts.get("status", "completed") == "completed":
        (moved / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(moved))))
    return moved


def live(runs: Path) -> Path:
    """A run whose first task began at once, and a minute later it is still at it."""
    return make_run(
        runs,
        [submitted("x", seed=7), started("x", 0.0)],
        status="crashed",
        end_time=None,
        duration_s=None,
        heartbeat=at(60),
    )


def test_earlier_runs_of_the_project_are_pooled(tmp_path: Path) -> None:
    earlier(tmp_path, "0100", [1.0, 2.0, 3.0])
    earlier(tmp_path, "0200", [3.0, 4.0, 5.0])
    earlier(tmp_path, "0300", [100.0] * 9, project="other")
    earlier(tmp_path, "0200", [100.0] * 9, status="failed", project="demo2")
    (tmp_path / "run-20260520T015959Z-demo-ffffffff").mkdir()  # half-copied
    earlier(tmp_path, "0400", [100.0] * 9)  # began later
    found = EarlierRuns(Run(live(tmp_path)))
    assert dict(found) == {"sim": Distribution(count=6, p50=2.0, p95=4.9, max=5.0)}


def test_tasks_with_an_index_have_one_history(tmp_path: Path) -> None:
    tasks = [completed(f"t{n}", 10.0, float(n), task=f"sim[{n}]") for n in (1, 2, 3)]
    path = make_run(tmp_path, tasks, token="00000001", start_time=at(-60))
    (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))
    found = EarlierRuns(Run(live(tmp_path)))
    assert dict(found) == {"sim": Distribution(count=3, p50=2.0, p95=3.0, max=3.0)}
    assert found["sim[9]"] == found["sim"]


def test_the_first_task_of_a_run_may_be_stuck_by_what_history_says(tmp_path: Path) -> None:
    for clock in ("0100", "0200"):
        earlier(tmp_path, clock, [2.0, 2.0, 2.0])
    run = Run(live(tmp_path))
    [alone] = report_on(run, details=False).in_flight
    assert (alone.usual, alone.stuck) == (None, None)
    report = report_on(run, details=False, history=EarlierRuns(run))
    [hung] = report.in_flight
    assert hung.usual == UsualDuration(count=6, p50=2.0, p95=2.0, max=2.0, of="history")
    assert (hung.ratio, hung.stuck) == (30.0, True)
    [finding] = [one for one in report.findings if one.kind == "stuck_tasks"]
    assert (
        "sim(seed=7) had been running on w1 for 1m 00s, 30 times the median of earlier runs;"
        in finding.sentence
    )


def test_the_report_command_asks_the_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for clock in ("0100", "0200"):
        earlier(tmp_path, clock, [2.0, 2.0, 2.0])
    path = live(tmp_path)
    assert main(["report", path.name, "--runs-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    [row] = [line for line in out.splitlines() if "2.0s in earlier runs" in line]
    assert row.rstrip().endswith("yes? 30x")


def test_nothing_is_read_where_nothing_is_in_flight(tmp_path: Path) -> None:
    earlier(tmp_path, "0100", [2.0] * 6)
    run = Run(make_run(tmp_path, [completed("a", 1.0, 1.0)]))
    history = EarlierRuns(run)
    report_on(run, details=False, history=history)
    assert "_found" not in vars(history)


def test_so_many_runs_are_asked_the_latest(tmp_path: Path) -> None:
    earlier(tmp_path, "0100", [50.0] * 5)
    for number in range(StoreLimits.max_selected_runs):
        earlier(tmp_path, f"02{number:02}", [1.0])
    assert EarlierRuns(Run(live(tmp_path)))["sim"] == Distribution(
        count=StoreLimits.max_selected_runs, p50=1.0, p95=1.0, max=1.0
    )


def test_a_run_under_another_name_has_no_history(tmp_path: Path) -> None:
    earlier(tmp_path, "0100", [2.0] * 6)
    path = live(tmp_path / "elsewhere").rename(tmp_path / "copy of a run")
    assert dict(EarlierRuns(Run(path))) == {}
