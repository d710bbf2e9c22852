"""The JSON objects of a file of lines that another tool wrote: one by one, in bounded memory, with what was
odd.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightlog.adopt.account import Account
from flightlog.store.devices.records import CutShort, chunks_of
from flightlog.store.long_lines import MAX_LINE_BYTES

_PADDING = b"\0 \t\r"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode


class SourceLines:
    """The objects of one file, packed by gzip or not; iterate once, then the counts are right.

    `read` counts the objects given out. A `torn` last line ends in the middle; `foreign` lines hold no
    object, `oversized` ones are longer than `MAX_LINE_BYTES`. NaN and infinities are taken, as Python's
    `json` writes them. Raises OSError.
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
        """Say what was skipped."""
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
    """A JSON value with `?` for halves of surrogate pairs, which JSON can name and no text can hold."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None for what is none. NaN and infinities are taken."""
    try:
        found = _decode(line)
    except _UNREADABLE:
        try:
            found = encodable(json.loads(line.decode()))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None
