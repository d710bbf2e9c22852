"""Every event of a run as it happens, of all its processes and hosts, for loops and coroutines.

What is read are the files that the processes write, so that a follower needs nobody's help, and costs nobody
anything but itself. The files of a run are looked at again and again, more often while something comes.
"""

from __future__ import annotations

import base64
import binascii
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from flightlog.core import threads
from flightlog.core.errors import FlightlogError, UsageError
from flightlog.core.plugins import did_you_mean
from flightlog.events import Event, kind_of, kinds
from flightlog.events.codec import UnknownEvent
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import here
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.events import Following
from flightlog.store.read.files import Part, find_parts, stamp_at, writer_folders
from flightlog.store.read.lines import AnyEvent, Scan
from flightlog.store.runs_folder import is_copy, refresh_run

Kinds = Iterable[str | type[Event]] | str | type[Event]
"""Kinds of events, by their names or classes; one, or several."""
Where = Callable[[AnyEvent], object]
_Numbers = dict[str, dict[str, list[tuple[int, int]]]]
"""The numbers that were given, in ranges, by stream and writer."""


class _Sequence:
    """The lines of one writer in one stream, in the order of their numbers."""

    __slots__ = ("expected", "given", "held", "latest", "since")

    def __init__(self, given: Iterable[tuple[int, int]] = ()) -> None:
        self.given = Coverage.of(given)
        self.expected = self.given.upper
        self.held: dict[int, AnyEvent] = {}
        """Lines behind one that is missing."""
        self.since = 0.0
        """Since when they wait for it."""
        self.latest = ""


class _Ready(NamedTuple):
    """An event whose turn it is; `moment` never goes back within a sequence, so that sorting keeps its
    order.
    """

    moment: str
    sequence: _Sequence
    number: int
    event: AnyEvent


class EventStream(Iterator[AnyEvent], AsyncIterator[AnyEvent]):
    """The events of a run, as they happen: `for event in run.follow()`, or `async for`, which reads in a
    thread.

    Each event comes once, and those of one process and stream in the order in which they were recorded. A
    line that is missing is waited for a moment, and counted in `missing`; should it come later, it is given
    then. Of what different processes and streams wrote between two looks, the earlier comes first.

    The iteration ends when the run has ended, everything is read, and no process writes into it any more.
    `events` are the kinds to give, all of them by default, and `where` tells which of these. It begins with
    the first event, behind the `position` of an earlier stream with `since`, or with what is recorded from
    now on with `from_now`. Events are frozen. One consumer at a time; memory is bounded.
    """

    def __init__(
        self,
        path: Path,
        *,
        events: Kinds | None = None,
        where: Where | None = None,
        since: str | None = None,
        from_now: bool = False,
        is_over: Callable[[], bool] | None = None,
        learn: bool = True,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`is_over` stands for what the run's documents say, and without `learn` no event is defined that
        this process does not know: for whoever follows a run from inside of it.
        """
        if since is not None and from_now:
            raise UsageError("a stream of events begins at a position or now: give one of since and from_now")
        self.path, self._where = path, where
        self._kinds = None if events is None else kind_names(events)
        self._streams = None if self._kinds is None else streams_of(self._kinds)
        self._learn, self._clock, self._cpu_clock, self._asked = learn, clock, cpu_clock, is_over
        self.over = False
        """Whether everything is read, and nothing more can come."""
        self.patient = True
        """Whether missing lines are waited for."""
        self.problems: list[str] = []
        """What went wrong on the way, such as a remote that does not answer, in sentences."""
        self._from_now = from_now
        self._following: dict[str, Following] = {}
        self._marks: dict[str, object] = {}
        self._under_way: dict[str, Iterator[AnyEvent | None]] = {}
        self._last = False
        self._writers: list[layout.WriterInfo] = []
        self._sequences: dict[tuple[str, str], _Sequence] = {}
        self._new: list[_Ready] = []
        self._ready: deque[_Ready] = deque()
        self._unnumbered: dict[str, int] = {}
        self._lock = threads.RLock()
        self._check_at = self._heard_at = clock()
        self._pause_s, self._due = StoreLimits.min_follow_pause_s, 0.0
        self._served = 0
        for stream, writers in (decode_position(since) if since is not None else {}).items():
            for writer, numbers in writers.items():
                self._sequences[stream, writer] = _Sequence(numbers)
        if from_now:
            self._skip()

    @property
    def position(self) -> str:
        """How far the events were given: what `since` takes, in this process or another. A short text."""
        numbers: _Numbers = {}
        for (stream, writer), sequence in list(self._sequences.items()):
            if ranges := sequence.given.ranges():
                numbers.setdefault(stream, {})[writer] = ranges
        return encode_position(numbers)

    @property
    def missing(self) -> int:
        """Lines that were not there when later ones of their process were given."""
        return sum(
            min(gap.stop - gap.start, StoreLimits.max_plain_gap_lines)
            for sequence in self._sequences.values()
            for gap in sequence.given.gaps()
        )

    @property
    def has_more(self) -> bool:
        """Whether the last look is not read and given to its end yet."""
        return bool(self._ready or self._under_way)

    def widen(self, events: Kinds | None) -> None:
        """Give these kinds too, all for None: what is recorded from now on. Thread-safe."""
        if self._kinds is None or (events is not None and kind_names(events) <= self._kinds):
            return
        with self._lock:
            before = self._streams or ()
            self._kinds = None if events is None else self._kinds | kind_names(events)
            self._streams = None if self._kinds is None else streams_of(self._kinds)
            self._skip_streams(stream for stream in self._parts() if stream not in before)

    @property
    def pause_s(self) -> float:
        """How long to wait before more is asked for; 0 where there is more at hand, or nothing to come."""
        return 0.0 if self.over or self.has_more else max(0.0, self._due - self._clock())

    def poll(self, limit: int = StoreLimits.max_followed_events) -> list[AnyEvent]:
        """The next events that are there now, up to `limit`; none where there is nothing new."""
        found: list[AnyEvent] = []
        while len(found) < limit:
            event = self._next()
            if event is not None:
                found.append(event)
            elif found or not self.look():
                break
        return found

    def look(self) -> bool:
        """Read a part of what is new; whether there was any. Thread-safe."""
        with self._lock:
            began = self._cpu_clock()
            is_new = self._under_way or (not self.over and self._begin())
            spent_s = self._cpu_clock() - began
            if is_new:
                self._read()
            now, found = self._clock(), bool(self._new)
            if found:
                self._new.sort(key=itemgetter(0))
                self._ready.extend(self._new)
                self._new.clear()
                self._heard_at = now
            self.over = self._last and not self._under_way  # after the last events are at hand
            self._pause_s = StoreLimits.min_follow_pause_s if found else 2 * self._pause_s
            pause_s = min(self._pause_s, StoreLimits.max_follow_pause_s)
            self._due = now + max(pause_s, StoreLimits.follow_pause_per_look * spent_s)
            return bool(found or self._under_way)

    def __next__(self) -> AnyEvent:
        while (event := self._next()) is None:
            if self.over and not self._ready:
                raise StopIteration
            if pause_s := self.pause_s:
                time.sleep(pause_s)
            self.look()
        return event

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> AnyEvent:
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        self._served += 1
        if self._served % StoreLimits.events_per_loop_turn == 0:
            await asyncio.sleep(0)
        while (event := self._next()) is None:
            if self.over and not self._ready:
                raise StopAsyncIteration
            if pause_s := self.pause_s:
                await asyncio.sleep(pause_s)
            own = ThreadPoolExecutor(1, "flightlog-follow")  # the loop's own threads may all be busy
            looking = asyncio.get_running_loop().run_in_executor(own, self.look)
            own.shutdown(wait=False)
            await looking
        return event

    def _next(self) -> AnyEvent | None:
        """The next event that is wanted, of those that were read."""
        ready = self._ready
        while ready:
            _, sequence, number, event = ready.popleft()
            sequence.given.add(number)
            if self._kinds is not None and kind_name(event) not in self._kinds:
                continue
            if self._where is None or self._where(event):
                return event
        return None

    def _read(self) -> None:
        """Take events from all streams in turn, and bring them into order."""
        taken = 0
        while self._under_way and taken < StoreLimits.max_followed_events:
            for stream, events in list(self._under_way.items()):
                turn = list(islice(events, StoreLimits.followed_events_per_turn))
                if len(turn) < StoreLimits.followed_events_per_turn:
                    del self._under_way[stream]
                for event in turn:
                    if event is not None:
                        self._arrange(stream, event)
                taken += len(turn)
        now = self._clock()
        for sequence in self._sequences.values():
            while sequence.held and self._is_passed_over(sequence, now):
                sequence.expected = min(sequence.held)
                self._release_held(sequence)

    def _arrange(self, stream: str, event: AnyEvent) -> None:
        writer, number = event.writer, event.seq
        if not writer or number < 0:
            writer, number = "", self._unnumbered.get(stream, 0)
            self._unnumbered[stream] = number + 1
        sequence = self._sequences.get((stream, writer))
        if sequence is None:
            sequence = self._sequences[stream, writer] = _Sequence()
        if number > sequence.expected:
            if not sequence.held:
                sequence.since = self._clock()
            sequence.held[number] = event
            return
        if not writer and (self._from_now or number in sequence.given):
            return
        self._release(sequence, number, event)
        if sequence.held:
            self._release_held(sequence)

    def _release(self, sequence: _Sequence, number: int, event: AnyEvent) -> None:
        if number == sequence.expected:
            sequence.expected = number + 1
        sequence.latest = max(sequence.latest, event.timestamp)
        self._new.append(_Ready(sequence.latest, sequence, number, event))

    def _release_held(self, sequence: _Sequence) -> None:
        while sequence.expected in sequence.held:
            self._release(sequence, sequence.expected, sequence.held.pop(sequence.expected))
        sequence.since = self._clock()

    def _is_passed_over(self, sequence: _Sequence, now: float) -> bool:
        """Whether a missing line is not waited for any more."""
        return (
            not self.patient
            or (self._last and not self._under_way)
            or now - sequence.since >= StoreLimits.missing_line_wait_s
            or len(sequence.held) > StoreLimits.max_held_events
        )

    def _begin(self) -> bool:
        """Begin to read the streams that have changed; of a run that is over all of them, once more. Whether
        there is anything to do.
        """
        parts = self._parts()
        marks: dict[str, object] = {}
        for stream, listed in parts.items():
            scan = self._follow(stream).scan
            scan.ahead = scan.look_ahead(listed)
            marks[stream] = _mark(*scan.ahead)
        changed = [stream for stream in marks if self._marks.get(stream) != marks[stream]]
        self._last = (not changed or not self._marks) and self._is_over()
        if self._last:  # more may have been written, or fetched, until the run was over
            parts = self._parts()
            changed += parts.keys() - marks.keys()
        for stream, following in self._following.items():
            if self._last or stream not in changed:
                following.scan.ahead = None
        if not changed and not self._last:
            return any(sequence.held for sequence in self._sequences.values())
        self._marks = marks
        for stream in parts if self._last else changed:
            following = self._follow(stream)
            again = self._last and (stream in changed or not self._is_whole(following.scan))
            self._under_way[stream] = following.new_and_pauses(last=again)
        return True

    def _parts(self) -> dict[str, list[Part]]:
        found = find_parts(self.path)
        return found if self._streams is None else {s: found[s] for s in found if s in self._streams}

    def _follow(self, stream: str) -> Following:
        following = self._following.get(stream)
        if following is None:
            scan = Scan(self.path, stream, frozen=True)
            for (name, writer), sequence in self._sequences.items():
                if name == stream and writer:
                    scan.coverage[writer] = Coverage.of(sequence.given.ranges())
            following = self._following[stream] = Following(self.path, stream, scan, learn=self._learn)
        return following

    def _is_whole(self, scan: Scan) -> bool:
        """Whether every line of a stream was read that its writers, which have closed, say they wrote: then
        files need not be read again.
        """
        return (
            bool(self._writers)
            and not scan.unnumbered
            and all(
                one.closed and len(scan.coverage.get(one.writer, ())) >= one.lines.get(scan.stream, 0)
                for one in self._writers
            )
        )

    def _skip(self) -> None:
        """Take everything that is there now as given."""
        if self._is_over():
            self.over = self._last = True
            return
        self._skip_streams(self._parts())

    def _skip_streams(self, streams: Iterable[str]) -> None:
        for stream in streams:
            scan = self._follow(stream).scan
            scan.skip_to_end()
            for writer, seen in scan.coverage.items():
                self._sequences[stream, writer] = _Sequence(seen.ranges())

    def _is_over(self) -> bool:
        """Whether the run has ended and nobody writes into it; asked again only after a while."""
        if self._asked is not None:
            return self._asked()
        now, remote = self._clock(), is_copy(self.path)
        if now < self._check_at:
            return False
        self._check_at = now + (StoreLimits.remote_refresh_s if remote else StoreLimits.max_follow_pause_s)
        if not self.path.is_dir():
            return True
        found = read_document(self.path / layout.RUN, layout.RunInfo).value
        if not remote and found is not None and here().status(found) == "running":
            return False
        from flightlog.store.run import Run  # which gives streams of events itself

        try:
            refresh_run(self.path, note=self._note)
            run = Run(self.path, note=self._note)
        except FlightlogError as error:
            self._note(str(error))
            return False
        if run.is_written() or (remote and run.info.end_time is None):
            return False
        self._writers = run.writers()
        known = {writer.writer for writer in self._writers}
        silent = any(writer not in known for _, writer in writer_folders(self.path))
        return not silent or now - self._heard_at > StoreLimits.silent_writer_wait_s

    def _note(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < StoreLimits.max_listed_problems:
            self.problems.append(problem)


def kind_name(event: AnyEvent) -> str | None:
    """The kind of an event, also of one that is unknown here."""
    return event.kind if type(event) is UnknownEvent else kind_of(cast(Event, event))


def kind_names(events: Kinds) -> frozenset[str]:
    """The names of kinds; a `UsageError` for what no event is called. Those with a dot are users' own."""
    given: Iterable[Any] = [events] if isinstance(events, str | type) else events
    names = frozenset(one if isinstance(one, str) else kind_of(one) for one in given)
    for name in sorted(names - kinds().keys()):
        if "." not in name:
            hint = did_you_mean(name, kinds())
            raise UsageError(f"no event is called {name!r}.{hint} `flightlog schema` lists them all.")
    return names


def streams_of(names: Collection[str]) -> frozenset[str]:
    """The streams that hold these kinds of events."""
    known = kinds()
    found = (
        (known[name].stream,)
        if name in known and not known[name].of_user
        else (f"user.{name.rpartition('.')[0]}", "user.others")
        for name in names
    )
    return frozenset(chain.from_iterable(found))


def encode_position(numbers: _Numbers) -> str:
    """Numbers of lines as a short text."""
    return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(numbers))).decode().rstrip("=")


def decode_position(text: str) -> _Numbers:
    """What `encode_position` was given; a `UsageError` for any other text."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unpacked = zlib.decompressobj().decompress(data, StoreLimits.max_document_bytes)
        return msgspec.json.decode(unpacked, type=_Numbers)
    except (ValueError, TypeError, binascii.Error, zlib.error) as error:
        raise UsageError(
            "that is no position in a run: give the whole text that says where an earlier `follow` ended"
        ) from error


def _mark(parts: Sequence[Part], tails: Mapping[Path, bytes]) -> object:
    """What changes when there are more lines; of mapped tails the file system does not tell."""
    first = StoreLimits.tail_mark_bytes
    return [
        (part.path, len(tail), tail[:first])
        if (tail := tails.get(part.path)) is not None
        else (part.path, (stamp := stamp_at(str(part.path))) and (stamp.inode, stamp.size))
        for part in parts
    ]
