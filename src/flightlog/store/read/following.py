"""A stream read again and again while it is written: each event once, for as long as the run lives and
after.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flightlog.store.read.definitions import learn_definitions
from flightlog.store.read.lines import AnyEvent, Scan


class Following:
    """The events of one stream, as they come. Not thread-safe; memory grows with gaps in the numbers alone.

    Lines move while a run lives: from tails to files, to other names, into the file of the whole run. A line
    that bears a number is given once wherever it is found. Lines without one cannot be told apart, so they
    are given only by the last look, when nothing moves any more.
    """

    def __init__(self, run: Path, stream: str) -> None:
        self.stream = stream
        self._run = run
        self.scan = Scan(run, stream)
        """What was read, with its counts; lines that stand in tails are found again each time, and
        `doubled`."""
        self.torn = 0
        """Lines that ended in the middle at the last look and the one before, and not just while they were
        written."""
        self._cut: set[int] = set()

    @property
    def skipped(self) -> int:
        """Lines passed over so far because they hold no event."""
        return self.scan.foreign + self.scan.oversized

    @property
    def last(self) -> str:
        """The latest timestamp given so far; empty before there is one."""
        return self.scan.last

    @property
    def bytes_read(self) -> int:
        """How far the files were read, all together; tails are not counted."""
        return self.scan.bytes_read

    def new(self, *, last: bool = False) -> Iterator[AnyEvent]:
        """What was not given before, older lines of each writer first.

        `last` goes through all files from their beginning: a file that was folded into another, and whose
        place on the disk a third one took, cannot hide anything.
        """
        return (event for event in self.new_and_pauses(last=last) if event is not None)

    def new_and_pauses(self, *, last: bool = False) -> Iterator[AnyEvent | None]:
        """What `new` gives, and null after each stretch that was read: there may be nothing new in many of
        them.
        """
        learn_definitions(self._run, self.stream)
        scan = self.scan
        if last:
            scan.start_over()
        for event in scan.events_and_pauses():
            if event is None or last or (event.writer and event.seq >= 0):
                yield event
        cut = set(scan.cut)
        self.torn = len(cut if last else cut & self._cut)
        self._cut = cut
