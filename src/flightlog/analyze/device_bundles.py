"""The bundles that running out of memory leaves in a run: `oom/<n>-<time>/bundle.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.analyze.device_counters import path_in, phase_of, text_in, whole_in
from flightlog.analyze.device_requests import parse_request
from flightlog.analyze.device_results import Request
from flightlog.analyze.device_track import is_oom
from flightlog.store import layout
from flightlog.store.liveness import unix_time
from flightlog.store.regular_files import read_regular

BUNDLE = "bundle.json"
LARGEST = 16 << 20
"""A bundle's document is a few kilobytes; one larger than that is none."""


class Bundle(NamedTuple):
    """What a bundle says; None is unknown."""

    folder: str
    time_ns: int | None
    session_id: str | None
    rank: int | None
    host: str | None
    pid: int | None
    device_id: int | None
    phase: str | None
    span_path: list[str]
    message: str | None
    request: Request


def read_bundles(run: Path) -> tuple[list[Bundle], list[str]]:
    """The bundles of a run in the order of their names, and sentences on those that cannot be read."""
    found, problems = [], []
    for file in sorted((run / layout.OOM).glob(f"*/{BUNDLE}"), key=lambda file: _number(file.parent.name)):
        name = f"{layout.OOM}/{file.parent.name}"
        try:
            document = msgspec.json.decode(read_regular(file, LARGEST))
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{name}/{BUNDLE} cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        if isinstance(document, dict):
            if _is_oom(document):
                found.append(_bundle(name, document))
        else:
            problems.append(f"{name}/{BUNDLE} cannot be read: it holds no JSON object")
    return found, problems


def _is_oom(said: Mapping[str, Any]) -> bool:
    """Whether memory ran out; a bundle may also have been asked for."""
    return said.get("oom") is not False or is_oom(text_in(said, "message"), text_in(said, "error_type"))


def _number(name: str) -> tuple[int, str]:
    first = name.partition("-")[0]
    return (int(first) if first.isdecimal() else 1 << 62, name)


def _bundle(folder: str, said: Mapping[str, Any]) -> Bundle:
    error, where = _part(said, "error"), _part(said, "identity")
    message = text_in(said, "message", "error", "error_message") or text_in(error, "message")
    path = path_in(said)
    context = text_in(said, "context", "phase") or (path[-1] if path else None)
    return Bundle(
        folder=folder,
        time_ns=_time(said),
        session_id=text_in(said, "session_id") or text_in(where, "session_id"),
        rank=_either(said, where, "rank"),
        host=text_in(said, "host") or text_in(where, "host"),
        pid=_either(said, where, "pid"),
        device_id=_either(said, where, "device_id"),
        phase=phase_of(context),
        span_path=path,
        message=message,
        request=_request(said, message),
    )


def _request(said: Mapping[str, Any], message: str | None) -> Request:
    """The allocator's exact figures where it told them, then the message's, and the bundle's own for what is
    left.
    """
    parsed, allocator, device = parse_request(message), _part(said, "allocator"), _part(said, "device")
    allocated = whole_in(allocator, "allocated_bytes", "allocator_allocated_bytes")
    reserved = whole_in(allocator, "reserved_bytes", "allocator_reserved_bytes")
    unallocated = None if allocated is None or reserved is None else reserved - allocated
    own = {
        "tried_bytes": whole_in(said, "requested_bytes", "tried_bytes"),
        "free_bytes": whole_in(device, "free_bytes", "device_free_bytes"),
        "total_bytes": whole_in(device, "total_bytes", "device_total_bytes"),
        "allocated_bytes": allocated,
        "unallocated_bytes": unallocated,
    }
    exact = {"tried_bytes": own["tried_bytes"], "free_bytes": whole_in(said, "free_bytes")}
    known = {name: value for name, value in exact.items() if value is not None}
    filled = {name: value for name, value in own.items() if getattr(parsed, name) is None}
    return msgspec.structs.replace(parsed, **{**filled, **known})


def _part(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = said.get(name)
    return part if isinstance(part, Mapping) else {}


def _either(said: Mapping[str, Any], where: Mapping[str, Any], name: str) -> int | None:
    found = whole_in(said, name)
    return whole_in(where, name) if found is None else found


def _time(said: Mapping[str, Any]) -> int | None:
    exact = whole_in(said, "time_ns", "timestamp_ns", "at_ns")
    if exact is not None:
        return exact
    seconds = unix_time(text_in(said, "timestamp", "time", "when"))
    return None if seconds is None else round(seconds * 1e6) * 1000
