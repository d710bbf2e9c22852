"""Which runs of a folder are shown: those that run, and those that ended a short while ago."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.catalogue import run_paths, start_of
from flightlog.store.documents import read_document
from flightlog.store.liveness import Observer, unix_time


class Choice(Struct, frozen=True, kw_only=True):
    """What there is, and what is shown of it."""

    shown: tuple[Path, ...]
    """Runs that run first, then the newest."""
    hidden: int
    """Runs that would be shown, too, if there were fewer."""
    statuses: dict[str, int]
    """All runs of the folder."""


class Chooser:
    """Looks at a folder again and again. A run that ended long ago is read once, and again if its `run.json`
    changes.
    """

    def __init__(self, recent_s: float, max_runs: int) -> None:
        self._recent_s, self._max_runs = recent_s, max_runs
        self._past: dict[Path, tuple[int, str]] = {}

    def choose(self, folder: Path, observer: Observer) -> Choice:
        """The choice as of now; a folder that is missing has no runs."""
        statuses: Counter[str] = Counter()
        wanted: list[tuple[bool, float, Path]] = []
        past: dict[Path, tuple[int, str]] = {}
        for path in run_paths(folder):
            changed = _changed(path)
            known = self._past.get(path)
            if known is not None and known[0] == changed:
                past[path] = known
                statuses[known[1]] += 1
                continue
            status, started, ended = _read(path, observer)
            statuses[status] += 1
            if status == "running" or observer.now - ended <= self._recent_s:
                wanted.append((status != "running", -started, path))
            elif changed is not None:
                past[path] = (changed, status)
        self._past = past
        shown = [path for _, _, path in sorted(wanted)]
        return Choice(
            shown=tuple(shown[: self._max_runs]),
            hidden=len(shown[self._max_runs :]),
            statuses=dict(statuses),
        )


def _changed(path: Path) -> int | None:
    try:
        return (path / layout.RUN).stat().st_mtime_ns
    except OSError:
        return None


def _read(path: Path, observer: Observer) -> tuple[str, float, float]:
    """Status, start, and end or last sign of life, in Unix seconds; what is not known is long ago."""
    info = read_document(path / layout.RUN, layout.RunInfo).value
    if info is None:
        named = unix_time(start_of(path.name)) or 0.0
        return "unknown", named, named
    started = unix_time(info.start_time) or unix_time(start_of(info.run_id)) or 0.0
    heard = unix_time(info.end_time) or unix_time(info.heartbeat)
    return observer.status(info), started, started + (info.duration_s or 0.0) if heard is None else heard
