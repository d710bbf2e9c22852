"""Dask's task stream: as saved from a cluster that runs, and as a performance report has it."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from adopting import PEERS, adopt_one, events_of

from flightlog.adopt.dask import key_name
from flightlog.core.errors import UsageError
from flightlog.events import Failure, TaskCompleted, TaskEnded, TaskFailed, TaskStarted
from flightlog.store.run import Run

STREAM = PEERS / "dask" / "stream.json"


def ends(run: Run) -> dict[str, tuple[str, float | None, str | None, str]]:
    return {
        event.task_id: (event.task, event.duration_s, event.worker, type(event).__name__)
        for event in events_of(run, "tasks")
        if isinstance(event, TaskEnded)
    }


def test_a_task_stream_gives_tasks_with_workers_durations_transfers_and_failures(tmp_path: Path) -> None:
    adoption, run = adopt_one(STREAM, tmp_path / "runs")
    recorded = {}
    for record in json.loads(STREAM.read_text()):
        spent = {one["action"]: one["stop"] - one["start"] for one in record["startstops"]}
        how = "TaskCompleted" if record["status"] == "OK" else "TaskFailed"
        recorded[record["key"]] = (record["key"].partition("-")[0], spent["compute"], record["worker"], how)
    assert ends(run) == recorded
    [summed] = [e for e in events_of(run, "tasks") if isinstance(e, TaskCompleted) and e.task == "sum"]
    assert summed.transfer_s == pytest.approx(0.000949, abs=1e-6)
    [failure] = events_of(run, "failures")
    assert isinstance(failure, Failure)
    assert (failure.task, failure.error_type, failure.message) == ("bad", "ValueError", "ValueError('no 3')")
    assert "in bad" in (failure.traceback or "")
    assert adoption.kept == {"tasks that completed": 11, "tasks that failed": 1}
    assert run.info.tasks_submitted == 0  # a stream knows no submissions, and none is made up


def test_a_performance_report_gives_the_same_tasks(tmp_path: Path) -> None:
    _, stream = adopt_one(STREAM, tmp_path / "runs")
    _, report = adopt_one(PEERS / "dask" / "report.html", tmp_path / "runs")
    told, shown = ends(stream), ends(report)
    assert {key: (one[0], one[2], one[3]) for key, one in shown.items()} == {
        key: (one[0], one[2], one[3]) for key, one in told.items()
    }
    assert [one[1] for one in shown.values()] == pytest.approx([one[1] for one in told.values()], abs=2e-6)


def test_packed_columns_of_a_report_are_unpacked(tmp_path: Path) -> None:
    def packed(*numbers: float) -> dict[str, Any]:
        data = base64.b64encode(struct.pack(f"<{len(numbers)}d", *numbers)).decode()
        return {
            "type": "ndarray",
            "array": {"type": "bytes", "data": data},
            "dtype": "float64",
            "order": "little",
        }

    columns = {
        "start": packed(1_779_249_120_500.0, 1_779_249_121_500.0),
        "duration": packed(1000.0, 1000.0),
        "key": ["f-1", "f-1"],
        "name": ["transfer-f", "f"],
        "worker": ["tcp://a", "tcp://a"],
        "worker_thread": ["tcp://a-1", "tcp://a-1"],
    }
    html = tmp_path / "r.html"
    html.write_text(
        "<title>Dask Performance Report</title> bokeh"
        f'<script type="application/json">{json.dumps({"x": [columns]})}</script>'
    )
    _, run = adopt_one(html, tmp_path / "runs")
    [started, done] = events_of(run, "tasks")
    assert isinstance(started, TaskStarted)
    assert isinstance(done, TaskCompleted)
    assert (started.timestamp, done.timestamp) == (
        "2026-05-20T03:52:01.000000Z",
        "2026-05-20T03:52:02.000000Z",
    )
    assert (done.duration_s, done.transfer_s, done.tags) == (1.0, 1.0, {"thread": "1"})


def test_a_key_that_was_computed_again_is_a_task_of_its_own(tmp_path: Path) -> None:
    def record(start: float) -> dict[str, Any]:
        times = [{"action": "compute", "start": start, "stop": start + 1}]
        return {"key": ["x-0123456789ab", 0], "worker": "w", "thread": 1, "startstops": times, "status": "OK"}

    (tmp_path / "s.json").write_text(
        json.dumps([record(1_779_249_120), record(1_779_249_130), {"key": "y"}, 3])
    )
    adoption, run = adopt_one(tmp_path / "s.json", tmp_path / "runs")
    assert list(ends(run)) == ["('x-0123456789ab', 0)", "('x-0123456789ab', 0)#2"]
    assert {one[0] for one in ends(run).values()} == {"x"}
    assert adoption.dropped == {"records without a key or a computation": 1, "items that are no records": 1}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("inc-3ddb83c348ba24413ff8cee77d5ef431", "inc"),
        ("('sum-part-0123456789ab', 0, 1)", "sum-part"),
        ("plain", "plain"),
        ("load-a-file-9f3c2b1a-4d5e-6f70-8a9b-0c1d2e3f4a5b", "load-a-file"),
        ("x-1", "x-1"),
    ],
)
def test_a_task_is_named_for_what_its_key_computes(key: str, name: str) -> None:
    assert key_name(key) == name


def test_a_page_without_a_task_stream_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("<title>Dask</title> bokeh <script type='application/json'>{}</script>")
    with pytest.raises(UsageError, match="holds no task stream"):
        adopt_one(tmp_path / "r.html", tmp_path / "runs")


def _square(x: int) -> int:
    if x == 3:
        raise ValueError("no threes")
    return x * x


def test_the_stream_of_a_cluster_that_runs_is_adopted_as_the_page_says(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.get_task_stream()  # from here on the scheduler keeps one
        futures = client.map(_square, range(6))
        distributed.wait(futures)
        keys = {future.key: future.status for future in futures}
        with (tmp_path / "stream.json").open("w") as out:
            json.dump(client.get_task_stream(), out, default=str)
    _, run = adopt_one(tmp_path / "stream.json", tmp_path / "runs")
    assert {key: one[3] for key, one in ends(run).items()} == {
        key: "TaskFailed" if status == "error" else "TaskCompleted" for key, status in keys.items()
    }
    [failed] = [event for event in events_of(run, "tasks") if isinstance(event, TaskFailed)]
    assert (failed.error_type, failed.task) == ("ValueError", "_square")
