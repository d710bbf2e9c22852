"""The fields that every event has, and the registry of event classes by kind and stream."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, cast

from msgspec import Meta, Struct, defstruct
from msgspec.structs import asdict

from flightlog.core.errors import UsageError

SCHEMA_VERSION = 1
"""Version of the run directory's events. A reader takes newer ones too: what it does not know it keeps
aside."""


def doc(text: str) -> Meta:
    """A field's documentation, which the JSON Schema and the reference page show."""
    return Meta(description=text)


def unit(symbol: str) -> Meta:
    """A field's unit, which the JSON Schema and the reference page show."""
    return Meta(extra_json_schema={"unit": symbol})


Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, extra={"sql": "TIMESTAMP"})]
"""ISO 8601, UTC, microseconds, `Z`."""
Seconds = Annotated[float, unit("s")]
Bytes = Annotated[int, unit("bytes")]
Percent = Annotated[float, unit("percent")]
BytesPerSecond = Annotated[float, unit("bytes/s")]
Watts = Annotated[float, unit("W")]
Celsius = Annotated[float, unit("°C")]
Joules = Annotated[float, unit("J")]
Megahertz = Annotated[float, unit("MHz")]
Milliseconds = Annotated[int, unit("ms")]
Nanoseconds = Annotated[int, unit("ns")]
Json = dict[str, Any]
"""A flat mapping of JSON values; the recorder has bounded and redacted it."""


class Event(Struct, tag_field="event", omit_defaults=True):
    """One line of a stream: a flat JSON object with its kind, its time and its number.

    Fields without a default are always written, as `null` where unknown. Fields with a default are left out
    of the line while they hold it. `writer` and `seq` number the lines of each writer in each stream, so that
    lost and doubled lines can be counted.
    """

    stream: ClassVar[str] = ""
    of_user: ClassVar[bool] = False

    timestamp: Annotated[Timestamp, doc("when it happened, at its source")] = ""
    writer: Annotated[str, doc("which process wrote the line")] = ""
    seq: Annotated[int, doc("number of the line within its writer and stream, from 0")] = -1


_KINDS: dict[str, type[Event]] = {}
_STREAMS: dict[str, list[type[Event]]] = {}
learned: set[type[Event]] = set()
"""Classes as runs tell of them: a definition of this program's takes their place."""

E = TypeVar("E", bound=type[Event])


def register(cls: E) -> E:
    """Add an event class to the register under its kind and its stream; the decorator of every event."""
    name = kind_of(cls)
    if (known := _KINDS.get(name)) is not None:
        if known not in learned:
            raise ValueError(
                f"event kind {name!r} is declared twice: {known.__qualname__} and {cls.__qualname__}"
            )
        _STREAMS[known.stream].remove(known)
    _KINDS[name] = cls
    _STREAMS.setdefault(cls.stream, []).append(cls)
    return cls


def kind_of(event: Event | type[Event]) -> str:
    """The value of the line's `event` field."""
    return str(event.__struct_config__.tag)


def class_of(kind: str) -> type[Event] | None:
    """The declared event class of a kind; None where none is declared."""
    return _KINDS.get(kind)


def classes_in(stream: str) -> tuple[type[Event], ...]:
    """The event classes of a stream, in order of declaration; empty where none is declared."""
    return tuple(_STREAMS.get(stream, ()))


@cache
def frozen_class(cls: type[Event]) -> type[Event]:
    """The same event, of which no field can be assigned to: what those who follow a run are given."""
    about = {"__doc__": cls.__doc__, "__reduce__": _reduce_frozen}
    made = defstruct(
        cls.__name__, (), bases=(cls,), module=cls.__module__, namespace=about, frozen=True, tag=kind_of(cls)
    )
    return cast(type[Event], made)


def _reduce_frozen(event: Event) -> tuple[Any, ...]:
    return _make_frozen, (type(event).__bases__[0], asdict(event))


def _make_frozen(cls: type[Event], fields: dict[str, Any]) -> Event:
    return frozen_class(cls)(**fields)


def copy_event(event: Event) -> Event:
    """A copy that may be changed, also of a frozen event."""
    cls = type(event)
    return (cast(type[Event], cls.__bases__[0]) if cls.__struct_config__.frozen else cls)(**asdict(event))


def kinds() -> dict[str, type[Event]]:
    """Every declared event class by kind."""
    return dict(_KINDS)


def streams() -> dict[str, tuple[type[Event], ...]]:
    """Every declared stream with its event classes, in order of declaration."""
    return {name: tuple(classes) for name, classes in _STREAMS.items()}


def events_of(stream: str) -> tuple[type[Event], ...]:
    """The event classes of a stream, in order of declaration; a `UsageError` where none is declared."""
    if stream in _STREAMS:
        return classes_in(stream)
    from flightlog.core.plugins import did_you_mean

    hint = did_you_mean(stream, _STREAMS)
    raise UsageError(f"there is no stream {stream!r}.{hint} The streams are {', '.join(_STREAMS)}.")
