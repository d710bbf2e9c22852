"""Loading telemetry: what other tools recorded, and files in every state of repair."""

from __future__ import annotations

import codecs
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders.telemetry_records import COUNTERS, GOLDEN, JSON, completed, record, valid_records, write_lines
from hypothesis import given
from hypothesis import strategies as st

from flightlog.devices import (
    SessionSummary,
    TelemetryEventV3,
    TelemetryEventV4,
    TelemetryReading,
    load_telemetry_events,
    load_telemetry_sessions,
    stable_legacy_session_id,
    telemetry_event_from_record,
    telemetry_event_to_dict,
)

EXPECTED = json.loads((GOLDEN / "expected.json").read_text("utf-8"))


def outline(session):
    named = session.summary.session_id
    return {
        "session_id": "legacy-*" if named.startswith("legacy-") else named,
        "status": session.summary.status,
        "events": len(session.events),
        "rank": session.summary.rank,
        "world_size": session.summary.world_size,
        "first_ns": session.events[0].timestamp_ns,
        "sum_allocated": sum(event.allocator_allocated_bytes for event in session.events),
        "collectors": sorted({event.collector for event in session.events}),
        "device_ids": sorted({event.device_id for event in session.events}),
    }


def times(path, **options):
    return [event.timestamp_ns for event in TelemetryReading(path, **options)]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", EXPECTED)
def test_recordings_of_another_tool_load_to_what_it_makes_of_them(name, strict):
    sessions = load_telemetry_sessions(GOLDEN / name, strict=strict)
    assert [outline(session) for session in sessions] == EXPECTED[name]
    assert [session.warnings for session in sessions] == [[]]


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@given(records=st.lists(valid_records(), min_size=1, max_size=6))
def test_valid_records_load_as_they_are_whatever_they_stand_in(tmp_path_factory, suffix, records):
    path = tmp_path_factory.getbasetemp() / f"valid.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps(records), "utf-8")
    else:
        write_lines(path, records)
    for strict in (False, True):
        loaded = [telemetry_event_to_dict(event) for event in TelemetryReading(path, strict=strict)]
        assert loaded == [completed(one) for one in records]


@given(records=st.lists(st.tuples(valid_records(), st.sampled_from([*record(), "extra"]), JSON), max_size=4))
def test_a_line_has_the_outcome_of_its_record_alone(tmp_path_factory, records):
    path = tmp_path_factory.getbasetemp() / "outcomes.jsonl"
    broken = [{**made, name: value} for made, name, value in records]
    broken = [one for one in broken if one.get("schema_version") != 4]
    write_lines(path, broken)
    kept, refused = [], []
    for one in broken:
        try:
            kept.append(
                telemetry_event_from_record(
                    one, default_session_id=stable_legacy_session_id(str(path.resolve()), "sink")
                )
            )
        except ValueError as error:
            refused.append(str(error))
    reading = TelemetryReading(path)
    assert list(reading) == kept
    assert (reading.read, reading.skipped, reading.torn) == (len(kept), len(refused), 0)
    assert [problem.partition(": ")[2] for problem in reading.problems] == refused
    if refused:
        with pytest.raises(ValueError) as error:
            list(TelemetryReading(path, strict=True))
        assert str(error.value) == refused[0]


def test_a_bad_line_is_skipped_and_counted_and_named_when_strict(tmp_path):
    path = tmp_path / "events.jsonl"
    good = [json.dumps(record(timestamp_ns=number)) for number in range(3)]
    path.write_text(
        "\n".join([good[0], "{torn", good[1], "", "[1]", json.dumps(record(pid=-5)), good[2]]) + "\n"
    )
    reading = TelemetryReading(path)
    assert [event.timestamp_ns for event in reading] == [0, 1, 2]
    assert (reading.read, reading.skipped, reading.torn) == (3, 3, 0)
    second = len(good[0]) + 1
    fifth = second + 6 + len(good[1]) + 2
    assert reading.problems == [
        f"events.jsonl, byte {second}: no JSON object",
        f"events.jsonl, byte {fifth:,}: Telemetry record must be an object",
        f"events.jsonl, byte {fifth + 4:,}: pid must be >= -1",
    ]
    assert [session.warnings for session in load_telemetry_sessions(path)] == [reading.problems]
    with pytest.raises(ValueError) as error:
        load_telemetry_events(path, strict=True)
    assert str(error.value) == f"Malformed telemetry JSONL record in {path} at line 2"


def test_of_many_bad_lines_the_first_are_told_and_all_are_counted(tmp_path):
    reading = TelemetryReading(write_lines(tmp_path / "events.jsonl", [record(), *[5] * 30]))
    assert len(list(reading)) == 1
    assert reading.skipped == 30
    assert len(reading.problems) == 21
    assert reading.problems[-1] == "and 10 more"


def test_a_line_that_is_no_object_is_named_when_strict(tmp_path):
    path = write_lines(tmp_path / "events.jsonl", [record(), 5])
    with pytest.raises(ValueError) as error:
        load_telemetry_events(path, strict=True)
    assert str(error.value) == f"Telemetry record in {path} at line 2 must be an object"


@given(st.integers(1, 700))
def test_a_torn_last_line_is_dropped_and_counted_wherever_it_is_cut(tmp_path_factory, cut):
    path = tmp_path_factory.getbasetemp() / "torn.jsonl"
    whole = json.dumps(record(timestamp_ns=1)).encode() + b"\n"
    last = json.dumps(record(timestamp_ns=2, context="Zürich \u2028 €"), ensure_ascii=False).encode()
    path.write_bytes(whole + last[:cut])
    for strict in (False, True):
        reading = TelemetryReading(path, strict=strict)
        assert [event.timestamp_ns for event in reading] == ([1, 2] if cut >= len(last) else [1])
        assert (reading.torn, reading.skipped) == (int(cut < len(last)), 0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["events.jsonl", "events.json"])
def test_a_byte_order_mark_and_line_separators_in_text_are_no_trouble(tmp_path, name, packed):
    records = [record(timestamp_ns=number, context="a\u2028b\u0085c") for number in range(2)]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\r\n" for one in records)
    text = lines if name.endswith("l") else json.dumps(records, ensure_ascii=False)
    data = codecs.BOM_UTF8 + text.encode()
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    for strict in (False, True):
        events = load_telemetry_events(path, strict=strict)
        assert [event.context for event in events] == ["a\u2028b\u0085c"] * 2


@pytest.mark.parametrize("name", ["events.jsonl.gz", "events.json.gz"])
def test_a_packed_file_that_was_cut_gives_what_can_be_unpacked(tmp_path, name):
    records = [record(timestamp_ns=number, context=str(hash(number * 7919) ** 3)) for number in range(400)]
    text = json.dumps(records) if ".json." in name else "".join(json.dumps(one) + "\n" for one in records)
    path = tmp_path / name
    packed = gzip.compress(text.encode())
    path.write_bytes(packed[: len(packed) // 2])
    reading = TelemetryReading(path)
    found = [event.timestamp_ns for event in reading]
    assert found == list(range(len(found)))
    assert 0 < len(found) < 400
    assert reading.torn == 1


def test_zeros_of_a_power_cut_are_skipped_and_counted(tmp_path):
    path = tmp_path / "events.jsonl"
    line = json.dumps(record()).encode()
    path.write_bytes(line + b"\n" + b"\0" * 64 + b"\n" + b"\0" * 8 + line + b"\n")
    reading = TelemetryReading(path)
    assert len(list(reading)) == 2
    assert reading.problems == [f"events.jsonl, byte {len(line) + 1}: zeros where a line was not written"]


def test_numbers_beyond_all_measure_fail_their_record_alone(tmp_path):
    path = tmp_path / "events.jsonl"
    odd = '{"timestamp": 1e400, "type": "sample"}\n{"timestamp": ' + "9" * 5000 + "}\n"
    path.write_text(odd + json.dumps({"timestamp": 1.0}) + "\n")
    assert times(path) == [1_000_000_000]


@pytest.mark.parametrize("context", [None, "x" * 300])
@pytest.mark.parametrize("indent", [None, 1])
def test_long_arrays_are_read_in_windows_that_end_between_events(tmp_path, context, indent):
    tricky = {"list": [{"a": 1}, {"b": [{"c": 2}, {}]}], "text": "}, {"}
    records = [record(timestamp_ns=number, metadata=tricky, context=context) for number in range(900)]
    records[450] = {"timestamp": 1e-9 * 450}
    records[451] = record(pid=-9)
    for document in (records, {"before": [1, 2], "events": records, "after": {"x": []}}):
        path = tmp_path / "events.json"
        path.write_text(json.dumps(document, indent=indent))
        reading = TelemetryReading(path)
        assert [event.timestamp_ns for event in reading] == [n for n in range(900) if n != 451]
        assert reading.problems == ["events.json, record 451: pid must be >= -1"]


@pytest.mark.parametrize(("cut", "left"), [(1, 3), (30, 3), (60, 2), (450, 2), (1200, 0)])
@pytest.mark.parametrize("packed", [False, True])
def test_an_object_that_breaks_off_gives_the_records_before(tmp_path, cut, left, packed):
    path = tmp_path / "events.json"
    members = {"before": {"events": [1, "}"]}, "events": [record(timestamp_ns=n) for n in range(3)]}
    text = json.dumps({**members, "after": ["more", "of this"]}).encode()[:-cut]
    path.write_bytes(gzip.compress(text)[:-8] if packed else text)
    reading = TelemetryReading(path)
    if left:
        assert [event.timestamp_ns for event in reading] == list(range(left))
        assert reading.problems == ["events.json ends in the middle of a record"]
    else:
        with pytest.raises(ValueError, match="breaks off before its first record ends"):
            list(reading)
    with pytest.raises(ValueError):
        load_telemetry_events(path, strict=True)


@pytest.mark.parametrize("text", ["[", '[{"pid": 3, "sess', '{"events": [', '{"eve', '{"type": "sam'])
def test_a_document_without_a_whole_record_is_an_error_and_not_empty(tmp_path, text):
    path = tmp_path / "events.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        load_telemetry_events(path)


def test_an_object_that_only_python_reads_is_not_taken_for_one_that_breaks_off(tmp_path):
    path = tmp_path / "events.json"
    path.write_text(json.dumps({"events": [record(metadata={"loss": float("nan")})], "after": 1}))
    reading = TelemetryReading(path)
    assert len(list(reading)) == 1
    assert reading.problems == []


def test_an_array_that_breaks_off_gives_the_records_before(tmp_path):
    path = tmp_path / "events.json"
    path.write_text(json.dumps([record(timestamp_ns=number) for number in range(5)])[:-30])
    reading = TelemetryReading(path)
    assert [event.timestamp_ns for event in reading] == [0, 1, 2, 3]
    assert reading.problems == ["events.json ends in the middle of a record"]
    with pytest.raises(ValueError):
        load_telemetry_events(path, strict=True)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("document", "key", "said"),
    [
        (5, None, "Telemetry payload must be a JSON object or array"),
        ({"a": 1}, None, "JSON payload does not contain telemetry events"),
        ({"events": 3}, None, "JSON payload does not contain telemetry events"),
        ({"events": []}, "data", "Top-level key 'data' must contain a list of events"),
        ({"data": {}}, "data", "Top-level key 'data' must contain a list of events"),
        ([1], None, "Event at index 0 must be an object"),
        ([{"type": "sample"}], None, "Legacy record is missing a valid timestamp"),
    ],
)
def test_a_document_without_telemetry_is_an_error(tmp_path, document, key, said, strict):
    path = tmp_path / "doc.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError) as error:
        load_telemetry_events(path, events_key=key, strict=strict)
    assert str(error.value).endswith(said)


@pytest.mark.parametrize("strict", [False, True])
def test_events_stand_under_a_key_or_alone(tmp_path, strict):
    path = tmp_path / "doc.json"
    for document, key in [
        ({"events": [record()]}, None),
        ({"events": [], "data": [record()]}, "data"),
        (record(), None),
        ([record()], "ignored"),
    ]:
        path.write_text(json.dumps(document))
        assert load_telemetry_events(path, events_key=key, strict=strict) == [TelemetryEventV3(**record())]
    path.write_text("[]")
    assert load_telemetry_sessions(path, strict=strict) == []


def test_records_without_session_have_one_of_their_path(tmp_path):
    unnamed = {name: value for name, value in record(schema_version=2).items() if name != "session_id"}
    lines = write_lines(tmp_path / "v2.jsonl", [unnamed])
    document = tmp_path / "v2.json"
    document.write_text(json.dumps({"data": [unnamed]}))
    (of_lines,), (of_document,) = (
        load_telemetry_sessions(lines),
        load_telemetry_sessions(document, events_key="data"),
    )
    assert of_lines.summary.session_id == stable_legacy_session_id(str(lines.resolve()), "sink")
    assert of_document.summary.session_id == stable_legacy_session_id(str(document.resolve()), "data")
    assert of_document.sources_loaded == [str(document.resolve())]
    with pytest.raises(ValueError):
        load_telemetry_events(write_lines(lines, [{"timestamp": 1}]), permissive_legacy=False)


def test_sessions_are_summed_up_by_their_events_and_sorted_by_how_they_ended(tmp_path):
    def event(session_id, at, kind="sample", **more):
        return record(session_id=session_id, timestamp_ns=at, event_type=kind, **more)

    path = write_lines(
        tmp_path / "many.jsonl",
        [
            event("open", 9),
            event("done", 5),
            event("done", 7, "stop"),
            event("done", 1, pid=3, job_id="j"),
            event("later", 2),
            event("later", 8, "stop"),
            event("later", 9),
        ],
    )
    sessions = load_telemetry_sessions(path)
    assert [(one.summary.session_id, one.summary.status) for one in sessions] == [
        ("later", "completed"),
        ("done", "completed"),
        ("open", "incomplete"),
    ]
    assert sessions[1].summary == SessionSummary(
        session_id="done",
        status="completed",
        started_at_ns=1,
        ended_at_ns=7,
        host="node-1",
        pid=3,
        job_id="j",
        source="artifact:many.jsonl",
    )
    assert [one.timestamp_ns for one in sessions[1].events] == [1, 5, 7]
    assert load_telemetry_events(path) == sessions[0].events
    assert load_telemetry_events(path, session_id="open") == sessions[2].events
    with pytest.raises(ValueError) as error:
        load_telemetry_events(path, session_id="none")
    assert str(error.value) == "Requested session_id not found: none"


def test_the_manifest_says_how_sessions_ended_and_whose_nameless_segments_are(tmp_path):
    ended = {"session_id": "m", "status": "interrupted", "started_at_ns": 4, "host": "h", "source": "s"}
    manifest = {
        "schema_version": 2,
        "sessions": [ended, {"session_id": 5}, "odd", {**ended, "session_id": "empty", "status": "running"}],
        "segments": [
            {"filename": "segment-000001.jsonl", "session_id": "m"},
            {"filename": "../x.jsonl"},
            {"filename": "segment-000009.jsonl"},
        ],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    write_lines(tmp_path / "segment-000001.jsonl", [{"timestamp": 1}])
    write_lines(tmp_path / "segment-000002.jsonl", [record(session_id="other")])
    for path in (tmp_path, tmp_path / "manifest.json"):
        found = load_telemetry_sessions(path)
        assert [(one.summary.session_id, one.summary.status, len(one.events)) for one in found] == [
            ("m", "interrupted", 1),
            ("other", "incomplete", 1),
            ("empty", "running", 0),
        ]
        assert found[0].sources_loaded == [str(tmp_path / "segment-000001.jsonl")]
        assert found[0].warnings == ["segment-000009.jsonl is not there any more"]


def test_what_is_not_there_is_an_error(tmp_path):
    write_lines(tmp_path / "sink" / "segment-000001.jsonl", [record()])
    missing = (tmp_path / "none.json", tmp_path / "sink" / "none.jsonl", tmp_path / "sink" / "manifest.json")
    for path in (tmp_path, *missing):
        with pytest.raises(OSError):
            load_telemetry_sessions(path)


@pytest.mark.parametrize("strict", [False, True])
def test_files_of_schema_v4_load_with_unknown_counters_unknown(tmp_path, strict):
    capable = {"memory_capabilities": {"backend": "mlx", "supports_device_used": False}}
    unknown = record(schema_version=4, metadata=capable, **dict.fromkeys(COUNTERS))
    known = record(schema_version=4, metadata=capable, timestamp_ns=5)
    path = write_lines(tmp_path / "v4.jsonl", [unknown, known, record()])
    loaded = list(TelemetryReading(path, strict=strict))
    assert [type(event) for event in loaded] == [TelemetryEventV4, TelemetryEventV4, TelemetryEventV3]
    assert [telemetry_event_to_dict(event) for event in loaded] == [unknown, known, record()]
    assert [loaded[0].device_used_bytes, loaded[1].device_used_bytes] == [None, 30]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device_used_bytes": -1}, "device_used_bytes must be >= 0 when provided"),
        ({"device_used_bytes": 101}, "device_used_bytes cannot exceed device_total_bytes"),
        ({"allocator_allocated_bytes": "1"}, "allocator_allocated_bytes must be an integer"),
        ({"extra": 1}, "Unknown telemetry fields: extra"),
        ({"metadata": None}, "metadata must be an object"),
        ({"rank": 1}, "rank must be < world_size"),
    ],
)
def test_files_of_schema_v4_have_their_rules_too(tmp_path, change, said):
    path = write_lines(tmp_path / "v4.jsonl", [record(schema_version=4, **change)])
    for strict in (False, True):
        with pytest.raises(ValueError) as error:
            load_telemetry_events(path, strict=strict)
        assert str(error.value).endswith(said)


def test_the_lines_of_a_run_load_too(tmp_path):
    line = {
        "event": "device_memory",
        "timestamp": "2026-05-20T03:52:00.000000Z",
        "writer": "w",
        "seq": 0,
        **record(),
    }
    assert load_telemetry_events(write_lines(tmp_path / "devices.jsonl", [line])) == [
        TelemetryEventV3(**record())
    ]


def test_a_local_rank_that_is_left_out_is_the_rank(tmp_path):
    on_another_host = record(rank=2, local_rank=0, world_size=3, timestamp_ns=1)
    left_out = {
        name: value for name, value in {**on_another_host, "timestamp_ns": 2}.items() if name != "local_rank"
    }
    left_out["metadata"] = {"local_rank": 0}
    path = write_lines(tmp_path / "ranks.jsonl", [on_another_host, left_out])
    document = tmp_path / "ranks.json"
    document.write_text(json.dumps([on_another_host, left_out]))
    for source in (path, document):
        assert [event.local_rank for event in TelemetryReading(source)] == [0, 2]


def test_a_line_beyond_all_measure_is_skipped_and_counted(tmp_path):
    path = tmp_path / "events.jsonl"
    line = json.dumps(record()).encode() + b"\n"
    path.write_bytes(line + b'"' + b"x" * (17 << 20) + b'"\n' + line)
    reading = TelemetryReading(path)
    assert len(list(reading)) == 2
    assert reading.skipped == 1


def test_importing_the_package_imports_no_device_files():
    program = "import sys, flightlog; print(*(name for name in sys.modules if 'devices' in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"flightlog.events.devices", "flightlog.events.devices.event"}


def test_public_names_are_where_they_are_said_to_be():
    import flightlog.devices

    assert all(hasattr(flightlog.devices, name) for name in flightlog.devices.__all__)
    assert Path(flightlog.devices.__file__).name == "devices.py"
