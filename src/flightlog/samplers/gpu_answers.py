"""Questions to a driver whose every answer may fail by itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

FORK_WAITS_S = 0.02
"""How long a fork waits for a question to be answered: a child that inherits the locks of a library in the middle of
one could never ask by itself."""

_gate = threading.Condition()
_asked = 0
_forking = threading.local()


@contextmanager
def asking() -> Iterator[None]:
    """Around every call of a driver's library: any number at once, and none begins while the process forks."""
    global _asked
    with _gate:
        _asked += 1
    try:
        yield
    finally:
        with _gate:
            _asked -= 1
            _gate.notify_all()


def _before_fork() -> None:
    gate = _gate
    _forking.held = gate if gate.acquire(timeout=FORK_WAITS_S) else None
    if _forking.held is not None:
        gate.wait_for(lambda: _asked <= 0, FORK_WAITS_S)


def _after_fork_in_parent() -> None:
    held, _forking.held = getattr(_forking, "held", None), None
    if held is not None:
        held.release()


def _after_fork_in_child() -> None:
    global _gate, _asked
    _gate, _asked = threading.Condition(), 0
    _forking.held = None


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


class Gone(Exception):  # noqa: N818 - what happened to the device, caught where its reading is made
    """The device does not answer any more: asking it for more makes no sense at this moment."""


class Answers:
    """Asks questions and remembers which ones a device will never answer; one thread at a time.

    `verdict` says of an error what it means: `never` (not supported, not permitted), `gone` (the device is lost) or
    `later` (this time alone).
    """

    def __init__(self, verdict: Callable[[Exception], str]) -> None:
        self._verdict = verdict
        self._never: set[tuple[int, str]] = set()

    def ask(self, ordinal: int, name: str, question: Callable[..., T], *args: Any) -> T | None:
        """The answer, or None; `Gone` where the device is lost."""
        if (ordinal, name) in self._never:
            return None
        try:
            with asking():
                return question(*args)
        except AttributeError:  # an older library without the question, or a newer one that has dropped it
            self._never.add((ordinal, name))
        except Exception as error:  # noqa: BLE001 - a library's own errors, sorted by what they mean
            verdict = self._verdict(error)
            if verdict == "gone":
                raise Gone(str(error)) from None
            if verdict == "never":
                self._never.add((ordinal, name))
        return None
