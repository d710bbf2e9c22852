"""Following a run: reads what is new in its streams, and gives its state; one reader serves many viewers.

Where the run is over, its `summary.json` gives the right counts at once, while its events are still being
read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from flightlog.analyze.live.levels import WINDOW
from flightlog.analyze.live.recent import live_timeline
from flightlog.analyze.live.results import LINE, NAME, LiveState, LogLine, Progress, args_text
from flightlog.analyze.live.state import LiveTotals
from flightlog.analyze.live.tasks import TASK_COUNTS
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
from flightlog.store.read.events import Following
from flightlog.store.read.files import Part, find_parts
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run
from flightlog.store.runs_folder import is_copy, refresh_run

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution
    from flightlog.store.layout import RunInfo

PROBLEMS = 20
REMOTE_S = 5.0
"""Shortest time between two requests to a remote."""
GONE = "the folder of the run is no longer there: this is what was read of it before"
_AHEAD = 60 * SECOND
"""How far the clock of another host may be ahead."""


class FollowedRun:
    """A run in any state, local or the copy of a remote one. Reads files only, each line once. Not
    thread-safe.

    `now()` gives seconds since 1970; `history` has durations of earlier runs by name of task, for what this
    run does not know yet. Memory: tasks that wait or run, failures without a retry, and bounded tallies.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        history: Mapping[str, Distribution] | None = None,
    ) -> None:
        self.path = path
        self._now, self._clock = now, clock
        self._streams = Streams(path)
        self._gathered = LiveTotals(path, history)
        self._changed = 0
        self._told: tuple[object, ...] = ()
        self._asked: float | None = None
        self._remarks: list[str] = []
        self._run: tuple[Run, tuple[int, int, int] | None] | None = None

    def update(self, limit_s: float | None = None) -> LiveState:
        """Read what is new, for `limit_s` seconds or a little more at most, and say how things stand.

        A state that is not of everything there is says so in `reading`; of a run that is over, its counts of
        tasks and lookups are those of `summary.json` then, where there is one. Never raises for what stands
        in the run's files; a folder that has gone leaves what was read.
        """
        now = self._now()
        run = self._open(now)
        status = run.status
        deadline = None if limit_s is None else self._clock() + limit_s
        self._gathered.set_limit(round(now * SECOND) + _AHEAD)
        self._changed += self._streams.new(
            self._gathered.taker,
            over=status != "running",
            until=None if deadline is None else lambda: self._clock() >= deadline,
        )
        state = self._state(run, status, now)
        return with_headline(state, self.path) if state.over and state.reading is not None else state

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
        if not is_copy(self.path) or (self._asked is not None and now - self._asked < REMOTE_S):
            return
        self._remarks = []
        try:
            refresh_run(self.path, note=self._remarks.append)
        except FlightlogError as error:
            self._remarks.append(str(error))
        self._asked = self._clock()

    def _state(self, run: Run, status: str, now: float) -> LiveState:
        info, found = run.info, self._gathered
        over = status != "running"
        beats = [info.heartbeat, *(writer.heartbeat for writer in run.writers())]
        ended = info.end_time or (latest(self._streams.last, *beats) if over else None)
        now_ns = round(now * SECOND)
        started, until = moment(info.start_time), moment(ended) if over else now_ns
        heard = moment(latest(*beats))
        window = _window(started, until if until is not None else now_ns)
        partly = not self._streams.caught_up
        running = [] if partly else list(found.tasks.running.values())
        cost = found.cost.summary(found.workers, info.provider, started, until, over=over)
        reading = self._streams.read
        self._note_change(status, info.end_time, info.error, reading)
        return LiveState(
            run_id=cut(run.run_id, NAME),
            project=cut(info.project, NAME),
            status=status,
            start_time=info.start_time,
            end_time=ended,
            elapsed_s=_elapsed(info.duration_s if info.end_time is not None else None, started, until),
            host=cut(info.host, NAME),
            target=None if info.target is None else cut(info.target, NAME),
            error=None if info.error is None else cut(info.error, 4 * LINE),
            as_of=timestamp_of(now_ns),
            progress=found.progress(started, until, over=over, partly=partly),
            names=found.tasks.names.results(),
            workers=[]
            if partly and not over
            else found.workers.results(running, found.tasks.last.items(), until, over=over),
            workers_all=len(found.workers),
            hosts=found.machines.hosts(until),
            devices=found.machines.devices(until),
            doing=[] if partly else found.doing(until),
            failures=found.failures.results(found.tasks),
            slowest=found.slowest(),
            recent=found.recent(),
            timeline=live_timeline(
                found.tasks,
                running,
                until=until if until is not None else now_ns,
                workers=len(found.workers),
            ),
            concurrency=found.concurrency(window),
            cpu=found.machines.cpu(window),
            memory=found.machines.memory(window),
            device_memory=found.machines.device_memory(window),
            cache_hits=found.lookups["hit"] if any(found.lookups.values()) else None,
            cache_lookups=found.lookups["hit"] + found.lookups["miss"]
            if any(found.lookups.values())
            else None,
            cost=cost.total,
            currency=cost.currency,
            log=found.log.lines(_life(info, status, ended)),
            problems=self._problems(run, None if over or heard is None else (now_ns - heard) / SECOND),
            changed=self._changed,
            reading=reading,
            failures_all=found.failures.count,
            names_all=len(found.tasks.names),
            names_at_least=found.tasks.names.has_others,
            spans=found.spans.names(),
            spans_all=found.spans.ended,
            open_spans=[] if partly else found.spans.open(until),
            metrics=found.metrics.results(),
            tags={
                cut(name, NAME): args_text({"": value})[1:] for name, value in list(info.tags.items())[:50]
            },
            command=cut(" ".join(info.command), 4 * LINE),
            heard_s=None if over or heard is None else max(0.0, (now_ns - heard) / SECOND),
        )

    def _note_change(self, *facts: object) -> None:
        if facts != self._told:
            self._told = facts
            self._changed += 1

    def _problems(self, run: Run, heard_s: float | None) -> list[str]:
        found: list[str] = []
        reading = self._streams.read
        if reading is not None:
            found.append(f"still reading: {reading:.0%}")
        if heard_s is not None and heard_s > StoreLimits.heartbeat_timeout_s / 2:
            found.append(f"no heartbeat of the run for {heard_s:.0f} s")
        found += self._remarks
        if self.path.is_dir():
            found += run.problems
            found += self._streams.problems(run.writers(), over=run.status != "running")
        else:
            found += [GONE, *self._streams.said]
        if self._gathered.machines.left_out:
            found.append("more hosts or devices were measured than are listed")
        shown = [cut(problem, LINE) for problem in found[:PROBLEMS]]
        return shown if len(found) <= PROBLEMS else [*shown, f"… and {len(found) - PROBLEMS:,} more problems"]


def _life(info: RunInfo, status: str, ended: str | None) -> list[LogLine]:
    """The beginning of the run, and its end, as lines of the log."""
    command = cut(" ".join(info.command), LINE)
    lines: list[LogLine] = []
    if info.start_time:
        began = f"the run began{f': {command}' if command else ''}"
        lines.append(LogLine(at=info.start_time, kind="run", text=began, level="info"))
    if status != "running" and ended is not None:
        why = f": {first_line(info.error, LINE)}" if info.error else ""
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


def _window(started: int | None, until: int) -> tuple[str, int, int]:
    since = until - WINDOW if started is None else min(max(started, until - WINDOW), until)
    return timestamp_of(since), since, until


def _elapsed(known: float | None, started: int | None, until: int | None) -> float | None:
    if known is not None:
        return known
    return None if started is None or until is None else round(max(0, until - started) / SECOND, 6)


def with_headline(state: LiveState, run: Path) -> LiveState:
    """The state with the counts of tasks and lookups in `summary.json`; as it is where there is none that can
    be read.
    """
    found = read_document(run / layout.SUMMARY, Headline).value
    if found is None or found.tasks.submitted is None:
        return state
    tasks, cache = found.tasks, found.cache
    counts: dict[str, Any] = {name: getattr(tasks, name) or 0 for name in (*TASK_COUNTS, "retried")}
    ended = counts["completed"] + counts["failed"] + counts["cancelled"]
    all_known = max(counts["submitted"], ended + counts["running"])
    looked = (cache.lookups or 0) + (cache.bypassed or 0) > 0
    return msgspec.structs.replace(
        state,
        progress=Progress(
            **counts, waiting=tasks.pending or 0, done=ended / all_known if all_known else None
        ),
        cache_hits=cache.hits if looked else None,
        cache_lookups=cache.lookups if looked else None,
    )


CHUNK = 1_000
"""Number of events that are taken from one stream before the next has its turn."""
Signature = frozenset[tuple[str, int, int]]


class Streams:
    """Gives every event once. A reading that is cut short goes on at the next call. Not thread-safe.

    `only` are the streams to read; None means all.
    """

    def __init__(self, run: Path, only: Collection[str] | None = None) -> None:
        self._run, self._only = run, only
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
        """The problems as last reported."""

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
    def skipped(self) -> int:
        """Lines passed over so far because they hold no event."""
        return sum(following.skipped for following in self._following.values())

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
        parts = {
            stream: files
            for stream, files in find_parts(self._run).items()
            if self._only is None or stream in self._only
        }
        stats = _stats(parts)
        signature = None
        if over:
            signature = frozenset((str(one.path), st.st_size, st.st_mtime_ns) for one, st in stats.items())
            if signature == self._read_to_end:
                return False
        self._whole = sum(stat.st_size for part, stat in stats.items() if part.kind != "tail")
        for stream in parts:
            following = self._following.get(stream)
            if following is None:
                following = self._following[stream] = Following(self._run, stream)
            # Lines without a number are given by the last look alone, which there is one of.
            last = over and stream not in self._done
            if over:
                self._done.add(stream)
            self._under_way[stream] = following.new_and_pauses(last=last)
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


def _stats(parts: dict[str, list[Part]]) -> dict[Part, os.stat_result]:
    """What the file system says of the files that are there."""
    found = {}
    for part in (part for files in parts.values() for part in files):
        with suppress(OSError):
            found[part] = part.path.stat()
    return found


EVERY_S = 1.0
FORGET_S = 60.0
SLICE_S = 0.4
"""Seconds for which one run is read before the next has its turn."""
_NICE = 10


class _ReadState:
    def __init__(self, run: FollowedRun, asked: float) -> None:
        self.run = run
        self.asked = asked
        self.worked_out = -1e300
        self.state: LiveState | None = None
        self.problem: str | None = None


class FollowedRuns:
    """The states of runs, by their folders. Thread-safe; one thread reads, at low priority, and only while
    somebody asks.

    A state is worked out once in `every_s` at most. A run that nobody asked for in `forget_s` is forgotten,
    and read anew when somebody does. Without anybody to ask the thread sleeps.
    """

    def __init__(
        self,
        *,
        every_s: float = EVERY_S,
        forget_s: float = FORGET_S,
        clock: Callable[[], float] = time.monotonic,
        open_run: Callable[[Path], FollowedRun] = FollowedRun,
        background: bool = True,
    ) -> None:
        """Without `background` there is no thread: whoever calls `turn` reads."""
        self._every_s, self._forget_s = every_s, forget_s
        self._clock, self._open, self._background = clock, open_run, background
        self._runs: dict[Path, _ReadState] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def state(self, path: Path, *, wait_s: float = 0.0) -> LiveState | None:
        """The last state known of a run, and see to it that there will be a newer one. Reads nothing itself.

        None before there is one; waits up to `wait_s` seconds for the first.
        """
        with self._changed:
            looked = self._runs.get(path)
            if looked is None:
                looked = self._runs[path] = _ReadState(self._open(path), self._clock())
            looked.asked = self._clock()
            self._start()
            self._changed.notify_all()
            if looked.state is None and wait_s > 0:
                self._changed.wait_for(lambda: looked.state is not None or self._closed, wait_s)
            return looked.state

    def problem(self, path: Path) -> str | None:
        """Why there is no newer state of a run, in a sentence; None where all is well."""
        with self._changed:
            looked = self._runs.get(path)
            return None if looked is None else looked.problem

    def close(self) -> None:
        """Stop reading, and wait for the reader to have stopped; asking afterwards gives what is known."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

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
        state, problem = looked.state, None
        try:
            state = looked.run.update(limit_s=SLICE_S)
        except Exception as error:  # noqa: BLE001 - the reader serves all runs; the next look may go well
            problem = f"{type(error).__name__}: {error}"
        with self._changed:
            looked.state, looked.problem = state, problem
            reading = state is not None and state.reading is not None and problem is None
            looked.worked_out = self._clock() - (self._every_s if reading else 0.0)
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
        return now - one.worked_out >= self._every_s and one.asked >= one.worked_out

    def _pause_s(self) -> float | None:
        now = self._clock()
        waits = [
            one.worked_out + self._every_s - now for one in self._runs.values() if one.asked >= one.worked_out
        ]
        if waits:
            return max(0.01, min(waits))
        return self._forget_s if self._runs else None


def _lower_priority() -> None:
    """On Linux a thread has a priority of its own; elsewhere that of the process is left alone."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
