from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BUILT_IN_STREAMS, JSON, TEXT, any_event

from flightlog.events import CacheLookup, Metric, SpanEvent, TaskStarted, TaskSubmitted, define_event, kind_of
from flightlog.events.codec import Decoded, NotAnEvent, StreamDecoder, UnknownEvent, decode_line, encode_line


@given(any_event())
def test_every_event_comes_back_from_its_line_unchanged(event):
    line = encode_line(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line) == Decoded(event, {})


@given(any_event())
def test_bulk_decoding_gives_the_same_events(event):
    assert StreamDecoder(type(event).stream).decode(memoryview(encode_line(event))) == event


@given(any_event(), st.dictionaries(TEXT.map(lambda name: f"new {name}"), JSON, max_size=5))
def test_fields_that_are_not_declared_are_kept_aside_exactly(event, fields):
    line = msgspec.json.encode(msgspec.to_builtins(event) | fields)
    assert decode_line(line) == Decoded(event, fields)
    assert StreamDecoder(type(event).stream).decode(line) == event


@given(
    st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")) | JSON.map(msgspec.json.encode)
)
def test_arbitrary_bytes_are_an_unknown_event_or_not_an_event(line):
    for decode in (lambda text: decode_line(text).event, StreamDecoder("tasks").decode):
        try:
            assert isinstance(decode(line), UnknownEvent)
        except NotAnEvent:
            pass


@given(any_event(), st.data())
def test_a_line_cut_or_damaged_anywhere_never_raises_anything_but_not_an_event(event, data):
    line = bytearray(encode_line(event))
    if data.draw(st.booleans()):
        del line[data.draw(st.integers(0, len(line))) :]
    else:
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    for decode in (decode_line, StreamDecoder(type(event).stream).decode):
        try:
            decode(bytes(line))
        except NotAnEvent:
            pass


@given(any_event(), st.data())
def test_a_value_of_any_other_type_loses_neither_the_line_nor_the_value(event, data):
    cls = type(event)
    name = data.draw(st.sampled_from(cls.__struct_fields__))
    line = msgspec.to_builtins(event) | {name: data.draw(JSON)}
    decoded = decode_line(msgspec.json.encode(line))
    if isinstance(decoded.event, UnknownEvent):
        assert decoded == Decoded(UnknownEvent(kind_of(cls), line), {})
    elif decoded.extra:
        assert decoded.extra == {name: line[name]}
    else:
        value = getattr(decoded.event, name)
        # a whole number beyond 2**53 is the nearest float, in a field of floats
        assert value == (float(line[name]) if isinstance(value, float) else line[name])


@given(any_event())
def test_a_line_that_lacks_its_optional_fields_decodes(event):
    cls = type(event)
    required = {field.name for field in msgspec.structs.fields(cls) if field.required}
    line = {name: value for name, value in msgspec.to_builtins(event).items() if name in {"event", *required}}
    assert decode_line(msgspec.json.encode(line)) == Decoded(
        cls(**{name: getattr(event, name) for name in required}), {}
    )


def test_a_newer_type_is_kept_aside_and_the_default_stands_in_its_place():
    line = (
        b'{"event":"task_started","task":"sim","task_id":"t1","worker":{"id":7},'
        b'"queue_s":0.5,"attempt":"second"}'
    )
    event = TaskStarted(task="sim", task_id="t1", worker=None, queue_s=0.5)
    assert decode_line(line) == Decoded(event, {"worker": {"id": 7}, "attempt": "second"})
    assert StreamDecoder("tasks").decode(line) == event


def test_a_field_that_may_be_null_may_be_missing():
    assert decode_line(b'{"event":"task_started","task":"sim","task_id":"t1"}') == Decoded(
        TaskStarted(task="sim", task_id="t1", worker=None, queue_s=None), {}
    )


@pytest.mark.parametrize(
    "fields", [{"task": "sim"}, {"task": "sim", "task_id": None}, {"task": 1, "task_id": "t"}]
)
def test_an_event_without_a_field_it_must_have_is_unknown_but_whole(fields):
    line = {
        "event": "task_started",
        "writer": "w1",
        "seq": 4,
        "timestamp": "2026-05-20T03:52:00.000000Z",
        **fields,
    }
    event, extra = decode_line(msgspec.json.encode(line))
    assert (event, extra) == (UnknownEvent("task_started", line), {})
    assert (event.writer, event.seq, event.timestamp) == ("w1", 4, "2026-05-20T03:52:00.000000Z")


def test_a_new_value_of_a_closed_set_makes_the_event_unknown():
    line = b'{"event":"cache_lookup","task":"f","result":"stale","key":null}'
    data = {"event": "cache_lookup", "task": "f", "result": "stale", "key": None}
    assert StreamDecoder("cache").decode(line) == UnknownEvent("cache_lookup", data)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"{}", None),
        (b'{"event":7}', None),
        (b'{"event":""}', ""),
        (b'{"event":"later_kind","x":1}', "later_kind"),
    ],
)
def test_unknown_kinds_and_objects_without_one_are_returned_as_such(line, kind):
    expected = UnknownEvent(kind, msgspec.json.decode(line))
    assert decode_line(line) == Decoded(expected, {})
    for stream in (*BUILT_IN_STREAMS, "user.nobody"):
        assert StreamDecoder(stream).decode(line) == expected


def test_an_unknown_event_does_not_guess_its_writer_number_and_time():
    event = UnknownEvent(None, {"writer": 1, "seq": True, "timestamp": None})
    assert (event.writer, event.seq, event.timestamp) == ("", -1, "")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"[]",
        b'"text"',
        b"null",
        b"12",
        b'{"event":"span"',
        b'{"event":"span"} {}',
        b'{"event":"span","duration_s":NaN}',
        b'{"event":"span","duration_s":Infinity}',
        b'{"event":"span","name":"\xff"}',
        b'{"event":"span","name":"caf\xc3',
        b'{"event":"span"}' + bytes(64),
        b'{"a":' * 100_000,
        '{"event":"span"}'.encode("utf-16"),
    ],
    ids=lambda line: repr(line[:24]),
)
def test_what_is_not_a_json_object_is_not_an_event(line):
    with pytest.raises(NotAnEvent):
        decode_line(line)
    with pytest.raises(NotAnEvent):
        StreamDecoder("spans").decode(line)


def test_byte_order_mark_carriage_return_and_white_space_are_ignored():
    line = b'\xef\xbb\xbf \t{"event":"span","name":"a"} \r\n'
    assert decode_line(line) == Decoded(SpanEvent(name="a"), {})
    assert StreamDecoder("spans").decode(memoryview(line)) == SpanEvent(name="a")


def test_numbers_out_of_range_are_kept_aside_as_they_were_written():
    digits = "9" * 5000
    line = f'{{"event":"span","name":"a","duration_s":1e400,"thread":{digits}}}'.encode()
    assert decode_line(line) == Decoded(SpanEvent(name="a"), {"duration_s": "1e400", "thread": digits})


def test_whole_numbers_written_as_floats_are_whole_numbers():
    line = b'{"event":"metric","name":"loss","value":1,"step":3.0,"seq":7.0}'
    assert decode_line(line) == Decoded(Metric(name="loss", value=1.0, step=3, seq=7), {})


def test_a_lone_surrogate_is_shown_as_its_escape():
    assert decode_line(b'{"event":"span","name":"a\\udc80b"}') == Decoded(SpanEvent(name="a\\udc80b"), {})


def test_line_separators_inside_text_do_not_end_the_line():
    event = TaskSubmitted(task="a\u2028b\nc\x85\x00", task_id="t", args={"\r": "\u2029"})
    line = encode_line(event)
    assert line.split(b"\n") == [line[:-1], b""]
    assert decode_line(line).event == event


def test_a_number_that_is_not_finite_is_written_as_null():
    line = encode_line(Metric(name="loss", value=math.nan, nonfinite="nan"))
    assert decode_line(line).event == Metric(name="loss", value=None, nonfinite="nan")


def test_an_event_of_another_stream_is_read_all_the_same():
    event = CacheLookup(task="f", result="hit", key="k")
    assert StreamDecoder("tasks").decode(encode_line(event)) == event


def test_events_defined_after_the_decoder_was_made_are_taken_up():
    decoder = StreamDecoder("user.codec_tests")
    line = b'{"event":"codec_tests.Epoch","loss":0.5}'
    assert decoder.decode(line) == UnknownEvent(
        "codec_tests.Epoch", {"event": "codec_tests.Epoch", "loss": 0.5}
    )
    epoch = define_event("codec_tests.Epoch", loss=float, step=(int, -1))
    assert [decoder.decode(line), decoder.decode(line)] == [epoch(loss=0.5), epoch(loss=0.5)]
    batch = define_event("codec_tests.Batch", size=int)
    assert decoder.decode(b'{"event":"codec_tests.Batch","size":3}') == batch(size=3)
