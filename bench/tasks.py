"""Tasks through a session on local processes against a bare executor of the same start method, and what
recording costs.

python -m bench.tasks                 # 10,000 tasks of each kind: some three minutes
python -m bench.tasks 1000            # a tenth of that
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import repeat
from operator import truediv
from pathlib import Path
from typing import Any

from bench.timing import by_round
from flightlog.session.session import Session

TASKS = 10_000
WORKERS = 2
WARM_UP = 50
ROUNDS_5_MS, ROUNDS_NOTHING = 20, 9
MANIFEST = f"""\
version: 1
project: {{name: bench}}
targets:
  local: {{provider: local, max_workers: {WORKERS}}}
"""


def through(session: Session, function: Callable[..., Any], argument: float, tasks: int) -> float:
    """Wall time of so many tasks on a session."""
    begun = time.perf_counter()
    session.client.gather(session.client.map(function, repeat(argument, tasks)))
    return time.perf_counter() - begun


def bare(pool: ProcessPoolExecutor, function: Callable[..., Any], argument: float, tasks: int) -> float:
    """Wall time of the same tasks on the executor of the standard library."""
    begun = time.perf_counter()
    for future in [pool.submit(function, argument) for _ in range(tasks)]:
        future.result()
    return time.perf_counter() - begun


def session_in(folder: Path, recorded: bool) -> Session:
    """A session that is started, and records or does not."""
    before = os.environ.get("FLIGHTLOG_TELEMETRY")
    os.environ["FLIGHTLOG_TELEMETRY"] = "1" if recorded else "0"
    try:
        return Session.from_yaml(folder, runs_dir=folder / "runs", progress=False).start()
    finally:
        if before is None:
            del os.environ["FLIGHTLOG_TELEMETRY"]
        else:
            os.environ["FLIGHTLOG_TELEMETRY"] = before


@contextmanager
def pools() -> Iterator[tuple[ProcessPoolExecutor, Session, Session]]:
    """A bare executor, a session without and one with recording: all warm, and made in this order."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        folder = Path(name)
        (folder / "flightlog.yaml").write_text(MANIFEST)
        bare(pool, time.sleep, 0.001, WARM_UP)
        with session_in(folder, recorded=False) as silent:
            assert silent.run_id == "not-recorded"
            through(silent, time.sleep, 0.001, WARM_UP)
            with session_in(folder, recorded=True) as recording:
                assert recording.run_id != "not-recorded"
                through(recording, time.sleep, 0.001, WARM_UP)
                yield pool, silent, recording


def with_cpu(work: Callable[[], float]) -> tuple[float, float]:
    """Wall time of some work, and CPU time of this process and its children meanwhile."""
    import psutil

    def used() -> float:
        here, total = psutil.Process(), 0.0
        for one in (here, *here.children()):
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                total += sum(one.cpu_times()[:2])
        return total

    before = used()
    wall = work()
    return wall, used() - before


def measure(tasks: int = TASKS) -> dict[str, float]:
    """Wall times of tasks of 5 ms on two workers, and the microseconds of a task that does nothing.

    `more_wall_percent` is what session, engine and recording together add to the bare executor's time with
    tasks of 5 ms: so many tasks in short rounds, and the median of the rounds' ratios, because a sleep of 5
    ms takes between 5.4 and 8 ms here, for seconds at a time. `recording_us` is what recording adds to the
    wall time of a task that does nothing, the median over the rounds; `recording_cpu_us` what it adds in CPU
    time, of all processes: two cores share that, unless others want them.
    """
    with pools() as (pool, silent, recording):
        some = tasks // ROUNDS_5_MS
        wall = by_round(
            {
                "bare": partial(bare, pool, time.sleep, 0.005, some),
                "recorded": partial(through, recording, time.sleep, 0.005, some),
            },
            ROUNDS_5_MS,
        )
        each = by_round(
            {
                "bare": partial(with_cpu, partial(bare, pool, abs, 0.0, tasks)),
                "silent": partial(with_cpu, partial(through, silent, abs, 0.0, tasks)),
                "recorded": partial(with_cpu, partial(through, recording, abs, 0.0, tasks)),
            },
            ROUNDS_NOTHING,
        )

    def us(seconds: Iterable[float]) -> float:
        return statistics.median(seconds) / tasks * 1e6

    pairs = list(zip(each["silent"], each["recorded"], strict=True))
    return {
        **{f"{name}_5ms_s": sum(rounds) for name, rounds in wall.items()},
        "more_wall_percent": 100 * (statistics.median(map(truediv, wall["recorded"], wall["bare"])) - 1),
        **{f"{name}_us": us(wall_s for wall_s, _ in rounds) for name, rounds in each.items()},
        **{f"{name}_cpu_us": us(cpu_s for _, cpu_s in rounds) for name, rounds in each.items()},
        "recording_us": us(recorded[0] - without[0] for without, recorded in pairs),
        "recording_cpu_us": us(recorded[1] - without[1] for without, recorded in pairs),
    }


if __name__ == "__main__":
    for name, value in measure(*map(int, sys.argv[1:])).items():
        print(f"{name:<20} {value:10.2f}")
