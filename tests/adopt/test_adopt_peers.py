"""Recordings that other tools made, adopted: counts, durations, failures and parents are those of the
recording."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from adopting import PEERS, STORMLOG, adopt_all, adopt_one, content, events_of

from flightlog.analyze.report.report import report_on
from flightlog.analyze.verify import verify
from flightlog.cli.main import main
from flightlog.devices import load_telemetry_events
from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    DeviceMemory,
    Failure,
    ResourceRequest,
    ResourceSample,
    SpanEvent,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskSubmitted,
    kind_of,
)
from flightlog.show.report import report_text
from flightlog.store.integrity import verify_files

RHAPSODY = PEERS / "rhapsody" / "fixture.session.1794727371.telemetry.jsonl"
SCALABLE = PEERS / "scalable" / "runs" / "run-20261115T072250Z-demeter-lulcc-423922c5"
MODELOPS = PEERS / "modelops" / "telemetry" / "jobs" / "job-abc123"


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_scalable_run_has_its_tasks_their_ends_and_how_long_they_took_from_submission(
    tmp_path: Path,
) -> None:
    adoption, run = adopt_one(PEERS / "scalable", tmp_path / "runs")
    ended = [event for event in events_of(run, "tasks") if isinstance(event, TaskEnded)]
    recorded = {
        record["task_id"]: (record["function_name"], record["state"] == "failed", record["duration_s"])
        for record in records(SCALABLE / "tasks.jsonl")
        if record["state"] in {"succeeded", "failed"}
    }
    assert len(recorded) == 24
    assert {e.task_id: (e.task, isinstance(e, TaskFailed), e.metrics["elapsed_s"]) for e in ended} == recorded
    assert {event.duration_s for event in ended} == {None}  # from submission to end is no execution time
    assert {event.component for event in ended} == {"sim"}
    assert adoption.events == dict(
        Counter(
            {
                "task_submitted": 24,
                "task_queued": 24,
                "task_completed": 22,
                "task_failed": 2,
                "cache_lookup": 22,
                "failure": 2,
                "artifact_recorded": 1,
                "resource_request": 1,
                "user_event": 3,
            }
        )
    )
    assert "include waiting: 24 of them, 254 ms on average" in adoption.notes[0]


def test_a_scalable_run_has_its_failures_cache_lookups_artifacts_and_requests(tmp_path: Path) -> None:
    _, run = adopt_one(SCALABLE, tmp_path / "runs")
    failures = [event for event in events_of(run, "failures") if isinstance(event, Failure)]
    assert [(f.error_type, f.message, f.task, f.task_id) for f in failures] == [
        (record["failure_class"], record["message"], "simulate", record["task_id"])
        for record in records(SCALABLE / "failures.jsonl")
    ]
    lookups = [event for event in events_of(run, "cache") if isinstance(event, CacheLookup)]
    assert [(e.task, e.result, e.key) for e in lookups] == [
        (record["function_name"], "hit" if record["hit"] else "miss", record["key_digest"])
        for record in records(SCALABLE / "cache.jsonl")
    ]
    made = {r["key_digest"]: r["duration_s"] for r in records(SCALABLE / "cache.jsonl") if not r["hit"]}
    assert [e.saved_s for e in lookups if e.result == "hit"] == [
        made[e.key] for e in lookups if e.result == "hit"
    ]
    assert {e.duration_s for e in lookups if e.result == "miss"} == {None}  # it includes the computation
    [artifact] = events_of(run, "artifacts")
    assert isinstance(artifact, ArtifactRecorded)
    assert (artifact.name, artifact.uri, artifact.kind, artifact.size_bytes) == (
        "out",
        "output.csv",
        "result",
        None,
    )
    [request] = events_of(run, "resources")
    assert isinstance(request, ResourceRequest)
    assert (request.task, request.component, request.cpus, request.memory_bytes) == (
        "simulate",
        "sim",
        1.0,
        2 << 30,
    )


def test_a_scalable_run_keeps_its_project_target_status_and_times(tmp_path: Path) -> None:
    _, run = adopt_one(SCALABLE, tmp_path / "runs")
    info = run.info
    assert (info.project, info.target, info.provider, info.status) == (
        "demeter-lulcc",
        "local",
        "local",
        "completed",
    )
    assert (info.start_time, info.end_time) == ("2026-11-15T07:22:50.000000Z", "2026-11-15T07:22:51.000000Z")
    assert (info.duration_s, info.tasks_submitted, info.tasks_completed, info.tasks_failed) == (
        1.0,
        24,
        22,
        2,
    )


def test_a_rhapsody_session_has_each_span_once_its_ids_padded_and_its_tasks_inside_it(tmp_path: Path) -> None:
    adoption, run = adopt_one(RHAPSODY, tmp_path / "runs")
    spans = {r["span_id"]: r for r in records(RHAPSODY) if r["section"] == "span"}
    [session] = [span for span in spans.values() if span["name"] == "session"]
    ended = [event for event in events_of(run, "tasks") if isinstance(event, TaskEnded)]
    recorded = {
        r["task_id"]: (
            r["event_type"],
            r["duration_seconds"],
            int(r["span_id"], 16),
            int(spans[r["span_id"]]["parent_span_id"], 16),
            spans[r["span_id"]]["duration_ms"] / 1000,
        )
        for r in records(RHAPSODY)
        if r.get("event_type") in {"TaskCompleted", "TaskFailed"}
    }
    assert len(recorded) == 14
    assert {
        e.task_id: (
            type(e).__name__,
            e.metrics["elapsed_s"],
            int(e.span_id or "", 16),
            int(e.parent_id or "", 16),
            e.metrics["span_s"],
        )
        for e in ended
    } == recorded
    assert {len(event.span_id or "") for event in ended} == {16}
    assert {event.duration_s for event in ended} == {None}  # waiting in the backend is no execution
    assert run.info.span_id == session["span_id"][2:]
    assert run.info.trace_id == session["trace_id"][2:]
    assert adoption.dropped["repetitions of spans at later checkpoints"] == 14
    assert not adoption.problems


def test_a_rhapsody_session_has_its_failures_samples_and_times(tmp_path: Path) -> None:
    _, run = adopt_one(PEERS / "rhapsody", tmp_path / "runs")
    failures = [event for event in events_of(run, "failures") if isinstance(event, Failure)]
    assert sorted((f.task or "", f.task_id or "", f.error_type) for f in failures) == [
        ("/bin/false", "task.000014", None),
        ("ComputeTask", "task.000011", "ValueError"),
        ("ComputeTask", "task.000012", "ValueError"),
    ]
    samples = [event for event in events_of(run, "resources") if isinstance(event, ResourceSample)]
    assert [(s.host, s.cpu_percent) for s in samples] == [
        (r["node_id"], r["cpu_percent"]) for r in records(RHAPSODY) if r.get("event_type") == "ResourceUpdate"
    ]
    assert {task.task for task in events_of(run, "tasks") if isinstance(task, TaskSubmitted)} == {
        "ComputeTask",
        "/bin/echo",
        "/bin/false",
    }
    info = run.info
    assert (info.project, info.status, info.start_time) == (
        "fixture.session",
        "completed",
        "2026-11-15T07:22:51.716515Z",
    )
    assert info.duration_s == pytest.approx(0.769345, abs=2e-6)


@pytest.mark.parametrize(
    "name", ["sink-rank0", "sink-rank1", "export-v2.json", "export-v3.json", "legacy.json"]
)
def test_a_stormlog_recording_has_the_events_its_own_loader_finds(tmp_path: Path, name: str) -> None:
    [expected] = json.loads((STORMLOG / "expected.json").read_text())[name]
    _, run = adopt_one(STORMLOG / name, tmp_path / "runs")
    events = [event for event in events_of(run, "devices") if isinstance(event, DeviceMemory)]
    assert {
        "events": len(events),
        "first_ns": min(event.timestamp_ns for event in events),
        "sum_allocated": sum(event.allocator_allocated_bytes for event in events),
        "collectors": sorted({event.collector for event in events}),
        "device_ids": sorted({event.device_id for event in events}),
        "world_size": max(e.world_size for e in events),
    } == {
        name: expected[name]
        for name in ("events", "first_ns", "sum_allocated", "collectors", "device_ids", "world_size")
    }
    status = {"running": "crashed"}.get(expected["status"], "completed")
    assert run.info.status == status


def test_the_sinks_of_one_job_are_one_run_and_each_export_is_its_own(tmp_path: Path) -> None:
    adoptions = adopt_all(STORMLOG, tmp_path / "runs")
    assert [(Path(one.source).name, one.kept["device-memory events"]) for one in adoptions] == [
        ("devices", 60),
        ("export-v2.json", 6),
        ("export-v3.json", 30),
        ("legacy.json", 8),
    ]
    assert "1 of 2 sessions was never closed" in adoptions[0].notes[0]


def test_modelops_spans_keep_their_durations_and_lie_inside_each_other(tmp_path: Path) -> None:
    _, run = adopt_one(PEERS / "modelops", tmp_path / "runs")
    spans = [event for event in events_of(run, "spans") if isinstance(event, SpanEvent)]
    recorded = records(MODELOPS / "spans.jsonl")
    assert sorted((s.name, s.duration_s) for s in spans) == sorted(
        (r["name"], r["duration"]) for r in recorded
    )
    names = {span.span_id: span.name for span in spans} | {run.info.span_id: "the run"}
    assert Counter((span.name, names[span.parent_id or ""]) for span in spans) == {
        ("calibration.job", "the run"): 1,
        ("calibration.iteration", "calibration.job"): 3,
        ("algorithm.ask", "calibration.iteration"): 3,
        ("simulation.gather", "calibration.iteration"): 3,
        ("simulation.run_remote", "simulation.gather"): 12,
        ("algorithm.tell", "calibration.iteration"): 3,
    }
    [failed] = [span for span in spans if span.status == "error"]
    assert (failed.name, failed.error_type, failed.error_message) == (
        "algorithm.tell",
        "ValueError",
        "loss is NaN",
    )
    [loop] = report_on(run).calibration
    assert (loop.iterations, loop.best_loss) == (3, pytest.approx(1 / 3))


EVERY = [
    PEERS / "scalable",
    RHAPSODY,
    PEERS / "modelops",
    *(
        STORMLOG / name
        for name in ("sink-rank0", "sink-rank1", "export-v2.json", "export-v3.json", "legacy.json")
    ),
]


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_every_recording_becomes_a_whole_run_that_report_explains(tmp_path: Path, path: Path) -> None:
    adoption, run = adopt_one(path, tmp_path / "runs")
    text = report_text(report_on(run))
    assert f"from {adoption.title}" in text
    words = " ".join(text.split())
    assert all(" ".join(note.split()) in words for note in adoption.notes)
    assert "Overhead" not in text  # what adopting cost is not what recording cost
    assert verify_files(run.path) == []
    assert all(check.ok for check in verify(run).checks)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_a_recording_is_never_changed_and_adopting_it_again_changes_nothing(
    tmp_path: Path, path: Path
) -> None:
    home = path if path.is_dir() else path.parent
    before = content(home)
    first, _ = adopt_one(path, tmp_path / "runs")
    made = content(tmp_path / "runs")
    again, _ = adopt_one(path, tmp_path / "runs")
    assert content(home) == before
    assert content(tmp_path / "runs") == made
    assert (first.made, again.made, again.run_id, again.notes) == (True, False, first.run_id, first.notes)


def test_other_commands_take_an_adopted_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, run = adopt_one(SCALABLE, tmp_path / "runs")
    for command in (["report", "--format", "json"], ["diagnose"], ["verify"]):
        assert main([command[0], str(run.path), *command[1:]]) in {0, 1}
        assert capsys.readouterr().out
    assert Counter(map(kind_of, events_of(run, "tasks")))["task_completed"] == sum(
        isinstance(event, TaskCompleted) for event in events_of(run, "tasks")
    )


def test_an_out_of_memory_bundle_of_stormlog_is_a_failed_run_with_its_error(tmp_path: Path) -> None:
    """As Stormlog's flight recorder writes it."""
    loaded = json.loads((STORMLOG / "export-v3.json").read_text())
    records = loaded if isinstance(loaded, list) else loaded["events"]
    about = {
        "reason": "torch.OutOfMemoryError",
        "exception_type": "OutOfMemoryError",
        "exception_module": "torch",
        "exception_message": "CUDA out of memory. Tried to allocate 2.00 GiB.",
        "context": "train",
        "backend": "cuda",
        "captured_event_count": len(records),
        "session_id": records[0]["session_id"],
        "session_status": "running",
        "session": None,
        "custom_metadata": {"batch": 64},
    }
    bundle = tmp_path / "dumps" / "oom_dump_1"
    bundle.mkdir(parents=True)
    documents = {"events": records, "metadata": about, "environment": {"pid": 1}, "manifest": {"reason": "r"}}
    for name, value in documents.items():
        (bundle / f"{name}.json").write_text(json.dumps(value))
    for path in (bundle, bundle.parent):
        adoption, run = adopt_one(path, tmp_path / "runs")
        assert (adoption.kind, adoption.kept["device-memory events"]) == ("stormlog", len(records))
        assert run.status == "failed"
        assert run.info.error == "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        [failure] = events_of(run, "failures")
        assert (failure.error_type, failure.message) == ("OutOfMemoryError", about["exception_message"])
        [said] = events_of(run, "events")
        assert said.fields["reason"] == "torch.OutOfMemoryError"
        assert said.fields["custom_metadata"] == {"batch": 64}
        assert len(events_of(run, "devices")) == len(records)
    assert len(load_telemetry_events(bundle)) == len(records)
