"""Stormlog's telemetry under its own names: every name of the schema's text is there, and does what it
says."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from flightlog.compat import stormlog
from flightlog.compat.stormlog import session, telemetry, telemetry_model

NAMES = {
    "telemetry": """
        SCHEMA_VERSION_V2 SCHEMA_VERSION_V3 SCHEMA_VERSION_LATEST UNKNOWN_PID UNKNOWN_HOST REQUIRED_V3_FIELDS
        OPTIONAL_V3_FIELDS REQUIRED_V2_FIELDS OPTIONAL_V2_FIELDS KNOWN_V2_FIELD_SET KNOWN_V3_FIELD_SET
        TelemetryEvent TelemetryEventV2 TelemetryEventV3 LoadedTelemetrySession ProjectedTelemetryRecord
        resolve_distributed_identity telemetry_event_to_dict validate_telemetry_record
        telemetry_event_from_record load_telemetry_sessions load_telemetry_events
        project_telemetry_event project_telemetry_events
    """,
    "session": """
        SESSION_STATUS_RUNNING SESSION_STATUS_COMPLETED SESSION_STATUS_INTERRUPTED SESSION_STATUS_INCOMPLETE
        SESSION_STATUSES SessionSummary now_ns new_session_id stable_legacy_session_id create_session_summary
        update_session_summary finalize_session_summary normalize_session_status session_summary_to_dict
        session_summary_from_dict infer_session_summary_from_events sort_session_summaries
        select_default_session select_default_loaded_session
    """,
    "telemetry_model": """
        TELEMETRY_PROJECTION_SCHEMA_VERSION ProjectedTelemetryRecord project_telemetry_mapping
        projected_record_to_dict unique_projected_resources unique_projected_correlations
    """,
    "telemetry_sink": """
        MANIFEST_FILENAME SEGMENT_PREFIX SEGMENT_SUFFIX SINK_SCHEMA_VERSION TelemetrySinkConfig
        TelemetrySinkSegment TelemetrySinkManifest AppendOnlyTelemetrySink read_telemetry_sink_manifest
        resolve_telemetry_sink_manifest_path resolve_telemetry_sink_segment_paths
    """,
    "telemetry_rollups": """
        TELEMETRY_ROLLUP_SCHEMA_VERSION ROLLUP_FILENAME DEFAULT_ROLLUP_WINDOW_SECONDS DEFAULT_ROLLUP_WINDOW_NS
        PeakValue CounterSummary AlertSummary CollectorHealthSummary OomSummary RollupCoverage RankRollup
        WindowRollup SessionRollup TelemetryRollupFile build_telemetry_rollups write_telemetry_rollups
        read_telemetry_rollups resolve_telemetry_rollup_path telemetry_rollup_file_to_dict
        telemetry_rollup_file_from_dict rollup_coverage_from_manifest
    """,
}


def record(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 3,
        "session_id": "s-1",
        "timestamp_ns": 1_000,
        "event_type": "sample",
        "collector": "stormlog.cuda_tracker",
        "sampling_interval_ms": 100,
        "pid": 7,
        "host": "node-1",
        "device_id": 0,
        "allocator_allocated_bytes": 10,
        "allocator_reserved_bytes": 20,
        "allocator_active_bytes": None,
        "allocator_inactive_bytes": None,
        "allocator_change_bytes": 0,
        "device_used_bytes": 30,
        "device_free_bytes": None,
        "device_total_bytes": 100,
        "context": None,
        "metadata": {},
        **changes,
    }


def summary(**changes: Any) -> session.SessionSummary:
    given = {"source": "test", "session_id": "s", "started_at_ns": 10, "host": "h", "pid": 1}
    return session.create_session_summary(**{**given, **changes})


@pytest.mark.parametrize("module", sorted(NAMES))
def test_every_public_name_is_there(module):
    found = importlib.import_module(f"flightlog.compat.stormlog.{module}")
    names = set(NAMES[module].split())
    assert names <= set(found.__all__)
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_the_package_has_the_names_of_the_package():
    assert stormlog.load_telemetry_events is telemetry.load_telemetry_events
    assert set(stormlog.__all__) == {
        "TelemetryEventV2",
        "load_telemetry_events",
        "resolve_distributed_identity",
        "telemetry_event_from_record",
        "telemetry_event_to_dict",
        "validate_telemetry_record",
    }


def test_fields_are_those_of_the_schema():
    assert telemetry.REQUIRED_V2_FIELDS == tuple(
        name for name in telemetry.REQUIRED_V3_FIELDS if name != "session_id"
    )
    assert telemetry.OPTIONAL_V3_FIELDS == ("job_id", "rank", "local_rank", "world_size")
    assert set(record()) == set(telemetry.REQUIRED_V3_FIELDS)
    assert telemetry.KNOWN_V3_FIELD_SET == {*telemetry.REQUIRED_V3_FIELDS, *telemetry.OPTIONAL_V3_FIELDS}


@pytest.mark.parametrize("kind", [telemetry.TelemetryEventV3, telemetry.TelemetryEventV2])
def test_events_take_their_fields_by_position_too(kind):
    values = record(schema_version=3 if kind is telemetry.TelemetryEventV3 else 2, metadata={"a": 1})
    names = [field.name for field in dataclasses.fields(kind)]
    whole = kind(**{name: values[name] for name in names if name in values})
    first = [values[name] for name in names[: names.index("job_id")]]
    assert kind(*first, None, 0, 0, 1, {"a": 1}) == whole
    assert kind(*first, metadata={"a": 1}) == whole
    with pytest.raises(TypeError, match="got context twice"):
        kind(*first, context="again")
    with pytest.raises(TypeError, match=f"takes {len(names)} arguments, not {len(names) + 1}"):
        kind(*first, None, 0, 0, 1, {}, "more")


def test_events_answer_to_the_functions_of_dataclasses():
    event = telemetry.telemetry_event_from_record(record())
    assert dataclasses.asdict(event) == telemetry.telemetry_event_to_dict(event)
    assert [one.name for one in dataclasses.fields(event)][-1] == "metadata"
    assert dataclasses.replace(event, pid=8).pid == 8
    with pytest.raises(ValueError, match="rank must be < world_size"):
        dataclasses.replace(event, rank=1)


@pytest.mark.parametrize("kind", [telemetry.TelemetryEventV3, telemetry.TelemetryEventV2])
def test_vars_of_an_event_are_its_fields_in_order(kind):
    names = [field.name for field in dataclasses.fields(kind)]
    values = record(schema_version=3 if kind is telemetry.TelemetryEventV3 else 2)
    event = kind(**{name: values[name] for name in names if name in values})
    assert list(vars(event)) == names
    assert vars(event) == dataclasses.asdict(event)


def test_a_class_derived_from_an_event_may_add_fields():
    @dataclasses.dataclass
    class Step(telemetry.TelemetryEventV3):
        step: int = 0

    event = Step(**record(), step=4)
    assert (event.step, Step(**record()).step) == (4, 0)
    assert dataclasses.asdict(event)["step"] == vars(event)["step"] == 4
    assert dataclasses.replace(event, step=5).step == 5
    assert "step" not in telemetry.telemetry_event_to_dict(event)
    with pytest.raises(ValueError, match="pid must be"):
        Step(**record(pid=-9))


def test_a_file_is_loaded_by_session_and_bad_records_cost_no_others(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [
        record(session_id="a", timestamp_ns=2),
        {"schema_version": 3},
        record(session_id="a", timestamp_ns=1),
        record(session_id="b", event_type="stop", timestamp_ns=5),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = telemetry.load_telemetry_sessions(path)
    assert type(first.summary) is session.SessionSummary
    assert [(one.summary.session_id, one.summary.status) for one in (first, second)] == [
        ("b", "completed"),
        ("a", "incomplete"),
    ]
    assert [event.timestamp_ns for event in second.events] == [1, 2]
    assert len(first.warnings) == 1
    assert [event.session_id for event in telemetry.load_telemetry_events(path)] == ["b"]
    assert len(telemetry.load_telemetry_events(path, session_id="a")) == 2
    with pytest.raises(ValueError, match="Requested session_id not found: c"):
        telemetry.load_telemetry_events(path, session_id="c")
    assert second.resources()[0]["host"] == "node-1"
    assert [one["session_id"] for one in second.correlations()] == ["a"]


def test_a_file_of_nothing_but_bad_records_is_an_error(tmp_path):
    path = tmp_path / "events.json"
    path.write_text(json.dumps([{"schema_version": 4, "timestamp": 1.0, "memory_allocated": 1}]))
    with pytest.raises(ValueError, match="Unsupported schema_version: 4"):
        telemetry.load_telemetry_events(path)


def test_a_session_begins_here_and_now_unless_it_is_said_otherwise():
    made = session.create_session_summary(source="test")
    assert (made.status, made.ended_at_ns, made.rank, made.world_size) == ("running", None, 0, 1)
    assert made.session_id != session.new_session_id()
    assert session.SessionSummary("s", "running", 1, None, "h", 1).source == "stormlog.session"
    assert summary(world_size=0).world_size == 1


def test_a_status_is_one_of_four():
    assert session.normalize_session_status(" Running ") == "running"
    with pytest.raises(ValueError, match="Unsupported session status: gone"):
        session.normalize_session_status("gone")
    with pytest.raises(ValueError, match="must be a non-empty string"):
        session.normalize_session_status(None)


def test_a_session_that_is_finalized_keeps_a_bad_end():
    ended = session.finalize_session_summary(summary(), ended_at_ns=20)
    assert (ended.status, ended.ended_at_ns) == ("completed", 20)
    bad = session.update_session_summary(summary(), status="interrupted", ended_at_ns=15)
    assert session.finalize_session_summary(bad, ended_at_ns=20).status == "interrupted"
    assert session.update_session_summary(ended, ended_at_ns=None).ended_at_ns is None
    assert session.update_session_summary(ended, source="other").ended_at_ns == 20


def test_a_session_comes_back_from_its_dict():
    one = summary(job_id="j", ended_at_ns=20, rank=1, world_size=2)
    assert session.session_summary_from_dict(session.session_summary_to_dict(one)) == one
    for name, said in (
        ("session_id", "session_id must be a non-empty string"),
        ("source", "source must be a non-empty string"),
        ("status", "session status must be a non-empty string"),
        ("started_at_ns", "started_at_ns must be present"),
        ("host", "host must be a non-empty string"),
    ):
        with pytest.raises(ValueError, match=said):
            session.session_summary_from_dict({**session.session_summary_to_dict(one), name: None})
    with pytest.raises(ValueError, match="must be an object"):
        session.session_summary_from_dict([])  # type: ignore[arg-type]


def test_events_tell_their_session():
    events = [
        SimpleNamespace(timestamp_ns=5, event_type="stop"),
        SimpleNamespace(timestamp_ns=1, event_type="start", host="h", pid=3),
    ]
    told = session.infer_session_summary_from_events(session_id="s", events=events, source="x")
    assert (told.status, told.started_at_ns, told.ended_at_ns, told.host, told.pid) == (
        "completed",
        1,
        5,
        "h",
        3,
    )
    assert session.infer_session_summary_from_events(session_id="s", events=[], source="x").status == (
        "incomplete"
    )


def test_the_preferred_session_has_ended_well_is_the_latest_and_has_events():
    done, later, running = (
        summary(session_id="done", status="completed", ended_at_ns=20),
        summary(session_id="later", status="completed", ended_at_ns=30),
        summary(session_id="running", started_at_ns=90),
    )
    assert session.sort_session_summaries([running, done, later]) == [later, done, running]
    assert session.select_default_session([running, done]) is done
    assert session.select_default_session([]) is None
    empty = SimpleNamespace(summary=done, events=[])
    full = SimpleNamespace(summary=running, events=[1])
    assert session.select_default_loaded_session([empty, full]) is full
    assert session.select_default_loaded_session([empty]) is empty


def test_a_record_is_projected_with_what_it_has():
    projected = telemetry_model.project_telemetry_mapping(
        {"session_id": "s", "timestamp_ns": 5, "event_type": "error", "metadata": {"tags": ({"a": 1},)}},
        observed_timestamp_ns=9,
    )
    assert (projected.timestamp_ns, projected.observed_timestamp_ns, projected.severity) == (5, 9, "error")
    assert (projected.source_kind, projected.resource["host"]) == ("other", None)
    assert isinstance(projected.attributes["tags"][0], MappingProxyType)
    document = telemetry_model.projected_record_to_dict(projected)
    assert document["attributes"]["tags"] == [{"a": 1}]
    assert list(document)[:3] == ["schema_version", "record_id", "timestamp_ns"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"session_id": ""}, "requires session_id"),
        ({"timestamp_ns": True}, "requires integer timestamp_ns"),
        ({"event_type": None}, "requires event_type"),
        ({"metadata": 7}, "metadata must be a mapping"),
    ],
)
def test_what_cannot_be_projected_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        telemetry_model.project_telemetry_mapping(record(**changes))
    with pytest.raises(ValueError, match="non-negative observed_timestamp_ns"):
        telemetry_model.project_telemetry_mapping(record(), observed_timestamp_ns=-1)


def test_recordings_of_the_original_load_without_a_word():
    golden = Path(__file__).parents[1] / "golden" / "devices"
    loaded = telemetry.load_telemetry_sessions(golden / "sink-rank0")
    assert sum(len(one.events) for one in loaded) > 0
    assert all(one.warnings == [] for one in loaded)
