"""Where the rows of a stream stand: files that DuckDB may read as they are, each line once.

A run that closed in good order has one file a stream, written by the recorder itself: nothing in it is
doubled, torn or foreign, and it is read as it is. Every other run (running, killed, half-copied, changed
since) goes through `sift` first.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.integrity import FileSum
from flightlog.store.read.definitions import learn_definitions
from flightlog.store.read.files import Part, find_parts, has_long_line, writer_folders
from flightlog.store.tables.normalize import sift
from flightlog.store.tables.paths import PlainPaths
from flightlog.store.tables.snapshots import Snapshots

if TYPE_CHECKING:
    from flightlog.store.run import Run


@dataclass(frozen=True)
class Source:
    """The files that hold the rows of one stream of one run: JSONL, or the Parquet snapshot of it. Their
    names are plain.
    """

    files: tuple[Path, ...]
    parquet: bool = False
    misfits: tuple[Path, ...] = ()
    """Lines of a known kind that lack a field they must have: rows of the stream, of which no more is
    made."""


class Sources:
    """The files of one run's streams. `scratch` is a folder for what has to be written down anew, with a
    plain name.

    The answer holds for the run as it is now; lines that a running run records later are not in it.
    """

    def __init__(self, run: Run, scratch: Path) -> None:
        self._run = run
        self._scratch = scratch
        self._plain = PlainPaths(scratch)
        self._parts = find_parts(run.path)
        self._learned = False
        self._snapshots = Snapshots(run.path, self._parts, run.tell_damaged_snapshot)

    @cached_property
    def _settled(self) -> bool:
        return is_settled(self._run)

    @cached_property
    def _noted(self) -> tuple[dict[str, FileSum], int]:
        """The sizes of the files when the run closed, and when that was; nothing if something happened to
        it.
        """
        run = self._run
        odd = any(one.died or one.lost or one.reasons or not one.closed for one in run.writers())
        file = run.path / layout.CHECKSUMS
        if (
            odd
            or not run.writers()
            or run.status not in layout.ENDED
            or (run.path / layout.SEGMENTS).exists()
        ):
            return {}, 0
        sums = read_document(file, dict[str, FileSum]).value
        return (sums, file.stat().st_mtime_ns) if sums is not None else ({}, 0)

    def streams(self) -> list[str]:
        """The streams there are files of, by name."""
        return sorted(self._parts)

    def parts(self, stream: str) -> list[Part]:
        """The files of lines of a stream."""
        return self._parts.get(stream, [])

    def size_bytes(self, stream: str) -> int:
        """How large the files of lines of a stream are together, as far as they are there."""
        size = 0
        for part in self.parts(stream):
            with suppress(OSError):
                size += part.path.stat().st_size
        return size

    def check(self, names: Collection[str]) -> None:
        """Check these snapshots at once, which is faster than one after the other."""
        self._snapshots.damaged(names)

    def blame(self, error: str) -> bool:
        """Whether a snapshot can be blamed for an error that came up while it was read; it is not read again
        then.
        """
        return self._snapshots.blame(error)

    def view(self, name: str) -> Path | None:
        """The snapshot of a derived view, where it is current and intact."""
        found = self._snapshots.file(f"views/{name}")
        return None if found is None else self._plain.file(found)

    def source(self, stream: str, *, snapshots: bool = True) -> Source:
        """The files of a stream; none where the run has no such stream. Raises OSError.

        Without `snapshots` the files of lines are named, even where a snapshot could be read.
        """
        parts = self._parts.get(stream, [])
        snapshot = self._snapshots.file(stream) if snapshots else None
        if snapshot is not None:
            return Source((self._plain.file(snapshot),), parquet=True)
        if not parts:
            return Source(())
        if self.is_sealed(stream):
            return Source((self._plain.file(parts[0].path),))
        if stream.startswith("user.") and not (self._settled and self._learned):
            learn_definitions(self._run.path, stream)
            self._learned = True
        listed = parts if self._settled else None
        sifted = sift(self._run.path, stream, self._scratch, settled=self._settled, listed=listed)
        return Source(tuple(map(self._plain.file, sifted.files)), misfits=sifted.misfits)

    def is_sealed(self, stream: str) -> bool:
        """Whether a stream is one file, as it was when the run closed, and nothing happened to its making.

        That is so where every writer closed by itself and lost nothing, the segments are gone, and the file
        has the size that was noted and was not written to since; and no line in it is too long for DuckDB.
        """
        sums, closed = self._noted
        part, *others = self._parts.get(stream, [None])
        expected = None if part is None else sums.get(part.path.name)
        if part is None or others or expected is None or part.writer is not None or part.path.is_symlink():
            return False
        stat = part.path.stat()
        return (
            stat.st_size == expected.size_bytes
            and stat.st_mtime_ns <= closed
            and not has_long_line(part.path)
        )


def is_settled(run: Run) -> bool:
    """Whether nobody writes into the run any more; of a writer that left no word of itself, that is not
    known.
    """
    if run.status in {"running", "unknown"}:
        return False
    known = {writer.writer: writer for writer in run.writers()}
    folders = {writer for _, writer in writer_folders(run.path)}
    return folders <= known.keys() and not any(map(run.observer.writer_alive, known.values()))
