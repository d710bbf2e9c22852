from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from strategies import BUILT_IN_STREAMS, JSON, any_event

from flightlog.core.errors import UsageError
from flightlog.events import define_event, kind_of, kinds, streams
from flightlog.events.codec import encode_line
from flightlog.events.schema import json_schema

VALIDATORS = {stream: Draft202012Validator(json_schema(stream)) for stream in (None, *BUILT_IN_STREAMS)}


@pytest.mark.parametrize("stream", VALIDATORS)
def test_the_schema_of_every_stream_is_a_schema(stream):
    Draft202012Validator.check_schema(json_schema(stream))


@given(any_event(), st.dictionaries(st.just("of a newer writer"), JSON))
def test_every_line_is_valid_also_with_fields_of_newer_writers(event, more):
    line = json.loads(encode_line(event)) | more
    for stream in (type(event).stream, None):
        assert [error.message for error in VALIDATORS[stream].iter_errors(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"event": "task_started"},
        {"event": "cache_lookup", "task": "f", "result": "perhaps", "key": None},
        {"event": "metric", "name": "loss", "value": "low"},
    ],
)
def test_lines_that_break_their_declaration_are_not_valid(line):
    assert not VALIDATORS[None].is_valid(line)


def test_the_schema_of_all_streams_knows_every_kind():
    assert json_schema()["$defs"].keys() >= kinds().keys()
    for stream in BUILT_IN_STREAMS:
        assert set(json_schema(stream)["$defs"]) == {kind_of(cls) for cls in streams()[stream]}


def test_fields_have_their_meaning_and_their_unit():
    properties = json_schema("tasks")["$defs"]["task_completed"]["properties"]
    assert properties["duration_s"] == {
        "description": "execution alone, on the worker's monotonic clock",
        "unit": "s",
        "anyOf": [{"type": "number"}, {"type": "null"}],
    }
    assert json_schema("devices")["$defs"]["device_memory"]["properties"]["device_used_bytes"] == {
        "description": "in use on the device, by everyone",
        "unit": "bytes",
        "type": "integer",
    }


@pytest.mark.parametrize(
    ("suffix", "unit"),
    [
        ("_s", "s"),
        ("_bytes", "bytes"),
        ("_percent", "percent"),
        ("_bytes_per_s", "bytes/s"),
        ("_w", "W"),
        ("_c", "°C"),
        ("_ms", "ms"),
        ("_ns", "ns"),
    ],
)
def test_a_unit_in_a_name_is_the_declared_unit(suffix, unit):
    wrong = [
        f"{kind}.{name}"
        for stream in BUILT_IN_STREAMS
        for kind, definition in json_schema(stream)["$defs"].items()
        for name, field in definition["properties"].items()
        if name.endswith(suffix) and (suffix != "_s" or not name.endswith("_per_s"))
        if field.get("unit") != unit
    ]
    assert wrong == []


class Part(msgspec.Struct):
    size: int


def test_users_events_of_one_name_in_two_namespaces_both_have_their_schema():
    define_event("schema_a.Fit", loss=float, part=Part)
    define_event("schema_a.inner.Fit", steps=int)
    validator = Draft202012Validator(json_schema())
    assert validator.is_valid({"event": "schema_a.Fit", "loss": 0.5, "part": {"size": 1}})
    assert not validator.is_valid({"event": "schema_a.Fit", "loss": 0.5, "part": {"size": "big"}})
    assert validator.is_valid({"event": "schema_a.inner.Fit", "steps": 1})
    assert not validator.is_valid({"event": "schema_a.inner.Fit", "loss": 0.5})


@pytest.mark.parametrize(
    ("wrong", "right"), [("taks", "tasks"), ("resource", "resources"), ("Spans", "spans")]
)
def test_an_unknown_stream_is_an_error_that_names_the_nearest_and_all(wrong, right):
    with pytest.raises(UsageError) as error:
        json_schema(wrong)
    assert f"Did you mean {right!r}?" in str(error.value)
    assert all(stream in str(error.value) for stream in BUILT_IN_STREAMS)
