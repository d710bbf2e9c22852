"""Sessions, tasks and their errors."""

from flightlog.compat.rhapsody.api import errors
from flightlog.compat.rhapsody.api.errors import *  # noqa: F403 - every error is a name here
from flightlog.compat.rhapsody.api.session import Session, TaskStateManager
from flightlog.compat.rhapsody.api.task import AITask, BaseTask, ComputeTask

__all__ = ["AITask", "BaseTask", "ComputeTask", "Session", "TaskStateManager"]
__all__ += errors.__all__
