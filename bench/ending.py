"""How long the end of a run takes beside busy Python threads, in a process of its own each time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

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


def measure(threads: int, events: int) -> float:
    """Seconds that the end of one run took, beside so many busy threads, after so many events."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLIGHTLOG_")}
    # Not in the system's temporary folder, where no process is started to complete the run; it may be at work here still.
    with tempfile.TemporaryDirectory(dir=".", prefix="ending-", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(threads), str(events), folder],
            env=environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(done.stdout)


def medians() -> dict[tuple[int, int], float]:
    """Seconds by threads and events, the median of interleaved rounds."""
    cases = [(threads, events) for threads in THREADS for events in EVENTS]
    found: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case in cases:
            found[case].append(measure(*case))
    return {case: statistics.median(took) for case, took in found.items()}


if __name__ == "__main__":
    for (threads, events), took in medians().items():
        print(f"{threads} busy threads, {events:>7,} events: {took:.3f} s", flush=True)
