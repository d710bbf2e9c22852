"""How often a framework may be asked: one that takes long to answer is asked less often."""

from __future__ import annotations

import time
from collections.abc import Callable

SLOWER_BY = 9
"""After so much CPU time in a reading comes so many times as long without: a tenth of a core at most."""
LONGEST_S = 5.0


class Pace:
    """Says whether the next reading is due; one thread. By CPU time: what only waits costs the program
    nothing.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._not_before = float("-inf")

    def run(self, reading: Callable[[], None]) -> bool:
        """Take the reading if it is due; whether it was."""
        if self._clock() < self._not_before:
            return False
        began = self._cpu()
        try:
            reading()
        finally:
            self._not_before = self._clock() + min(SLOWER_BY * (self._cpu() - began), LONGEST_S)
        return True
