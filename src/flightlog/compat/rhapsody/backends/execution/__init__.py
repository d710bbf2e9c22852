"""The backends themselves."""

from flightlog.compat.rhapsody.backends.execution.concurrent import ConcurrentExecutionBackend
from flightlog.compat.rhapsody.backends.execution.dask_parallel import DaskExecutionBackend
from flightlog.compat.rhapsody.backends.execution.elsewhere import (
    DragonExecutionBackend,
    OrbitExecutionBackend,
    RadicalExecutionBackend,
)
from flightlog.compat.rhapsody.backends.execution.noop import NoopExecutionBackend

__all__ = [
    "ConcurrentExecutionBackend",
    "DaskExecutionBackend",
    "DragonExecutionBackend",
    "NoopExecutionBackend",
    "OrbitExecutionBackend",
    "RadicalExecutionBackend",
]
