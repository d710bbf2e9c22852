"""Sessions, tasks and their errors."""

from flightlog.compat.rhapsody.api.errors import (
    BackendError,
    ResourceError,
    RhapsodyError,
    SessionError,
    TaskExecutionError,
    TaskValidationError,
)
from flightlog.compat.rhapsody.api.session import Session, TaskStateManager
from flightlog.compat.rhapsody.api.task import AITask, BaseTask, ComputeTask

__all__ = [
    "AITask",
    "BackendError",
    "BaseTask",
    "ComputeTask",
    "ResourceError",
    "RhapsodyError",
    "Session",
    "SessionError",
    "TaskExecutionError",
    "TaskStateManager",
    "TaskValidationError",
]
