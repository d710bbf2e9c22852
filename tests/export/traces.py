"""Traces as tests look at them: what was drawn where, and what is wrong with it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from flightlog.export.base import Exported, ExportOptions
from flightlog.export.perfetto.exporter import exporter
from flightlog.store.run import Run


class Trace:
    """An exported trace, decoded."""

    def __init__(self, exported: Exported, document: dict[str, Any]) -> None:
        self.exported, self.about, self.events = exported, document["otherData"], document["traceEvents"]
        names = {
            (event["name"], event["pid"], event["tid"]): event["args"].get("name")
            for event in self.events
            if event["ph"] == "M"
        }
        self.processes = {pid: name for (what, pid, _), name in names.items() if what == "process_name"}
        self.threads = {(pid, tid): name for (what, pid, tid), name in names.items() if what == "thread_name"}

    def slices(self, category: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["ph"] == "X" and event["cat"] == category]

    def track(self, event: dict[str, Any]) -> str:
        """`w1/tasks`: the process and the thread that something is drawn on."""
        return f"{self.processes[event['pid']]}/{self.threads[event['pid'], event['tid']]}"

    def drawn(self, category: str) -> list[tuple[Any, ...]]:
        """Track, name, start and end of every slice, in microseconds, in the order of the file."""
        return [(self.track(e), e["name"], e["ts"], e["ts"] + e["dur"]) for e in self.slices(category)]

    def curve(self, process: str, name: str, unit: str) -> list[tuple[int, float]]:
        return [
            (event["ts"], event["args"][unit])
            for event in self.events
            if event["ph"] == "C"
            and event["name"] == name
            and self.processes[event["pid"]] == process
            and unit in event["args"]
        ]

    def arrows(self) -> list[tuple[str, str, str]]:
        """Kind, and the slices (by task id and attempt) an arrow leads from and to, as a viewer ties them."""
        last: dict[tuple[int, int], dict[str, Any]] = {}
        begun: dict[tuple[str, int], str] = {}
        found = []
        for event in sorted(self.events, key=lambda event: event.get("ts", -1)):  # stable, as a viewer's is
            track = (event["pid"], event.get("tid", 0))
            if event["ph"] == "X":
                last[track] = event
            elif event["ph"] in {"s", "f"}:
                args = last[track]["args"]
                tied = f"{last[track]['cat']} {args['task_id']}#{args['attempt']}"
                if event["ph"] == "s":
                    begun[event["cat"], event["id"]] = tied
                else:
                    found.append((event["cat"], begun.pop((event["cat"], event["id"])), tied))
        assert begun == {}, "arrows that lead nowhere"
        return found


def trace_of(path: Path, output: Path) -> Trace:
    exported = exporter.export(Run(path), output, ExportOptions())
    data = output.read_bytes()
    return Trace(exported, json.loads(gzip.decompress(data) if output.suffix == ".gz" else data))


def overlaps(trace: Trace) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Slices of one track that overlap, and neither is inside the other as its child."""
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in trace.events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    found = []
    for events in tracks.values():
        stack: list[dict[str, Any]] = []
        for event in sorted(events, key=lambda event: event["ts"]):  # stable: parents come first
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                stack.pop()
            if stack and not (
                event["ts"] + event["dur"] <= stack[-1]["ts"] + stack[-1]["dur"]
                and event["args"].get("parent_id") == stack[-1]["args"].get("span_id") is not None
            ):
                found.append((stack[-1], event))
            stack.append(event)
    return found
