"""kill -9 at random moments: what a program had recorded is there, once, whatever it was doing.

Each program writes what it has recorded into a file of its own, right after recording it. Two moments are
tried for each kind of program; `FLIGHTLOG_KILLS=40 pytest tests/faults/test_ground_truth.py` tries 40 of
each.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run

KILLS = int(os.environ.get("FLIGHTLOG_KILLS", "2"))

PRELUDE = """
import asyncio, multiprocessing, os, subprocess, sys, threading
import flightlog
folder, truth = os.environ["RUNS"], os.environ["TRUTH"]

def tell(run_id, name, number):
    with open(truth, "ab", buffering=0) as file:
        file.write(f"{run_id} {name} {number}\\n".encode())

def work(run_id, name, spans=1_000_000_000):
    for number in range(spans):
        with flightlog.span(name, number=number) as span:
            span.metrics["loss"] = 0.5
        tell(run_id, name, number)

# own
"""
PROGRAMS = {
    "one thread": """
with flightlog.record("x", runs_dir=folder) as run:
    work(run.run_id, "main")
""",
    "four threads": """
with flightlog.record("x", runs_dir=folder) as run:
    for i in range(3):
        threading.Thread(target=work, args=(run.run_id, f"thread-{i}")).start()
    work(run.run_id, "main")
""",
    "asyncio": """
async def turns(run_id, name):
    for number in range(1_000_000_000):
        async with flightlog.span(name, number=number):
            await asyncio.sleep(0)
        tell(run_id, name, number)

async def main(run_id):
    await asyncio.gather(*(turns(run_id, f"task-{i}") for i in range(10)))

with flightlog.record("x", runs_dir=folder) as run:
    asyncio.run(main(run.run_id))
""",
    "forked children": """
with flightlog.record("x", runs_dir=folder) as run:
    for i in range(3):
        if os.fork() == 0:
            work(run.run_id, f"child-{i}")
    work(run.run_id, "main")
""",
    "short-lived children": """
with flightlog.record("x", runs_dir=folder) as run:
    for i in range(1_000_000):
        child = multiprocessing.get_context("fork").Process(target=work, args=(run.run_id, f"child-{i}", 50))
        child.start()
        child.join()
""",
    "subprocesses": """
child = open(__file__).read().partition("# own")[0] + "work(sys.stdin.readline().strip(), 'subprocess')"
with flightlog.record("x", runs_dir=folder) as run:
    there = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, text=True)
    there.stdin.write(run.run_id + "\\n")
    there.stdin.flush()
    work(run.run_id, "main")
""",
    "runs that end": """
for _ in range(1_000_000):
    with flightlog.record("x", runs_dir=folder) as run:
        work(run.run_id, "main", 20)
""",
    "runs with children that end": """
for _ in range(1_000_000):
    with flightlog.record("x", runs_dir=folder) as run:
        children = [multiprocessing.get_context("fork").Process(target=work, args=(run.run_id, f"child-{i}", 20)) for i in range(2)]
        for child in children:
            child.start()
        work(run.run_id, "main", 20)
        for child in children:
            child.join()
""",
    "a session": """
import yaml
from pathlib import Path
from flightlog import Session

def task(run_id, name, number):
    with flightlog.span(name, number=number):
        pass
    tell(run_id, name, number)

manifest = {"version": 1, "project": {"name": "x"}, "targets": {"local": {"provider": "local", "max_workers": 2}},
            "components": {"sim": {"cpus": 1, "memory": "256M"}}, "tasks": {"task": {"component": "sim"}}}
Path(folder, "flightlog.yaml").write_text(yaml.safe_dump(manifest))
if __name__ == "__main__":
    with Session.from_yaml(Path(folder, "flightlog.yaml"), target="local", runs_dir=folder) as session:
        for batch in range(1_000_000):
            submit, names = session.client.submit, (session.run_id, f"batch-{batch}")
            session.client.gather([submit(task, *names, i) for i in range(50)])
""",
}


IN_FLIGHT = {"four threads": 4}
"""Spans that may be on their way to the file when the process dies: they have their number, and nobody was
told of them."""


def run_and_kill(program: str, folder: Path, seed: int) -> dict[str, set[tuple[str, int]]]:
    """Run a program in a process group of its own, and kill all of it at a random moment; what it had
    recorded."""
    script, truth = folder / "program.py", folder / "truth"
    script.write_text(PRELUDE + PROGRAMS[program])
    truth.touch()
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("FLIGHTLOG", "TRACEP"))}
    process = subprocess.Popen(
        [sys.executable, script],
        start_new_session=True,
        env={**environ, "RUNS": str(folder), "TRUTH": str(truth)},
    )
    deadline = time.monotonic() + 60
    while truth.stat().st_size < 1000 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    time.sleep(random.Random(f"{program} {seed}").uniform(0, 0.8))
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    told: dict[str, set[tuple[str, int]]] = {}
    for line in truth.read_text().splitlines():
        run, name, number = line.split()
        told.setdefault(run, set()).add((name, int(number)))
    return told


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_recorded_is_lost_or_doubled(program, seed, tmp_path):
    told = run_and_kill(program, tmp_path, seed)
    assert sum(map(len, told.values())) >= 20
    runs = {entry.run_id: Run(entry.path) for entry in list_runs(tmp_path)}
    for run_id, recorded in told.items():
        found = Counter((event.name, event.tags["number"]) for event in finished(runs[run_id]))
        assert recorded - found.keys() == set()
        assert {one for one, times in found.items() if times > 1} == set()
    for run in runs.values():
        begun = run.run_id in told or (run.path / "run.json").exists()
        assert run.status in {"completed", "crashed"} or (not begun and run.status == "unknown")
        assert sum(run.completeness().lost.values()) <= IN_FLIGHT.get(program, 0)
