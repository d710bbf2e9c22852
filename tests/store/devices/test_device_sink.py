"""Sink folders: bounded segments, one writer, readable at every moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from builders.telemetry_records import GOLDEN, record
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.core.errors import UsageError
from flightlog.devices import (
    SessionSummary,
    TelemetryEventV3,
    TelemetryEventV4,
    TelemetrySink,
    load_telemetry_sessions,
)

SESSION = SessionSummary("s-1", "running", 0, None, "node-1", 7, source="test")


def event(number, **changes):
    return TelemetryEventV3(**record(timestamp_ns=number, **changes))


def manifest(folder):
    return json.loads((folder / "manifest.json").read_bytes())


def numbers(folder):
    return [one.timestamp_ns for session in load_telemetry_sessions(folder) for one in session.events]


def statuses(folder):
    return {one["session_id"]: (one["status"], one["ended_at_ns"]) for one in manifest(folder)["sessions"]}


def files(folder):
    return sorted(path.name for path in folder.glob("segment-*"))


def test_what_was_appended_is_what_loads(tmp_path):
    with TelemetrySink(tmp_path, clock=lambda: 99) as sink:
        sink.append(event(1))
        sink.append(record(timestamp_ns=2))
    (session,) = load_telemetry_sessions(tmp_path)
    assert session.events == [event(1), event(2)]
    assert session.summary == SessionSummary(
        "s-1", "completed", 1, 99, "node-1", 7, None, 0, 0, 1, "flightlog.sink"
    )
    size = (tmp_path / "segment-000001.jsonl").stat().st_size
    assert manifest(tmp_path) == {
        "schema_version": 2,
        "format": "stormlog.append_only_telemetry_sink",
        "sessions": [
            {
                "session_id": "s-1",
                "status": "completed",
                "started_at_ns": 1,
                "ended_at_ns": 99,
                "host": "node-1",
                "pid": 7,
                "job_id": None,
                "rank": 0,
                "local_rank": 0,
                "world_size": 1,
                "source": "flightlog.sink",
            }
        ],
        "segments": [
            {
                "filename": "segment-000001.jsonl",
                "event_count": 2,
                "size_bytes": size,
                "closed": True,
                "session_id": "s-1",
            }
        ],
    }


def test_a_folder_can_be_read_from_the_first_moment_and_after_every_event(tmp_path):
    sink = TelemetrySink(tmp_path / "sink", SESSION, rollover_events=3)
    (session,) = load_telemetry_sessions(tmp_path / "sink")
    assert (session.summary.status, session.events) == ("running", [])
    for number in range(10):
        sink.append(event(number))
        assert numbers(tmp_path / "sink") == list(range(number + 1))
    sink.close("incomplete")
    assert statuses(tmp_path / "sink")["s-1"][0] == "incomplete"


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 600), min_size=1, max_size=30),
    most_events=st.integers(1, 7),
    most_bytes=st.integers(500, 3000),
    most_files=st.integers(1, 4),
    room=st.integers(1, 4),
)
def test_no_limit_is_overshot(tmp_path_factory, sizes, most_events, most_bytes, most_files, room):
    folder = tmp_path_factory.mktemp("limits")
    total = most_bytes * room
    with TelemetrySink(
        folder,
        rollover_events=most_events,
        rollover_bytes=most_bytes,
        retain_files=most_files,
        retain_bytes=total,
    ) as sink:
        for number, size in enumerate(sizes):
            sink.append(event(number, context="x" * size))
            there = list(folder.glob("segment-*"))
            lines = [path.read_bytes().splitlines() for path in there]
            assert len(there) <= most_files
            assert all(len(inside) <= most_events for inside in lines)
            assert all(
                len(inside) == 1 or path.stat().st_size <= most_bytes for path, inside in zip(there, lines)
            )
            held = sum(path.stat().st_size for path in there)
            assert held <= total or len(there) == 1
    kept = numbers(folder)
    assert kept == list(range(len(sizes)))[-len(kept) :]
    assert [one["filename"] for one in manifest(folder)["segments"]] == files(folder)


def test_a_folder_has_one_writer(tmp_path):
    with TelemetrySink(tmp_path) as sink:
        sink.append(event(1))
        with pytest.raises(UsageError) as error:
            TelemetrySink(tmp_path)
        assert f"is being written by process {os.getpid()} on" in str(error.value)
        assert statuses(tmp_path) == {"s-1": ("running", None)}
        sink.append(event(2))
    with TelemetrySink(tmp_path) as sink:
        sink.append(event(3, session_id="s-2"))
    assert sorted(numbers(tmp_path)) == [1, 2, 3]
    assert files(tmp_path) == ["segment-000001.jsonl", "segment-000002.jsonl"]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from builders.telemetry_records import record
from flightlog.devices import TelemetrySink
sink = TelemetrySink(sys.argv[1], rollover_events=4)
for number in range(10):
    sink.append(record(timestamp_ns=number))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_loses_nothing_and_its_session_was_interrupted(tmp_path):
    program = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parents[2])]
    assert subprocess.run(program, check=False).returncode == -signal.SIGKILL
    assert numbers(tmp_path) == list(range(10))
    assert statuses(tmp_path) == {"s-1": ("running", None)}
    with (tmp_path / "segment-000003.jsonl").open("ab") as torn:
        torn.write(b'{"schema_version": 3, "sess')
    with TelemetrySink(tmp_path, clock=lambda: 99) as sink:
        assert statuses(tmp_path) == {"s-1": ("interrupted", 9)}
        sink.append(event(10, session_id="s-2"))
    assert statuses(tmp_path) == {"s-1": ("interrupted", 9), "s-2": ("completed", 99)}
    assert sorted(numbers(tmp_path)) == list(range(11))
    assert [
        (one["filename"], one["event_count"], one["closed"]) for one in manifest(tmp_path)["segments"]
    ] == [
        ("segment-000001.jsonl", 4, True),
        ("segment-000002.jsonl", 4, True),
        ("segment-000003.jsonl", 2, True),
        ("segment-000004.jsonl", 1, True),
    ]
    assert all(path.read_bytes().endswith(b"}\n") for path in tmp_path.glob("segment-*"))


def test_a_folder_without_manifest_is_taken_up_as_its_segments_tell(tmp_path):
    with TelemetrySink(tmp_path) as sink:
        sink.append(event(1))
        sink.append(event(2, event_type="stop"))
    (tmp_path / "manifest.json").write_bytes(b'{"torn')
    with TelemetrySink(tmp_path) as sink:
        sink.append(event(3, session_id="s-2"))
    assert statuses(tmp_path)["s-1"] == ("completed", 2)
    assert sorted(numbers(tmp_path)) == [1, 2, 3]


FORKED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from builders.telemetry_records import record
from flightlog.devices import TelemetrySink
from flightlog.core.errors import UsageError
sink = TelemetrySink(sys.argv[1])
sink.append(record(timestamp_ns=1))
reading, writing = os.pipe()
if os.fork() == 0:
    try:
        sink.append(record(timestamp_ns=2))
    except UsageError:
        sink.close()
        os.write(writing, b"refused")
    sys.stdin.read()
    os._exit(0)
assert os.read(reading, 7) == b"refused"
sink.append(record(timestamp_ns=3))
os._exit(0)
"""


def test_a_forked_child_does_not_write_and_does_not_hold_the_folder(tmp_path):
    program = [sys.executable, "-c", FORKED, str(tmp_path), str(Path(__file__).parents[2])]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as parent:  # the child lives until its input ends
        assert parent.wait() == 0
        assert statuses(tmp_path) == {"s-1": ("running", None)}
        with TelemetrySink(tmp_path):
            assert statuses(tmp_path) == {"s-1": ("interrupted", 3)}
    assert numbers(tmp_path) == [1, 3]


def test_an_error_inside_interrupts_the_session(tmp_path):
    with suppress(KeyError), TelemetrySink(tmp_path) as sink:
        sink.append(event(1))
        raise KeyError
    assert statuses(tmp_path)["s-1"][0] == "interrupted"


def test_what_does_not_belong_is_refused_and_leaves_the_folder_as_it_was(tmp_path):
    with TelemetrySink(tmp_path, SESSION) as sink:
        sink.append(event(1))
        odd = event(2)
        odd.pid = -5
        unknown = TelemetryEventV4(**record(schema_version=4, device_used_bytes=None))
        for refused in (odd, record(pid=-5), event(2, session_id="s-2"), unknown):
            with pytest.raises(ValueError):
                sink.append(refused)
        sink.flush()
    assert numbers(tmp_path) == [1]
    with pytest.raises(UsageError):
        sink.append(event(2))
    sink.close()


@pytest.mark.parametrize(
    "limits", [{"rollover_events": 0}, {"rollover_bytes": 0}, {"retain_files": 0}, {"retain_bytes": 1}]
)
def test_limits_without_room_are_refused(tmp_path, limits):
    with pytest.raises(UsageError):
        TelemetrySink(tmp_path / "none", **limits)
    assert not (tmp_path / "none").exists()


def test_a_session_ends_in_one_of_three_ways(tmp_path):
    with TelemetrySink(tmp_path) as sink, pytest.raises(UsageError):
        sink.close("running")


def test_rollups_are_those_of_the_tool_whose_format_it_is(tmp_path):
    expected = json.loads((GOLDEN / "sink-rank0" / "rollups.json").read_bytes())
    (recorded,) = load_telemetry_sessions(GOLDEN / "sink-rank0")
    with TelemetrySink(tmp_path, recorded.summary, rollover_events=10, clock=lambda: 1) as sink:
        for one in recorded.events:
            sink.append(one)
    found = json.loads((tmp_path / "rollups.json").read_bytes())
    for document in (
        expected,
        found,
    ):  # the clock, the bytes of a line and where it stood are the writer's own
        del document["generated_at_ns"], document["coverage"]["retained_bytes"]
        del document["sessions"][0]["session"]["ended_at_ns"], document["sessions"][0]["sources_loaded"]
    assert found == expected


def test_rollups_count_alerts_health_memory_shortage_and_windows(tmp_path):
    second = 1_000_000_000
    with TelemetrySink(tmp_path, rollup_window_s=2) as sink:
        sink.append(event(0))
        sink.append(event(second, event_type="warning"))
        sink.append(event(2 * second, event_type="collector_degraded"))
        sink.append(event(3 * second, event_type="collector_recovered"))
        sink.append(event(5 * second, event_type="error", metadata={"oom_reason": "r", "oom_dump_path": "p"}))
        sink.append(event(6 * second, device_used_bytes=50))
    (session,) = json.loads((tmp_path / "rollups.json").read_bytes())["sessions"]
    assert session["alerts"] == {
        "event_type_counts": {"error": 1, "warning": 1},
        "severity_counts": {"critical": 1, "warning": 1},
        "total_count": 2,
    }
    assert session["collector_health"] == {
        "degraded_count": 1,
        "degraded_time_ns": second,
        "last_status": "healthy",
        "recovered_count": 1,
        "transition_count": 2,
    }
    assert session["oom"] == {"bundle_path_count": 1, "event_count": 1, "marker_count": 1}
    assert [
        (window["index"], window["event_count"], window["start_ns"]) for window in session["windows"]
    ] == [
        (0, 2, 0),
        (1, 2, 2 * second),
        (2, 1, 4 * second),
        (3, 1, 6 * second),
    ]
    (rank,) = session["ranks"]
    assert (
        rank["hidden_gap_first_bytes"],
        rank["hidden_gap_peak_bytes"],
        rank["hidden_gap_delta_bytes"],
    ) == (10, 30, 20)
    assert rank["hidden_gap_drift_bytes_per_second"] == pytest.approx(20 / 6)
