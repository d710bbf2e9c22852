"""Following a run wherever it is: one at an address is copied again before each look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.usual import EarlierRuns
from flightlog.errors import RunNotFound
from flightlog.store.run import Run
from flightlog.store.runs_folder import fetch_run, folder_of_runs, is_copy, place

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState


class Followed:
    """A run, here or at an address. What cannot be had of one at an address is among the state's problems. Not thread-safe.

    Of a large run that was never read, each look reads for `limit_s` seconds at most, and says how far it has come; without
    it the first look reads all.
    """

    def __init__(self, path: Path, *, limit_s: float | None = None) -> None:
        self._path, self._limit_s = path, limit_s
        self._live: FollowedRun | None = None

    def update(self) -> LiveState:
        """Copy what is new, read it, and say how things stand.

        Raises a `RemoteError` where nothing of it was ever here, and a `RunNotFound` where its folder has been removed.
        """
        troubles: list[str] = []
        if is_copy(self._path):
            folder_of_runs(place(self._path.parent), run_id=self._path.name, note=troubles.append)
            troubles += fetch_run(self._path)
        if not self._path.is_dir():
            raise RunNotFound("its folder is gone")
        if self._live is None:
            self._live = FollowedRun(self._path, history=EarlierRuns(Run(self._path)))
        state = self._live.update(self._limit_s)
        return msgspec.structs.replace(state, problems=[*troubles, *state.problems]) if troubles else state
