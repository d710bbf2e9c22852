"""A great many tasks through one session: memory of the process that submits and records stays where it was.

python -m bench.endurance local 1000000    # on two local processes: some minutes
python -m bench.endurance dask 100000      # on a LocalCluster of two workers
python -m bench.endurance local 100000 recorded    # one way alone

Tasks that do next to nothing are submitted in chunks; each chunk is gathered and its futures dropped. The
bare engine (the executor of the standard library, or Dask's own client) does the same beside it, in a process
of its own.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from flightlog.session.session import Session

WORKERS = 2
CHUNK = 2000
MARKS = (10, 25, 50, 75, 100)
"""At so many percent of the tasks, memory is noted."""
MANIFESTS = {
    "local": f"targets: {{it: {{provider: local, max_workers: {WORKERS}}}}}",
    "dask": f"targets: {{it: {{provider: dask, n_workers: {WORKERS}, threads_per_worker: 1}}}}",
}
PAGE = os.sysconf("SC_PAGE_SIZE")

Chunk = Callable[[int], None]
"""Runs so many tasks, and keeps nothing of them."""


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def below() -> int:
    """Bytes of memory that the processes below this one hold now, together."""
    import psutil

    total = 0
    for child in psutil.Process().children(recursive=True):
        try:
            total += resident(child.pid)
        except (OSError, IndexError):
            continue
    return total


@contextmanager
def recorded(kind: str) -> Iterator[Chunk]:
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as name:
        folder = Path(name)
        (folder / "flightlog.yaml").write_text(
            f"version: 1\nproject: {{name: endurance}}\n{MANIFESTS[kind]}\n"
        )
        session = Session.from_yaml(folder, runs_dir=folder / "runs", progress=False)
        with session:

            def chunk(tasks: int) -> None:
                session.client.gather(session.client.map(abs, range(tasks)))

            yield chunk
        [run] = (folder / "runs").glob("run-*")
        said = json.loads((run / "run.json").read_text())
        print(
            json.dumps(
                {"completed": said["tasks_completed"], "bytes": sum(f.stat().st_size for f in run.rglob("*"))}
            )
        )


@contextmanager
def bare(kind: str) -> Iterator[Chunk]:
    if kind == "dask":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):

            def chunk(tasks: int) -> None:
                client.gather(client.map(abs, range(tasks), pure=False))

            yield chunk
        return
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:

        def chunk(tasks: int) -> None:
            for future in [pool.submit(abs, one) for one in range(tasks)]:
                future.result()

        yield chunk


def endure(way: str, kind: str, tasks: int) -> None:
    """Run all tasks one way, and print what was seen: a JSON object a mark."""
    with (recorded if way == "recorded" else bare)(kind) as chunk:
        begun = time.perf_counter()
        done = 0
        marks = [tasks * mark // 100 for mark in MARKS]
        while done < tasks:
            some = min(CHUNK, tasks - done)
            chunk(some)
            done += some
            while marks and done >= marks[0]:
                gc.collect()
                seen = {
                    "percent": round(100 * marks.pop(0) / tasks),
                    "done": done,
                    "resident_bytes": resident(),
                    "workers_bytes": below(),
                    "seconds": time.perf_counter() - begun,
                }
                print(json.dumps(seen), flush=True)


def in_a_process(way: str, kind: str, tasks: int) -> list[dict[str, float]]:
    """What a way printed, run in a process of its own."""
    said = subprocess.run(
        [sys.executable, "-m", "bench.endurance", kind, str(tasks), way, "here"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def growth_bytes(marks: list[dict[str, float]]) -> float:
    """Bytes that the process grew by a task, from the first mark to the last."""
    first, last = marks[0], marks[-1]
    return (last["resident_bytes"] - first["resident_bytes"]) / max(last["done"] - first["done"], 1)


def measure(kind: str, tasks: int, ways: tuple[str, ...] = ("bare", "recorded")) -> dict[str, float]:
    """Prints a table; gives the growth of each way in bytes a task, and what was recorded."""
    found: dict[str, float] = {}
    for way in ways:
        said = in_a_process(way, kind, tasks)
        marks = [one for one in said if "percent" in one]
        for one in marks:
            print(
                f"{kind} {way:<9} {one['percent']:4.0f} %  {one['done']:>9,.0f} tasks  "
                f"{one['seconds']:7.1f} s  "
                f"{one['resident_bytes'] / 1e6:7.1f} MB here  {one['workers_bytes'] / 1e6:7.1f} MB in "
                "workers",
                flush=True,
            )
        found[f"{way}_growth_bytes_a_task"] = growth_bytes(marks)
        found |= {f"{way}_{name}": value for one in said if "completed" in one for name, value in one.items()}
    return found


if __name__ == "__main__":
    kind, tasks, *way = sys.argv[1:]
    if way[1:] == ["here"]:
        endure(way[0], kind, int(tasks))
    else:
        for name, value in measure(kind, int(tasks), *([tuple(way)] if way else [])).items():
            print(f"{name:<32} {value:14,.2f}")
