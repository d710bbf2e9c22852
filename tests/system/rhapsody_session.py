"""A session of `flightlog.compat.rhapsody` that serves its metrics at a port until a file appears."""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import start_http_server

from flightlog.compat.rhapsody import ComputeTask, Session
from flightlog.compat.rhapsody.backends import ConcurrentExecutionBackend
from flightlog.compat.rhapsody.telemetry.events import ResourceUpdate, make_event


def simulate(seed: int) -> int:
    time.sleep(0.01)
    if seed == 3:
        raise ValueError("no convergence")
    return seed


async def main(port: int, over: Path) -> None:
    start_http_server(port, addr="127.0.0.1")
    backend = await ConcurrentExecutionBackend(ThreadPoolExecutor(max_workers=2))
    async with Session(backends=[backend]) as session:
        telemetry = await session.start_telemetry(
            resource_poll_interval=0.5, metric_readers=[PrometheusMetricReader()]
        )
        canceled = ComputeTask(executable="/bin/sleep", arguments=["600"])
        await session.submit_tasks([canceled])
        await asyncio.sleep(0.5)
        await backend.cancel_task(canceled["uid"])
        while not over.exists():  # a machine without a GPU has no samples of one
            telemetry.emit(
                make_event(
                    ResourceUpdate, session_id=session.uid, backend="concurrent", node_id="n", gpu_percent=5.0
                )
            )
            tasks = [ComputeTask(function=simulate, args=(seed,)) for seed in range(4)]
            await session.submit_tasks(tasks)
            await asyncio.wait([asyncio.ensure_future(session.wait_tasks(tasks))], timeout=60)
            await asyncio.sleep(0.3)


asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
