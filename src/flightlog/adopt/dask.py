"""Dask's performance data: a task stream saved as JSON, or the HTML of `performance_report`.

json.dump(client.get_task_stream(), open("stream.json", "w"), default=str)
"""

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

from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.source_files import DocumentItems, Record, head, moment_ns, number, text, whole, whole_ns
from flightlog.core.errors import UsageError
from flightlog.events import TaskStarted
from flightlog.record.values import bounded, clean

_HASH = re.compile(r"-[0-9a-f]{8,}(?:-[0-9a-f]{4,})*$")
_HTML = (".html", ".htm")


_SCRIPT = re.compile(r"<script[^>]*type=[\"']application/json[\"'][^>]*>(.*?)</script>", re.DOTALL)
_COLUMNS = frozenset({"start", "duration", "key", "name", "worker", "worker_thread"})
_ACTIONS = ("transfer", "disk-write", "disk-read", "deserialize")
_FORMATS = {"float64": "d", "float32": "f"}
for _bits, _code in ((8, "b"), (16, "h"), (32, "i"), (64, "q")):
    _FORMATS |= {f"int{_bits}": _code, f"uint{_bits}": _code.upper()}
_FAILED = "black"
"""The colour of a task that failed."""


class DaskStreams(Adopter):
    """One task stream, or one performance report."""

    name = "dask"
    title = "Dask task stream (JSON) or performance report (HTML)"
    missing = "is no file; name the task stream or the report"
    any_file = True

    def recognize(self, path: Path) -> str | None:
        """By the `startstops` of its records, or by the title of the report."""
        start = head(path)
        if start.lstrip()[:1] in {b"[", b"{"} and b'"startstops"' in start and b'"key"' in start:
            return "records of a Dask task stream"
        if path.name.endswith(_HTML) and b"bokeh" in start.lower() and b"Dask" in start:
            return "a Dask performance report"
        return None

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Read record by record; a report is held in memory as a whole."""
        report = source.path.name.endswith(_HTML)
        for record in report_records(source.path) if report else _records(source.path, maker):
            _add_record(record, maker)
        if not maker.counts:
            raise UsageError(f"{source.path} holds no record of a task: is it a task stream of Dask?")
        maker.describe(provider="dask")
        maker.account.note(
            "Dask's task stream has the tasks that ended, and no submissions: how long tasks waited is not "
            "recorded, and those in flight are missing. The scheduler keeps the last ones only "
            "(task-stream-length)."
        )
        if report:
            maker.account.drop("profiles, bandwidths and system charts of the report")
            maker.account.note("A performance report does not say why a task failed.")


adopter = DaskStreams()


def _records(file: Path, maker: RunMaker) -> Iterator[dict[str, Any]]:
    items = DocumentItems(file, "task_stream")
    for item in items:
        if isinstance(item, dict):
            yield item
        else:
            maker.account.drop("items that are no records")
    items.report(maker.account)


def key_name(key: str) -> str:
    """`inc` of `inc-1f0e…`, and of `('inc-1f0e…', 0, 1)`."""
    found = re.match(r"""^\(\s*['"]([^'"]+)['"]""", key)
    bare = found[1] if found else key
    return _HASH.sub("", bare) or bare


def _add_record(record: dict[str, Any], maker: RunMaker) -> None:
    """Add one task that ended; a key that is computed again is a task of its own."""
    spent: dict[str, float] = {}
    began = ended = None
    parts = record.get("startstops")
    for one in parts if isinstance(parts, list) else []:
        part = Record(one) if isinstance(one, dict) else Record()
        begin, end = part.number("start"), part.number("stop")
        if begin is None or end is None or moment_ns(max(begin, end)) is None:
            continue
        action = str(part.get("action"))
        spent[action] = spent.get(action, 0.0) + max(0.0, end - begin)
        if action == "compute":
            began = begin if began is None else min(began, begin)
            ended = end if ended is None else max(ended, end)
    if record.get("key") is None or began is None or ended is None:
        maker.account.drop("records without a key or a computation")
        return
    key = record["key"]
    words = key if isinstance(key, str) else str(tuple(key) if isinstance(key, list) else key)
    times = (maker.store.get(words) or 0) + 1
    maker.store.put(words, times)
    if times > 1:
        maker.account.map("keys computed again → tasks of their own, `#2` behind the key")
    common: dict[str, Any] = {
        "task": bounded(key_name(words), 500),
        "task_id": bounded(words if times == 1 else f"{words}#{times}", 1000),
        "parent_id": maker.span_id,
        "worker": text(record.get("worker")),
    }
    maker.add(TaskStarted(queue_s=None, **common), whole_ns(began))
    spill = [spent[one] for one in ("disk-read", "disk-write") if one in spent]
    tags = {name: record.get(name) for name in ("thread", "typename") if record.get(name) is not None}
    last: dict[str, Any] = {
        **common,
        "args": {},
        "duration_s": spent["compute"],
        "transfer_s": spent.get("transfer"),
        "spill_s": sum(spill) if spill else None,
        "metrics": {"deserialize_s": spent["deserialize"]} if "deserialize" in spent else {},
        "tags": clean(tags)[0],
    }
    if record.get("status") in ("error", "erred"):
        said, trace = text(record.get("exception_text")), text(record.get("traceback_text"))
        maker.add_end(
            "failed",
            last,
            whole_ns(ended),
            kept="tasks that failed",
            error_type=said.partition("(")[0] if said is not None and "(" in said else None,
            message="the recording does not say why" if said is None else bounded(said, 2000),
            traceback=None if trace is None else bounded(trace, 8000),
        )
    else:
        last["result_bytes"] = whole(record.get("nbytes"))
        maker.add_end("completed", last, whole_ns(ended), kept="tasks that completed")


def report_records(file: Path) -> Iterator[dict[str, Any]]:
    """The task stream behind the chart of a report, as records. Raises `UsageError` where there is no
    chart.
    """
    html = file.read_text("utf-8", "replace")
    for script in _SCRIPT.finditer(html):
        try:
            found = json.loads(script[1])
        except ValueError:
            continue
        for columns in _sources(found):
            yield from _task_records(columns)
            return
    raise UsageError(f"{file} holds no task stream: is it a report of performance_report, with a task in it?")


def _sources(value: Any) -> Iterator[dict[str, list[Any]]]:
    """All tables in a document, at any depth, that have the columns of a task stream."""
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
    """A table of a task stream, decoded; None where columns are missing."""
    entries = found.get("entries")
    pairs = found
    if isinstance(entries, list):
        pairs = {str(one[0]): one[1] for one in entries if isinstance(one, list) and len(one) == 2}
    if not pairs.keys() >= _COLUMNS:
        return None
    return {name: _values(value) for name, value in pairs.items() if name in {*_COLUMNS, "color"}}


def _values(value: Any) -> list[Any]:
    """The values of a column: a list, or numbers as Bokeh packs them; none where it is damaged."""
    if not isinstance(value, dict):
        return value if isinstance(value, list) else []
    packed, older = value.get("array"), value.get("__ndarray__")
    coded = older or (packed.get("data") if isinstance(packed, dict) else packed)
    if not isinstance(coded, str):
        return packed if isinstance(packed, list) else []
    order = "<" if (value.get("order") or sys.byteorder) == "little" else ">"
    try:
        data = base64.b64decode(coded)
        if older is None and data.startswith(b"\x1f\x8b"):
            data = zlib.decompress(data, 31)
        numbers = struct.iter_unpack(f"{order}{_FORMATS[str(value.get('dtype'))]}", data)
        return [number for (number,) in numbers]
    except (ValueError, TypeError, KeyError, zlib.error, struct.error):
        return []


def _task_records(columns: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """One record per computation, with the transfers and disk accesses of its key and thread before it."""
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
