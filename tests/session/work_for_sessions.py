"""Functions that tests run as tasks: here, because workers import them by name."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import flightlog
from flightlog.session.cache.decorator import cacheable


def add(a: Any, b: Any = 1) -> Any:
    return a + b


def total(values: list[int]) -> int:
    return sum(values)


def fail(message: str) -> None:
    raise ValueError(message)


def flaky(folder: str, until: int) -> int:
    """Fails on purpose until the attempt of this number; each attempt leaves a file."""
    attempt = len(list(Path(folder).iterdir())) + 1
    Path(folder, str(attempt)).touch()
    if attempt < until:
        raise OSError(f"attempt {attempt} met a file system that is not there")
    return attempt


def wait(seconds: float) -> None:
    time.sleep(seconds)


def wait_for(path: str) -> str:
    """Runs until the file is there."""
    while not Path(path).exists():
        time.sleep(0.005)
    return path


def touch_and_wait(mark: str, until: str) -> None:
    """Says with a file that it runs, and runs until another one is there."""
    Path(mark).touch()
    wait_for(until)


def kill_own_process(folder: str) -> str:
    """Dies at the first attempt, returns at the second."""
    mark = Path(folder, "died")
    if mark.exists():
        return "alive"
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def leave(code: int) -> None:
    os._exit(code)


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def raise_unpicklable() -> None:
    raise Unpicklable(1, 2)


def return_unpicklable() -> Any:
    return lambda: None


def quit_program() -> None:
    raise SystemExit(3)


def measured(x: float) -> float:
    with flightlog.span("inner", x=x) as span:
        span.metrics["twice"] = 2 * x
    flightlog.current_span().metrics["x"] = x
    return x


def write(path: str, text: str) -> int:
    return Path(path).write_text(text)


def says_it_failed() -> str:
    flightlog.current_span().set_status("error", "no convergence")
    return "what there is"


def counted(folder: str, x: int) -> int:
    """Twice x; each execution leaves a file."""
    Path(folder, f"{x}-{time.monotonic_ns()}").touch()
    return 2 * x


@cacheable(ignore=["folder"])
def kept(folder: str, x: int) -> int:
    return counted(folder, x)


async def later(folder: str, x: int) -> int:
    """As `counted`, of a coroutine function."""
    await asyncio.sleep(0)
    return counted(folder, x)


def variables(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


class ReadsTheEnvironmentWhenItIsUnpickled:
    """Stands for an import that reads a variable."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.getenv, ("TRIAL_KEY",)


def give(value: Any) -> Any:
    return value


def measure(number: int) -> float:
    """A span and a metric of a worker's."""
    run = flightlog.current_run()
    assert run is not None
    with flightlog.span("measuring"):
        run.metric("measured", 2.0 * number)
    return 2.0 * number
