"""The rows of the tables on a run's page."""

from __future__ import annotations

import json
from pathlib import Path

from builders.runs import at, make_run

from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.follow import FollowedRun
from flightlog.events import ResourceSample, SpanOpened, TaskFailed, TaskSubmitted, WorkerReady
from flightlog.web.run_page import RunParts


def test_rows_of_long_names_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    path = make_run(
        tmp_path,
        [
            event
            for long in ("x" * 300 + "a", "x" * 300 + "b", "x" * 300 + "c")
            for event in (
                TaskSubmitted(task=long, task_id=long, args={}, timestamp=at(1)),
                WorkerReady(worker=long, host=long, pid=1, timestamp=at(1)),
                ResourceSample(scope="node", host=long, cpu_percent=1.0, timestamp=at(1)),
                SpanOpened(
                    name=long,
                    span_id=long,
                    tags={},
                    trace_id="t",
                    parent_id=None,
                    elapsed_s=1.0,
                    timestamp=at(1),
                ),
            )
        ],
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(2),
    )
    parts = RunParts()(FollowedRun(path).update()).parts
    for name in ("tasks", "workers", "resources", "running"):
        rows = json.loads(parts[name])["rows"]
        assert (len(rows), len({row["id"] for row in rows})) == (3, 3)


def test_names_beyond_those_that_are_listed_are_counted(tmp_path: Path) -> None:
    def note(count: int) -> str:
        names = [TaskSubmitted(task=f"n{n}", task_id=f"t{n}", args={}, timestamp=at(1)) for n in range(count)]
        state = FollowedRun(make_run(tmp_path / str(count), names)).update()
        return str(json.loads(RunParts()(state).parts["tasks"])["note"])

    assert note(LiveLimits.max_listed_names) == ""
    assert note(LiveLimits.max_listed_names + 1) == "the 200 with most tasks of 201"
    assert note(3_000) == "the 200 with most tasks of 3,000"


def test_a_run_that_goes_on_has_not_failed_though_tasks_have(tmp_path: Path) -> None:
    def why(name: str, **run: object) -> str:
        failed = TaskFailed(
            task="simulate",
            task_id="t1",
            args={},
            worker="w1",
            error_type="ValueError",
            error_message="no data",
            duration_s=1.0,
            timestamp=at(2),
        )
        state = FollowedRun(make_run(tmp_path / name, [failed], **run)).update()
        return str(json.loads(RunParts()(state).parts["head"])["why"])

    assert why("over", status="completed") == "Why did tasks fail?"
    assert why("failed", status="failed", error="ValueError: no data") == "Why did it fail?"
