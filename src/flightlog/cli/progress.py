"""One line in a terminal that says how far a command has come, where that takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TextIO

from flightlog.cli.output import is_terminal

PATIENCE_S = 1.0
"""Before that nobody needs to be told."""
EVERY_S = 0.1


class ProgressLine:
    """`flightlog: reading run 1,200 of 5,000 …`, on standard error, from the second second on; gone at the end.

    Used in a `with`, and called with how many are done, and of how many if that is known; `doing` says what is done.
    Says nothing where `stream` is no terminal, and never raises: a terminal that went away is nobody to tell.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        doing: str = "reading run",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._doing, self._clock = stream or sys.stderr, doing, clock
        self._told = self._began = clock()
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __call__(self, done: int, of: int | None) -> None:
        """So many are done."""
        now = self._clock()
        if now - self._began < PATIENCE_S or now - self._told < EVERY_S or not is_terminal(self._stream):
            return
        self._told, self._shown = now, True
        all_ = "" if of is None else f" of {of:,}"
        self._write(f"\r\x1b[Kflightlog: {self._doing} {done:,}{all_} …")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
