"""The writer of one stream: what it took is readable at every moment, whatever the disk does."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from flightlog.store.limits import StoreLimits
from flightlog.store.write.stream import StreamWriter
from flightlog.store.write.tail import SIZE, MappedTail


class Disk:
    """The system's write, until it is told to refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if self.room is None:
            return self._write(fd, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._write(fd, bytes(data)[: self.room])
        self.room -= done
        return done


class Now:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def line(number: int, size: int = 100) -> bytes:
    return b"%08d" % number + b"x" * (size - 9) + b"\n"


def append(writer: StreamWriter, data: bytes) -> None:
    """What the recorder does with a line."""
    writer.number()
    try:
        writer.put(data)
    except ValueError:
        writer.overflow(data)


def on_disk(folder: Path) -> list[int]:
    """The numbers of the whole lines in the files and tails, each once, in order."""
    found: set[int] = set()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        if ".tail-" in path.name:
            content = content.partition(b"\0")[0]
        for piece in content.split(b"\n"):
            if len(piece) >= 90 and piece[:8].isdigit():
                found.add(int(piece[:8]))
    return sorted(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "w"


def make(folder: Path, **options: object) -> StreamWriter:
    return StreamWriter(folder / "spans.jsonl", folder, "spans", **options)  # type: ignore[arg-type]


def test_a_line_is_on_disk_as_soon_as_it_was_taken(folder):
    writer = make(folder)
    for i in range(3000):
        append(writer, line(i))
        if i % 500 == 0:
            assert on_disk(folder) == list(range(i + 1))
    assert on_disk(folder) == list(range(3000))
    writer.close()
    assert (folder / "spans.jsonl").read_bytes() == b"".join(line(i) for i in range(3000))
    assert [p.name for p in folder.iterdir()] == ["spans.jsonl"]
    assert (writer.lost, writer.lines) == (0, 3000)


def test_many_threads_lose_and_tear_nothing(folder):
    writer = make(folder)

    def work(base):
        for i in range(5000):
            append(writer, line(base + i))

    threads = [threading.Thread(target=work, args=(t * 5000,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    lines = (folder / "spans.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(lines) == [line(i) for i in range(40_000)]


def test_flushing_while_others_write_loses_nothing(folder):
    writer = make(folder)
    stop = threading.Event()

    def flush():
        while not stop.is_set():
            writer.flush()
            writer.sync()

    flusher = threading.Thread(target=flush)
    flusher.start()
    for i in range(20_000):
        append(writer, line(i))
    stop.set()
    flusher.join()
    writer.close()
    assert sorted((folder / "spans.jsonl").read_bytes().splitlines(keepends=True)) == [
        line(i) for i in range(20_000)
    ]


def test_a_line_larger_than_a_tail_goes_straight_to_the_file(folder):
    writer = make(folder)
    append(writer, line(0))
    append(writer, line(1, SIZE + 1))
    append(writer, line(2))
    writer.close()
    assert (folder / "spans.jsonl").read_bytes() == line(0) + line(1, SIZE + 1) + line(2)


@pytest.mark.parametrize("room", [0, 1, 50, 100, 30_000, SIZE, SIZE + 77])
def test_a_full_disk_costs_only_what_memory_cannot_hold_and_writing_resumes(folder, monkeypatch, room):
    clock = Now()
    troubles: list[tuple[str, str]] = []
    writer = make(folder, clock=clock, on_trouble=lambda *told: troubles.append(told))
    append(writer, line(0))
    disk = Disk(monkeypatch)
    disk.room = room
    for i in range(1, 20_000):
        append(writer, line(i))
    assert writer.lost > 0
    held = writer.lines - writer.lost
    assert held * 100 <= room + 2 * SIZE + StoreLimits.max_backlog_bytes + 100
    assert set(writer.reasons) == {os.strerror(errno.ENOSPC)}
    assert {kind for kind, _ in troubles} == {os.strerror(errno.ENOSPC)}

    disk.room = None
    clock.now += 1
    writer.flush()
    append(writer, line(99_999))
    writer.close()
    lines = (folder / "spans.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == held + 1
    assert all(len(found) == 100 and found.endswith(b"x\n") for found in lines)  # nothing torn
    assert len(set(lines)) == len(lines)  # nothing doubled
    assert lines[-1] == line(99_999)
    assert writer.lost == 19_999 - (held - 1)


def test_memory_is_bounded_while_the_disk_refuses(folder, monkeypatch):
    import tracemalloc

    disk = Disk(monkeypatch)
    writer = make(folder, clock=Now())
    append(writer, line(0))
    disk.room = 0
    tracemalloc.start()
    for i in range(50_000):
        append(writer, line(i))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * StoreLimits.max_backlog_bytes


def test_what_stands_in_the_tails_of_a_full_disk_stays_there_at_the_end(folder, monkeypatch):
    writer = make(folder, clock=Now())
    append(writer, line(0))
    Disk(monkeypatch).room = 0
    append(writer, line(1))
    writer.close()
    assert on_disk(folder) == [0, 1]


def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path):
    clock = Now()
    (tmp_path / "blocked").write_text("a file where the folder should be")
    folder = tmp_path / "blocked" / "w"
    troubles: list[tuple[str, str]] = []
    writer = make(folder, clock=clock, on_trouble=lambda *told: troubles.append(told))
    append(writer, line(0))
    assert len(troubles) == 1
    (tmp_path / "blocked").unlink()
    append(writer, line(1))  # too early: it waits
    assert not folder.exists()
    clock.now += 1
    append(writer, line(2))
    writer.close()
    assert sorted((folder / "spans.jsonl").read_bytes().splitlines(keepends=True)) == [
        line(i) for i in range(3)
    ]
    assert writer.lost == 0


def test_no_descriptors_left_is_survived(folder):
    import resource

    clock = Now()
    writer = make(folder, clock=clock)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(len(taken) - 1, 3), hard))
    try:
        append(writer, line(0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    clock.now += 1
    append(writer, line(1))
    writer.close()
    assert on_disk(folder) == [0, 1]


def test_a_file_removed_under_us_is_written_again_in_full(folder):
    import shutil

    writer = make(folder)
    for i in range(2000):
        append(writer, line(i))
    shutil.rmtree(folder)
    for i in range(2000, 2100):
        append(writer, line(i))
    writer.check()
    for i in range(2100, 4000):
        append(writer, line(i))
    writer.close()
    assert sorted((folder / "spans.jsonl").read_bytes().splitlines(keepends=True)) == [
        line(i) for i in range(4000)
    ]


def test_only_the_file_removed_is_written_again_too(folder):
    writer = make(folder)
    append(writer, line(0))
    (folder / "spans.jsonl").unlink()
    writer.check()
    append(writer, line(1))
    writer.close()
    assert (folder / "spans.jsonl").read_bytes() == line(0) + line(1)


def test_a_file_that_grew_to_its_full_size_is_put_aside(folder):
    writer = make(folder, rotate_bytes=100_000)
    for i in range(5000):
        append(writer, line(i))
    writer.close()
    names = sorted(p.name for p in folder.iterdir())
    assert names[:2] == ["spans-000001.jsonl", "spans-000002.jsonl"]
    assert names[-1] == "spans.jsonl"
    assert on_disk(folder) == list(range(5000))
    assert all(p.stat().st_size <= 100_000 + 2 * SIZE for p in folder.iterdir())


def test_a_line_after_the_end_is_counted(folder):
    writer = make(folder)
    append(writer, line(0))
    writer.close()
    append(writer, line(1))
    writer.close()
    assert (writer.lost, writer.reasons) == (1, {"recorded after the run had closed": 1})


def test_without_mappable_files_each_line_is_written_by_itself(folder, monkeypatch):
    def no_mmap(*_args, **_kwargs):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr("flightlog.store.write.tail.map_file", no_mmap)
    writer = make(folder)
    for i in range(10):
        append(writer, line(i))
        assert on_disk(folder) == list(range(i + 1))
    writer.close()
    assert [p.name for p in folder.iterdir()] == ["spans.jsonl"]


def test_a_tail_refuses_what_does_not_fit_and_keeps_what_it_has(tmp_path):
    tail = MappedTail(tmp_path / "t")
    tail.put(b"a" * (SIZE - 10))
    with pytest.raises(ValueError, match="range"):
        tail.put(b"b" * 11)
    tail.put(b"c" * 10)
    out = bytearray()

    def write(data: memoryview) -> int:
        out.extend(data[:50_000])
        return len(data[:50_000])

    tail.drain(write)
    assert tail.empty()
    assert out == b"a" * (SIZE - 10) + b"c" * 10


class Struck(Exception):
    pass


def test_an_exception_that_strikes_inside_the_writer_stops_nothing(folder):
    """As a signal handler's exception, or Ctrl-C, may at any instruction."""
    writer = make(folder)
    taken = 0
    for at in range(400):
        steps = iter(range(at))

        def strike(frame, event, arg, steps=steps):
            if frame.f_globals["__name__"].startswith("flightlog.store") and next(steps, None) is None:
                sys.settrace(None)
                raise Struck
            return strike

        before = sys.gettrace()
        sys.settrace(strike)
        try:
            for _ in range(700):
                append(writer, line(taken))
                taken += 1
        except Struck:
            pass
        finally:
            sys.settrace(before)
        taken += 1  # the struck line may or may not have been taken
    for i in range(2000):
        append(writer, line(1_000_000 + i))
    writer.close()
    found = on_disk(folder)
    assert [n for n in found if n >= 1_000_000] == list(range(1_000_000, 1_002_000))
    assert len([n for n in found if n < 1_000_000]) >= taken - 400 - 1


def test_threads_that_write_while_the_file_vanishes_lose_nothing(folder):
    import shutil

    writer = make(folder)
    stop = threading.Event()
    counts = [0] * 4

    def work(t):
        while not stop.is_set():
            append(writer, line(t * 10_000_000 + counts[t]))
            counts[t] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(10):
            target = sum(counts) + 2000
            while sum(counts) < target:
                pass
            shutil.rmtree(folder, ignore_errors=True)
            writer.check()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    writer.check()
    writer.close()
    found = (folder / "spans.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(found) == sorted(line(t * 10_000_000 + i) for t in range(4) for i in range(counts[t]))


def test_a_disk_that_fills_up_while_a_removed_file_is_restored_costs_nothing(folder, monkeypatch):
    clock = Now()
    writer = make(folder, clock=clock)
    for i in range(5000):
        append(writer, line(i))
    writer.flush()
    (folder / "spans.jsonl").unlink()
    disk = Disk(monkeypatch)
    disk.room = 100_050
    writer.check()
    append(writer, line(5000))
    disk.room = None
    clock.now += 1
    writer.close()
    assert sorted((folder / "spans.jsonl").read_bytes().splitlines(keepends=True)) == [
        line(i) for i in range(5001)
    ]
    assert writer.lost == 0


def test_a_rotation_whose_sync_fails_loses_nothing(folder, monkeypatch):
    def fail(_fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    writer = make(folder, rotate_bytes=100_000)
    for i in range(5000):
        append(writer, line(i))
        if i % 500 == 0:
            writer.sync()
    writer.close()
    assert on_disk(folder) == list(range(5000))


def test_a_slow_disk_is_left_to_the_pulse(folder, monkeypatch):
    """Once it has been slow, no writing thread writes to the disk until a flush has."""
    writer = make(folder, slow_s=0.05)
    append(writer, line(0))
    writes: list[str] = []
    real = os.write

    def slow(fd, data):
        writes.append(threading.current_thread().name)
        if len(writes) == 1:
            threading.Event().wait(0.1)
        return real(fd, data)

    monkeypatch.setattr(os, "write", slow)
    for i in range(1, 3000):
        append(writer, line(i))
    assert len(writes) == 1
    pulse = threading.Thread(target=writer.flush, name="pulse")
    pulse.start()
    pulse.join()
    assert set(writes[1:]) == {"pulse"}
    writer.close()
    assert len(on_disk(folder)) == 3000 - writer.lost
