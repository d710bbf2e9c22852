"""What stands out, once more the slow way: plain Python over the lines, stretch by stretch, nothing
shared."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from math import fsum
from pathlib import Path
from statistics import fmean, median
from typing import Any

from builders import slow_report
from builders.slow_report import lines, ns
from builders.slow_report_parts import Row, in_flight, quantile, spans

TRANSFER = re.compile(r"(^|\.)(transfer|serialize|deserialize)$")


class Findings:
    """Every finding by its definition, from stretches of worker time looked at one by one."""

    def __init__(self, path: Path) -> None:
        self.path, self.every = path, slow_report.attempts(path)
        self.start, self.until = slow_report.window(path)
        self.everyone = slow_report.workers(path)
        self.ups = {name: life["up"] for name, life in self.everyone.items() if life["up"] is not None}
        self.held = [one for one in self.every if one["began"] is not None and one["began"] < one["stopped"]]
        known = {(one["task_id"], one["attempt"]): one for one in self.every}
        self.delays = [
            (
                first["stopped"],
                min(
                    one["began"],
                    max(first["stopped"], one["began"] if one["waits"] is None else one["waits"]),
                ),
            )
            for (task_id, attempt), one in known.items()
            if attempt > 1
            and one["began"] is not None
            and (first := known.get((task_id, attempt - 1))) is not None
            and first["stopped"] is not None
            and first["stopped"] < one["began"]
        ]
        """When tasks that had failed waited to be retried."""
        self.spans = spans(path)
        self.span_times = self._span_times()
        self.parts: Counter[str] = Counter()
        self.behind: dict[tuple[str, int], Row] = {}
        self.startups: dict[str, int] = {}
        self.pieces_counted = 0
        self.transfer_known = False
        self.of_workers = bool(self.everyone)
        for name in self.everyone or [""]:
            self._live(name)
        self.total = sum(self.parts.values())

    def _pieces(self, name: str) -> list[tuple[int, int, str]]:
        """What held a worker, or with no workers the run, from when to when."""
        states = {"completed": "run", "running": "unfinished"}
        found = [
            (one["began"], one["stopped"], states.get(one["state"], "failed"))
            for one in self.held
            if not self.of_workers or one["worker"] == name
        ]
        for key, span in self.spans.items():
            time = self.span_times[key]
            if not self.of_workers:
                found.append((*time, "unfinished" if span["open"] else "run"))
            elif TRANSFER.search(span["name"]) and any(
                one["span_id"] == span.get("parent_id") and one["worker"] == name for one in self.every
            ):
                found.append((*time, "transfer"))
        return [piece for piece in found if piece[0] < piece[1]]

    def _span_times(self) -> dict[str, tuple[int, int]]:
        """From when to when; open ones stop with the attempt that they are in, if it is over."""
        known = self.spans
        ended = {
            one["span_id"]: one["stopped"]
            for one in sorted(self.every, key=lambda one: one["stopped"] or 0)
            if one["state"] != "running" and one["stopped"] is not None
        }

        def attempt_end(key: str) -> int | None:
            if key in ended:
                return ended[key]
            parent = known[key].get("parent_id") if key in known and known[key]["open"] else None
            return None if parent is None else attempt_end(parent)

        times = {}
        for key, span in known.items():
            began = ns(span["timestamp"])
            stopped = began + round(span["duration_s"] * 1e9)
            end = attempt_end(key) if span["open"] else None
            times[key] = began, stopped if end is None else max(began, min(stopped, end))
        return times

    def _live(self, name: str) -> None:
        life = self.everyone.get(name, {"ready": True, "starting": None, "component": None, "up": None})
        if not self.of_workers:
            life = life | {"up": (self.start, self.until)} if name == "" and self.start < self.until else life
        starting = life["starting"]
        before = max(0, starting[1] - starting[0]) if starting is not None else 0
        self.parts["startup"] += before
        self.startups[name] = before
        if life["up"] is None:
            return
        since, to = life["up"]
        inside = [
            (max(a, since), min(b, to), part) for a, b, part in self._pieces(name) if a < to and b > since
        ]
        self.pieces_counted += sum(part != "transfer" for *_, part in inside)
        self.transfer_known |= any(part == "transfer" for *_, part in inside)
        waits = self._waits(life["component"])
        busy = [(one["began"], one["stopped"]) for one in self.held]
        first = min((a for a, *_ in inside), default=to)
        cuts = {moment for a, b, *_ in (*inside, *waits, *busy) for moment in (a, b) if since < moment < to}
        cuts |= {moment for delay in self.delays for moment in delay if since < moment < to}
        gap: list[tuple[int, int, bool]] = []
        for a, b in pairwise(sorted({since, to, *cuts})):
            parts = {part for s, e, part in inside if s <= a and b <= e}
            queued = any(s <= a and b <= e for s, e in waits)
            astir = any(s <= a and b <= e for s, e in busy)
            part = next((one for one in ("transfer", "run", "unfinished", "failed") if one in parts), None)
            if part is None and not life["ready"] and b <= first:
                part = "startup"
                self.startups[name] += b - a
            if part is not None:
                self._blame(name, gap)
                gap = []
            else:
                delayed = any(s <= a and b <= e for s, e in self.delays)
                part = "scheduler" if queued else "behind" if astir else "delayed" if delayed else "alone"
                gap.append((a, b, part == "behind"))
            self.parts[part] += b - a
        self._blame(name, gap)

    def _waits(self, component: str | None) -> list[tuple[int, int]]:
        """When tasks waited that a worker of this component might have taken."""
        return [
            (one["waits"], one["began"] if one["began"] is not None else self.until)
            for one in self.every
            if one["waits"] is not None
            and (one["began"] is not None or one["state"] == "pending")
            and (one["component"] is None or component in {None, one["component"]})
        ]

    def _blame(self, name: str, gap: list[tuple[int, int, bool]]) -> None:
        """The idle time of a gap goes to what ended last in it; where nothing did, to what was to run the
        longest."""
        idle = sum(b - a for a, b, behind in gap if behind)
        if not idle:
            return
        since, until = gap[0][0], gap[-1][1]
        there = [one for one in self.held if one["began"] < until and one["stopped"] > since]
        ended = [one for one in there if one["stopped"] <= until]
        last = max(ended or there, key=lambda one: one["stopped"])
        found = self.behind.setdefault(
            (last["task_id"], last["attempt"]), {"one": last, "idle": 0, "who": set()}
        )
        found["idle"] += idle
        found["who"].add(name)

    def usual(self, task: str) -> tuple[float, int]:
        """The median of completed tasks of a name in nanoseconds, and of how many."""
        known = [
            one["stopped"] - one["began"]
            for one in self.every
            if one["task"] == task and one["state"] == "completed" and one["began"] is not None
        ]
        return (median(known) if known else 0.0), len(known)

    def all(self) -> dict[str, tuple[Any, ...]]:
        """Seconds, share, evidence and where, by kind."""
        found: dict[str, tuple[Any, ...]] = {}

        def tell(kind: str, lost: float | None, evidence: Row, where: list[str] | None) -> None:
            share = None if lost is None or not self.total else lost * 1e9 / self.total
            share = None if share is None or share > 1 + 1e-9 else min(1.0, share)
            found[kind] = (lost, share, evidence, where)

        def matters(lost: float) -> bool:
            return self.total > 0 and lost >= 0.05 and lost * 1e9 >= 0.03 * self.total

        self._stuck(tell)
        self._memory(tell)
        self._failed(tell, matters)
        if self.of_workers:
            self._idle(tell, matters)
            self._cold(tell, matters)
            scheduler = self.parts["scheduler"] / 1e9
            moving, scheduler = self._moving(scheduler), max(0.0, scheduler - self._imports() / 1e9)
            if matters(scheduler) and self.pieces_counted and not moving:
                known = [
                    line["duration_s"]
                    for line in lines(self.path, "tasks")
                    if line["event"] == "task_completed" and line["duration_s"] is not None
                ]
                evidence = {
                    "handover_s": scheduler / self.pieces_counted,
                    "attempts": self.pieces_counted,
                    "median_task_s": quantile(known, 0.5) if known else None,
                }
                tell("handover", scheduler, evidence, [])
        self._cache(tell, matters)
        self._crowded(tell, matters)
        return found

    def _stuck(self, tell: Any) -> None:
        stuck = [one for one in in_flight(self.path) if one[8] and one[0] == "task"]
        if stuck:
            evidence = {
                "tasks": len(stuck),
                "worst_s": stuck[0][5],
                "median_s": stuck[0][6][1],
                "p95_s": stuck[0][6][2],
            }
            where = [called(one[1], one[2]) for one in stuck[:3]]
            tell("stuck_tasks", fsum(one[5] for one in stuck), evidence, where)

    def _memory(self, tell: Any) -> None:
        evidence: Row = {}
        kills = self._growth("cgroup", "oom_kills")
        if kills:
            evidence["oom_kills"] = int(kills)
        short = [
            one
            for one in self.every
            if one["state"] == "failed"
            and one["began"] is not None
            and one["error_type"] is not None
            and one["error_type"].split(".")[-1] in {"MemoryError", "OutOfMemoryError"}
        ]
        if short:
            evidence["tasks_out_of_memory"] = len(short)
        limits = self._samples("cgroup")
        peak = max((s.get("memory_used_bytes") or 0 for s in limits), default=0)
        limit = max((s.get("memory_total_bytes") or 0 for s in limits), default=0)
        if peak and limit and peak >= 0.95 * limit:
            evidence["limit_peak_share"] = peak / limit
        nodes = [s for s in self._samples("node") if s.get("memory_used_bytes") is not None]
        if nodes:
            fullest = max(nodes, key=lambda s: (s["memory_used_bytes"], s["memory_total_bytes"]))
            if fullest["memory_used_bytes"] >= 0.95 * fullest["memory_total_bytes"]:
                evidence["host_peak_share"] = fullest["memory_used_bytes"] / fullest["memory_total_bytes"]
        if evidence:
            lost = sum(one["stopped"] - one["began"] for one in short) / 1e9 if short else None
            tell("memory_pressure", lost, evidence, self._hosts())

    def _failed(self, tell: Any, matters: Any) -> None:
        delayed = self.parts["delayed"] / 1e9
        if not matters(self.parts["failed"] / 1e9 + delayed):
            return
        times = {
            state: [
                (one, one["stopped"] - one["began"])
                for one in self.every
                if one["state"] == state and one["began"] is not None
            ]
            for state in ("failed", "cancelled")
        }
        whole = sum(lasted for some in times.values() for _, lasted in some)
        for state, some in times.items():
            lost = self.parts["failed"] / 1e9 * sum(lasted for _, lasted in some) / whole if whole else 0.0
            lost += delayed if state == "failed" else 0.0
            if not matters(lost):
                continue
            by_name = Counter[str]()
            for one, lasted in some:
                by_name[one["task"]] += lasted
            evidence = {"attempts": len(some)}
            if state == "failed":
                evidence["retried"] = sum("task_retried" in one["lines"] for one, _ in some)
                evidence["retry_wait_s"] = delayed
            kind = "failed_work" if state == "failed" else "cancelled_work"
            tell(kind, lost, evidence, sorted(by_name, key=lambda task: (-by_name[task], task))[:3])

    def _idle(self, tell: Any, matters: Any) -> None:
        order = sorted(
            self.behind.values(), key=lambda row: (-row["idle"], row["one"]["task"], row["one"]["task_id"])
        )
        slow, ordinary = [], []
        for row in order:
            exact, known = self.usual(row["one"]["task"])
            usual = round(exact)
            lasted = row["one"]["stopped"] - row["one"]["began"]
            is_slow = known >= 5 and lasted >= 2 * usual
            if not is_slow or row["one"]["state"] != "failed":  # a slow one that failed is failed work
                (slow if is_slow else ordinary).append((row, lasted, usual))
        lost = sum(row["idle"] for row, *_ in slow) / 1e9
        if matters(lost):
            worst, lasted, usual = slow[0]
            evidence = {
                "tasks": len(slow),
                "workers_idle": len(worst["who"]),
                "worst_s": lasted / 1e9,
                "median_s": usual / 1e9,
                "idle_behind_worst_s": worst["idle"] / 1e9,
            }
            where = [called(row["one"]["task"], row["one"]["args"]) for row, *_ in slow[:3]]
            tell("stragglers", lost, evidence, where)
        lost = sum(row["idle"] for row, *_ in ordinary) / 1e9
        unused = sorted(
            name
            for name in self.ups
            if not any(one["worker"] == name and one["began"] is not None for one in self.every)
        )
        if matters(lost):
            evidence = {
                "batches": len(ordinary),
                "unused_workers": len(unused),
                "workers": len(self.everyone),
            }
            tell("idle_workers", lost, evidence, unused[:3] or [ordinary[0][0]["one"]["task"]])
        alone = self.parts["alone"] / 1e9
        if matters(alone):
            chain = (
                slow_report.Path_(self.path).parts()
                if any(one["began"] is not None for one in self.every)
                else {}
            )
            program = {name: lasted / 1e9 for (kind, name), lasted in chain.items() if kind == "program"}
            tell("program_alone", alone, {"program_s": program, "spans_s": self._program_spans()}, None)

    def _program_spans(self) -> dict[str, float]:
        """Stretch by stretch: in which spans the program was while a worker was up for which no attempt
        waited or ran."""
        known, tasks = self.spans, {one["span_id"] for one in self.every}

        def is_outside(key: str | None, met: frozenset[str | None] = frozenset()) -> bool:
            if key in tasks or key in met:
                return False
            return key not in known or is_outside(known[key].get("parent_id"), met | {key})

        times = {key: time for key, time in self.span_times.items() if is_outside(key)}
        busy = [(one["began"], one["stopped"]) for one in self.held]
        lives = [
            (up, [*busy, *self.delays, *self._waits(self.everyone[name]["component"])])
            for name, up in self.ups.items()
        ]
        cuts = {
            moment
            for piece in [*times.values(), *self.ups.values(), *(one for _, astir in lives for one in astir)]
            for moment in piece
        }
        alone, own = 0, Counter[str]()
        for since, until in pairwise(sorted(cuts)):
            if not any(
                up[0] <= since and until <= up[1] and not any(a <= since and until <= b for a, b in astir)
                for up, astir in lives
            ):
                continue
            alone += until - since
            there = [key for key, (began, stopped) in times.items() if began <= since and until <= stopped]
            outer = {known[key].get("parent_id") for key in there}
            for name in {known[key]["name"] for key in there if key not in outer}:
                own[name] += until - since
        order = sorted(
            (name for name in own if own[name] > 0 and own[name] >= 0.1 * alone),
            key=lambda name: (-own[name], name),
        )
        return {name: own[name] / 1e9 for name in order[:3]}

    def _cold(self, tell: Any, matters: Any) -> None:
        slow, beyond = 0, 0.0
        for name in self.everyone:
            mine = [
                one
                for one in self.every
                if one["worker"] == name and one["state"] == "completed" and one["began"] is not None
            ]
            if mine:
                first = min(mine, key=lambda one: (one["began"], one["task_id"]))
                usual, known = self.usual(first["task"])
                lasted = first["stopped"] - first["began"]
                if known >= 5 and lasted >= 2 * usual:
                    slow, beyond = slow + 1, beyond + lasted - usual
        never = {
            name
            for name, life in self.everyone.items()
            if life["up"] is not None
            and not life["ready"]
            and not any(a < life["up"][1] and b > life["up"][0] for a, b, _ in self._pieces(name))
        }
        startup, beyond, imports = self.parts["startup"], round(beyond), self._imports()
        startup -= sum(self.startups[name] for name in never)
        queued_s = self._queued_s()
        long_queued = queued_s >= 0.03 * (self.until - self.start) / 1e9
        if matters((startup + beyond + imports) / 1e9) or (long_queued and matters(queued_s)):
            evidence = {
                "startup_s": startup / 1e9,
                "workers": max(1, len(self.everyone) - len(never)),
                "slow_first_tasks": slow,
                "beyond_usual_s": beyond / 1e9,
                "queued_s": queued_s,
            }
            order = sorted(self.everyone.keys() - never, key=lambda name: (-self.startups[name], name))
            tell("cold_starts", (startup + beyond + imports) / 1e9, evidence, order[:3])

    def _queued_s(self) -> float:
        """From the first submission to the first launch."""
        wanted = [one["waits"] if one["submitted"] is None else one["submitted"] for one in self.every]
        launched = [life["starting"][0] for life in self.everyone.values() if life["starting"]]
        first = min((moment for moment in wanted if moment is not None), default=None)
        return max(0, min(launched) - first) / 1e9 if launched and first is not None else 0.0

    def _moving(self, latency_s: float) -> bool:
        """Whether dispatch latency is data on its way to workers."""
        ends = [one["lines"].get("end", {}) for one in self.every if one["state"] == "completed"]
        size = sum((end.get("call_bytes") or 0) + (end.get("result_bytes") or 0) for end in ends)
        reading = fsum(end.get("serialize_s") or 0.0 for end in ends if largest(end) >= 100_000)
        passed = sum(
            (end.get("call_bytes") or 0)
            + (0 if end.get("session_serialize_s") is None else end.get("result_bytes") or 0)
            for end in ends
        )
        moved = max(size, passed * len(self.everyone)) / 500e6
        return size >= 100_000 * len(ends) and max(moved, 3 * reading) >= 0.3 * latency_s

    def _imports(self) -> int:
        """What workers took to read small calls, in nanoseconds."""
        ends = [one["lines"].get("end", {}) for one in self.every if one["state"] == "completed"]
        return sum(round((end.get("serialize_s") or 0.0) * 1e9) for end in ends if largest(end) < 100_000)

    def _cache(self, tell: Any, matters: Any) -> None:
        asked = [line for line in lines(self.path, "cache") if line["event"] == "cache_lookup"]
        asked = sorted(
            (line for line in asked if line["result"] in {"hit", "miss"}), key=lambda line: line["timestamp"]
        )
        beside = Counter(line.get("task_id") for line in asked)
        lasted: dict[str, list[int]] = {}
        for one in self.every:
            if one["state"] == "completed" and one["began"] is not None:
                lasted.setdefault(one["task_id"], []).append(one["stopped"] - one["began"])
        rows = []
        for task in sorted({line["task"] for line in asked if line["result"] == "miss"}):
            saved = [
                line["saved_s"]
                for line in asked
                if line["task"] == task and line["result"] == "hit" and line.get("saved_s") is not None
            ]
            missed = [line for line in asked if line["task"] == task and line["result"] == "miss"]
            alone = [
                each
                for line in missed
                if line.get("task_id") is not None and beside[line["task_id"]] == 1
                for each in lasted.get(line["task_id"], [])
            ]
            seen: set[str] = set()
            needless = repeated = 0
            computed: list[float] = []
            reasons = Counter[str]()
            for line in missed:
                lost = line.get("reason") not in {None, "never seen", "arguments changed"}
                again = line["key"] is not None and line["key"] in seen
                seen |= {line["key"]}
                needless, repeated = needless + (lost or again), repeated + (again and not lost)
                reasons.update([line["reason"]] if lost else [])
                if (lost or again) and line.get("computed_s") is not None:
                    computed.append(line["computed_s"])
            known = computed or saved
            each = fmean(known) if known else fmean(alone) / 1e9 if alone else None
            if needless and each is not None:
                reason = min(reasons, key=lambda one: (-reasons[one], one), default=None)
                rows.append((needless * each, needless, task, repeated, len(missed), each, reason))
        rows.sort(key=lambda row: (-row[0], -row[1], row[2]))
        if rows and matters(rows[0][0]):
            lost, needless, task, repeated, misses, each, reason = rows[0]
            evidence = {
                "function": task,
                "needless_misses": needless,
                "asked_again": repeated,
                "misses": misses,
                "each_s": each,
                "reason": reason,
            }
            tell("cache_misses", lost, evidence, [row[2] for row in rows[:3]])

    def _crowded(self, tell: Any, matters: Any) -> None:
        throttled = self._growth("cgroup", "throttled_s")
        if throttled is not None and matters(held := min(throttled, self.total / 1e9)):
            quota = max(
                (s["cpus"] for s in self._samples("cgroup") if s.get("cpus") is not None), default=None
            )
            tell("throttling", held, {"throttled_s": throttled, "cpu_quota": quota}, [])

    def _samples(self, scope: str) -> list[Row]:
        return [line for line in lines(self.path, "resources") if line.get("scope") == scope]

    def _growth(self, scope: str, field: str) -> float | None:
        known: dict[str, list[float]] = {}
        for sample in self._samples(scope):
            if sample.get(field) is not None:
                known.setdefault(sample["host"], []).append(sample[field])
        grown = [max(values) - min(values) for values in known.values() if len(values) > 1]
        return fsum(grown) if grown else None

    def _hosts(self) -> list[str]:
        return sorted({sample["host"] for sample in self._samples("node")})[:3]


def largest(end: Row) -> int:
    """The size of the call or of the result of an attempt, whichever is larger."""
    return max(end.get("call_bytes") or 0, end.get("result_bytes") or 0)


def called(task: str, args: Row | None) -> str:
    inside = ", ".join(f"{name}={value}" for name, value in (args or {}).items())
    return f"{task}({inside})" if inside else task
