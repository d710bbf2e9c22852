"""Recordings that are damaged, unfinished, or of many runs: what can be read is, and the rest is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from adopting import PEERS, STORMLOG, adopt_all, adopt_one, events_of

from flightlog.core.errors import UsageError
from flightlog.events import DeviceMemory, SpanEvent, SpanOpened, TaskCompleted, TaskRetried, UserEvent

SCALABLE = PEERS / "scalable" / "runs" / "run-20261115T072250Z-demeter-lulcc-423922c5"
RHAPSODY = PEERS / "rhapsody" / "fixture.session.1794727371.telemetry.jsonl"
JOB = PEERS / "modelops" / "telemetry" / "jobs" / "job-abc123"


def copied(source: Path, folder: Path) -> Path:
    made = folder / source.name
    shutil.copytree(source, made) if source.is_dir() else shutil.copy(source, made)
    return made


@pytest.mark.parametrize(
    ("source", "file"),
    [
        (SCALABLE, "tasks.jsonl"),
        (RHAPSODY, ""),
        (JOB, "spans.jsonl"),
        (STORMLOG / "sink-rank0", "segment-000003.jsonl"),
    ],
    ids=["scalable", "rhapsody", "modelops", "stormlog"],
)
def test_torn_and_foreign_lines_cost_nothing_else_and_are_said(
    tmp_path: Path, source: Path, file: str
) -> None:
    whole, _ = adopt_one(source, tmp_path / "runs")
    path = copied(source, tmp_path)
    with (path / file if file else path).open("ab") as out:
        out.write(b'{"event_type": "task", \xff\xfe\n<html>\n[3]\n\0\0\0\n{"torn": "li')
    damaged, _ = adopt_one(path, tmp_path / "runs")
    assert (damaged.made, damaged.events) == (True, whole.events)
    assert damaged.kept == whole.kept
    said = " ".join(damaged.problems)
    assert "3 " in said or len(damaged.problems) >= 4
    assert whole.problems == []


def test_a_folder_of_scalable_runs_becomes_as_many_runs(tmp_path: Path) -> None:
    folder = tmp_path / ".scalable" / "runs"
    for number in range(3):
        run = folder / f"run-{number}"
        shutil.copytree(SCALABLE, run)
        about = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(
            json.dumps({**about, "run_id": run.name, "started_at": f"2026-11-15T07:2{number}:00Z"})
        )
    adoptions = adopt_all(tmp_path, tmp_path / "runs")
    assert [(Path(one.source).name, one.made) for one in adoptions] == [(f"run-{n}", True) for n in range(3)]
    assert len({one.run_id for one in adoptions}) == 3
    assert [one.made for one in adopt_all(tmp_path, tmp_path / "runs")] == [False, False, False]


def test_a_scalable_run_that_was_never_closed_has_crashed(tmp_path: Path) -> None:
    run = copied(SCALABLE, tmp_path)
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "status": "running", "finished_at": None}))
    adoption, made = adopt_one(run, tmp_path / "runs")
    assert (made.info.status, made.info.end_time) == ("crashed", "2026-11-15T07:22:51.000000Z")
    assert adoption.notes[0].startswith("The recording says that the run is running")


def test_states_and_fields_that_scalable_may_have_stay_with_the_run(tmp_path: Path) -> None:
    run = copied(SCALABLE, tmp_path)
    common = {
        "event_type": "task",
        "task_id": "t1",
        "function_name": "f",
        "timestamp": "2026-11-15T07:22:50Z",
    }
    with (run / "tasks.jsonl").open("a") as out:
        out.write(json.dumps({**common, "state": "retried", "error_message": "lost"}) + "\n")
        out.write(json.dumps({**common, "state": "paused", "api_key": "abc"}) + "\n")
    _, made = adopt_one(run, tmp_path / "runs")
    [retried] = [event for event in events_of(made, "tasks") if isinstance(event, TaskRetried)]
    assert (retried.task, retried.reason) == ("f", "lost")
    paused = [e for e in events_of(made, "events") if isinstance(e, UserEvent) and e.name == "scalable.task"]
    assert [event.fields["state"] for event in paused] == ["paused"]
    assert "abc" not in (made.path / "events.jsonl").read_text().replace("abcdef", "")


def test_a_session_without_an_end_has_crashed_and_totals_that_differ_are_said(tmp_path: Path) -> None:
    lines = RHAPSODY.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"SessionEnded"' not in line and '"name": "session"' not in line]
    file = tmp_path / "s.telemetry.jsonl"
    file.write_text("".join(line for line in kept if '"task.000003", "node_id": null' not in line))
    adoption, run = adopt_one(file, tmp_path / "runs")
    assert run.info.status == "crashed"
    assert "The session has no end in the file" in " ".join(adoption.notes)
    assert adoption.problems == [
        "the last checkpoint counts 14 tasks_submitted, the events are 13",
        "the last checkpoint counts 11 tasks_completed, the events are 10",
    ]


def test_spans_of_the_users_own_keep_their_ids_and_parents(tmp_path: Path) -> None:
    file = tmp_path / "s.telemetry.jsonl"
    span = {
        "section": "span",
        "name": "load",
        "span_id": "0xc",
        "trace_id": "0x1",
        "parent_span_id": "0xab",
        "start_ns": 1794727371_716515914,
        "end_ns": 1794727371_816515914,
        "status_code": "ERROR",
        "status_description": "no file",
        "attributes": {"path": "a.nc"},
    }
    start = {
        "section": "event",
        "event_type": "SessionStarted",
        "event_time": 1794727371.7,
        "session_id": "s",
        "span_id": "0xab",
        "trace_id": "0x1",
    }
    file.write_text("".join(json.dumps(one) + "\n" for one in (start, span, {**span, "end_ns": None}, span)))
    adoption, run = adopt_one(file, tmp_path / "runs")
    [made] = events_of(run, "spans")
    assert (made.name, made.span_id, made.parent_id, made.duration_s, made.status) == (
        "load",
        f"{12:016x}",
        f"{0xAB:016x}",
        0.1,
        "error",
    )
    assert (run.info.trace_id, made.trace_id, made.error_message) == (f"{1:032x}", f"{1:032x}", "no file")
    assert adoption.dropped == {"repetitions of spans at later checkpoints": 2}


def test_unknown_counters_of_schema_4_are_marked_as_such(tmp_path: Path) -> None:
    v3 = json.loads((STORMLOG / "sink-rank0" / "segment-000001.jsonl").read_text().splitlines()[0])
    unknown = dict.fromkeys(
        ("allocator_reserved_bytes", "allocator_change_bytes", "device_used_bytes", "device_free_bytes")
    )
    capabilities: dict[str, Any] = {"memory_capabilities": {"backend": "mps"}}
    record = {**v3, **unknown, "schema_version": 4, "allocator_allocated_bytes": 7, "metadata": capabilities}
    (tmp_path / "v4.json").write_text(json.dumps([record]))
    adoption, run = adopt_one(tmp_path / "v4.json", tmp_path / "runs")
    [event] = events_of(run, "devices")
    assert isinstance(event, DeviceMemory)
    assert (event.schema_version, event.allocator_allocated_bytes, event.device_used_bytes) == (3, 7, 7)
    assert event.metadata["memory_capabilities"] == {
        "backend": "mps",
        "supports_allocator_reserved": False,
        "supports_allocator_change": False,
        "supports_device_used": False,
    }
    assert adoption.mapped == {"unknown counters of schema v4 → 0, marked in metadata.memory_capabilities": 1}


def test_a_sink_that_lost_its_manifest_is_read_from_its_segments(tmp_path: Path) -> None:
    sink = copied(STORMLOG / "sink-rank1", tmp_path)
    (sink / "manifest.json").unlink()
    adoption, run = adopt_one(sink, tmp_path / "runs")
    assert adoption.kept["device-memory events"] == 30
    assert {event.rank for event in events_of(run, "devices") if isinstance(event, DeviceMemory)} == {1}


def test_a_modelops_span_without_an_end_was_in_flight(tmp_path: Path) -> None:
    job = copied(JOB, tmp_path)
    lines = [json.loads(line) for line in (job / "spans.jsonl").read_text().splitlines()]
    [outer] = [record for record in lines if record["name"] == "calibration.job"]
    outer["end_time"] = outer["duration"] = None
    (job / "spans.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    adoption, run = adopt_one(job, tmp_path / "runs")
    [opened] = [event for event in events_of(run, "spans") if isinstance(event, SpanOpened)]
    assert (opened.name, opened.parent_id) == ("calibration.job", run.info.span_id)
    assert adoption.mapped == {"spans without an end → span_open, up to the last moment known": 1}


@pytest.mark.parametrize("kind", ["rhapsody", "stormlog", "nextflow", "chrome", "dask"])
def test_a_file_of_another_kind_is_refused_with_a_reason_and_leaves_nothing(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(UsageError, match=r"x\.jsonl"):
        adopt_one(tmp_path / "x.jsonl", tmp_path / "runs", kind=kind)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_recording_with_secrets_in_its_manifest_does_not_bring_them_along(tmp_path: Path) -> None:
    run = copied(SCALABLE, tmp_path)
    (run / "manifest.yaml").write_text("targets: {a: {password: hunter2}}\n")
    _, made = adopt_one(run, tmp_path / "runs")
    assert not any(b"hunter2" in file.read_bytes() for file in made.path.rglob("*") if file.is_file())
    assert sum(isinstance(event, TaskCompleted) for event in events_of(made, "tasks")) == 22


def test_a_job_with_ids_and_times_of_day_keeps_them(tmp_path: Path) -> None:
    job = tmp_path / "telemetry" / "jobs" / "j1"
    job.mkdir(parents=True)
    start = 1_779_249_120.0
    spans = [
        {
            "name": "inner",
            "start_time": start + 1,
            "end_time": start + 2,
            "duration": 1.0,
            "span_id": 2,
            "parent_id": 1,
        },
        {
            "name": "beside",
            "start_time": start + 1,
            "end_time": start + 2,
            "duration": 1.0,
            "span_id": "0c",
            "parent_id": "ff",
        },
        {
            "name": "outer",
            "start_time": start,
            "end_time": start + 4,
            "duration": 4.0,
            "span_id": 1,
            "parent_id": None,
        },
    ]
    (job / "spans.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans))
    adoption, run = adopt_one(tmp_path, tmp_path / "runs")
    made = {event.name: event for event in events_of(run, "spans") if isinstance(event, SpanEvent)}
    assert {name: (span.span_id, span.parent_id) for name, span in made.items()} == {
        "outer": (f"{1:016x}", run.info.span_id),
        "inner": (f"{2:016x}", f"{1:016x}"),
        "beside": (f"{12:016x}", run.info.span_id),
    }
    assert (run.info.start_time, run.info.duration_s, adoption.notes) == (
        "2026-05-20T03:52:00.000000Z",
        4.0,
        [],
    )
