"""kill -9 at full rate: not one recorded event is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.analyze.report.summary import summarize
from flightlog.cli.main import main
from flightlog.store.run import Run, find_run

# Each process tells on a pipe how many spans it has recorded, after each; the pipe outlives the process.
PROGRAM = """
import flightlog, os, struct, sys
def work(fd, name):
    number = 0
    while True:
        with flightlog.span(name, number=number) as span:
            span.metrics["loss"] = 0.5
        number += 1
        if number % 97 == 0:
            os.write(fd, struct.pack("q", number))
with flightlog.record("killed", runs_dir=sys.argv[1], sample_interval_s=0.1):
    fds = [int(a) for a in sys.argv[2:]]
    pids = []
    for i, fd in enumerate(fds[1:], 1):
        pid = os.fork()
        if pid == 0:
            work(fd, f"child-{i}")
        pids.append(pid)
    print(*pids, flush=True)
    work(fds[0], "main")
"""


def run_and_kill(tmp_path: Path, processes: int, after_s: float) -> tuple[Run, list[int]]:
    """Start so many processes that record at full rate, kill them all; the run and what each had recorded."""
    pipes = [os.pipe() for _ in range(processes)]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "runs"), *(str(w) for _, w in pipes)],
        pass_fds=[w for _, w in pipes],
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))},
    )
    assert program.stdout is not None
    children = [int(pid) for pid in program.stdout.readline().split()]
    told = [drained(r, until=200) for r, _ in pipes]
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline:
        told = [max(a, drained(r)) for a, (r, _) in zip(told, pipes, strict=True)]
    for pid in [program.pid, *children]:
        os.kill(pid, signal.SIGKILL)
    program.communicate()
    for _, w in pipes:
        os.close(w)
    told = [max(a, drained(r, to_end=True)) for a, (r, _) in zip(told, pipes, strict=True)]
    for r, _ in pipes:
        os.close(r)
    return Run(find_run("latest", runs_dir=tmp_path / "runs")), told


def drained(fd: int, *, until: int = 0, to_end: bool = False) -> int:
    """The largest number that was told on a pipe so far."""
    largest = 0
    os.set_blocking(fd, to_end or until > 0)
    while True:
        try:
            data = os.read(fd, 8192)
        except BlockingIOError:
            return largest
        if not data:
            return largest
        largest = int.from_bytes(data[-8:], sys.byteorder)
        if until and largest >= until:
            return largest


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.7])
def test_nothing_that_was_recorded_is_lost(tmp_path, processes, after_s):
    run, told = run_and_kill(tmp_path, processes, after_s)
    assert min(told) >= 200
    numbers: dict[str, list[int]] = {}
    for event in finished(run):
        numbers.setdefault(event.name, []).append(event.tags["number"])
    for i, recorded in enumerate(told):
        found = numbers["main" if i == 0 else f"child-{i}"]
        assert sorted(found) == list(range(len(found)))  # none lost, none doubled
        assert len(found) >= recorded
    summary = summarize(run)
    assert (summary.run.status, sum(summary.completeness.lost.values())) == ("crashed", 0)
    assert summary.completeness.torn <= processes
    assert summary.spans.count == sum(len(found) for found in numbers.values())


def test_a_killed_child_costs_the_run_nothing(tmp_path):
    program = """
import flightlog, os, signal, sys
with flightlog.record("x", runs_dir=sys.argv[1], sample_interval_s=None):
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            for i in range(1000):
                with flightlog.span("child", i=i): pass
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    run = Run(find_run("latest", runs_dir=tmp_path))
    assert run.status == "completed"
    assert sorted(e.tags["i"] for e in finished(run)) == sorted(list(range(1000)) * 5)
    assert not (run.path / "segments").exists()
    assert sum(run.completeness().lost.values()) == 0


@pytest.mark.parametrize("waits", [0.0, 1.5], ids=["at once", "after a heartbeat"])
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_a_list_says_of_a_crashed_run_what_its_report_says_or_that_it_is_at_least_so_much(
    tmp_path, capsys, end, waits
):
    program = f"""
import flightlog, os, sys, time
with flightlog.record("crash", runs_dir=sys.argv[1], sample_interval_s=None) as run:
    for n in range(20):
        with run.task("sim", n=n): pass
    try:
        with run.task("sim", n=20): raise ValueError(n)
    except ValueError: pass
    with run.task("sim", n=21):
        time.sleep({waits})
        {end}
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    for _ in range(2):  # a report changes nothing that a list says afterwards
        assert main(["list", "--runs-dir", str(tmp_path), "--format", "json"]) == 0
        [listed] = json.loads(capsys.readouterr().out)
        assert main(["list", "--runs-dir", str(tmp_path)]) == 0
        line = capsys.readouterr().out.splitlines()[1]
        assert main(["report", "--runs-dir", str(tmp_path), "--format", "json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert listed["status"] == report["run"]["status"] == "crashed"
        assert 0 <= listed["duration_s"] <= report["run"]["duration_s"] + 0.01  # two clocks
        tasks = [report["tasks"][name] for name in ("submitted", "completed", "failed")]
        assert tasks == [22, 20, 1]
        counted = [listed[f"tasks_{name}"] for name in ("submitted", "completed", "failed")]
        assert counted == tasks if waits else all(map(int.__le__, counted, tasks))
        assert "≥ " in line
        assert not waits or line.endswith("≥ 20 of ≥ 22, ≥ 1 failed")
