"""The small JSON documents of a run: read with tolerance, written in one step."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin

import msgspec

from flightlog.core.descriptors import Descriptor
from flightlog.store.layout import WriterInfo
from flightlog.store.read.files import read_regular

T = TypeVar("T")


class RecorderInfo(msgspec.Struct, kw_only=True):
    """`recorder.json`: every process that wrote into the run, and what it could not write."""

    writers: list[WriterInfo] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Document(Generic[T]):
    """What a document says, and what is wrong with it; one of the two at least is there."""

    value: T | None
    problem: str | None = None


def read_document(path: Path, kind: type[T]) -> Document[T]:
    """A document as the given struct, or as any other type that msgspec decodes.

    Unknown fields are ignored. A field of another type than declared is left at its default and named in
    `problem`. A document that is missing, torn, or lacks a field it must have gives None and the reason.
    Never raises for what stands on the disk.
    """
    try:
        data = read_regular(path)
    except OSError as error:
        return Document(None, f"{path.name}: {error.strerror or error}")
    return decode_document(data, kind, path.name)


def decode_document(data: bytes, kind: type[T], name: str) -> Document[T]:
    """As `read_document`, of bytes that were read before; `name` is used in the messages."""
    try:
        try:
            return Document(msgspec.json.decode(data, type=kind))
        except msgspec.ValidationError as error:
            found = msgspec.json.decode(
                data
            )  # what stands behind a field of a wrong type may be damaged, too
            if not issubclass(get_origin(kind) or kind, msgspec.Struct):
                return Document(None, f"{name}: not in the expected form ({error})")
            return _decode_by_field(found, kind, name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Document(None, f"{name}: not a whole JSON document ({error})")


def _decode_by_field(found: Any, kind: type[T], name: str) -> Document[T]:
    """Keep the fields that are as declared, so that one odd value does not hide the others."""
    if not isinstance(found, dict):
        return Document(None, f"{name}: holds no JSON object")
    kept: dict[str, Any] = {}
    odd: list[str] = []
    missing: list[str] = []
    for field in msgspec.structs.fields(kind):  # type: ignore[arg-type]
        if field.encode_name in found:
            try:
                kept[field.name] = msgspec.convert(found[field.encode_name], field.type)
            except msgspec.ValidationError:
                odd.append(field.encode_name)
        elif field.required:
            missing.append(field.encode_name)
    said = [
        f"{what}: {', '.join(names)}" for what, names in (("not valid", odd), ("missing", missing)) if names
    ]
    problem = f"{name}: {'; '.join(said)}" if said else None
    try:
        return Document(kind(**kept), problem)
    except TypeError:
        return Document(None, problem)


def write_document(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace the document by this value, pretty-printed; a reader sees the old one or the new one, whole.

    `durable` waits until the disk has it. NaN and infinities are written as null. An OSError leaves the old
    document as it was.
    """
    replace_bytes(path, document_bytes(value), durable=durable)


def document_bytes(value: Any) -> bytes:
    """The bytes that `write_document` writes."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def replace_bytes(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace a file's content in one step; as `write_document`, of bytes.

    Where the program closes the descriptor meanwhile, it is done again.
    """
    for left in (2, 1, 0):
        try:
            _replace(path, data, durable)
            break
        except OSError as error:
            if error.errno != errno.EBADF or not left:
                raise
    if durable:
        sync_folder(path.parent)


def _replace(path: Path, data: bytes, durable: bool) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        # Few calls, since each may hand the interpreter over to a busy thread. A link there is not followed.
        file = Descriptor.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            if durable:
                os.fsync(file.fd)
        finally:
            file.close(just_opened=True)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Wait until the disk knows the folder's names."""
    opened = Descriptor.open(folder)
    try:
        os.fsync(opened.fd)
    finally:
        opened.close()


def is_leftover(name: str) -> bool:
    """Whether a file is a document whose writing was cut short."""
    return name.startswith(".") and name.endswith(".tmp")
