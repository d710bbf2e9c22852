"""The writer of adopted runs: makes a closed run out of events that another tool recorded.

The run is built in a hidden folder and renamed in one step when it is complete: readers see no run or all of
it. Its name ends in the first digits of a digest of the recording, by which it is found again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog import events
from flightlog.adopt.scratch import ScratchStore
from flightlog.adopt.source_files import hex_id, stamp
from flightlog.core.errors import FlightlogError, UsageError
from flightlog.core.redaction import redact_text
from flightlog.core.settings import read_settings
from flightlog.events import Event, kind_of
from flightlog.record.closing import close_writer
from flightlog.record.recorder import Recorder
from flightlog.record.run import LiveRun
from flightlog.record.values import bounded, clean
from flightlog.store import layout
from flightlog.store.catalogue import run_paths
from flightlog.store.completing import complete
from flightlog.store.documents import read_document, write_document
from flightlog.store.layout import Adopted, Adoption
from flightlog.store.liveness import this_host
from flightlog.store.tables.connection import path_text
from flightlog.version import __version__

FORMAT = "1"
"""Part of every digest: raised when the same recording gives another run, so that it is adopted anew."""
_MAX_BATCH = 512
"""Events that are written in one go."""
_ABANDONED_AFTER_S = 86_400.0
"""Age of an unfinished run after which it is removed."""
_HIDDEN = ".adopting-"
MAX_NAMES = 40
"""How many different entries of each kind are named; further ones are counted together."""
MAX_PROBLEMS = 20
"""Entries that could not be read whose problem is named."""
OTHERS = "others"


class AdoptOptions(Struct, frozen=True, kw_only=True):
    """Options of the user beside the path."""

    project: str | None = None
    """The project of the run; by default taken from the recording."""
    mapping: Path | None = None
    """The file that says what the fields of a plain JSONL file mean."""


class SourceRecording(Struct, frozen=True):
    """One recording that becomes one run."""

    path: Path
    files: tuple[Path, ...]
    """All files that are read, in a fixed order: their content identifies the recording."""


class Adopter(ABC):
    """A kind of recording that can be made into runs. Never changes a file of the recording.

    Either `find` finds the recordings at a path, or `any_file` says that a file is taken for one where the
    user says so.
    """

    name: str
    """What `--kind` calls it."""
    title: str
    """Its name in words: `Scalable run directory`."""
    one = several = ""
    """What a path with one recording is, and what several are called: `Scalable run directories`."""
    missing = "is no file"
    """What is wrong with a path that holds no recording."""
    any_file = False

    def find(self, path: Path) -> list[Path]:  # noqa: ARG002 - for those that find some
        """The recordings at the path, by name. Reads the beginning of files only."""
        return []

    def files_of(self, recording: Path) -> Sequence[Path]:
        """All files of a recording that are read, in a fixed order."""
        return [recording]

    def recognize(self, path: Path) -> str | None:
        """Why the path is of this kind, in a few words; None where it is not. Reads the beginning of files
        only.
        """
        found = self.find(path)
        if not found:
            return None
        return self.one if found in ([path], [path.parent]) else f"{len(found):,} {self.several}"

    def sources(self, path: Path) -> Sequence[SourceRecording]:
        """The recordings at the path, in a fixed order. Raises `UsageError` where there is none that can
        be read.
        """
        found = self.find(path) or ([path] if self.any_file and path.is_file() else [])
        if not found:
            raise UsageError(f"{path} {self.missing}")
        return [SourceRecording(one, tuple(self.files_of(one))) for one in found]

    @abstractmethod
    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        """Give the maker every event and description of one recording, in bounded memory.

        Raises `UsageError` where it holds nothing to adopt.
        """


class RunMaker:
    """Writes the events of one recording and closes them into a run.

    Events are written in batches; memory does not grow with their number. Not thread-safe. `trace_id` and
    `span_id` follow from the digest, and may be set to the recording's own before the first event. `store` is
    for what has to wait or to be put in order.
    """

    def __init__(self, runs_dir: Path, digest: str, options: AdoptOptions) -> None:
        self.digest, self.options = digest, options
        self.trace_id, self.span_id = digest[8:40], digest[40:56]
        self.account = Account()
        self.counts: Counter[str] = Counter()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.scratch = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=runs_dir))
        """A temporary folder, removed when the run is made."""
        self.store = ScratchStore(self.scratch)
        self._runs_dir = runs_dir
        self._path = self.scratch / "run"
        self._path.mkdir()
        self._recorder = Recorder(self._path, this_host(), self.trace_id, owner=True)
        self._waiting: list[Event] = []
        self._about: dict[str, Any] = {}

    def add(
        self, event: Event, at_ns: int | None = None, *, kept: str | None = None, mapped: str | None = None
    ) -> None:
        """Add one event; `at_ns` is its Unix time, where the event has no timestamp yet.

        `kept` or `mapped` says what of the recording it is, for the account.
        """
        if at_ns is not None:
            event.timestamp = stamp(at_ns)
            self.saw(at_ns)
        self.counts[kind_of(event)] += 1
        if kept is not None:
            self.account.keep(kept)
        if mapped is not None:
            self.account.map(mapped)
        self._waiting.append(event)
        if len(self._waiting) >= _MAX_BATCH:
            self._flush()

    def saw(self, at_ns: int) -> None:
        """Extend the run to this time; a recording without a start or end of its own spans all such times."""
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)
        self.last_ns = at_ns if self.last_ns is None else max(self.last_ns, at_ns)

    def add_end(
        self,
        how: Literal["completed", "failed", "cancelled"],
        ended: Mapping[str, Any],
        at_ns: int,
        *,
        kept: str | None = None,
        error_type: str | None = None,
        message: str | None = None,
        exit_code: int | None = None,
        signal: str | None = None,
        traceback: str | None = None,
    ) -> None:
        """Add the end of a task, and the failure of one that failed.

        `ended` has the fields of `TaskEnded`; `message` says why one failed or was cancelled, the others are
        of a failure.
        """
        error: dict[str, Any] = {"error_type": error_type, "exit_code": exit_code}
        ends: dict[str, Callable[..., Event]] = {
            "completed": events.TaskCompleted,
            "cancelled": partial(events.TaskCancelled, reason=message),
            "failed": partial(events.TaskFailed, error_message=message, **error),
        }
        self.add(ends[how](**ended), at_ns, kept=kept)
        if how == "failed":
            about = {name: ended.get(name) for name in ("task", "task_id", "attempt", "worker", "span_id")}
            facts: dict[str, Any] = {**about, **error, "message": message, "traceback": traceback}
            self.add(events.Failure(scope="task", fingerprint=None, signal=signal, **facts), at_ns)

    def add_other(
        self, name: str, record: Mapping[str, Any], at_ns: int, *, what: str, but: Collection[str]
    ) -> None:
        """Add a user event for a record that has no event of its own, with the fields that it says.

        `what` the record is, for the account; the fields in `but` are left out.
        """
        given = {key: value for key, value in record.items() if key not in but}
        fields = {key: value for key, value in given.items() if value is not None and value != {}}
        span_id = hex_id(fields.get("span_id"), 16)
        if span_id is not None:
            del fields["span_id"]
        event = events.UserEvent(name=name, fields=clean(fields)[0], span_id=span_id)
        self.add(event, at_ns, mapped=f"{what} → user_event {name}")

    def add_span(
        self,
        begin_ns: int,
        lasted_s: float | None,
        *,
        name: str,
        tags: dict[str, Any],
        span_id: str,
        parent_id: str | None,
        ended: bool = True,
        kept: str | None = None,
        mapped: str | None = None,
        **more: Any,
    ) -> None:
        """Add a span, or one that has not ended and was seen for so long; without a parent it is the run's.

        `more` are the other fields of `SpanEvent`.
        """
        common: dict[str, Any] = {
            "name": bounded(name, 500),
            "tags": tags,
            "trace_id": self.trace_id,
            "span_id": span_id,
            "parent_id": parent_id or self.span_id,
        }
        event: Event = events.SpanOpened(elapsed_s=lasted_s or 0.0, **common)
        if ended:
            event = events.SpanEvent(duration_s=lasted_s, **{"status": "ok", **more}, **common)
        self.add(event, begin_ns, kept=kept, mapped=mapped)

    def new_span_id(self, number: int) -> str:
        """The id of a span that has none: made from the recording and the span's place in it, so stable."""
        return f"{(int(self.digest[56:64], 16) << 32 | number + 1) & (2**64 - 1):016x}"

    def end_with_file(self, file: Path, last_ns: int, why: str, which: str = "the file") -> int:
        """Nanoseconds from an unknown clock to Unix time, where the last moment is that of the file; with a
        note that begins with `why`.
        """
        self.account.note(
            f"{why}: the end of the run is when {which} was last written, which for a copied file is when it "
            "was copied. Durations, and times to each other, are as recorded."
        )
        return file.stat().st_mtime_ns - last_ns

    def describe(self, **about: Any) -> None:
        """Set fields of `run.json`: project, status, start_ns, end_ns, target, provider, host, tags, …

        The project is by default called as the recording is.
        The status is `completed` by default, also where tasks failed: the tool reached its end.
        """
        self._about |= about

    def finish(self, kind: str, title: str, source: Path) -> tuple[Path, bool]:
        """Close the run and move it to its place; returns the path, and whether it is new."""
        self._flush()
        about = {"status": "completed", **self._about}
        start = about.pop("start_ns", None)
        end = about.pop("end_ns", None)
        start = self.first_ns if start is None else start
        end = self.last_ns if end is None else end
        if start is None:
            raise UsageError(f"{source} holds no event with a time: there is nothing to adopt")
        start = max(0, start)  # as timestamps are
        end = max(start, end if end is not None else start)
        about["project"] = redact_text(
            self.options.project or about.get("project") or source.name.split(".")[0] or kind
        )
        started = datetime.fromtimestamp(start // 1_000_000_000, UTC)
        info = layout.RunInfo(
            run_id=layout.make_run_id(about["project"], started, self.digest),
            start_time=stamp(start),
            end_time=stamp(end),
            duration_s=(end // 1000 - start // 1000) / 1e6,
            trace_id=self.trace_id,
            span_id=self.span_id,
            writer=self._recorder.writer,
            flightlog_version=__version__,
            adopted=Adopted(
                kind=kind,
                title=title,
                source=str(source.absolute()),
                digest=self.digest,
                **self.account.fields(),
            ),
            **_presentable(about),
        )
        self._close(info)
        place = self._runs_dir / info.run_id
        try:
            self._path.rename(place)
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:  # adopted by another process meanwhile
                return place, False
            raise FlightlogError(f"cannot write {place}: {error.strerror or error}") from None
        return place, True

    def _flush(self) -> None:
        """Write the batch, stream by stream, and wait for the disk."""
        self._recorder.emit_all(sorted(self._waiting, key=attrgetter("stream")))
        self._recorder.files.flush()
        self._waiting = []

    def _close(self, info: layout.RunInfo) -> None:
        recorder = self._recorder
        close_writer(LiveRun(self._path, info, recorder), 0.0)
        # A sign of life of what was recorded, and not of this process.
        recorder.files.info.heartbeat = info.end_time or ""
        recorder.files.save()
        lost = sum(recorder.files.tally().lost.values()) + recorder.counts.get("events_failed", 0)
        if lost:
            why = "; ".join(recorder.problems) or "no reason is known"
            raise FlightlogError(f"{lost:,} events could not be written to {self._runs_dir}: {why}")
        write_document(self._path / layout.RUN, info)
        complete(self._path, read_settings(), snapshot=True)

    def discard(self) -> None:
        """Remove everything that is not a complete run. Raises nothing."""
        self._recorder.files.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class Account:
    """What was kept, mapped, dropped and could not be read, counted by description in order of appearance."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {"kept": {}, "mapped": {}, "dropped": {}}
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._unsaid = 0

    def keep(self, what: str, number: int = 1) -> None:
        """Count what is in the run as it was."""
        self._count("kept", what, number)

    def map(self, what: str) -> None:
        """Count what is in the run as something else; the description says as what."""
        self._count("mapped", what)

    def drop(self, what: str, number: int = 1) -> None:
        """Count what is not in the run; the description says why."""
        self._count("dropped", what, number)

    def note(self, sentence: str | None) -> None:
        """Add a sentence to know before trusting a number; each once. None adds nothing."""
        if sentence is not None and sentence not in self.notes:
            self.notes.append(sentence)

    def problem(self, sentence: str) -> None:
        """Add a sentence on what could not be read; beyond the first ones they are only counted."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(sentence)
        else:
            self._unsaid += 1

    def fields(self) -> dict[str, Any]:
        """All of it, as the fields of `Adopted`."""
        problems = [*self.problems, *([f"and {self._unsaid:,} more"] if self._unsaid else [])]
        return {**self._counts, "notes": self.notes, "problems": problems}

    def _count(self, how: str, what: str, number: int = 1) -> None:
        counts = self._counts[how]
        if number:
            what = what if what in counts or len(counts) < MAX_NAMES else OTHERS
            counts[what] = counts.get(what, 0) + number


_BOUNDED = {"project", "target", "provider", "host", "error"}
"""Texts of `run.json` that come from recordings."""


def _presentable(about: dict[str, Any]) -> dict[str, Any]:
    """Fields of `run.json`, bounded and redacted as the recorder does."""
    made: dict[str, Any] = {
        name: bounded(value, 500) if name in _BOUNDED and value else value for name, value in about.items()
    }
    if "tags" in made:
        made["tags"] = clean(made["tags"])[0]
    return made


def make_runs(
    adopter: Adopter,
    sources: Sequence[SourceRecording],
    runs_dir: Path,
    options: AdoptOptions,
    refused: list[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Adoption]:
    """Adopt each recording into a run of its own; one that was adopted before is found again, unchanged.

    Of several recordings, those that hold nothing to adopt are skipped and their reasons appended to
    `refused`; without it the first one raises. `progress` is called with how many are done, and of how many.
    """
    runs_dir = Path(runs_dir).absolute()
    _sweep(runs_dir)
    made = []
    for number, source in enumerate(sources):
        if progress is not None:
            progress(number, len(sources))
        try:
            made.append(_adopt(adopter, source, runs_dir, options))
        except UsageError as error:
            if refused is None or len(sources) == 1:
                raise
            refused.append(str(error))
    return made


def _adopt(adopter: Adopter, source: SourceRecording, runs_dir: Path, options: AdoptOptions) -> Adoption:
    digest = digest_of(adopter.name, source, options)
    there = find_adopted(runs_dir, digest)
    if there is not None:
        return _adoption(*there, made=False, counts={})
    maker = RunMaker(runs_dir, digest, options)
    try:
        with maker.store:
            adopter.adopt(source, maker)
        path, made = maker.finish(adopter.name, adopter.title, source.path)
        info = read_document(path / layout.RUN, layout.RunInfo).value
        if info is None:
            raise FlightlogError(f"{path} was made and cannot be read")
        return _adoption(path, info, made=made, counts=dict(maker.counts))
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        raise FlightlogError(f"cannot adopt {source.path}: {named}{error.strerror or error}") from None
    finally:
        maker.discard()


def _adoption(path: Path, info: layout.RunInfo, *, made: bool, counts: dict[str, int]) -> Adoption:
    said = info.adopted
    if not isinstance(said, Adopted):
        raise FlightlogError(f"{path} does not say what it was adopted from")
    account = msgspec.structs.asdict(said)
    return Adoption(run_id=info.run_id, path=path_text(path), made=made, events=counts, **account)


def digest_of(kind: str, source: SourceRecording, options: AdoptOptions) -> str:
    """SHA-256 of a recording: the same bytes and options give the same digest, wherever its folder is."""
    digest = hashlib.sha256(f"{FORMAT}\0{kind}\0{options.project or ''}\0".encode("utf-8", "surrogateescape"))
    files = [*source.files, *([options.mapping] if options.mapping is not None else [])]
    for file in files:
        try:
            with file.open("rb") as content:
                inner = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
        name = file.relative_to(source.path) if file.is_relative_to(source.path) else Path(file.name)
        label = "" if file == source.path else name.as_posix()
        digest.update(f"{label}\0{inner}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def find_adopted(runs_dir: Path, digest: str) -> tuple[Path, layout.RunInfo] | None:
    """The run that this recording was adopted into before."""
    for path in sorted(run_paths(runs_dir)):
        if path.name.endswith(f"-{digest[:8]}"):
            info = read_document(path / layout.RUN, layout.RunInfo).value
            if info is not None and isinstance(info.adopted, Adopted) and info.adopted.digest == digest:
                return path, info
    return None


def _sweep(runs_dir: Path) -> None:
    """Remove what killed adoptions left behind."""
    for left in runs_dir.glob(f"{_HIDDEN}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
