"""Small programs whose bottleneck is known because it is built in. `bench.verdicts` asks what limited them.

    python -m bench.verdict_programs NAME STRENGTH RUNS_DIR

Each takes a strength from 0 (absent: a healthy run that does the same work) to 1 (strong), and lasts a few
seconds. The run at strength 0 is the program after its remedy: what it takes less is what the verdict's
estimate is held against, unless the program says that the two cannot be compared.
"""

from __future__ import annotations

import fcntl
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flightlog
from flightlog.session.session import Session

CORES = len(os.sched_getaffinity(0))
HEALTHY = "none"


class Program(NamedTuple):
    """One of the programs."""

    run: Callable[[Path, float], None]
    kinds: frozenset[str]
    """The kinds of a right verdict while the bottleneck is there."""
    weak: float
    """The strength that counts as weak."""
    says: str
    """What the verdict must say at any strength but 0."""
    comparable: bool
    """Whether strength 0 does the same work without the bottleneck."""
    absent: frozenset[str]
    """The kinds of a right verdict at strength 0."""
    fails: bool
    """Whether the program ends with an error, or is killed."""
    remedied: Callable[[Path, float], None] | None
    """The program with the remedy that the verdict advises; None where that is the program at strength 0."""
    engine: str | None
    """The engine that has to be at hand; None where nothing has to be started for the program."""


PROGRAMS: dict[str, Program] = {}


def program(
    *kinds: str,
    weak: float = 0.5,
    says: str = "",
    comparable: bool = False,
    absent: str = HEALTHY,
    fails: bool = False,
    remedied: Callable[[Path, float], None] | None = None,
    engines: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One of the programs, by the function's name; without `kinds` nothing is wrong with it.

    With `engines` it is one program on each of them, called `NAME_ENGINE`, and the function takes the engine.
    Their workers take seconds to start, which limits a run of a few seconds, and may be said of it.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        right, without = frozenset(kinds or {HEALTHY}), {absent} | ({"cold_starts"} if engines else set())
        rest = (right, weak, says, comparable, frozenset(without), fails, remedied)
        if not engines:
            PROGRAMS[function.__name__] = Program(function, *rest, None)
        for engine in engines:
            PROGRAMS[f"{function.__name__}_{engine}"] = Program(
                partial(function, engine=engine), *rest, engine
            )
        return function

    return add


TARGETS = {
    "local": "provider: local, max_workers: {workers}, processes: {processes}",
    "dask": "provider: dask, n_workers: {workers}, threads_per_worker: 1",
    "ray": "provider: ray, address: auto, max_workers: {workers}",
    "dragon": "provider: dragon, max_workers: {workers}",
    "slurm": "provider: slurm, partition: debug, account: lab, cpus: 1, memory: 2GiB, n_workers: {workers}",
}
"""Where a session runs, by the name of the engine."""


@contextmanager
def session(runs: Path, *, workers: int, processes: bool = True, engine: str = "local") -> Iterator[Session]:
    """A session with so many workers on this machine."""
    runs.mkdir(parents=True, exist_ok=True)
    manifest = runs / "flightlog.yaml"
    target = TARGETS[engine].format(workers=workers, processes=str(processes).lower())
    manifest.write_text(f"version: 1\nproject: {{name: exam}}\ntargets:\n  here: {{{target}}}\n")
    with Session.from_yaml(manifest, runs_dir=runs, progress=False) as one:
        yield one


@contextmanager
def warm(one: Session, workers: int) -> Iterator[None]:
    """Workers that have started: what comes after is not limited by that."""
    one.client.gather([one.client.submit(nap, 0.05) for _ in range(2 * workers)])
    yield


@contextmanager
def watched(
    runs: Path, workers: int, *, processes: bool = False, threads_per_worker: int = 1
) -> Iterator[Any]:
    """A Dask client that is watched, on a cluster of threads of this process, or of processes."""
    from distributed import Client, LocalCluster

    runs.mkdir(parents=True, exist_ok=True)
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads_per_worker,
            processes=processes,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
        flightlog.watch(client, project="exam", runs_dir=runs),
    ):
        yield client


def burn(seconds: float) -> float:
    """Use the CPU for so long, by this thread's own CPU time, in pure Python."""
    until = time.thread_time() + seconds
    found = 0.0
    while time.thread_time() < until:
        for n in range(500):
            found += n * 0.5
    return found


def nap(seconds: float, _number: int = 0) -> float:
    """Wait for so long."""
    time.sleep(seconds)
    return seconds


def after(previous: float, seconds: float) -> float:
    """Work that needs the result before it."""
    nap(seconds)
    return previous


def added(parts: list[float], seconds: float) -> float:
    """Work that needs several results."""
    nap(seconds)
    return sum(parts)


def leak(megabytes: float, seconds: float, _number: int = 0) -> int:
    """Keep memory that nobody asks for again, in a module: functions come anew with each task."""
    kept: list[bytearray] = vars(time).setdefault("kept_by_exam", [])
    if megabytes:
        kept.append(bytearray(os.urandom(1024) * int(megabytes * 1024)))
    nap(seconds)
    return len(kept)


def uneven(factor: float, seconds: float, folder: str, _number: int = 0) -> float:
    """Take longer on every other worker: those whose number is odd."""
    nap(seconds * (factor if _worker_number(folder) % 2 else 1))
    return seconds


def _worker_number(folder: str) -> int:
    """0, 1, 2 … for the workers in the order in which they first ask."""
    mine = os.environ.get("EXAM_WORKER")
    if mine is None:
        for n in range(1000):
            try:
                (Path(folder) / f"worker-{n}").mkdir()
            except FileExistsError:
                continue
            mine = os.environ["EXAM_WORKER"] = str(n)
            break
    return int(mine or 0)


def large(data: bytes, seconds: float, _number: int = 0) -> int:
    """Look at large data for a moment."""
    nap(seconds)
    return len(data)


def made(size: int, seconds: float) -> bytes:
    """Make large data."""
    nap(seconds)
    return b"x" * size


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


def rejects(number: int, every: int) -> int:
    """Fail for some numbers, for good."""
    nap(0.1)
    if every and number % every == 0:
        raise ValueError("this number is not allowed")
    return number


def steps(loads: float, computes: float, name: str = "data.load") -> None:
    """An epoch that loads data and computes, in spans of its own."""
    with flightlog.span("epoch"):
        for _ in range(8):
            with flightlog.span(name):
                time.sleep(loads)
            with flightlog.span("train.step"):
                burn(computes)


def steps_ahead(loads: float, computes: float) -> None:
    """The same with the next data loaded in the background."""
    with flightlog.span("epoch"), ThreadPoolExecutor(1) as loader:
        for loaded in [loader.submit(time.sleep, loads) for _ in range(8)]:
            with flightlog.span("data.load"):
                loaded.result()
            with flightlog.span("train.step"):
                burn(computes)


_lock = threading.Lock()


def locked(seconds: float, alone: float) -> None:
    """Hold the one lock of this process, and then do something alone."""
    if seconds:
        with _lock:
            time.sleep(seconds)
    time.sleep(alone)


def file_locked(file: str, seconds: float, alone: float) -> None:
    """Hold a lock of all processes, and then do something alone."""
    if seconds:
        with open(file, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            time.sleep(seconds)
    time.sleep(alone)


_warm: set[str] = set()


def warms_up(seconds: float, first: float) -> None:
    """Take longer the first time in a process, as what is imported or compiled then does."""
    if "done" not in _warm:
        _warm.add("done")
        time.sleep(first)
    time.sleep(seconds)


@contextmanager
def neighbours(number: int) -> Iterator[None]:
    """So many busy programs beside this one, which are none of its children for the recorder."""
    spin = "import time; end = time.time() + 300\nwhile time.time() < end: pass"
    command = ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable, spin]
    started = [
        int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(number)
    ]
    try:
        yield
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)


# Waiting for a CPU or for the interpreter


@program("interpreter_lock")
def gil(runs: Path, strength: float) -> None:
    """CPU work in pure Python on four threads: one runs at a time."""
    with session(runs, workers=4, processes=False) as one:
        futures = [one.client.submit(burn if strength else nap, 0.15 * (strength or 1)) for _ in range(24)]
        one.client.gather(futures)


@program("interpreter_lock")
def gil_watched(runs: Path, strength: float) -> None:
    """The same on threads of Dask."""
    with watched(runs, 4) as client:
        seconds = 0.15 * (strength or 1)
        client.gather(client.map(burn if strength else nap, [seconds + n * 1e-6 for n in range(24)]))


@program("interpreter_lock")
def gil_workers(runs: Path, strength: float) -> None:
    """The same on threads of a worker of Dask that is a process of its own."""
    with watched(runs, 1, processes=True, threads_per_worker=4) as client:
        seconds = 0.15 * (strength or 1)
        client.gather(client.map(burn if strength else nap, [seconds + n * 1e-6 for n in range(24)]))


@program("interpreter_lock")
def gil_spans(runs: Path, strength: float) -> None:
    """Threads of the program's own, in spans."""

    def work(number: int) -> None:
        with flightlog.span("simulate", number=number):
            (burn if strength else nap)(0.15 * (strength or 1))

    with flightlog.record("exam", runs_dir=runs), ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(24)))


@program("oversubscription")
def oversubscribed(runs: Path, strength: float) -> None:
    """Four times as many workers as cores, all of them busy."""
    workers = max(1, round(4 * CORES * strength)) if strength else CORES
    with session(runs, workers=workers) as one:
        one.client.gather([one.client.submit(burn, 0.25) for _ in range(8 * CORES)])


@program("busy_machine", comparable=True)
def busy_machine(runs: Path, strength: float) -> None:
    """Other programs keep all cores busy."""
    with neighbours(round(6 * CORES * strength)), session(runs, workers=CORES) as one:
        one.client.gather([one.client.submit(burn, 0.2) for _ in range(8 * CORES)])


@program("busy_machine", comparable=True)
def busy_machine_spans(runs: Path, strength: float) -> None:
    """The same, with a program that has spans and no tasks."""
    with neighbours(round(6 * CORES * strength)), flightlog.record("exam", runs_dir=runs):
        for _ in range(12):
            with flightlog.span("simulate"):
                burn(0.1)


# Tasks that wait for each other


@program("dependency_chain", comparable=True)
def chain(runs: Path, strength: float) -> None:
    """Each task needs the one before: four workers have one task at a time."""
    with session(runs, workers=4, processes=False) as one:
        chained = round(20 * strength)
        last = one.client.submit(nap, 0.2)
        futures = [last]
        for _ in range(chained):
            last = one.client.submit(after, last, 0.2)
            futures.append(last)
        futures += [one.client.submit(nap, 0.2) for _ in range(40 - chained)]
        one.client.gather(futures)


@program("dependency_chain", comparable=True)
def chain_processes(runs: Path, strength: float) -> None:
    """The same on processes."""
    with session(runs, workers=3) as one:
        last = one.client.submit(nap, 0.2)
        futures = [last]
        for n in range(20):
            chained = n < round(20 * strength)
            last = one.client.submit(after, last, 0.2) if chained else one.client.submit(nap, 0.2)
            futures.append(last)
        one.client.gather(futures)


@program("dependency_chain")
def chain_dask(runs: Path, strength: float) -> None:
    """The same on Dask."""
    with session(runs, workers=2, engine="dask") as one, warm(one, 2):
        last = one.client.submit(nap, 0.2, -1)
        futures = [last]
        for n in range(20):
            chained = n < round(20 * strength)
            last = (
                one.client.submit(after, last, 0.2 + n * 1e-6) if chained else one.client.submit(nap, 0.2, n)
            )
            futures.append(last)
        one.client.gather(futures)


@program("dependency_chain")
def chain_watched(runs: Path, strength: float) -> None:
    """A chain of futures of a watched client."""
    with watched(runs, 4) as client:
        last = client.submit(nap, 0.2, -1, pure=False)
        futures = [last]
        for n in range(20):
            chained = n < round(20 * strength)
            last = (
                client.submit(after, last, 0.2, pure=False)
                if chained
                else client.submit(nap, 0.2, n, pure=False)
            )
            futures.append(last)
        client.gather(futures)


@program("one_at_a_time", comparable=True)
def one_at_a_time(runs: Path, strength: float) -> None:
    """Each result is waited for before the next task is submitted."""
    with session(runs, workers=4, processes=False) as one:
        waits = round(24 * strength)
        for _ in range(waits):
            one.client.submit(nap, 0.15).result()
        one.client.gather([one.client.submit(nap, 0.15) for _ in range(24 - waits)] or [])


@program("one_at_a_time")
def one_at_a_time_dask(runs: Path, strength: float) -> None:
    """The same on Dask."""
    with session(runs, workers=2, engine="dask") as one, warm(one, 2):
        waits = round(24 * strength)
        for n in range(waits):
            one.client.submit(nap, 0.15, n).result()
        one.client.gather([one.client.submit(nap, 0.15, 100 + n) for n in range(24 - waits)] or [])


@program("taking_turns", "lock_waits", comparable=True)
def lock_threads(runs: Path, strength: float) -> None:
    """Tasks on threads hold one lock for most of their time."""
    with session(runs, workers=4, processes=False) as one:
        held = 0.1 * strength
        one.client.gather([one.client.submit(locked, held, 0.1 - held + 0.02) for _ in range(32)])


@program("taking_turns", "lock_waits", comparable=True)
def lock_processes(runs: Path, strength: float) -> None:
    """Tasks in processes hold one lock of a file."""
    with session(runs, workers=4) as one, warm(one, 4):
        held = 0.1 * strength
        file = str(runs / "lock")
        one.client.gather([one.client.submit(file_locked, file, held, 0.12 - held) for _ in range(32)])


@program("waiting_span", "taking_turns", "lock_waits")
def lock_named(runs: Path, strength: float) -> None:
    """The wait for a lock has a span of its own."""
    with session(runs, workers=4, processes=False) as one:
        one.client.gather([one.client.submit(named_lock, 0.1 * strength) for _ in range(32)])


def named_lock(seconds: float) -> None:
    """Wait for a lock, and hold it."""
    with flightlog.span("lock.acquire"):
        _lock.acquire()
    try:
        time.sleep(seconds)
    finally:
        _lock.release()
    with flightlog.span("simulate"):
        time.sleep(0.03)


# Workers and what they have to do


@program("slow_workers", comparable=True, weak=0.4)
def slow_workers(runs: Path, strength: float) -> None:
    """Every other worker is several times slower."""
    folder = runs / "workers"
    folder.mkdir(parents=True)
    with session(runs, workers=4) as one:
        one.client.gather([one.client.submit(uneven, 1 + 5 * strength, 0.1, str(folder)) for _ in range(60)])


@program("stragglers", comparable=True)
def straggler(runs: Path, strength: float) -> None:
    """One task is far longer than the others, and comes last."""
    with session(runs, workers=4, processes=False) as one:
        futures = [one.client.submit(nap, 0.1) for _ in range(40)]
        one.client.gather([*futures, one.client.submit(nap, 0.1 + 3 * strength)])


@program("stragglers", comparable=True)
def straggler_processes(runs: Path, strength: float) -> None:
    """The same on processes."""
    with session(runs, workers=3) as one:
        futures = [one.client.submit(nap, 0.1) for _ in range(30)]
        one.client.gather([*futures, one.client.submit(nap, 0.1 + 3 * strength)])


@program("stragglers")
def straggler_watched(runs: Path, strength: float) -> None:
    """The same on Dask."""
    with watched(runs, 4) as client:
        futures = client.map(nap, [0.1] * 40, range(40), pure=False)
        client.gather([*futures, client.submit(nap, 0.1 + 3 * strength, 99)])


@program("idle_workers", "stragglers", comparable=True)
def imbalance(runs: Path, strength: float) -> None:
    """Fewer pieces of work than workers at the end of each batch."""
    with session(runs, workers=4, processes=False) as one:
        for _ in range(3):
            pieces = [0.8 * strength] if strength else []
            rest = (1.6 - sum(pieces)) / 16
            one.client.gather(
                [one.client.submit(nap, piece) for piece in pieces]
                + [one.client.submit(nap, rest) for _ in range(16)]
            )


@program("handover")
def tiny(runs: Path, strength: float) -> None:
    """Tasks so short that handing them over takes longer."""
    with session(runs, workers=2) as one:
        if strength:
            one.client.gather([one.client.submit(nap, 0.0) for _ in range(round(4000 * strength))])
        else:
            one.client.gather([one.client.submit(nap, 0.2) for _ in range(30)])


@program("handover")
def tiny_dask(runs: Path, strength: float) -> None:
    """The same on Dask."""
    with session(runs, workers=2, engine="dask") as one, warm(one, 2):
        number, seconds = (round(3000 * strength), 0.0) if strength else (30, 0.2)
        one.client.gather([one.client.submit(nap, seconds, n) for n in range(number)])


@program("serialization")
def transfer(runs: Path, strength: float) -> None:
    """Large arguments for little work."""
    data = os.urandom(int(64e6 * strength))
    with session(runs, workers=2) as one:
        one.client.gather([one.client.submit(large, data, 0.02 if strength else 0.2) for _ in range(30)])


@program("serialization")
def transfer_results(runs: Path, strength: float) -> None:
    """Large results of little work."""
    with session(runs, workers=2) as one, warm(one, 2):
        size, seconds = (int(48e6 * strength), 0.0) if strength else (0, 0.2)
        one.client.gather([one.client.submit(made, size, seconds) for _ in range(30)])


@program("cold_starts", comparable=True)
def warm_up(runs: Path, strength: float) -> None:
    """The first task of each worker takes far longer than the others."""
    with session(runs, workers=2) as one:
        one.client.gather([one.client.submit(warms_up, 0.1, 3 * strength) for _ in range(40)])


@program("before_tasks", "program_alone", comparable=True)
def preparing(runs: Path, strength: float) -> None:
    """The program prepares something for long before its first task."""
    with session(runs, workers=4, processes=False) as one:
        with flightlog.span("prepare"):
            time.sleep(3 * strength)
        one.client.gather([one.client.submit(nap, 0.2) for _ in range(40)])


@program("before_tasks", "program_alone", comparable=True)
def preparing_processes(runs: Path, strength: float) -> None:
    """The same on processes, without a span that tells it."""
    with session(runs, workers=2) as one:
        burn(3 * strength)
        one.client.gather([one.client.submit(nap, 0.2) for _ in range(20)])


@program("program_alone", comparable=True)
def slow_driver(runs: Path, strength: float) -> None:
    """The program works between its batches, while workers wait."""
    with session(runs, workers=4, processes=False) as one:
        for _ in range(5):
            one.client.gather([one.client.submit(nap, 0.2) for _ in range(8)])
            with flightlog.span("analyse"):
                time.sleep(strength)


@program("program_alone", comparable=True)
def slow_driver_processes(runs: Path, strength: float) -> None:
    """The same on processes, without a span that tells it."""
    with session(runs, workers=2) as one, warm(one, 2):
        for _ in range(4):
            one.client.gather([one.client.submit(nap, 0.2) for _ in range(6)])
            burn(strength)


@program("program_alone")
def slow_driver_dask(runs: Path, strength: float) -> None:
    """The same on Dask."""
    with session(runs, workers=2, engine="dask") as one, warm(one, 2):
        for batch in range(4):
            one.client.gather([one.client.submit(nap, 0.2, 10 * batch + n) for n in range(6)])
            time.sleep(strength)


# Failures


@program("failed_work", comparable=True)
def retries(runs: Path, strength: float) -> None:
    """Most attempts fail before one works."""
    folder = runs / "attempts"
    folder.mkdir(parents=True)
    with session(runs, workers=4, processes=False) as one:
        many = round(3 * strength)
        options = {"retries": many} if many else {}
        submit = one.client.submit
        one.client.gather([submit(flaky, 0.2, str(folder), n, many, **options) for n in range(24)])


@program("failed_work", comparable=True)
def retries_processes(runs: Path, strength: float) -> None:
    """The same on processes."""
    folder = runs / "attempts"
    folder.mkdir(parents=True)
    with session(runs, workers=2) as one, warm(one, 2):
        many = round(3 * strength)
        options = {"retries": many} if many else {}
        submit = one.client.submit
        one.client.gather([submit(flaky, 0.2, str(folder), n, many, **options) for n in range(12)])


@program("failed", says="ValueError: this number is not allowed")
def failures(runs: Path, strength: float) -> None:
    """Some tasks fail for good."""
    with session(runs, workers=4, processes=False) as one:
        every = round(4 / strength) if strength else 0
        futures = [one.client.submit(rejects, n, every) for n in range(40)]
        for future in futures:
            future.exception()


@program("failed", says="ValueError: this number is not allowed")
def failures_of_dependents(runs: Path, strength: float) -> None:
    """One task fails, and all that need it cannot begin."""
    with session(runs, workers=4, processes=False) as one:
        first = one.client.submit(rejects, 0, 1 if strength else 0)
        futures = [first, *(one.client.submit(after, first, 0.1) for _ in range(round(20 * (strength or 1))))]
        for future in futures:
            future.exception()


@program("stuck_tasks", "hung_tasks", fails=True)
def hung(runs: Path, strength: float) -> None:
    """One task never ends, and the program is killed."""
    with session(runs, workers=3, processes=False) as one:
        futures = [one.client.submit(nap, 0.1) for _ in range(20)]
        if strength:
            one.client.submit(nap, 600.0)
        one.client.gather(futures)
        if strength:
            time.sleep(6 * strength)
            os.kill(os.getpid(), signal.SIGKILL)


# Where the time of spans went


def loading_with(epoch: Callable[[float, float], None], runs: Path, strength: float) -> None:
    """Epochs of this kind in a program."""
    with flightlog.record("exam", runs_dir=runs):
        for _ in range(6):
            epoch(0.06 * strength, 0.015)


@program("data_loading", says="data.load inside epoch", remedied=partial(loading_with, steps_ahead))
def loading(runs: Path, strength: float) -> None:
    """Epochs that mostly load data."""
    loading_with(steps, runs, strength)


def loading_tasks_with(epoch: Callable[[float, float], None], runs: Path, strength: float) -> None:
    """Epochs of this kind in tasks."""
    with session(runs, workers=2) as one, warm(one, 2):
        one.client.gather([one.client.submit(epoch, 0.06 * strength, 0.01) for _ in range(12)])


@program("data_loading", says="data.load inside epoch", remedied=partial(loading_tasks_with, steps_ahead))
def loading_tasks(runs: Path, strength: float) -> None:
    """The same inside of tasks."""
    loading_tasks_with(steps, runs, strength)


@program("data_loading", says="read_chunk")
def loading_watched(runs: Path, strength: float) -> None:
    """The same inside of tasks of Dask."""
    with watched(runs, 2) as client:
        client.gather(client.map(read_and_sum, [0.1 * strength] * 20, range(20)))


def read_and_sum(seconds: float, _number: int) -> None:
    """Read, in a span of its own, and do something with it."""
    with flightlog.span("read_chunk"):
        time.sleep(seconds)
    with flightlog.span("compute"):
        time.sleep(0.03)


@program("waiting_span", says="checkpoint inside epoch", comparable=True)
def checkpoints(runs: Path, strength: float) -> None:
    """Writing checkpoints takes most of the time."""
    with flightlog.record("exam", runs_dir=runs):
        for _ in range(6):
            steps(0.06 * strength, 0.015, "checkpoint")


@program("waiting_span", says="barrier", comparable=True)
def deep(runs: Path, strength: float) -> None:
    """What holds most of the time is four levels down."""
    with flightlog.record("exam", runs_dir=runs), flightlog.span("main"):
        for _ in range(4):
            with flightlog.span("epoch"), flightlog.span("phase"):
                for _ in range(5):
                    with flightlog.span("barrier"):
                        time.sleep(0.15 * strength)
                    with flightlog.span("compute"):
                        burn(0.03)


@program(HEALTHY, says="assemble inside solve")
def computing(runs: Path, _strength: float) -> None:
    """Most of the time is computing inside of something: that is what the program is for."""
    with flightlog.record("exam", runs_dir=runs):
        for _ in range(10):
            with flightlog.span("solve"):
                with flightlog.span("assemble"):
                    burn(0.2)
                with flightlog.span("factorize"):
                    burn(0.06)


@program(HEALTHY, says="sleep inside sh")
def script(runs: Path, _strength: float) -> None:
    """A script of recorded commands, one of which takes most of the time."""
    runs.mkdir(parents=True, exist_ok=True)
    command = f'"{sys.executable}" -m flightlog run'
    lines = f"{command} -- true\n{command} -- sleep 4\n"
    options = ["--runs-dir", str(runs)]
    subprocess.run([sys.executable, "-m", "flightlog", "run", *options, "--", "sh", "-c", lines], check=True)


# Results and memory


@program("not_finite", says="loss")
def diverging(runs: Path, strength: float) -> None:
    """A loss that becomes NaN on the way."""
    with flightlog.record("exam", runs_dir=runs) as run:
        for step in range(200):
            with flightlog.span("step"):
                time.sleep(0.005)
            lost = strength and step >= 200 - 120 * strength
            run.metric("loss", math.nan if lost else 1 / (step + 1), step=step)


@program("diverging", says="loss")
def growing_loss(runs: Path, strength: float) -> None:
    """A loss that grows, and is a number to the end."""
    with flightlog.record("exam", runs_dir=runs) as run:
        for step in range(200):
            with flightlog.span("step"):
                time.sleep(0.005)
            grown = 1.08 ** (step - 100) if strength and step > 100 else 1.0
            run.metric("loss", grown if strength else 1 / (step + 1), step=step)


@program("memory_growth", weak=0.4)
def leaking(runs: Path, strength: float) -> None:
    """A worker keeps memory with each task."""
    with session(runs, workers=1) as one:
        for _ in range(15):
            one.client.submit(leak, 40 * strength, 0.15).result()


@program("memory_growth", weak=0.5)
def leaking_program(runs: Path, strength: float) -> None:
    """A program without tasks keeps memory in each step."""
    with flightlog.record("exam", runs_dir=runs):
        for _ in range(120):
            with flightlog.span("step"):
                leak(5 * strength, 0.1)


@program("nothing_recorded", absent="nothing_recorded")
def pool(runs: Path, _strength: float) -> None:
    """A pool that nobody told Flightlog of."""
    with flightlog.record("exam", runs_dir=runs), multiprocessing.get_context("spawn").Pool(2) as workers:
        workers.map(nap, [0.2] * 16)


# Healthy ones


@program()
def sleeping(runs: Path, _strength: float) -> None:
    """Tasks that wait for something else on four threads."""
    with session(runs, workers=4, processes=False) as one:
        one.client.gather([one.client.submit(nap, 0.5) for _ in range(24)])


@program()
def sleeping_dask(runs: Path, _strength: float) -> None:
    """The same on Dask."""
    with session(runs, workers=2, engine="dask") as one, warm(one, 2):
        one.client.gather([one.client.submit(nap, 0.5, n) for n in range(16)])


@program()
def sleeping_watched(runs: Path, _strength: float) -> None:
    """The same through a watched client."""
    with watched(runs, 4) as client:
        client.gather(client.map(nap, [0.5] * 24, range(24)))


@program()
def waits_on_busy_machine(runs: Path, strength: float) -> None:
    """Tasks that only wait, while other programs keep all cores busy."""
    with neighbours(round(3 * CORES * strength)), session(runs, workers=4, processes=False) as one:
        one.client.gather([one.client.submit(nap, 0.5) for _ in range(24)])


@program()
def healthy(runs: Path, _strength: float) -> None:
    """CPU work that fills all cores."""
    with session(runs, workers=CORES) as one:
        one.client.gather([one.client.submit(burn, 0.25) for _ in range(14 * CORES)])


@program()
def healthy_mixed(runs: Path, _strength: float) -> None:
    """Tasks of different lengths, the longest first."""
    with session(runs, workers=4, processes=False) as one:
        lengths = [0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15] * 3 + [0.05] * 20
        one.client.gather([one.client.submit(nap, length) for length in sorted(lengths, reverse=True)])


@program()
def healthy_batches(runs: Path, _strength: float) -> None:
    """Batches that fill their workers."""
    with session(runs, workers=4, processes=False) as one:
        for _ in range(4):
            one.client.gather([one.client.submit(nap, 0.2) for _ in range(24)])


@program()
def healthy_graph(runs: Path, _strength: float) -> None:
    """Tasks that need others, with enough beside them."""
    with session(runs, workers=4, processes=False) as one:
        parts = [one.client.submit(nap, 0.2) for _ in range(64)]
        sums = [one.client.submit(added, parts[n : n + 4], 0.1) for n in range(0, 64, 4)]
        one.client.gather(sums)


@program()
def healthy_training(runs: Path, _strength: float) -> None:
    """Epochs that mostly compute, and a loss that falls."""
    with flightlog.record("exam", runs_dir=runs) as run:
        for epoch in range(8):
            steps(0.004, 0.05)
            run.metric("loss", 1 / (epoch + 1), step=epoch)


@program()
def healthy_program(runs: Path, _strength: float) -> None:
    """A program in one span."""
    with flightlog.record("exam", runs_dir=runs), flightlog.span("simulate"):
        burn(3.0)


@program()
def healthy_threads(runs: Path, _strength: float) -> None:
    """Threads of the program's own that wait, in spans."""

    def fetch_all(number: int) -> None:
        with flightlog.span("work", number=number):
            time.sleep(0.5)

    with flightlog.record("exam", runs_dir=runs), ThreadPoolExecutor(4) as threads:
        list(threads.map(fetch_all, range(20)))


@program()
def healthy_memory(runs: Path, _strength: float) -> None:
    """Memory that is taken at the beginning, and kept."""
    with session(runs, workers=2) as one, warm(one, 2):
        one.client.gather([one.client.submit(leak, 100.0 if n < 2 else 0.0, 0.2) for n in range(24)])


@program()
def healthy_command(runs: Path, _strength: float) -> None:
    """One recorded command."""
    runs.mkdir(parents=True, exist_ok=True)
    options = ["--runs-dir", str(runs)]
    code = "import time; end = time.thread_time() + 3\nwhile time.thread_time() < end: pass"
    subprocess.run(
        [sys.executable, "-m", "flightlog", "run", *options, "--", sys.executable, "-c", code], check=True
    )


# Programs on engines that have to be started: Ray, Dragon and Slurm


@program("stragglers", comparable=True, engines=("ray", "slurm"))
def long_task(runs: Path, strength: float, engine: str) -> None:
    """One task is far longer than the others, and comes last."""
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        futures = [one.client.submit(nap, 0.25, n) for n in range(24)]
        one.client.gather([*futures, one.client.submit(nap, 0.25 + 8 * strength, 99)])


@program("failed_work", comparable=True, engines=("ray", "dragon"))
def broken_attempts(runs: Path, strength: float, engine: str) -> None:
    """Most attempts fail before one works."""
    folder = runs / "attempts"
    folder.mkdir(parents=True)
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        many = round(3 * strength)
        options = {"retries": many} if many else {}
        submit = one.client.submit
        one.client.gather([submit(flaky, 0.4, str(folder), n, many, **options) for n in range(14)])


@program("program_alone", comparable=True, engines=("ray", "dragon"))
def busy_driver(runs: Path, strength: float, engine: str) -> None:
    """The program computes between its batches, while workers wait."""
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        for batch in range(5):
            one.client.gather([one.client.submit(nap, 0.25, 10 * batch + n) for n in range(6)])
            burn(1.6 * strength)


@program("dependency_chain", comparable=True, engines=("dragon", "slurm"))
def chained(runs: Path, strength: float, engine: str) -> None:
    """Each task needs the one before: two workers have one task at a time."""
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        last = one.client.submit(nap, 0.5, -1)
        futures = [last]
        for n in range(30):
            needs = n < round(30 * strength)
            last = one.client.submit(after, last, 0.5 + n * 1e-6) if needs else one.client.submit(nap, 0.5, n)
            futures.append(last)
        one.client.gather(futures)


@program("serialization", engines=("ray", "dragon"))
def heavy_arguments(runs: Path, strength: float, engine: str) -> None:
    """Large arguments for little work."""
    data = os.urandom(int(64e6 * strength))
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        seconds = 0.02 if strength else 0.25
        one.client.gather([one.client.submit(large, data, seconds, n) for n in range(30)])


@program("busy_machine", comparable=True, engines=("ray", "dragon", "slurm"))
def crowded(runs: Path, strength: float, engine: str) -> None:
    """Other programs keep all cores busy once the workers have started."""
    with (
        session(runs, workers=CORES, engine=engine) as one,
        warm(one, CORES),
        neighbours(round(4 * CORES * strength)),
    ):
        one.client.gather([one.client.submit(burn, 0.25 + n * 1e-6) for n in range(8 * CORES)])


@program("slow_workers", comparable=True, weak=0.6, engines=("slurm",))
def slow_node(runs: Path, strength: float, engine: str) -> None:
    """One of two workers is several times slower."""
    folder = runs / "workers"
    folder.mkdir(parents=True)
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        factor = 1 + 7 * strength
        one.client.gather([one.client.submit(uneven, factor, 0.2, str(folder), n) for n in range(90)])


@program("memory_growth", engines=("ray", "slurm"))
def growing(runs: Path, strength: float, engine: str) -> None:
    """A worker keeps memory with each task."""
    with session(runs, workers=1, engine=engine) as one, warm(one, 1):
        for n in range(40):
            one.client.submit(leak, 20 * strength, 0.8, n).result()


@program("cold_starts", engines=("slurm",))
def full_cluster(runs: Path, strength: float, engine: str) -> None:
    """Jobs of others keep the whole cluster, and workers wait in the queue."""
    if strength:
        hold = ["sbatch", "--account=lab", "--nodes=3", "--exclusive", "--output=/dev/null"]
        subprocess.run([*hold, f"--wrap=sleep {10 * strength}"], check=True, stdout=subprocess.DEVNULL)
        while b"R" not in subprocess.run(["squeue", "-ho%t"], check=True, capture_output=True).stdout:
            time.sleep(0.1)
    with session(runs, workers=2, engine=engine) as one:
        one.client.gather([one.client.submit(nap, 0.25, n) for n in range(24)])


@program(engines=("ray", "dragon", "slurm"))
def steady(runs: Path, _strength: float, engine: str) -> None:
    """Tasks that wait for something else, for so long that the start of the workers matters little."""
    with session(runs, workers=2, engine=engine) as one, warm(one, 2):
        one.client.gather([one.client.submit(nap, 1.0, n) for n in range(90)])


if __name__ == "__main__":
    taken = PROGRAMS[sys.argv[1]]
    execute = taken.remedied if sys.argv[4:] == ["--remedied"] else taken.run
    assert execute is not None
    execute(Path(sys.argv[3]), float(sys.argv[2]))
