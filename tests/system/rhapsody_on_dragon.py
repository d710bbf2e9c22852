"""What is run inside Dragon: a session of RHAPSODY's on its backend, with telemetry; prints what became of it."""

from __future__ import annotations

import asyncio
import json
import os
import time

import flightlog
from flightlog.compat.rhapsody import ComputeTask, Session
from flightlog.compat.rhapsody.backends import DragonExecutionBackend
from flightlog.store.liveness import this_host
from flightlog.store.run import Run


def square(number: int) -> int:
    with flightlog.span("inner"):
        return number * number


async def double(number: int) -> int:
    return 2 * number


def fail() -> None:
    raise ValueError("as it was told")


def command(text: str, **more: object) -> ComputeTask:
    return ComputeTask(executable="/bin/sh", arguments=["-c", text], **more)


async def main() -> None:
    heard = []
    backend = await DragonExecutionBackend()
    async with Session([backend]) as session:
        telemetry = await session.start_telemetry(resource_poll_interval=0.2)
        telemetry.subscribe(heard.append)
        in_process = {"process_template": {"cwd": os.environ["ELSEWHERE"]}}
        tasks = {
            "function": ComputeTask(function=square, args=(3,)),
            "coroutine": ComputeTask(function=double, args=(4,)),
            "failing": ComputeTask(function=fail),
            "command": command("echo hi; exit 3"),
            "captured": command("echo into a file", capture_stdio=True),
            "in_process": command("pwd", task_backend_specific_kwargs=in_process),
            "job": ComputeTask(
                function=abs, args=(0,), task_backend_specific_kwargs={"process_templates": [(1, {})]}
            ),
        }
        await session.submit_tasks(list(tasks.values()))
        await session.wait_tasks(list(tasks.values()), timeout=90)
        endless = ComputeTask(function=time.sleep, args=(600,))
        await session.submit_tasks([endless])
        while endless.state != "RUNNING":
            await asyncio.sleep(0.05)
        cancelled = await backend.cancel_task(endless.uid), endless.state
        while not telemetry.summary()["resources"]:
            await asyncio.sleep(0.05)
        awaited = telemetry.summary()["tasks"]
    run = Run(telemetry.run_path)
    names = {task.uid: name for name, task in tasks.items()}
    events = list(run.events("tasks"))
    inner = [event for event in run.events("spans") if getattr(event, "name", "") == "inner"]
    ended = {names.get(event.task_id): event for event in events if hasattr(event, "duration_s")}
    found = {
        "states": {name: task.state for name, task in tasks.items()},
        "values": {name: task.return_value for name, task in tasks.items()},
        "codes": {name: task.exit_code for name, task in tasks.items()},
        "errors": {name: repr(task.exception) for name, task in tasks.items() if task.exception is not None},
        "stdout": {name: tasks[name].stdout for name in ("command", "in_process")},
        "captured": open(tasks["captured"].stdout).read(),
        "cancelled": cancelled,
        "counts": awaited,
        "nodes": sorted({e.node_id == this_host() for e in heard if e.event_type == "ResourceUpdate"}),
        "ran_here": ended["function"].worker.startswith(f"{this_host()}:"),
        "measured": ended["function"].cpu_s is not None,
        "started": sum(type(event).__name__ == "TaskStarted" for event in events),
        "inside": [event.parent_id == ended["function"].span_id for event in inner],
        "run": run.info.status,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
