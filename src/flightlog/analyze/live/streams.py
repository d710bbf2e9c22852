"""All streams of a run that is written, read on and on: what is new since the last look, in bounded stretches
of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from flightlog.store.coverage import Coverage
from flightlog.store.damage import (
    believed_numbers,
    damaged_numbers,
    lost_lines,
    lost_sentence,
    refused_sentences,
    skipped_sentences,
    unclosed_sentence,
)
from flightlog.store.following import Following
from flightlog.store.layout import WriterInfo
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
        self._under_way: dict[str, Iterator[AnyEvent | None]] = {}
        self._done: set[str] = set()
        self._read_to_end: Signature | None = None
        self._whole = 0
        self.caught_up = False
        """Whether everything there was has been read once."""
        self._reach: dict[str, dict[str, int]] = {}
        """How far the lines of each stream and writer went, by number, at the look before."""
        self.said: list[str] = []
        """The problems as they were last told."""

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

    def problems(self, writers: Iterable[WriterInfo], *, over: bool) -> list[str]:
        """What could not be read or is lost, in sentences, in the words of the report.

        Of a run that goes on, a line counts as lost or cut off when it was so at the look before, too: it may
        have been on its way. What a reading that is under way has not come to is not lost.
        """
        if self._under_way and not over:
            return self.said
        known = {info.writer: info for info in writers}
        found: list[str] = []
        reach: dict[str, dict[str, int]] = {}
        named = {stream for info in known.values() for stream in (*info.lines, *info.lost)}
        empty: dict[str, Coverage] = {}
        for stream in sorted(named | self._following.keys()):
            following = self._following.get(stream)
            coverage = following.scan.coverage if following is not None else empty
            found += following.scan.problems if following is not None else []
            if not self._under_way:
                below = None if over else self._reach.get(stream, {})
                lost = lost_lines(stream, coverage, known, below)
                found += [lost_sentence(stream, *one) for one in lost]
                found += damaged_numbers(stream, coverage, known)
                reach[stream] = _reached(stream, coverage, known)
        self._reach = reach
        found += refused_sentences(known.values())
        for _, following in sorted(self._following.items()):
            found += skipped_sentences(following.scan, torn=following.torn, doubled=0)
        if over and not self._under_way:
            seen = {writer for one in self._following.values() for writer in one.scan.coverage} | known.keys()
            found += unclosed_sentence(sorted(w for w in seen if w not in known or not known[w].closed))
        self.said = found
        return found

    def new(
        self,
        taker: Callable[[str], Callable[[AnyEvent], None]],
        *,
        over: bool,
        until: Callable[[], bool] | None = None,
    ) -> int:
        """Give what is new to the taker of its stream, and say how much that was. Stops early where `until`
        says so.

        Where the run is `over`, files are gone through to their end once more, and then only where they have
        changed.
        """
        if not self._under_way and not self._begin(over=over):
            self.caught_up = True
            return 0
        taken = 0
        while self._under_way:
            for stream in list(self._under_way):
                take, chunk = taker(stream), 0
                for event in islice(self._under_way[stream], CHUNK):
                    chunk += 1
                    if event is not None:
                        take(event)
                        taken += 1
                    elif until is not None and until():
                        return taken
                if chunk < CHUNK:
                    del self._under_way[stream]
                if self._under_way and until is not None and until():
                    return taken
        self.caught_up = True
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
            self._under_way[stream] = following.new_and_pauses(last=last)
            self._whole += sum(_size(part.path) for part in files if part.kind != "tail")
        self._read_to_end = signature
        return bool(self._under_way)


def _reached(
    stream: str, coverage: Mapping[str, Coverage], writers: Mapping[str, WriterInfo]
) -> dict[str, int]:
    """One more than the highest number of each writer that was read, or given out by its own word."""
    return {
        writer: max(
            believed_numbers(stream, coverage[writer], writers.get(writer))[0].upper
            if writer in coverage
            else 0,
            writers[writer].lines.get(stream, 0) if writer in writers else 0,
        )
        for writer in coverage.keys() | writers.keys()
    }


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
