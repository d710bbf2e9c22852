"""An index of a folder of runs: what `run.json` and `summary.json` of each say, without opening those that
have not changed.

The index is a cache and never the truth. A document counts as unchanged while size, times and inode are as
they were when it was read; then what was read is used, else it is read again. So runs may be removed,
changed, restored or half-copied by anybody, and answers are those of a reader without an index.

Two rules keep that exact. A document that says `running` is read every time. And what was written so recently
that the file system's clock could not tell a second change from the first is used, but not kept.

Small folders get no index, since reading them is as fast, unless events had to be read.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET, structs

from flightlog.core.settings import user_cache
from flightlog.store import layout
from flightlog.store.documents import Document, decode_document, is_leftover
from flightlog.store.headline import CostHeadline, Headline, decode_headline, with_names
from flightlog.store.layout import RunInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.read.events import count_lost
from flightlog.store.read.files import Stamp, all_files, open_regular, read_within, stamp_at, stamp_of

CountHeadline = Callable[[Path], Headline | None]
"""Gives the headline of a run from its events."""
CostOf = Callable[[Path], CostHeadline]
"""Gives the cost of a run from its events."""
_T = TypeVar("_T")


class RunIndex:
    """One look at the documents of the runs of a folder, at those that stayed as they were through the index.

    Used in a `with`, which keeps what was read for the next time. Results are in the order of the paths asked
    for, which must be among those given. A disk that refuses the index costs nothing but time: `problem` says
    why.
    """

    def __init__(
        self,
        runs_dir: Path,
        paths: Sequence[Path],
        *,
        file: Path | None = None,
        worthwhile: int = StoreLimits.min_indexed_runs,
        settled_ns: int = StoreLimits.file_settled_ns,
    ) -> None:
        self.file = index_file(runs_dir) if file is None else file
        self._elsewhere = file is None and self.file.parent != runs_dir
        self.opened = 0
        """Documents that were opened, since the index did not have them."""
        self.problem: str | None = None
        """Why what was read could not be kept."""
        self._settled_ns = settled_ns
        self._known = load_index(self.file)
        self._kept = len(paths) >= worthwhile or bool(self._known)
        self._draft: Draft | None = None
        self._changed = False
        self._names = [path.name for path in paths]
        self._infos: dict[str, Document[RunInfo]] = {}

    def __enter__(self) -> RunIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.save()

    def infos(self, paths: Iterable[Path]) -> list[Document[RunInfo]]:
        """`run.json` of each run, as `read_document` gives it."""
        return [self._info(path) for path in paths]

    def headlines(
        self,
        paths: Iterable[Path],
        task: str | None = None,
        count: CountHeadline | None = None,
        cost_of: CostOf | None = None,
    ) -> list[Headline | None]:
        """What `summary.json` of each run says; None where there is none, or it is of another run.

        `task` is the name of a task that the headline shall hold if the run has it, whatever the number of
        names. `count` gives the headline of an ended run without `summary.json`, and `cost_of` the cost of an
        ended run whose headline has none, both from its events; they are kept while no file changes.
        """
        return [self._headline(path, task, count, cost_of) for path in paths]

    def lines_lost(self, path: Path) -> int:
        """Lines that a run without counts in its `run.json` has lost, from its events; kept while no file
        changes.
        """
        return self._from_events(path, "lines_lost", int, count_lost)

    def save(self) -> None:
        """Keep what was read. Never raises for what the disk does."""
        draft, self._draft = self._draft, None
        if draft is None:
            return
        if not self._changed:
            draft.drop()
            return
        listed = {name for name in self._names if name.isascii() or _is_text(name)}
        kept = {name: entry for name, entry in self._known.items() if name in listed}
        try:
            draft.publish(encode_index(kept), self.file)
            self._changed = False
        except OSError as error:
            self.problem = f"{self.file}: {error.strerror or error}"
            draft.drop()

    def _info(self, path: Path) -> Document[RunInfo]:
        found = self._infos.get(path.name)
        if found is None:
            found = self._infos[path.name] = self._look(path)
        return found

    def _look(self, path: Path) -> Document[RunInfo]:
        file = f"{path}{os.sep}{layout.RUN}"
        entry, stamp = self._known.get(path.name), stamp_at(file)
        same = entry is not None and stamp is not None and entry.run_stamp == stamp
        if entry is not None and same and not _runs(entry):
            return Document(entry.info, entry.problem)
        read = self._read(file, storable=not same and self._looks_settled(stamp))
        if read.data is None:
            return Document(None, f"{layout.RUN}: {read.problem}")
        found = decode_document(read.data, RunInfo, layout.RUN)
        if read.stamp is not None:
            entry = self._known.setdefault(path.name, IndexEntry())
            entry.run_stamp, entry.info, entry.problem = read.stamp, found.value, found.problem
            self._changed = True
        return found

    def _headline(
        self, path: Path, task: str | None, count: CountHeadline | None, cost_of: CostOf | None
    ) -> Headline | None:
        info = self._info(path).value
        over = info is not None and info.status in layout.ENDED
        found = self._noted(path, task, count if over else None)
        if found is None or info is None or found.run.run_id not in {None, info.run_id}:
            return None
        if cost_of is None or not over or found.cost is not UNSET:
            return found
        return structs.replace(found, cost=self._from_events(path, "cost", CostHeadline, cost_of))

    def _noted(self, path: Path, task: str | None, count: CountHeadline | None) -> Headline | None:
        """The headline in `summary.json`, or counted where there is none."""
        file = f"{path}{os.sep}{layout.SUMMARY}"
        entry, stamp = self._known.get(path.name), stamp_at(file)
        if stamp is None:
            return None if count is None else self._counted(path, task, count)
        if entry is not None and entry.summary_stamp == stamp:
            found = _decode(entry.headline)
        else:
            found = self._read_headline(path.name, file, stamp)
        if found is not None and _lacks(found, task):
            data = self._read(file, storable=False).data
            found = None if data is None else decode_headline(data)
        return found

    def _counted(self, path: Path, task: str | None, count: CountHeadline) -> Headline | None:
        opened = self.opened
        found = self._from_events(path, "headline", Headline, count, _with_few_names)
        was_kept = self.opened == opened
        return count(path) if was_kept and found is not None and _lacks(found, task) else found

    def _from_events(
        self,
        path: Path,
        what: str,
        kind: Any,
        count: Callable[[Path], _T],
        keep: Callable[[_T], _T] = lambda whole: whole,
    ) -> _T:
        """What `count` gives of a run, or what was kept of it while the files of the run stayed the same."""
        files, entry = all_files(path), self._known.get(path.name)
        known = None if entry is None else entry.counted.get(what)
        if known is not None and known[0] == files.digest:
            return cast("_T", msgspec.json.decode(known[1], type=kind))
        self._kept = True  # worth it even for one run
        now_ns = self._file_system_time() if self._looks_settled(files.newest) else None
        self.opened += 1
        found = count(path)
        settled = now_ns is not None and files.newest.changed_ns + self._settled_ns < now_ns
        if settled and found is not None and files == all_files(path):
            entry = self._known.setdefault(path.name, IndexEntry())
            entry.counted[what] = files.digest, msgspec.Raw(msgspec.json.encode(keep(found)))
            self._changed = True
        return found

    def _read_headline(self, name: str, file: str, stamp: Stamp) -> Headline | None:
        read = self._read(file, storable=self._looks_settled(stamp))
        if read.data is None:
            return None
        found = decode_headline(read.data, StoreLimits.max_index_names)
        if read.stamp is not None:
            entry = self._known.setdefault(name, IndexEntry())
            entry.summary_stamp = read.stamp
            entry.headline = msgspec.Raw(msgspec.json.encode(found))
            self._changed = True
        return found

    def _looks_settled(self, stamp: Stamp | None) -> bool:
        """Whether a document may be old enough to be kept, by the clock of this host: a draft is not made in
        vain.
        """
        newest_ns = 0 if stamp is None else stamp.changed_ns
        return self._kept and newest_ns + self._settled_ns < time.time_ns()

    def _read(self, file: str, *, storable: bool) -> _Read:
        """A document's bytes; with a stamp where they may be kept."""
        now_ns = self._file_system_time() if storable else None
        self.opened += 1
        try:
            with open_regular(file) as source:
                before = stamp_of(os.fstat(source.fileno()))
                data = read_within(source)
                after = stamp_of(os.fstat(source.fileno()))
        except OSError as error:
            return _Read(None, None, error.strerror or str(error))
        settled = now_ns is not None and before.changed_ns + self._settled_ns < now_ns
        return _Read(data, before if settled and before == after else None)

    def _file_system_time(self) -> int | None:
        """A time before any reading, by the clock that stamps the files; None where nothing can be kept."""
        if self._draft is None and self.problem is None:
            try:
                self._draft = Draft(self.file, make_folder=self._elsewhere)
            except OSError as error:
                self.problem = f"{self.file}: {error.strerror or error}"
        return self._draft.made_ns if self._draft is not None else None


def _with_few_names(headline: Headline | None) -> Headline | None:
    return headline and with_names(headline, StoreLimits.max_index_names)


def _lacks(headline: Headline, task: str | None) -> bool:
    """Whether a task that is asked for may be among the names that are not kept."""
    return task is not None and task not in headline.tasks.by_name and not headline.is_whole


def _is_text(name: str) -> bool:
    """Whether a folder's name can be written down: its bytes may be in another encoding."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _runs(entry: IndexEntry) -> bool:
    return entry.info is not None and entry.info.status == "running"


class _Read(NamedTuple):
    data: bytes | None
    stamp: Stamp | None
    problem: str | None = None


def _decode(headline: msgspec.Raw) -> Headline | None:
    return msgspec.json.decode(headline, type=Headline | None)


VERSION = 3
"""Of the form of the file, and of what is taken from the documents: another version reads everything
again."""

_NOTHING = msgspec.Raw(b"null")


class IndexEntry(msgspec.Struct, array_like=True):
    """What the index keeps of one run: two documents, each with the stamp it had when it was read."""

    run_stamp: Stamp | None = None
    info: RunInfo | None = None
    problem: str | None = None
    """Of `run.json`, as `Document.problem`."""
    summary_stamp: Stamp | None = None
    headline: msgspec.Raw = _NOTHING
    """A `Headline`, or null where `summary.json` is none; left encoded until somebody asks."""
    counted: dict[str, tuple[str, msgspec.Raw]] = {}
    """What was counted from the events, by its name: the digest of the stamps of all files of the run then,
    and the result."""


_ENTRIES = msgspec.json.Decoder(dict[str, IndexEntry])


class Draft:
    """The next index: made before anything is read, since its own time tells what the file system's clock
    says.

    An OSError says that none can be kept there.
    """

    def __init__(self, file: Path, *, make_folder: bool = False) -> None:
        if make_folder:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = file.with_name(f".{file.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._out: BinaryIO = os.fdopen(fd, "wb")
        self.made_ns = os.fstat(fd).st_mtime_ns

    def publish(self, data: bytes, file: Path) -> None:
        """Put it in the place of the old index; an OSError leaves that as it was."""
        with self._out:
            self._out.write(data)
        self.path.replace(file)
        _clear_leftovers(file)

    def drop(self) -> None:
        """Take it away."""
        with suppress(OSError):
            self._out.close()
        with suppress(OSError):
            self.path.unlink()


def index_file(
    runs_dir: Path, environ: Mapping[str, str] | None = None, writable: bool | None = None
) -> Path:
    """Where the index of a folder of runs is, or would be: in it, or in the user's cache where it is
    read-only.
    """
    environ = os.environ if environ is None else environ
    name = f".index-v{VERSION}-{os.geteuid()}.json"
    if os.access(runs_dir, os.W_OK | os.X_OK) if writable is None else writable:
        return runs_dir / name
    digest = hashlib.sha256(os.fsencode(os.path.realpath(runs_dir))).hexdigest()[:32]
    return user_cache(environ) / "runs" / f"{digest}{name}"


def load_index(file: Path) -> dict[str, IndexEntry]:
    """What the index holds; nothing where it is missing, damaged, foreign, or another user's."""
    try:
        with open_regular(file) as source:
            if os.fstat(source.fileno()).st_uid != os.geteuid():
                return {}
            data = source.read()
    except OSError:
        return {}
    head, _, body = data.partition(b"\n")
    if head != _head(body):
        return {}
    try:
        return _ENTRIES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def encode_index(entries: Mapping[str, IndexEntry]) -> bytes:
    """The bytes of an index that holds these entries, by the name of the run's folder."""
    body = msgspec.json.encode(entries)
    return _head(body) + b"\n" + body


def _head(body: bytes) -> bytes:
    return b"flightlog index %d %08x" % (VERSION, zlib.crc32(body))


def _clear_leftovers(file: Path) -> None:
    """Remove drafts of processes that were killed long ago."""
    with suppress(OSError), os.scandir(file.parent) as found:
        for entry in found:
            draft = entry.name.startswith(f".{file.name}.") and is_leftover(entry.name)
            if draft and time.time() - entry.stat().st_mtime > StoreLimits.index_leftover_s:
                os.unlink(entry.path)  # noqa: PTH108
