"""Whatever the order of recording, uploading, reading and closing: a reader sees every line once, as of the
last upload."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from builders.counted_remote import ADDRESS, CountedMemory, empty_place, sync
from builders.runs import at, make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.core.errors import RemoteError
from flightlog.events import TaskSubmitted
from flightlog.store import layout
from flightlog.store.completing import open_run
from flightlog.store.liveness import Observer

OBSERVER = Observer(now=1779249130.0, host="here")  # at(10): the run's heartbeat is five seconds old
STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(["w0000001", "w0000002"]), st.integers(1, 40)),
    st.tuples(st.just("rotate")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("read")),
    st.tuples(st.just("forget")),
)


class Recording:
    """A run of two writers, the owner with the run's own files, as they stand while it goes on."""

    def __init__(self, folder: Path) -> None:
        self.path = make_run(
            folder,
            [],
            status="running",
            end_time=None,
            duration_s=None,
            host="elsewhere",
            heartbeat=at(5),
            writer="w0000001",
        )
        self.numbers = {"w0000001": 0, "w0000002": 0}
        self.rotated = 0
        self.lines: list[tuple[str, int]] = []

    def file(self, writer: str) -> Path:
        if writer == "w0000001":
            return layout.stream_file(self.path, "tasks")
        folder = layout.writer_folder(self.path, writer)
        folder.mkdir(parents=True, exist_ok=True)
        return layout.stream_file(folder, "tasks")

    def add(self, writer: str, count: int) -> None:
        with self.file(writer).open("ab") as out:
            for _ in range(count):
                seq = self.numbers[writer]
                self.numbers[writer] += 1
                event = TaskSubmitted(timestamp=at(1), task="sim", task_id=f"{writer}-{seq}", args={})
                event.writer, event.seq = writer, seq
                out.write(msgspec.json.encode(event) + b"\n")
                self.lines.append((writer, seq))

    def rotate(self) -> None:
        file = self.file("w0000002")
        if file.exists():
            self.rotated += 1
            file.rename(layout.rotated_file(file.parent, "tasks", self.rotated))

    def close(self) -> None:
        parts = sorted((self.path / layout.SEGMENTS).rglob("*.jsonl")) if self.rotated or self.numbers else []
        with self.file("w0000001").open("ab") as out:
            for part in parts:
                out.write(part.read_bytes())
        shutil.rmtree(self.path / layout.SEGMENTS, ignore_errors=True)
        info: dict[str, Any] = msgspec.json.decode((self.path / layout.RUN).read_bytes())
        info |= {"status": "completed", "end_time": at(9)}
        (self.path / layout.RUN).write_bytes(msgspec.json.encode(info))


def lines_there() -> list[tuple[str, int]]:
    run = open_run("latest", runs_dir=ADDRESS, observer=OBSERVER)
    assert run.problems == ()
    return sorted((event.writer, event.seq) for event in run.events("tasks"))


@settings(max_examples=20)
@given(st.lists(STEPS, max_size=25))
def test_a_reader_sees_every_line_that_was_uploaded_once(steps: list[tuple[Any, ...]]) -> None:
    place = empty_place()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLIGHTLOG_REMOTE_CACHE"] = f"{folder}/copies"
        try:
            recording = Recording(Path(folder, "runs"))
            sync(recording.path, observer=OBSERVER)
            uploaded: list[tuple[str, int]] = []
            for step, *how in steps:
                if step == "add":
                    recording.add(*how)
                elif step == "rotate":
                    recording.rotate()
                elif step == "sync":
                    sync(recording.path, observer=OBSERVER)
                    uploaded = sorted(recording.lines)
                elif step == "cut":
                    cut_short(*how)
                elif step == "forget":
                    shutil.rmtree(f"{folder}/copies", ignore_errors=True)
                    os.environ["FLIGHTLOG_REMOTE_CACHE"] = tempfile.mkdtemp(dir=folder)
                else:
                    assert lines_there() == uploaded
            recording.close()
            sync(recording.path)
            assert lines_there() == sorted(recording.lines)
            before = dict(place.calls)
            assert lines_there() == sorted(recording.lines)
            assert {
                kind: n - before.get(kind, 0) for kind, n in place.calls.items() if n != before.get(kind)
            } == {"find": 1}
        finally:
            del os.environ["FLIGHTLOG_REMOTE_CACHE"]


def cut_short(after: int) -> None:
    """Read, and lose the remote after so many requests."""
    left = after

    def broken(kind: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PermissionError("taken away")

    CountedMemory.broken = broken
    try:
        open_run("latest", runs_dir=ADDRESS, observer=OBSERVER, note=lambda message: None)
    except RemoteError:
        pass
    finally:
        CountedMemory.broken = None
