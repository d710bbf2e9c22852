"""What it costs the dashboard to open the page of a run, to show it to many, and what is left when they have
gone.

python -m bench.ui_costs open                # a page, ten at once, the memory of 300 tabs: about two minutes
python -m bench.ui_costs watch               # 20 viewers of a run of 5,000 tasks at 500/s: half a minute
python -m bench.ui_costs refresh 100000      # a state of a run of so many tasks that goes on: half a minute
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

import flightlog
from bench.large_run import write_large_run
from bench.ui import VIEWERS, _start, _view
from bench.ways import peak_megabytes
from flightlog.analyze.live.follow import FollowedRun
from flightlog.core.time import SECOND, timestamp_of
from flightlog.store import layout
from flightlog.store.liveness import unix_time

TASKS, PER_S = 5000, 500
PAGES, AT_ONCE, TABS = 20, 10, 300
WATCH_S = 20.0


def record(runs_dir: str, tasks: int, per_s: int) -> None:
    """Record so many tasks at once, and then so many a second until the process is ended."""
    with flightlog.record("bench", runs_dir=runs_dir) as run:
        for number in range(tasks):
            with run.task("simulate", seed=number):
                pass
        print(run.path, flush=True)
        begun, done = time.monotonic(), 0
        while True:
            while done < (time.monotonic() - begun) * per_s:
                with run.task("simulate" if done % 50 else "failing", seed=done) as task:
                    if not done % 50:
                        task.set_status("error", f"no such seed: {done}")
                done += 1
            time.sleep(0.02)


@contextmanager
def served(per_s: int) -> Iterator[tuple[str, psutil.Process]]:
    """The page of a run that goes on, and the server's process."""
    with tempfile.TemporaryDirectory() as folder:
        started: list[subprocess.Popen[str]] = []
        try:
            recorder = _start("bench.ui_costs", "record", folder, str(TASKS), str(per_s))
            started.append(recorder)
            assert recorder.stdout is not None
            run = Path(recorder.stdout.readline().strip())
            server = _start(
                "flightlog", "ui", "--no-token", "--runs-dir", folder, "--port", "0", stderr=subprocess.PIPE
            )
            started.append(server)
            assert server.stderr is not None
            address = server.stderr.readline().split(" at ")[1].split()[0]
            yield f"{address}run/{run.name}", psutil.Process(server.pid)
        finally:
            for one in started:
                one.kill()
                one.wait()


async def _look(address: str, updates: int) -> tuple[float, int]:
    """Open the page, see it change so many times, close it: how long that took, and the bytes that came by
    the socket."""
    begun, told = time.perf_counter(), [0, 0, 0]
    viewing = asyncio.ensure_future(_view(address, {}, told))
    while told[0] < 2 + updates and not viewing.done():
        await asyncio.sleep(0.005)
    took = time.perf_counter() - begun
    viewing.cancel()
    await asyncio.gather(viewing, return_exceptions=True)
    return took, told[1]


def _cpu(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


async def _open(address: str, server: psutil.Process) -> dict[str, float]:
    await _look(address, 5)
    before = _cpu(server)
    for _ in range(PAGES):
        await _look(address, 0)
    each = (_cpu(server) - before) / PAGES
    together = await asyncio.gather(*(_look(address, 1) for _ in range(AT_ONCE)))
    found = {"cpu_ms_a_page": each * 1e3, "ten_at_once_s": max(took for took, _ in together)}
    for number in range(TABS // AT_ONCE):
        await asyncio.gather(*(_look(address, 1) for _ in range(AT_ONCE)))
        opened = (number + 1) * AT_ONCE
        if opened % 50 == 0:
            found[f"rss_mib_after_{opened}"] = server.memory_info().rss / 2**20
            await asyncio.sleep(15.0)  # tabs that are closed are forgotten in the meantime
    return found


async def _watch(address: str, server: psutil.Process) -> dict[str, float]:
    await _look(address, 5)
    told = [0, 0, 0]
    viewing = [asyncio.ensure_future(_view(address, {}, told)) for _ in range(VIEWERS)]
    await asyncio.sleep(5.0)
    before, sent, begun = _cpu(server), told[1], time.perf_counter()
    await asyncio.sleep(WATCH_S)
    took = time.perf_counter() - begun
    found = {
        "server_cores": (_cpu(server) - before) / took,
        "kib_a_viewer_a_second": (told[1] - sent) / 1024 / took / VIEWERS,
    }
    for one in viewing:
        one.cancel()
    await asyncio.gather(*viewing, return_exceptions=True)
    return found


REFRESHES, NEW_LINES = 20, 500


def refresh(tasks: int = 100_000) -> dict[str, float]:
    """What it costs to follow a run of so many tasks and spans: CPU seconds to read it for the first time,
    and the median of a state with `NEW_LINES` new lines; peak memory of the process."""
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        path = write_large_run(Path(folder), tasks)
        info = msgspec.json.decode((path / layout.RUN).read_bytes(), type=layout.RunInfo)
        now = unix_time(info.end_time)
        assert now is not None
        info.status, info.end_time, info.duration_s = "running", None, None
        info.host, info.heartbeat = "elsewhere", timestamp_of(round(now * SECOND))
        (path / layout.RUN).write_bytes(msgspec.json.encode(info))
        file = layout.stream_file(path, "tasks")
        lines = file.read_bytes().splitlines(keepends=True)
        known = len(lines) - REFRESHES * NEW_LINES
        file.write_bytes(b"".join(lines[:known]))
        live, costs = FollowedRun(path, now=lambda: now), []
        begun = time.process_time()
        live.update()
        first = time.process_time() - begun
        with file.open("ab") as out:
            for number in range(REFRESHES):
                since = known + number * NEW_LINES
                out.writelines(lines[since : since + NEW_LINES])
                out.flush()
                begun = time.process_time()
                state = live.update()
                costs.append(time.process_time() - begun)
        assert state.progress.completed == tasks
    return {
        "first_reading_cpu_s": first,
        "refresh_cpu_ms": statistics.median(costs) * 1e3,
        "peak_megabytes": peak_megabytes(),
    }


def measure(what: str) -> dict[str, float]:
    """`open` is of a page, `watch` of many who look; of a run of 5,000 tasks that goes on."""
    with served(PER_S if what == "watch" else 5) as (address, server):
        return asyncio.run(_watch(address, server) if what == "watch" else _open(address, server))


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:] in (["open"], ["watch"]):
        for name, value in measure(sys.argv[1]).items():
            print(f"{name:<24} {value:>10.4g}", flush=True)
    elif sys.argv[1:2] == ["refresh"]:
        for name, value in refresh(*map(int, sys.argv[2:])).items():
            print(f"{name:<24} {value:>10.4g}", flush=True)
    else:
        sys.exit(__doc__)
