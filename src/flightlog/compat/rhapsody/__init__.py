"""RHAPSODY's session, tasks and telemetry under its own names: change `rhapsody` to
`flightlog.compat.rhapsody`.
"""

from flightlog.compat.rhapsody.api import (
    AITask,
    BackendError,
    BaseTask,
    ComputeTask,
    ResourceError,
    RhapsodyError,
    Session,
    SessionError,
    TaskExecutionError,
    TaskValidationError,
)
from flightlog.compat.rhapsody.backends import BackendRegistry, discover_backends, get_backend
from flightlog.compat.rhapsody.logger import enable_logging
from flightlog.version import __version__

__all__ = [
    "AITask",
    "BackendError",
    "BackendRegistry",
    "BaseTask",
    "ComputeTask",
    "ResourceError",
    "RhapsodyError",
    "Session",
    "SessionError",
    "TaskExecutionError",
    "TaskValidationError",
    "__version__",
    "discover_backends",
    "enable_logging",
    "get_backend",
]
