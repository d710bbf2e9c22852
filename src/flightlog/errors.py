"""The errors that Flightlog raises, after the run: the public place of `core/errors.py`."""

from flightlog.core.errors import (
    AmbiguousRun,
    CommandError,
    DamagedRun,
    DamagedSnapshot,
    FlightlogError,
    ManifestError,
    MissingExtra,
    RemoteError,
    RunNotFound,
    TaskError,
    TaskTimeoutError,
    UsageError,
)

__all__ = [
    "AmbiguousRun",
    "CommandError",
    "DamagedRun",
    "DamagedSnapshot",
    "FlightlogError",
    "ManifestError",
    "MissingExtra",
    "RemoteError",
    "RunNotFound",
    "TaskError",
    "TaskTimeoutError",
    "UsageError",
]
