"""The task stream in the HTML of Dask's `performance_report`: columns of a chart, made into records again."""

from __future__ import annotations

import base64
import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightlog.adopt.times import number
from flightlog.errors import UsageError

_SCRIPT = re.compile(r"<script[^>]*type=[\"']application/json[\"'][^>]*>(.*?)</script>", re.DOTALL)
_COLUMNS = frozenset({"start", "duration", "key", "name", "worker", "worker_thread"})
_ACTIONS = ("transfer", "disk-write", "disk-read", "deserialize")
_FORMATS = {
    "float64": "d",
    "float32": "f",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
}
_FAILED = "black"
"""The colour of a task that failed."""


def report_records(file: Path) -> Iterator[dict[str, Any]]:
    """What a task stream would have said of each task in the chart. A `UsageError` where there is no
    chart.
    """
    html = file.read_text("utf-8", "replace")
    for script in _SCRIPT.finditer(html):
        try:
            found = json.loads(script[1])
        except ValueError:
            continue
        for columns in _sources(found):
            yield from _records(columns)
            return
    raise UsageError(f"{file} holds no task stream: is it a report of performance_report, with a task in it?")


def _sources(value: Any) -> Iterator[dict[str, list[Any]]]:
    """The tables of a document that have the columns of a task stream, wherever they stand."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            columns = _columns(one)
            if columns is not None and columns["key"]:
                yield columns
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def _columns(found: dict[str, Any]) -> dict[str, list[Any]] | None:
    """A table, plain or as a list of entries, its numbers packed or not."""
    entries = found.get("entries")
    pairs = found
    if isinstance(entries, list):
        pairs = {str(one[0]): one[1] for one in entries if isinstance(one, list) and len(one) == 2}
    if not pairs.keys() >= _COLUMNS:
        return None
    return {name: _values(value) for name, value in pairs.items() if name in {*_COLUMNS, "color"}}


def _values(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    try:
        return _unpacked(value) if isinstance(value, dict) else []
    except (ValueError, TypeError, zlib.error):  # damaged: a column without values
        return []


def _unpacked(value: dict[str, Any]) -> list[Any]:
    if "__ndarray__" in value:  # as older versions of Bokeh write it
        data = base64.b64decode(value["__ndarray__"])
        return _numbers(data, value.get("dtype"), value.get("order") or sys.byteorder)
    packed = value.get("array")
    if isinstance(packed, dict) and isinstance(packed.get("data"), str):
        data = base64.b64decode(packed["data"])
        if data[:2] == b"\x1f\x8b":
            data = zlib.decompress(data, 31)
        return _numbers(data, value.get("dtype"), value.get("order") or sys.byteorder)
    return packed if isinstance(packed, list) else []


def _numbers(data: bytes, kind: Any, order: str) -> list[Any]:
    code = _FORMATS.get(str(kind))
    if code is None:
        return []
    width = struct.calcsize(code)
    return list(struct.unpack(f"{'<' if order == 'little' else '>'}{len(data) // width}{code}", data))


def _records(columns: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Bars of one key on one thread up to its computation belong together, in the order of the chart."""
    waiting: dict[tuple[str, str], list[dict[str, Any]]] = {}
    colors = columns.get("color") or []
    for row, key in enumerate(columns["key"]):
        try:
            name, middle, lasted, worker, thread = (
                columns[one][row] for one in ("name", "start", "duration", "worker", "worker_thread")
            )
        except IndexError:
            return
        middle, lasted = number(middle), number(lasted)
        if middle is None or lasted is None:
            continue
        action = next((one for one in _ACTIONS if str(name).startswith(f"{one}-")), "compute")
        begin = (middle - lasted / 2) / 1000
        place = (str(key), str(thread))
        waiting.setdefault(place, []).append(
            {"action": action, "start": begin, "stop": begin + lasted / 1000}
        )
        if action == "compute":
            failed = row < len(colors) and colors[row] == _FAILED
            yield {
                "key": key,
                "worker": worker,
                "thread": str(thread).removeprefix(f"{worker}-"),
                "status": "error" if failed else "OK",
                "startstops": waiting.pop(place),
            }
