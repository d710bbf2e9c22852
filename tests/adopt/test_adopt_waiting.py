"""Durations that include waiting are shown as such everywhere; those of files that Flightlog wrote are
execution alone."""

from __future__ import annotations

import asyncio
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from adopting import PEERS, adopt_one, events_of

from flightlog.analyze.compare.compare import compare
from flightlog.analyze.report.report import report_on
from flightlog.compat.rhapsody import ComputeTask, Session
from flightlog.compat.rhapsody.backends import ConcurrentExecutionBackend
from flightlog.events import TaskCompleted, TaskEnded
from flightlog.show.comparison import answer_text
from flightlog.show.report import report_text
from flightlog.store.run import Run

SCALABLE = PEERS / "scalable" / "runs" / "run-20261115T072250Z-demeter-lulcc-423922c5"


def section(text: str, title: str) -> list[str]:
    """The lines of one section of a report, spaces made one."""
    _, _, behind = text.partition(f"\n{title}:\n")
    return [" ".join(line.split()) for line in behind.partition("\n\n")[0].splitlines()]


def slowed(folder: Path) -> Path:
    """The recording a minute later, in which every task took twice as long."""
    made = folder / "slowed"
    shutil.copytree(SCALABLE, made)
    about = (made / "run.json").read_text().replace("07:22:5", "07:23:5")
    (made / "run.json").write_text(about)
    records = [json.loads(line) for line in (made / "tasks.jsonl").read_text().splitlines()]
    for record in records:
        record["duration_s"] = None if record["duration_s"] is None else 2 * record["duration_s"]
    (made / "tasks.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return made


def test_a_report_shows_times_with_waiting_and_calls_them_so(tmp_path: Path) -> None:
    _, run = adopt_one(SCALABLE, tmp_path / "runs")
    report = report_on(run)
    text = report_text(report)
    assert section(text, "Tasks") == [
        "Submitted: 24",
        "Completed: 22",
        "Failed: 2",
        "Avg elapsed: 254 ms, waiting included",
        "Max elapsed: 439 ms",
    ]
    assert section(text, "By task") == [
        "Name Done Failed Mean with waiting Max with waiting Total with waiting",
        "simulate 22 2 254 ms 439 ms 6.1s",
    ]
    assert report.tasks.duration_s.count == 0


def test_a_comparison_says_how_times_with_waiting_changed_and_judges_nothing(tmp_path: Path) -> None:
    _, before = adopt_one(SCALABLE, tmp_path / "runs")
    _, after = adopt_one(slowed(tmp_path), tmp_path / "runs")
    found = compare(before, after)
    assert found.durations == []
    assert found.notes[0] == (
        "simulate took 254 ms → 507 ms on average with waiting; how long it executed is not recorded"
    )
    assert answer_text(found) == (
        "B took about as long as A (1.0s → 1.0s); how long their tasks executed is not recorded."
    )


def record_of(kind: str, **more: Any) -> str:
    event = {"section": "event", "event_type": kind, "event_time": 1794727371.5, "session_id": "s", **more}
    return json.dumps(event) + "\n"


@pytest.mark.parametrize("recorder", ["flightlog", "another"])
def test_a_task_that_nobody_saw_start_has_no_duration_rather_than_0(tmp_path: Path, recorder: str) -> None:
    file = tmp_path / "s.telemetry.jsonl"
    file.write_text(
        record_of("SessionStarted", attributes={"recorder": recorder})
        + record_of(
            "TaskCompleted", task_id="t", duration_seconds=0.0, attributes={"incomplete_lifecycle": True}
        )
    )
    _, run = adopt_one(file, tmp_path / "runs")
    [ended] = events_of(run, "tasks")
    assert isinstance(ended, TaskCompleted)
    assert (ended.duration_s, ended.metrics) == (None, {})


def double(number: int) -> int:
    if number == 3:
        raise ValueError("as it was told")
    return 2 * number


def ends(run: Run) -> dict[str, tuple[str, float | None, str | None, str | None]]:
    found = [event for event in events_of(run, "tasks") if isinstance(event, TaskEnded)]
    return {one.task_id: (type(one).__name__, one.duration_s, one.span_id, one.parent_id) for one in found}


def test_a_checkpoint_that_flightlog_wrote_has_the_durations_of_the_run_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "recorded"))

    async def session() -> Path:
        backend = await ConcurrentExecutionBackend(ThreadPoolExecutor(max_workers=1))
        async with Session([backend]) as session:
            telemetry = await session.start_telemetry(checkpoint_path=str(tmp_path / "telemetry"))
            tasks = [ComputeTask(function=double, args=(number,)) for number in range(5)]
            await session.submit_tasks(tasks)
            await session.wait_tasks(tasks)
        return Path(telemetry.run_path)

    recorded = Run(asyncio.run(session()))
    adoption, adopted = adopt_one(tmp_path / "telemetry", tmp_path / "runs")
    assert ends(adopted) == ends(recorded)
    assert len(ends(adopted)) == 5
    assert None not in [one[1] for one in ends(adopted).values()]
    assert report_on(adopted).tasks.queue_s.count == 5
    assert adoption.notes == [
        "Flightlog wrote this file, so durations are execution time only. It recorded the session itself "
        "too, "
        "with more: "
        f"{recorded.run_id}."
    ]
