"""What 20 followers of a run cost the program that records it: CPU time per event, with and without them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import flightlog
from bench.timing import interleaved

FOLLOWERS, BURSTS, BURST, ROUNDS = 20, 40, 250, 7

_FOLLOW = f"""
import os, sys
from pathlib import Path
from flightlog.store.read.follow import EventStream
children = []
for _ in range({FOLLOWERS}):
    child = os.fork()
    if not child:
        stream = EventStream(Path(sys.argv[1]), events="metric")
        print("ready", flush=True)
        os._exit(sum(1 for _ in stream) != {BURSTS * BURST})
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def cost_us(followers: bool) -> float:
    """Microseconds of CPU time that the recording thread takes per metric; all followers get every one."""
    with tempfile.TemporaryDirectory() as folder:
        with flightlog.record("followed", runs_dir=Path(folder), sample_interval_s=None) as run:
            following = _start(run.path) if followers else None
            spent = 0
            for _ in range(BURSTS):
                before = time.thread_time_ns()
                for step in range(BURST):
                    run.metric("loss", 0.5, step)
                spent += time.thread_time_ns() - before
                time.sleep(0.02)
        if following is not None and (failed := following.wait(120)):
            raise SystemExit(f"{failed} of {FOLLOWERS} followers did not get every event once")
    return spent / (BURSTS * BURST) / 1e3


def _start(run: Path) -> subprocess.Popen[bytes]:
    """Processes that follow a run, each ready to."""
    process = subprocess.Popen([sys.executable, "-c", _FOLLOW, str(run)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(FOLLOWERS):
        process.stdout.readline()
    return process


def measure() -> dict[str, float]:
    """The cost of a metric with 20 followers of the run, and with none."""
    return interleaved({"followed": lambda: cost_us(True), "alone": lambda: cost_us(False)}, ROUNDS)
