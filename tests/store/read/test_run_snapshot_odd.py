"""A copy of a running run as of one moment, where clocks, files or names are odd."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from builders.runs import make_run

from flightlog.events import Event, Metric, SpanEvent
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.layout import WriterInfo
from flightlog.store.read.snapshot import held_still
from flightlog.store.run import Run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="copies are held by locks of the kernel")


def stamp(seconds: float) -> str:
    """So many seconds from now."""
    return f"{datetime.fromtimestamp(time.time() + seconds, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def metric(seconds: float) -> Metric:
    return Metric(timestamp=stamp(seconds), name="loss", value=seconds)


def running_run(folder: Path, events: list[Event]) -> Path:
    """A run that is being written elsewhere."""
    path = make_run(
        folder / "runs",
        events,
        recorder=False,
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=stamp(0),
    )
    later = time.time() + 60
    for file in path.glob("*.jsonl"):
        os.utime(file, (later, later))  # as they are just being written to
    return path


def copied(path: Path, folder: Path) -> dict[str, int]:
    """How many lines of each stream the copy has, which is said to lack and to have twice none of them."""
    notes: list[str] = []
    with held_still(Run(path), note=notes.append, folder=folder) as still:
        assert (notes, still.home, still.path != path) == ([], path, True)
        whole = still.completeness()
        assert (whole.lost, whole.doubled) == ({}, 0)
        return {stream: len(list(still.events(stream))) for stream in still.streams()}


def test_a_run_that_is_named_by_two_dots_is_copied_and_what_else_is_temporary_stays(tmp_path: Path) -> None:
    path = running_run(tmp_path, [metric(-60)])
    (path / layout.SEGMENTS).mkdir()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / "of others").write_text("precious")
    assert copied(path / layout.SEGMENTS / "..", temporary) == {"metrics": 1}
    assert [found.name for found in temporary.iterdir()] == ["of others"]


def test_what_began_long_ago_and_ends_after_the_moment_takes_nothing_else_with_it(tmp_path: Path) -> None:
    path = running_run(
        tmp_path,
        [
            *(metric(-seconds) for seconds in range(100, 0, -1)),
            SpanEvent(
                timestamp=stamp(1), name="short", duration_s=0.0
            ),  # after the moment, and all behind it
            SpanEvent(timestamp=stamp(-89), name="long", duration_s=90.0),
            SpanEvent(timestamp=stamp(-95), name="of an account", duration_s=1.0),
        ],
    )
    assert copied(path, tmp_path)["metrics"] == 100


@pytest.mark.parametrize("wrong_s", [-3600.0, 3600.0])
def test_a_writer_whose_clock_goes_wrong_is_read_whole(tmp_path: Path, wrong_s: float) -> None:
    path = running_run(tmp_path, [metric(wrong_s + seconds) for seconds in range(10)])
    assert copied(path, tmp_path) == {"metrics": 10}


def test_lines_that_go_from_tail_to_file_meanwhile_do_not_stand_twice(tmp_path: Path) -> None:
    path = running_run(tmp_path, [metric(-3), metric(-2)])
    folder = layout.writer_folder(path, "w0000001")
    folder.mkdir(parents=True)
    lines = layout.stream_file(path, "metrics").read_bytes()
    layout.tail_file(folder, "metrics", "a").write_bytes(lines + bytes(100))
    assert copied(path, tmp_path) == {"metrics": 2}


def test_lines_after_the_moment_are_not_lost(tmp_path: Path) -> None:
    path = running_run(tmp_path, [metric(-1), metric(1)])
    folder = layout.writer_folder(path, "w0000001")
    folder.mkdir(parents=True)
    said = WriterInfo(writer="w0000001", pid=1, host="elsewhere", heartbeat=stamp(0), lines={"metrics": 2})
    write_document(folder / layout.WRITER, said)
    assert copied(path, tmp_path)["metrics"] >= 1
    assert read_document(folder / layout.WRITER, WriterInfo).value == said


def test_a_pipe_among_the_files_of_a_run_is_passed_over(tmp_path: Path) -> None:
    path = running_run(tmp_path, [metric(-1)])
    os.mkfifo(path / "pipe")
    assert copied(path, tmp_path) == {"metrics": 1}


def test_a_line_that_was_cut_off_long_ago_is_in_the_copy_and_one_that_is_just_written_is_not(
    tmp_path: Path,
) -> None:
    path = running_run(tmp_path, [metric(-1)])
    file = layout.stream_file(path, "metrics")
    with file.open("ab") as out:
        out.write(b'{"timestamp":')
    torn = []
    for age_s in (-60.0, 60.0):
        os.utime(file, (time.time() - age_s,) * 2)
        with held_still(Run(path), folder=tmp_path) as still:
            torn.append(still.completeness().torn)
    assert torn == [0, 1]


def test_that_a_run_goes_on_is_no_problem_of_its_recording(tmp_path: Path) -> None:
    with held_still(Run(running_run(tmp_path, [metric(-1)])), folder=tmp_path) as still:
        whole = still.completeness()
    assert (still.status, whole.writers_open, whole.problems) == ("running", 1, ())


def test_lines_of_which_the_number_alone_is_there_are_on_their_way_and_not_lost(tmp_path: Path) -> None:
    path = running_run(tmp_path, [metric(-1)])
    for writer, started, streams in (
        ("w0000001", stamp(-60), {"metrics": 3}),
        ("w0000002", stamp(60), {"spans": 1}),
    ):
        folder = layout.writer_folder(path, writer)
        folder.mkdir(parents=True)
        said = WriterInfo(writer=writer, pid=1, host="elsewhere", started=started, lines=streams)
        write_document(folder / layout.WRITER, said)
    assert copied(path, tmp_path) == {"metrics": 1}


def test_a_stream_of_which_nothing_is_there_is_lost_in_the_copy_too(tmp_path: Path) -> None:
    path = running_run(tmp_path, [metric(-1)])
    folder = layout.writer_folder(path, "w0000001")
    folder.mkdir(parents=True)
    said = WriterInfo(writer="w0000001", pid=1, host="elsewhere", started=stamp(-60), lines={"spans": 9})
    write_document(folder / layout.WRITER, said)
    with held_still(Run(path), folder=tmp_path) as still:
        assert still.completeness().lost == {"spans": 9}
