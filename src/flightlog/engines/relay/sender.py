"""Sends one spool home, on a thread of its own, for as long as something is or may be in it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from flightlog.engines.relay.chunk import pack
from flightlog.engines.relay.spool import Spool
from flightlog.engines.relay.spooled_files import SpooledFiles, settle_dead
from flightlog.store.liveness import here

SHIP_S = 0.5
"""Interval at which new lines are sent."""
MAX_DELAY_S = 15.0
"""A way home that fails is tried again after twice as long each time, and at least this often."""
RETRY_S = 0.25
"""The same, while somebody waits for it."""


class Shipper:
    """Follows a spool that this process holds. Thread-safe; nothing of it raises.

    Memory is bounded: one parcel at a time is read from the spool, which is the queue. `orphaned` says that
    another process made the spool, and is gone. `flush` is called before each look, `look_around` after it,
    `on_end` when the spool is done with, `trouble` with a kind and a sentence when something goes wrong.
    """

    def __init__(
        self,
        spool: Spool,
        send: Callable[[bytes], None],
        *,
        orphaned: bool,
        flush: Callable[[], None],
        look_around: Callable[[], None],
        on_end: Callable[[], None],
        trouble: Callable[[str, str], None],
    ) -> None:
        self.spool = spool
        self._send, self._orphaned = send, orphaned
        self._flush, self._look_around, self._on_end, self._trouble = flush, look_around, on_end, trouble
        self._files = SpooledFiles(spool.run, spool.trace_id, spool.name)
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._asked = self._done = self._failures = self._waiting = 0
        self._again = False
        self._over = False
        self._departing = orphaned
        threading.Thread(target=self._run, name="flightlog-relay", daemon=True).start()

    def ask(self, *, again: bool = False) -> int:
        """Ask for everything to be sent now; gives the ticket to `wait` with."""
        with self._changed:
            self._asked += 1
            self._again = self._again or again
            self._wake.set()
            return self._asked

    def wait(self, ticket: int, timeout_s: float, *, retry: bool = True) -> bool:
        """Whether all that was there when the ticket was given has been sent; without `retry`, by the first
        try.
        """
        with self._changed:
            failures = self._failures
            self._waiting += 1
            self._wake.set()
            try:
                self._changed.wait_for(
                    lambda: self._done >= ticket or self._over or (not retry and self._failures > failures),
                    timeout_s,
                )
                return self._done >= ticket or self._over
            finally:
                self._waiting -= 1

    def depart(self) -> None:
        """Nothing more will be recorded here into the spool: remove it as soon as all of it has landed."""
        self._departing = True

    def _run(self) -> None:
        delay = 0.0
        while True:
            self._wake.wait(delay)
            self._wake.clear()
            with self._changed:
                asked, again, self._again = self._asked, self._again, False
            try:
                ends = self._pass(asked > self._done, again)
            except Exception as error:  # noqa: BLE001 - a way home, or a disk: both may work again later
                self._trouble(
                    "way home",
                    f"what was recorded here waits in {self.spool.home}, and is sent again: {error!r}",
                )
                with self._changed:
                    self._failures += 1
                    self._again = self._again or again
                    delay = RETRY_S if self._waiting else min(max(2 * delay, SHIP_S), MAX_DELAY_S)
                    self._changed.notify_all()
                continue
            if ends:
                self.spool.remove()
                self._on_end()
            with self._changed:
                self._done, self._over, delay = asked, ends, SHIP_S
                self._changed.notify_all()
            if ends:
                return
            self._around()

    def _pass(self, everything: bool, again: bool) -> bool:
        """Send what is new; whether nothing more can come."""
        self.spool.hold_on()
        living = True
        departing = self._departing
        if departing or everything:
            living = settle_dead(self.spool.run, here().writer_alive, orphaned=self._orphaned)
        if again:
            self._files.forget()
        for parcel in self._files.parcels(self._flush, everything=everything):
            self._send(pack(parcel))
        return departing and not living

    def _around(self) -> None:
        try:
            self._look_around()
        except Exception as error:  # noqa: BLE001 - what others left is looked for again
            self._trouble(
                "orphans", f"what killed processes left on this host cannot be looked at: {error!r}"
            )
