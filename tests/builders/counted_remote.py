"""A remote place in memory that counts what is asked of it, and fails where a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from flightlog.store.liveness import Observer, here
from flightlog.store.remote.copies import RemoteCopies
from flightlog.store.remote.upload import Synced, Uploader

ADDRESS = "counted://place/runs"


class CountedMemory(MemoryFileSystem):
    """As `memory://`, apart from it; `calls` counts by kind, `read` lists what was read, `broken` may
    raise."""

    protocol = "counted"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    calls: ClassVar[Counter[str]] = Counter()
    read: ClassVar[list[str]] = []
    read_bytes: ClassVar[int] = 0
    broken: ClassVar[Callable[[str, str], None] | None] = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("counted://"))

    def _ask(self, kind: str, path: str) -> None:
        CountedMemory.calls[kind] += 1
        if CountedMemory.broken is not None:
            CountedMemory.broken(kind, path)

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._ask("find", path)
        found = {
            name: {"name": name, "size": file.size, "type": "file", "created": file.created.timestamp()}
            for name, file in sorted(self.store.items())
            if name.startswith(f"{self._strip_protocol(path)}/")
        }
        return found if kwargs.get("detail") else list(found)

    def ls(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._ask("ls", path)
        return super().ls(path, *args, **kwargs)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        self._ask("read", path)
        data: bytes = (
            self.store[self._strip_protocol(path)].getvalue()[start:end] if self.exists(path) else b""
        )
        if not self.exists(path):
            raise FileNotFoundError(path)
        CountedMemory.read.append(path.removeprefix("/place/runs/"))
        CountedMemory.read_bytes += len(data)
        return data

    def forget(self) -> None:
        """Count from here on."""
        CountedMemory.calls.clear()
        CountedMemory.read.clear()
        CountedMemory.read_bytes = 0


def empty_place() -> CountedMemory:
    """The place as it is before anybody has written to it."""
    fsspec.register_implementation("counted", CountedMemory, clobber=True)
    CountedMemory.store.clear()
    CountedMemory.pseudo_dirs[:] = [""]
    CountedMemory.broken = None
    place = CountedMemory()
    place.forget()
    return place


def sync(run: Path, address: str = ADDRESS, *, observer: Observer | None = None) -> Synced:
    """Copy a run as `flightlog sync` does, at the moment of `observer`."""
    return Uploader(
        run, RemoteCopies.open(address), now=here if observer is None else lambda: observer
    ).sync()


def copy_plainly(run: Path, place: CountedMemory) -> None:
    """Copy a run as any other tool would: without notes."""
    for file in run.rglob("*"):
        if file.is_file():
            place.pipe_file(f"/place/runs/{run.name}/{file.relative_to(run).as_posix()}", file.read_bytes())
