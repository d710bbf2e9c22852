"""Makes an ordinary closed run out of events that another tool recorded.

The run is built beside its place, in a hidden folder, and moved there in one step when it is whole: whoever
looks sees no run or all of it. Its name ends in the first digits of a digest of the recording, by which it is
found again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from flightlog.adopt.values import stamp
from flightlog.analyze.completing import complete
from flightlog.errors import FlightlogError, UsageError
from flightlog.events import Event, kind_of
from flightlog.record.closing import close_writer
from flightlog.record.recorder import Recorder
from flightlog.record.run import LiveRun
from flightlog.record.values import bounded, clean
from flightlog.redaction import redact_command, redact_text
from flightlog.settings import read_settings
from flightlog.store import layout
from flightlog.store.adopted import Adopted, Adoption
from flightlog.store.catalogue import run_paths
from flightlog.store.documents import read_document, write_document
from flightlog.store.liveness import this_host
from flightlog.store.plain_paths import path_text
from flightlog.version import __version__

if TYPE_CHECKING:
    pass

FORMAT = "1"
"""Part of every digest: counts up when the same recording gives another run, so that it can be adopted
anew."""
_BATCH = 512
_ABANDONED_S = 86_400.0
_HIDDEN = ".adopting-"


class RunMaker:
    """Takes the events of one recording, one after the other, and closes them into a run.

    Events go to the disk in batches; memory does not grow with their number. Not thread-safe. `trace_id` and
    `span_id` follow from the recording, and may be set to its own before the first event.
    """

    def __init__(self, runs_dir: Path, digest: str, options: AdoptOptions) -> None:
        self.digest, self.options = digest, options
        self.trace_id, self.span_id = digest[8:40], digest[40:56]
        self.account = Account()
        self.counts: Counter[str] = Counter()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.scratch = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=runs_dir))
        """A folder of its own, gone when the run is made."""
        self._runs_dir = runs_dir
        self._path = self.scratch / "run"
        self._path.mkdir()
        self._recorder = Recorder(self._path, this_host(), self.trace_id, owner=True)
        self._waiting: list[Event] = []
        self._about: dict[str, Any] = {}

    def add(self, event: Event, at_ns: int | None = None) -> None:
        """One event; `at_ns` is its moment in Unix time, where the event does not have its timestamp
        already.
        """
        if at_ns is not None:
            event.timestamp = stamp(at_ns)
            self.saw(at_ns)
        self.counts[kind_of(event)] += 1
        self._waiting.append(event)
        if len(self._waiting) >= _BATCH:
            self._flush()

    def saw(self, at_ns: int) -> None:
        """The recording covers this moment: without an end or start of its own, a run reaches from the first
        to the last.
        """
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)
        self.last_ns = at_ns if self.last_ns is None else max(self.last_ns, at_ns)

    def new_span_id(self, number: int) -> str:
        """The id of a span that has none: made from the recording and the span's place in it, so stable."""
        return f"{(int(self.digest[56:64], 16) << 32 | number + 1) & (2**64 - 1):016x}"

    def describe(self, **about: Any) -> None:
        """Fields of `run.json`: project, status, start_ns, end_ns, target, provider, host, command, tags,
        error, …

        Without a status, a run with failed tasks is `completed` all the same: the tool went to its end.
        """
        self._about |= about

    def finish(self, kind: str, title: str, source: Path) -> tuple[Path, bool]:
        """Close the run and move it to its place; gives the path, and whether it was not there before."""
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
        about["project"] = redact_text(self.options.project or about.get("project") or kind)
        info = layout.RunInfo(
            run_id=layout.make_run_id(
                about["project"], datetime.fromtimestamp(start // 1_000_000_000, UTC), self.digest
            ),
            start_time=stamp(start),
            end_time=stamp(end),
            duration_s=(end // 1000 - start // 1000) / 1e6,
            trace_id=self.trace_id,
            span_id=self.span_id,
            writer=self._recorder.writer,
            flightlog_version=__version__,
            adopted=self._adopted(kind, title, source),
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

    def _adopted(self, kind: str, title: str, source: Path) -> Adopted:
        account = self.account
        return Adopted(
            kind=kind,
            title=title,
            source=str(source.absolute()),
            digest=self.digest,
            notes=account.notes,
            kept=account.kept,
            mapped=account.mapped,
            dropped=account.dropped,
            problems=account.all_problems(),
        )

    def _flush(self) -> None:
        """Write what waits, stream by stream, and see it on its way: here the disk may take the time it
        needs.
        """
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
        complete(self._path, read_settings())

    def discard(self) -> None:
        """Leave nothing behind that is not a whole run. Raises nothing."""
        self._recorder.files.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _presentable(about: dict[str, Any]) -> dict[str, Any]:
    """What a recording says of itself, bounded and redacted as if it had been recorded here."""
    made = dict(about)
    if "tags" in made:
        made["tags"] = clean(made["tags"])[0]
    for name in ("project", "target", "provider", "host", "error", "cwd", "python"):
        if isinstance(made.get(name), str):
            made[name] = bounded(made[name], 500)
    if isinstance(made.get("command"), list):
        made["command"] = redact_command([str(word) for word in made["command"]])
    return made


def make_runs(
    adopter: Adopter,
    sources: Sequence[Source],
    runs_dir: Path,
    options: AdoptOptions,
    refused: list[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Adoption]:
    """Adopt each recording into a run of its own; one that was adopted before is found again and left as it
    is.

    Of several recordings, one that holds nothing to adopt does not keep the others: with `refused`, why goes
    there. `progress` is told how many were looked at, and of how many.
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


def _adopt(adopter: Adopter, source: Source, runs_dir: Path, options: AdoptOptions) -> Adoption:
    digest = digest_of(adopter.name, source, options)
    there = find_adopted(runs_dir, digest)
    if there is not None:
        return _told(*there, made=False, events={})
    maker = RunMaker(runs_dir, digest, options)
    try:
        adopter.adopt(source, maker)
        path, made = maker.finish(adopter.name, adopter.title, source.path)
        info = read_document(path / layout.RUN, layout.RunInfo).value
        if info is None:
            raise FlightlogError(f"{path} was made and cannot be read")
        return _told(path, info, made=made, events=dict(maker.counts))
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        raise FlightlogError(f"cannot adopt {source.path}: {named}{error.strerror or error}") from None
    finally:
        maker.discard()


def _told(path: Path, info: layout.RunInfo, *, made: bool, events: dict[str, int]) -> Adoption:
    said = info.adopted
    if not isinstance(said, Adopted):
        raise FlightlogError(f"{path} does not say what it was adopted from")
    account = msgspec.structs.asdict(said)
    return Adoption(run_id=info.run_id, path=path_text(path), made=made, events=events, **account)


def digest_of(kind: str, source: Source, options: AdoptOptions) -> str:
    """What a recording is, whatever its folder is called: the same bytes and options give the same digest."""
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
    """The run that was made of this recording before."""
    for path in sorted(run_paths(runs_dir)):
        if path.name.endswith(f"-{digest[:8]}"):
            info = read_document(path / layout.RUN, layout.RunInfo).value
            if info is not None and isinstance(info.adopted, Adopted) and info.adopted.digest == digest:
                return path, info
    return None


def _sweep(runs_dir: Path) -> None:
    """Remove what processes left that were killed while they adopted."""
    for left in runs_dir.glob(f"{_HIDDEN}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)


__all__ = ["AdoptOptions", "Adopter", "Adoption", "Source"]


class AdoptOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for beside the path."""

    project: str | None = None
    """The project of the run; by default the recording tells."""
    mapping: Path | None = None
    """The file that says what the fields of a plain JSONL file mean."""


class Source(Struct, frozen=True):
    """One recording that becomes one run."""

    path: Path
    files: tuple[Path, ...]
    """Every file that is read of it, in a fixed order: their content is what the recording is."""


class Adopter(Protocol):
    """A kind of recording that can be made into runs. Never changes a file of the recording."""

    name: str
    """What `--kind` calls it."""
    title: str
    """What it is, in words: `Scalable run directory`."""

    def recognize(self, path: Path) -> str | None:
        """Why the path is of this kind, in a few words; None where it is not. Looks at the beginning of files
        alone.
        """
        ...

    def sources(self, path: Path) -> Sequence[Source]:
        """The recordings at the path, in a fixed order; a `UsageError` where the path holds none that can be
        read.
        """
        ...

    def adopt(self, source: Source, maker: RunMaker) -> None:
        """Give the maker every event of one recording, and what there is to say of it.

        Memory does not grow with the recording. A `UsageError` where it holds nothing to adopt.
        """
        ...


MAX_NAMES = 40
"""How many different things of each sort are named; further ones are counted together."""
MAX_PROBLEMS = 20
OTHERS = "others"


class Account:
    """Counts by words, in the order in which the words came up."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.mapped: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._unsaid = 0

    def keep(self, what: str, number: int = 1) -> None:
        """So much stands in the run as it was."""
        _count(self.kept, what, number)

    def map(self, what: str, number: int = 1) -> None:
        """So much stands in the run as something else; the words say as what."""
        _count(self.mapped, what, number)

    def drop(self, what: str, number: int = 1) -> None:
        """So much does not stand in the run; the words say why."""
        _count(self.dropped, what, number)

    def note(self, sentence: str) -> None:
        """Something to know before trusting a figure; said once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def problem(self, sentence: str) -> None:
        """Something could not be read; the first ones are said one by one."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(sentence)
        else:
            self._unsaid += 1

    def all_problems(self) -> list[str]:
        """The problems, and how many more there were."""
        return [*self.problems, *([f"and {self._unsaid:,} more"] if self._unsaid else [])]


def _count(counts: dict[str, int], what: str, number: int) -> None:
    if not number:
        return
    if what not in counts and len(counts) >= MAX_NAMES:
        what = OTHERS
    counts[what] = counts.get(what, 0) + number
