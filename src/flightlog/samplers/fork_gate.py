"""What must not be going on in one thread while another forks: the child inherits its locks, with nobody to
let go of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from flightlog.core import threads

_HARDLY_S = 0.02


class ForkGate:
    """Around what a child could not go on after: any number at once, and none begins while the process forks.

    A fork waits for those inside, for `waits_s` at most; what takes longer is its own risk. Once that was in
    vain, as where something inside hangs, later forks hardly wait. Gates are for the life of the process.
    """

    def __init__(self, waits_s: float) -> None:
        self._waits_s = waits_s
        self._gate, self._inside = threads.Condition(), 0
        self._forking = threads.local()
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside until the block ends."""
        with self._gate:
            self._inside += 1
        try:
            yield
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify_all()

    def _before(self) -> None:
        gate = self._gate
        self._forking.held = gate if gate.acquire(timeout=self._waits_s) else None
        if self._forking.held is None or not gate.wait_for(lambda: self._inside <= 0, self._waits_s):
            self._waits_s = min(self._waits_s, _HARDLY_S)

    def _after_in_parent(self) -> None:
        held, self._forking.held = getattr(self._forking, "held", None), None
        if held is not None:
            held.release()

    def _after_in_child(self) -> None:
        self._gate, self._inside = threads.Condition(), 0
        self._forking.held = None
