"""Small programs whose bottleneck is known because it is built in. `bench.verdicts` asks what limited them.

    python -m bench.verdict_programs NAME STRENGTH RUNS_DIR

Each takes a strength from 0 (absent: a healthy run) to 1 (strong). They last a few seconds.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import flightlog
from flightlog.session.session import Session

Program = Callable[[Path, float], None]
PROGRAMS: dict[str, Program] = {}
CORES = len(os.sched_getaffinity(0))


def program(function: Program) -> Program:
    """One of the programs, by the function's name."""
    PROGRAMS[function.__name__] = function
    return function


@contextmanager
def session(runs: Path, *, workers: int, processes: bool = True) -> Iterator[Session]:
    """A session with so many workers on this machine."""
    runs.mkdir(parents=True, exist_ok=True)
    manifest = runs / "flightlog.yaml"
    manifest.write_text(
        "version: 1\nproject: {name: exam}\ntargets:\n"
        f"  local: {{provider: local, max_workers: {workers}, processes: {str(processes).lower()}}}\n"
    )
    with Session.from_yaml(manifest, runs_dir=runs, progress=False) as one:
        yield one


def burn(seconds: float) -> float:
    """Use the CPU for so long, by this thread's own CPU time, in pure Python."""
    until = time.thread_time() + seconds
    found = 0.0
    while time.thread_time() < until:
        for n in range(500):
            found += n * 0.5
    return found


def nap(seconds: float) -> float:
    """Wait, using nothing."""
    time.sleep(seconds)
    return seconds


def after(previous: float, seconds: float) -> float:
    """Work that needs the result before it."""
    nap(seconds)
    return previous


_kept: list[bytearray] = []


def leak(megabytes: float, seconds: float) -> int:
    """Keep memory that nobody asks for again."""
    if megabytes:
        _kept.append(bytearray(os.urandom(1024) * int(megabytes * 1024)))
    nap(seconds)
    return len(_kept)


def uneven(factor: float, seconds: float) -> float:
    """Take longer on every other worker: those whose process number is odd."""
    nap(seconds * (factor if _worker_number() % 2 else 1))
    return seconds


def _worker_number() -> int:
    """0, 1, 2 … for the workers in the order in which they first ask."""
    mine = os.environ.get("EXAM_WORKER")
    if mine is None:
        folder = Path(os.environ["EXAM_FOLDER"])
        for n in range(1000):
            try:
                (folder / f"worker-{n}").mkdir()
            except FileExistsError:
                continue
            mine = os.environ["EXAM_WORKER"] = str(n)
            break
    return int(mine or 0)


def large(data: bytes, seconds: float) -> int:
    """Look at large data for a moment."""
    nap(seconds)
    return len(data)


def flaky(seconds: float, attempt_folder: str, number: int, failures: int) -> int:
    """Fail a few times before it works."""
    nap(seconds)
    for n in range(failures):
        try:
            (Path(attempt_folder) / f"{number}-{n}").mkdir()
        except FileExistsError:
            continue
        raise OSError("the file system was not there")
    return number


@contextmanager
def neighbours(number: int) -> Iterator[None]:
    """So many busy programs beside this one, which are none of its children for the recorder."""
    spin = "import time; end = time.time() + 120\nwhile time.time() < end: pass"
    command = ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable, spin]
    started = [
        int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(number)
    ]
    try:
        yield
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)


@program
def gil(runs: Path, strength: float) -> None:
    """CPU work in pure Python on four threads: one runs at a time."""
    with session(runs, workers=4, processes=False) as one:
        futures = [one.client.submit(burn if strength else nap, 0.15 * (strength or 1)) for _ in range(24)]
        one.client.gather(futures)


@program
def sleeping(runs: Path, _strength: float) -> None:
    """Tasks that wait for something else on four threads: nothing is wrong."""
    with session(runs, workers=4, processes=False) as one:
        one.client.gather([one.client.submit(nap, 0.5) for _ in range(24)])


@program
def chain(runs: Path, strength: float) -> None:
    """Each task needs the one before: four workers have one task at a time."""
    with session(runs, workers=4, processes=False) as one:
        chained = round(20 * strength)
        futures = [one.client.submit(nap, 0.2) for _ in range(4 * (20 - chained))]
        last = one.client.submit(nap, 0.2)
        for _ in range(chained):
            last = one.client.submit(after, last, 0.2)
        one.client.gather([*futures, last])


@program
def oversubscribed(runs: Path, strength: float) -> None:
    """Four times as many workers as cores, all of them busy."""
    workers = max(1, round(4 * CORES * strength)) if strength else CORES
    with session(runs, workers=workers) as one:
        one.client.gather([one.client.submit(burn, 0.25) for _ in range(8 * CORES)])


@program
def leaking(runs: Path, strength: float) -> None:
    """A worker keeps memory with each task."""
    with session(runs, workers=1) as one:
        for _ in range(15):
            one.client.submit(leak, 40 * strength, 0.15).result()


@program
def slow_workers(runs: Path, strength: float) -> None:
    """Every other worker is several times slower."""
    folder = runs / "workers"
    folder.mkdir(parents=True)
    os.environ["EXAM_FOLDER"] = str(folder)
    with session(runs, workers=4) as one:
        one.client.gather([one.client.submit(uneven, 1 + 5 * strength, 0.1) for _ in range(60)])


@program
def straggler(runs: Path, strength: float) -> None:
    """One task is far longer than the others, and comes last."""
    with session(runs, workers=4, processes=False) as one:
        futures = [one.client.submit(nap, 0.1) for _ in range(40)]
        one.client.gather([*futures, one.client.submit(nap, 0.1 + 3 * strength)])


@program
def tiny(runs: Path, strength: float) -> None:
    """Tasks so short that handing them over takes longer."""
    with session(runs, workers=2) as one:
        if strength:
            one.client.gather([one.client.submit(nap, 0.0) for _ in range(4000)])
        else:
            one.client.gather([one.client.submit(nap, 0.2) for _ in range(30)])


@program
def transfer(runs: Path, strength: float) -> None:
    """Large arguments for little work."""
    data = os.urandom(int(64e6 * strength))
    with session(runs, workers=2) as one:
        one.client.gather([one.client.submit(large, data, 0.02 if strength else 0.2) for _ in range(30)])


@program
def slow_driver(runs: Path, strength: float) -> None:
    """The program works between its batches, while workers wait."""
    with session(runs, workers=4, processes=False) as one:
        for _ in range(5):
            one.client.gather([one.client.submit(nap, 0.2) for _ in range(8)])
            with flightlog.span("analyse"):
                time.sleep(strength)


@program
def retries(runs: Path, strength: float) -> None:
    """Most attempts fail before one works."""
    folder = runs / "attempts"
    folder.mkdir(parents=True)
    with session(runs, workers=4, processes=False) as one:
        many = round(3 * strength)
        options = {"retries": many} if many else {}
        submit = one.client.submit
        one.client.gather([submit(flaky, 0.2, str(folder), n, many, **options) for n in range(24)])


@program
def loading(runs: Path, strength: float) -> None:
    """Epochs that mostly load data."""
    with flightlog.record("exam", runs_dir=runs):
        for epoch in range(3):
            with flightlog.span("epoch", epoch=epoch):
                for _ in range(16):
                    with flightlog.span("data.load"):
                        time.sleep(0.06 * strength)
                    with flightlog.span("train.step"):
                        burn(0.015)


@program
def diverging(runs: Path, strength: float) -> None:
    """A loss that becomes NaN half way."""
    with flightlog.record("exam", runs_dir=runs) as run:
        for step in range(200):
            with flightlog.span("step"):
                time.sleep(0.005)
            run.metric("loss", math.nan if strength and step >= 100 else 1 / (step + 1), step=step)


@program
def busy_machine(runs: Path, strength: float) -> None:
    """Other programs keep all cores busy."""
    with neighbours(round(6 * CORES * strength)), session(runs, workers=CORES) as one:
        one.client.gather([one.client.submit(burn, 0.2) for _ in range(8 * CORES)])


@program
def waits_on_busy_machine(runs: Path, strength: float) -> None:
    """Tasks that only wait, while other programs keep all cores busy: nothing is wrong."""
    with neighbours(round(3 * CORES * strength)), session(runs, workers=4, processes=False) as one:
        one.client.gather([one.client.submit(nap, 0.5) for _ in range(24)])


@program
def pool(runs: Path, _strength: float) -> None:
    """A pool that nobody told Flightlog of."""
    with flightlog.record("exam", runs_dir=runs), multiprocessing.get_context("spawn").Pool(2) as workers:
        workers.map(nap, [0.2] * 16)


@program
def healthy(runs: Path, _strength: float) -> None:
    """CPU work that fills all cores."""
    with session(runs, workers=CORES) as one:
        one.client.gather([one.client.submit(burn, 0.25) for _ in range(14 * CORES)])


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](Path(sys.argv[3]), float(sys.argv[2]))
