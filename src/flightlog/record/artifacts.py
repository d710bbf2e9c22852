"""Artifacts: what an output is, how large, and its checksum."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightlog.events import ArtifactRecorded
from flightlog.record.values import bounded, encodable

if TYPE_CHECKING:
    import hashlib

_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


def describe_artifact(target: str | os.PathLike[str], kind: str | None, name: str | None) -> ArtifactRecorded:
    """What can be said of a file, a folder or an address.

    A folder's checksum covers the names, sizes and contents of all files in it, in order of name. What cannot
    be read has a null size and says why. Takes as long as reading it does.
    """
    text = os.fspath(target)
    if _ADDRESS.match(text) and not text.startswith("file://"):
        label = name or text.rstrip("/").rpartition("/")[2] or text
        return ArtifactRecorded(
            name=bounded(label), uri=bounded(text), kind=kind, size_bytes=None, sha256=None
        )
    path = Path(text.removeprefix("file://")).absolute()
    facts: dict[str, Any] = {"size_bytes": None, "sha256": None}
    try:
        if path.is_dir():
            facts = _describe_folder(path)
        elif path.is_file() or not path.exists():
            facts = {"size_bytes": path.stat().st_size, "sha256": _digest(path).hexdigest()}
        else:
            facts["error"] = (
                f"neither a file nor a folder: {encodable(str(path))}"  # reading it might never end
            )
    except OSError as error:
        facts["error"] = f"{error.strerror or error}: {encodable(str(path))}"
    return ArtifactRecorded(name=encodable(name or path.name), uri=encodable(str(path)), kind=kind, **facts)


def _describe_folder(folder: Path) -> dict[str, Any]:
    import hashlib

    whole = hashlib.sha256()
    files = size = 0
    for path in _files(folder):
        files += 1
        length = path.stat().st_size
        size += length
        entry = f"{path.relative_to(folder).as_posix()}\0{length}\0{_digest(path).hexdigest()}\n"
        whole.update(entry.encode("utf-8", "surrogateescape"))
    return {"size_bytes": size, "sha256": whole.hexdigest(), "files": files}


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(base, name)
            if path.is_file():
                yield path


def _digest(path: Path) -> hashlib._Hash:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
