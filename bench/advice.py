"""How well advice holds: asked for on a history with known truth, and tried on the runs that come after it.

    python -m bench.advice [SEEDS]                  a table as in docs/advice.md; by default 20 seeds
    python -m bench.advice drawn [COUNT [FIRST]]    workloads drawn at random; by default 60, from 1000 on

Each workload of `bench/truth.py` is written as run directories, `flightlog advise` looks at them, and what it
recommends is held against what every attempt of later runs truly needs, whatever was recorded of it.
Scalable's rule is the largest request so far times 1.1. The oracle knows the later attempts, and asks for
what 95 % of them need.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from bench.truth import GB, WORKLOADS, Kind, TrueAttempt, Workload, write_history
from flightlog.analyze.advice.advise import advise_on
from flightlog.analyze.advice.resources import Recommendation
from flightlog.analyze.history.attempts import read_past

SHARE = 0.95
BAND = (0.93, 0.99)
LENGTHS = ((20, 60), (6, 30), (3, 12))
"""Runs, and tasks in each, of the histories."""
LATER = (5, 200)
"""At least so many later runs, and tasks in each, are tried."""


@dataclass
class Row:
    """What came of one task of a workload, a number for each seed."""

    memory: list[float] = field(default_factory=list)
    """Share of later attempts that the recommended memory is enough for."""
    asked: list[float] = field(default_factory=list)
    oracle: list[float] = field(default_factory=list)
    scalable: list[float] = field(default_factory=list)
    """Bytes."""
    run_time: list[float] = field(default_factory=list)
    """Share of later attempts that end within the time that is said to be enough."""
    silent: int = 0
    """Histories that were too short for advice."""


def measure(runs: int, tasks: int, seeds: int) -> dict[tuple[str, str], Row]:
    """The rows of all workloads with histories of this length, by workload and task."""
    rows: dict[tuple[str, str], Row] = {}
    for workload in WORKLOADS.values():
        for seed in range(seeds):
            for found, later in _tried(workload, runs, tasks, seed):
                row = rows.setdefault((workload.name, found.task), Row())
                _add(row, found, later)
    return rows


def _tried(
    workload: Workload, runs: int, tasks: int, seed: int
) -> Iterator[tuple[Recommendation, list[TrueAttempt]]]:
    after = max(LATER[0], runs // 2)
    whole = runs + after
    with tempfile.TemporaryDirectory(prefix="flightlog-advice-") as folder:
        known, unknown = Path(folder) / "known", Path(folder) / "later"
        write_history(known, workload, runs=runs, tasks=tasks, seed=seed, of_runs=whole)
        later = write_history(
            unknown, workload, runs=after, tasks=LATER[1], seed=seed, first_run=runs, of_runs=whole
        )
        past = read_past(known, project=workload.name)
    for found in advise_on(past, confidence=SHARE, shape=False).recommendations:
        yield found, [attempt for attempt in later if attempt.task == found.task]


def _add(row: Row, found: Recommendation, later: list[TrueAttempt]) -> None:
    asked, took = found.recommended.memory_bytes, found.needs["walltime"].bound
    if asked is None or took is None:
        row.silent += 1
        return
    needs = sorted(attempt.memory_bytes for attempt in later)
    row.memory.append(sum(need <= asked for need in needs) / len(needs))
    row.run_time.append(sum(attempt.duration_s <= took for attempt in later) / len(later))
    row.asked.append(asked)
    row.oracle.append(needs[int(SHARE * len(needs))])
    row.scalable.append((found.current.memory_bytes or 0) * 1.1)


def drawn_workload(number: int) -> Workload:
    """A workload of one task, all of whose properties are drawn: shape, noise, range, limit, failures,
    drift."""
    dice = random.Random(f"drawn workload {number}")
    power, base, top = (
        dice.choice((0.0, 0.5, 1.0, 1.0, 1.5, 2.0)),
        dice.uniform(0.05, 2.0) * GB,
        dice.uniform(0.1, 8.0) * GB,
    )
    largest, noise = dice.choice((50, 1000, 20_000)), math.exp(dice.uniform(math.log(0.01), math.log(0.5)))
    even = dice.random() < 0.5

    def args(draw: random.Random) -> dict[str, object]:
        size = draw.randint(1, largest) if even else round(math.exp(draw.uniform(0.0, math.log(largest))))
        return {"size": size, "seed": draw.randrange(10**6), "mode": draw.choice(("a", "b", "c"))}

    def memory(given: dict[str, object]) -> float:
        return base + (top * (float(str(given["size"])) / largest) ** power if power else 0.0)

    kind = Kind(
        "work",
        args,
        lambda given: memory(given) / GB * 5.0,
        memory,
        memory_noise=noise,
        duration_noise=math.exp(dice.uniform(math.log(0.02), math.log(0.8))),
    )
    tight = dice.random() < 0.3
    return Workload(
        f"drawn-{number}",
        (kind,),
        memory_limit=round((base + top) * (0.85 if tight else 4.0)),
        failures=dice.choice((0.0, 0.0, 0.05, 0.2)),
        drift=dice.choice((0.0, 0.0, 0.0, 0.3, -0.3)),
    )


def drawn(count: int = 60, first: int = 1000) -> None:
    """Print how drawn workloads are covered, with histories of each length."""
    for runs, tasks in LENGTHS:
        row = Row()
        for number in range(first, first + count):
            for found, later in _tried(drawn_workload(number), runs, tasks, seed=1000 + number):
                _add(row, found, later)
        low, high = BAND
        below, above = (sum(test) for test in ([c < low for c in row.memory], [c > high for c in row.memory]))
        print(
            f"{runs} runs of {tasks} tasks, {len(row.memory)} drawn workloads ({row.silent} too short for "
            "advice): memory is"
            f" enough for {fmean(row.memory):.1%} of later attempts (least {min(row.memory):.1%}), time for"
            f" {fmean(row.run_time):.1%}; {below} below {low:.0%}, {above} above {high:.0%}; asked"
            f" {sum(row.asked) / sum(row.scalable):.0%} of Scalable's, "
            f"{sum(row.asked) / sum(row.oracle):.0%} of the oracle's",
            flush=True,
        )


def main(seeds: int = 20) -> None:
    """Print a table a length of history, in Markdown."""
    for runs, tasks in LENGTHS:
        rows = measure(runs, tasks, seeds)
        print(f"\n{runs} runs of {tasks} tasks, {seeds} histories of each workload\n")
        print("| workload, task | memory is enough for | asked | oracle | Scalable | time is enough for |")
        print("|---|---|---|---|---|---|")
        for (workload, task), row in rows.items():
            if not row.memory:
                print(f"| {workload}, {task} | no advice: too little history | | | | |")
                continue
            low, high = min(row.memory), max(row.memory)
            amounts = " | ".join(
                f"{fmean(each) / GB:.2f} GB" for each in (row.asked, row.oracle, row.scalable)
            )
            print(
                f"| {workload}, {task} | {fmean(row.memory):.1%} ({low:.1%} to {high:.1%}) | {amounts} |"
                f" {fmean(row.run_time):.1%} |"
            )
        known = [row for row in rows.values() if row.memory]
        memory, times = [
            fmean(each) for each in zip(*((fmean(r.memory), fmean(r.run_time)) for r in known), strict=True)
        ]
        each = [share for row in known for share in row.memory]
        inside = sum(BAND[0] <= share <= BAND[1] for share in each) / len(each)
        less = 1 - sum(map(fmean, (r.asked for r in known))) / sum(map(fmean, (r.scalable for r in known)))
        more = sum(map(fmean, (r.asked for r in known))) / sum(map(fmean, (r.oracle for r in known))) - 1
        silent = sum(row.silent for row in rows.values())
        print(
            f"\nMemory is enough for {memory:.1%} of later attempts, time for {times:.1%};"
            f" {inside:.0%} of the histories lie within {BAND[0]:.0%} to {BAND[1]:.0%}."
            f" It asks for {less:.0%} less than Scalable's rule, {more:+.0%} of what the oracle does."
            + (f" {silent} histories of a task were too short for advice." if silent else ""),
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["drawn"]:
        drawn(*map(int, sys.argv[2:4]))
    else:
        main(*map(int, sys.argv[1:2]))
