"""Is the verdict right? Runs programs with a known bottleneck and prints what their reports say first.

    python -m bench.verdicts [NAME ...] [--strength strong weak absent] [--runs FOLDER] [--minutes M]

A verdict is right if it names the bottleneck that was built in, and nothing else; of a healthy run, and of
one whose bottleneck is absent, if it says that nothing limits it. What it would save is held against what the
run without the bottleneck took less. With `--runs` the results are kept there, in `results.jsonl`, and what
has been taken is not taken again; after `--minutes` no further program is begun. Programs of an engine that
is not on this machine are skipped, and not counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from bench.verdict_engines import EnginesAtHand, NotAtHandError, Started
from bench.verdict_programs import HEALTHY, PROGRAMS, Program
from flightlog.analyze.report.report import report_on
from flightlog.store.catalogue import list_runs
from flightlog.store.completing import open_run
from flightlog.store.run import Run

STRENGTHS = ("strong", "weak", "absent")
CLOSE = 0.25
"""An estimate is right that is off by at most this part of what was saved."""


class Taken(msgspec.Struct, kw_only=True):
    """What a report said of one program."""

    name: str
    strength: str
    """`strong`, `weak`, `absent`, or `healthy` for programs with nothing wrong."""
    right: bool
    kind: str
    sentence: str
    wall_s: float
    saves_s: float | None
    remedied_s: float | None = None
    """The wall time of the program with the remedy that is advised; null where it has no such form."""


def take(name: str, strength: str, runs: Path, started: Started) -> Taken:
    """Run one program, and read its report; run it with the remedy, too, where it has such a form."""
    found = judge(name, strength, execute(name, strength, runs / f"{name}-{strength}", started))
    if PROGRAMS[name].remedied is not None and strength != "absent":
        remedied = execute(name, strength, runs / f"{name}-{strength}-remedied", started, "--remedied")
        found.remedied_s = remedied.info.duration_s
    return found


def execute(name: str, strength: str, folder: Path, started: Started, *options: str) -> Run:
    """The run of a program at a strength."""
    program = PROGRAMS[name]
    shutil.rmtree(folder, ignore_errors=True)
    number = {"weak": program.weak, "absent": 0.0}.get(strength, 1.0)
    done = subprocess.run(
        [*started.command, "-m", "bench.verdict_programs", name, str(number), str(folder), *options],
        env={
            **os.environ,
            **started.environ,
            "PYTHONDONTWRITEBYTECODE": "",  # compiled modules, as where it is installed
        },
        check=False,
        stdout=subprocess.DEVNULL,
    )
    if done.returncode and not (program.fails and number):
        raise SystemExit(f"{name} at {strength} ended with {done.returncode}")
    [entry] = list_runs(folder)
    return open_run(entry.path)


def judge(name: str, strength: str, run: Run) -> Taken:
    """Whether the report of a program's run names what was built in."""
    program = PROGRAMS[name]
    report = report_on(run)
    verdict = report.verdict
    kind, sentence = verdict.kind, verdict.sentence
    if verdict.failed is not None and "failed" in program.kinds:
        kind, sentence = "failed", verdict.failed
    return Taken(
        name=name,
        strength=strength,
        right=is_right(program, strength, kind, sentence),
        kind=kind,
        sentence=sentence,
        wall_s=report.run.duration_s or 0.0,
        saves_s=verdict.saves_s,
    )


def is_right(program: Program, strength: str, kind: str, sentence: str) -> bool:
    """Whether this is what is true of the program."""
    if strength == "absent":
        return kind in program.absent
    return kind in program.kinds and program.says in sentence


def strengths_of(name: str, asked: Sequence[str]) -> list[str]:
    """Those that a program is taken at: once where nothing is wrong with it."""
    healthy = PROGRAMS[name].kinds == {HEALTHY}
    return (["healthy"] if "absent" in asked or "strong" in asked else []) if healthy else list(asked)


def savings(taken: Iterable[Taken]) -> list[tuple[Taken, float]]:
    """Right verdicts with an estimate, and what the run with the remedy, or without the bottleneck, took
    less.
    """
    found = {(one.name, one.strength): one for one in taken}
    pairs = []
    for (name, strength), one in found.items():
        absent = found.get((name, "absent"))
        without = one.remedied_s
        if PROGRAMS[name].comparable and strength in {"strong", "weak"} and absent is not None:
            without = absent.wall_s
        if without is not None and one.right and one.saves_s is not None:
            pairs.append((one, one.wall_s - without))
    return pairs


def is_close(estimate: float, measured: float) -> bool:
    """Whether an estimate of a saving was good enough."""
    return abs(estimate - measured) <= CLOSE * max(measured, 0.0)


def print_summary(taken: Sequence[Taken]) -> None:
    """A line for each strength, and one for the savings."""
    for strength in (*STRENGTHS, "healthy"):
        of = [one for one in taken if one.strength == strength]
        if of:
            right = sum(one.right for one in of)
            what = "false alarms" if strength in {"absent", "healthy"} else "wrong"
            print(f"{strength}: {right} of {len(of)} right, {len(of) - right} {what}")
    pairs = savings(taken)
    for one, measured in pairs:
        mark = "close" if is_close(one.saves_s or 0.0, measured) else "OFF"
        print(f"{mark:6} {one.name} {one.strength}: estimated {one.saves_s:.2f} s, measured {measured:.2f} s")
    if pairs:
        close = sum(is_close(one.saves_s or 0.0, measured) for one, measured in pairs)
        print(f"savings: {close} of {len(pairs)} within {CLOSE:.0%}")
    print(f"{sum(one.right for one in taken)} of {len(taken)} right")


def main() -> int:
    """Take the exam; 0 if every verdict was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; all by default")
    parser.add_argument("--strength", nargs="*", choices=STRENGTHS, default=list(STRENGTHS))
    parser.add_argument("--runs", type=Path, default=None, help="where to keep the runs")
    parser.add_argument("--minutes", type=float, default=None, help="begin nothing after so long")
    given = parser.parse_args()
    with EnginesAtHand() as engines:
        taken = take_all(given, engines)
    print_summary(taken)
    return 0 if taken and all(one.right for one in taken) else 1


def take_all(given: argparse.Namespace, engines: EnginesAtHand) -> list[Taken]:
    """The programs that are asked for, one after the other, each with a line that says how it went."""
    runs = given.runs or Path(tempfile.mkdtemp(prefix="flightlog-exam-"))
    runs.mkdir(parents=True, exist_ok=True)
    results = runs / "results.jsonl"
    lines = results.read_bytes().splitlines() if results.exists() else []
    known = {
        (one.name, one.strength): one for one in (msgspec.json.decode(line, type=Taken) for line in lines)
    }
    until = time.monotonic() + 60 * given.minutes if given.minutes is not None else None
    taken = []
    for name in sorted(given.names or PROGRAMS, key=lambda name: PROGRAMS[name].engine or ""):
        for strength in strengths_of(name, given.strength):
            one = known.get((name, strength))
            if one is None:
                if until is not None and time.monotonic() > until:
                    continue
                try:
                    started = engines.start(PROGRAMS[name].engine)
                except NotAtHandError as why:
                    print(f"skipped  {name} {strength}: {why}", flush=True)
                    continue
                one = take(name, strength, runs, started)
                with results.open("ab") as out:
                    out.write(msgspec.json.encode(one) + b"\n")
            taken.append(one)
            mark = "right" if one.right else "WRONG"
            print(f"{mark}  {name} {strength} ({one.wall_s:.1f} s): {one.kind}: {one.sentence}", flush=True)
    return taken


if __name__ == "__main__":
    sys.exit(main())
