"""Disks that fill up, refuse or vanish: the program goes on, the loss is counted, recording resumes."""

from __future__ import annotations

import subprocess
import sys
import time

from builders.runs import finished, remove

import flightlog
from flightlog.store.run import Run, find_run


def record_until(run, stop, name="work"):
    """Record spans until told to stop; how many."""
    number = 0
    while not stop():
        for _ in range(200):
            with flightlog.span(name, number=number, text="x" * 300):
                pass
            number += 1
    return number


def test_a_full_disk_is_survived_counted_said_once_and_left_behind(small_disk, caplog):
    with flightlog.record("full", runs_dir=small_disk / "runs", sample_interval_s=None) as run:
        spans = run.recorder.files.stream("spans")
        record_until(run, lambda: spans.lost > 500)
        filler = small_disk / "runs" / run.run_id / "spans.jsonl"
        assert filler.stat().st_size > 500_000
        run.metric("during", 1.0)
        subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
        deadline = time.monotonic() + 20
        lost = -1
        while lost != spans.lost and time.monotonic() < deadline:
            lost = spans.lost
            record_until(run, lambda: True)
            time.sleep(0.3)
        with flightlog.span("after"):
            pass
    closed = Run(run.path)
    events = list(finished(closed))
    assert "after" in {e.name for e in events}
    completeness = closed.completeness()
    assert completeness.lost["spans"] == spans.lost > 500
    assert (completeness.doubled, completeness.foreign) == (0, 0)
    assert closed.status == "completed"
    warnings = [r.getMessage() for r in caplog.records if "No space left" in r.getMessage()]
    assert len(warnings) == 2  # when it began, and how much was lost when it was over


def test_a_disk_that_stays_full_ends_the_run_in_good_order(small_disk):
    with flightlog.record("full", runs_dir=small_disk / "runs", sample_interval_s=None) as run:
        spans = run.recorder.files.stream("spans")
        record_until(run, lambda: spans.lost > 500)
    read = Run(run.path)
    assert len(list(finished(read))) > 1000


def test_a_read_only_folder_is_survived_and_recording_resumes_when_it_can(small_disk, caplog):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with flightlog.record("ro", runs_dir=small_disk / "runs", sample_interval_s=None) as run:
        with flightlog.span("before"):
            pass
        assert not run.path.exists()
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
        deadline = time.monotonic() + 20
        while not (run.path / "spans.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        with flightlog.span("after"):
            pass
    assert [e.name for e in finished(Run(run.path))] == ["before", "after"]
    assert Run(run.path).status == "completed"
    assert any("ead-only" in r.getMessage() for r in caplog.records)


def test_a_folder_that_never_can_be_made_costs_the_program_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with flightlog.record("x", runs_dir=tmp_path / "file" / "runs", sample_interval_s=0.1) as run:
        for i in range(100):
            with flightlog.span("work", i=i), run.task("t"):
                pass
        run.record_artifact(tmp_path / "file")
    assert (tmp_path / "file").read_text() == ""
    assert "cannot write" in caplog.text


def test_a_run_folder_that_vanishes_is_written_again(tmp_path):
    with flightlog.record("gone", runs_dir=tmp_path, sample_interval_s=None) as run:
        for i in range(1000):
            with flightlog.span("work", i=i):
                pass
        remove(run.path)
        for i in range(1000, 2000):
            with flightlog.span("work", i=i):
                pass
    closed = Run(find_run("latest", runs_dir=tmp_path))
    assert closed.status == "completed"
    assert sorted(e.tags["i"] for e in finished(closed)) == list(range(2000))


def test_no_file_descriptors_left_is_survived_and_recording_resumes(tmp_path):
    program = """
import flightlog, os, resource, sys
with flightlog.record("fds", runs_dir=sys.argv[1], sample_interval_s=0.1) as run:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for i in range(100):
        with flightlog.span("without", i=i): pass
        run.metric("loss", i)
    import time; time.sleep(1)
    for fd in taken: os.close(fd)
    time.sleep(1)
    for i in range(100):
        with flightlog.span("with", i=i): pass
        run.metric("loss", i)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    run = Run(find_run("latest", runs_dir=tmp_path))
    assert (run.status, len(list(finished(run))), len(list(run.events("metrics")))) == ("completed", 200, 200)
    assert sum(run.completeness().lost.values()) == 0
