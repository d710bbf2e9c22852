"""Lines of files, read tolerantly in bounded memory; one pass over a stream that takes each event once; and
how far this process has read, for progress displays.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from flightlog.events import Event
from flightlog.events.codec import Decoded, NotAnEvent, StreamDecoder, UnknownEvent, decode_line
from flightlog.store.limits import StoreLimits
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.files import Part, find_parts, open_lines, read_regular, size_at

if TYPE_CHECKING:
    import duckdb


_PADDING = b"\0 \t\r\xef\xbb\xbf"  # blanks, what a power cut leaves, and a byte-order mark

AnyEvent = Event | UnknownEvent
_FileId = tuple[int, int]
T = TypeVar("T")


class LongLine(NamedTuple):
    """A line that was left out: which of its file it is, from 1 on, and how long as far as it was read."""

    number: int
    size_bytes: int


class FileLines:
    """The lines of one file, in batches; may be asked again later, and then goes on where it stopped.

    `offset` is where the first byte stands that was not given out yet. A line of more than `max_line_bytes`
    is left out and noted in `long`. A file that has become shorter than that is gone through from its
    beginning, and `shrank` says so. With a `file_id` it is this very file, wherever `path` says it is.
    """

    def __init__(self, path: Path, file_id: _FileId | None = None) -> None:
        self.path, self._file_id = path, file_id
        self.offset = 0
        self.long: list[LongLine] = []
        self.shrank = False
        self.rest = b""
        """What stands behind the last newline, as of the last call."""
        self._skipping = False
        self._passed = 0

    def batches(self) -> Iterator[list[bytes]]:
        """Whole lines, without their newlines, from `offset` on. Raises OSError; `FileNotFoundError` where
        another file has taken the place of this one.
        """
        size = os.stat(self.path).st_size  # noqa: PTH116 - thousands of them
        if self.offset and size == self.offset + len(self.rest):
            return  # nothing was added
        file = open_lines(self.path)
        try:
            if self._file_id not in (None, file.file):
                raise FileNotFoundError(errno.ENOENT, "it was replaced", os.fspath(self.path))
            if self.offset and os.fstat(file.fd).st_size < self.offset:
                self.offset, self._skipping, self.shrank = 0, False, True
                self.long, self._passed = [], 0
            at, rest = self.offset, b""
            while chunk := os.pread(file.fd, StoreLimits.line_chunk_bytes, at):
                file.check_mark()  # what is ours now was ours while it was read
                at += len(chunk)
                first, newline, later = chunk.partition(b"\n")
                if not newline:
                    rest = self._keep(rest + chunk)
                    continue
                lines = later.split(b"\n")
                head, rest = rest + first, lines.pop()
                self.offset = at - len(rest)
                ended = 1 + len(lines)
                if self._skipping or len(head) > StoreLimits.max_line_bytes:
                    self._leave_out(head)
                    self._skipping = False
                else:
                    lines.insert(0, head)
                self._passed += ended
                yield lines
            self.rest = rest
        finally:
            file.close()

    def _keep(self, rest: bytes) -> bytes:
        if self._skipping or len(rest) > StoreLimits.max_line_bytes:
            self._leave_out(rest)
            self._skipping = True
            self.offset += len(rest)
            return b""
        return rest

    def _leave_out(self, piece: bytes) -> None:
        number, size = self.long.pop() if self._skipping else (self._passed + 1, 0)
        self.long.append(LongLine(number, size + len(piece)))


def read_tail(path: Path) -> bytes:
    """What stands in a memory-mapped tail: everything up to the first NUL. Raises OSError."""
    return read_regular(path, StoreLimits.max_line_bytes).partition(b"\0")[0]


def read_lines(path: Path, *, tail: bool = False) -> Iterator[bytes]:
    """The lines of a file, or of a memory-mapped tail, without their newlines; a last one without newline
    too.

    Empty lines and lines of more than `max_line_bytes` are left out. Raises OSError.
    """
    if tail:
        yield from (line for line in read_tail(path).split(b"\n") if line)
        return
    lines = FileLines(path)
    for batch in lines.batches():
        yield from (line for line in batch if line)
    if lines.rest:
        yield lines.rest


class Scan:
    """One pass over one stream of a run, wherever its lines stand, taking each numbered line once.

    Iterate over `events()` or `records()`; the counts are right when the iteration has ended. Events come
    file by file, of each writer its older ones first; threads and writers mix, so whoever needs an order
    sorts. A run that is written or closed meanwhile is read whole up to the moment the pass began, and
    perhaps further.

    A scan may be iterated again later: it then gives what is new. Of what is read each time, `torn` lines and
    those of tails, the counts are those of the last pass.

    `read` counts the events given out, `unnumbered` those of them without writer or number, `unknown` those
    of a kind this version does not know. `doubled` lines were there before; `torn` are last lines that end in
    the middle; `foreign` lines hold no event; `oversized` lines are too long to be one. `problems` are files
    that could not be read. `first` and `last` are the earliest and latest timestamps.

    `listed` are the files of the stream, where whoever reads many streams of a run has listed them before and
    nobody writes into it. They are listed again if one of them has gone. Events can be `frozen`.
    """

    def __init__(
        self, run: Path, stream: str, listed: Sequence[Part] | None = None, *, frozen: bool = False
    ) -> None:
        self.stream, self._frozen = stream, frozen
        self._listed = listed
        self.unnumbered = self.unknown = 0
        self.doubled = 0
        self.cut: list[int] = []
        """Last lines that end in the middle, by what they hold."""
        self.problems: list[str] = []
        self.first = self.last = ""
        self.coverage: dict[str, Coverage] = {}
        self.ahead: tuple[Sequence[Part], dict[Path, bytes]] | None = None
        """What `look_ahead` has just given: the next pass begins with it."""
        self._run = run
        self._files: dict[_FileId, FileLines] = {}
        self._in_tails = False
        self._foreign = [0, 0]

    @property
    def torn(self) -> int:
        """How many last lines end in the middle."""
        return len(self.cut)

    @property
    def foreign(self) -> int:
        """How many lines hold no event."""
        return sum(self._foreign)

    @property
    def oversized(self) -> int:
        """How many lines are too long to be an event."""
        return sum(len(lines.long) for lines in self._files.values())

    def too_long(self) -> list[tuple[Path, LongLine]]:
        """The lines that are too long, each with its file."""
        return [(lines.path, line) for lines in self._files.values() for line in lines.long]

    @property
    def read(self) -> int:
        """How many events were given out."""
        return sum(map(len, self.coverage.values())) + self.unnumbered

    @property
    def bytes_read(self) -> int:
        """How far the files were read, all together; tails are not counted."""
        return sum(lines.offset for lines in self._files.values())

    def events(self) -> Iterator[AnyEvent]:
        """Every event once."""
        return (event for event in self.events_and_pauses() if event is not None)

    def events_and_pauses(self) -> Iterator[AnyEvent | None]:
        """Every event once, and null after each stretch that was read, whatever there was in it."""
        return self._decoded(StreamDecoder(self.stream, frozen=self._frozen).decode, self._take)

    def records(self) -> Iterator[Decoded]:
        """Every event once, with the fields its declaration does not know."""
        found = self._decoded(decode_line, lambda record: self._take(record.event))
        return (record for record in found if record is not None)

    def _decoded(self, decode: Callable[[bytes], T], take: Callable[[T], bool]) -> Iterator[T | None]:
        """What lines hold and `take` takes, and null after each stretch that was read."""
        for batch, whole in self._batches():
            for line in batch:
                try:
                    found = decode(line)
                except NotAnEvent:
                    mended = self._mend(line, whole, decode)
                    if mended is None:
                        continue
                    found = mended
                if take(found):
                    yield found
            yield None

    def start_over(self) -> None:
        """Let the next pass read every file from its beginning; what was given out before is still known."""
        self._files.clear()
        self._foreign[False] = 0

    def skip_to_end(self) -> None:
        """Take what is there now as given out before, without reading more of it than the ends of files.

        Nothing that is written later is taken for given, unless its number was drawn before.
        """
        decode = StreamDecoder(self.stream).decode
        for part in self._parts():
            ending = self._read_tail(part) if part.kind == "tail" else self._skip_file(part.path)
            for line in ending.split(b"\n"):
                with suppress(NotAnEvent):
                    event = decode(line)
                    seen = self.coverage.get(event.writer, Coverage())
                    if event.writer and seen.upper <= event.seq < StoreLimits.max_line_number:
                        self.coverage[event.writer] = Coverage.up_to(event.seq + 1)

    def _skip_file(self, path: Path) -> bytes:
        """Let the next pass begin at the end of a file; gives its last whole lines."""
        try:
            file = open_lines(path)
            size = os.fstat(file.fd).st_size
            begun = max(0, size - StoreLimits.line_chunk_bytes)
            ending = os.pread(file.fd, size - begun, begun)
            file.check_mark()
        except OSError:
            return b""
        lines = self._files[file.file] = FileLines(path, file.file)
        lines.offset = begun + ending.rfind(b"\n") + 1
        return ending[: lines.offset - begun]

    def _take(self, event: AnyEvent) -> bool:
        """Count an event; False if its number was there before."""
        writer, number = event.writer, event.seq
        if writer and number >= 0:
            seen = self.coverage.get(writer)
            if seen is None:
                seen = self.coverage[writer] = Coverage()
            if not seen.add(number):
                self.doubled += 1
                return False
        else:
            self.unnumbered += 1
        if type(event) is UnknownEvent and not self.stream.startswith(
            "user."
        ):  # users' kinds are theirs to know
            self.unknown += 1
        moment = event.timestamp
        if moment > self.last and len(moment) == 27:  # as Flightlog writes them, which sorts as text
            self.last = moment
        if (moment < self.first or not self.first) and len(moment) == 27:
            self.first = moment
        return True

    def _mend(self, line: bytes, whole: bool, decode: Callable[[bytes], T]) -> T | None:
        """Read what did not decode without the padding around it, or count it."""
        bare = line.strip(_PADDING)
        if not bare:
            self._foreign[self._in_tails] += b"\0" in line
            return None
        if bare != line:
            try:
                return decode(bare)
            except NotAnEvent:
                pass
        if whole:
            self._foreign[self._in_tails] += 1
        else:
            self.cut.append(hash(bare))
        return None

    def _batches(self) -> Iterator[tuple[list[bytes], bool]]:
        """All lines; those that end without newline come last, apart and marked False.

        Lines move while they are read: from tail to file, with the file to another name when it is full, and
        into the top-level file when the run is completed. So tails are read first. Then the files that grow
        are noted before the full ones are listed, and found again by what they are: whatever was full by then
        is read, and nothing after a file that was not, so that no gap opens. Where a file has gone, its lines
        stand in another, and the files are gone through again.
        """
        self.cut, self._foreign[True], self._in_tails = [], 0, False
        parts, tails = self.ahead or self.look_ahead()
        self.ahead = None
        size = sum(size_at(part.path) for part in parts if part.kind != "tail")
        files = self._files
        for _ in range(StoreLimits.scan_attempts):
            growing = {part.path: _file_id(part.path) for part in parts if part.kind == "active"}
            parts = self._parts()
            gone: list[Path] = []
            for part in parts:
                if part.kind == "rotated" or part.path in growing:
                    for batch in self._read_file(part, growing.get(part.path), files, gone):
                        note_place(self.stream, self.bytes_read, size)
                        yield batch, True
            if not gone:
                break
            self._listed = None
            parts = self._parts()
        forget_place()
        self._in_tails = True
        for tail in tails.values():
            whole, _, rest = tail.rpartition(b"\n")
            if whole:
                yield whole.split(b"\n"), True
            if rest:
                yield [rest], False
        for lines in files.values():
            if lines.rest:
                yield [lines.rest], False

    def look_ahead(self, listed: Sequence[Part] | None = None) -> tuple[Sequence[Part], dict[Path, bytes]]:
        """The files of the stream, which may be listed, and what stands in the tails among them."""
        parts = self._parts() if listed is None else listed
        return parts, {part.path: self._read_tail(part) for part in parts if part.kind == "tail"}

    def _parts(self) -> Sequence[Part]:
        """The files of the stream."""
        return (
            find_parts(self._run, self.stream).get(self.stream, []) if self._listed is None else self._listed
        )

    def _read_tail(self, part: Part) -> bytes:
        try:
            return read_tail(part.path)
        except FileNotFoundError:
            self._listed = None
            return b""  # drained and closed since it was listed: its lines stand in the file
        except OSError as error:
            self._note(part.path, error)
            return b""

    def _read_file(
        self, part: Part, noted: _FileId | None, files: dict[_FileId, FileLines], gone: list[Path]
    ) -> Iterator[list[bytes]]:
        """The lines of a file that were not read before, under this name or another."""
        found = _file_id(part.path)
        path: Path | None = part.path
        if noted is not None and found != noted:
            found, path = noted, self._renamed(noted)
        if found is None or path is None:
            gone.append(part.path)
            return
        lines = files.setdefault(found, FileLines(path, found))
        lines.path = path
        try:
            yield from lines.batches()
        except FileNotFoundError:
            gone.append(path)
        except OSError as error:
            self._note(path, error)
        if lines.shrank:
            lines.shrank = False
            self._say(path, "became shorter while it was read; what it held before still counts")

    def _renamed(self, noted: _FileId) -> Path | None:
        for part in find_parts(self._run, self.stream).get(self.stream, []):
            if part.kind == "rotated" and _file_id(part.path) == noted:
                return part.path
        return None

    def _note(self, path: Path, error: OSError) -> None:
        self._say(path, f"cannot be read: {error.strerror or error}")

    def _say(self, path: Path, what: str) -> None:
        problem = f"{path.relative_to(self._run)} {what}"
        if problem not in self.problems:
            self.problems.append(problem)


def _file_id(path: Path) -> _FileId | None:
    """What a file is, whatever its name; None if it has gone."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _nobody() -> bool:
    return False


_asked: Callable[[], bool] = _nobody
_place: tuple[str, int, int] | None = None
_queries: list[tuple[duckdb.DuckDBPyConnection, str]] = []


@contextmanager
def asked_about(still: Callable[[], bool]) -> Iterator[None]:
    """Within it somebody wants to know, for as long as `still` is true, so that queries are watched, too."""
    global _asked
    before, _asked = _asked, still
    try:
        yield
    finally:
        _asked = before


def note_place(stream: str, done: int, of: int) -> None:
    """So many bytes of a stream's are read."""
    global _place
    _place = stream, done, of


def forget_place() -> None:
    """It is read."""
    global _place
    _place = None


@contextmanager
def watched(connection: duckdb.DuckDBPyConnection, find: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Within it the queries of a connection are told of, where somebody asks, as looks through the first of
    some streams.

    `find` gives the streams; it is called where somebody asks, and nowhere else.
    """
    import duckdb

    if not _asked():
        yield
        return
    forget_place()  # of what was not read to its end
    streams = find()
    with suppress(duckdb.Error):  # a notebook without ipywidgets has no bar to switch on
        connection.execute("SET enable_progress_bar_print = false")
        connection.execute("SET enable_progress_bar = true")
    more = " and others" if len(streams) > 1 else ""
    query = connection, f"a look through {streams[0]}{more}" if streams else "a query"
    _queries.append(query)
    try:
        yield
    finally:
        _queries.remove(query)


def at_work() -> str | None:
    """`43% of the events in tasks`, from any thread; None where nothing is known."""
    place = _place
    if place is not None and place[2] > 0:
        stream, done, of = place
        return f"{min(done / of, 1):.0%} of the events in {stream}"
    for connection, what in reversed(_queries):
        with suppress(Exception):  # closed meanwhile, or busy: there is nothing to tell
            percent = connection.query_progress()
            if percent >= 0:
                return f"{min(percent, 100):.0f}% of {what}"
    return None
