"""Following a run: reads what is new in its streams, and gives its state; one reader serves many viewers.

A run that goes on is followed in tables that grow with it. One that is over is read as a report reads it,
from Parquet where that is current, and its `summary.json` gives the right counts at once.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.results import (
    TASK_COUNTS,
    LiveState,
    LogLine,
    Progress,
    args_text,
    progress_of,
    update_pause_s,
)
from flightlog.analyze.live.state import LiveEvents, LiveQuestions, counts_so_far
from flightlog.analyze.live.tasks import RunTime
from flightlog.core.errors import FlightlogError
from flightlog.core.text import cut, first_line
from flightlog.core.time import SECOND, moment, timestamp_of
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.headline import Headline
from flightlog.store.layout import WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, latest, this_host
from flightlog.store.read.completeness import (
    Coverage,
    believed_numbers,
    damaged_numbers,
    lost_lines,
    lost_sentence,
    refused_sentences,
    skipped_sentences,
    unclosed_sentence,
)
from flightlog.store.read.events import Following, RunReading
from flightlog.store.read.files import Part, find_parts, size_at
from flightlog.store.read.lines import AnyEvent, Scan
from flightlog.store.run import Run
from flightlog.store.runs_folder import is_copy, refresh_run
from flightlog.store.tables.followed import FOLLOWED, follow_tables
from flightlog.store.tables.run_tables import open_tables, read_again
from flightlog.store.tables.sources import NormalizedLines, is_settled

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution
    from flightlog.store.layout import RunInfo
    from flightlog.store.tables.run_tables import RunTables

T = TypeVar("T")
GONE = "the folder of the run is no longer there: this is what was read of it before"
NO_HEARTBEAT = "no heartbeat of the run for"


class ReadRun(NamedTuple):
    """What was read of a run: fields of its state, when it ended, or its last sign of life if it is over, and
    what is wrong with its recording.
    """

    fields: Mapping[str, Any]
    ended: str | None
    problems: list[str]
    answer: Any = None
    """To the question that was asked besides."""


Question = Callable[["RunTables"], Any]
"""What else is asked of the tables at each update, of all that was read; where there are failures,
`failure_records` is there."""
Described = tuple["RunInfo", list[WriterInfo]]
"""What the documents of a run say."""
NOTHING_READ = ReadRun(
    {"progress": Progress(submitted=0, completed=0, failed=0, running=0, waiting=0)}, None, []
)


class FollowedRun:
    """A run in any state, local or the copy of a remote one. Reads files only, each line once. Not
    thread-safe.

    A run that goes on is followed: its new lines are added to tables. One that is over, and that nobody
    writes into any more, is read as a whole. Once everything is read only its state is kept.

    `now()` gives seconds since 1970; `history` has durations of earlier runs by name of task, for what this
    run does not know yet. The answer to `question` is in `answer` after each update.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        history: Mapping[str, Distribution] | None = None,
        question: Question | None = None,
    ) -> None:
        self.path = path
        self.answer: Any = None
        self._now, self._clock, self._history, self._question = now, clock, history, question
        self._changed = 0
        self._noted: tuple[object, ...] = ()
        self._asked: float | None = None
        self._remarks: list[str] = []
        self._run: tuple[Run, tuple[int, int, int] | None] | None = None
        self._following: FollowingReader | None = None
        self._whole: WholeReader | None = None

    def update(self, limit_s: float | None = None) -> LiveState:
        """Read what is new, for `limit_s` seconds or a little more at most, and say how things stand.

        A state that is not of everything there is says so in `reading`; of a run that is over, its counts of
        tasks and lookups are those of `summary.json` then, where there is one. Never raises for what stands
        in the run's files; a folder that has gone leaves what was read.
        """
        now = self._now()
        there = self.path.is_dir()
        run = self._open(now)
        reader = self._reader(run, there=there)
        if there:
            deadline = None if limit_s is None else self._clock() + limit_s
            due = None if deadline is None else lambda: self._clock() >= deadline
            self._changed += reader.read(run, due)
        state = self._state(run, reader, round(now * SECOND), there=there)
        return with_headline(state, self.path) if state.over and state.reading is not None else state

    def _reader(self, run: Run, *, there: bool) -> FollowingReader | WholeReader:
        """Who reads the run; a run that was followed is read no more where nothing has changed since."""
        following, whole = self._following, self._whole
        goes_on = run.status == "running" or self._may_go_on(run)
        if there and not goes_on and (following is None or following.at_end is not None):
            signature, described = signature_of(find_parts(self.path)), (run.info, run.writers())
            if following is not None and (following.at_end, following.described) == (signature, described):
                whole = WholeReader(signature, described, self._history, following.result, done=True)
            elif whole is None or (whole.signature, whole.described) != (signature, described):
                known = None if whole is None else whole.result
                question = self._question
                whole = (
                    WholeReader(signature, described, self._history, known, question=question)
                    if is_settled(run)
                    else None
                )
            self._whole = whole
            if whole is not None:
                self._following = None
                return whole
        if there and goes_on:
            self._whole = None
        if self._whole is not None:
            return self._whole
        if following is None:
            following = self._following = FollowingReader(
                self.path, run.run_id, self._history, self._question
            )
        return following

    def _open(self, now: float) -> Run:
        """The run's documents as they are now; those of a run that is over are read again only where they
        changed.

        Of a folder that has gone, as they were.
        """
        if self._run is not None and not self.path.is_dir():
            return self._run[0]
        try:
            found = (self.path / layout.RUN).stat()
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        except OSError:
            stamp = None
        if self._run is None or self._run[1] != stamp or self._may_go_on(self._run[0]):
            self._ask_remote()
            self._run = Run(self.path, observer=Observer(now=now, host=this_host())), stamp
        return self._run[0]

    def _may_go_on(self, run: Run) -> bool:
        """Whether there may be more to come; a copy that is out of date looks like a run that crashed."""
        return run.status == "running" or (is_copy(self.path) and run.info.end_time is None)

    def _ask_remote(self) -> None:
        """Have the copy of a remote run brought up to date, from time to time."""
        now = self._clock()
        if not is_copy(self.path) or (
            self._asked is not None and now - self._asked < LiveLimits.remote_interval_s
        ):
            return
        self._remarks = []
        try:
            refresh_run(self.path, note=self._remarks.append)
        except FlightlogError as error:
            self._remarks.append(str(error))
        self._asked = self._clock()

    def _state(self, run: Run, reader: FollowingReader | WholeReader, now: int, *, there: bool) -> LiveState:
        info, status = run.info, run.status
        over = status != "running"
        found, reading = reader.state(run, now) if there else reader.result, reader.reading
        self.answer = found.answer
        started, until = moment(info.start_time), moment(found.ended) if over else now
        heard = moment(latest(*_beats(run)))
        heard_s = None if over or heard is None else max(0.0, (now - heard) / SECOND)
        facts = (status, info.end_time, info.error, reading)
        if facts != self._noted:
            self._noted = facts
            self._changed += 1
        return LiveState(
            run_id=cut(run.run_id, LiveLimits.max_name_chars),
            project=cut(info.project, LiveLimits.max_name_chars),
            status=status,
            start_time=info.start_time,
            end_time=found.ended,
            elapsed_s=_elapsed(info.duration_s if info.end_time is not None else None, started, until),
            host=cut(info.host, LiveLimits.max_name_chars),
            target=None if info.target is None else cut(info.target, LiveLimits.max_name_chars),
            error=None if info.error is None else cut(info.error, 4 * LiveLimits.max_line_chars),
            problems=self._problems(found.problems, reading, heard_s, there=there),
            changed=self._changed,
            reading=reading,
            tags={
                cut(name, LiveLimits.max_name_chars): args_text({"": value})[1:]
                for name, value in list(info.tags.items())[: LiveLimits.max_listed_tags]
            },
            command=cut(" ".join(info.command), 4 * LiveLimits.max_line_chars),
            **found.fields,
        )

    def _problems(
        self, said: list[str], reading: float | None, heard_s: float | None, *, there: bool
    ) -> list[str]:
        found: list[str] = []
        if reading is not None:
            found.append(f"still reading: {reading:.0%}")
        if heard_s is not None and heard_s > StoreLimits.heartbeat_timeout_s / 2:
            found.append(f"{NO_HEARTBEAT} {heard_s:.0f} s")
        found += [*self._remarks, *([] if there else [GONE]), *said]
        most = LiveLimits.max_listed_problems
        shown = [cut(problem, LiveLimits.max_line_chars) for problem in found[:most]]
        return shown if len(found) <= most else [*shown, f"… and {len(found) - most:,} more problems"]


def _beats(run: Run) -> list[str | None]:
    return [run.info.heartbeat, *(writer.heartbeat for writer in run.writers())]


def _time_of(run: Run, last: str | None, now: int) -> tuple[str | None, RunTime]:
    """When a run that is over ended, or its last sign of life, and until when it is shown; `last` is its last
    event.
    """
    over = run.status != "running"
    ended = run.info.end_time or (latest(last, *_beats(run)) if over else None)
    until = moment(ended) if over else now
    return ended, RunTime(moment(run.info.start_time), until, over)


class LiveReader:
    """Reads what is new of a run into tables that grow with it, and takes in the events of other streams.

    `only` are the streams to read; None means all. `memory` is what DuckDB may hold of the tables; the rest
    waits on disk. Not thread-safe.
    """

    def __init__(
        self,
        path: Path,
        run_id: str,
        only: Collection[str] | None = None,
        memory: str = StoreLimits.large_run_memory,
    ) -> None:
        stack = ExitStack()
        self.tables = stack.enter_context(follow_tables(run_id, memory))
        weakref.finalize(self, stack.close)
        self.events = LiveEvents(path)
        self._streams = Streams(path, self.tables.scratch, only)
        self._lines: dict[str, list[bytes]] = {stream: [] for stream in FOLLOWED}
        self.count = 0
        """Events that were read so far."""
        self.at_end: Signature | None = None
        """The files of a run that is over, once they were read to their end."""

    @property
    def reading(self) -> float | None:
        """How much of the files was read, 0 to 1, while a reading is under way."""
        return self._streams.read

    @property
    def skipped(self) -> int:
        """Lines passed over so far because they hold no event."""
        return self._streams.skipped

    def read(self, run: Run, due: Callable[[], bool] | None = None) -> int:
        """Read what is new, until `due` says so, and say how much that was; tables are up to date if all
        was.
        """
        over = run.status != "running"
        new = self._streams.new(self._taker, over=over, until=due)
        for stream in FOLLOWED:
            self._add(stream)
        self.count += new
        self.at_end = self._streams.read_to_end if over and self.reading is None else None
        if self._streams.caught_up:
            self._update(run, over=over)
        return new

    def _taker(self, stream: str) -> Callable[[AnyEvent], None]:
        if stream not in FOLLOWED:
            return self.events.taker(stream)
        scan, lines = self._streams.scan(stream), self._lines[stream]
        assert isinstance(scan, NormalizedLines)

        def take(_: AnyEvent) -> None:
            lines.append(scan.line)
            if len(lines) >= LiveLimits.max_buffered_lines:
                self._add(stream)

        return take

    def _add(self, stream: str) -> None:
        self.tables.add(stream, self._lines[stream])
        self._lines[stream].clear()

    def _update(self, run: Run, *, over: bool) -> None:
        """What is open lasts until now; if its process is gone, or the run over, to the last sign of life."""
        signs = {
            one.writer: one.heartbeat
            for one in run.writers()
            if one.heartbeat and (over or not run.observer.writer_alive(one))
        }
        ended, _ = _time_of(run, self._streams.last, 0)
        self.tables.update(ended if over else timestamp_of(round(run.observer.now * SECOND)), signs)


class FollowingReader(LiveReader):
    """Asks the tables of a run that goes on for its state."""

    def __init__(
        self,
        path: Path,
        run_id: str,
        history: Mapping[str, Distribution] | None,
        question: Question | None = None,
    ) -> None:
        super().__init__(path, run_id)
        self._questions, self._question = LiveQuestions(self.events, history), question
        self.result = NOTHING_READ
        self.described: Described | None = None
        """The documents that the result is of."""

    def state(self, run: Run, now: int) -> ReadRun:
        """What is known."""
        ended, time = _time_of(run, self._streams.last, now)
        problems = [*run.problems, *self._streams.problems(run.writers(), over=time.over)]
        answer = None
        if not self._streams.caught_up:
            fields = counts_so_far(self.tables)
        else:
            fields = self._questions.ask(
                self.tables,
                time,
                now,
                rows=self.tables.rows_of,
                provider=run.info.provider,
                log=_life(run.info, run.status, ended),
            )
            answer = None if self._question is None else self._question(self.tables)
        self.result, self.described = ReadRun(fields, ended, problems, answer), (run.info, run.writers())
        return self.result


@read_again
def read_ended_run(run: Run, ask: Callable[[RunTables, LiveEvents, RunReading], T]) -> T:
    """The answer to a question about a run that is over, of its tables as a report has them, of the events
    that are in no table, and of the reading that counts on the way what is missing.
    """
    events = LiveEvents(run.path)
    with open_tables([run]) as tables:
        for stream in run.streams():
            if stream not in FOLLOWED:
                take = events.taker(stream)
                for event in tables.reading.events(stream):
                    take(event)
        return ask(tables, events, tables.reading)


class WholeReader:
    """Reads a run that is over from its files at once, as a report does, in a thread of its own where time is
    limited. `known` is what was read before; with `done` it is all there is.
    """

    def __init__(
        self,
        signature: Signature,
        described: Described,
        history: Mapping[str, Distribution] | None,
        known: ReadRun | None = None,
        *,
        question: Question | None = None,
        done: bool = False,
    ) -> None:
        self.signature, self.described = signature, described
        self._history, self._question = history, question
        self.result = known or NOTHING_READ
        self._done = done
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._tables: RunTables | None = None

    @property
    def reading(self) -> float | None:
        """How far the reading is, 0 to 1, as far as that can be told; null when it is done."""
        if self._done:
            return None
        found = -1.0
        with suppress(Exception):  # closed meanwhile: there is nothing to tell
            found = -1.0 if self._tables is None else self._tables.query_progress()
        return min(max(found / 100, 0.01), 0.99)

    def read(self, run: Run, due: Callable[[], bool] | None) -> int:
        """Read the run, or go on reading until `due` says so; gives 1 when it is done, and once only.

        A small run is read at once: that takes less time than to say how far the reading is.
        """
        if self._done:
            return 0
        small = sum(size for _, size, _ in self.signature) <= LiveLimits.max_bytes_at_once
        if self._thread is None and (due is None or small):
            self._read(run)
        else:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._read, args=(run,), name="flightlog-whole-run", daemon=True
                )
                self._thread.start()
            while self._thread.is_alive() and (due is None or not due()):
                self._thread.join(0.02)
            if self._thread.is_alive():
                return 0
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._done = True
        return 1

    def _read(self, run: Run) -> None:
        try:
            self.result = self._ask(run)
        except BaseException as error:  # noqa: BLE001 - raised to whoever waits
            self._error = error
        finally:
            self._tables = None

    def _ask(self, run: Run) -> ReadRun:
        def ask(tables: RunTables, events: LiveEvents, reading: RunReading) -> ReadRun:
            self._tables = tables
            ended, time = _time_of(run, reading.span()[1], 0)
            fields = LiveQuestions(events, self._history).ask(
                tables,
                time,
                time.until or 0,
                rows={},
                provider=run.info.provider,
                log=_life(run.info, run.status, ended),
            )
            if "tasks" not in run.streams():
                fields = {**fields, "progress": _counted_progress(run.info)}
            answer = None if self._question is None else self._question(tables)
            return ReadRun(fields, ended, list(reading.completeness().problems), answer)

        return read_ended_run(run, ask)

    def state(self, run: Run, now: int) -> ReadRun:  # noqa: ARG002 - as `FollowingReader`
        """What is known: it does not change any more."""
        return self.result


def _counted_progress(info: RunInfo) -> Progress:
    """The tasks that `run.json` counted, of a run that is over and whose lines of tasks are not there."""
    ended = info.tasks_completed + info.tasks_failed
    counts = {name: getattr(info, f"tasks_{name}", 0) for name in TASK_COUNTS}
    return progress_of(**counts, waiting=max(0, info.tasks_submitted - ended))


def _life(info: RunInfo, status: str, ended: str | None) -> list[LogLine]:
    """The beginning of the run, and its end, as lines of the log."""
    command = cut(" ".join(info.command), LiveLimits.max_line_chars)
    lines: list[LogLine] = []
    if info.start_time:
        began = f"the run began{f': {command}' if command else ''}"
        lines.append(LogLine(at=info.start_time, kind="run", text=began, level="info"))
    if status != "running" and ended is not None:
        why = f": {first_line(info.error, LiveLimits.max_line_chars)}" if info.error else ""
        level: Literal["info", "error"] = "info" if status == "completed" else "error"
        lines.append(
            LogLine(at=ended, kind="run", text=f"{_ENDS.get(status, 'the run is over')}{why}", level=level)
        )
    return lines


_ENDS = {
    "completed": "the run completed",
    "failed": "the run failed",
    "interrupted": "the run was interrupted",
    "crashed": "the last heartbeat of the run, which exited unexpectedly",
}


def _elapsed(known: float | None, started: int | None, until: int | None) -> float | None:
    if known is not None:
        return known
    return None if started is None or until is None else round(max(0, until - started) / SECOND, 6)


def with_headline(state: LiveState, run: Path) -> LiveState:
    """The state with the counts of tasks and lookups in `summary.json`; as it is where there is none that can
    be read, or one that leaves some of the tasks unknown.
    """
    found = read_document(run / layout.SUMMARY, Headline).value
    if found is None:
        return state
    tasks, cache = found.tasks, found.cache
    counts: dict[str, Any] = {name: getattr(tasks, name) for name in TASK_COUNTS}
    if tasks.pending is None or None in counts.values():
        return state
    looked = (cache.lookups or 0) + (cache.bypassed or 0) > 0
    return msgspec.structs.replace(
        state,
        progress=progress_of(**counts, waiting=tasks.pending),
        cache_hits=cache.hits if looked else None,
        cache_lookups=cache.lookups if looked else None,
    )


Signature = frozenset[tuple[str, int, int]]
"""Files with their sizes and times."""


class Streams:
    """Gives every event once. A reading that is cut short goes on at the next call. Not thread-safe.

    `only` are the streams to read; None means all. `scratch` is a folder for what is needed to
    normalize the lines that become rows of tables.
    """

    def __init__(self, run: Path, scratch: Path, only: Collection[str] | None = None) -> None:
        self._run, self._scratch, self._only = run, scratch, only
        self._following: dict[str, Following] = {}
        self._under_way: dict[str, Iterator[AnyEvent | None]] = {}
        self._done: set[str] = set()
        self.read_to_end: Signature | None = None
        """The files of a run that is over, when they were last read to their end."""
        self._whole = 0
        self.caught_up = False
        """Whether everything there was has been read once."""
        self._reach: dict[str, dict[str, int]] = {}
        """How far the lines of each stream and writer went, by number, at the look before."""
        self.said: list[str] = []
        """The problems as last reported."""

    @property
    def read(self) -> float | None:
        """How much of the files was read, 0 to 1, while a reading is under way; null between readings."""
        if not self._under_way:
            return None
        found = sum(following.scan.bytes_read for following in self._following.values())
        return min(0.99, found / self._whole) if self._whole else 0.0

    @property
    def last(self) -> str | None:
        """The latest timestamp of all events; null where there is none."""
        found = (following.scan.last for following in self._following.values())
        return max(filter(None, found), default=None)

    @property
    def skipped(self) -> int:
        """Lines passed over so far because they hold no event."""
        scans = [following.scan for following in self._following.values()]
        return sum(scan.foreign + scan.oversized for scan in scans)

    def scan(self, stream: str) -> Scan:
        """What reads a stream, from when its first line is given on."""
        return self._following[stream].scan

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
            found += skipped_sentences(following.scan, torn=following.torn, doubled=following.doubled)
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
                for event in islice(self._under_way[stream], LiveLimits.max_events_per_turn):
                    chunk += 1
                    if event is not None:
                        take(event)
                        taken += 1
                    elif until is not None and until():
                        return taken
                if chunk < LiveLimits.max_events_per_turn:
                    del self._under_way[stream]
                if self._under_way and until is not None and until():
                    return taken
        self.caught_up = True
        return taken

    def _begin(self, *, over: bool) -> bool:
        parts = {
            stream: files
            for stream, files in find_parts(self._run).items()
            if self._only is None or stream in self._only
        }
        signature = signature_of(parts) if over else None
        if over and signature == self.read_to_end:
            return False
        self._whole = sum(
            size_at(part.path) for files in parts.values() for part in files if part.kind != "tail"
        )
        for stream in parts:
            following = self._following.get(stream)
            if following is None:
                tables = stream in FOLLOWED
                scan = NormalizedLines(self._run, stream, self._scratch, None) if tables else None
                following = self._following[stream] = Following(self._run, stream, scan)
            # Lines without a number are given by the last look alone, which there is one of.
            last = over and stream not in self._done
            if over:
                self._done.add(stream)
            self._under_way[stream] = following.new_and_pauses(last=last)
        self.read_to_end = signature
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


def signature_of(parts: Mapping[str, list[Part]]) -> Signature:
    """The files that are there, by name, with sizes and times: it changes when they do."""
    found = set()
    for part in (part for files in parts.values() for part in files):
        with suppress(OSError):
            stat = part.path.stat()
            found.add((str(part.path), stat.st_size, stat.st_mtime_ns))
    return frozenset(found)


class _ReadState:
    def __init__(self, asked: float) -> None:
        self.run: FollowedRun | None = None
        self.asked = asked
        self.worked_out = -1e300
        self.interval_s = 0.0
        self.state: LiveState | None = None
        self.problem: str | None = None


class FollowedRuns:
    """The states of runs, by their folders. Thread-safe; one thread reads, at low priority, and only while
    somebody asks.

    A state is computed once in `every_s` at most, and less often where that would take more than a fifth of a
    core. A run that nobody asked for in `forget_s` is forgotten, and read anew when somebody does. Without
    anybody to ask the thread sleeps.
    """

    def __init__(
        self,
        *,
        every_s: float = LiveLimits.update_interval_s,
        forget_s: float = LiveLimits.forget_after_s,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        open_run: Callable[[Path], FollowedRun] = FollowedRun,
        background: bool = True,
    ) -> None:
        """Without `background` there is no thread: whoever calls `turn` reads. `cpu` is the CPU time of the
        thread that does.
        """
        self._every_s, self._forget_s = every_s, forget_s
        self._clock, self._cpu, self._open, self._background = clock, cpu, open_run, background
        self._runs: dict[Path, _ReadState] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def state(self, path: Path, *, at_once: bool = False) -> LiveState | None:
        """The last state known of a run, None before there is one; and see to it that there will be a newer
        one, with `at_once` as soon as possible. Reads nothing itself.
        """
        with self._changed:
            looked = self._runs.setdefault(path, _ReadState(self._clock()))
            looked.asked = self._clock()
            looked.interval_s = 0.0 if at_once else looked.interval_s
            self._start()
            self._changed.notify_all()
            return looked.state

    def problem(self, path: Path) -> str | None:
        """Why there is no newer state of a run, in a sentence; None where all is well."""
        with self._changed:
            looked = self._runs.get(path)
            return None if looked is None else looked.problem

    def close(self, wait_s: float = 5.0) -> None:
        """Stop reading, and wait for the reader to have stopped; asking afterwards gives what is known."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)

    def __len__(self) -> int:
        """How many runs are followed."""
        with self._changed:
            return len(self._runs)

    def _start(self) -> None:
        if self._background and self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._read, name="flightlog-live", daemon=True)
            self._thread.start()

    def turn(self) -> bool:
        """Read on in the run whose turn it is, for a moment; False where none is due."""
        with self._changed:
            due = self._next()
            if due is None:
                return False
            looked = self._runs[due]
        state, problem, begun = looked.state, None, self._cpu()
        try:
            looked.run = looked.run or self._open(due)
            state = looked.run.update(limit_s=LiveLimits.read_slice_s)
        except Exception as error:  # noqa: BLE001 - the reader serves all runs; the next look may go well
            problem, looked.run = f"{type(error).__name__}: {error}", None  # half a look is no beginning
        with self._changed:
            looked.state, looked.problem = state, problem
            reading = state is not None and state.reading is not None and problem is None
            pause_s = update_pause_s(self._every_s, self._cpu() - begun)
            looked.worked_out, looked.interval_s = self._clock(), 0.0 if reading else pause_s
            self._changed.notify_all()
        return True

    def _read(self) -> None:
        _lower_priority()
        while not self._closed:
            if self.turn():
                continue
            with self._changed:
                if not self._closed and self._next() is None:
                    self._changed.wait(self._pause_s())

    def _next(self) -> Path | None:
        """The run that has waited longest for its turn; runs that are no longer requested are dropped."""
        now = self._clock()
        for path in [path for path, one in self._runs.items() if now - one.asked > self._forget_s]:
            del self._runs[path]
        due = [
            (one.worked_out, str(path), path) for path, one in self._runs.items() if self._is_due(one, now)
        ]
        return min(due)[2] if due else None

    def _is_due(self, one: _ReadState, now: float) -> bool:
        """A state that was not requested since it was made need not be renewed."""
        return now - one.worked_out >= one.interval_s and one.asked >= one.worked_out

    def _pause_s(self) -> float | None:
        now = self._clock()
        waits = [
            one.worked_out + one.interval_s - now
            for one in self._runs.values()
            if one.asked >= one.worked_out
        ]
        if waits:
            return max(0.01, min(waits))
        return self._forget_s if self._runs else None


def _lower_priority() -> None:
    """On Linux a thread has a priority of its own; elsewhere that of the process is left alone."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LiveLimits.reader_niceness)
