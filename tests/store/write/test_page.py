"""The page of a writer: what is put into it is read from it, and no file in its place upsets a reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import flightlog
from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import Observer
from flightlog.store.read.writers import read_writer, read_writers, run_as_it_ended
from flightlog.store.run import Run
from flightlog.store.write.page import SIZE, Page, read_page

LONG = "user." + "a" * 100
INFO = WriterInfo(
    writer="0a0a0a0a",
    pid=7,
    host="node-1",
    pid_start=12.5,
    started="2026-05-20T03:52:00.000000Z",
    heartbeat="2026-05-20T03:52:00.000000Z",
    owner=True,
    wall_anchor_ns=5,
)
ENDED = RunInfo(
    run_id="run-20260520T035200Z-demo-a1b2c3d4",
    project="demo",
    status="failed",
    writer="0a0a0a0a",
    pid=7,
    host="node-1",
    start_time="2026-05-20T03:52:00.000000Z",
    end_time="2026-05-20T03:52:09.000000Z",
    duration_s=9.0,
    exit_code=0,
    signal="SIGTERM",
    error="ValueError: it does not work",
)
GONE = Observer(now=1779249300.0, host="node-1", process_started=lambda _pid: None)


def made_page(run: Path) -> Page:
    folder = layout.writer_folder(run, "0a0a0a0a")
    folder.mkdir(parents=True)
    return Page(folder / layout.PAGE, INFO)


def test_a_note_and_its_page_are_one_writer_with_the_larger_of_all_counts(tmp_path):
    page = made_page(tmp_path)
    page.count("spans", 70, 20)
    page.count(LONG, 9, 2)
    page.explain({"No space left on device": 22, "r" * 90: 1, "Input/output error": 0})
    page.beat("2026-05-20T03:52:08.000000Z")
    note = WriterInfo(
        writer="0a0a0a0a",
        pid=7,
        host="node-1",
        pid_start=12.5,
        started="2026-05-20T03:52:00.000000Z",
        heartbeat="2026-05-20T03:52:04.000000Z",
        owner=True,
        wall_anchor_ns=5,
        lines={"spans": 50, "tasks": 3, LONG: 1},
        lost={"tasks": 1},
        reasons={"r" * 90: 1},
        bytes=100,
    )
    write_document(page.path.with_name(layout.WRITER), note)
    assert read_writer(page.path.parent, "0a0a0a0a").value == WriterInfo(
        writer="0a0a0a0a",
        pid=7,
        host="node-1",
        pid_start=12.5,
        started="2026-05-20T03:52:00.000000Z",
        heartbeat="2026-05-20T03:52:08.000000Z",
        owner=True,
        wall_anchor_ns=5,
        counted=True,
        lines={"spans": 70, "tasks": 3, LONG: 9},
        lost={"tasks": 1, "spans": 20, LONG: 2},
        reasons={"r" * 90: 1, "No space left on device": 22, "Input/output error": 0},
        bytes=100,
    )


def test_a_page_alone_tells_who_wrote_and_how_the_run_ended(tmp_path):
    page = made_page(tmp_path)
    page.count("spans", 3, 3)
    page.beat("2026-05-20T03:52:09.000000Z", closed=True)
    page.end(ENDED)
    found, problems = read_writers(tmp_path)
    assert problems == []
    assert found == [
        WriterInfo(
            writer="0a0a0a0a",
            pid=7,
            host="node-1",
            pid_start=12.5,
            started="2026-05-20T03:52:00.000000Z",
            heartbeat="2026-05-20T03:52:09.000000Z",
            owner=True,
            wall_anchor_ns=5,
            counted=True,
            closed=True,
            lines={"spans": 3},
            lost={"spans": 3},
            drain_s=None,
            background_cpu_s=None,
            bytes=None,
        )
    ]
    begun = RunInfo(
        run_id=ENDED.run_id,
        project="demo",
        status="running",
        writer="0a0a0a0a",
        pid=7,
        host="node-1",
        start_time="2026-05-20T03:52:00.000000Z",
        duration_s=1.0,
    )
    ended = run_as_it_ended(tmp_path, begun, GONE)
    ended.heartbeat = None
    assert ended == replace(ENDED, lines_lost=3)


@given(st.binary(min_size=SIZE - 8, max_size=SIZE - 8))
def test_any_bytes_in_the_place_of_a_page_are_read_without_an_error(data):
    read_page(b"FLPAGE01" + data)
    assert read_page(data) is None


def test_a_page_that_is_no_page_is_a_problem_and_nothing_is_claimed(tmp_path):
    page = made_page(tmp_path)
    page.path.unlink()
    os.mkfifo(page.path)
    assert read_writers(tmp_path) == ([], ["segments/0a0a0a0a/writer.page: not a page, or not a whole one"])
    assert Run(tmp_path).completeness().lost_text == "whether any were lost is unknown"


def test_a_forked_child_counts_on_a_page_of_its_own(tmp_path):
    program = """
import flightlog, os, sys
with flightlog.record("fork", runs_dir=sys.argv[1], sample_interval_s=None) as run:
    with flightlog.span("parent"): pass
    if os.fork() == 0:
        with flightlog.span("child"): pass
        run.recorder.files.close()
        run.recorder.files.save()
        os._exit(0)
    os.wait()
    with flightlog.span("parent"): pass
    run.recorder.files.close()
    run.recorder.files.save()
    os._exit(0)
"""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60, env=env)
    pages = [read_page(file.read_bytes()) for file in tmp_path.glob("run-*/segments/*/writer.page")]
    counts = sorted((page.process.owner, page.streams["spans"]) for page in pages if page is not None)
    assert counts == [(False, (1, 0)), (True, (2, 0))]


def test_a_run_that_closed_in_good_order_keeps_no_page_and_its_counts(tmp_path):
    with flightlog.record("whole", runs_dir=tmp_path, sample_interval_s=None) as run, flightlog.span("work"):
        pass
    read = Run(run.path)
    assert list(run.path.rglob(layout.PAGE)) == []
    assert [(one.counted, one.closed, one.died) for one in read.writers()] == [(True, True, False)]
    assert (read.completeness().lost_text, read.problems) == ("none lost", ())
