"""Questions to a driver whose every answer may fail by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flightlog.samplers.fork_gate import ForkGate

T = TypeVar("T")

asking = ForkGate(waits_s=0.02)
"""Around every call of a driver's library: a child that inherits its locks in the middle of one could never
ask by itself."""


class Gone(Exception):  # noqa: N818 - what happened to the device, caught where its reading is made
    """The device does not answer any more: asking it for more makes no sense at this moment."""


class Answers:
    """Asks questions and remembers which ones a device will never answer; one thread at a time.

    `verdict` says of an error what it means: `never` (not supported, not permitted), `gone` (the device is
    lost) or `later` (this time alone).
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
