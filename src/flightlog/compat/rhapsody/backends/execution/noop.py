"""A backend that runs nothing, to measure the overhead of a session."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from flightlog.compat.rhapsody.backends.base import StandardBackend
from flightlog.compat.rhapsody.backends.constants import BackendMainStates


class NoopExecutionBackend(StandardBackend):
    """Reports every task as done without running it."""

    def __init__(self, name: str = "noop") -> None:
        super().__init__(name)

    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> None:
        """Report tasks as done in the next turn of the event loop."""
        loop = asyncio.get_running_loop()
        for task in tasks:
            task.setdefault("uid", f"noop.{uuid.uuid4().hex[:8]}")
            self._take(task)
            done = {"return_value": True, "stdout": "", "stderr": "", "exit_code": 0}
            loop.call_soon(self._ended, task, "DONE", done)

    async def shutdown(self) -> None:
        """Cancel what has not ended."""
        await self.cancel_all_tasks()
        self._backend_state = BackendMainStates.SHUTDOWN
