"""Runs the second exam: each program in a fresh process and folder, its verdict held against the built-in truth.

    python run_exam.py [--out FILE] [--names NAME ...] [--strength strong weak absent] [--no-healthy]

Healthy programs run once, whatever the strengths. With --out, what is in FILE already is not run again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from programs import FLIGHTLOG, HERE, PROGRAMS

TIMEOUT_S = 60


def run_program(name, number, folder):
    """Wall seconds of the process, and None or what went wrong."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "programs.py"), name, str(number), str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        problem = None
        try:
            if process.wait(TIMEOUT_S):
                output.seek(0)
                problem = f"exit code {process.returncode}: {output.read().decode(errors='replace')[-1500:]}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            problem = f"not ended after {TIMEOUT_S} s"
    return time.monotonic() - begun, problem


def read_report(folder):
    done = subprocess.run(
        [str(FLIGHTLOG), "report", "latest", "--runs-dir", str(folder), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        return None, f"report: {done.stderr[-800:]}"
    return json.loads(done.stdout), None


def examine(name, label, number):
    entry = PROGRAMS[name]
    row = {"name": name, "strength": label, "number": number, "expected": sorted(entry.expected(number))}
    with tempfile.TemporaryDirectory(prefix="exam-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "runs"
        row["wall_s"], problem = run_program(name, number, folder)
        report, unread = (None, None) if problem else read_report(folder)
    problem = problem or unread
    if problem:
        return {**row, "right": False, "kind": "error", "sentence": problem, "truth": entry.truth}
    verdict = report.get("verdict") or {}
    kind = verdict.get("kind") or "none"
    parts = {key: verdict.get(key) for key in ("sentence", "advice", "share", "saves_s", "certainty")}
    return {**row, "right": kind in row["expected"], "kind": kind, **parts, "truth": entry.truth}


def show(row):
    mark = "right" if row["right"] else "WRONG"
    expected = "" if row["right"] else f"  [expected {' or '.join(row['expected'])}]"
    sentence = " ".join((row["sentence"] or "").split())
    print(
        f"{mark}  {row['name']:28} {row['strength']:8} {row['wall_s']:5.1f}s  {row['kind']:18} {sentence}{expected}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--names", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="NAME")
    parser.add_argument(
        "--strength", nargs="+", choices=["strong", "weak", "absent"], default=["strong", "weak", "absent"]
    )
    parser.add_argument("--no-healthy", action="store_true")
    options = parser.parse_args()

    known = {}
    if options.out and options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            known[row["name"], row["strength"]] = row
    rows = []
    for name in options.names:
        entry = PROGRAMS[name]
        numbers = {"strong": 1.0, "weak": entry.weak, "absent": 0.0}
        asked = [(label, numbers[label]) for label in options.strength]
        if entry.healthy:
            asked = [] if options.no_healthy else [("healthy", 0.0)]
        for label, number in asked:
            row = known.get((name, label))
            if row is None:
                row = examine(name, label, number)
                if options.out:
                    with options.out.open("a") as lines:
                        lines.write(json.dumps(row) + "\n")
            rows.append(row)
            show(row)

    print()
    for label in ("strong", "weak", "absent", "healthy"):
        these = [row for row in rows if row["strength"] == label]
        if these:
            wrong = Counter(row["kind"] for row in these if not row["right"])
            detail = (
                f"; wrong: {', '.join(f'{kind} {n}' for kind, n in wrong.most_common())}" if wrong else ""
            )
            print(f"{label:8} {sum(row['right'] for row in these)} of {len(these)} right{detail}")


if __name__ == "__main__":
    main()
