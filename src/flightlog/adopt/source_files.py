"""Reading files of other tools in bounded memory: JSON lines, JSON arrays, and the beginning of a file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from flightlog.adopt.run_maker import Account
from flightlog.core.errors import UsageError
from flightlog.store.devices.reading import CutShort, chunks_of
from flightlog.store.documents import read_document
from flightlog.store.read.files import MAX_LINE_BYTES

_PADDING = b"\0 \t\r"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode


MAX_ITEM = 64 << 20
"""Characters of the largest value that is read; a document with a larger one is refused."""
_SPACE = " \t\r\n"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_scan = json.JSONDecoder().raw_decode
_HEAD = 1 << 20


class SourceLines:
    """The JSON objects of a file of lines, gzipped or not; iterate once, then the counts are right.

    `read` counts the objects. A `torn` last line ends in the middle; `foreign` lines hold no object,
    `oversized` ones are longer than `MAX_LINE_BYTES`. NaN and infinities are read as Python's `json` writes
    them. Raises OSError.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.read = self.torn = self.foreign = self.oversized = 0
        self._first_foreign = ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
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
            lines = "line holds" if self.foreign == 1 else "lines hold"
            account.problem(
                f"{self.file.name}: {self.foreign:,} {lines} no JSON object, the first of them "
                f"{self._first_foreign}"
            )
        if self.oversized:
            account.problem(
                f"{self.file.name}: {self.oversized:,} lines of more than {MAX_LINE_BYTES >> 20} MiB skipped"
            )

    def raw(self) -> Iterator[tuple[bytes, bool]]:
        """Lines without their newlines, and whether the newline was there."""
        rest, skipping = b"", False
        try:
            for chunk in chunks_of(self.file):
                first, newline, later = chunk.partition(b"\n")
                if not newline:
                    rest += b"" if skipping else chunk
                    if len(rest) > MAX_LINE_BYTES:
                        self.oversized += 1
                        rest, skipping = b"", True
                    continue
                if not skipping:
                    yield rest + first, True
                lines = later.split(b"\n")
                rest, skipping = lines.pop(), False
                for line in lines:
                    yield line, True
        except CutShort:
            self.torn += 1
            return
        yield rest, False


def encodable(value: Any) -> Any:
    """A JSON value with `?` for lone surrogates, which JSON can write and UTF-8 cannot."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line, with NaN and infinities; None where it holds none."""
    try:
        found = _decode(line)
    except _UNREADABLE:
        try:
            found = encodable(json.loads(line.decode()))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


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
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

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
    try:
        for chunk in chunks_of(file):
            found = decoder.decode(chunk)
            if found:
                yield found
    except CutShort:
        return


def head(path: Path) -> bytes:
    """The first MiB of a file, unzipped, without a byte order mark; empty where it cannot be read."""
    if not path.is_file():
        return b""
    found = b""
    try:
        for chunk in chunks_of(path):
            found += chunk
            if len(found) >= _HEAD:
                break
    except (OSError, CutShort):
        pass  # what was read until then may tell
    return found


def first_objects(path: Path, number: int = 5) -> list[dict[str, Any]]:
    """The first JSON objects among the first lines of a file."""
    found = (parse_object(line.strip()) for line in head(path).split(b"\n")[: 20 * number])
    return list(islice((one for one in found if one is not None), number))


def document(path: Path) -> dict[str, Any]:
    """A small JSON object; empty where it cannot be read."""
    return read_document(path, dict[str, Any]).value or {}


def folders(path: Path) -> list[Path]:
    """The folders in a folder, by name; none where it cannot be read."""
    try:
        return sorted(one for one in path.iterdir() if one.is_dir())
    except OSError:
        return []


def first_with(places: Iterable[Path], is_one: Callable[[Path], bool]) -> list[Path]:
    """The folders of a kind, by name: the first of these places that is one or holds some."""
    for place in places:
        if found := [one for one in (place, *folders(place)) if is_one(one)]:
            return found
    return []


def files(path: Path) -> list[Path]:
    """The files in a folder, by name, hidden ones left out; none where it cannot be read."""
    try:
        return sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
    except OSError:
        return []
