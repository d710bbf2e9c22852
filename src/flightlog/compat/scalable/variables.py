"""The `SCALABLE_*` variables, as the `FLIGHTLOG_*` ones they stand for."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, MutableMapping

DEFAULT_RUNS_DIR = ".scalable/runs"
MANIFEST, MANIFEST_VARIABLE = "scalable.yaml", "SCALABLE_MANIFEST"
AUTO = "auto"
"""The target that is none: whichever fits."""

STANDS_FOR = {
    "SCALABLE_RUNS_DIR": "FLIGHTLOG_RUNS_DIR",
    "SCALABLE_TELEMETRY": "FLIGHTLOG_TELEMETRY",
    "SCALABLE_TELEMETRY_PARQUET": "FLIGHTLOG_TELEMETRY_PARQUET",
    "SCALABLE_RUNS_DIR_REMOTE": "FLIGHTLOG_RUNS_DIR_REMOTE",
    "SCALABLE_CACHE_DIR": "FLIGHTLOG_CACHE_DIR",
    "SCALABLE_TARGET": "FLIGHTLOG_TARGET",
}

_lock = threading.Lock()
_held: dict[str, tuple[str, int]] = {}
"""What stands in the environment because sessions are open: the value, and how many want it there."""


def translated(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The `FLIGHTLOG_*` variables to add: those that `SCALABLE_*` ones say, and the folder of runs by
    default.

    One that is set already is left alone: it wins. Empty ones count as unset.
    """
    environ = os.environ if environ is None else environ
    found = {
        ours: environ[theirs]
        for theirs, ours in STANDS_FOR.items()
        if environ.get(theirs, "").strip() and not _is_set(environ, ours)
    }
    if found.get("FLIGHTLOG_TARGET") == AUTO:
        del found["FLIGHTLOG_TARGET"]
    if not _is_set(environ, "FLIGHTLOG_RUNS_DIR"):
        found.setdefault("FLIGHTLOG_RUNS_DIR", DEFAULT_RUNS_DIR)
    return found


class Variables:
    """Has them in the environment from `put` to `take_back`, for this process and those it starts.
    Thread-safe.
    """

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        self._environ: MutableMapping[str, str] = os.environ if environ is None else environ
        self._mine: list[str] = []

    def put(self) -> None:
        """Add what is missing."""
        with _lock:
            for name, value in translated(self._environ).items():
                there, count = _held.get(name, (value, 0))
                _held[name] = (there, count + 1)
                self._environ[name] = there
                self._mine.append(name)

    def take_back(self) -> None:
        """Remove what nobody needs any more, unless somebody else has changed it."""
        with _lock:
            for name in self._mine:
                value, count = _held.get(name, ("", 0))
                if count > 1:
                    _held[name] = (value, count - 1)
                    continue
                _held.pop(name, None)
                if self._environ.get(name) == value:
                    del self._environ[name]
            self._mine.clear()


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether somebody else than an open session has set it."""
    value = environ.get(name, "")
    return bool(value.strip()) and _held.get(name, ("", 0))[0] != value
