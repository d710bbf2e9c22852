"""The line that says what a command does, and how far it has come."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from builders.runs import make_run

from flightlog.adopt.run_maker import AdoptOptions, SourceRecording, make_runs
from flightlog.cli import output
from flightlog.cli import progress as module
from flightlog.cli.progress import ProgressLine, end_progress, progress, working
from flightlog.core.errors import UsageError
from flightlog.store.catalogue import list_runs

ERASED = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def line(terminal: Terminal, clock: Clock) -> ProgressLine:
    return ProgressLine(terminal, "reading runs", clock=clock)


def drawn_at(line: ProgressLine, clock: Clock, *moments: float) -> None:
    for clock.now in moments:
        line.draw()


def screen(written: str) -> list[str]:
    """What a terminal shows of what was written to it: a carriage return goes back, and the code erases to
    the end."""
    rows = [""]
    for piece in written.replace("\r\n", "\n").split("\n"):
        rows[-1] = piece.rpartition(ERASED)[2] if ERASED in piece else rows[-1] + piece
        rows.append("")
    return rows[:-1]


def test_within_a_second_nobody_is_told_anything(line, clock, terminal) -> None:
    drawn_at(line, clock, 0.1, 0.5, 0.99)
    assert terminal.getvalue() == ""


def test_after_a_second_a_line_says_what_is_done_and_for_how_long_and_goes_at_the_end(
    line, clock, terminal
) -> None:
    drawn_at(line, clock, 1.0, 2.4)
    line.close()
    assert terminal.getvalue() == (
        f"{ERASED}flightlog: reading runs, 1 s …{ERASED}flightlog: reading runs, 2 s …{ERASED}"
    )


def test_what_can_be_counted_is(line, clock, terminal) -> None:
    with line.doing("reading run") as tell:
        tell(1200, 5000)
        drawn_at(line, clock, 1.0)
        tell(1300, None)
        drawn_at(line, clock, 2.0)
    drawn_at(line, clock, 3.0)
    assert [text for text in terminal.getvalue().split(ERASED) if text] == [
        "flightlog: reading run 1,200 of 5,000, 1 s …",
        "flightlog: reading run 1,300, 2 s …",
        "flightlog: reading runs, 3 s …",
    ]


def test_a_colon_waits_for_the_number(line, clock, terminal) -> None:
    with line.doing("exporting to csv:") as tell:
        drawn_at(line, clock, 1.0)
        tell(7, 9)
        drawn_at(line, clock, 2.0)
    assert [text for text in terminal.getvalue().split(ERASED) if text] == [
        "flightlog: exporting to csv, 1 s …",
        "flightlog: exporting to csv: 7 of 9, 2 s …",
    ]


def test_runs_that_are_listed_are_counted(tmp_path) -> None:
    for token in ("aaaaaaaa", "bbbbbbbb", "cccccccc"):
        make_run(tmp_path, token=token)
    told: list[tuple[int, int]] = []
    assert len(list_runs(tmp_path, sizes=True, progress=lambda done, of: told.append((done, of)))) == 3
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_recordings_that_are_adopted_are_counted(tmp_path) -> None:
    class Refuses:
        name = title = "nothing"

        def adopt(self, source, maker):
            raise UsageError(f"{source.path.name} holds nothing")

    told: list[tuple[int, int]] = []
    refused: list[str] = []
    sources = [SourceRecording(tmp_path / name, ()) for name in "ab"]
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir()
    made = make_runs(
        Refuses(), sources, runs_dir, AdoptOptions(), refused, lambda done, of: told.append((done, of))
    )
    assert (made, refused, told) == ([], ["a holds nothing", "b holds nothing"], [(0, 2), (1, 2)])


def test_whoever_prints_finds_the_line_gone_and_it_comes_back_after_a_second_of_silence(
    line, clock, terminal
) -> None:
    drawn_at(line, clock, 1.0)
    with line.aside("one row\n"):
        terminal.write("one row\n")
    drawn_at(line, clock, 1.5, 1.9)
    assert screen(terminal.getvalue()) == ["one row", ""]
    drawn_at(line, clock, 2.0)
    assert screen(terminal.getvalue()) == ["one row", "flightlog: reading runs, 2 s …"]


def test_a_line_somebody_has_not_finished_is_not_erased(line, clock, terminal) -> None:
    with line.aside("[1,"):
        terminal.write("[1,")
    drawn_at(line, clock, 5.0)
    assert terminal.getvalue() == "[1,"
    with line.aside("2]\n"):
        terminal.write("2]\n")
    drawn_at(line, clock, 9.0)
    assert screen(terminal.getvalue()) == ["[1,2]", "flightlog: reading runs, 9 s …"]


def test_a_long_line_is_cut_so_that_it_does_not_wrap(terminal, clock) -> None:
    line = ProgressLine(terminal, "x" * 300, clock=clock)
    drawn_at(line, clock, 1.0)
    assert len(screen(terminal.getvalue())[0]) == 79


def test_a_terminal_that_went_away_is_no_error(line, clock, terminal) -> None:
    terminal.close()
    drawn_at(line, clock, 2.0)
    line.close()


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_what_is_no_terminal_gets_no_line_and_no_thread(stderr, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    before = threading.active_count()
    with working("reading"), progress("counting") as tell:
        tell(1, 2)
        assert sys.stderr is stderr
        end_progress()
        assert threading.active_count() == before
        assert module._line is None


def test_a_terminal_that_cannot_take_a_line_back_gets_none(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with working("reading"):
        assert module._line is None


def test_a_command_that_fails_leaves_neither_line_nor_thread(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    before = threading.active_count()
    with pytest.raises(OSError, match="gone"), working("reading"):
        raise OSError("gone")
    assert module._line is None
    assert threading.active_count() == before


def test_messages_and_data_take_the_line_away_first(monkeypatch, capsys) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", sys.stderr)
    with working("reading"):
        assert module._line is not None
        module._line._quiet_since -= 10
        module._line.draw()
        output.put("the answer\n")
        module._line._quiet_since -= 10
        module._line.draw()
        output.note("a word")
    assert screen(sys.stderr.getvalue()) == ["the answer", "flightlog: a word", ""]


def test_what_libraries_print_warn_and_log_does_not_land_on_the_line(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    alone = logging.Logger("a-library")

    def draw() -> None:
        assert module._line is not None
        module._line._quiet_since -= 10
        module._line.draw()

    with working("reading"):
        draw()
        alone.warning("slow disk")
        draw()
        sys.stderr.write(warnings.formatwarning("old", DeprecationWarning, "lib.py", 1, line=""))
        draw()
        print("loaded")
        draw()
        sys.stdout.writelines(["a\n", "b\n"])
        draw()
    assert screen(terminal.getvalue()) == [
        "slow disk",
        "lib.py:1: DeprecationWarning: old",
        "loaded",
        "a",
        "b",
        "",
    ]
    assert (sys.stdout, sys.stderr) == (terminal, terminal)


def test_data_that_go_elsewhere_are_written_as_they_are(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    data = io.StringIO()
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", data)
    with working("reading"):
        assert sys.stdout is data


def test_without_utf_8_the_line_is_ascii(clock) -> None:
    written = io.BytesIO()
    line = ProgressLine(io.TextIOWrapper(written, encoding="latin-1"), "reading runs", clock=clock)
    drawn_at(line, clock, 1.0)
    assert written.getvalue() == ERASED.encode() + b"flightlog: reading runs, 1 s ..."


def test_every_command_that_may_take_a_while_says_what_it_does() -> None:
    from flightlog.cli.main import COMMANDS, module_of

    silent = {name for name in COMMANDS if not hasattr(module_of(name), "DOING")}
    # What they show is their own: the command's output, the bar of a session, events and alerts as they come;
    # the rest is done at once.
    assert silent == {"run", "demo", "follow", "alert", "validate", "explain", "schema"}


class OnTerminal:
    """A real command whose standard error is a real terminal, and which waits for us to say more."""

    def __init__(self, tmp_path: Path, *args: str, stdout: bool) -> None:
        self.ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flightlog", *args],
            stdin=subprocess.PIPE,
            stdout=theirs if stdout else subprocess.PIPE,
            stderr=theirs,
            cwd=tmp_path,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )
        os.close(theirs)
        self.written = ""

    def read_until(self, text: str) -> None:
        while text not in self.written:
            self.written += os.read(self.ours, 4096).decode()

    def rest(self) -> str:
        try:
            while block := os.read(self.ours, 4096):
                self.written += block.decode()
        except OSError:  # the other side is closed
            pass
        os.close(self.ours)
        return self.written


@pytest.mark.parametrize("stdout", [True, False], ids=["both on the terminal", "data in a pipe"])
def test_on_a_terminal_the_line_comes_and_is_gone_before_the_answer(tmp_path, stdout) -> None:
    command = OnTerminal(tmp_path, "diagnose", "--text", "-", stdout=stdout)
    command.read_until("flightlog: looking for what went wrong, ")
    data, _ = command.process.communicate(b"MemoryError: no room", timeout=60)
    shown = screen(command.rest())
    assert command.process.returncode == 0
    assert not [row for row in shown if "looking for what went wrong" in row]
    answer = "\n".join(shown) if stdout else data.decode()
    assert "memory" in answer.lower()
    assert stdout or shown == [""]


def test_ctrl_c_takes_the_line_away(tmp_path) -> None:
    command = OnTerminal(tmp_path, "diagnose", "--text", "-", stdout=True)
    command.read_until("flightlog: looking for what went wrong, ")
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(60) == 130
    assert command.process.stdin is not None
    command.process.stdin.close()
    assert screen(command.rest()) == [""]


def test_what_is_read_and_how_far_is_said_beside_what_is_done(clock, terminal) -> None:
    said = iter(["43% of the events in tasks", "60% of the events in tasks", None])
    line = ProgressLine(terminal, "reading runs", clock=clock, at_work=lambda: next(said))
    drawn_at(line, clock, 1.0)
    with line.doing("reading run") as tell:
        tell(2, 5)
        drawn_at(line, clock, 2.0, 3.0)
    assert [text for text in terminal.getvalue().split(ERASED) if text] == [
        "flightlog: reading runs, 43% of the events in tasks, 1 s …",
        "flightlog: reading run 2 of 5, 60% of the events in tasks, 2 s …",
        "flightlog: reading run 2 of 5, 3 s …",
    ]


def test_where_there_is_no_room_how_long_it_takes_is_told_and_not_how_far_the_reading_is(
    clock, terminal
) -> None:
    reading = "43% of the events in user.a_stream_with_a_very_long_name_indeed"
    line = ProgressLine(terminal, "reading runs", clock=clock, at_work=lambda: reading)
    drawn_at(line, clock, 3.0)
    assert terminal.getvalue() == f"{ERASED}flightlog: reading runs, 3 s …"
