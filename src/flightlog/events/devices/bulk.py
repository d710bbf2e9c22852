"""Whole events in one step, for the many that are plainly valid; all others take the way of single
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from flightlog.events.devices.event import TelemetryEvent, TelemetryEventV3, TelemetryEventV4

_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _LocalRank(Struct):
    local_rank: int | UnsetType = UNSET


_LOCAL_RANK = msgspec.json.Decoder(_LocalRank)
_LOCAL_RANKS = msgspec.json.Decoder(list[_LocalRank])


def break_a_rule(events: Sequence[TelemetryEvent]) -> list[TelemetryEvent]:
    """Those decoded events that break a rule between fields, or hold blank text: what the decoder does not
    check.
    """
    return [
        event
        for event in events
        if (
            (total := event.device_total_bytes) is not None
            and (
                ((used := event.device_used_bytes) is not None and used > total)
                or ((free := event.device_free_bytes) is not None and free > total)
            )
        )
        or event.rank >= event.world_size
        or event.local_rank >= event.world_size
        or event.session_id.isspace()
        or event.event_type.isspace()
        or event.collector.isspace()
        or event.host.isspace()
        or ((job := event.job_id) is not None and job.isspace())
    ]


def event_from_plain_record(record: Mapping[str, Any]) -> TelemetryEvent | None:
    """The event of a record of v3 that is plainly valid; None for any other."""
    if type(record) is not dict or ("local_rank" not in record and "rank" in record):
        return None
    try:
        event = msgspec.convert(record, TelemetryEventV3)
    except (msgspec.ValidationError, RecursionError):
        return None
    if break_a_rule([event]):
        return None
    event.metadata = dict(record["metadata"])  # its values as they are, not as a decoder would copy them
    return event


class BulkDecoder:
    """Decodes JSON events of v3 and v4 many at a time; not thread-safe.

    Tries the version that it met last first, as files rarely mix them.
    """

    def __init__(self) -> None:
        self._kinds: list[type[TelemetryEventV3]] = [TelemetryEventV3, TelemetryEventV4]
        self._one = {kind: msgspec.json.Decoder(kind) for kind in self._kinds}
        self._many = {kind: msgspec.json.Decoder(list[kind]) for kind in self._kinds}  # type: ignore[valid-type]

    def lines(self, block: bytes) -> list[TelemetryEvent] | None:
        """The events of whole lines; None unless every one is plainly valid."""
        return self._decode(
            lambda kind: self._one[kind].decode_lines(block), lambda: _LOCAL_RANK.decode_lines(block)
        )

    def array(self, text: bytes) -> list[TelemetryEvent] | None:
        """The events of a JSON array; None unless every one is plainly valid."""
        return self._decode(lambda kind: self._many[kind].decode(text), lambda: _LOCAL_RANKS.decode(text))

    def _decode(
        self,
        decode: Callable[[type[TelemetryEventV3]], list[TelemetryEvent]],
        local_ranks: Callable[[], list[_LocalRank]],
    ) -> list[TelemetryEvent] | None:
        for kind in tuple(self._kinds):
            try:
                events = decode(kind)
            except _REFUSED:
                continue
            if kind is not self._kinds[0]:
                self._kinds.reverse()
            if break_a_rule(events):
                return None
            if any([event.rank and not event.local_rank for event in events]):  # noqa: C419 - a list is faster
                _fill_in(events, local_ranks())
            return events
        return None


def _fill_in(events: Sequence[TelemetryEvent], given: Sequence[_LocalRank]) -> None:
    """Tell a local rank of 0 from one that was left out, which is the rank."""
    for event, found in zip(events, given, strict=True):
        if found.local_rank is UNSET:
            event.local_rank = event.rank
