"""What is missing or damaged in the lines of a run, in sentences, from the line numbers that were seen.

The sentences are the same for a run that is over and for one that is being written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_bytes
from flightlog.store.layout import WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.tables.connection import path_text

if TYPE_CHECKING:
    from flightlog.store.read.lines import Scan

TOO_LONG = "too long to be an event"


def lost_lines(
    stream: str,
    coverage: Mapping[str, Coverage],
    writers: Mapping[str, WriterInfo],
    below: Mapping[str, int] | None = None,
) -> Iterator[tuple[str, int, list[range]]]:
    """Each writer that lost lines of a stream, how many, and the numbers that are missing.

    Numbers given out but never written are both missing and in the writer's own count, so the larger of the
    two is taken and not their sum. `below` has the numbers up to which a line should be there, where others
    may still be on their way. A line whose number cannot be true tells of no loss; see `damaged_numbers`.
    """
    for writer in sorted(coverage.keys() | writers.keys()):
        info = writers.get(writer)
        known = info.lines.get(stream, 0) if info else 0
        refused = info.lost.get(stream, 0) if info else 0
        gaps = list(believed_numbers(stream, coverage.get(writer, Coverage()), info)[0].gaps(known))
        if below is not None:
            limit = below.get(writer, 0)
            gaps = [range(gap.start, min(gap.stop, limit)) for gap in gaps if gap.start < limit]
        number = max(sum(gap.stop - gap.start for gap in gaps), refused)  # `len` has an upper limit
        if number:
            yield writer, number, gaps


def damaged_numbers(
    stream: str, coverage: Mapping[str, Coverage], writers: Mapping[str, WriterInfo]
) -> Iterator[str]:
    """A sentence on each writer with lines of a stream whose number cannot be true."""
    for writer in sorted(coverage):
        number = believed_numbers(stream, coverage[writer], writers.get(writer))[1]
        if number:
            what = "a number that cannot be true" if number == 1 else "numbers that cannot be true"
            yield f"{stream}: {plural(number, 'line')} of writer {writer} damaged: {what}"


def believed_numbers(stream: str, seen: Coverage, info: WriterInfo | None) -> tuple[Coverage, int]:
    """The numbers of a writer's lines that may be true, and how many lines have others.

    A writer that closed knows how many numbers it gave out. Of any other, more lines may be there than it
    last counted. A gap among these is believed in where it is small, or not larger than what was read, or
    where more than one line stands behind it: one line alone after a large gap has a damaged number.
    """
    ranges, counted, read = seen.ranges(), info.lines.get(stream, 0) if info else 0, len(seen)
    if not ranges or ranges[-1][0] <= counted + StoreLimits.max_unwritten_numbers:
        return seen, 0
    is_final = info is not None and info.closed and is_known(info) and stream in info.lines
    largest_gap = (
        StoreLimits.max_unwritten_numbers if is_final else max(StoreLimits.max_plain_gap_lines, read)
    )
    believed: list[tuple[int, int]] = []
    reached = counted
    for index, (start, end) in enumerate(ranges):
        after = ranges[index + 1][0] if index + 1 < len(ranges) else StoreLimits.max_line_number
        has_neighbours = not is_final and (end - start > 1 or after - end < StoreLimits.max_plain_gap_lines)
        if start < StoreLimits.max_line_number and (start - reached <= largest_gap or has_neighbours):
            believed.append((start, end))
            reached = max(reached, end)
    return Coverage.of(believed), read - sum(end - start for start, end in believed)


def lost_sentence(stream: str, writer: str, number: int, gaps: Sequence[range]) -> str:
    """`tasks: 3 lines of writer w1 lost: no. 4 to 6`."""
    where = f": {_numbers(gaps)}" if gaps else ""
    return f"{stream}: {plural(number, 'line')} of writer {writer} lost{where}"


def refused_sentences(writers: Iterable[WriterInfo]) -> Iterator[str]:
    """What writers say that they could not write, and why."""
    for info in writers:
        for reason, number in sorted(info.reasons.items()):
            if number:
                yield f"writer {info.writer} could not write {plural(number, 'line')}: {reason}"


def is_known(info: WriterInfo | None) -> bool:
    """Whether it is known what a writer that is over has lost: it closed by its own word, or kept a page."""
    return info is not None and not info.unheard and (info.counted or (info.closed and not info.died))


def reasons_text(reasons: Mapping[str, int], lost: int) -> str:
    """Why lines were lost, in a few words: `no space left on device`; empty where nobody knows.

    With counts where there are several reasons. What has no count made lines wait in memory when their
    process was killed.
    """
    counted = {reason: number for reason, number in reasons.items() if number}
    waited = [reason for reason in sorted(reasons) if not reasons[reason]]
    named = sorted(counted, key=lambda reason: (-counted[reason], reason))
    if sum(counted.values()) < lost:
        named += waited
    if len(named) > 1:
        return ", ".join(
            f"{counted[one]:,} {lowered(one)}" if one in counted else lowered(one) for one in named
        )
    return lowered(named[0]) if named else ""


def lowered(text: str) -> str:
    """A system's message as it stands within a sentence: `no space left on device`."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def skipped_sentences(scan: Scan, *, torn: int | None = None, doubled: int | None = None) -> Iterator[str]:
    """What was passed over in a stream, each kind by its number; `torn` and `doubled` stand for the scan's
    own where given.
    """
    for number, what in (
        (scan.torn if torn is None else torn, "cut off in the middle"),
        (scan.foreign, "without an event"),
        (scan.oversized, TOO_LONG),
        (scan.doubled if doubled is None else doubled, "standing twice, taken once"),
        (scan.unknown, "of a kind this version does not know"),
    ):
        if number:
            where = f": {_places(scan)}" if what == TOO_LONG else ""
            yield f"{scan.stream}: {plural(number, 'line')} {what}{where}"


def unclosed_sentence(unclosed: Sequence[str]) -> Iterator[str]:
    """That writers did not say they were done; nothing where all did."""
    if unclosed:
        names = ", ".join(unclosed[:3]) + (", …" if len(unclosed) > 3 else "")
        count = "1 process" if len(unclosed) == 1 else f"{len(unclosed)} processes"
        yield f"{count} did not close the record ({names}): whether more was to come is unknown"


def _places(scan: Scan) -> str:
    """Where the lines stand that are too long, and how long they are."""
    found = scan.too_long()
    said = [
        f"line {line.number:,} of {path_text(path.name)} has {format_bytes(line.size_bytes)}"
        for path, line in found[:3]
    ]
    return ", ".join(said) + (", …" if len(found) > 3 else "")


def _numbers(gaps: Sequence[range]) -> str:
    shown = [
        f"{gap.start}" if gap.stop - gap.start == 1 else f"{gap.start} to {gap.stop - 1}" for gap in gaps[:3]
    ]
    return f"no. {', '.join(shown)}{', …' if len(gaps) > 3 else ''}"


class Coverage:
    """A set of whole numbers kept as intervals; numbers that come mostly in order cost next to nothing."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # one past the last number of each interval

    @classmethod
    def up_to(cls, end: int) -> Coverage:
        """All numbers from 0 to below `end`."""
        made = cls()
        if end > 0:
            made._starts, made._ends = [0], [end]
        return made

    @classmethod
    def of(cls, ranges: Iterable[Sequence[int]]) -> Coverage:
        """What `ranges` gave; intervals that are none, or stand out of order, are left out."""
        made, reached = cls(), -1
        for found in ranges:
            if len(found) == 2 and reached < found[0] < found[1]:
                made._starts.append(found[0])
                made._ends.append(found[1])
                reached = found[1]
        return made

    def ranges(self) -> list[tuple[int, int]]:
        """The stretches that were seen, in order: first number, and one past the last."""
        return list(zip(self._starts, self._ends, strict=True))

    def add(self, number: int) -> bool:
        """Put a number in; False if it was there already."""
        ends = self._ends
        if ends and number == ends[-1]:
            ends[-1] = number + 1
            return True
        return self._insert(number)

    def _insert(self, number: int) -> bool:
        starts, ends = self._starts, self._ends
        after = bisect_right(starts, number)
        if after and number < ends[after - 1]:
            return False
        joins_left = after > 0 and ends[after - 1] == number
        joins_right = after < len(starts) and starts[after] == number + 1
        if joins_left and joins_right:
            ends[after - 1] = ends[after]
            del starts[after], ends[after]
        elif joins_left:
            ends[after - 1] = number + 1
        elif joins_right:
            starts[after] = number
        else:
            starts.insert(after, number)
            ends.insert(after, number + 1)
        return True

    def __contains__(self, number: int) -> bool:
        after = bisect_right(self._starts, number)
        return after > 0 and number < self._ends[after - 1]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    @property
    def upper(self) -> int:
        """One more than the highest number seen; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def gaps(self, known: int = 0) -> Iterator[range]:
        """The stretches missing between 0 and the higher of `known` and `upper`, in order."""
        expected = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            if expected < start:
                yield range(expected, start)
            expected = end
        if expected < known:
            yield range(expected, known)
