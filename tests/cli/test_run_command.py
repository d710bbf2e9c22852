"""`flightlog run`: the command behaves as without it, and the run says what it did."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.summary import summarize
from flightlog.record.command.child import OutputTail
from flightlog.show.report import wall_time_text
from flightlog.store.run import Run

FLIGHTLOG = [sys.executable, "-c", "from flightlog.cli.main import main; raise SystemExit(main())"]
Flightlog = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")}


@pytest.fixture
def flightlog(environ: dict[str, str]) -> Flightlog:
    """Run the command line and capture what it prints."""

    def call(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
        given = {"env": environ, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.run([*FLIGHTLOG, *map(str, args)], check=False, **given)

    return call


@pytest.fixture
def the_run(tmp_path: Path) -> Callable[[], Run]:
    """The only run there is."""

    def find() -> Run:
        [path] = (tmp_path / "runs").iterdir()
        return Run(path)

    return find


def events(run: Run, stream: str) -> dict[str, Any]:
    """The events of a stream by kind, the last of each."""
    return {type(event).__name__: event for event in run.events(stream)}


def outcome(run: Run) -> tuple[str, int | None, str | None]:
    return run.info.status, run.info.exit_code, run.info.signal


@pytest.mark.parametrize(("code", "status"), [(0, "completed"), (3, "failed")])
def test_the_commands_exit_code_is_returned_and_recorded(flightlog, the_run, code, status):
    assert flightlog("run", "--", "sh", "-c", f"exit {code}").returncode == code
    run = the_run()
    assert outcome(run) == (status, code, None)
    assert run.info.command == ["sh", "-c", f"exit {code}"]
    assert (run.info.project, run.info.provider, run.info.target) == ("sh", "command", "local")


def test_a_failed_command_leaves_a_failure_with_the_end_of_its_output(flightlog, the_run):
    flightlog("run", "--", "sh", "-c", "echo out; echo it broke >&2; exit 4")
    failure = events(the_run(), "failures")["Failure"]
    task = events(the_run(), "tasks")["TaskFailed"]
    assert (failure.scope, failure.error_type, failure.exit_code) == ("command", "ExitCode", 4)
    assert (failure.message, failure.output_tail) == ("sh ended with exit code 4", "it broke\n")
    assert (task.task, task.exit_code, task.fingerprint) == ("sh", 4, failure.fingerprint)
    assert failure.task_id == task.task_id


def test_a_signal_that_ends_the_command_is_recorded_and_returned_as_a_shell_does(flightlog, the_run):
    assert flightlog("run", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert outcome(the_run()) == ("failed", None, "SIGKILL")
    failure = events(the_run(), "failures")["Failure"]
    assert (failure.error_type, failure.signal, failure.exit_code) == ("SIGKILL", "SIGKILL", None)


def test_five_megabytes_of_binary_output_arrive_byte_for_byte(flightlog, the_run):
    program = "import random, sys; sys.stdout.buffer.write(random.Random(1).randbytes(5_000_001))"
    written = hashlib.sha256(__import__("random").Random(1).randbytes(5_000_001)).hexdigest()
    done = flightlog("run", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stderr) == (0, b"")
    assert hashlib.sha256(done.stdout).hexdigest() == written
    output = events(the_run(), "events")["UserEvent"]
    assert (output.name, output.fields["stdout_bytes"], output.fields["stderr_bytes"]) == (
        "command_output",
        5_000_001,
        0,
    )


def test_both_streams_go_where_they_went_and_nothing_is_added(flightlog, the_run):
    done = flightlog("run", "--", "sh", "-c", "cat; printf 'no newline' >&2", input=b"from\0stdin\xff")
    assert (done.stdout, done.stderr, done.returncode) == (b"from\0stdin\xff", b"no newline", 0)
    fields = events(the_run(), "events")["UserEvent"].fields
    assert (fields["stdout"], fields["stderr"]) == ("from\0stdin\ufffd", "no newline")


def test_the_order_of_both_streams_is_kept_where_they_are_one_file(flightlog, the_run):
    script = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    done = flightlog("run", "--", "sh", "-c", script, stderr=subprocess.STDOUT)
    assert done.stdout.decode() == "".join(f"out {i}\nerr {i}\n" for i in range(500))
    assert events(the_run(), "events")["UserEvent"].fields["output_bytes"] == len(done.stdout)


def test_options_after_the_command_are_the_commands_own(flightlog, the_run):
    done = flightlog("run", "--tag", "member=3", "--project", "ours", "echo", "--project", "theirs", "--tag")
    assert done.stdout == b"--project theirs --tag\n"
    assert (the_run().info.project, the_run().info.tags) == ("ours", {"member": "3"})


def test_a_tag_without_a_value_is_misuse(flightlog):
    done = flightlog("run", "--tag", "member", "--", "true")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"flightlog: tag 'member' is not of the form KEY=VALUE\n"


def test_a_command_that_does_not_exist_is_127_and_the_run_says_so(flightlog, the_run):
    done = flightlog("run", "--", "no-such-command-here", "x")
    assert (done.returncode, done.stderr) == (127, b"flightlog: no-such-command-here: command not found\n")
    assert outcome(the_run()) == ("failed", 127, None)
    assert the_run().info.error == "no-such-command-here: command not found"
    assert events(the_run(), "failures")["Failure"].error_type == "CommandNotFound"
    task = events(the_run(), "tasks")["TaskFailed"]
    assert (task.worker, task.duration_s, task.exit_code) == (None, None, 127)


def test_a_file_that_cannot_be_executed_is_126(flightlog, the_run, tmp_path):
    (tmp_path / "data.txt").write_text("no program")
    done = flightlog("run", "--", tmp_path / "data.txt")
    assert done.returncode == 126
    assert outcome(the_run()) == ("failed", 126, None)
    assert events(the_run(), "failures")["Failure"].error_type == "CommandNotExecutable"


def test_python_code_inside_records_into_the_same_run_as_part_of_the_command(flightlog, the_run, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import flightlog\n"
        "with flightlog.span('outside'): pass\n"
        "with flightlog.record('mine') as run:\n"
        "    with flightlog.span('inside', seed=1): pass\n"
        "    with run.task('simulate', scenario_id=7): pass\n"
    )
    assert flightlog("run", "--project", "ours", "--", sys.executable, program).returncode == 0
    run = the_run()  # one run, not two
    assert (run.info.project, run.info.tasks_completed) == ("ours", 2)
    tasks = {e.task: e for e in run.events("tasks") if type(e).__name__ == "TaskCompleted"}
    command = tasks.pop(os.path.basename(sys.executable))
    assert {name: task.parent_id for name, task in tasks.items()} == {"simulate": command.span_id}
    parents = {e.name: e.parent_id for e in run.events("spans")}
    assert parents == {"outside": command.span_id, "inside": command.span_id}
    assert run.completeness().lost == {}


def test_a_command_inside_a_command_is_a_task_of_the_same_run(flightlog, the_run):
    assert flightlog("run", "--", *FLIGHTLOG, "run", "--", "sh", "-c", "exit 5").returncode == 5
    run = the_run()
    assert outcome(run) == ("failed", 5, None)
    failed = {e.task for e in run.events("tasks") if type(e).__name__ == "TaskFailed"}
    assert failed == {"sh", os.path.basename(sys.executable)}


def test_a_script_of_recorded_commands_counts_once_and_its_steps_are_followed(flightlog, the_run):
    step = shlex.join([*FLIGHTLOG, "run", "--", "sleep"])
    assert flightlog("run", "--", "sh", "-c", f"{step} 0.2; {step} 2.5").returncode == 0
    report = report_on(the_run(), details=False)
    assert report.time is not None
    assert report.run.duration_s is not None
    assert 2.6 <= report.time.whole.total_s <= report.run.duration_s
    assert report.critical_path is not None
    inside = {tuple(place.names): place.seconds for place in report.critical_path.inside}
    assert inside["sh", "sleep"] >= 2.6
    most = inside["sh", "sleep"] >= 0.5 * inside["sh",]  # on a busy machine it takes longer to begin a step
    assert ("sleep inside sh" in (wall_time_text(report) or "")) is most


def test_what_a_command_leaves_running_neither_holds_it_up_nor_loses_output(environ, tmp_path):
    os.mkfifo(tmp_path / "go")
    script = f"(read line < {tmp_path}/go; echo late $line) & echo early"
    with subprocess.Popen(
        [*FLIGHTLOG, "run", "--", "sh", "-c", script], stdout=subprocess.PIPE, env=environ
    ) as process:
        assert process.stdout is not None
        assert process.wait() == 0  # while the child left behind still waits
        (tmp_path / "go").write_text("but here\n")
        assert process.stdout.read() == b"early\nlate but here\n"


def test_secrets_on_the_command_line_and_in_the_output_are_not_recorded(flightlog, the_run):
    done = flightlog(
        "run", "--", "sh", "-c", "echo password=hunter2hunter2; exit 1", "x", "--api-key", "s3cr3ts3cr3t"
    )
    assert done.stdout == b"password=hunter2hunter2\n"
    files = [file for file in the_run().path.rglob("*") if file.is_file()]
    assert {"run.json", "tasks.jsonl", "events.jsonl", "failures.jsonl"} <= {file.name for file in files}
    for file in files:
        assert b"s3cr3ts3cr3t" not in file.read_bytes(), file.name
        assert b"hunter2hunter2" not in file.read_bytes(), file.name


def test_sigterm_is_passed_on_and_the_run_is_interrupted(environ, the_run):
    program = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"  # an early one waits for it
        "print('ready', flush=True)\n"
        "signal.sigwait({signal.SIGTERM})\n"
        "print('got it', flush=True)\n"
        "sys.exit(5)\n"
    )
    with subprocess.Popen(
        [*FLIGHTLOG, "run", "--", sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.stdout.read() == b"got it\n"
        assert process.wait() == 5
    assert outcome(the_run()) == ("interrupted", 5, None)
    assert events(the_run(), "tasks")["TaskCancelled"].reason == "SIGTERM"
    assert list(the_run().events("failures")) == []


def test_a_reader_that_goes_away_ends_the_command_with_sigpipe(environ, the_run):
    with subprocess.Popen([*FLIGHTLOG, "run", "--", "yes"], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait() == 128 + signal.SIGPIPE
    assert outcome(the_run()) == ("failed", None, "SIGPIPE")


def test_a_standard_output_that_is_closed_is_closed_to_the_command_too(environ, the_run):
    probe = "import os, sys\ntry: os.fstat(1)\nexcept OSError: sys.exit(9)"
    quoted = " ".join(f"'{word}'" for word in [*FLIGHTLOG, "run", "--", sys.executable, "-c", probe])
    done = subprocess.run(["sh", "-c", f"{quoted} >&-"], env=environ, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (9, b"")
    fields = events(the_run(), "events")["UserEvent"].fields
    assert (fields["stdout"], fields["stdout_bytes"], fields["note"]) == (None, None, "stdout was closed")
    environ["FLIGHTLOG_TELEMETRY"] = "0"
    done = subprocess.run(["sh", "-c", f"{quoted} >&-"], env=environ, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (9, b"")


def test_with_recording_off_the_command_takes_flightlogs_place(flightlog, environ, tmp_path):
    environ["FLIGHTLOG_TELEMETRY"] = "0"
    script = 'echo "out"; test -z "$FLIGHTLOG_RUN" && kill -PIPE $$'
    done = flightlog("run", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGPIPE, b"out\n", b"")
    assert flightlog("run", "--", "no-such-command-here").returncode == 127
    assert not (tmp_path / "runs").exists()


def test_a_command_that_cannot_be_recorded_runs_all_the_same(flightlog, environ, tmp_path):
    (tmp_path / "file").write_text("")
    environ["FLIGHTLOG_RUNS_DIR"] = str(tmp_path / "file" / "runs")
    done = flightlog("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert done.stderr.startswith(b"err\nflightlog: cannot write ")


def test_the_memory_of_a_command_is_known_also_where_a_larger_program_asked_for_it(environ, the_run):
    program = "x = bytearray(b'x' * 50_000_000)"
    words = [*FLIGHTLOG, "run", "--", sys.executable, "-c", program]
    larger = f"import subprocess; x = bytearray(b'x' * 150_000_000); subprocess.run({words!r}, check=True)"
    subprocess.run([sys.executable, "-c", larger], env=environ, check=True, capture_output=True)
    task = events(the_run(), "tasks")["TaskCompleted"]
    assert 50_000_000 < task.peak_rss_bytes < 150_000_000
    assert task.rss_scope == "process"


def test_what_the_command_used_is_recorded(flightlog, the_run):
    program = "x = bytearray(b'x' * 200_000_000); sum(range(2_000_000))"
    assert flightlog("run", "--sample-interval", "0.1", "--", sys.executable, "-c", program).returncode == 0
    task = events(the_run(), "tasks")["TaskCompleted"]
    assert task.peak_rss_bytes > 200_000_000
    assert 0 < task.cpu_s
    assert (task.cpu_scope, task.rss_scope in {"process", "tree"}) == ("tree", True)
    samples = [e for e in the_run().events("resources") if e.scope == "worker"]
    assert {(sample.worker, sample.pid) for sample in samples} == {(task.worker, samples[0].pid)}
    assert [sample.final for sample in samples] == [False] * (len(samples) - 1) + [True]
    assert (samples[-1].rss_bytes, samples[-1].peak_rss_bytes) == (None, task.peak_rss_bytes)
    assert summarize(the_run()).resources.process.peak_rss_bytes == task.peak_rss_bytes
    assert "node" in {e.scope for e in the_run().events("resources")}


# --- in a terminal ----------------------------------------------------------------------------------------


def take_terminal() -> None:
    """Make standard error the terminal of this session, with signals as in a shell's foreground."""
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A terminal of 40 columns and 20 rows with a program in its foreground."""

    def __init__(self, argv: list[str], environ: dict[str, str], **streams: Any) -> None:
        self.master, slave = os.openpty()
        termios.tcsetwinsize(slave, (20, 40))
        streams = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}
        self.process = subprocess.Popen(
            argv, env=environ, start_new_session=True, preexec_fn=take_terminal, **streams
        )
        os.close(slave)
        self.seen = b""

    def read_until(self, text: bytes) -> None:
        while text not in self.seen:
            self.seen += os.read(self.master, 4096)

    def read_all(self) -> bytes:
        while True:
            try:
                self.seen += os.read(self.master, 4096)
            except OSError:
                return self.seen

    def press(self, key: bytes) -> None:
        os.write(self.master, key)


@pytest.fixture
def terminal(environ: dict[str, str]):
    """Run a command under `flightlog run` in a terminal."""
    opened: list[Terminal] = []

    def start(*command: str, before: Sequence[str] = (), **streams: Any) -> Terminal:
        opened.append(Terminal([*before, *FLIGHTLOG, "run", "--", *command], environ, **streams))
        return opened[-1]

    yield start
    for one in opened:
        one.process.kill()
        one.process.wait()
        os.close(one.master)


def test_in_a_terminal_the_command_finds_a_terminal_of_the_same_size(terminal, the_run):
    shell = terminal("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size <&1; echo to stderr >&2")
    assert shell.read_all().startswith(b"20 40\r\nto stderr\r\nflightlog: recorded as run-")
    assert shell.process.wait() == 0
    assert events(the_run(), "events")["UserEvent"].fields == {
        "output": None,
        "output_bytes": None,
        "note": "output went to a terminal, not kept",
    }


def test_only_the_stream_that_is_a_terminal_is_one_to_the_command(terminal, the_run):
    script = "test -t 1 || echo out is none; test -t 2 && echo err is one >&2"
    shell = terminal("sh", "-c", script, stdout=subprocess.PIPE)
    assert shell.process.stdout.read() == b"out is none\n"
    assert shell.read_all().startswith(b"err is one\r\n")
    shell.process.stdout.close()
    assert events(the_run(), "events")["UserEvent"].fields == {
        "stdout": "out is none\n",
        "stdout_bytes": 12,
        "stderr": None,
        "stderr_bytes": None,
        "note": "stderr went to a terminal, not kept",
    }


def test_a_failure_whose_output_went_to_a_terminal_has_no_end_of_output(terminal, the_run):
    shell = terminal("sh", "-c", "echo it broke >&2; exit 4")
    assert shell.read_all().startswith(b"it broke\r\n")
    assert shell.process.wait() == 4
    failure = events(the_run(), "failures")["Failure"]
    assert (failure.exit_code, failure.output_tail) == (4, None)


def test_ctrl_c_reaches_the_command_and_the_run_is_interrupted(terminal, the_run):
    program = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    shell = terminal(sys.executable, "-c", program)
    shell.read_until(b"ready\r\n")
    shell.press(b"\x03")
    assert shell.process.wait() == 128 + signal.SIGINT
    assert outcome(the_run()) == ("interrupted", None, "SIGINT")


def test_a_command_that_takes_ctrl_c_well_is_completed(terminal, the_run):
    program = (
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "print('ready', flush=True)\n"
        "signal.sigwait({signal.SIGINT})\n"
    )
    shell = terminal(sys.executable, "-c", program)
    shell.read_until(b"ready\r\n")
    shell.press(b"\x03")
    assert shell.process.wait() == 0
    assert outcome(the_run()) == ("completed", 0, None)


SHELL = """
import contextlib, os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
with contextlib.suppress(PermissionError):  # the child has done so itself, and has become the command
    os.setpgid(pid, pid)
os.tcsetpgrp(0, pid or os.getpid())
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), flush=True)
os.killpg(pid, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_ctrl_z_stops_flightlog_with_the_command_and_both_go_on(terminal):
    script = "echo ready; read line; echo $line"
    shell = terminal("sh", "-c", script, before=[sys.executable, "-c", SHELL])
    shell.read_until(b"ready\r\n")
    shell.press(b"\x1a")
    shell.read_until(b"stopped True\r\n")
    shell.press(b"went on\n")
    assert b"went on\r\nwent on\r\n" in shell.read_all()  # the terminal's echo, and the command's
    assert shell.process.wait() == 0


def test_a_window_that_changes_its_size_does_so_for_the_command(terminal):
    program = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})\n"
        "print('ready', flush=True)\n"
        "signal.sigwait({signal.SIGWINCH})\n"
        "print(os.get_terminal_size(1).columns, flush=True)\n"
    )
    shell = terminal(sys.executable, "-c", program)
    shell.read_until(b"ready\r\n")
    termios.tcsetwinsize(shell.master, (30, 77))
    shell.read_until(b"77\r\n")


def test_a_program_that_reads_keys_from_its_standard_error_gets_them(terminal):
    """As pagers do, whose standard input is what they show."""
    program = (
        "import os, termios, tty\n"
        "before = termios.tcgetattr(2)\n"
        "tty.setcbreak(2)\n"
        "print('press', flush=True)\n"
        "print('key', os.read(2, 1), flush=True)\n"
        "termios.tcsetattr(2, termios.TCSADRAIN, before)\n"
        "print('restored')"
    )
    shell = terminal(sys.executable, "-c", program, stdin=subprocess.DEVNULL)
    shell.read_until(b"press\r\n")
    shell.press(b"k")  # no newline: only a terminal in that mode hands it over
    shell.read_until(b"restored\r\n")
    assert shell.seen.startswith(b"press\r\nkey b'k'\r\n")


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_a_pager_can_be_left(terminal, environ, the_run):
    environ |= {"TERM": "dumb", "LESS": "-d", "LESSOPEN": ""}
    shell = terminal("sh", "-c", "seq 1000 | less")
    shell.read_until(b"19\r\n")
    shell.press(b"q")
    shell.read_all()
    assert shell.process.wait() == 0
    assert outcome(the_run()) == ("completed", 0, None)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_shell_controls_its_jobs(terminal, environ, the_run):
    environ |= {"PS1": "$ ", "TERM": "dumb", "HISTFILE": ""}
    shell = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    shell.read_until(b"$ ")
    shell.press(b"case $- in *m*) echo monitor-$((40+2));; esac\n")
    shell.read_until(b"monitor-42\r\n")
    shell.press(b"sh -c 'echo job; exec cat'\n")
    shell.read_until(b"job\r\n")
    shell.press(b"line\n")
    shell.read_until(b"line\r\nline\r\n")  # the terminal's echo, and cat's
    shell.press(b"\x03")  # for the job, and not for the shell nor for Flightlog
    shell.read_until(b"^C\r\n$ ")
    shell.press(b"exit 0\n")
    assert b"no job control" not in shell.read_all()
    assert shell.process.wait() == 0
    assert outcome(the_run()) == ("completed", 0, None)


# --- the tail ---------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30))
def test_a_tail_is_the_end_of_what_was_added(chunks, limit):
    tail = OutputTail(limit)
    for chunk in chunks:
        tail.add(chunk)
    whole = b"".join(chunks)
    assert tail.total_bytes == len(whole)
    if whole.isascii():
        assert len(tail.text(limit)) <= limit
        assert not set(tail.text(limit)) - set(whole.decode())


def test_a_tail_begins_with_a_whole_line():
    tail = OutputTail(limit=20)
    tail.add(b"first line of many\nsecond line\nthird line\n")
    assert tail.text(limit=15) == "third line\n"


def test_a_tail_of_a_short_stream_is_all_of_it():
    tail = OutputTail()
    tail.add(b"a\n")
    tail.add("ü".encode()[:1])
    assert tail.text() == "a\n\ufffd"
