"""What the backends of this package have in common."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Self

from flightlog.compat.rhapsody.backends.base import BaseBackend
from flightlog.compat.rhapsody.backends.constants import BackendMainStates, StateMapper
from flightlog.compat.rhapsody.backends.execution.measuring import Place


class StandardBackend(BaseBackend):
    """A backend that is awaited before use, or used with `async with`, and calls states by their usual names.

    `tasks` holds those that have not ended. What telemetry wants to know of one is in `measured`; `place_of`
    says where in a run it is to be recorded, and is set by telemetry. For one event loop.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        StateMapper.register_backend_states_with_defaults(backend=self)
        StateMapper.register_backend_tasks_states_with_defaults(backend=self)
        self.tasks: dict[str, dict[str, Any]] = {}
        self.measured: dict[str, dict[str, Any]] = {}
        self.place_of: Callable[[str], Place | None] | None = None
        self._initialized = False
        self._backend_state = BackendMainStates.INITIALIZED

    def __await__(self) -> Generator[Any, None, Self]:
        return self._async_init().__await__()

    async def _async_init(self) -> Self:
        self._initialized = True
        return self

    def get_task_states_map(self) -> StateMapper:
        """The usual names of states."""
        return StateMapper(backend=self)

    async def state(self) -> str:
        """INITIALIZED, RUNNING once it was given tasks, or SHUTDOWN."""
        return self._backend_state.value

    def task_state_cb(self, task: dict[str, Any] | None = None, state: str | None = None) -> Any:
        """Nothing: whoever wants to know registers a callback."""

    def build_task(self, task: Any, task_desc: Any = None, task_specific_kwargs: Any = None) -> Any:
        """Nothing: tasks are run as they are."""

    async def cancel_all_tasks(self) -> int:
        """Give up every task that has not ended; how many that were."""
        return sum([await self.cancel_task(uid) for uid in list(self.tasks)])

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self.shutdown()

    def _take(self, task: dict[str, Any]) -> None:
        self._backend_state = BackendMainStates.RUNNING
        self.tasks[task["uid"]] = task

    def _place(self, uid: str) -> Place | None:
        return self.place_of(uid) if self.place_of is not None else None

    def _began(self, task: dict[str, Any], started_at: float, **facts: Any) -> None:
        """A task runs, since then; unless it was given up meanwhile. `recorded` says that the run knows
        already.
        """
        if task["uid"] in self.tasks:
            self.measured.setdefault(task["uid"], {}).update(facts, started_at=started_at)
            self._callback_func(task, "RUNNING")

    def _ended(self, task: dict[str, Any], state: str, found: dict[str, Any] | None = None) -> None:
        """A task has ended: once, whatever is heard of it later."""
        if self.tasks.pop(task["uid"], None) is None:
            return
        task.update(found or {})
        try:
            self._callback_func(task, state)
        finally:
            self.measured.pop(task["uid"], None)
