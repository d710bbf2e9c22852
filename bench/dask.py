"""Tasks that do nothing through a plain Dask client, watched against bare, interleaved on one cluster.

python -m bench.dask                  # 10,000 tasks, 7 rounds of each: some minutes
python -m bench.dask 2000 5           # fewer tasks, fewer rounds
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from operator import truediv
from typing import Any

from bench.tasks import with_cpu
from bench.timing import by_round

TASKS, ROUNDS, WORKERS = 10_000, 7, 2
BUDGET_PERCENT = 5.0


def nothing(x: int) -> int:
    return x


def count_tasks(dask_scheduler: Any = None) -> int:
    return len(dask_scheduler.tasks)


def gathered(client: Any, tasks: int) -> tuple[float, float]:
    """Wall time until the results of so many tasks are here, and the CPU time of all processes meanwhile."""

    def work() -> float:
        begun = time.perf_counter()
        client.gather(client.map(nothing, range(tasks), pure=False))
        return time.perf_counter() - begun

    used = with_cpu(work)
    while client.run_on_scheduler(count_tasks):  # the next round begins with an empty scheduler
        time.sleep(0.05)
    return used


def watched(
    client: Any, tasks: int, folder: str, opening: list[float], recorded: list[int]
) -> tuple[float, float]:
    """The same while it is watched; how long opening and closing takes, and the tasks on record, are
    noted."""
    from flightlog import open_run, watch

    begun = time.perf_counter()
    with watch(client, project="bench", runs_dir=folder) as run:
        around = time.perf_counter() - begun
        used = gathered(client, tasks)
        begun = time.perf_counter()
    opening.append(around + time.perf_counter() - begun)
    recorded.append(open_run(run.path).info.tasks_completed or 0)
    return used


def measure(tasks: int = TASKS, rounds: int = ROUNDS) -> dict[str, float]:
    """What so many tasks cost on two workers with one thread each, results gathered.

    `more_wall_percent` and `more_cpu_percent` are the medians of the rounds' ratios; the CPU time, of client,
    scheduler and workers together, says more where others use the machine too. `around_s` is what opening and
    closing the watch takes, the run's own files included. `recorded` is the share of tasks whose end is on
    record.
    """
    from distributed import Client, LocalCluster

    around: list[float] = []
    recorded: list[int] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        gathered(client, 1000)
        found = by_round(
            {
                "bare": partial(gathered, client, tasks),
                "watched": partial(watched, client, tasks, folder, around, recorded),
            },
            rounds,
        )
    result = {}
    for number, what in enumerate(("wall", "cpu")):
        bare, seen = ([one[number] for one in found[name]] for name in ("bare", "watched"))
        result[f"bare_{what}_us"] = statistics.median(bare) / tasks * 1e6
        result[f"watched_{what}_us"] = statistics.median(seen) / tasks * 1e6
        result[f"more_{what}_percent"] = 100 * (statistics.median(map(truediv, seen, bare)) - 1)
    result["budget_percent"] = BUDGET_PERCENT
    result["around_s"] = statistics.median(around)
    result["recorded"] = min(recorded) / tasks
    return result


if __name__ == "__main__":
    for name, value in measure(*map(int, sys.argv[1:])).items():
        print(f"{name:<20} {value:10.2f}")
