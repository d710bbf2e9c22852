"""Copying with patience: again where something passing came in the way, and on and on beside a run until it
has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from flightlog.core.errors import RemoteError
from flightlog.core.retry import delays_s
from flightlog.store import layout
from flightlog.store.remote.local import has_settled
from flightlog.store.remote.upload import Synced, Uploader

PATIENCE_S = 60.0
"""How long a place that does not answer is tried again by whoever waits for it."""
GIVE_UP_S = 300.0
"""How long it is tried again beside a run that has ended."""
EVERY_S = (2.0, 20.0)
"""Pause between two copies of a run that goes on: at first, and after a while. A heartbeat must come over in
time."""
_LOOK_S = 0.2
_PAUSE_S = (1.0, 30.0)

Sleep = Callable[[float], None]
Clock = Callable[[], float]


def sync_with_patience(
    uploader: Uploader,
    *,
    again: Collection[str] = (),
    patience_s: float = PATIENCE_S,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> Synced:
    """Copy once, and once more while something passing is in the way, for `patience_s` at the most; then it
    is raised.

    Files whose paths are in `again` are sent whatever is there.
    """
    began, pauses_s = clock(), delays_s(*_PAUSE_S, jitter=0.5)
    while True:
        try:
            return uploader.sync(again)
        except RemoteError as error:
            wait_s = next(pauses_s)
            if not error.passing or clock() - began + wait_s > patience_s:
                raise
        sleep(wait_s)


def follow(
    uploader: Uploader,
    *,
    give_up_s: float = GIVE_UP_S,
    every_s: tuple[float, float] = EVERY_S,
    on_trouble: Callable[[str], None] = lambda _message: None,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> Synced:
    """Copy what is new of a run until it has ended and all of it is there.

    While the run goes on no error ends it: `on_trouble` is told each kind once, and pauses grow. An error
    that is still there `give_up_s` after the run has ended, or that will not pass, is raised then; copying
    again goes on from there.
    """
    pace_s, pauses_s = every_s[0], delays_s(*_PAUSE_S, jitter=0.5)
    told: set[str] = set()
    ended: float | None = None
    while True:
        try:
            synced = uploader.sync()
            if synced.complete:
                return synced
            pauses_s, wait_s = delays_s(*_PAUSE_S, jitter=0.5), pace_s
            pace_s = min(pace_s * 1.05, every_s[1])
            told.clear()
        except RemoteError as error:
            if error.kind not in told:
                told.add(error.kind)
                on_trouble(str(error))
            wait_s = next(pauses_s)
            if _has_settled(uploader):
                ended = clock() if ended is None else ended
                if not error.passing or clock() - ended + wait_s > give_up_s:
                    raise
        _wait(uploader, wait_s, ended is not None, sleep, clock)


def _wait(uploader: Uploader, wait_s: float, has_ended: bool, sleep: Sleep, clock: Clock) -> None:
    """Wait so long, or until the run ends: what came last should not wait."""
    until = clock() + wait_s
    stamp = _stamp(uploader.run)
    while (left := until - clock()) > 0:
        sleep(min(left, _LOOK_S))
        before, stamp = stamp, _stamp(uploader.run)
        closing = stamp[1] != 0  # checksums are there, and whoever wrote them lets go in a moment
        if not has_ended and (stamp != before or closing) and _has_settled(uploader):
            return


def _stamp(run: Path) -> tuple[int, ...]:
    """Changes when a run is closed; a heartbeat changes it, too."""
    found: list[int] = []
    for name in (layout.RUN, layout.CHECKSUMS):
        try:
            found.append((run / name).stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


def _has_settled(uploader: Uploader) -> bool:
    try:
        return has_settled(uploader.run, uploader.now())
    except OSError:
        return True  # the directory is gone
