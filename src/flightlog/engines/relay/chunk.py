"""Parcels: pieces of a writer's files on their way into a run directory that the writer cannot see."""

from __future__ import annotations

import re
import zlib
from typing import Literal

import msgspec

from flightlog.store import layout

MAX_PARCEL_BYTES = 1 << 20
"""A chunk as it travels, whole."""
ROOM_BYTES = MAX_PARCEL_BYTES - (1 << 12)
"""What fits into one; the rest is for names."""

_MARK = b"flp1"
_WRITER = r"segments/(?P<writer>[0-9a-f]{8})"
_NAME = r"[^/\\\0\n.][^/\\\0\n]{0,199}"
_LINES = re.compile(rf"{_WRITER}/{_NAME}-\d{{6,9}}\.jsonl")
_WRITER_NOTE = re.compile(rf"{_WRITER}/{re.escape(layout.WRITER)}")
_IN_BUNDLE = re.compile(rf"{layout.OOM}/(?P<number>\d{{1,3}})-(?P<stamp>\d{{8}}T\d{{6}}Z)/(?P<file>{_NAME})")


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A piece of one file. Where it belongs stands in it, so that chunks may come in any order, and
    twice.
    """

    trace_id: str
    """Of the run: a chunk for another one is not taken."""
    spool: str
    """Where it comes from: 16 hex digits that no other spool has."""
    name: str
    """The file, relative to the run directory. A growing file of lines goes by the name it will have when it
    is full."""
    kind: Literal["lines", "bytes", "document"]
    """A range of a file of lines, a range of another file, or all of a document."""
    at: int
    """Where a range begins in its file, in bytes; of a document its version: the highest one counts."""
    data: bytes


class NotAChunk(ValueError):  # noqa: N818 - the name says what it is
    """These bytes are no chunk, or none that may be taken; the text says why."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Chunk).decode


def pack(chunk: Chunk) -> bytes:
    """A chunk as bytes; `NotAChunk` for one that nobody would take."""
    check_name(chunk)
    body = _encode(chunk)
    if len(_MARK) + 4 + len(body) > MAX_PARCEL_BYTES:
        raise NotAChunk(f"{chunk.name}: {len(chunk.data):,} bytes do not fit into a chunk")
    return _MARK + zlib.crc32(body).to_bytes(4, "big") + body


def unpack(data: bytes) -> Chunk:
    """The chunk that these bytes are; `NotAChunk` where they are none, were damaged, or name a file they may
    not.
    """
    if len(data) > MAX_PARCEL_BYTES:
        raise NotAChunk(f"{len(data):,} bytes are too many for a chunk")
    if data[:4] != _MARK:
        raise NotAChunk("it does not begin as a chunk of this version does")
    body = data[8:]
    if zlib.crc32(body) != int.from_bytes(data[4:8], "big"):
        raise NotAChunk("it was damaged on its way")
    try:
        chunk = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAChunk(f"it does not decode: {error}") from None
    check_name(chunk)
    return chunk


def check_name(chunk: Chunk) -> None:
    """Let through what is a writer's own file or part of a bundle, by a name that leads nowhere else."""
    if not re.fullmatch(r"[0-9a-f]{16}", chunk.spool):
        raise NotAChunk(f"{chunk.spool[:40]!r} is no spool")
    fits = {"lines": (_LINES,), "bytes": (_IN_BUNDLE,), "document": (_WRITER_NOTE, _IN_BUNDLE)}[chunk.kind]
    if not any(one.fullmatch(chunk.name) for one in fits):
        raise NotAChunk(f"{chunk.name[:200]!r} is no file that may come as {chunk.kind}")
    if chunk.at < 0:
        raise NotAChunk(f"{chunk.name} from byte {chunk.at} on")


def writer_of(name: str) -> str | None:
    """The writer whose folder a file is in; None for a file of a bundle."""
    found = re.match(_WRITER + "/", name)
    return found["writer"] if found else None


def landing_name(chunk: Chunk) -> str:
    """Where its file stands in the run directory.

    Writers' names are unique. Bundles are numbered in each spool anew, so those of spools get numbers of
    their own: the same ones each time, above all that are given out in the run directory itself.
    """
    found = _IN_BUNDLE.fullmatch(chunk.name)
    if found is None:
        return chunk.name
    number = int(found["number"]) * 1_000_000 + int(chunk.spool, 16) % 1_000_000
    return f"{layout.OOM}/{number}-{found['stamp']}/{found['file']}"
