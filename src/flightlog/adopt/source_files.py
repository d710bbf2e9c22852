"""Reading files of other tools in bounded memory: JSON lines, JSON arrays, and the beginning of a file; and
the values in them: times, numbers, texts and ids, checked, where None is unknown.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.core.errors import UsageError
from flightlog.core.text import plural
from flightlog.core.time import timestamp_of
from flightlog.core.units import format_count, format_duration
from flightlog.store.devices.reading import BOM, CutShort, chunks_of, unpacked
from flightlog.store.documents import read_document
from flightlog.store.limits import StoreLimits
from flightlog.store.read.files import entries_of

if TYPE_CHECKING:
    from flightlog.adopt.run_maker import Account

_PADDING = b"\0 \t\r"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode


MAX_ITEM = 64 << 20
"""Characters of the largest value that is read; a document with a larger one is refused."""
_SOLID = re.compile(r"[^ \t\r\n]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_scan = json.JSONDecoder().raw_decode
_HEAD = 1 << 20
_HEX = re.compile(r"\s*(0[xX])?[0-9a-fA-F]+\s*")


class Record(dict[str, Any]):
    """A JSON object of another tool, with its fields checked: None is unknown."""

    def text(self, name: str) -> str | None:
        """A text that is not empty."""
        return text(self.get(name))

    def number(self, name: str) -> float | None:
        """A finite number of at least 0."""
        return number(self.get(name))

    def whole(self, name: str) -> int | None:
        """A whole number of at least 0 that fits 63 bits."""
        return whole(self.get(name))

    def seconds(self, name: str, in_one: float = 1.0) -> float | None:
        """A duration in seconds, from a number of units of which `in_one` make a second."""
        return seconds(self.get(name), in_one)

    def moment_ns(self, name: str) -> int | None:
        """Unix nanoseconds of a number of seconds or an ISO 8601 text."""
        return moment_ns(self.get(name))

    def hex_id(self, name: str, digits: int = 16) -> str | None:
        """A W3C id of so many hex digits."""
        return hex_id(self.get(name), digits)

    def object(self, name: str) -> Record:
        """An object inside it; empty for anything else."""
        found = self.get(name)
        return Record(found) if isinstance(found, dict) else Record()


class SourceLines:
    """The JSON objects of a file of lines, gzipped or not; iterate once, then the counts are right.

    `read` counts the objects. A `torn` last line ends in the middle; `foreign` lines hold no object,
    `oversized` ones are longer than `max_line_bytes`. NaN and infinities are read as Python's `json` writes
    them. Raises OSError.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.read = self.torn = self.foreign = self.oversized = 0
        self._first_foreign = ""

    def __iter__(self) -> Iterator[Record]:
        for line, whole in self.raw():
            bare = line.strip(_PADDING)
            if not bare:
                continue
            found = parse_object(bare)
            if found is not None:
                self.read += 1
                yield found
            elif whole:
                self.foreign += 1
                self._first_foreign = self._first_foreign or repr(bare[:60])[1:]
            else:
                self.torn += 1

    def report(self, account: Account) -> None:
        """Add what was skipped to the account."""
        if self.torn:
            account.problem(f"{self.file.name}: the last line ends in the middle, and was skipped")
        if self.foreign:
            lines = plural(self.foreign, "line holds", "lines hold")
            what = f"{lines} no JSON object, the first of them {self._first_foreign}"
            account.problem(f"{self.file.name}: {what}")
        if self.oversized:
            most = f"{StoreLimits.max_line_bytes >> 20} MiB"
            account.problem(f"{self.file.name}: {self.oversized:,} lines of more than {most} skipped")

    def raw(self) -> Iterator[tuple[bytes, bool]]:
        """Lines without their newlines, and whether the newline was there."""
        most = StoreLimits.max_line_bytes
        try:
            with unpacked(self.file) as source:
                for number, line in enumerate(iter(lambda: source.readline(most + 1), b"")):
                    if len(line) <= most or line.endswith(b"\n"):
                        bare = line if number else line.removeprefix(BOM)
                        yield bare.removesuffix(b"\n"), line.endswith(b"\n")
                        continue
                    self.oversized += 1
                    while (rest := source.readline(most)) and not rest.endswith(b"\n"):
                        pass
        except CutShort:
            self.torn += 1


def encodable(value: Any) -> Any:
    """A JSON value with `?` for lone surrogates, which JSON can write and UTF-8 cannot."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def parse_object(line: bytes) -> Record | None:
    """The JSON object of a line, with NaN and infinities; None where it holds none."""
    try:
        found = _decode(line)
    except _UNREADABLE:
        try:
            found = encodable(json.loads(line.decode()))
        except (ValueError, RecursionError):
            return None
    return Record(found) if isinstance(found, dict) else None


class DocumentItems:
    """The items of a JSON array, or of the array under `key` in a JSON object; iterate once.

    Memory grows with the largest item, not with the document. `others` has the object's other members by
    name. `torn` says that the document ends in the middle, as the trace of a killed program does: all items
    before were yielded. Raises OSError, and `UsageError` where the document is neither.
    """

    def __init__(self, file: Path, key: str) -> None:
        self.file, self._key = file, key
        self.others: dict[str, Any] = {}
        self.torn = False
        self._text = ""
        self._at = 0
        self._chunks = _texts(file)
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        opening = self._peek()
        if opening not in {"[", "{"}:
            raise UsageError(f"{self.file} is no JSON array or object")
        self._at += 1
        try:
            yield from self._array() if opening == "[" else self._object()
        except ValueError:
            self.torn = True

    def report(self, account: Account) -> None:
        """Add to the account that the document is truncated, if it is."""
        if self.torn:
            account.problem(
                f"{self.file.name}: the document is truncated; everything before the cut is included"
            )

    def _array(self) -> Iterator[Any]:
        while (following := self._peek()) != "]":
            if following == ",":
                self._at += 1
            else:
                yield self._value()
        self._at += 1

    def _object(self) -> Iterator[Any]:
        while (following := self._peek()) != "}":
            if following == ",":
                self._at += 1
                continue
            name = self._value()
            if self._peek() != ":":
                raise ValueError("a name without a value")
            self._at += 1
            if self._peek() == "[" and name == self._key:
                self._at += 1
                yield from self._array()
            else:
                self.others[str(name)] = self._value()

    def _peek(self) -> str:
        """The next character other than white space; empty at the end."""
        while True:
            found = _SOLID.search(self._text, self._at)
            self._at = len(self._text) if found is None else found.start()
            if found is not None or not self._more():
                return "" if found is None else found[0]

    def _value(self) -> Any:
        """The value that begins here. Raises ValueError where there is none, or it ends in the middle."""
        while True:
            try:
                value, end = _scan(self._text, self._at)
                if end < len(self._text) or self._ended:  # a number may go on in the next piece
                    begin, self._at = self._at, end
                    return encodable(value) if _SURROGATE.search(self._text, begin, end) else value
            except (ValueError, RecursionError) as error:
                if self._ended:
                    raise ValueError(str(error)) from None
            if len(self._text) - self._at > MAX_ITEM:
                raise UsageError(
                    f"{self.file} holds a value of more than {MAX_ITEM >> 20} million characters"
                )
            self._more(double=True)

    def _more(self, *, double: bool = False) -> bool:
        """Read more text; in growing steps for a value that is still incomplete."""
        if self._ended:
            return False
        kept = self._text[self._at :]
        pieces, size = [kept], 0
        while size <= (len(kept) if double else 0):
            piece = next(self._chunks, None)
            if piece is None:
                self._ended = True
                break
            pieces.append(piece)
            size += len(piece)
        self._text, self._at = "".join(pieces), 0
        return size > 0


def _texts(file: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with suppress(CutShort):
        yield from filter(None, map(decoder.decode, chunks_of(file)))


def head(path: Path) -> bytes:
    """The first MiB of a file, unzipped, without a byte order mark; empty where it cannot be read."""
    found = b""
    with suppress(OSError, CutShort):  # what was read until then may tell
        for chunk in chunks_of(path) if path.is_file() else ():
            found += chunk
            if len(found) >= _HEAD:
                break
    return found


def first_objects(path: Path, number: int = 5) -> list[Record]:
    """The first JSON objects among the first lines of a file."""
    found = (parse_object(line.strip()) for line in head(path).split(b"\n")[: 20 * number])
    return list(islice((one for one in found if one is not None), number))


def document(path: Path) -> Record:
    """A small JSON object; empty where it cannot be read."""
    return Record(read_document(path, dict[str, Any]).value or {})


def folders(path: Path) -> list[Path]:
    """The folders in a folder, by name; none where it cannot be read."""
    return sorted(path / one.name for one in entries_of(path) if one.is_dir())


def first_with(places: Iterable[Path], is_one: Callable[[Path], bool]) -> list[Path]:
    """The folders of a kind, by name: the first of these places that is one or holds some."""
    for place in places:
        if found := [one for one in (place, *folders(place)) if is_one(one)]:
            return found
    return []


def files(path: Path) -> list[Path]:
    """The files in a folder, by name, hidden ones left out; none where it cannot be read."""
    inside = (one for one in entries_of(path) if one.is_file() and not one.name.startswith("."))
    return sorted(path / one.name for one in inside)


_MAX_TIME_NS = 253_402_300_799_999_999_999
"""The last nanosecond of the year 9999: no timestamp is later."""

_MAX_DURATION_S = 1e10
"""Three centuries: longer durations are unknown ones."""


def stamp(ns: int) -> str:
    """Unix nanoseconds as the timestamp of an event, cut to microseconds."""
    return timestamp_of(min(max(ns, 0), _MAX_TIME_NS))


def whole_ns(seconds: float) -> int:
    """Seconds in nanoseconds, rounded to the microseconds that a float of Unix time can resolve."""
    return round(seconds * 1_000_000) * 1000


def moment_ns(value: Any) -> int | None:
    """Unix nanoseconds of a number of seconds or an ISO 8601 text (UTC by default).

    None for anything else, and for times before 1970 or after the year 9999.
    """
    if not isinstance(value, str):
        found = number(value)
        return whole_ns(found) if found is not None and found < _MAX_TIME_NS / 1e9 else None
    try:
        at = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    since = at.replace(tzinfo=at.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ns = since // timedelta(microseconds=1) * 1000
    return ns if ns >= 0 else None


def number(value: Any) -> float | None:
    """A finite number of at least 0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def seconds(value: Any, in_one: float = 1.0) -> float | None:
    """A duration in seconds, from a number of units of which `in_one` make a second; None beyond 300
    years.
    """
    found = number(value)
    return None if found is None or found / in_one > _MAX_DURATION_S else found / in_one


def whole(value: Any) -> int | None:
    """A whole number of at least 0 that fits 63 bits; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 2**63 else None
    found = number(value)
    return int(found) if found is not None and found.is_integer() and found < 2**63 else None


def parsed(parse: Callable[[str], float], value: str | None) -> float | None:
    """What a text of a size or a duration says; None where it is not understood, or is too large."""
    with suppress(UsageError):
        return number(parse(value or ""))
    return None


def text(value: Any) -> str | None:
    """A text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def hex_id(value: Any, digits: int) -> str | None:
    """A W3C id of so many hex digits, without prefix, zeros included; None for 0 and for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:x}"
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return None
    known = int(value, 16)
    return f"{known:0{digits}x}" if 0 < known < 16**digits else None


class DurationTotals:
    """Count, total and maximum of durations in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = self.longest_s = 0.0

    def add(self, seconds: float) -> None:
        """Add one."""
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def note(self, whose: str) -> str | None:
        """A sentence on durations that include waiting; `whose` says which they are and from when they
        count. None where there are none.
        """
        if not self.count:
            return None
        return (
            f"{whose}, so they include waiting: {format_count(self.count)} of them, "
            f"{format_duration(self.total_s / self.count)} on average, {format_duration(self.longest_s)} at "
            f"most, {format_duration(self.total_s)} in all. They are recorded as the tasks' metric elapsed_s"
            "; how long tasks executed, and on which worker, is not recorded."
        )
