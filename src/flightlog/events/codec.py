"""Events to lines and back. Writing is strict; reading tolerates torn, foreign and newer lines."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, NoReturn, Union

import msgspec
from msgspec import Struct

from flightlog.events.base import Event, class_of, classes_in, frozen_class

_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NotAnEvent(ValueError):  # noqa: N818 - reads as what happened
    """The line is not a JSON object: torn, foreign or damaged."""


class UnknownEvent(Struct, frozen=True):
    """An object that no declared event fits: of an unknown kind, of none, or without a field it must have.

    `data` is the whole object as it stood in the line. `writer`, `seq` and `timestamp` read it, and are what
    an event's own would be where it does not say: `""`, `-1` and `""`.
    """

    kind: str | None
    data: dict[str, Any]

    @property
    def timestamp(self) -> str:
        """When it happened, at its source."""
        return self._text("timestamp")

    @property
    def writer(self) -> str:
        """Which process wrote the line."""
        return self._text("writer")

    @property
    def seq(self) -> int:
        """Number of the line within its writer and stream."""
        value = self.data.get("seq")
        return value if isinstance(value, int) and not isinstance(value, bool) else -1

    def _text(self, name: str) -> str:
        value = self.data.get(name)
        return value if isinstance(value, str) else ""


class Decoded(NamedTuple):
    """What a line holds: the event, and the fields that the event's declaration has no place for."""

    event: Event | UnknownEvent
    extra: dict[str, Any]


_ENCODER = msgspec.json.Encoder()
_OBJECT: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def encode_line(event: Event) -> bytes:
    """The event's line, newline included. NaN and infinities become null.

    Text that holds lone surrogates, or values JSON has no form for, raise: the recorder has replaced them
    before.
    """
    return _ENCODER.encode(event) + b"\n"


def decode_line(line: bytes | memoryview, *, frozen: bool = False) -> Decoded:
    """The event of a line; a byte order mark and white space around it are ignored.

    Fields that the declaration does not know are kept aside in `extra`. So are values of another type than
    declared, as newer writers may have them: the field's default stands in their place, or None where the
    field may be null. Where neither can, and where the kind is unknown, the event is an `UnknownEvent` with
    the whole object. Raises `NotAnEvent`, and nothing else, for what is not a JSON object.

    Fields of a `frozen` event cannot be assigned to. A number of it that must be there, and stands as null
    since it was NaN or infinite, is that again.
    """
    data = _read_object(bytes(line).strip().removeprefix(_BOM))
    kind = data.get("event")
    if not isinstance(kind, str):
        return Decoded(UnknownEvent(None, data), {})
    cls = class_of(kind)
    if cls is None:
        return Decoded(UnknownEvent(kind, data), {})
    if frozen:
        cls = frozen_class(cls)
    try:
        event = msgspec.convert(data, cls)
    except msgspec.ValidationError:
        return _decode_by_field(kind, cls, data)
    known = {"event", *cls.__struct_fields__}
    return Decoded(event, {name: value for name, value in data.items() if name not in known})


class StreamDecoder:
    """Decodes the lines of one stream in bulk: what `decode_line` gives, less the fields kept aside.

    Ordinary lines take one pass of a decoder made for the stream's events; all others go through
    `decode_line`. Events that are defined later are taken up when the first of them comes by.
    """

    def __init__(self, stream: str, *, frozen: bool = False) -> None:
        self._stream, self._frozen = stream, frozen
        self._classes: tuple[type[Event], ...] | None = None
        self._decoder: msgspec.json.Decoder[Event]
        self._take_up_new_classes()

    def decode(self, line: bytes | memoryview) -> Event | UnknownEvent:
        """The event of a line; raises `NotAnEvent` for what is not a JSON object."""
        try:
            event = self._decoder.decode(line)
            if type(event) is not _NoEvent:
                return event
        except _UNREADABLE:
            pass
        self._take_up_new_classes()
        return decode_line(line, frozen=self._frozen).event

    def _take_up_new_classes(self) -> None:
        classes = classes_in(self._stream)
        if classes != self._classes:
            self._classes = classes
            self._decoder = _decoder_of(tuple(map(frozen_class, classes)) if self._frozen else classes)


class _NoEvent(Event, tag=""):
    """Makes every stream's type a union: of a single class, msgspec takes objects without an `event` too."""


@cache
def _decoder_of(classes: tuple[type[Event], ...]) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(Union[(*classes, _NoEvent)])


def _read_object(text: bytes) -> dict[str, Any]:
    try:
        data = _OBJECT.decode(text)
    except _UNREADABLE:
        data = _read_object_slowly(text)
    if not isinstance(data, dict):
        raise NotAnEvent(f"expected a JSON object, found {_glimpse(text)}")
    return data


def _read_object_slowly(text: bytes) -> Any:
    """Valid JSON that the fast decoder refuses: numbers out of range stand as text, lone surrogates
    escaped.
    """
    try:
        return _representable(
            json.loads(
                text.decode(), parse_float=_float_or_text, parse_int=_int_or_text, parse_constant=_refuse
            )
        )
    except (ValueError, RecursionError) as error:
        raise NotAnEvent(f"not JSON: {_glimpse(text)}") from error


def _float_or_text(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _int_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # longer than the interpreter's limit on digits
        return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _representable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_representable(item) for item in value]
    if isinstance(value, dict):
        return {_representable(name): _representable(item) for name, item in value.items()}
    return value


def _glimpse(text: bytes) -> str:
    return repr(text[:60]) + ("…" if len(text) > 60 else "")


def _decode_by_field(kind: str, cls: type[Event], data: dict[str, Any]) -> Decoded:
    """Each field by itself, for a line that does not fit its declaration as a whole."""
    fields: dict[str, Any] = {}
    extra = {name: value for name, value in data.items() if name != "event"}
    for field, takes_null in declared_fields(cls):
        if field.name in extra:
            with suppress(msgspec.ValidationError):
                fields[field.name] = _convert(extra[field.name], field.type)
                del extra[field.name]
        if field.name not in fields and field.required:
            if takes_null:
                fields[field.name] = None
            elif cls.__struct_config__.frozen and _is_nonfinite(field, data):
                fields[field.name] = _nonfinite(data.get("nonfinite"), field.name)
            else:
                return Decoded(UnknownEvent(kind, data), {})
    return Decoded(cls(**fields), extra)


def _is_nonfinite(field: msgspec.structs.FieldInfo, data: dict[str, Any]) -> bool:
    """Whether a number that must be there stands as null, as NaN and infinities do."""
    if field.name not in data or data[field.name] is not None:
        return False
    try:
        return type(msgspec.convert(0.5, field.type)) is float
    except msgspec.ValidationError:
        return False


def _nonfinite(marks: Any, name: str) -> float:
    mark = marks.get(name) if isinstance(marks, dict) else None
    return float(mark) if mark in ("inf", "-inf") else math.nan


def _convert(value: Any, to: Any) -> Any:
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError:
        if isinstance(value, float) and value.is_integer():  # tables write whole numbers as 3.0
            return msgspec.convert(int(value), to)
        raise


@cache
def declared_fields(cls: type[Event]) -> list[tuple[msgspec.structs.FieldInfo, bool]]:
    """The declared fields, and whether each may be null."""
    return [(field, _takes_null(field.type)) for field in msgspec.structs.fields(cls)]


def _takes_null(annotation: Any) -> bool:
    try:
        msgspec.convert(None, annotation)
    except msgspec.ValidationError:
        return False
    return True
