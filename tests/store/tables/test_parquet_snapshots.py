from __future__ import annotations

import json
import os
import shutil

import pytest
from builders.runs import at, make_run
from rows_of_runs import make_killed, rows_held, rows_read

import flightlog
from flightlog.core.errors import UsageError
from flightlog.events import Metric, SpanEvent, TaskCompleted, TaskStarted, define_event
from flightlog.events.codec import encode_line
from flightlog.store.integrity import verify_files, write_checksums
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.run_tables import open_tables
from flightlog.store.tables.sources import Sources

EVENTS = [
    TaskStarted(timestamp=at(1), task="sim", task_id="t1", worker="w1", queue_s=0.5),
    TaskCompleted(timestamp=at(3), task="sim", task_id="t1", worker="w1", args={"seed": 1}, duration_s=2.0),
    Metric(timestamp=at(1), name="loss", value=0.5),
    SpanEvent(timestamp=at(0), name="sweep", span_id="s1", duration_s=4.0),
]


def make(folder, **more) -> Run:
    path = make_run(folder, EVENTS, **more)
    write_checksums(path)
    return Run(path)


def reads_parquet(run: Run, stream: str = "tasks") -> bool:
    scratch = run.path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return Sources(Run(run.path), scratch).source(stream).parquet


def test_a_compacted_run_is_read_from_parquet_and_says_the_same(tmp_path):
    run = make(tmp_path)
    before = {stream: rows_held(run, stream) for stream in ("tasks", "metrics", "spans")}
    views = {view: run.sql(f"FROM {view}").rows() for view in ("attempts", "tasks", "spans", "concurrency")}
    assert snapshot_run(run) == {"metrics": 1, "spans": 1, "views/spans": 1, "tasks": 2, "views/attempts": 1}
    assert all(reads_parquet(run, stream) for stream in before)
    assert {stream: rows_held(run, stream) for stream in before} == before
    assert {view: run.sql(f"FROM {view}").rows() for view in views} == views
    assert verify_files(run.path) == []


def test_compacting_again_makes_nothing(tmp_path):
    run = make(tmp_path)
    snapshot_run(run)
    files = {path: path.stat().st_mtime_ns for path in run.path.rglob("*.parquet")}
    assert snapshot_run(run) == {}
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*.parquet")} == files


@pytest.mark.parametrize(
    "change", ["grown", "rewritten", "another file", "another version", "earlier version"]
)
def test_a_snapshot_that_is_out_of_date_is_not_read(tmp_path, change):
    run = make(tmp_path)
    snapshot_run(run)
    lines = run.path / "tasks.jsonl"
    text = lines.read_bytes()
    if change == "grown":
        lines.write_bytes(text + text.replace(b'"t1"', b'"t2"').replace(b'"seq":', b'"seq":1'))
    elif change == "rewritten":
        lines.write_bytes(text.replace(b'"t1"', b'"t2"'))
    elif change == "another file":
        (run.path / "segments/w0000002").mkdir(parents=True)
        (run.path / "segments/w0000002/tasks.jsonl").write_bytes(text.replace(b"w0000001", b"w0000002"))
    else:
        notes = run.path / "parquet/snapshot.json"
        document = json.loads(notes.read_bytes())
        if change == "another version":
            document["tasks"]["made_by"] = "an older statement"
        else:
            del document["tasks"]["sha256"]  # as it was before checksums were noted
        notes.write_text(json.dumps(document))
    assert not reads_parquet(run)
    assert rows_held(Run(run.path), "tasks") == rows_read(Run(run.path), "tasks")
    assert reads_parquet(run, "metrics")
    assert snapshot_run(Run(run.path)).keys() == {"tasks", "views/attempts"}
    assert reads_parquet(run)
    assert rows_held(Run(run.path), "tasks") == rows_read(Run(run.path), "tasks")


def test_a_copy_of_a_run_has_other_times_and_its_snapshots_are_current_all_the_same(tmp_path):
    run = make(tmp_path)
    snapshot_run(run)
    shutil.copytree(run.path, tmp_path / "copy" / run.path.name, copy_function=shutil.copyfile)
    copy = Run(tmp_path / "copy" / run.path.name)
    os.utime(copy.path / "tasks.jsonl", (1, 1))
    assert reads_parquet(copy)
    other = (copy.path / "tasks.jsonl").read_bytes().replace(b'"t1"', b'"t9"')
    (copy.path / "tasks.jsonl").write_bytes(other)
    assert not reads_parquet(copy)


def test_a_killed_run_can_be_compacted_with_what_stands_in_its_tails(tmp_path):
    run = make(tmp_path)
    make_killed(run.path)
    tail = run.path / "segments/w0000001/metrics.tail-a"
    tail.parent.mkdir(parents=True)
    twice = (run.path / "metrics.jsonl").read_bytes()
    more = encode_line(Metric(timestamp=at(2), name="loss", value=0.25, writer="w0000001", seq=1))
    tail.write_bytes((twice + more).ljust(4096, b"\0"))
    killed = Run(run.path)
    assert killed.status == "crashed"
    assert snapshot_run(killed)["metrics"] == 2
    assert reads_parquet(killed, "metrics")
    assert rows_held(killed, "metrics") == rows_read(killed, "metrics")
    tail.write_bytes(twice.ljust(4096, b"\0"))
    assert not reads_parquet(killed, "metrics")


def test_a_running_run_cannot_be_compacted(tmp_path):
    run = make(tmp_path)
    info = json.loads((run.path / "run.json").read_bytes()) | {"status": "running", "host": "elsewhere"}
    (run.path / "run.json").write_text(json.dumps(info | {"heartbeat": "2999-01-01T00:00:00.000000Z"}))
    with pytest.raises(UsageError, match="is running: it can be compacted when it has ended"):
        snapshot_run(Run(run.path))
    assert not (run.path / "parquet").exists()


def test_events_that_lack_what_they_must_have_keep_a_stream_from_being_read_from_parquet(tmp_path):
    run = make(tmp_path)
    with (run.path / "tasks.jsonl").open("ab") as out:
        out.write(b'{"event":"task_completed","task":"sim","task_id":"t9","duration_s":1.0}\n')
    assert snapshot_run(run)["tasks"] == 3
    assert not reads_parquet(run)
    assert run.sql("SELECT task_id FROM attempts").rows() == [("t1",)]


def test_users_streams_are_compacted_too(tmp_path):
    known = define_event("snapshots_user.Step", loss=float, run_id=(str, ""))
    run = Run(make_run(tmp_path, [known(loss=0.5, run_id="mine")]))
    before = run.sql("FROM user_snapshots_user").rows()
    assert snapshot_run(run) == {"user.snapshots_user": 1}
    assert reads_parquet(run, "user.snapshots_user")
    assert run.sql("FROM user_snapshots_user").rows() == before
    other = make(tmp_path, token="00000002")
    with open_tables([run, other]) as connection:
        assert connection.execute("SELECT loss, event_run_id FROM user_snapshots_user").fetchall() == [
            (0.5, "mine")
        ]


def test_runs_with_and_without_snapshots_are_one_table(tmp_path):
    runs = [make(tmp_path, token=f"{n:08x}") for n in range(12)]
    for run in runs[::2]:
        snapshot_run(run)
    with open_tables(runs) as connection:
        for view in ("task_events", "attempts", "tasks", "spans", "span_events", "concurrency"):
            each = 2 if view in {"task_events", "concurrency"} else 1
            found = connection.execute(
                f"SELECT run_id, count(*) FROM {view} GROUP BY run_id ORDER BY run_id"
            ).fetchall()
            assert found == [(run.run_id, each) for run in runs]


def test_a_run_that_closes_with_parquet_switched_on_is_compacted_in_every_stream(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY_PARQUET", "1")
    with flightlog.record("snapshots", runs_dir=tmp_path) as live, flightlog.span("work"):
        live.record_artifact(tmp_path, kind="result")
    run = flightlog.open_run(runs_dir=tmp_path)
    streams = run.streams()
    assert {"spans", "artifacts"} <= set(streams)
    assert all(reads_parquet(run, stream) for stream in streams)
    assert snapshot_run(run) == {}
    assert verify_files(run.path) == []
    for stream in streams:
        assert rows_held(run, stream) == rows_read(run, stream)
