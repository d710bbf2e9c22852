"""The backends: concurrent, Dask, Dragon and no-op; and placeholders for those that are not here."""

from __future__ import annotations

from typing import Any, NoReturn

from flightlog.compat.rhapsody.backends.execution.concurrent import ConcurrentExecutionBackend
from flightlog.compat.rhapsody.backends.execution.dask_parallel import DaskExecutionBackend
from flightlog.compat.rhapsody.backends.execution.dragon import DragonExecutionBackend
from flightlog.compat.rhapsody.backends.execution.noop import NoopExecutionBackend
from flightlog.core.errors import UsageError

__all__ = [
    "ConcurrentExecutionBackend",
    "DaskExecutionBackend",
    "DragonExecutionBackend",
    "NoopExecutionBackend",
    "OrbitExecutionBackend",
    "RadicalExecutionBackend",
]


class _UnavailableBackend:
    """A backend of RHAPSODY's that is not available here."""

    instead = ""

    # Whatever it was asked for with.
    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002
        raise UsageError(f"{type(self).__name__} is not part of flightlog.compat.rhapsody: {self.instead}")

    @staticmethod
    def is_available() -> bool:
        """False."""
        return False


class RadicalExecutionBackend(_UnavailableBackend):
    """Tasks on RADICAL-Pilot."""

    instead = (
        "use the Dask backend on the nodes of the allocation, or `flightlog.Session` with provider `slurm`"
    )


class OrbitExecutionBackend(_UnavailableBackend):
    """Tasks sent to another machine's broker."""

    instead = "use the Dask backend with that machine's scheduler"
