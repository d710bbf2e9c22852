"""Backends, which run tasks."""

from flightlog.compat.rhapsody.api import Session
from flightlog.compat.rhapsody.backends.base import BaseBackend
from flightlog.compat.rhapsody.backends.constants import StateMapper, TasksMainStates
from flightlog.compat.rhapsody.backends.discovery import BackendRegistry, discover_backends, get_backend
from flightlog.compat.rhapsody.backends.execution import (
    ConcurrentExecutionBackend,
    DaskExecutionBackend,
    DragonExecutionBackend,
    NoopExecutionBackend,
    OrbitExecutionBackend,
    RadicalExecutionBackend,
)

__all__ = [
    "BackendRegistry",
    "BaseBackend",
    "ConcurrentExecutionBackend",
    "DaskExecutionBackend",
    "DragonExecutionBackend",
    "NoopExecutionBackend",
    "OrbitExecutionBackend",
    "RadicalExecutionBackend",
    "Session",
    "StateMapper",
    "TasksMainStates",
    "discover_backends",
    "get_backend",
]
