"""All events of a run in one pass, with how complete they are; and a stream that is followed while it is
written.

Events that users defined are decoded as the run itself describes them, so that a reader needs none of their
code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flightlog.core.errors import UsageError
from flightlog.core.text import plural
from flightlog.events import EventDefined, define_event, kinds
from flightlog.events.base import learned
from flightlog.events.codec import Decoded
from flightlog.store.layout import WriterInfo
from flightlog.store.read.completeness import (
    damaged_numbers,
    is_known,
    lost_lines,
    lost_sentence,
    reasons_text,
    refused_sentences,
    skipped_sentences,
    unclosed_sentence,
)
from flightlog.store.read.files import Part, find_parts
from flightlog.store.read.lines import AnyEvent, Scan
from flightlog.store.read.writers import read_writers

CUT_OFF = "cut off by an exception of a signal handler"


@dataclass(frozen=True)
class Completeness:
    """What was read of a run, what was skipped, and what is known to be lost.

    A lost line is a number that its writer gave out and that stands nowhere. Of a writer that is open,
    because it lives or because it was killed, later lines than those seen cannot be counted: see
    `writers_open`.
    """

    lines: int
    """Events read, each once."""
    lost: dict[str, int]
    """Lines lost, by stream; streams that lost none are left out."""
    torn: int
    """Last lines that end in the middle. Where the whole line stands elsewhere too, nothing is lost."""
    foreign: int
    """Lines that are no JSON object."""
    oversized: int
    """Lines too long to be an event."""
    doubled: int
    """Lines that stand twice, and were taken once."""
    unknown: int
    """Events of a kind this version does not know; they are read, and counted in `lines`."""
    unnumbered: int
    """Events without writer or number, whose loss cannot be counted; they are counted in `lines`."""
    writers: int
    """Processes that wrote."""
    writers_open: int
    """Those of them that did not say they were done."""
    problems: tuple[str, ...]
    """All of this in sentences; empty for a run that is whole."""
    notes: tuple[str, ...] = ()
    """What the recorder counted beside lines: what it could not take, what subscribers missed."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why lines were lost, with counts; 0 for what made lines wait that were lost with their process."""
    writers_unknown: int = 0
    """Processes of which nobody knows whether all that they recorded is here."""

    @property
    def lost_lines(self) -> int:
        """Lines lost in all streams."""
        return sum(self.lost.values())

    @property
    def loss_known(self) -> bool:
        """Whether it is known how many lines were lost, so that none means none."""
        return self.writers > 0 and self.writers_unknown == 0

    @property
    def lost_text(self) -> str:
        """`59,773 lost: no space left on device`, `none lost`, or that it is unknown."""
        why = reasons_text(self.reasons, self.lost_lines)
        if self.lost_lines:
            text = f"{self.lost_lines:,} lost{f': {why}' if why else ''}"
            return text if self.loss_known else f"at least {text}"
        return "none lost" if self.loss_known else "whether any were lost is unknown"


class RunReading:
    """One reading of a run: each stream is gone through once, and counted on the way.

    `completeness()` covers what has been iterated to its end, and goes through the other streams itself. A
    stream iterated again is counted anew, not twice. Of a run that `goes_on` it is no problem that its
    writers have not said they are done. `tasks` are those that `run.json` counted. Not thread-safe.
    """

    def __init__(
        self,
        run: Path,
        writers: Sequence[WriterInfo],
        problems: Sequence[str] = (),
        goes_on: Callable[[], bool] = lambda: False,
        tasks: int = 0,
    ) -> None:
        self._run = run
        self._goes_on = goes_on
        self._tasks = tasks
        self._writers = {info.writer: info for info in writers}
        self._problems = tuple(problems)
        self._scans: dict[str, Scan] = {}
        self._learned = False

    def events(self, stream: str) -> Iterator[AnyEvent]:
        """Every event of a stream once, in the order of `Scan`."""
        scan = self._scan(stream)
        yield from scan.events()
        self._scans[stream] = scan

    def records(self, stream: str) -> Iterator[Decoded]:
        """Every event of a stream once, with the fields its declaration does not know."""
        scan = self._scan(stream)
        yield from scan.records()
        self._scans[stream] = scan

    def _scan(self, stream: str) -> Scan:
        """A scan of a stream; files are listed, and definitions read, once for all streams of a run that has
        ended.
        """
        if self._listed is None:
            learn_definitions(self._run, stream)
            return Scan(self._run, stream)
        if not self._learned and stream.startswith("user."):
            learn_definitions(self._run, stream)
            self._learned = True
        return Scan(self._run, stream, self._listed.get(stream, []))

    @cached_property
    def _listed(self) -> dict[str, list[Part]] | None:
        return None if self._goes_on() else find_parts(self._run)

    def take(self, scan: Scan) -> None:
        """Count a stream as `scan` has it, which went through it another way."""
        self._scans[scan.stream] = scan

    def streams(self) -> list[str]:
        """The streams there are files of, and those that writers say they wrote, by name."""
        named = {stream for info in self._writers.values() for stream in info.lines | info.lost}
        return sorted(named | find_parts(self._run).keys())

    def span(self) -> tuple[str | None, str | None]:
        """The earliest and the latest timestamp of all events; None where there is none."""
        self._read_the_rest()
        first = min((scan.first for scan in self._scans.values() if scan.first), default=None)
        return first, max((scan.last for scan in self._scans.values() if scan.last), default=None)

    def completeness(self) -> Completeness:
        """How complete the run is, all streams together."""
        self._read_the_rest()
        scans = [self._scans[stream] for stream in sorted(self._scans)]
        lost = {scan.stream: sum(n for _, n, _ in self._lost(scan)) for scan in scans}
        unwritten = self._unwritten_tasks(lost)
        absent = []
        if unwritten:
            lost["tasks"] = unwritten
            absent.append(f"tasks: the run counted {plural(unwritten, 'task')}, and there is no file of them")
        seen = {writer for scan in scans for writer in scan.coverage} | self._writers.keys()
        unclosed = sorted(w for w in seen if w not in self._writers or not self._writers[w].closed)
        return Completeness(
            lines=sum(scan.read for scan in scans),
            lost={stream: number for stream, number in lost.items() if number},
            **{name: sum(getattr(scan, name) for scan in scans) for name in _SUMMED},
            writers=len(seen),
            writers_open=len(unclosed),
            problems=(*self._problems, *absent, *self._sentences(scans, unclosed)),
            notes=tuple(self._notes({writer for scan in scans for writer, _, _ in self._lost(scan)})),
            reasons=self._reasons(sum(lost.values())),
            writers_unknown=self._unknown(seen),
        )

    def _unwritten_tasks(self, lost: Mapping[str, int]) -> int:
        """Tasks that `run.json` counted of which there is no file, and of whose lines no writer tells: of
        each one line is lost, at least.
        """
        absent = not lost.get("tasks") and "tasks" not in find_parts(self._run)
        return self._tasks if absent and not self._goes_on() else 0

    def _read_the_rest(self) -> None:
        for stream in self.streams():
            if stream not in self._scans:
                for _ in self.events(stream):
                    pass

    def _lost(self, scan: Scan) -> Iterator[tuple[str, int, list[range]]]:
        return lost_lines(scan.stream, scan.coverage, self._writers)

    def _reasons(self, lost: int) -> dict[str, int]:
        """Why lines were lost. What a signal handler's exception cut off may have been written all the same,
        so it counts only for losses that nothing else explains.
        """
        reasons: dict[str, int] = {}
        for info in self._writers.values():
            for reason, number in info.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + number
        cut_off = sum(info.counts.get("events_cut_off", 0) for info in self._writers.values())
        unexplained = min(cut_off, lost - sum(reasons.values()))
        return {**reasons, CUT_OFF: unexplained} if unexplained > 0 else reasons

    def _unknown(self, seen: Collection[str]) -> int:
        """Writers whose loss is unknown; of a run that goes on, those that nothing is known of."""
        if self._goes_on():
            return sum(writer not in self._writers for writer in seen)
        return sum(not is_known(self._writers.get(writer)) for writer in seen)

    def _notes(self, losers: Collection[str]) -> Iterator[str]:
        for count, what in _COUNTED.items():
            number = sum(info.counts.get(count, 0) for info in self._writers.values())
            if number:
                yield f"{number:,} {what}"
        died = [info for info in self._writers.values() if info.died and not info.unheard]
        known = [info for info in died if is_known(info)]
        whole = [info for info in known if info.writer not in losers]
        for number, what in (
            (len(whole), "all they had recorded is here"),
            (len(known) - len(whole), "what they lost is counted"),
            (len(died) - len(known), "whether all they had recorded is here is unknown"),
        ):
            if number:
                processes = plural(number, "recording process", "recording processes")
                yield f"{processes} exited unexpectedly; {what}"
        unheard = sorted(
            (info for info in self._writers.values() if info.unheard and info.closed),
            key=lambda info: (info.host, info.pid),
        )
        if unheard:
            named = ", ".join(f"{info.host} (process {info.pid})" for info in unheard[:3])
            processes = plural(len(unheard), "recording process", "recording processes")
            yield (
                f"{processes} on hosts that do not see the run {'was' if len(unheard) == 1 else 'were'} not "
                "heard to the end: what was recorded there last may be missing. "
                f"{named}{', …' if len(unheard) > 3 else ''}"
            )

    def _sentences(self, scans: Sequence[Scan], unclosed: Sequence[str]) -> Iterator[str]:
        for scan in scans:
            yield from scan.problems
            for writer, number, gaps in self._lost(scan):
                yield lost_sentence(scan.stream, writer, number, gaps)
            yield from damaged_numbers(scan.stream, scan.coverage, self._writers)
        yield from refused_sentences(self._writers.values())
        for scan in scans:
            yield from skipped_sentences(scan)
        yield from unclosed_sentence(() if self._goes_on() else unclosed)


def count_lost(path: Path) -> int:
    """Lines of a run that are lost, as `Completeness` has them; reads every stream."""
    return RunReading(path, read_writers(path)[0]).completeness().lost_lines


_SUMMED = ("torn", "foreign", "oversized", "doubled", "unknown", "unnumbered")
"""What is counted of each stream, and summed."""
_COUNTED = {
    "events_failed": "events could not be recorded",
    "metrics_not_numbers": "metrics were given no number",
    "spans_open_at_close": "spans were open when the run closed",
    "spans_unattributed": "spans could belong to several runs and are in none",
    "subscriber_dropped": "events were missed by subscribers (too slow, or ended); they are in the files",
    "subscriber_errors": "events were given to subscribers that raised",
}


class Following:
    """The events of one stream, as they come. Not thread-safe; memory grows with gaps in the numbers alone.

    Lines move while a run lives: from tails to files, to other names, into the file of the whole run. A line
    that bears a number is given once wherever it is found. Lines without one cannot be told apart, so they
    are given only by the last look, when nothing moves any more.

    With `learn` events that users defined elsewhere become known to this process, else they are unknown ones.
    """

    def __init__(self, run: Path, stream: str, scan: Scan | None = None, *, learn: bool = True) -> None:
        self.stream = stream
        self._definitions = Scan(run, EventDefined.stream) if learn else None
        self._run = run
        self.scan = Scan(run, stream) if scan is None else scan
        """What was read, with its counts; lines that stand in tails are found again each time, and
        `doubled`."""
        self.torn = 0
        """Lines that ended in the middle at the last look and the one before, and not just while they were
        written."""
        self.doubled = 0
        """Lines that stand twice, once the last look has gone through all files."""
        self._cut: set[int] = set()

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
        if self._definitions is not None:
            learn_definitions(self._run, self.stream, self._definitions)
        scan = self.scan
        known = scan.doubled + sum(map(len, scan.coverage.values()))
        if last:
            scan.start_over()
        for event in scan.events_and_pauses():
            if event is None or last or (event.writer and event.seq >= 0):
                yield event
        if last:  # every line that was known was there once more
            self.doubled = max(0, scan.doubled - known)
        cut = set(scan.cut)
        self.torn = len(cut if last else cut & self._cut)
        self._cut = cut


_TYPES: dict[str, Any] = {
    "number": float,
    "integer": int,
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def learn_definitions(run: Path, stream: str, scan: Scan | None = None) -> None:
    """Define the events of a user's stream as the run tells, where this process does not know them; with a
    `scan` of their definitions, as what is new in it tells.

    A definition that the process has already stands; lines that do not fit it are read with what does not
    aside.
    """
    if not stream.startswith("user."):
        return
    known = set(kinds())
    for event in (scan or Scan(run, EventDefined.stream)).events():
        if isinstance(event, EventDefined) and event.name not in known:
            known.add(event.name)
            fields = {
                name: kind if name in event.required else (kind | None, event.defaults.get(name))
                for name, kind in ((name, _type(schema)) for name, schema in event.fields.items())
            }
            try:
                learned.add(define_event(event.name, **fields))
            except UsageError:
                continue  # no name of an event after all: its lines are read as they are


def _type(schema: Any) -> Any:
    return _TYPES.get(schema.get("type", ""), Any) if isinstance(schema, dict) else Any
