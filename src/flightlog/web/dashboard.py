"""What all pages of one dashboard share: the runs, what is computed of them, and the runs that are followed
live.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from flightlog.store import layout
from flightlog.store.stamps import stamp_at
from flightlog.web.listing import Listing, Row, RunsFolder
from flightlog.web.once import Once

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState
    from flightlog.export.prometheus.page import MetricsPage
    from flightlog.store.run import Run

Result = TypeVar("Result")

FRESH_S = 2.0
"""The list of runs is looked at no more often than that, and seldom enough to take a fifth of the time at
most."""
RUNNING_S = 5.0
"""What was computed of a run that goes on is as good for so long."""
PATIENCE_S = 2.0
"""How long a window stays empty before it says that its page is being made."""


class Live(Protocol):
    """What follows runs, for all who look at them."""

    def state(self, path: Path) -> LiveState | None:
        """How things stood when the run was read last, at once; None before that."""

    def problem(self, path: Path) -> str | None:
        """Why there is no newer state of a run; None where all is well."""

    def close(self) -> None:
        """Follow nothing more."""


class Dashboard:
    """One folder of runs, looked at by any number of viewers. Its methods belong to the event loop, and never
    block it.
    """

    def __init__(
        self,
        given: str | None = None,
        *,
        live: Live | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs = RunsFolder(given)
        self.once = Once(clock=clock)
        self.listing_once = Once(threads=1, clock=clock)
        self.live = _live() if live is None else live
        self.metrics: MetricsPage | None = None
        """Made when it is first asked for."""
        self.patience_s = PATIENCE_S
        self._clock, self._took_s = clock, 0.0

    async def listing(self, *, now: bool = False) -> Listing:
        """The runs, as of a moment ago; `now` as of now."""
        age = 0.0 if now else max(FRESH_S, 4 * self._took_s)
        return await self.listing_once.get("runs", self._look, max_age_s=age)

    def _look(self) -> Listing:
        began = self._clock()
        found = self.runs.look()
        self._took_s = self._clock() - began
        return found

    async def find(self, key: str) -> Row | None:
        """The run of that name; one that began since the last look is found, too."""
        found = (await self.listing()).find(key)
        return found or (await self.listing(now=True)).find(key)

    async def of_run(self, what: str, row: Row, compute: Callable[[Run], Result]) -> Result:
        """What is computed of a run, once for all viewers, until the run's documents change."""
        return await self.of_runs(what, (row,), lambda runs: compute(runs[0]))

    async def of_runs(
        self, what: str, rows: tuple[Row, ...], compute: Callable[[tuple[Run, ...]], Result]
    ) -> Result:
        """As `of_run`, of several runs."""

        def work() -> Result:
            from flightlog.store.run import Run

            return compute(tuple(Run(row.path) for row in rows))

        goes_on = [row.status == "running" for row in rows]  # its documents change all the time
        stamps = [
            None if runs else stamp_at(str(row.path / layout.RUN))
            for row, runs in zip(rows, goes_on, strict=True)
        ]
        key = (what, *((row.key, stamp) for row, stamp in zip(rows, stamps, strict=True)))
        return await self.once.get(key, work, max_age_s=RUNNING_S if any(goes_on) else None)

    async def of_history(self, what: tuple[object, ...], compute: Callable[[Path], Result]) -> Result:
        """What is computed of the folder, once for all viewers and for a short while."""
        folder = (await self.listing()).folder
        return await self.once.get(what, lambda: compute(folder), max_age_s=RUNNING_S)

    def close(self) -> None:
        """Let go of everything that runs."""
        self.live.close()
        self.once.close()
        self.listing_once.close()


def _live() -> Live:
    from flightlog.analyze.live.hub import FollowedRuns

    return FollowedRuns()
