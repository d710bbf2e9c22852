"""A copy of a run that is being written, as of one moment, which does not change while it is read."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.core.locks import locked, try_lock
from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import unix_time
from flightlog.store.read.files import Part, find_parts, open_regular, writer_folders
from flightlog.store.read.lines import read_tail
from flightlog.store.read.writers import read_writer
from flightlog.store.run import Run

PREFIX = "flightlog-still-"

HELD = "held"


_LEFT = {layout.PARQUET, layout.FOLLOWERS, layout.SUMMARY, layout.CHECKSUMS}
"""What is made of the lines, and is not current while they grow, or concerns the place and not the run."""


_NEVER = 1 << 63
_FileId = tuple[int, int]
_Key = tuple[str, str]
"""A stream and a writer."""


class _Line(Struct):
    timestamp: str = ""
    writer: str = ""
    seq: int = -1
    event: str = ""
    duration_s: Any = None
    elapsed_s: Any = None


_decode = msgspec.json.Decoder(_Line).decode


class _Looked(NamedTuple):
    path: Path
    key: _Key
    seq: int
    when: str
    line: bytes


class _NoRoomError(Exception):
    """There is no room for a copy."""


class _MovedError(Exception):
    """Files came and went meanwhile."""


@contextmanager
def held_still(
    run: Run,
    *,
    note: Callable[[str], None] | None = None,
    folder: Path | None = None,
    room: int | None = None,
) -> Iterator[Run]:
    """A running run as it was at one moment, whatever is written meanwhile; any other run as it is.

    All lines of all streams and writers up to that moment are there, and none of a later one, so that what is
    read of several streams, or twice, agrees. The copy stands in `folder`, by default among temporary files,
    and is removed afterwards; one that a killed process left is removed by the next call. Where it would take
    more than `room` bytes, by default a quarter of what is free, or cannot be made, the run itself is given,
    and `note` is told so.
    """
    if run.status != "running" or os.name != "posix":
        yield run
        return
    with ExitStack() as stack:
        still = run
        try:
            base = folder or Path(tempfile.gettempdir())
            remove_leftovers(base)
            made = stack.enter_context(_own_folder(base))
            free = (
                shutil.disk_usage(base).free // StoreLimits.snapshot_free_space_divisor
                if room is None
                else room
            )
            still = Run(_copied_to(made / "copy", run.path, free), observer=run.observer, home=run.path)
        except _NoRoomError:
            _tell(note, "there is no room for a copy")
        except _MovedError:
            _tell(note, "its files came and went")
        except OSError as error:
            _tell(note, f"no copy could be made: {error.strerror or error}")
        if still is run:
            stack.close()  # half a copy takes room that others need
        yield still


def _tell(note: Callable[[str], None] | None, why: str) -> None:
    if note is not None:
        note(
            f"the run is read while it is written, its streams one after the other, so that sums "
            f"may differ: {why}"
        )


def remove_leftovers(base: Path) -> int:
    """Remove the copies of processes that are gone; gives how many. Those of other users, and those in use,
    stay.
    """
    removed = 0
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if folder.is_symlink() or not folder.is_dir() or found.st_uid != os.getuid():
                continue
            if _is_left(folder, time.time() - found.st_mtime):
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed


def _is_left(folder: Path, age_s: float) -> bool:
    """Whether nobody holds the lock any more; a folder without one is just being made, or was left long
    ago.
    """
    try:
        lock = try_lock(folder / HELD, create=False)
    except FileNotFoundError:
        return age_s > StoreLimits.snapshot_max_age_s
    if lock is not None:
        lock.release()
    return lock is not None and lock.enforced


@contextmanager
def _own_folder(base: Path) -> Iterator[Path]:
    """A folder that nobody else reads, with a lock in it that tells whether its maker lives."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    try:
        making = folder / f".{HELD}"
        with locked(making):
            making.rename(folder / HELD)  # held from the moment it is there
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied_to(folder: Path, run: Path, room: int) -> Path:
    """Copy a run as of one moment. Documents come first: what they count is in the lines, which go on."""
    to = folder / (run.resolve().name or "run")  # the name alone may be `..`
    for _ in range(StoreLimits.snapshot_attempts):
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(_MovedError, FileNotFoundError):
            room_left = room - _copy_documents(run, to, room)
            _copy_lines(run, to, room_left)
            if run.is_dir():
                return to
    raise _MovedError


def _copy_documents(run: Path, to: Path, room: int) -> int:
    copied = 0
    every = {part.path for parts in find_parts(run).values() for part in parts}
    for folder, folders, names in os.walk(run):
        here = Path(folder)
        folders[:] = [name for name in folders if name not in _LEFT]
        (to / here.relative_to(run)).mkdir(parents=True, exist_ok=True)
        for name in names:
            if here / name in every or name in _LEFT or name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                found = (here / name).stat()
                if not S_ISREG(found.st_mode):
                    continue  # a device has no end, and a pipe waits
                copied += found.st_size
                if copied > room:
                    raise _NoRoomError
                shutil.copyfile(here / name, to / here.relative_to(run) / name)
    return copied


def _copy_lines(run: Path, to: Path, room: int) -> None:
    """The lines up to this moment.

    Lines go from tails to files. So the sizes of the files are taken, the moment is noted, the tails are
    read, and then the sizes are taken again: what stood in the files before is from before the moment; the
    last of it, what came meanwhile, and what stands in tails is looked at line by line.
    """
    before = _sizes(run)
    now = time.time()
    tails = {part.path: (part, read_tail(part.path)) for part in _parts(run, tails=True)}
    after = _sizes(run)
    read = time.time()  # much later than `now` where the machine stood still meanwhile
    if not before.keys() <= after.keys():
        raise _MovedError
    if sum(size for _, size, _ in after.values()) + sum(len(text) for _, text in tails.values()) > room:
        raise _NoRoomError
    looked: list[_Looked] = []
    for found, (part, size, changed) in after.items():
        sure, young = (
            before[found][1] if found in before else 0,
            now - changed < StoreLimits.snapshot_recent_s,
        )
        if young:
            sure = max(0, sure - StoreLimits.snapshot_checked_bytes)
        rest = _copied(part, found, to / part.path.relative_to(run), sure, size, cut=not young)
        looked += [_look(part, line) for line in rest]
    moved = {(one.key, one.seq) for one in looked if one.seq >= 0}
    for part, text in tails.values():
        in_tail = (_look(part, line) for line in _lines(text))
        looked += [one for one in in_tail if (one.key, one.seq) not in moved]
    ends = _ends(
        looked,
        _stamp(now),
        young=_stamp(now - StoreLimits.snapshot_recent_s),
        ahead=_stamp(read + StoreLimits.snapshot_recent_s),
    )
    reached: dict[_Key, int] = {}
    for one in looked:
        reached[one.key] = max(one.seq + 1, reached.get(one.key, 0))
    _say_no_more(to, ends, reached, _stamp(now - StoreLimits.snapshot_recent_s))
    kept: dict[Path, list[bytes]] = {}
    for one in looked:
        if one.seq < ends.get(one.key, _NEVER):
            kept.setdefault(one.path, []).append(one.line)
    for path, lines in kept.items():
        with (to / path.relative_to(run)).open("ab") as file:
            file.writelines(lines)


def _stamp(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _parts(run: Path, *, tails: bool) -> list[Part]:
    return [part for parts in find_parts(run).values() for part in parts if (part.kind == "tail") == tails]


def _sizes(run: Path) -> dict[_FileId, tuple[Part, int, float]]:
    """The files of lines, how large they are and when they were written to, by what they are, whatever their
    names.
    """
    found = {}
    for part in _parts(run, tails=False):
        with suppress(FileNotFoundError):
            stat = part.path.stat()
            found[stat.st_dev, stat.st_ino] = part, stat.st_size, stat.st_mtime
    return found


def _copied(part: Part, found: _FileId, to: Path, sure: int, size: int, *, cut: bool) -> list[bytes]:
    """Copy the lines of a file that are surely there for long; gives those behind, up to its size."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(part.path) as source, to.open("wb") as out:
        stat = os.fstat(source.fileno())
        if (stat.st_dev, stat.st_ino) != found:
            raise _MovedError
        start = max(0, sure - StoreLimits.max_line_bytes)
        source.seek(start)
        whole = start + source.read(sure - start).rfind(b"\n") + 1
        source.seek(0)
        left = whole
        while left > 0 and (chunk := source.read(min(StoreLimits.snapshot_chunk_bytes, left))):
            out.write(chunk)
            left -= len(chunk)
        return _lines(source.read(max(0, size - whole)), cut=cut)


def _lines(text: bytes, *, cut: bool = False) -> list[bytes]:
    """The lines of a text, each with its newline; a last one without is still being written, or else was
    `cut` off.
    """
    *lines, last = text.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if cut and last else [])


def _look(part: Part, line: bytes) -> _Looked:
    try:
        read = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        read = _Line()  # what is no event is copied, and told by whoever reads it
    return _Looked(part.path, (part.stream, read.writer), read.seq, _when(read), line)


def _when(line: _Line) -> str:
    """When a line was written, as far as it says so; a span bears the time of its begin. Empty where it does
    not.
    """
    if len(line.timestamp) != 27:
        return ""
    lasted = {"span": line.duration_s, "span_open": line.elapsed_s}.get(line.event)
    if not isinstance(lasted, int | float):
        return line.timestamp
    try:
        return _stamp((unix_time(line.timestamp) or 0.0) + lasted)
    except (ValueError, OverflowError, OSError):
        return ""


def _say_no_more(copy: Path, ends: Mapping[_Key, int], reached: Mapping[_Key, int], young: str) -> None:
    """Let the writers of a copy know of no lines that were left out of it, or are on their way: these are not
    lost.

    A number is given out a moment before its line is written. So a few beyond those that were `reached` are
    on their way, and all of a writer that began just now.
    """
    for folder, writer in writer_folders(copy):
        info = read_writer(folder, writer).value
        if info is None:
            continue
        lines = {}
        for stream, count in info.lines.items():
            key = stream, info.writer
            there = reached.get(key, 0 if info.started >= young else count)
            lines[stream] = min(
                there if count - there <= StoreLimits.snapshot_max_pending_lines else count,
                count,
                ends.get(key, _NEVER),
            )
        info.lines = lines
        write_document(folder / layout.WRITER, info)
        (folder / layout.PAGE).unlink(
            missing_ok=True
        )  # it counts what was left out; the note has the rest of it


def _ends(looked: list[_Looked], moment: str, *, young: str, ahead: str) -> dict[_Key, int]:
    """The number of each stream and writer from which on its lines are left out, so that none is later than
    the moment.

    Threads may write their lines in another order than they numbered them. So a number that is missing before
    a `young` line is one on its way, and ends what is taken. What is left out for its number may be earlier
    than the moment: then the moment is that one, for all streams, until nothing is left out that is earlier.

    Only times between `young` and `ahead` are held against the moment. Others do not say when the line was
    written: it tells of what was long before, as accounts of a cluster do, or its clock goes wrong.
    """
    by_key: dict[_Key, dict[int, str]] = {}
    for one in looked:
        if one.seq >= 0:
            by_key.setdefault(one.key, {})[one.seq] = one.when if young <= one.when < ahead else ""
    ends: dict[_Key, int] = {}
    for key, found in by_key.items():
        first = max(islice(found, StoreLimits.snapshot_max_pending_lines))
        for number, following in pairwise(sorted(number for number in found if number >= first)):
            if following > number + 1 and found[following]:
                ends[key] = number + 1
                break
    while True:
        earliest = moment
        for key, found in by_key.items():
            end = min((number for number, when in found.items() if when >= moment), default=_NEVER)
            ends[key] = end = min(end, ends.get(key, _NEVER))
            earliest = min([earliest, *(when for number, when in found.items() if when and number >= end)])
        if earliest == moment:
            return ends
        moment = earliest
