"""Chrome and Perfetto traces in JSON: slices become spans, counters metrics, instants and flows user
events.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from flightlog.adopt.run_maker import Adopter, RunMaker, SourceRecording
from flightlog.adopt.scratch import NestedInterval, nest
from flightlog.adopt.source_files import DocumentItems, Record, head, number, whole
from flightlog.core.errors import UsageError
from flightlog.events import Metric, UserEvent
from flightlog.record.values import bounded, clean

_UNIX_US = 10**15
"""Microseconds of Unix time in 2001: a clock that starts at boot stays below."""
_MOMENTS = {"C": "counter", **dict.fromkeys("iIRnTp", "instant"), **dict.fromkeys("stf", "flow")}
"""Phases of what happens at one moment, and what it is."""
_ASYNC = frozenset("bSeF")
"""Phases of slices that have a lane of their own, by their id."""
_LEFT_OUT = {
    **dict.fromkeys("NOD", "objects"),
    **dict.fromkeys("Vv", "memory dumps"),
    **dict.fromkeys("()", "contexts"),
    "P": "samples of a profiler",
    "c": "clock marks",
}
"""Phases that have no place in a run, and what they are."""


class ChromeTraces(Adopter):
    """One trace, an array of events or an object with `traceEvents`, packed by gzip or not."""

    name = "chrome"
    title = "Chrome or Perfetto trace in JSON"
    missing = "is no file; name the trace"
    any_file = True

    def recognize(self, path: Path) -> str | None:
        """By `traceEvents`, or an array whose objects have a phase."""
        start = head(path).lstrip()
        if start[:1] == b"{" and b'"traceEvents"' in start:
            return "a JSON object with traceEvents"
        if start[:1] == b"[" and b'"ph"' in start[:4096] and (b'"ts"' in start or b'"pid"' in start[:4096]):
            return "a JSON array of trace events"
        return None

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Sort everything on disk first: slices come in any order, and nest."""
        trace = _ChromeTrace(maker)
        items = DocumentItems(source.path, "traceEvents")
        for item in items:
            trace.take(item)
        trace.finish(items, source.path)


adopter = ChromeTraces()


class _ChromeTrace:
    """Turns one trace into the events of a run."""

    def __init__(self, maker: RunMaker) -> None:
        self._maker, self._scratch, self._account = maker, maker.store, maker.account
        self._open: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self._names: dict[str, str] = {}
        self._first: int | None = None
        self._last = 0

    def take(self, item: Any) -> None:
        """Sort one trace event into its lane."""
        if not isinstance(item, dict) or not isinstance(item.get("ph"), str):
            self._account.drop("items that are no events")
            return
        phase = item["ph"]
        if phase == "M":
            self._name(item)
            return
        at = _ns(item.get("ts"))
        if at is None:
            self._account.drop("events without a time")
            return
        self._cover(at)
        lane = f"{item.get('pid', '')}/{item.get('tid', '')}"
        if phase in _ASYNC:
            lane = f"async {_async_key(item)}"
        if phase == "X":
            end = at + (_ns(item.get("dur")) or 0)
            self._cover(end)
            self._scratch.place(lane, at, end, _slim(item, "span"))
        elif phase in {"B", "b", "S"}:
            self._open.setdefault(lane, []).append((at, _slim(item, "span")))
        elif phase in {"E", "e", "F"}:
            self._close(lane, at, item)
        elif kind := _MOMENTS.get(phase):
            self._scratch.place("\0" if kind == "counter" else lane, at, at, _slim(item, kind))
        else:
            self._account.drop(f"{_LEFT_OUT.get(phase, 'events')} (phase {phase[:3]})")

    def finish(self, items: DocumentItems, file: Path) -> None:
        """Write all events, now that the offset of the clock is known."""
        if self._first is None:
            raise UsageError(f"{file} holds no trace event with a time")
        for lane, stack in self._open.items():
            for at, record in stack:
                self._scratch.place(lane, at, self._last, {**record, "open": True})
        offset = self._offset(items.others, file)
        for one in nest(self._scratch.placed()):
            self._add(one, offset)
        items.report(self._account)
        for name in items.others:
            self._account.drop(f"member {name} of the document")
        times = {"start_ns": self._first + offset, "end_ns": self._last + offset}
        self._maker.describe(provider="trace", **times)
        self._account.note(
            "Spans lie inside each other as slices do on one thread; the trace itself names no parents."
        )

    def _cover(self, at: int) -> None:
        self._first = at if self._first is None else min(self._first, at)
        self._last = max(self._last, at)

    def _name(self, item: dict[str, Any]) -> None:
        name = Record(item).object("args").text("name")
        if name is not None and item.get("name") in ("process_name", "thread_name"):
            of = item.get("tid", "") if item["name"] == "thread_name" else ""
            self._names[f"{item.get('pid', '')}/{of}"] = bounded(name, 200)
            self._account.map("names of processes and threads → tags of their spans")
        else:
            self._account.drop("other metadata of processes and threads")

    def _close(self, lane: str, at: int, item: dict[str, Any]) -> None:
        if lane not in self._open:
            self._account.drop("ends without a begin")
            return
        begun, record = self._open[lane].pop()
        if not self._open[lane]:
            del self._open[lane]  # ids come without end
        more = item.get("args")
        if isinstance(more, dict):
            record["args"] = {**record["args"], **clean(more)[0]}
        self._scratch.place(lane, begun, max(begun, at), record)

    def _offset(self, others: dict[str, Any], file: Path) -> int:
        """Nanoseconds from the trace's clock to Unix time."""
        known = Record(others)
        for found in (known, known.object("viztracer_metadata")):
            base = found.whole("baseTimeNanoseconds")
            if base and self._last < _UNIX_US * 1000:
                return base
        if (self._first or 0) >= _UNIX_US * 1000:
            return 0
        ours = known.object("otherData")
        began = ours.moment_ns("start_time")
        if str(ours.get("made_by")).startswith("flightlog") and began is not None:
            return began
        why = "The trace's clock does not begin with a known moment"
        return self._maker.end_with_file(file, self._last, why)

    def _add(self, one: NestedInterval, offset: int) -> None:
        record, at_ns = one.record, one.begin + offset
        inside = None if one.parent is None else self._maker.new_span_id(one.parent)
        args: dict[str, Any] = record["args"]
        if record["is"] == "counter":
            self._counter(record, at_ns)
        elif record["is"] in {"instant", "flow"}:
            name, what = record["name"], "instants → user_event"
            if record["is"] == "flow":
                args = {**args, "flow": record.get("id"), "phase": record["ph"], "name": name}
                name = "chrome.flow"
                what = "ends of flows → user_event chrome.flow, with the span they are in"
            self._maker.add(UserEvent(name=name, fields=args, span_id=inside), at_ns, mapped=what)
        else:
            ended, what = not record.get("open"), "slices → span"
            if not ended:
                what = "slices without an end → span_open, up to the last moment of the trace"
            self._maker.add_span(
                at_ns,
                (one.end - one.begin) / 1e9,
                name=record["name"],
                tags={**self._where(record), **args},
                span_id=self._maker.new_span_id(one.number),
                parent_id=inside,
                ended=ended,
                thread=whole(record.get("tid")),
                nonfinite=record.get("nonfinite", {}),
                mapped=what,
            )

    def _where(self, record: dict[str, Any]) -> dict[str, Any]:
        pid, tid = record.get("pid", ""), record.get("tid", "")
        found = {
            "process": self._names.get(f"{pid}/"),
            "thread": self._names.get(f"{pid}/{tid}"),
            "pid": record.get("pid"),
            "cat": record.get("cat"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _counter(self, record: dict[str, Any], at_ns: int) -> None:
        series = record["args"]
        of = self._names.get(f"{record.get('pid', '')}/")
        for key, value in series.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                self._account.drop("values of counters that are no numbers")
                continue
            name = record["name"] if len(series) == 1 else f"{record['name']}.{key}"
            metric = Metric(name=f"{of} {name}" if of else name, value=float(value))
            self._maker.add(metric, at_ns, mapped="values of counters → metric")


def _slim(item: dict[str, Any], kind: str) -> dict[str, Any]:
    """The fields of an event that are needed later, bounded and redacted."""
    given = item.get("args")
    args, marks = clean(given) if given and isinstance(given, dict) else ({}, {})
    found = {"is": kind, "ph": item["ph"], "name": bounded(str(item.get("name", "slice")), 500), "args": args}
    if marks:
        found["nonfinite"] = marks
    for name in ("pid", "tid", "cat", "id"):
        value = item.get(name)
        if isinstance(value, str | int):
            found[name] = str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
    return found


def _async_key(item: dict[str, Any]) -> str:
    local = item.get("id2")
    named = item.get("id", local.get("local", local.get("global")) if isinstance(local, dict) else None)
    return f"{item.get('cat', '')}/{named}/{item.get('pid', '')}/{item.get('name', '')}"


def _ns(value: Any) -> int | None:
    """Microseconds, perhaps as a text, in whole nanoseconds."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    found = number(value)
    return None if found is None or found >= 2**53 else int(found) * 1000 + round(found % 1 * 1000)
