"""The items of a JSON array, one by one: of a document that is one, or of an object that holds one under a
name.

Memory grows with the largest item, not with the document.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightlog.adopt.lines import encodable
from flightlog.errors import UsageError
from flightlog.store.devices.records import CutShort, chunks_of

MAX_ITEM = 64 << 20
"""Characters of the largest value that is taken; a document with a larger one is refused."""
_SPACE = " \t\r\n"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_scan = json.JSONDecoder().raw_decode


class DocumentItems:
    """The items of the array under `key`, or of the document itself; iterate once.

    `others` has the document's other members that stand before the array or behind it, by name. `torn` says
    that the document ends in the middle, as a trace does whose program was killed: all that stands before was
    given out. Raises OSError, and `UsageError` where the document is no such thing.
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
        if opening == "[":
            self._at += 1
            yield from self._array()
        elif opening == "{":
            self._at += 1
            yield from self._object()
        else:
            raise UsageError(f"{self.file} is no JSON array or object")

    def _array(self) -> Iterator[Any]:
        while True:
            following = self._peek()
            if following == ",":
                self._at += 1
            elif following == "]":
                self._at += 1
                return
            elif following == "":
                self.torn = True
                return
            else:
                try:
                    value = self._value()
                except ValueError:
                    self.torn = True
                    return
                yield value

    def _object(self) -> Iterator[Any]:
        while True:
            following = self._peek()
            if following in {"}", ""}:
                self.torn = following == ""
                return
            if following == ",":
                self._at += 1
                continue
            try:
                name = self._value()
                self.torn = self._peek() != ":"
                if self.torn:
                    return
                self._at += 1
                opening = self._peek()
                if name == self._key and opening == "[":
                    self._at += 1
                    yield from self._array()
                    if self.torn:
                        return
                else:
                    self.others[str(name)] = self._value()
            except ValueError:
                self.torn = True
                return

    def _peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _value(self) -> Any:
        """The value that begins here; ValueError where there is none, or it breaks off."""
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
        """Read on; a value that is still incomplete is read on in ever larger steps."""
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
