"""The package where it cannot record: in a subinterpreter that refuses to load msgspec.

Subinterpreters with a lock of their own (Python 3.12 and later) load only extension modules that say that
they can be there. The program runs as it does with recording switched off.
"""

from __future__ import annotations

import logging
from typing import Any


class Unrecorded:
    """A placeholder for runs and spans that does nothing."""

    __slots__ = ()

    run_id = "not-recorded"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        return None

    def __getitem__(self, key: object) -> int:
        return 0

    def __setitem__(self, key: object, value: object) -> None:
        return None

    def __enter__(self) -> Unrecorded:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        return None

    async def __aenter__(self) -> Unrecorded:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        return None

    def __call__(self, *args: Any, **_options: Any) -> Any:
        """A decorated function or class unchanged; for anything else, this object."""
        return args[0] if len(args) == 1 and callable(args[0]) else self


NOTHING = Unrecorded()
attached = define_event = record = span = NOTHING


def current_run() -> None:
    """There is none."""


def current_span() -> Unrecorded:
    """The one that does nothing."""
    return NOTHING


def carrier() -> dict[str, str]:
    """Empty, as outside any run."""
    return {}


def say(problem: ImportError) -> None:
    """Warn, once for an interpreter."""
    logging.getLogger("flightlog").warning("nothing is recorded in this subinterpreter: %s", problem)
