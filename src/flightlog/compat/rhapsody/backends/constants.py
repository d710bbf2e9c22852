"""States of backends and tasks, and each backend's names for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar


class BackendMainStates(Enum):
    """States of a backend."""

    INITIALIZED = "INITIALIZED"
    RUNNING = "RUNNING"
    SHUTDOWN = "SHUTDOWN"


class TasksMainStates(Enum):
    """States of a task."""

    DONE = "DONE"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    RUNNING = "RUNNING"


class StateMapper:
    """A backend's names for the states of tasks: `mapper.DONE` is its name for done.

    A backend is given as an object or by its name, case-insensitive. Raises ValueError where its states are
    not registered.
    """

    _backend_registry: ClassVar[dict[str, dict[Any, Any]]] = {}

    def __init__(self, backend: Any) -> None:
        self.backend_name = _name_of(backend)
        self.backend_module = None if isinstance(backend, str) else backend
        if self.backend_name not in self._backend_registry:
            raise ValueError(
                f"Backend '{self.backend_name}' not registered. "
                f"Available backends: {list(self._backend_registry)}"
            )
        self._state_map = self._backend_registry[self.backend_name]
        self._reverse_map = {word: state for state, word in self._state_map.items()}

    @classmethod
    def register_backend_states(
        cls,
        backend: Any,
        initialized_state: Any,
        running_state: Any,
        shutdown_state: Any,
        **additional_states: Any,
    ) -> None:
        """Register a backend's names for its own states."""
        words = (initialized_state, running_state, shutdown_state)
        key = f"{_name_of(backend)}_backend_states"
        cls._backend_registry[key] = _names(BackendMainStates, words, additional_states)

    @classmethod
    def register_backend_states_with_defaults(cls, backend: Any) -> None:
        """Register the default names for a backend's own states."""
        cls.register_backend_states(backend, *(state.value for state in BackendMainStates))

    @classmethod
    def register_backend_tasks_states(
        cls,
        backend: Any,
        done_state: Any,
        failed_state: Any,
        canceled_state: Any,
        running_state: Any,
        **additional_states: Any,
    ) -> None:
        """Register a backend's names for the states of tasks."""
        words = (done_state, failed_state, canceled_state, running_state)
        cls._backend_registry[_name_of(backend)] = _names(TasksMainStates, words, additional_states)

    @classmethod
    def register_backend_tasks_states_with_defaults(cls, backend: Any) -> None:
        """Register the default names for the states of tasks."""
        cls.register_backend_tasks_states(backend, *(state.value for state in TasksMainStates))

    def __getattr__(self, name: str) -> Any:
        if name not in TasksMainStates.__members__:
            raise AttributeError(f"'{type(self).__name__}' has no state '{name}'")
        return self._state_map[TasksMainStates[name]]

    def to_main_state(self, backend_state: Any) -> TasksMainStates:
        """The state that the backend calls so. Raises ValueError for an unknown name."""
        try:
            found: TasksMainStates = self._reverse_map[backend_state]
        except KeyError:
            raise ValueError(f"Unknown backend state: {backend_state}") from None
        return found

    def get_backend_state(self, main_state: TasksMainStates | str) -> Any:
        """The backend's name for a state. Raises KeyError for an unknown state."""
        return self._state_map[TasksMainStates[main_state] if isinstance(main_state, str) else main_state]

    @property
    def terminal_states(self) -> tuple[Any, ...]:
        """The backend's names for the final states: done, failed, canceled."""
        return (self.DONE, self.FAILED, self.CANCELED)


def _names(states: type[Enum], words: Iterable[Any], more: Mapping[str, Any]) -> dict[Any, Any]:
    """A backend's words for states, in the order of their declaration, and those by name."""
    return dict(zip(states, words, strict=True)) | {states[name.upper()]: word for name, word in more.items()}


def _name_of(backend: Any) -> str:
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
    return str(name).lower()
