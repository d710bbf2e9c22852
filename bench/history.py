"""A folder of 5,000 runs: how long `flightlog list`, `trends` and `compare` take, the first time and after
it.

python -m bench.history [RUNS]
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from flightlog.events import CacheLookup, Event, ResourceSample, TaskCompleted, TaskStarted, TaskSubmitted
from flightlog.store import layout
from flightlog.store.documents import RecorderInfo
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.run import Run

RUNS = 5_000
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = ("prepare", "simulate", "score", "plot")


def make_history(runs_dir: Path, runs: int = RUNS, *, projects: int = 2, seed: int = 4) -> None:
    """Write real, small run directories: documents, four tasks, a lookup, a sample, and the summary of those.

    The time of `simulate` has noise of 8 %; it rises by 25 % at three fifths of the history.
    """
    draw = random.Random(seed)
    for number in range(runs):
        began = FIRST + timedelta(minutes=7 * number)
        project = f"study-{number % projects}"
        path = runs_dir / layout.make_run_id(project, began, f"{draw.getrandbits(32):08x}")
        path.mkdir(parents=True)
        slower = 1.25 if number >= runs * 3 // 5 else 1.0
        events, took = _events(began, draw, slower)
        lines: dict[str, int] = {}
        for event in events:
            stream = type(event).stream
            event.writer, event.seq = "w0000001", lines.get(stream, 0)
            lines[stream] = event.seq + 1
            with layout.stream_file(path, stream).open("ab") as out:
                out.write(msgspec.json.encode(event) + b"\n")
        info = layout.RunInfo(
            run_id=path.name,
            project=project,
            status="completed",
            start_time=_stamp(began),
            end_time=_stamp(began + timedelta(seconds=took)),
            duration_s=took,
            tasks_submitted=4,
            tasks_completed=4,
            command=["python", "study.py", "--members", "4"],
            cwd="study",
            host="node-1",
            pid=4,
            python="3.12.1",
            git_commit=hashlib.sha1(b"%d" % (number // 40)).hexdigest(),
            git_dirty=False,
            tags={"members": 4},
            trace_id=f"{number:032x}",
            span_id=f"{number:016x}",
            writer="w0000001",
            sample_interval_s=1.0,
        )
        (path / layout.RUN).write_bytes(msgspec.json.format(msgspec.json.encode(info)))
        wrote = layout.WriterInfo(
            writer="w0000001", pid=4, host="node-1", closed=True, owner=True, lines=lines
        )
        (path / layout.RECORDER).write_bytes(msgspec.json.encode(RecorderInfo(writers=[wrote])))
        (path / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(path))))


def _events(began: datetime, draw: random.Random, slower: float) -> tuple[list[Event], float]:
    events: list[Event] = []
    at = 0.0
    for name, typical in zip(NAMES, (0.4, 3.0, 0.7, 0.2), strict=True):
        took = typical * draw.lognormvariate(0.0, 0.08) * (slower if name == "simulate" else 1.0)
        start, end = (_stamp(began + timedelta(seconds=moment)) for moment in (at, at + took))
        events += [
            TaskSubmitted(timestamp=start, task=name, task_id=name, args={"member": 1}),
            TaskStarted(timestamp=start, task=name, task_id=name, worker="w1", queue_s=0.0),
            TaskCompleted(
                timestamp=end,
                task=name,
                task_id=name,
                worker="w1",
                duration_s=took,
                cpu_s=took * 0.9,
                cpu_scope="thread",
                peak_rss_bytes=round(2e8 * draw.lognormvariate(0.0, 0.02)),
                rss_scope="process",
                args={"member": 1},
            ),
        ]
        at += took
    hit = "hit" if draw.random() < 0.7 else "miss"
    events.append(CacheLookup(timestamp=_stamp(began), task="prepare", result=hit, key="k"))
    events.append(
        ResourceSample(
            timestamp=_stamp(began), scope="worker", host="node-1", pid=4, cpu_percent=None, rss_bytes=10**8
        )
    )
    return events, at


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


class Took(NamedTuple):
    """Seconds of a command on the clock, its start included, and of CPU."""

    wall_s: float
    cpu_s: float


def took(runs_dir: Path, *args: str) -> Took:
    """Run a command over these runs."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "flightlog.cli.main", *args, "--runs-dir", str(runs_dir)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    wall_s, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall_s, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)


def measure(runs: int = RUNS) -> dict[str, Took]:
    """What each command takes without an index, and the median of three calls after it."""
    folder = Path(tempfile.mkdtemp(prefix="flightlog-history-"))
    commands = {
        "list": ["list"],
        "trends": ["trends"],
        "trends of a task": ["trends", "--metric", "p95:simulate"],
        "compare": ["compare", "study-0:last5", "study-1:last5"],
    }
    try:
        make_history(folder, runs)
        time.sleep(4)  # what was written a moment ago is not kept by an index
        found: dict[str, Took] = {}
        for name, args in commands.items():
            for index in folder.glob(".index-*"):
                index.unlink()
            found[f"{name}, first call"] = took(folder, *args)
            found[f"{name}, later calls"] = sorted(took(folder, *args) for _ in range(3))[1]
        return found
    finally:
        shutil.rmtree(folder)


def main(runs: int = RUNS) -> None:
    """Print what each command takes, and how busy the machine was."""
    print(f"{runs:,} runs; load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores at the start")
    for what, found in measure(runs).items():
        print(f"{what:32} {found.wall_s:6.2f} s, {found.cpu_s:6.2f} s of CPU", flush=True)
    print(f"load average {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
