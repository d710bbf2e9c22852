"""Whatever the disk does, what is missing of a run is counted, and the counts are what a reader sees."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from builders.runs import finished
from io_faults import CALLS, IoFaults

import flightlog
from flightlog.analyze.diagnosis.diagnose import diagnose
from flightlog.analyze.report.report import report_on
from flightlog.analyze.verify import verify
from flightlog.cli.main import main
from flightlog.show.report import report_text
from flightlog.store import layout
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run, find_run
from flightlog.store.write.finalize import seal

BEGIN = """
import os, sys, threading, flightlog
from importlib import import_module
import_module("flightlog.record.recorder").ANNOUNCE_NS = 1 << 62  # every line of a span is of one that ended
def work(count):
    for number in range(count):
        with flightlog.span("work", number=number, text="x" * 300):
            pass
"""
FULL = (
    BEGIN
    + """
with flightlog.record("full", runs_dir=sys.argv[1], sample_interval_s=None):
    work(500)
    open(sys.argv[2], "w").close()
    work(int(sys.argv[3]))
print("done")
"""
)
KILLED = (
    BEGIN
    + """
with flightlog.record("full", runs_dir=sys.argv[1], sample_interval_s=None):
    work(500)
    open(sys.argv[2], "w").close()
    for number in range(1_000_000):
        work(1)
        os.write(1, b".")
"""
)
THREADS = (
    BEGIN
    + """
def forever(name):
    while True:
        with flightlog.span(name):
            pass
        os.write(1, name.encode())
with flightlog.record("threads", runs_dir=sys.argv[1], sample_interval_s=None):
    for name in "abc":
        threading.Thread(target=forever, args=(name,), daemon=True).start()
    threading.Event().wait()
"""
)
MANY = (
    BEGIN
    + """
import ctypes, json
plan = ctypes.CDLL(None).io_faults_plan
for calls, error, at, after in json.loads(sys.argv[2]):
    plan(calls.encode(), error, at, after)
    with flightlog.record("many", runs_dir=sys.argv[1], sample_interval_s=None) as run:
        work(400)
    plan(b"", 0, 0, 0)
    print(run.path, flush=True)
"""
)
ALL = ",".join(CALLS)


def ran(program: str, *arguments: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A program's end and output."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def counted(run: Run) -> tuple[int, int]:
    """Spans that are found, and lines of spans that are said to be lost."""
    return len(finished(run)), run.completeness().lost.get("spans", 0)


def lines_check(run: Run) -> str:
    """What `verify` says of the lines."""
    return next(check.detail for check in verify(run).checks if check.name == "lines")


def test_a_disk_that_stays_full_is_named_by_every_command_and_the_run_is_completed(
    io_faults, tmp_path, capsys
):
    switch = tmp_path / "full"
    env = io_faults(
        tmp_path / "runs", "open,write,mkdir,rename,fallocate,fsync", "ENOSPC", from_=1, switch=switch
    )
    done = ran(FULL, tmp_path / "runs", switch, 4000, env=env)
    assert (done.returncode, done.stdout) == (0, "done\n")
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    found, lost = counted(run)
    assert (found + lost, lost > 2000) == (4500, True)
    assert json.loads((run.path / layout.RUN).read_text())["status"] == "running"  # it could not be rewritten
    assert (run.status, run.ending().end_time is not None) == ("completed", True)
    assert [entry.status for entry in list_runs(tmp_path / "runs")] == ["completed"]
    assert lines_check(run) == f"{found:,} of 4,500 read, {lost:,} lost: no space left on device"
    report = report_text(report_on(run))
    assert f"{lost:,} lost: no space left on device" in report
    assert (
        f"\nRecord:    incomplete: {lost:,} of 4,500 lines are lost, and missing from all numbers below\n"
        in report
    )
    assert "  Overhead:      unknown: not every process recorded its overhead\n" in report
    said = diagnose(run)
    assert said.answer == "The run completed; the record is incomplete, and no failure is in it."
    assert (said.status, said.causes) == ("completed", [])
    assert [
        f"{lost:,} lines of the record are lost (no space left on device)" in one for one in said.problems
    ] == [True]
    for _ in ("as the program left it", "completed"):
        assert [entry.lines_lost for entry in list_runs(tmp_path / "runs")] == [lost]
        assert main(["list", "--runs-dir", str(tmp_path / "runs")]) == 0
        assert f" completed, {lost:,} lost " in capsys.readouterr().out
        assert (
            json.loads((run.path / layout.RUN).read_text())["status"] == "completed"
        )  # the list completed it


def test_what_a_page_says_goes_with_the_run_when_it_is_folded_and_copied(io_faults, tmp_path):
    switch = tmp_path / "full"
    env = io_faults(
        tmp_path / "runs", "open,write,mkdir,rename,fallocate,fsync", "EIO", from_=1, switch=switch
    )
    assert ran(FULL, tmp_path / "runs", switch, 2000, env=env).returncode == 0
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    said = (run.status, run.completeness().lost_text)
    assert said == ("completed", f"{counted(run)[1]:,} lost: input/output error")
    remote = tmp_path / "remote"
    remote.mkdir()
    run_command("sync", str(run.path), "--to", f"file://{remote}")
    copied = Run(remote / run.path.name)
    assert (copied.status, copied.completeness().lost_text) == said
    assert seal(run.path, writers_alive=lambda _writer: False) is None
    folded = Run(run.path)
    assert not (run.path / layout.SEGMENTS).exists()
    assert (folded.status, folded.info.status, folded.completeness().lost_text) == (said[0], said[0], said[1])


def run_command(*arguments: str) -> None:
    """A command of Flightlog's, which has to succeed."""
    command = [sys.executable, "-m", "flightlog", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_exit_code_of_a_command_is_known_although_the_disk_stayed_full(io_faults, tmp_path):
    switch = tmp_path / "full"
    env = io_faults(
        tmp_path / "runs", "open,write,mkdir,rename,fallocate,fsync", "ENOSPC", from_=1, switch=switch
    )
    command = [sys.executable, "-m", "flightlog", "run", "--runs-dir", str(tmp_path / "runs"), "--"]
    done = subprocess.run(
        [*command, "sh", "-c", f"touch {switch}; exit 3"], env=env, timeout=120, check=False
    )
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    assert (done.returncode, run.status, run.info.exit_code) == (3, "failed", 3)


def test_a_real_disk_that_stays_full_loses_what_it_counts(small_disk, tmp_path):
    done = ran(FULL, small_disk / "runs", tmp_path / "unused", 9000, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "done\n")
    run = Run(find_run("latest", runs_dir=small_disk / "runs"))
    found, lost = counted(run)
    assert (found + lost, lost > 2000, run.status) == (9500, True, "completed")
    assert lines_check(run) == f"{found:,} of 9,500 read, {lost:,} lost: no space left on device"


def test_lines_that_waited_in_memory_when_the_process_was_killed_are_lost_and_counted(io_faults, tmp_path):
    switch = tmp_path / "full"
    env = io_faults(tmp_path / "runs", "open,write,rename", "EDQUOT", from_=1, switch=switch)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "runs"), str(switch)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        told = len(program.stdout.read(800))
        program.kill()
        told += len(program.stdout.read())
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    found, lost = counted(run)
    assert found + lost - 500 - told in {0, 1}
    assert (lost > 200, run.status) == (True, "crashed")
    assert lines_check(run) == f"{found:,} of {found + lost:,} read, {lost:,} lost: disk quota exceeded"
    assert [entry.lines_lost for entry in list_runs(tmp_path / "runs")] == [lost]
    (cause,) = diagnose(run).causes
    assert (cause.failure_class, cause.headline) == ("unknown", "the run's process exited unexpectedly")
    assert cause.missing[0] == (
        "How the program ended is not recorded. The recorder could not write then (disk quota exceeded): "
        "that is "
        "why data is missing, not why the program ended."
    )


RAISES = (
    BEGIN
    + """
with flightlog.record("full", runs_dir=sys.argv[1], sample_interval_s=None):
    work(200)
    raise ValueError("could not convert string to float: 'n/a'")
"""
)


def test_the_end_of_a_run_that_began_on_a_full_disk_is_known_from_its_page(io_faults, tmp_path):
    env = io_faults(tmp_path / "runs", "write,rename,fallocate", "ENOSPC", from_=2)  # the page is the first
    assert ran(RAISES, tmp_path / "runs", env=env).returncode == 1
    (entry,) = list_runs(tmp_path / "runs")
    run = Run(entry.path)
    assert not (run.path / layout.RUN).exists()
    assert (entry.status, entry.lines_lost) == (run.status, run.completeness().lost_lines) == ("failed", 201)
    assert run.info.error == "ValueError: could not convert string to float: 'n/a'"
    (cause,) = diagnose(run).causes
    assert (cause.failure_class, cause.headline) == (
        "data_error",
        "the run failed: ValueError: could not convert string to float: 'n/a'",
    )


def test_a_disk_without_room_for_the_page_is_named_as_the_reason_why_the_end_is_unknown(
    io_faults, tmp_path, capsys
):
    env = io_faults(tmp_path / "runs", "write,rename,fallocate", "ENOSPC", from_=1)
    assert ran(RAISES, tmp_path / "runs", env=env).returncode == 1
    (entry,) = list_runs(tmp_path / "runs")
    assert (entry.status, entry.lines_lost) == ("unknown", None)
    why = "the disk had no room even for the page of 4 KiB that says how a run ended"
    assert why in (entry.problem or "")
    assert main(["verify", "latest", "--runs-dir", str(tmp_path / "runs")]) != 0
    assert why in capsys.readouterr().err


def test_what_threads_record_between_a_signal_and_the_end_of_the_process_is_recorded(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))}
    command = [sys.executable, "-c", THREADS, str(tmp_path / "runs")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        told = Counter(program.stdout.read(3000))
        program.send_signal(signal.SIGTERM)
        told += Counter(program.stdout.read())
    assert program.returncode == -signal.SIGTERM
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    found = Counter(ord(span.name) for span in finished(run))
    assert all(found[name] - told[name] in {0, 1} for name in b"abc")
    assert (run.status, run.info.signal) == ("interrupted", "SIGTERM")
    assert run.completeness().lost_lines <= 3  # numbers given out to spans in the middle of their end


def test_a_span_that_ends_after_the_run_is_counted(tmp_path):
    opened, go_on = threading.Event(), threading.Event()

    def late() -> None:
        with flightlog.span("late"):
            opened.set()
            assert go_on.wait(60)

    with flightlog.record("late", runs_dir=tmp_path, sample_interval_s=None) as run:
        thread = threading.Thread(target=late)
        thread.start()
        assert opened.wait(60)
    go_on.set()
    thread.join()
    read = Run(run.path)
    assert (read.status, finished(read)) == ("completed", [])
    assert read.completeness().lost_text == "1 lost: recorded after the run had closed"


def test_found_and_lost_make_up_all_that_was_recorded_whichever_call_fails(io_faults, tmp_path):
    numbers = random.Random(7)
    errors = [5, 28, 30, 122]  # EIO, ENOSPC, EROFS, EDQUOT
    plans = [
        (call, numbers.choice(errors), *rest)
        for call in CALLS
        for rest in [(n, 0) for n in sorted(numbers.sample(range(1, 16), 3))]
        + [(0, numbers.randrange(5, 12))]
    ]
    done = ran(MANY, tmp_path / "runs", json.dumps(plans), env=io_faults(tmp_path / "runs", "", "EIO"))
    assert done.returncode == 0, done.stderr
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert len(paths) == len(plans)
    for path, plan in zip(paths, plans, strict=True):
        run = Run(path)
        completeness = run.completeness()
        if completeness.loss_known:
            assert (sum(counted(run)), run.status) == (400, "completed"), plan
        else:
            assert completeness.lost_text.startswith(("whether any were lost is unknown", "at least")), plan


@pytest.mark.parametrize("error", ["EIO", "EROFS", "EMFILE"])
def test_a_disk_that_fails_now_and_then_is_counted(io_faults: IoFaults, tmp_path, error):
    env = io_faults(tmp_path / "runs", ALL, error, probability=0.2, seed=3, switch=tmp_path / "on")
    done = ran(FULL, tmp_path / "runs", tmp_path / "on", 2000, env=env)
    assert (done.returncode, done.stdout) == (0, "done\n")
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    assert (sum(counted(run)), run.status) == (2500, "completed")


def test_without_page_and_note_nobody_claims_that_nothing_was_lost(tmp_path):
    program = (
        BEGIN
        + """
with flightlog.record("gone", runs_dir=sys.argv[1], sample_interval_s=None):
    work(10)
    os.kill(os.getpid(), 9)
"""
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))}
    assert ran(program, tmp_path / "runs", env=env).returncode == -9
    run = Run(find_run("latest", runs_dir=tmp_path / "runs"))
    assert lines_check(run) == "10 of 10 read, none lost"
    for name in (layout.PAGE, layout.WRITER):
        for file in run.path.glob(f"segments/*/{name}"):
            file.unlink()
    read = Run(run.path)
    assert lines_check(read) == "10 read, whether any were lost is unknown"
    assert any("unknown whether lines of the record are lost" in one for one in diagnose(read).problems)
