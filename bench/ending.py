"""How long the begin and the end of a run take beside busy Python threads, in a process of its own each
time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

THREADS = (0, 1, 4, 8)
EVENTS = (1, 1_000, 100_000)
ROUNDS = 5

_PROGRAM = """
import sys, threading, time
import flightlog

threads, events, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
over = False
def busy():
    number = 0
    while not over:
        number = (number * 31 + 7) & 0xFFFF
recording = flightlog.record("ending", runs_dir=folder)
recording.__enter__()
for _ in range(events):
    with flightlog.span("work"):
        pass
time.sleep(1.5)  # past the first beat and the first sample
fleet = [threading.Thread(target=busy) for _ in range(threads)]
for one in fleet:
    one.start()
time.sleep(0.1)
before = time.perf_counter()
recording.__exit__(None, None, None)
took = time.perf_counter() - before
over = True
print(took)
"""

_BEGINNING = """
import sys, threading, time
import flightlog

threads, folder = int(sys.argv[1]), sys.argv[2]
over = False
def busy():
    number = 0
    while not over:
        number = (number * 31 + 7) & 0xFFFF
fleet = [threading.Thread(target=busy) for _ in range(threads)]
for one in fleet:
    one.start()
time.sleep(0.1)
took = []
for _ in range(2):  # the first one imports most of the recorder
    recording = flightlog.record("beginning", runs_dir=folder)
    before = time.perf_counter()
    recording.__enter__()
    took.append(time.perf_counter() - before)
    recording.__exit__(None, None, None)
over = True
print(*took)
"""


def measure(threads: int, events: int) -> float:
    """Seconds that the end of one run took, beside so many busy threads, after so many events."""
    (took,) = _run(_PROGRAM, threads, events)
    return took


def measure_begin(threads: int) -> tuple[float, float]:
    """Seconds that the begin of a first run took, and of a second one, beside so many busy threads."""
    first, second = _run(_BEGINNING, threads)
    return first, second


def _run(program: str, *arguments: int) -> list[float]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLIGHTLOG_")}
    # Not in the system's temporary folder, where no process is started to complete the run; it may be at work
    # here still.
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build", prefix="ending-", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments), folder],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
    return [float(took) for took in done.stdout.split()]


def medians() -> dict[tuple[int, int], float]:
    """Seconds by threads and events, the median of interleaved rounds."""
    cases = [(threads, events) for threads in THREADS for events in EVENTS]
    found: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case in cases:
            found[case].append(measure(*case))
    return {case: statistics.median(took) for case, took in found.items()}


def begin_medians() -> dict[int, tuple[float, float]]:
    """Seconds by threads, of a first run and of a second one in a process; medians of interleaved rounds."""
    found: dict[int, list[tuple[float, float]]] = {threads: [] for threads in THREADS}
    for _ in range(ROUNDS):
        for threads in THREADS:
            found[threads].append(measure_begin(threads))
    return {
        threads: (
            statistics.median(first for first, _ in took),
            statistics.median(second for _, second in took),
        )
        for threads, took in found.items()
    }


if __name__ == "__main__":
    for threads, (first, second) in begin_medians().items():
        print(f"{threads} busy threads, begin: {first:.3f} s, of a second run {second:.3f} s", flush=True)
    for (threads, events), took in medians().items():
        print(f"{threads} busy threads, {events:>7,} events: {took:.3f} s", flush=True)
