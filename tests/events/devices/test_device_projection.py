"""Events in a shape that does not depend on the backend."""

from __future__ import annotations

import pytest
from builders.telemetry_records import GOLDEN, record, valid_records
from hypothesis import given

from flightlog.devices import (
    TelemetryEventV3,
    load_telemetry_sessions,
    project_telemetry_event,
    project_telemetry_events,
    telemetry_event_from_record,
)


def test_a_recorded_event_has_its_projection():
    (session,) = load_telemetry_sessions(GOLDEN / "export-v3.json")
    found = session.telemetry_records()[0]
    assert (found.schema_version, found.record_id) == (1, "telemetry-63b9147439f47595b3931a583dfb4b04")
    assert (found.timestamp_ns, found.observed_timestamp_ns) == (1780001000000000000,) * 2
    assert (found.source_kind, found.event_type, found.severity, found.body) == (
        "cuda",
        "start",
        "info",
        "step 0",
    )
    assert (found.stage, found.severity_text) == (None, None)
    assert found.session_id == session.summary.session_id
    assert found.resource == {
        "source_kind": "cuda",
        "collector": "stormlog.cuda_tracker",
        "host": "node-0",
        "pid": 4000,
        "device_id": 0,
        "job_id": "job-77",
        "rank": 0,
        "local_rank": 0,
        "world_size": 2,
    }
    assert found.attributes == {
        "backend": "cuda",
        "phase": "eval",
        "sampling.interval_ms": 100,
        "memory.allocator.allocated_bytes": 1073741824,
        "memory.allocator.reserved_bytes": 1362286842,
        "memory.allocator.active_bytes": 1073741824,
        "memory.allocator.inactive_bytes": 288545018,
        "memory.allocator.change_bytes": 0,
        "memory.device.used_bytes": 1630722298,
        "memory.device.free_bytes": 84268623622,
        "memory.device.total_bytes": 85899345920,
    }
    assert found.correlation == {
        "session_id": session.summary.session_id,
        "job_id": "job-77",
        "rank": 0,
        "local_rank": 0,
        "world_size": 2,
    }


def test_a_session_names_each_resource_and_each_context_once():
    (session,) = load_telemetry_sessions(GOLDEN / "sink-rank1")
    assert session.resources() == [dict(session.telemetry_records()[0].resource)]
    assert session.correlations() == [dict(session.telemetry_records()[0].correlation)]
    (legacy,) = load_telemetry_sessions(GOLDEN / "legacy.json")
    assert [(one["collector"], one["device_id"]) for one in legacy.resources()] == [
        ("stormlog.cuda_tracker", 1),
        ("stormlog.tensorflow.memory_tracker", 0),
    ]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"metadata": {"backend": " ROCm "}}, "rocm"),
        ({"metadata": {"backend": "odd"}}, "cuda"),
        ({"collector": "my.MPS.collector"}, "mps"),
        ({"collector": "mine"}, "gpu"),
        ({"collector": "mine", "device_id": -1}, "other"),
    ],
)
def test_the_source_is_a_family_of_backends(change, kind):
    assert project_telemetry_event(record(**change)).source_kind == kind


def test_phase_and_severity_are_those_of_the_metadata():
    phase = {"name": "epoch", "path": ["fit", "epoch"], "scope_id": 4, "parent_scope_id": None, "sequence": 2}
    found = project_telemetry_event(
        record(metadata={"phase_scope": phase, "severity": "Warning", "severity_text": 5})
    )
    assert (found.stage, found.severity, found.severity_text) == ("epoch", "warning", "5")
    assert {name: found.correlation[name] for name in found.correlation if name.startswith("phase")} == {
        "phase.scope_id": 4,
        "phase.sequence": 2,
    }
    unnamed = record(metadata={"phase_scope": {"path": ["fit", "step"]}}, event_type="allocation")
    assert (project_telemetry_event(unnamed).stage, project_telemetry_event(unnamed).severity) == (
        "step",
        None,
    )


@given(valid_records())
def test_an_event_and_its_record_have_the_same_projection_which_cannot_be_changed(made):
    event = telemetry_event_from_record(made)
    found = project_telemetry_event(event)
    assert [found] == project_telemetry_events([made])
    assert found.record_id == project_telemetry_event(made).record_id
    with pytest.raises(TypeError):
        found.resource["rank"] = 9


def test_an_invalid_record_has_none():
    with pytest.raises(ValueError) as error:
        project_telemetry_event(record(pid=-2))
    assert str(error.value) == "pid must be >= -1"
    assert project_telemetry_event(TelemetryEventV3(**record())).resource["pid"] == 7
