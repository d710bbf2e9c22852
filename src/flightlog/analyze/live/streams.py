"""All streams of a run that is written, read on and on: what is new since the last look, in bounded stretches of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from flightlog.store.following import Following
from flightlog.store.lines import AnyEvent
from flightlog.store.parts import Part, find_parts

CHUNK = 1_000
"""So many events of a stream are taken before the next stream has its turn."""
Signature = frozenset[tuple[str, int, int]]


class Streams:
    """Gives every event once. A reading that is cut short goes on at the next call. Not thread-safe."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._following: dict[str, Following] = {}
        self._under_way: dict[str, Iterator[AnyEvent]] = {}
        self._done: set[str] = set()
        self._read_to_end: Signature | None = None
        self._whole = 0

    @property
    def read(self) -> float | None:
        """How much of the files was read, 0 to 1, while a reading is under way; null between readings."""
        if not self._under_way:
            return None
        found = sum(following.bytes_read for following in self._following.values())
        return min(0.99, found / self._whole) if self._whole else 0.0

    @property
    def last(self) -> str | None:
        """The latest timestamp of all events; null where there is none."""
        return max((following.last for following in self._following.values() if following.last), default=None)

    @property
    def problems(self) -> list[str]:
        """What could not be read, in sentences."""
        found = [problem for name in sorted(self._following) for problem in self._following[name].problems]
        skipped = sum(following.skipped for following in self._following.values())
        return [*found, *([f"{skipped:,} lines hold no event"] if skipped else [])]

    def new(
        self,
        taker: Callable[[str], Callable[[AnyEvent], None]],
        *,
        over: bool,
        until: Callable[[], bool] | None = None,
    ) -> int:
        """Give what is new to the taker of its stream, and say how much that was. Stops early where `until` says so.

        Where the run is `over`, files are gone through to their end once more, and then only where they have changed.
        """
        if not self._under_way and not self._begin(over=over):
            return 0
        taken = 0
        while self._under_way:
            for stream in list(self._under_way):
                take, chunk = taker(stream), 0
                for event in islice(self._under_way[stream], CHUNK):
                    take(event)
                    chunk += 1
                taken += chunk
                if chunk < CHUNK:
                    del self._under_way[stream]
                if until is not None and until():
                    return taken
        return taken

    def _begin(self, *, over: bool) -> bool:
        parts = find_parts(self._run)
        signature = None
        if over:
            signature = _signature(parts)
            if signature == self._read_to_end:
                return False
        self._whole = 0
        for stream, files in parts.items():
            following = self._following.get(stream)
            if following is None:
                following = self._following[stream] = Following(self._run, stream)
            # Lines without a number are given by the last look alone, which there is one of.
            last = over and stream not in self._done
            if over:
                self._done.add(stream)
            self._under_way[stream] = following.new(last=last)
            self._whole += sum(_size(part.path) for part in files if part.kind != "tail")
        self._read_to_end = signature
        return bool(self._under_way)


def _signature(parts: dict[str, list[Part]]) -> Signature:
    found: set[tuple[str, int, int]] = set()
    for files in parts.values():
        for part in files:
            try:
                stat = part.path.stat()
            except OSError:
                continue
            found.add((str(part.path), stat.st_size, stat.st_mtime_ns))
    return frozenset(found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
