from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from builders.runs import at
from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import Metric
from flightlog.events.codec import encode_line
from flightlog.store import layout
from flightlog.store.documents import RecorderInfo, read_document, write_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer
from flightlog.store.run import Run
from flightlog.store.write import finalize
from flightlog.store.write.finalize import finalizing, order_tasks, seal

OWNER, CHILD = "0c0c0c0c", "0d0d0d0d"
RUN_ID = "run-20260520T035200Z-demo-a1b2c3d4"
HERE = Observer(now=1_790_000_000.0, host="here", process_started=lambda _pid: None)


def line(writer: str, seq: int, stream: str = "") -> bytes:
    return encode_line(
        Metric(timestamp=at(seq), writer=writer, seq=seq, name=f"loss{stream}", value=float(seq))
    )


def tail(*lines: bytes) -> bytes:
    return b"".join(lines).ljust(2048, b"\0")


def nobody(_info: WriterInfo) -> bool:
    return False


def make(folder: Path, files: dict[str, bytes], *, child_closed: bool = True) -> Path:
    """A run directory as its processes left it."""
    path = folder / RUN_ID
    for place, content in files.items():
        file = path / place.format(owner=f"segments/{OWNER}", child=f"segments/{CHILD}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    path.mkdir(exist_ok=True)
    info = RunInfo(
        run_id=RUN_ID, project="demo", status="completed", start_time=at(0), pid=1, host="here", writer=OWNER
    )
    write_document(path / layout.RUN, info)
    for writer, closed in ((OWNER, True), (CHILD, child_closed)):
        target = layout.writer_folder(path, writer)
        target.mkdir(parents=True, exist_ok=True)
        write_document(target / layout.WRITER, writer_info(writer, closed))
    return path


def writer_info(writer: str, closed: bool = True, died: bool = False) -> WriterInfo:
    pid = 1 if writer == OWNER else 2
    return WriterInfo(
        writer=writer, pid=pid, host="here", closed=closed, died=died, owner=writer == OWNER, started=at(pid)
    )


def numbers(path: Path, stream: str = "metrics") -> list[tuple[str, int]]:
    return sorted((event.writer, event.seq) for event in Run(path, observer=HERE).events(stream))


def folders(path: Path) -> list[str]:
    """The writers whose folders are there."""
    return sorted(folder.name for folder in (path / layout.SEGMENTS).iterdir() if folder.is_dir())


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


LEFT = {
    "metrics.jsonl": line(OWNER, 2) + line(OWNER, 3) + line(OWNER, 4)[:40],
    "{owner}/metrics-000001.jsonl": line(OWNER, 0) + line(OWNER, 1),
    "{owner}/metrics.tail-a": tail(line(OWNER, 3), line(OWNER, 4)),
    "{owner}/metrics.tail-b": tail(line(OWNER, 5)),
    "{child}/metrics-000001.jsonl": line(CHILD, 0),
    "{child}/metrics-000002.jsonl": line(CHILD, 1),
    "{child}/metrics.jsonl": line(CHILD, 2) + line(CHILD, 3)[:-1],
    "{child}/metrics.tail-a": tail(),
    "{child}/metrics.tail-b": tail(line(CHILD, 3), line(CHILD, 4)),
    "{child}/events.jsonl": line(CHILD, 0, "e"),
    "{child}/events.tail-a": tail(line(CHILD, 0, "e")),
    "{child}/.writer.json.2-00000000.tmp": b"{",
}
SEALED = {
    "metrics.jsonl": b"".join(
        [line(OWNER, seq) for seq in (2, 3, 4, 5, 0, 1)] + [line(CHILD, seq) for seq in range(5)]
    ),
    "events.jsonl": line(CHILD, 0, "e"),
}


def test_everything_a_killed_run_left_stands_in_the_top_level_files_once(tmp_path):
    path = make(tmp_path, LEFT)
    assert seal(path, writers_alive=nobody) is None
    found = content(path)
    assert {name: found[name] for name in SEALED} == SEALED
    assert found.keys() == {*SEALED, layout.RUN, layout.RECORDER}
    assert not (path / layout.SEGMENTS).exists()
    assert read_document(path / layout.RECORDER, RecorderInfo).value == RecorderInfo(
        writers=[writer_info(OWNER), writer_info(CHILD)]
    )


def test_sealing_again_changes_nothing(tmp_path):
    path = make(tmp_path, LEFT)
    seal(path, writers_alive=nobody)
    before = content(path)
    assert seal(path, writers_alive=nobody) is None
    assert content(path) == before


def test_a_seal_cut_off_after_any_step_loses_nothing_and_ends_the_same(tmp_path):
    steps: list[str] = []
    seal(make(tmp_path / "whole", LEFT), writers_alive=nobody, step=steps.append)
    expected = content(tmp_path / "whole" / RUN_ID)
    assert len(steps) > 15
    for stop in range(len(steps)):
        path = make(tmp_path / str(stop), LEFT)
        before = numbers(path)
        with pytest.raises(KeyboardInterrupt):
            seal(path, writers_alive=nobody, step=stop_after(stop))
        assert numbers(path) == before, steps[stop]
        again = 0
        while True:  # and cut off again and again, until it gets through
            try:
                seal(path, writers_alive=nobody, step=stop_after(again))
                break
            except KeyboardInterrupt:
                again += 1
        assert content(path) == expected, steps[stop]


def stop_after(stop: int):
    remaining = stop

    def step(_done: str) -> None:
        nonlocal remaining
        if remaining == 0:
            raise KeyboardInterrupt
        remaining -= 1

    return step


@given(st.data())
def test_a_copy_cut_off_at_any_byte_is_done_again(data):
    """The planned file was copied in part when the power went: the plan writes the same bytes again."""
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder), LEFT)
        with pytest.raises(KeyboardInterrupt):
            seal(path, writers_alive=nobody, step=until("planned"))
        planned = read_document(path / layout.SEGMENTS / finalize.PLAN, finalize.FoldPlan).value
        assert planned is not None
        whole = SEALED["metrics.jsonl"]
        first = next(move.offset for move in planned.moves if move.stream == "metrics")
        cut = data.draw(st.integers(first, len(whole)))
        (path / "metrics.jsonl").write_bytes(whole[:cut])
        before = [(OWNER, seq) for seq in range(6)] + [(CHILD, seq) for seq in range(5)]
        assert numbers(path) == before
        seal(path, writers_alive=nobody)
        assert (path / "metrics.jsonl").read_bytes() == whole


def until(name: str):
    def step(done: str) -> None:
        if done == name:
            raise KeyboardInterrupt

    return step


def test_a_plan_that_does_not_fit_is_dropped_and_nothing_is_lost(tmp_path):
    """Half a copy of a run that was being sealed: the top-level file is older than the plan."""
    path = make(tmp_path, LEFT)
    before = numbers(path)
    with pytest.raises(KeyboardInterrupt):
        seal(path, writers_alive=nobody, step=until("planned"))
    with (path / "metrics.jsonl").open("ab") as out:
        out.write(b'{"event":"metric","name":"x","value":null}\n' * 100)
    seal(path, writers_alive=nobody)
    assert [number for number in numbers(path) if number[0]] == before
    assert not (path / layout.SEGMENTS).exists()


def test_a_writer_that_lives_is_left_alone(tmp_path):
    path = make(tmp_path, LEFT, child_closed=False)
    mine = {name: data for name, data in content(path).items() if CHILD in name}
    assert seal(path, writers_alive=lambda info: info.writer == CHILD) is None
    assert folders(path) == [CHILD]
    assert {name: data for name, data in content(path).items() if CHILD in name} == mine
    assert numbers(path) == [(OWNER, seq) for seq in range(6)] + [(CHILD, seq) for seq in range(5)]
    assert seal(path, writers_alive=nobody) is None
    assert (path / "metrics.jsonl").read_bytes() == SEALED["metrics.jsonl"]
    writers = read_document(path / layout.RECORDER, RecorderInfo).value
    assert writers == RecorderInfo(writers=[writer_info(OWNER), writer_info(CHILD, died=True)])


def test_nothing_is_touched_while_the_owner_lives(tmp_path):
    path = make(tmp_path, LEFT)
    write_document(layout.writer_folder(path, OWNER) / layout.WRITER, writer_info(OWNER, closed=False))
    before = content(path)
    assert seal(path, writers_alive=lambda info: info.writer == OWNER) is None
    assert content(path) == before


def test_a_folder_without_writer_json_is_left_alone_unless_it_is_the_owners(tmp_path):
    path = make(tmp_path, LEFT)
    for writer in (OWNER, CHILD):
        (layout.writer_folder(path, writer) / layout.WRITER).unlink()
    assert seal(path, writers_alive=nobody) is None
    assert folders(path) == [CHILD]
    assert numbers(path) == [(OWNER, seq) for seq in range(6)] + [(CHILD, seq) for seq in range(5)]


def test_files_that_are_not_ours_are_kept(tmp_path):
    path = make(tmp_path, {**LEFT, "{child}/core.77": b"dump"})
    assert seal(path, writers_alive=nobody) is None
    assert folders(path) == [CHILD]
    assert (layout.writer_folder(path, CHILD) / "core.77").read_bytes() == b"dump"
    assert (path / "metrics.jsonl").read_bytes() == SEALED["metrics.jsonl"]


def test_a_torn_line_that_stands_nowhere_whole_is_kept_apart(tmp_path):
    torn = line(OWNER, 1)[:30]
    path = make(tmp_path, {"metrics.jsonl": line(OWNER, 0) + torn, "{child}/metrics.jsonl": line(CHILD, 0)})
    seal(path, writers_alive=nobody)
    assert (path / "metrics.jsonl").read_bytes() == line(OWNER, 0) + torn + b"\n" + line(CHILD, 0)


def test_only_one_process_seals_at_a_time(tmp_path):
    path = make(tmp_path, LEFT)
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with finalizing(path) as alone:
            assert not alone
    finally:
        os.close(fd)
    with finalizing(path) as alone:
        assert alone


def test_a_disk_that_refuses_is_a_problem_and_no_loss(tmp_path):
    path = make(tmp_path, LEFT)
    before = numbers(path)

    def refuse(done: str) -> None:
        if done.startswith("copied"):
            raise OSError(28, "No space left on device")

    assert seal(path, writers_alive=nobody, step=refuse) == "No space left on device"
    assert numbers(path) == before
    assert seal(path, writers_alive=nobody) is None
    assert (path / "metrics.jsonl").read_bytes() == SEALED["metrics.jsonl"]


def test_files_are_copied_the_same_without_help_from_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(StoreLimits, "finalize_chunk_bytes", 7)
    monkeypatch.setattr(StoreLimits, "finalize_sync_bytes", 100)
    for name in ("with", "without"):
        path = make(tmp_path / name, LEFT)
        if name == "without":
            monkeypatch.delattr(os, "copy_file_range", raising=False)
        seal(path, writers_alive=nobody)
        assert (path / "metrics.jsonl").read_bytes() == SEALED["metrics.jsonl"]


@given(st.data())
def test_whatever_is_strewn_about_a_seal_keeps_every_event_once(data):
    places = {
        OWNER: ["metrics.jsonl", "{owner}/metrics-000001.jsonl", "{owner}/metrics.tail-a"],
        CHILD: ["{child}/metrics-000001.jsonl", "{child}/metrics.jsonl", "{child}/metrics.tail-b"],
    }
    files: dict[str, bytes] = {}
    for writer, where in places.items():
        for seq in range(data.draw(st.integers(0, 8))):
            for place in data.draw(st.lists(st.sampled_from(where), max_size=2, unique=True)):
                files[place] = files.get(place, b"") + line(writer, seq)
    for place in files:
        if "tail" not in place and data.draw(st.booleans()):
            files[place] += line(OWNER, 99)[: data.draw(st.integers(1, 60))]
    files = {place: tail(text) if "tail" in place else text for place, text in files.items()}
    folder = Path(tempfile.mkdtemp())
    try:
        path = make(folder, files)
        before = numbers(path)
        assert seal(path, writers_alive=nobody) is None
        assert numbers(path) == before
        text = (path / "metrics.jsonl").read_bytes() if (path / "metrics.jsonl").exists() else b""
        assert text.endswith(b"\n") or text == files.get("metrics.jsonl", b"")  # nothing was to be added
        assert not (path / layout.SEGMENTS).exists()
    finally:
        shutil.rmtree(folder)


def test_lines_of_tasks_are_put_in_order_of_time_and_each_is_kept(tmp_path):
    file = tmp_path / "tasks.jsonl"
    ends = [line(OWNER, seq) for seq in (1, 3, 5)]
    starts = [line(CHILD, seq) for seq in (0, 2, 4)]
    file.write_bytes(b"".join([*ends, b"no line of ours\n", *starts, b'{"torn']))
    order_tasks(tmp_path)
    both = [each for pair in zip(starts, ends, strict=True) for each in pair]
    assert file.read_bytes() == b"".join([*both, b"no line of ours\n", b'{"torn'])
    inode = file.stat().st_ino
    order_tasks(tmp_path)
    assert file.stat().st_ino == inode
    order_tasks(tmp_path / "nothing")


def test_lines_of_one_process_stay_in_their_order_where_its_clock_was_set_back(tmp_path):
    file = tmp_path / "tasks.jsonl"
    steps = [
        line(OWNER, seq).replace(b'"seq":%d' % seq, b'"seq":%d' % at) for at, seq in enumerate((1, 4, 2))
    ]
    file.write_bytes(b"".join([*steps, line(CHILD, 3), line(CHILD, 5)]))
    order_tasks(tmp_path)
    assert file.read_bytes() == b"".join([steps[0], line(CHILD, 3), *steps[1:], line(CHILD, 5)])
