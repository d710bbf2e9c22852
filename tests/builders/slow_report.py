"""The numbers of a report once more, the slow way: plain Python over the lines, moment by moment, nothing
shared."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

KINDS = {"artifacts": "artifact_", "metrics": "metric", "tasks": "task_", "resources": "resource_"}
"""How the kinds of a stream begin; others are foreign to it."""
ENDS = {"task_completed": "completed", "task_failed": "failed", "task_cancelled": "cancelled"}


def ns(stamp: str | None) -> int | None:
    if not stamp:
        return None
    since = datetime.fromisoformat(stamp) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def lines(path: Path, stream: str) -> list[dict[str, Any]]:
    """The lines of a closed run's stream that can be read, each number of a writer once."""
    file = path / f"{stream}.jsonl"
    found: dict[Any, dict[str, Any]] = {}
    for place, raw in enumerate(file.read_bytes().split(b"\n") if file.exists() else []):
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict) and line.get("event", "of whom?").startswith(KINDS.get(stream, stream[:4])):
            key = (line["writer"], line["seq"]) if line.get("seq", -1) >= 0 and line.get("writer") else place
            found.setdefault(key, line)
    return list(found.values())


def info(path: Path) -> dict[str, Any]:
    """What the run says of itself."""
    found: dict[str, Any] = json.loads((path / "run.json").read_text())
    return found


def window(path: Path) -> tuple[int, int]:
    known = info(path)
    start, end = ns(known["start_time"]), ns(known["end_time"])
    assert start is not None
    if end is None:
        every = [line["timestamp"] for file in path.glob("*.jsonl") for line in lines(path, file.stem)]
        end = ns(max([*every, known.get("heartbeat") or ""]))
    assert end is not None
    return start, end


def kind_of_error(reason: str | None) -> str | None:
    """The class that a reason begins with, such as `OSError: gone`."""
    name = (reason or "").split(": ")[0]
    return name if name.split(".")[-1][:1].isupper() and name.replace(".", "").isidentifier() else None


def attempts(path: Path) -> list[dict[str, Any]]:
    """One dict an attempt, with the moments it held its worker and waited, in order of their start."""
    _, until = window(path)
    by_key: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines(path, "tasks"):
        one = by_key.setdefault((line["task_id"], line.get("attempt", 1)), {"lines": {}})
        kind = "end" if line["event"] in ENDS else line["event"]
        if kind not in one["lines"] or line["timestamp"] >= one["lines"][kind]["timestamp"]:
            one["lines"][kind] = line
    for (task_id, attempt), one in by_key.items():
        start, end = one["lines"].get("task_started"), one["lines"].get("end")
        retry, queued = one["lines"].get("task_retried"), one["lines"].get("task_queued")
        submitted = one["lines"].get("task_submitted")
        some = next(iter(one["lines"].values()))
        one |= {
            "task": some["task"],
            "task_id": task_id,
            "attempt": attempt,
            "component": some.get("component"),
            "needs": (submitted or {}).get("depends_on", []),
            "began": None,
            "stopped": None,
            "retried": retry is not None,
            "submitted": ns(submitted["timestamp"]) if submitted else None,
            "worker": (end or {}).get("worker") or (start or {}).get("worker"),
            "span_id": (end or start or some).get("span_id"),
            "duration_s": (end or {}).get("duration_s"),
            "args": (end or submitted or {}).get("args"),
            "error_type": (end or {}).get("error_type")
            if end or not retry
            else kind_of_error(retry.get("reason")),
        }
        one["state"] = ENDS[end["event"]] if end else "failed" if retry else "running" if start else "pending"
        ended = ns((end or retry or {"timestamp": None})["timestamp"])
        if ended is not None and one["duration_s"] is not None:
            one["began"], one["stopped"] = ended - round(one["duration_s"] * 1e9), ended
        elif start:
            one["began"] = ns(start["timestamp"])
            one["stopped"] = max(one["began"], until if ended is None else ended)
        queue_s = (end or {}).get("queue_s")
        queue_s = (start or {}).get("queue_s") if queue_s is None else queue_s
        one["queued"] = ns(queued["timestamp"]) if queued else None
        one["waits"] = one["queued"]
        if one["waits"] is None and queue_s is not None and one["began"] is not None:
            one["waits"] = one["began"] - round(queue_s * 1e9)
        elif one["waits"] is None and attempt == 1:
            one["waits"] = one["submitted"]
    ends: dict[str, int | None] = {}
    for one in by_key.values():
        known = [n for n in (ends.get(one["task_id"]), one["stopped"]) if n is not None]
        ends[one["task_id"]] = max(known, default=None)
    for one in by_key.values():
        if one["needs"] and one["queued"] is None and one["attempt"] == 1:
            met = [ends.get(other) for other in one["needs"]]
            if None in met and one["began"] is None:
                one["waits"] = None
            elif one["waits"] is not None:
                one["waits"] = max([one["waits"], *(moment for moment in met if moment is not None)])
        if one["state"] == "pending" and any(
            other["task_id"] == one["task_id"] and other["attempt"] > one["attempt"]
            for other in by_key.values()
        ):
            one["waits"] = None
    return sorted(
        by_key.values(),
        key=lambda one: (one["began"] or 0, one["stopped"] or 0, one["task_id"], one["attempt"]),
    )


def workers(path: Path) -> dict[str, dict[str, Any]]:
    """When each worker was up, whether it said it was ready, and its start-up before; one life each."""
    _, until = window(path)
    found: dict[str, dict[str, Any]] = {}
    for line in lines(path, "workers"):
        found.setdefault(line["worker"], {"events": {}})["events"][line["event"]] = line
    held: dict[str, list[dict[str, Any]]] = {}
    for one in attempts(path):
        if one["worker"] is not None and one["state"] != "pending":
            held.setdefault(one["worker"], []).append(one)
            found.setdefault(one["worker"], {"events": {}})
    for name, life in found.items():
        events, known = life["events"], [one for one in held.get(name, []) if one["began"] is not None]
        launched, ready = (
            ns(events[f"worker_{what}"]["timestamp"]) if f"worker_{what}" in events else None
            for what in ("launched", "ready")
        )
        last = events.get("worker_removed") or events.get("worker_lost")
        gone = ns(last["timestamp"]) if last else None
        since = launched if ready is None else ready
        if not events:
            since = min((one["began"] for one in known), default=None)
            gone = max((one["stopped"] for one in known), default=None)
        elif since is None and last is not None and last.get("uptime_s") is not None:
            since = gone - round(last["uptime_s"] * 1e9)
        elif since is None:
            since = min((one["began"] for one in known), default=None)
        until_ = until if gone is None else gone
        life["up"] = None if since is None else (since, max(since, until_))
        life["ready"] = launched is None or ready is not None
        if launched is None and ready is not None and "launch_s" in events["worker_ready"]:
            launched = ready - round(events["worker_ready"]["launch_s"] * 1e9)
        life["starting"] = (launched, ready) if launched is not None and ready is not None else None
        life["component"] = next((e["component"] for e in events.values() if e.get("component")), None)
    return found


def shares(path: Path) -> dict[str, dict[str, int]]:
    """Nanoseconds of each part, by worker: every stretch between two events is looked at on its own."""
    everyone, every = workers(path), attempts(path)
    _, until = window(path)
    held = [one for one in every if one["began"] is not None and one["began"] < one["stopped"]]
    waiting = [
        (one["waits"], one["began"] if one["began"] is not None else until, one["component"])
        for one in every
        if one["waits"] is not None and (one["began"] is not None or one["state"] == "pending")
    ]
    cuts = {moment for one in held for moment in (one["began"], one["stopped"])}
    cuts |= {moment for since, to, _ in waiting for moment in (since, to)}
    found = {}
    for name, life in everyone.items():
        parts = dict.fromkeys(
            ("run", "unfinished", "retried", "failed", "scheduler", "startup", "behind", "alone"), 0
        )
        if life["up"] is not None:
            since, to = life["up"]
            mine = [one for one in held if one["worker"] == name]
            first = min(
                (one["began"] for one in mine if one["stopped"] > since and one["began"] < to), default=to
            )
            for a, b in pairwise(sorted({since, to, *(cut for cut in cuts if since < cut < to)})):
                at_it = [one for one in mine if one["began"] <= a and b <= one["stopped"]]
                states = {one["state"] for one in at_it}
                queued = any(
                    s <= a and b <= e and (c is None or life["component"] in {None, c}) for s, e, c in waiting
                )
                busy = any(one["began"] <= a and b <= one["stopped"] for one in held)
                part = (
                    "run"
                    if "completed" in states
                    else "unfinished"
                    if "running" in states
                    else "retried"
                    if any(one["retried"] for one in at_it)
                    else "failed"
                    if states
                    else "startup"
                    if not life["ready"] and b <= first
                    else "scheduler"
                    if queued
                    else "behind"
                    if busy
                    else "alone"
                )
                parts[part] += b - a
        if life["starting"] is not None and life["starting"][0] < life["starting"][1]:
            parts["startup"] += life["starting"][1] - life["starting"][0]
        found[name] = parts
    return found


def running(path: Path, buckets: int) -> list[float]:
    """The mean number of attempts running in each bucket of the run's time."""
    start, until = window(path)
    bounds = [start + (until - start) * n // buckets for n in range(buckets + 1)]
    held = [one for one in attempts(path) if one["began"] is not None]
    return [
        sum(max(0, min(b, one["stopped"]) - max(a, one["began"])) for one in held) / (b - a)
        for a, b in pairwise(bounds)
    ]


class Path_:
    """The critical path by its definition: every attempt is compared with every other."""

    def __init__(self, path: Path) -> None:
        self.start, self.until = window(path)
        self.held = [one for one in attempts(path) if one["began"] is not None]
        self.workers = workers(path)
        self.needs = {one["task_id"]: one["needs"] for one in attempts(path) if one["attempt"] == 1}
        for place, one in enumerate(self.held):
            one["place"] = place

    def bounds(self, one: dict[str, Any]) -> list[tuple[int, str, dict[str, Any] | None, int]]:
        """Moment, kind, the attempt behind it, and how long after its end."""
        found: list[tuple[int, str, dict[str, Any] | None, int]] = []
        needed = []
        for task_id in self.needs.get(one["task_id"], []):
            ended = [other for other in self.held if other["task_id"] == task_id and other is not one]
            ended = [other for other in ended if other["stopped"] <= one["began"]]
            needed += [max(ended, key=lambda other: other["stopped"])] if ended else []
        needed += [
            other
            for other in self.held
            if other["task_id"] == one["task_id"] and other["attempt"] == one["attempt"] - 1
        ]
        found += [(other["stopped"], "needs", other, 0) for other in needed]
        before = [
            other for other in self.held if one["worker"] is not None and other["worker"] == one["worker"]
        ]
        before = [other for other in before if other["stopped"] <= one["began"] and other is not one]
        if before:
            last = max(before, key=lambda other: other["stopped"])
            if one["waits"] is None or one["waits"] <= last["stopped"]:
                found.append((last["stopped"], "worker", last, 0))
        starting = self.workers[one["worker"]]["starting"] if one["worker"] is not None else None
        if starting is not None and (one["waits"] is None or one["waits"] <= starting[1]):
            found.append((starting[1], "startup", None, 0))
        submitted = one["waits"] if one["submitted"] is None else one["submitted"]
        if submitted is not None and self.start <= submitted and one["attempt"] == 1:
            ended = [other for other in self.held if other["stopped"] <= submitted and other is not one]
            last_ = max(ended, key=lambda other: other["stopped"], default=None)
            found.append((submitted, "program", last_, submitted - last_["stopped"] if last_ else 0))
        return [bound for bound in found if bound[0] <= one["began"]]

    def parts(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        cursor = self.until

        def step(kind: str, name: str, since: int) -> None:
            nonlocal cursor
            since = max(self.start, min(since, cursor))
            found[kind, name] = found.get((kind, name), 0) + cursor - since
            cursor = since

        one: dict[str, Any] | None = max(self.held, key=lambda other: other["stopped"])
        step("program", "after the last task", one["stopped"])
        while one is not None:
            step("task", one["task"], one["began"])
            bounds = self.bounds(one)
            if not bounds:
                break
            moment, kind, other, _ = max(bounds, key=lambda bound: bound[0])
            step("wait", one["task"], moment)
            if kind == "startup":
                launched = self.workers[one["worker"]]["starting"][0]
                asked = [bound for bound in bounds if bound[1] == "program" and bound[0] <= launched]
                waited = asked and not any(asked[0][0] < other["stopped"] <= launched for other in self.held)
                step("startup", "worker start-up", asked[0][0] if waited else launched)
                other = asked[0][2] if asked else None
                needed = [bound for bound in bounds if bound[1] == "needs" and bound[0] <= launched]
                if other is not None:
                    step("program", "between tasks", other["stopped"])
                elif needed and not asked:
                    moment, _, other, _ = max(needed, key=lambda bound: bound[0])
                    step("startup", "worker start-up", moment)
            elif kind == "program" and other is not None:
                step("program", "between tasks", other["stopped"])
            one = other
        unexplained = min(other["began"] for other in self.held) < cursor
        before = "before a task with an unknown dependency" if unexplained else "before the first task"
        step("program", before, self.start)
        return {key: lasted for key, lasted in found.items() if lasted}

    def saved(self, name: str) -> int:
        """By how much the run is shorter with every task of this name instant."""

        @cache
        def end(place: int) -> int:
            one = self.held[place]
            bounds = self.bounds(one)
            begins = one["began"]
            if bounds:
                lag = one["began"] - max(bound[0] for bound in bounds)
                begins = lag + max(
                    moment if other is None else end(other["place"]) + after
                    for moment, _, other, after in bounds
                )
            return int(begins if one["task"] == name else begins + one["stopped"] - one["began"])

        return int(max(one["stopped"] for one in self.held) - max(end(n) for n in range(len(self.held))))


def tree(path: Path) -> dict[tuple[str | None, tuple[str, ...]], tuple[int, int, int, int]]:
    """Count, and nanoseconds in all, on the clock and by themselves, by task and path of names; open spans
    up to the end of the run."""
    _, end = window(path)
    spans = {}
    for line in sorted(
        lines(path, "spans"), key=lambda line: (line["event"] == "span", line.get("elapsed_s", 0.0))
    ):
        spans[line["span_id"]] = line  # the end, or else where it was last seen open
    tasks = {one["span_id"]: one["task"] for one in attempts(path)}

    def place(span: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
        parent = spans.get(span.get("parent_id"))
        if parent is None:
            return tasks.get(span.get("parent_id")), (span["name"],)
        task, names = place(parent)
        return task, (*names, span["name"])

    def interval(span: dict[str, Any]) -> tuple[int, int]:
        began = ns(span["timestamp"])
        assert began is not None
        if span["event"] == "span":
            return began, began + round(span["duration_s"] * 1e9)
        return began, max(began + round(span["elapsed_s"] * 1e9), end)

    def covered(pieces: list[tuple[int, int]]) -> int:
        cuts = sorted({moment for piece in pieces for moment in piece})
        return sum(b - a for a, b in pairwise(cuts) if any(s <= a and b <= e for s, e in pieces))

    found: dict[Any, Any] = {}
    for span in spans.values():
        found.setdefault(place(span), []).append(span)
    result = {}
    for key, some in found.items():
        own = 0
        for span in some:
            began, stopped = interval(span)
            inside = [
                interval(other) for other in spans.values() if other.get("parent_id") == span["span_id"]
            ]
            pieces = [(max(a, began), min(b, stopped)) for a, b in inside if max(a, began) < min(b, stopped)]
            own += stopped - began - covered(pieces)
        times = [interval(span) for span in some]
        result[key] = (len(some), sum(b - a for a, b in times), covered(times), own)
    return result
