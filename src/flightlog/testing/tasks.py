"""Tasks for tests of engines; workers of every kind can import them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from flightlog.record.context import current_run
from flightlog.record.span import current_span, span


def add(a: int, b: int = 0) -> int:
    """The sum."""
    return a + b


def nothing() -> None:
    """Nothing."""


def who() -> int:
    """The process it runs in."""
    return os.getpid()


def hold(gate: str) -> str:
    """Wait until the gate, a named pipe, is opened for writing; returns what was written."""
    return Path(gate).read_text()


def ignore_sigterm_and_hold(gate: str) -> str:
    """As `hold`, ignoring SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return hold(gate)


def exit_process(code: int) -> None:
    """End the process at once."""
    os._exit(code)


def kill_process(number: int) -> None:
    """Send its own process a signal."""
    os.kill(os.getpid(), number)
    time.sleep(60)


def fail(text: str) -> None:
    """Raise an error that has a cause."""
    try:
        dict[str, int]()["the cause"]
    except KeyError as cause:
        raise ValueError(text) from cause


def leave(code: int | None) -> None:
    """`sys.exit`."""
    raise SystemExit(code)


def interrupt() -> None:
    """What Ctrl-C raises."""
    raise KeyboardInterrupt


def give_up() -> None:
    """What cancelled coroutines raise."""
    raise asyncio.CancelledError


class HoldsALock(Exception):  # noqa: N818 - what it is matters here
    """An exception that does not pickle."""

    def __init__(self) -> None:
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


class WantsTwo(Exception):  # noqa: N818 - what it is matters here
    """An exception that pickles and does not unpickle."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.never = NeverUnpickles()  # also where a library has made exceptions of all classes unpickle


def raise_with_lock() -> None:
    """Raise an exception that does not pickle."""
    raise HoldsALock


def raise_wanting_two() -> None:
    """Raise an exception that does not unpickle."""
    raise WantsTwo(1, 2)


def give_lock() -> Any:
    """A result that does not pickle."""
    return threading.Lock()


class NeverUnpickles:
    """An argument that cannot be unpickled anywhere."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise ImportError("not on this side")


def use(cpu_s: float, memory_bytes: int) -> None:
    """Use this much CPU time and memory."""
    block = bytearray(memory_bytes)
    block[::4096] = b"x" * len(block[::4096])
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


def record_inside(name: str) -> str:
    """Record a span, a metric and an artifact, and tag the task itself; returns the task's span id."""
    here = current_span()
    here.tags["model"] = "sir"
    here.metrics["loss"] = 0.5
    here.metrics["broken"] = float("nan")
    with span(name):
        run = current_run()
        if run is not None:
            run.metric("step", 1.0)
    return here.span_id


def return_error(text: str) -> str:
    """Set an error status, and return."""
    current_span().set_status("error", text)
    return text


def echo(value: Any) -> Any:
    """What it was given."""
    return value
