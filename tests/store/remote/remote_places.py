"""Remote places in memory, that fail when they are told to; and runs that are written, copied and read
there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders.runs import at
from fsspec.implementations.memory import MemoryFileSystem

from flightlog.events import Metric
from flightlog.events.codec import encode_line
from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import Observer
from flightlog.store.remote.copies import RemoteCopies
from flightlog.store.remote.objects import Calls, Objects
from flightlog.store.remote.upload import Uploader
from flightlog.store.run import Run
from flightlog.store.write.finalize import seal
from flightlog.store.write.writer import RunWriter

RUN_ID = "run-20260520T035200Z-demo-a1b2c3d4"
HOST = "node-1"
NOW = 1_790_000_000.0


class Killed(BaseException):
    """The process that copies was killed in the middle of a call."""


Fault = Callable[[str, str], None]
"""Is told the call and the object's name before it is made, and may raise."""


class FaultyFileSystem(MemoryFileSystem):
    """Objects in memory of its own; `before` and `after` each writing, reading, listing or removing call may
    raise."""

    protocol = "faulty"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.calls: list[tuple[str, str]] = []
        self.before: Fault = lambda _call, _name: None
        self.after: Fault = lambda _call, _name: None

    def _call(self, call: str, name: str, make: Callable[[], Any]) -> Any:
        self.calls.append((call, name))
        self.before(call, name)
        made = make()
        self.after(call, name)
        return made

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> Any:
        return self._call("write", path, lambda: super(FaultyFileSystem, self).pipe_file(path, value))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        return self._call("read", path, lambda: super(FaultyFileSystem, self).cat_file(path, start, end))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return self._call("list", path, lambda: super(FaultyFileSystem, self).ls(path, detail))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, str) else path:
            self._call("remove", one, lambda one=one: super(FaultyFileSystem, self).rm_file(one))

    @property
    def objects(self) -> dict[str, bytes]:
        """All there is, by name from the run on."""
        return {
            name.removeprefix(f"/runs/{RUN_ID}/"): found.getvalue()
            for name, found in sorted(self.store.items())
        }


def place(filesystem: FaultyFileSystem, *, timeout_s: float = 30.0) -> RemoteCopies:
    """The place as a process sees it that has just begun; it asks once, and does not wait."""
    address = "s3://bucket/runs"
    calls = Calls(address, attempts=1, timeout_s=timeout_s, sleep=lambda _s: None)
    return RemoteCopies(Objects(filesystem, "/runs", address, calls))


class Writing:
    """A run that is being written, by its owner and another process, through the recorder's own files."""

    def __init__(self, runs_dir: Path, *, rotate_bytes: int = 1 << 30, host: str = HOST) -> None:
        self.path = runs_dir / RUN_ID
        self.path.mkdir(parents=True)
        self.alive = True
        self.written: set[tuple[str, int]] = set()
        self.info = RunInfo(
            run_id=RUN_ID,
            project="demo",
            status="running",
            start_time=at(0),
            pid=10,
            pid_start=1.0,
            host=host,
            writer="0c0c0c0c",
            heartbeat=at(0),
        )
        self.writers = {
            name: RunWriter(
                self.path,
                WriterInfo(writer=name, pid=pid, pid_start=1.0, host=host, owner=pid == 10, started=at(0)),
                rotate_bytes=rotate_bytes,
            )
            for name, pid in (("0c0c0c0c", 10), ("0d0d0d0d", 11))
        }
        self._beats = 0
        self.beat()

    def observer(self) -> Observer:
        return Observer(now=NOW, host=HOST, process_started=lambda _pid: 1.0 if self.alive else None)

    def write(self, writer: str = "0c0c0c0c", lines: int = 1, size: int = 10) -> None:
        """Record so many lines, which stand in the tail at first."""
        stream = self.writers[writer].stream("metrics")
        for _ in range(lines):
            seq = stream.number()
            line = encode_line(Metric(timestamp=at(1), writer=writer, seq=seq, name="m" * size, value=1.0))
            try:
                stream.put(line)
            except ValueError:
                stream.overflow(line)
            self.written.add((writer, seq))

    def flush(self) -> None:
        for writer in self.writers.values():
            writer.flush()

    def beat(self) -> None:
        self._beats += 1
        self.info.heartbeat = at(self._beats)
        write_document(self.path / layout.RUN, self.info)
        for writer in self.writers.values():
            writer.save()

    def kill(self) -> None:
        """All processes of the run are gone, and what they had recorded stands in tails and files."""
        self.alive = False
        for writer in self.writers.values():
            writer.abandon()

    def close(self) -> None:
        """The run ends as it should."""
        for writer in self.writers.values():
            writer.close()
            writer.info.closed = True
            writer.save()
        self.seal()

    def seal(self) -> None:
        self.alive = False
        assert seal(self.path, writers_alive=lambda _info: False) is None
        self.info.status, self.info.end_time = "completed", at(9)
        write_document(self.path / layout.RUN, self.info)

    def uploader(self, remote: RemoteCopies, **options: Any) -> Uploader:
        return Uploader(self.path, remote, now=self.observer, **options)


def read_back(remote: RemoteCopies, stream: str = "metrics") -> list[tuple[str, int]]:
    """The events that a reader of the place gets, each as often as it gets it."""
    with tempfile.TemporaryDirectory() as folder:
        path = fetch_all(remote, Path(folder))
        return sorted((event.writer, event.seq) for event in Run(path).events(stream))


def fetch_all(remote: RemoteCopies, folder: Path) -> Path:
    """The run as a reader has it on a disk."""
    path = folder / RUN_ID
    path.mkdir()
    for file in remote.files(RUN_ID):
        remote.fetch(RUN_ID, file, path / file.path)
    return path
