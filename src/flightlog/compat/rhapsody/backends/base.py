"""What a backend is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any


class BaseBackend(ABC):
    """Runs tasks and says what becomes of each: a callback is told of every state.

    A backend may have `measured`, a dict of what it knows of a task by its id, to be taken out by whoever
    records: `started_at` and `ended_at` in Unix seconds, and the fields of `flightlog.events.TaskEnded`.
    """

    supports_implicit_data_linking: bool = False
    supports_explicit_data_linking: bool = False
    _callback_func: Callable[[dict[str, Any], str], Any]

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._work_dir = str(Path.cwd())
        self._callback_func = lambda task, state: None  # noqa: ARG005 - until a session registers
        self.is_attached = False
        self.attached_to: list[str] = []

    @property
    def name(self) -> str:
        """What tasks call it; by default its class's name."""
        return self._name or type(self).__name__

    @abstractmethod
    async def submit_tasks(self, tasks: list[dict[str, Any]]) -> Any:
        """Take tasks; each is told of until it ends."""

    @abstractmethod
    async def shutdown(self) -> None:
        """End what runs, and free everything."""

    @abstractmethod
    def state(self) -> Any:
        """What the backend itself is doing."""

    @abstractmethod
    def task_state_cb(self, task: dict[str, Any], state: str) -> Any:
        """A task is in this state."""

    def register_callback(self, func: Callable[[dict[str, Any], str], Any]) -> None:
        """Tell this function of every task and state from now on."""
        self._callback_func = func

    @abstractmethod
    def get_task_states_map(self) -> Any:
        """What this backend calls the states of tasks."""

    @abstractmethod
    def build_task(self, task: dict[str, Any]) -> Any:
        """Prepare a task."""

    def link_implicit_data_deps(self, src_task: dict[str, Any], dst_task: dict[str, Any]) -> None:  # noqa: B027
        """Give one task the data of another, where that is supported."""

    def link_explicit_data_deps(  # noqa: B027 - a hook that most leave alone
        self,
        src_task: dict[str, Any] | None = None,
        dst_task: dict[str, Any] | None = None,
        file_name: str | None = None,
        file_path: str | None = None,
    ) -> dict[str, Any] | None:
        """Give a task a file, where that is supported; says under which `target`."""

    @abstractmethod
    async def cancel_task(self, uid: str) -> bool:
        """Give a task up; whether that was tried."""
        raise NotImplementedError("Not implemented in the base backend")
