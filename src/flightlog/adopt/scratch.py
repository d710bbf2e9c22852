"""A temporary store of records on disk, by key or in order of time; and the nesting of ordered intervals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.core.errors import FlightlogError

if TYPE_CHECKING:
    import sqlite3

_CACHE_KIB = 16 << 10


class ScratchStore:
    """Records on disk while a recording is read, in bounded memory; removed at the end of the `with`.

    A record is any JSON value. Times are whole numbers of at most 63 bits.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "scratch"
        self._refusal: type[Exception] | tuple[()] = ()

    @cached_property
    def _db(self) -> sqlite3.Connection:
        """Made when it is needed first: most recordings are in order."""
        try:
            import sqlite3
        except ImportError:
            raise FlightlogError(
                "this Python was built without sqlite3, which puts recordings in order on disk: use another "
                "one to adopt"
            ) from None
        self._refusal = sqlite3.Error
        made = sqlite3.connect(self._file, isolation_level=None)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}", "temp_store=FILE"):
            made.execute(f"PRAGMA {pragma}")
        made.execute("BEGIN")
        made.execute("CREATE TABLE named (key TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID")
        made.execute("CREATE TABLE placed (lane TEXT, a INTEGER, b INTEGER, record BLOB)")
        return made

    def __enter__(self) -> ScratchStore:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if "_db" in self.__dict__:
            self._db.close()
        with contextlib.suppress(OSError):
            self._file.unlink()
        if isinstance(error, self._refusal):  # a disk that is full, above all
            where = self._file.parent
            raise FlightlogError(f"cannot put the recording in order in {where}: {error}") from None

    def put(self, key: str, record: Any) -> bool:
        """Store a record under a key, replacing an earlier one; returns whether the key is new."""
        new = key not in self
        self._db.execute("INSERT OR REPLACE INTO named VALUES (?, ?)", (key, msgspec.json.encode(record)))
        return new

    def get(self, key: str) -> Any:
        """The record under a key; None where there is none."""
        row = self._db.execute("SELECT record FROM named WHERE key = ?", (key,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0])

    def remove(self, key: str) -> None:
        """Remove a record."""
        self._db.execute("DELETE FROM named WHERE key = ?", (key,))

    def __contains__(self, key: str) -> bool:
        return self._db.execute("SELECT 1 FROM named WHERE key = ?", (key,)).fetchone() is not None

    def named(self) -> Iterator[tuple[str, Any]]:
        """All records with their keys, by key."""
        for key, record in self._db.execute("SELECT key, record FROM named ORDER BY key"):
            yield key, msgspec.json.decode(record)

    def place(self, lane: str, a: int, b: int, record: Any) -> None:
        """Store a record with the interval from `a` to `b` in a lane."""
        self._db.execute("INSERT INTO placed VALUES (?, ?, ?, ?)", (lane, a, b, msgspec.json.encode(record)))

    def placed(self) -> Iterator[tuple[str, int, int, Any]]:
        """The records by lane, `a` ascending, `b` descending, and then the order they came in."""
        query = "SELECT lane, a, b, record FROM placed ORDER BY lane, a, b DESC, rowid"
        for lane, a, b, record in self._db.execute(query):
            yield lane, a, b, msgspec.json.decode(record)


class NestedInterval(NamedTuple):
    """An interval, its number, and the number of the interval around it; None for an outermost one."""

    number: int
    parent: int | None
    lane: str
    begin: int
    end: int
    record: Any


def nest(intervals: Iterable[tuple[str, int, int, Any]]) -> Iterator[NestedInterval]:
    """Number the intervals in order, and find the innermost earlier one that contains each.

    They come by lane, then begin, then the longest first. An interval that overlaps another only in part is
    not inside it; one without length contains nothing. Memory grows with the number that overlap.
    """
    around: list[tuple[int, int]] = []
    here: str | None = None
    for number, (lane, begin, end, record) in enumerate(intervals):
        if lane != here:
            here, around = lane, []
        if around and around[-1][0] <= begin:
            around = [one for one in around if one[0] > begin or (one[0] == begin == end)]
        parent = next((index for until, index in reversed(around) if until >= end), None)
        yield NestedInterval(number, parent, lane, begin, end, record)
        if end > begin:
            around.append((end, number))
