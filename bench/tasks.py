"""Tasks on the local engine against a bare executor of the same start method, and what recording one costs."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import flightlog
from bench.timing import interleaved
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.local import LocalEngine
from flightlog.events import TaskCompleted, TaskSubmitted, WorkerEvent

WORKERS = 2
WARM_UP = 50
ROUNDS = 5
numbers = count(1)


class Ends:
    """What a session does with reports, at its least: an end for each task, in the run if there is one."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.left = 0
        self.all_over = threading.Event()

    def expect(self, tasks: int) -> None:
        self.left = tasks
        self.all_over.clear()

    def queued(self, task_id: str, attempt: int) -> None:
        pass

    def started(self, task_id: str, attempt: int, worker: str) -> None:
        pass

    def ended(self, task_id: str, _attempt: int, outcome: Outcome) -> None:
        assert outcome.end == "completed", outcome
        if self.run is not None:
            self.run.emit(
                TaskCompleted(
                    timestamp=outcome.ended or "",
                    task="task",
                    task_id=task_id,
                    args={},
                    worker=outcome.worker,
                    duration_s=outcome.duration_s,
                    queue_s=outcome.queue_s,
                    cpu_s=outcome.cpu_s,
                    peak_rss_bytes=outcome.peak_rss_bytes,
                    result_bytes=outcome.result_bytes,
                )
            )
        self.left -= 1
        if self.left == 0:
            self.all_over.set()

    def worker(self, event: WorkerEvent) -> None:
        if self.run is not None:
            self.run.emit(event)


class Ours:
    """The engine, warm; each call is the wall time of so many tasks."""

    def __init__(self, run: Any) -> None:
        self.ends = Ends(run)
        self.place = flightlog.carrier() if run is not None else {}
        self.engine = LocalEngine(max_workers=WORKERS)
        self.engine.start(None if run is None else str(run.path), self.ends)

    def __call__(self, function: Callable[..., Any], argument: float, tasks: int) -> float:
        run = self.ends.run
        self.ends.expect(tasks)
        begun = time.perf_counter()
        for _ in range(tasks):
            number = next(numbers)
            task_id, call = f"{number:016x}", pickle.dumps((function, (argument,), {}))
            if run is not None:
                run.emit(TaskSubmitted(task="task", task_id=task_id, args={}))
            self.engine.submit(
                Work(
                    task_id=task_id,
                    task="task",
                    attempt=1,
                    call=call,
                    args={},
                    args_bytes=len(call),
                    submitted=time.time(),
                    place=self.place,
                    span_id=task_id,
                )
            )
        self.ends.all_over.wait()
        return time.perf_counter() - begun


def bare(pool: ProcessPoolExecutor, function: Callable[..., Any], argument: float, tasks: int) -> float:
    """The same tasks on the executor of the standard library; each call is their wall time."""
    begun = time.perf_counter()
    for future in [pool.submit(function, argument) for _ in range(tasks)]:
        future.result()
    return time.perf_counter() - begun


@contextmanager
def pools() -> Iterator[tuple[ProcessPoolExecutor, Ours, Ours]]:
    """A bare executor, an engine without and one with recording: all warm, and made in this order."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        bare(pool, time.sleep, 0.001, WARM_UP)
        silent = Ours(None)
        silent(time.sleep, 0.001, WARM_UP)
        with flightlog.record("bench", runs_dir=folder) as run:
            recording = Ours(run)
            recording(time.sleep, 0.001, WARM_UP)
            try:
                yield pool, silent, recording
            finally:
                silent.engine.close()
                recording.engine.close()


def measure(sleeping: int = 2000, nothing: int = 2000) -> dict[str, float]:
    """Wall times of tasks of 5 ms on two workers, and the microseconds of a task that does nothing.

    `recording_us` is what recording adds to such a task; `more_wall_percent` what the engine and recording together
    add to the bare executor's time with tasks of 5 ms.
    """
    with pools() as (pool, silent, recording):
        wall = interleaved(
            {
                "bare": partial(bare, pool, time.sleep, 0.005, sleeping),
                "recorded": partial(recording, time.sleep, 0.005, sleeping),
            },
            ROUNDS,
        )
        each = interleaved(
            {
                "bare": partial(bare, pool, abs, 0.0, nothing),
                "silent": partial(silent, abs, 0.0, nothing),
                "recorded": partial(recording, abs, 0.0, nothing),
            },
            2 * ROUNDS + 1,
        )
    us = {name: seconds / nothing * 1e6 for name, seconds in each.items()}
    return {
        "bare_5ms_s": wall["bare"],
        "recorded_5ms_s": wall["recorded"],
        "more_wall_percent": 100 * (wall["recorded"] / wall["bare"] - 1),
        "bare_us": us["bare"],
        "silent_us": us["silent"],
        "recorded_us": us["recorded"],
        "recording_us": us["recorded"] - us["silent"],
    }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:<20} {value:10.2f}")
