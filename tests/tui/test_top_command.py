"""`flightlog top`: which run it shows, where it shows it, and a run that is being written."""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders.counted_remote import ADDRESS, empty_place, sync
from builders.hostile_run import hostile_run
from builders.runs import at, make_run
from driving import column, drive, head, press, shown, until

import flightlog
from flightlog.analyze.live.follow import GONE, FollowedRun
from flightlog.cli.main import main
from flightlog.events import Failure, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted
from flightlog.show.terminal import width_of
from flightlog.store import layout
from flightlog.tui.app import TopApp


def some_run(folder: Path, token: str = "a1b2c3d4", **info) -> Path:
    events = [
        TaskSubmitted(timestamp=at(0), task="sim", task_id="t0", args={"n": 1}),
        TaskCompleted(timestamp=at(2), task="sim", task_id="t0", args={"n": 1}, worker="w1", duration_s=1.5),
        TaskSubmitted(timestamp=at(1), task="sim", task_id="t1", args={"n": 2}),
        TaskFailed(
            timestamp=at(3),
            task="sim",
            task_id="t1",
            args={"n": 2},
            worker="w1",
            duration_s=0.5,
            error_type="ValueError",
            error_message="no such n",
            fingerprint="f1",
        ),
        Failure(
            timestamp=at(3),
            scope="task",
            task="sim",
            task_id="t1",
            attempt=1,
            error_type="ValueError",
            message="no such n",
            traceback=None,
            fingerprint="f1",
        ),
    ]
    return make_run(folder, events, token=token, **info)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_one_frame_is_printed_as_text(runs, capsys) -> None:
    some_run(runs)
    assert main(["top", "--once"]) == 0
    assert capsys.readouterr() == (
        """\
run-20260520T035200Z-demo-a1b2c3d4 · completed · 10.0s · on node-1
[████████████████████] 2 of 2 (100%) · 1 failed
concurrency ████ 0

Tasks:
  Task  Submitted  Completed  Failed  Running  Mean   Max
  sim           2          1       1        0  1.5s  1.5s

Workers 1:
  Worker  State  Task  For  Ended  Failed  Cores  Memory       Seen
  w1      gone   -       -      2       1      -       -  7s before

Failures 1:
  At (UTC)  Task      Error                  Then  Worker
  03:52:03  sim(n=2)  ValueError: no such n        w1

Slowest:
  Task      Took  Queued  Ended as   Worker  At (UTC)
  sim(n=1)  1.5s       -  completed  w1      03:52:02
""",
        "",
    )


def test_where_nobody_looks_one_frame_is_printed_with_a_word_on_why(runs, capsys) -> None:
    path = some_run(runs)
    assert main(["top", path.name]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("run-20260520T035200Z-demo-a1b2c3d4 · completed")
    assert err == "flightlog: this is no terminal: one frame is printed, as with --once\n"


def test_without_a_name_it_is_the_run_that_is_running_though_another_is_newer(runs, capsys) -> None:
    with flightlog.record("going-on", runs_dir=runs) as run:
        some_run(
            runs, "b2b2b2b2", start_time="2099-01-01T00:00:00.000000Z", end_time="2099-01-01T00:00:01.000000Z"
        )
        assert main(["top", "--once"]) == 0
        assert capsys.readouterr().out.startswith(f"{run.run_id} · running")
    assert main(["top", "--once"]) == 0
    assert capsys.readouterr().out.startswith("run-20260520T035200Z-demo-b2b2b2b2 · completed")


def test_no_runs_are_one_clear_message(runs, capsys) -> None:
    runs.mkdir()
    assert main(["top", "--once"]) == 2
    assert capsys.readouterr().err == (
        f"flightlog: there are no runs in {runs}; record one, or name another folder of runs\n"
    )


def test_a_terminal_that_can_only_print_gets_one_frame(runs, monkeypatch) -> None:
    some_run(runs)
    monkeypatch.setenv("TERM", "dumb")
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Terminal())
    assert main(["top"]) == 0
    assert sys.stdout.getvalue().startswith("run-20260520T035200Z-demo-a1b2c3d4 - completed")
    assert sys.stderr.getvalue() == (
        "flightlog: this terminal can only print (TERM is dumb): one frame is printed, as with --once\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_textual_the_line_that_installs_it_is_named(runs, monkeypatch) -> None:
    some_run(runs)
    for name in [*sys.modules]:
        if name.startswith("flightlog.tui") or name.partition(".")[0] == "textual":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Terminal())
    assert main(["top"]) == 2
    assert "pip install 'flightlog[tui]'; --once prints one frame without it" in sys.stderr.getvalue()


def test_one_frame_needs_no_textual(runs) -> None:
    some_run(runs)
    code = (
        "import sys; sys.modules['textual'] = None; from flightlog.cli.main import main; "
        "sys.exit(main(['top', '--once']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("run-20260520T035200Z-demo-a1b2c3d4 · completed")


def test_a_run_at_an_address_is_shown_and_what_is_new_there_is_fetched(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    empty_place()
    path = some_run(tmp_path / "runs", status="running", end_time=None, duration_s=None)
    sync(path)
    assert main(["top", "--once", "--runs-dir", ADDRESS]) == 0
    assert "2 of 2 (100%) · 1 failed" in capsys.readouterr().out
    from flightlog.store.run import find_run

    followed = FollowedRun(find_run("latest", runs_dir=ADDRESS), clock=itertools.count(step=10).__next__)
    assert followed.update().progress.submitted == 2
    late = TaskStarted(
        timestamp=at(4), task="sim", task_id="t9", worker="w1", queue_s=None, writer="w0000001", seq=4
    )
    new = TaskSubmitted(timestamp=at(4), task="sim", task_id="t9", args={}, writer="w0000001", seq=5)
    with layout.stream_file(path, "tasks").open("ab") as out:
        out.writelines(msgspec.json.encode(event) + b"\n" for event in (new, late))
    sync(path)
    assert followed.update().progress.submitted == 3
    empty_place()


def test_a_run_that_is_being_written_is_followed_to_its_end(runs) -> None:
    recording = flightlog.record("living", runs_dir=runs)
    run = recording.__enter__()

    async def play(pilot, app):
        assert " · running · " in head(app)
        with flightlog.span("step"):
            pass
        await press(pilot, "8")
        await until(pilot, lambda: column(app) == ["step"])
        recording.__exit__(None, None, None)
        await until(pilot, lambda: " · completed · " in head(app))

    drive(TopApp(run.path, open_live=FollowedRun, runs=list, interval_s=0.05), play)


def test_of_a_run_that_is_removed_what_was_read_stays_and_that_is_said(runs) -> None:
    path = some_run(runs)

    async def play(pilot, app):
        before = head(app)
        shutil.rmtree(path)
        await until(pilot, lambda: "no longer there" in head(app))
        assert head(app) == f"{before}\n! {GONE}"

    drive(TopApp(path, open_live=FollowedRun, runs=list, interval_s=0.05), play)


def test_a_hostile_run_is_shown_as_text(tmp_path) -> None:
    path = hostile_run(tmp_path)

    async def play(pilot, app):
        for key in "123456789":
            await press(pilot, key)
            if app.board.table.row_count:
                await press(pilot, "enter")
                assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", shown(app))
                await press(pilot, "escape")
        assert app.is_running

    drive(TopApp(path, open_live=FollowedRun, runs=list, interval_s=3600.0), play, size=(80, 24))


def test_a_frame_of_a_hostile_run_has_no_control_characters(tmp_path, capsys) -> None:
    path = hostile_run(tmp_path, name_bytes=100_000)
    assert main(["top", "--once", str(path)]) == 0
    out = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", out)
    assert max(map(width_of, out.splitlines())) <= 100


def test_where_standard_error_is_a_file_one_frame_is_printed_for_the_view_would_be_drawn_there(
    runs, tmp_path
) -> None:
    some_run(runs)
    ours, theirs = os.openpty()
    with (tmp_path / "errors").open("wb") as errors:
        done = subprocess.run(
            [sys.executable, "-m", "flightlog", "top"],
            stdin=theirs,
            stdout=theirs,
            stderr=errors,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
            timeout=100,
        )
    os.close(theirs)
    assert done.returncode == 0
    assert b"1 failed" in os.read(ours, 65_536)
    os.close(ours)
    assert "one frame is printed" in (tmp_path / "errors").read_text()


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_in_a_real_terminal_the_view_comes_up_and_a_key_ends_it(runs, key) -> None:
    some_run(runs)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "flightlog", "top"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    while b"1 failed" not in written:
        written += os.read(ours, 65_536)
    os.write(ours, key)
    try:
        while block := os.read(ours, 65_536):
            written += block
    except OSError:
        pass
    os.close(ours)
    assert process.wait(60) == 0
    assert b"\x1b[?1049h" in written
    assert written.rstrip().count(b"\x1b[?1049l") == 1
