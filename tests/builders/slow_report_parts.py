"""What is slow, in flight, failed and looped, once more the slow way: plain Python over the lines, nothing
shared."""

from __future__ import annotations

from math import floor, fsum
from pathlib import Path
from typing import Any

from builders import slow_report
from builders.slow_report import lines, ns

from flightlog.store.run import Run

Row = dict[str, Any]
PHASES = {
    "ask": "algorithm.ask",
    "submit": "simulation.submit_batch",
    "gather": "simulation.gather",
    "tell": "algorithm.tell",
}


def quantile(values: list[float], q: float) -> float:
    ordered, place = sorted(values), q * (len(values) - 1)
    above = min(floor(place) + 1, len(values) - 1)
    return ordered[floor(place)] + (ordered[above] - ordered[floor(place)]) * (place - floor(place))


def spans(path: Path) -> dict[str, Row]:
    """Every span once by its id: its end, or else how long it had been open at the run's last sign of
    life."""
    found: dict[str, Row] = {}
    known_of_run = slow_report.info(path)
    sign = ns(known_of_run["end_time"] or known_of_run.get("heartbeat"))
    for line in lines(path, "spans"):
        known = found.get(line["span_id"])
        if line["event"] == "span":
            found[line["span_id"]] = line | {"open": False}
        elif known is None or (known["open"] and line["elapsed_s"] > known["elapsed_s"]):
            age_s = 0.0 if sign is None else (sign - (ns(line["timestamp"]) or 0)) / 1e9
            found[line["span_id"]] = line | {"open": True, "duration_s": max(line["elapsed_s"], age_s)}
    return found


# --- the slowest, in flight ---


def slowest(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The three slowest completed tasks of each name."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    known = [
        one
        for one in slow_report.attempts(path)
        if one["state"] == "completed" and one["duration_s"] is not None
    ]
    for one in sorted(known, key=lambda one: (-one["duration_s"], one["task_id"], one["attempt"])):
        row = (one["task"], one["task_id"], one["args"] or {}, one["duration_s"], one["worker"])
        found[one["task"]] = [*found.get(one["task"], []), row][:3]
    return found


def in_flight(path: Path) -> list[tuple[Any, ...]]:
    """Kind, name, arguments, worker, since, elapsed, usual, ratio and whether it is stuck, in the report's
    order."""
    _, until = slow_report.window(path)
    beats = {one.writer: ns(one.heartbeat) for one in Run(path).writers() if one.heartbeat}
    every, events = slow_report.attempts(path), lines(path, "tasks")
    args = {line["task_id"]: line["args"] for line in events if line["event"] == "task_submitted"}
    ended: dict[tuple[str, str], list[float]] = {}
    going: list[tuple[Any, ...]] = []
    for line in events:
        if line["event"] == "task_completed" and line["duration_s"] is not None:
            ended.setdefault(("task", line["task"]), []).append(line["duration_s"])
    for one in every:
        if one["state"] == "running":
            start = one["lines"]["task_started"]
            began, sign = start["timestamp"], beats.get(start["writer"], until)
            age_s = max(0, sign - ns(began)) / 1e9
            going.append(("task", start["task"], args.get(one["task_id"]), start["worker"], began, age_s))
    for span in spans(path).values():
        if span["open"]:
            sign = beats.get(span["writer"], until)
            age_s = max(span["elapsed_s"], (sign - ns(span["timestamp"])) / 1e9)
            going.append(("span", span["name"], span["tags"], None, span["timestamp"], age_s))
        elif span["duration_s"] is not None:
            ended.setdefault(("span", span["name"]), []).append(span["duration_s"])
    found = []
    for kind, name, given, worker, since, elapsed in going:
        durations = ended.get((kind, name), [])
        usual = ratio = stuck = None
        if len(durations) >= 5:
            usual = (
                len(durations),
                quantile(durations, 0.5),
                quantile(durations, 0.95),
                max(durations),
                "run",
            )
            ratio = elapsed / usual[1] if usual[1] > 0 else None
            stuck = elapsed > 3 * usual[2] and elapsed > usual[3]
        found.append((kind, name, given, worker, since, elapsed, usual, ratio, stuck))
    return sorted(found, key=lambda one: (not one[8], -one[5], one[4], one[1]))


# --- calibration ---


def within(span: Row, around: Row) -> float:
    """How long a span lasted; one without an end on record ended with the span around it at the latest."""
    until_s = around["duration_s"] - (ns(span["timestamp"]) - ns(around["timestamp"])) / 1e9
    return min(span["duration_s"], max(0.0, until_s)) if span["open"] else span["duration_s"]


def loops(path: Path) -> list[Row]:
    """Each loop with its turns: every phase of a turn is added up, every metric looked for, one by one."""
    every = [span for span in spans(path).values() if span["duration_s"] is not None]
    order = sorted(every, key=lambda span: (span["timestamp"], span["span_id"]))
    turns: dict[str, list[Row]] = {}
    for span in order:
        if span["name"] != "calibration.iteration":
            continue
        inside = [other for other in order if other.get("parent_id") == span["span_id"]]
        turn: Row = {"at": span["timestamp"], "lasted": span["duration_s"], "open": span["open"]}
        for phase, name in PHASES.items():
            spent = [within(other, span) for other in inside if other["name"] == name]
            turn[phase] = fsum(spent) if spent else None
        measured = [other for other in inside if other["name"] in PHASES.values()]
        trials = [span.get("metrics", {}).get("total_trials")]
        trials += [other.get("metrics", {}).get("n_trials") for other in measured]
        losses = [other.get("metrics", {}).get("min_loss") for other in (span, *measured)]
        turn["trials"] = next((number for number in trials if number is not None), None)
        turn["loss"] = min((loss for loss in losses if loss is not None), default=None)
        turn["tag"] = span.get("tags", {}).get("iteration")
        turns.setdefault(span.get("parent_id") or "", []).append(turn)
    found = []
    for parent, some in turns.items():
        job = next(
            (span for span in every if span["span_id"] == parent and span["name"] == "calibration.job"), None
        )
        ends = [ns(turn["at"]) + round(turn["lasted"] * 1e9) for turn in some]
        lasted = job["duration_s"] if job else (max(ends) - ns(some[0]["at"])) / 1e9
        known = [turn["trials"] for turn in some if turn["trials"] is not None]
        losses = [turn["loss"] for turn in some if turn["loss"] is not None]
        spent = {phase: fsum(turn[phase] or 0.0 for turn in some) for phase in PHASES}
        whole = fsum(turn["lasted"] for turn in some)
        found.append(
            {
                "job": job.get("tags", {}).get("job_id") if job else None,
                "iterations": len(some),
                "open": job["open"] if job else any(turn["open"] for turn in some),
                "duration_s": lasted,
                "iterations_s": whole,
                **{f"{phase}_s": spent[phase] for phase in PHASES},
                "other_s": whole - fsum(spent.values()),
                "trials": sum(known) if known else None,
                "trials_per_minute": sum(known) * 60 / lasted if known and lasted > 0 else None,
                "best_loss": min(losses, default=None),
                "start": some[0]["at"],
                "best_iteration": next(
                    (
                        turn["tag"] or str(n)
                        for n, turn in enumerate(some, 1)
                        if turn["loss"] == min(losses, default=0)
                    ),
                    None,
                )
                if losses
                else None,
                "listed": [
                    (
                        turn["tag"] or str(n),
                        turn["at"],
                        turn["open"],
                        turn["lasted"],
                        *(turn[phase] for phase in PHASES),
                        turn["trials"],
                        turn["loss"],
                        min(
                            (before["loss"] for before in some[:n] if before["loss"] is not None),
                            default=None,
                        ),
                    )
                    for n, turn in enumerate(some, 1)
                ],
            }
        )
    return sorted(found, key=lambda loop: (loop["start"], loop["job"] or ""))
