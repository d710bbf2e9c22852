from __future__ import annotations

import json
from datetime import datetime
from enum import Enum
from typing import Any

import duckdb
import pytest
from builders.examples import FEW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import BUILT_IN_STREAMS, TIMESTAMPS, events_like

from flightlog.core.errors import UsageError
from flightlog.events import Event, TaskSubmitted, define_event, kind_of, streams
from flightlog.events.codec import encode_line
from flightlog.events.columns import columns, event_columns, projection


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as made:
        made.execute("SET TimeZone = 'America/St_Johns'")
        yield made


def read(connection, path, stream, selected) -> list[dict[str, Any]]:
    found = connection.execute(
        f"SELECT {selected} FROM read_json(?, columns=?, format='newline_delimited', ignore_errors=true)",
        [str(path), columns(stream)],
    )
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def row_of(event: Event, stream: str) -> dict[str, Any]:
    """The row that holds an event: null where it has no such field, and where a common field says nothing."""
    row = {name: getattr(event, name, None) for name in columns(stream)} | {"event": kind_of(event)}
    row["timestamp"] = datetime.fromisoformat(event.timestamp.removesuffix("Z")) if event.timestamp else None
    row["writer"] = event.writer or None
    row["seq"] = None if event.seq == -1 else event.seq
    return row


@pytest.mark.parametrize("stream", BUILT_IN_STREAMS)
@settings(FEW, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_table_of_a_stream_holds_its_events_with_every_value(stream, data, connection, tmp_path):
    events = [data.draw(events_like(cls)) for cls in streams()[stream]]
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"".join(map(encode_line, events)))
    rows = read(connection, path, stream, projection(stream))
    for row in rows:  # compared as values: DuckDB may write a number another way
        row.update(
            (name, json.loads(row[name]))
            for name, kind in columns(stream).items()
            if kind == "JSON" and row[name]
        )
    assert rows == [row_of(event, stream) for event in events]


@given(TIMESTAMPS)
@settings(FEW, suppress_health_check=list(HealthCheck))
def test_time_is_utc_whatever_the_session_s_time_zone(connection, tmp_path, timestamp):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(encode_line(TaskSubmitted(task="t", task_id="1", args={}, timestamp=timestamp)))
    (row,) = read(connection, path, "tasks", "strftime(timestamp, '%Y-%m-%dT%H:%M:%S.%fZ') AS timestamp")
    assert row == {"timestamp": timestamp}


@pytest.mark.parametrize("stream", BUILT_IN_STREAMS)
def test_the_events_of_a_stream_agree_on_the_type_of_each_column(stream):
    types: dict[str, set[str]] = {}
    for cls in streams()[stream]:
        for name, kind in event_columns(cls).items():
            types.setdefault(name, set()).add(kind)
    assert {name: {kind} for name, kind in columns(stream).items()} == types


@pytest.mark.parametrize("stream", BUILT_IN_STREAMS)
def test_kind_and_common_fields_come_first(stream):
    assert list(columns(stream).items())[:4] == [
        ("event", "VARCHAR"),
        ("timestamp", "TIMESTAMP"),
        ("writer", "VARCHAR"),
        ("seq", "BIGINT"),
    ]


class Colour(Enum):
    RED = "red"


def test_each_declared_type_has_its_column():
    define_event(
        "columns_types.All",
        a=bool,
        b=int | None,
        c=float,
        d=str,
        e=list[str],
        f=dict[str, int],
        g=list[list[int]],
        h=datetime,
        i=Colour,
        j=Any,
        k=int | float,
        l=int | str,
        m=list[float],
        n=bytes,
    )
    assert list(columns("user.columns_types").values())[4:] == [
        "BOOLEAN",
        "BIGINT",
        "DOUBLE",
        "VARCHAR",
        "VARCHAR[]",
        "JSON",
        "JSON",
        "VARCHAR",
        "VARCHAR",
        "JSON",
        "DOUBLE",
        "JSON",
        "DOUBLE[]",
        "VARCHAR",
    ]


def test_users_events_that_disagree_on_a_field_meet_in_a_type_that_holds_both(connection, tmp_path):
    one = define_event("columns_meet.One", x=int, y=int, step=(int, -1), note=(str, "it's"))
    two = define_event("columns_meet.Two", x=float, y=str, step=(int, 0), Note=(str, ""))
    stream = "user.columns_meet"
    assert dict(list(columns(stream).items())[4:]) == {
        "x": "DOUBLE",
        "y": "JSON",
        "step": "BIGINT",
        "note": "VARCHAR",
    }
    path = tmp_path / "lines.jsonl"
    path.write_bytes(encode_line(one(x=1, y=2)) + encode_line(two(x=0.5, y="b", step=3)))
    rows = [list(row.values())[4:] for row in read(connection, path, stream, projection(stream))]
    assert rows == [[1.0, "2", -1, "it's"], [0.5, '"b"', 3, None]]


def test_a_null_that_was_written_is_not_taken_for_a_default(connection, tmp_path):
    event = define_event("columns_null.Step", step=(int | None, -1))
    path = tmp_path / "lines.jsonl"
    path.write_bytes(encode_line(event(step=None)) + encode_line(event(step=3)))
    rows = read(connection, path, "user.columns_null", projection("user.columns_null"))
    assert [row["step"] for row in rows] == [None, 3]


def test_an_unknown_stream_is_an_error_that_names_the_nearest():
    with pytest.raises(
        UsageError, match=r"no stream 'task'\. Did you mean 'tasks'\? The streams are .*spans"
    ):
        columns("task")
