"""Backends, which run tasks."""

from flightlog.compat.rhapsody.api import Session
from flightlog.compat.rhapsody.backends import execution
from flightlog.compat.rhapsody.backends.base import BaseBackend
from flightlog.compat.rhapsody.backends.constants import StateMapper, TasksMainStates
from flightlog.compat.rhapsody.backends.discovery import BackendRegistry, discover_backends, get_backend
from flightlog.compat.rhapsody.backends.execution import *  # noqa: F403 - all backends

__all__ = [
    "BackendRegistry",
    "BaseBackend",
    "Session",
    "StateMapper",
    "TasksMainStates",
    "discover_backends",
    "get_backend",
]
__all__ += execution.__all__
