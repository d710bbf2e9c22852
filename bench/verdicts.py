"""Is the verdict right? Runs programs with a known bottleneck and prints what their reports say first.

    python -m bench.verdicts [NAME ...] [--strength S ...] [--runs FOLDER]

A verdict is right if it names the bottleneck that was built in, and nothing else; of a healthy run if it says
that nothing limits it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.verdict_programs import PROGRAMS
from flightlog.analyze.report.report import report_on
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run

HEALTHY = "none"
TRUTH = {
    "gil": {"interpreter_lock"},
    "sleeping": {HEALTHY},
    "chain": {"dependency_chain"},
    "oversubscribed": {"oversubscription"},
    "leaking": {"memory_growth"},
    "slow_workers": {"slow_workers"},
    "straggler": {"stragglers"},
    "tiny": {"handover"},
    "transfer": {"serialization"},
    "slow_driver": {"program_alone"},
    "retries": {"failed_work"},
    "loading": {"data_loading"},
    "diverging": {"not_finite"},
    "busy_machine": {"busy_machine"},
    "waits_on_busy_machine": {HEALTHY},
    "pool": {"nothing_recorded"},
    "healthy": {HEALTHY},
}
"""The kinds of a right verdict, by program."""


def take(name: str, strength: float, runs: Path) -> tuple[str, str]:
    """Run one program; the kind of its verdict, and the sentence."""
    folder = runs / f"{name}-{strength}"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "bench.verdict_programs", name, str(strength), str(folder)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    [entry] = list_runs(folder)
    return judge(entry.path)


def judge(path: Path) -> tuple[str, str]:
    """The kind of a run's verdict, and the sentence."""
    verdict = report_on(Run(path)).verdict
    return verdict.kind, verdict.sentence


def main() -> int:
    """Take the exam; 0 if every verdict was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs; all by default")
    parser.add_argument("--strength", type=float, nargs="*", default=[1.0, 0.5, 0.0])
    parser.add_argument("--runs", type=Path, default=None, help="where to keep the runs")
    given = parser.parse_args()
    runs = given.runs or Path(tempfile.mkdtemp(prefix="flightlog-exam-"))
    right = taken = 0
    for name in given.names or PROGRAMS:
        for strength in given.strength:
            kind, sentence = take(name, strength, runs)
            wanted = TRUTH[name] if strength else {HEALTHY}
            taken, right = taken + 1, right + (kind in wanted)
            print(
                f"{'right' if kind in wanted else 'WRONG'}  {name} {strength:g}: {kind}: {sentence}",
                flush=True,
            )
    print(f"{right} of {taken} right")
    return 0 if right == taken else 1


if __name__ == "__main__":
    sys.exit(main())
