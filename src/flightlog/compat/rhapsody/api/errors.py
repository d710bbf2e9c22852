"""The errors of a session.

RhapsodyError
├── BackendError          the backend itself failed
├── TaskValidationError   a task is incomplete or contradictory
├── TaskExecutionError    a task ran and failed, perhaps with an exit code
├── SessionError          the session cannot do that
└── ResourceError         a resource that a task needs is missing or invalid
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "ResourceError",
    "RhapsodyError",
    "SessionError",
    "TaskExecutionError",
    "TaskValidationError",
]


class RhapsodyError(Exception):
    """The base of all errors; `message` is their text."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class BackendError(RhapsodyError):
    """A backend failed, and not a task of it."""

    def __init__(self, backend_name: str, message: str) -> None:
        self.backend_name = backend_name
        super().__init__(f"Backend '{backend_name}' failed: {message}")


class TaskValidationError(RhapsodyError):
    """A task is incomplete or contradicts itself."""

    def __init__(self, task_uid: str | None, message: str) -> None:
        self.task_uid = task_uid
        which = f"Task '{task_uid}'" if task_uid else "Task"
        super().__init__(f"{which} validation failed: {message}")


class TaskExecutionError(RhapsodyError):
    """A task ran and failed."""

    def __init__(self, task_uid: str, message: str, exit_code: int | None = None) -> None:
        self.task_uid, self.exit_code = task_uid, exit_code
        how = "" if exit_code is None else f" with exit code {exit_code}"
        super().__init__(f"Task '{task_uid}' failed{how}: {message}")


class SessionError(RhapsodyError):
    """A session cannot do what was requested."""


class ResourceError(RhapsodyError):
    """A resource that a task needs is missing or invalid."""

    def __init__(self, task_uid: str | None, resource_type: str, message: str) -> None:
        self.task_uid, self.resource_type = task_uid, resource_type
        which = f"Task '{task_uid}' resource" if task_uid else "Resource"
        super().__init__(f"{which} error ({resource_type}): {message}")
