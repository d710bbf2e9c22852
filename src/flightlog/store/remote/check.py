"""Whether a remote copy still is what it should be: every object read again, and held against note and run
directory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import Struct

from flightlog.core.errors import RemoteError
from flightlog.store.liveness import Observer
from flightlog.store.read.lines import read_tail
from flightlog.store.remote.copies import Remote
from flightlog.store.remote.local import has_settled, list_files
from flightlog.store.remote.objects import file_chunks


class RemoteCheck(Struct, frozen=True, kw_only=True):
    """What came of reading a remote copy again."""

    run_id: str
    address: str
    files: int
    bytes: int
    problems: tuple[str, ...]
    """Sentences; none where all is as it should be."""
    broken: tuple[str, ...] = ()
    """The files that they are about, by their paths: what `Uploader.sync` should send again."""


def check_copy(run: Path | None, run_id: str, remote: Remote, observer: Observer) -> RemoteCheck:
    """Read a copy again, in bounded memory. Of a run that has ended each file is also held against the one
    here.

    `run` is None where there is nothing here to compare with. Raises `RemoteError` where the place does not
    answer.
    """
    broken: dict[str, str] = {}
    digests: dict[str, str] = {}
    files = remote.files(run_id)
    for file in files:
        digest = hashlib.sha256()
        try:
            for chunk in remote.chunks(run_id, file):
                digest.update(chunk)
        except RemoteError as error:
            if error.kind not in {"gone", "changed"}:
                raise
            broken[file.path] = str(error)
            continue
        digests[file.path] = digest.hexdigest()
    if run is not None and has_settled(run, observer):
        broken = {**_differences(run, digests), **broken}
    problems = [f"{path}: {why}" for path, why in sorted(broken.items())]
    if not files and (run is None or list_files(run)):
        problems = ["nothing of it is there"]
    return RemoteCheck(
        run_id=run_id,
        address=remote.address,
        files=len(files),
        bytes=sum(file.size for file in files),
        problems=tuple(problems),
        broken=tuple(sorted(broken)),
    )


def _differences(run: Path, there: dict[str, str]) -> dict[str, str]:
    """What differs between a run that has ended and its copy, by path."""
    found: dict[str, str] = {}
    for file in list_files(run, settled=True):
        if file.kind == "tail":
            data = read_tail(run / file.path)
            if not data:
                continue
            here = hashlib.sha256(data)
        else:
            here = hashlib.sha256()
            with (run / file.path).open("rb") as source:
                for chunk in file_chunks(source, 0, file.size):
                    here.update(chunk)
        if there.get(file.path) != here.hexdigest():
            found[file.path] = "it is not the same there as here" if file.path in there else "it is not there"
    return found
