"""What a worker process died of: its exit code or signal, and whether the kernel was out of memory."""

from __future__ import annotations

import signal

from msgspec import Struct

from flightlog.samplers.oom_kills import OomKills

__all__ = ["Death", "OomKills", "describe_death", "signal_name"]


CONNECTION_CLOSED = 187
"""The exit code of a worker process that found its connection to the engine closed by something in it."""
CLOSED_BY_TASK = "a task closed the connection of this worker to its engine"


class Death(Struct, frozen=True):
    """How a process ended."""

    reason: str
    exit_code: int | None = None
    signal: str | None = None


def describe_death(exit_code: int | None, oom: OomKills) -> Death:
    """The end of a process from its exit code as `multiprocessing` has it: negative is a signal, None
    unknown.
    """
    if exit_code is None:
        return Death("its process is gone; nobody saw how it ended")
    if exit_code == CONNECTION_CLOSED:
        return Death(CLOSED_BY_TASK, exit_code=exit_code)
    if exit_code >= 0:
        return Death(f"its process ended with exit code {exit_code}", exit_code=exit_code)
    name = signal_name(-exit_code)
    kernel = oom.claim() if name == "SIGKILL" else None
    return Death(f"its process was killed by {name}{f' {kernel}' if kernel else ''}", signal=name)


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
