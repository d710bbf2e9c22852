"""Commands as tasks: started without blocking the event loop, and ended with the task."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any


async def run_command(task: dict[str, Any], folder: str, began: Callable[[float], None]) -> dict[str, Any]:
    """Run the command of a task: its output, its exit code, and when it started and ended.

    `shell`, `cwd` and `env` are in `task_backend_specific_kwargs`. With `capture_stdio` the output goes into
    files of the folder, and their paths are given. A command whose task is cancelled is killed with all it
    started: it has a session of its own.
    """
    options = task.get("task_backend_specific_kwargs") or {}
    command = [task["executable"], *(task.get("arguments") or [])]
    with ExitStack() as files:
        paths, streams = [], []
        for kind in ("stdout", "stderr"):
            if task.get("capture_stdio"):
                paths.append(str(Path(folder) / f"{task['uid']}.{kind}"))
                streams.append(files.enter_context(Path(paths[-1]).open("wb")))
            else:
                streams.append(asyncio.subprocess.PIPE)  # type: ignore[arg-type]
        where: dict[str, Any] = {
            "start_new_session": True,
            "stdout": streams[0],
            "stderr": streams[1],
            "cwd": options.get("cwd"),
            "env": options.get("env"),
        }
        started_at, began_ns = time.time(), time.monotonic_ns()
        if options.get("shell", False):
            process = await asyncio.create_subprocess_shell(" ".join(command), **where)
        else:
            process = await asyncio.create_subprocess_exec(*command, **where)
        began(started_at)
        try:
            said = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            raise
    duration_s = (time.monotonic_ns() - began_ns) / 1e9
    output = paths or [(text or b"").decode(errors="replace") for text in said]
    return {
        "stdout": output[0],
        "stderr": output[1],
        "exit_code": process.returncode,
        "measured": {
            "started_at": started_at,
            "ended_at": started_at + duration_s,
            "duration_s": duration_s,
        },
    }
