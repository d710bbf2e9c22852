"""Stormlog's sink folders and rollups under their own names."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flightlog.compat.stormlog.session import create_session_summary
from flightlog.compat.stormlog.telemetry import (
    LoadedTelemetrySession,
    load_telemetry_sessions,
    telemetry_event_from_record,
)
from flightlog.compat.stormlog.telemetry_rollups import (
    PeakValue,
    RollupCoverage,
    build_telemetry_rollups,
    read_telemetry_rollups,
    resolve_telemetry_rollup_path,
    telemetry_rollup_file_from_dict,
    telemetry_rollup_file_to_dict,
    write_telemetry_rollups,
)
from flightlog.compat.stormlog.telemetry_sink import (
    AppendOnlyTelemetrySink,
    TelemetrySinkConfig,
    TelemetrySinkSegment,
    read_telemetry_sink_manifest,
    resolve_telemetry_sink_manifest_path,
    resolve_telemetry_sink_segment_paths,
)
from flightlog.core.errors import UsageError

SECOND = 1_000_000_000


def record(session_id: str = "s", at: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 3,
        "session_id": session_id,
        "timestamp_ns": at,
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


def sink(folder: Path, **options: Any) -> AppendOnlyTelemetrySink:
    return AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir=folder, **options))


def held(folder: Path) -> list[list[Any]]:
    """What each segment holds."""
    return [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in resolve_telemetry_sink_segment_paths(folder)
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"flush_every_events": 0}, "flush_every_events must be >= 1"),
        ({"flush_every_seconds": 0}, "flush_every_seconds must be > 0"),
        ({"rollover_max_bytes": 0}, "rollover_max_bytes must be >= 1"),
        ({"rollover_max_events": 0}, "rollover_max_events must be >= 1"),
        ({"retention_max_files": 0}, "retention_max_files must be >= 1"),
        ({"retention_max_total_bytes": 0}, "retention_max_total_bytes must be >= 1"),
        ({"retention_max_total_bytes": 5}, "retention_max_total_bytes must be >= rollover_max_bytes"),
        ({"rollup_window_seconds": 0}, "rollup_window_seconds must be >= 1"),
    ],
)
def test_a_config_that_cannot_be_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        TelemetrySinkConfig(root_dir=Path("x"), **options)


def test_a_record_can_be_read_as_soon_as_it_is_appended(tmp_path):
    one = sink(tmp_path)
    one.append({"seq": 1, "odd": float("nan"), "path": Path("/x")})
    assert held(tmp_path) == [[{"seq": 1, "odd": None, "path": "/x"}]]
    assert json.loads((tmp_path / "manifest.json").read_text())["sessions"][0]["status"] == "running"
    one.flush(force=True)
    one.close()


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("not a word")

    __repr__ = __str__


def test_a_record_is_written_whatever_it_holds(tmp_path):
    sink = AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir=tmp_path, write_rollups=False))
    for values in ({"a": "\udc80"}, {(1, 2): 3}, {"n": math.nan}, {"b": b"x", "s": {1}}, {1: 2, "a": 3}):
        sink.append(values)
    sink.append({"mute": Mute(), "kept": 1})
    sink.close()
    (segment,) = tmp_path.glob("segment-*.jsonl")
    *written, last = [json.loads(line) for line in segment.read_text("utf-8").splitlines()]
    assert written == [{"a": "\udc80"}, {"[1, 2]": 3}, {"n": None}, {"b": "eA==", "s": [1]}, {"1": 2, "a": 3}]
    assert last["kept"] == 1
    assert isinstance(last["mute"], str)


def test_a_sink_that_is_closed_has_a_session_segments_and_rollups(tmp_path):
    one = sink(tmp_path, rollover_max_events=2)
    began = one.start_session(create_session_summary(source="test", session_id="s"))
    assert one.current_session() == began
    for number in range(3):
        one.append(record(at=number))
    with pytest.raises(ValueError, match="does not match the active session"):
        one.append(record("other"))
    with pytest.raises(ValueError, match="session_id must be a string"):
        one.append({"session_id": 7})
    one.close()
    assert one.current_session() is None
    manifest = read_telemetry_sink_manifest(tmp_path)
    assert manifest is not None
    assert [(one.session_id, one.status) for one in manifest.sessions] == [("s", "completed")]
    assert [(one.event_count, one.closed, one.session_id) for one in manifest.segments] == [
        (2, True, "s"),
        (1, True, "s"),
    ]
    rollups = read_telemetry_rollups(tmp_path)
    assert rollups is not None
    assert (rollups.coverage.retained_event_count, rollups.sessions[0].sample_count) == (3, 3)
    assert rollups.sessions[0].counters.device_used_bytes == PeakValue(30, 0, 0, 0)


def test_segments_are_never_larger_than_said_and_the_oldest_are_given_up(tmp_path):
    one = sink(tmp_path, rollover_max_events=1, retention_max_files=2, flush_every_events=1000)
    for number in range(3):
        one.append({"seq": number})
    one.close("interrupted")
    assert held(tmp_path) == [[{"seq": 1}], [{"seq": 2}]]
    found = one.get_diagnostics()
    assert found == {
        "rollover_count": 3,
        "pruned_segment_count": 1,
        "pruned_bytes": len('{"seq": 0}\n'),
        "final_retained_files": 2,
        "final_retained_bytes": 2 * len('{"seq": 1}\n'),
    }


def test_a_sink_that_was_closed_begins_another_session(tmp_path):
    one = sink(tmp_path)
    one.append(record("a"))
    one.close()
    one.append(record("b", at=2))
    one.close()
    assert [loaded.summary.session_id for loaded in load_telemetry_sessions(tmp_path)] == ["b", "a"]


def test_within_a_process_the_last_sink_has_the_folder_and_nothing_is_lost(tmp_path):
    first = sink(tmp_path)
    first.append(record("a"))
    second = sink(tmp_path)
    second.append(record("b", at=2))
    with pytest.raises(UsageError, match="another sink of this process"):
        first.append(record("a"))
    second.close()
    first.close()
    assert [
        (one.summary.session_id, one.summary.status, len(one.events))
        for one in load_telemetry_sessions(tmp_path)
    ] == [("b", "completed", 1), ("a", "interrupted", 1)]


def test_a_sink_nobody_holds_any_more_does_not_hold_the_folder(tmp_path):
    one = sink(tmp_path)
    one.append(record("a"))
    del one
    other = sink(tmp_path)
    other.close()
    assert [one.summary.status for one in load_telemetry_sessions(tmp_path)] == ["interrupted"]


def test_a_folder_that_another_process_writes_is_refused(tmp_path):
    program = (
        "import sys; from flightlog.compat.stormlog.telemetry_sink import *;"
        "s = AppendOnlyTelemetrySink(TelemetrySinkConfig(sys.argv[1])); print('open', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(UsageError, match="is being written by process"):
            sink(tmp_path)
        other.kill()
    sink(tmp_path).close()


def test_rollups_are_not_written_where_they_are_not_wanted_or_there_is_nothing(tmp_path, caplog):
    one = sink(tmp_path / "one", write_rollups=False)
    one.append(record())
    one.close()
    other = sink(tmp_path / "other")
    other.append({"seq": 1})
    other.close()
    assert not (tmp_path / "one" / "rollups.json").exists()
    assert not (tmp_path / "other" / "rollups.json").exists()
    assert "telemetry rollup write failed" in caplog.text


def test_a_manifest_is_found_from_its_folder_itself_and_a_segment(tmp_path):
    assert read_telemetry_sink_manifest(tmp_path) is None
    one = sink(tmp_path)
    one.append(record())
    one.close()
    segment = tmp_path / "segment-000001.jsonl"
    for path in (tmp_path, tmp_path / "manifest.json", segment):
        assert resolve_telemetry_sink_manifest_path(path) == tmp_path / "manifest.json"
        assert resolve_telemetry_sink_segment_paths(path) == [segment]
        assert resolve_telemetry_rollup_path(path) == tmp_path / "rollups.json"
    assert resolve_telemetry_sink_manifest_path(tmp_path / "nothing") is None
    assert resolve_telemetry_sink_segment_paths(tmp_path / "rollups.json") == []


def test_a_manifest_is_read_as_stormlog_normalizes_it(tmp_path):
    session = {"session_id": "a", "status": " Running", "started_at_ns": "5", "host": "h", "source": "x"}
    odd = {"pid": "7", "rank": "1", "world_size": 0}
    segment = {"filename": "segment-000001.jsonl", "event_count": "3", "size_bytes": -1, "closed": 1}
    manifest = {
        "schema_version": "2",
        "sessions": [{**session, **odd}, {**session, "status": "weird"}, {"session_id": "b"}, 7],
        "segments": [segment, {"filename": 7}, {"filename": "segment-000002.jsonl", "event_count": 2.0}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    found = read_telemetry_sink_manifest(tmp_path)
    assert found.schema_version == 2
    [one] = found.sessions
    assert (one.status, one.started_at_ns, one.pid, one.rank, one.world_size) == ("running", 5, 7, 1, 1)
    assert [(one.event_count, one.size_bytes, one.closed) for one in found.segments] == [
        (3, 0, True),
        (2, 0, False),
    ]


def test_a_manifest_of_nonsense_says_nothing(tmp_path):
    (tmp_path / "manifest.json").write_text(
        '{"schema_version": "x", "format": 7, "segments": [7], "sessions": {}}'
    )
    found = read_telemetry_sink_manifest(tmp_path)
    assert found is not None
    assert (found.schema_version, found.format, found.segments, found.sessions) == (
        1,
        "stormlog.append_only_telemetry_sink",
        [],
        [],
    )


def loaded(*records: dict[str, Any]) -> LoadedTelemetrySession:
    summary = create_session_summary(
        source="test", status="completed", session_id="s", started_at_ns=0, ended_at_ns=200 * SECOND
    )
    return LoadedTelemetrySession(
        summary, [telemetry_event_from_record(one) for one in records], ["segment-000001.jsonl"]
    )


def test_rollups_tell_of_sessions_ranks_and_windows():
    two = {"world_size": 2, "local_rank": 0}
    rollups = build_telemetry_rollups(
        [
            loaded(
                record(at=1 * SECOND),
                record(at=61 * SECOND, rank=1, device_used_bytes=90, **two),
                record(at=62 * SECOND, event_type="warning", rank=1, **two),
                record(at=70 * SECOND, event_type="collector_degraded"),
                record(at=80 * SECOND, event_type="collector_degraded"),
                record(
                    at=130 * SECOND, event_type="error", metadata={"oom_reason": "r", "oom_dump_path": "p"}
                ),
            )
        ],
        None,
    )
    (session,) = rollups.sessions
    assert (session.event_count, session.sample_count) == (6, 2)
    assert session.counters.device_used_bytes == PeakValue(90, 61 * SECOND, 1, 0)
    assert (session.alerts.severity_counts, session.alerts.event_type_counts) == (
        {"critical": 1, "warning": 1},
        {"error": 1, "warning": 1},
    )
    assert session.collector_health.degraded_time_ns == 130 * SECOND  # from the first word of it to the end
    assert (session.oom.marker_count, session.oom.bundle_path_count) == (1, 1)
    assert [(rank.rank, rank.sample_count, rank.hidden_gap_latest_bytes) for rank in session.ranks] == [
        (0, 1, 10),
        (1, 1, 70),
    ]
    assert [
        (window.index, window.event_count, window.rank_count, window.oom_count) for window in session.windows
    ] == [(0, 1, 1, 0), (1, 4, 2, 0), (2, 1, 1, 1)]
    with pytest.raises(ValueError, match="window_duration_ns"):
        build_telemetry_rollups([], None, window_duration_ns=0)


def test_the_hidden_gap_of_a_rank_drifts():
    one = loaded(record(at=0), record(at=10 * SECOND, device_used_bytes=80))
    (rank,) = build_telemetry_rollups([one], None).sessions[0].ranks
    assert (rank.hidden_gap_delta_bytes, rank.hidden_gap_drift_bytes_per_second) == (50, 5.0)


def test_rollups_come_back_from_their_file_until_the_manifest_moves_on(tmp_path):
    one = sink(tmp_path)
    one.append(record())
    one.close()
    rollups = read_telemetry_rollups(tmp_path)
    assert rollups is not None
    assert write_telemetry_rollups(tmp_path, rollups) == tmp_path / "rollups.json"
    assert read_telemetry_rollups(tmp_path / "rollups.json") == rollups
    document = telemetry_rollup_file_to_dict(rollups)
    assert telemetry_rollup_file_from_dict(document) == rollups
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["segments"][0]["event_count"] += 1
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert read_telemetry_rollups(tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["coverage"].pop("retained_bytes"),
        lambda document: document["sessions"][0].pop("ranks"),
        lambda document: document["sessions"][0]["counters"]["device_used_bytes"].pop("rank"),
        lambda document: document.update(format="other"),
        lambda document: document.update(schema_version=2),
        lambda document: document["coverage"].update(retained_event_count=-1),
        lambda document: document["coverage"].update(retained_event_count="1"),
        lambda document: document.update(sessions={}),
    ],
)
def test_rollups_that_lack_something_or_say_something_else_are_refused(change):
    document = telemetry_rollup_file_to_dict(build_telemetry_rollups([loaded(record())], None))
    change(document)
    with pytest.raises(ValueError):
        telemetry_rollup_file_from_dict(document)


def test_parts_have_the_fields_and_defaults_that_they_had():
    assert TelemetrySinkSegment("a", 1, 2, True).session_id is None
    assert RollupCoverage() == RollupCoverage([], 0, 0, 0, None, None)
