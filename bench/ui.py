"""What twenty viewers of a run cost the program that records it, and how late they see what happens.

python -m bench.ui                   # 30 rounds of 1 s each way, after 100,000 tasks: about two minutes
python -m bench.ui 3 10000           # 3 rounds, after 10,000 tasks
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import flightlog

VIEWERS = 20
ROUNDS, ROUND_S = 30, 1.0
TASKS = 100_000
MARKERS = 8


def record(runs_dir: str, tasks: int) -> None:
    """Record so many tasks, then so long as each line of standard input says, at full speed.

    Prints how many a second, and the microseconds of processor time that each took in this thread.
    """
    with flightlog.record("bench", runs_dir=runs_dir) as run:
        for number in range(tasks):
            with run.task("simulate", seed=number):
                pass
        print(run.path, flush=True)
        for line in sys.stdin:
            if line.startswith("mark "):
                with run.task("marker") as task:
                    task.set_status("error", line.strip())
                print(time.time(), flush=True)
                continue
            count, used, begun = 0, time.thread_time(), time.perf_counter()
            end = begun + float(line)
            while time.perf_counter() < end:
                with run.task("simulate", seed=count):
                    pass
                count += 1
            took, used = time.perf_counter() - begun, time.thread_time() - used
            print(count / took, used / count * 1e6, flush=True)


async def view(address: str, seen: dict[str, float], told: list[int]) -> None:
    """Look at the page as a browser does, and load it again where the socket is closed."""
    from websockets.exceptions import ConnectionClosed

    while True:
        try:
            await _view(address, seen, told)
        except ConnectionClosed:
            told[2] += 1


async def _view(address: str, seen: dict[str, float], told: list[int]) -> None:
    """The page, its socket, an answer to every ping; notes when a marker is seen."""
    from websockets.asyncio.client import connect

    page = (await asyncio.to_thread(urllib.request.urlopen, address)).read().decode()
    found = re.search(r"'client_id': '([0-9a-f-]+)'", page)
    assert found is not None
    host = address.partition("//")[2].partition("/")[0]
    ids = f"tab_id={uuid.uuid4()}&document_id={uuid.uuid4()}"
    query = f"client_id={found[1]}&next_message_id=0&implicit_handshake=true&{ids}"
    where = f"ws://{host}/_nicegui_ws/socket.io/?EIO=4&transport=websocket&{query}"
    async with connect(where, max_size=None, compression=None, ping_interval=None, open_timeout=60) as socket:
        async for message in socket:
            text = message if isinstance(message, str) else message.decode()
            if text == "2":
                await socket.send("3")
            elif text.startswith("0"):
                await socket.send("40")
            told[0] += 1
            told[1] += len(text)
            for name in re.findall(r"mark \d+", text):
                seen.setdefault(name, time.time())


async def look(address: str, viewers: int) -> None:
    """So many viewers; prints a line when all look, and each marker when one of them sees it first."""
    seen: dict[str, float] = {}
    told = [0, 0, 0]
    watching = [asyncio.create_task(view(address, seen, told)) for _ in range(viewers)]
    while told[0] < 3 * viewers:
        await asyncio.sleep(0.1)
        for one in watching:
            if one.done():
                one.result()
    print("looking", flush=True)
    printed: set[str] = set()
    while True:
        await asyncio.sleep(0.02)
        for one in watching:
            if one.done():
                one.result()
        for name in set(seen) - printed:
            printed.add(name)
            print(json.dumps([name, seen[name], *told]), flush=True)


def _start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", *arguments], stdin=pipe, stdout=pipe, text=True, **more)


def _ask(process: subprocess.Popen[str], line: str) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return [float(word) for word in process.stdout.readline().split()]


def measure(rounds: int = ROUNDS, tasks: int = TASKS) -> dict[str, float]:
    """`ratio` is the recorder's speed with the viewers over that without, the median over the rounds;
    `cpu_ratio` the same of the processor time a task takes it, which does not count what others do on the
    machine. `caught_up_s` is how long after the rounds the viewers had all of them; `latency_s` how late the
    first viewer had an event from then on, the median, and `latest_s` the largest.

    Server and viewers are stopped, and not ended, in the rounds without: everything else is the same.
    """
    import psutil

    with tempfile.TemporaryDirectory() as folder:
        recorder = _start("bench.ui", "record", folder, str(tasks))
        server = _start(
            "flightlog", "ui", "--no-token", "--runs-dir", folder, "--port", "0", stderr=subprocess.PIPE
        )
        others = [server]
        try:
            assert recorder.stdout is not None
            assert server.stderr is not None
            run = Path(recorder.stdout.readline().strip())
            address = server.stderr.readline().split(" at ")[1].split()[0]
            clients = _start(
                "bench.ui", "look", f"{address}run/{run.name}", str(VIEWERS), preexec_fn=lambda: os.nice(19)
            )
            others.append(clients)
            assert clients.stdout is not None
            assert clients.stdout.readline() == "looking\n"
            time.sleep(5.0)  # the first reading of the run is over
            speeds: dict[str, list[float]] = {"with": [], "without": []}
            costs: dict[str, list[float]] = {"with": [], "without": []}
            usage = psutil.Process(server.pid)
            busy = 0.0
            for number in range(rounds):
                for way in ("with", "without") if number % 2 else ("without", "with"):
                    for one in others:
                        os.kill(one.pid, signal.SIGCONT if way == "with" else signal.SIGSTOP)
                    before = sum(usage.cpu_times()[:2])
                    speed, cost = _ask(recorder, str(ROUND_S))
                    speeds[way].append(speed)
                    costs[way].append(cost)
                    busy += sum(usage.cpu_times()[:2]) - before
            for one in others:
                os.kill(one.pid, signal.SIGCONT)
            late = []
            for number in range(
                MARKERS + 1
            ):  # the first is seen when all that was written at full speed has been read
                time.sleep(0.37)
                (written,) = _ask(recorder, f"mark {number}")
                while True:
                    name, when, messages, size, again = json.loads(clients.stdout.readline())
                    if name == f"mark {number}":
                        break
                late.append(when - written)
        finally:
            for one in [*others, recorder]:
                one.kill()
                one.wait()
    ratios = [a / b for a, b in zip(speeds["with"], speeds["without"], strict=True)]
    return {
        "recorded_per_s_without": statistics.median(speeds["without"]),
        "recorded_per_s_with": statistics.median(speeds["with"]),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "cpu_us_without": statistics.median(costs["without"]),
        "cpu_us_with": statistics.median(costs["with"]),
        "cpu_ratio": statistics.median(a / b for a, b in zip(costs["with"], costs["without"], strict=True)),
        "server_cores": busy / (rounds * ROUND_S),
        "caught_up_s": late[0],
        "latency_s": statistics.median(late[1:]),
        "latest_s": max(late[1:]),
        "messages": messages,
        "loaded_again": again,
        "sent_mib": size / 2**20,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["look"]:
        asyncio.run(look(sys.argv[2], int(sys.argv[3])))
    else:
        given = [int(text) for text in sys.argv[1:]]
        for name, value in measure(*given).items():
            print(f"{name:<24} {value:>12.4g}")
