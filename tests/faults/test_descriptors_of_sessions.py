"""A program or a task that closes all descriptors in mid-session, and takes their numbers, loses nothing of
its own.

Its session goes on with new workers. No frame of Flightlog's gets into a socket of the program's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.events import TaskFailed, WorkerLost
from flightlog.store.run import Run

PRELUDE = """
import os, socket, stat, sys, threading, time
from pathlib import Path

folder = Path(sys.argv[1])


def descriptors():
    return [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and is_open(fd)]


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Mine:
    '''Files, sockets and a listening socket of the program's own, which take the numbers that it closes.'''

    def __init__(self):
        numbers = descriptors()
        self.was = {number: os.readlink(f"/proc/self/fd/{number}") for number in numbers}
        os.closerange(3, 65536)
        self.files, self.ends, self.peers, rest = {}, {}, {}, []
        top = max(numbers) + 1
        for index, number in enumerate(numbers):
            if index % 2:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET if index % 4 == 1 else socket.SOCK_STREAM)
                ours, theirs = ours.detach(), theirs.detach()
                os.dup2(theirs, top + index)  # out of the way
                os.close(theirs)
                self.peers[number] = socket.socket(fileno=top + index)
                self.peers[number].send(b"for the program")
            else:
                path = folder / f"{os.getpid()}-{number}.csv"
                ours = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
                self.files[number] = path
            if ours != number:
                os.dup2(ours, number)
                os.close(ours)
            self.ends[number] = os.fstat(number).st_ino
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(folder / f"{os.getpid()}-{len(list(folder.iterdir()))}.sock"))
        self.listening.listen()
        self.caller = socket.socket(socket.AF_UNIX)
        self.caller.connect(self.listening.getsockname())
        for number, path in self.files.items():
            os.write(number, b"a row of the program's\\n")

    def check(self):
        '''Each number means what it was made for, and each file and socket holds the program's own bytes alone.'''
        for number, inode in self.ends.items():
            meaning = os.readlink(f"/proc/self/fd/{number}") if is_open(number) else "closed"
            assert is_open(number) and os.fstat(number).st_ino == inode, (number, self.was[number], meaning)
        for number, path in self.files.items():
            assert path.read_bytes() == b"a row of the program's\\n", (number, path.read_bytes())
            assert os.lseek(number, 0, os.SEEK_CUR) == 23, number
        for number, peer in self.peers.items():
            try:
                assert not [peer.recv(65536, socket.MSG_DONTWAIT)], f"{number} was written to, or closed"
            except BlockingIOError:
                pass
            end = socket.socket(fileno=number)
            try:
                assert end.recv(65536, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b"for the program", number
            finally:
                end.detach()
        self.caller.send(b"x")
        call, _ = self.listening.accept()
        assert call.recv(1) == b"x"
        call.close()
        self.caller = socket.socket(socket.AF_UNIX)
        self.caller.connect(self.listening.getsockname())


def add(number):
    return number + 1


def wait_for(path):
    deadline = time.monotonic() + 60
    while not Path(path).exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def hold(name, until):
    '''Runs until a file is there, the first time it is called; the next time it is over at once.'''
    begun = folder / f"{name}.begun"
    if begun.exists():
        return "again"
    begun.touch()
    wait_for(until)
    return "first"


mine = None


def close_everything(name, times=1):
    '''A task that closes all descriptors of its worker and takes their numbers, as often as it is told.'''
    global mine
    done = folder / f"{name}.closed"
    if done.exists() and times == 1:
        return "again"
    done.touch()
    mine = Mine()

    def check_at_the_end():
        # Until the process ends, as checked by a thread of its own: what it finds last stands in the file.
        verdict = folder / f"{name}.{os.getpid()}.verdict"
        while True:
            try:
                mine.check()
                text = "all is well"
            except BaseException as error:
                text = repr(error)
            fresh = verdict.with_suffix(".fresh")
            fresh.write_text(text)
            fresh.rename(verdict)
            if text != "all is well":
                return
            time.sleep(0.002)

    mine.check()
    threading.Thread(target=check_at_the_end, daemon=True).start()
    wait_for_verdict = time.monotonic() + 60
    while not list(folder.glob(f"{name}.{os.getpid()}.verdict")):
        assert time.monotonic() < wait_for_verdict
        time.sleep(0.01)
    return "first"


def session(workers=2, **options):
    from flightlog.session.session import Session

    lines = ["version: 1", "project:", "  name: trial", "targets:", "  local:", "    provider: local"]
    lines += [f"    max_workers: {workers}", *(f"    {name}: {value}" for name, value in options.items())]
    manifest = folder / "flightlog.yaml"
    manifest.write_text("\\n".join(lines) + "\\n")
    return Session.from_yaml(manifest, runs_dir=folder / "runs", sample_interval_s=None, target="local")


def options_of(method):
    return {"processes": "false"} if method == "threads" else {"start_method": method}


if __name__ == "__main__":
    method = sys.argv[2]
"""


def run_program(tmp_path: Path, method: str, program: str) -> str:
    """Run it to its end; what it said on stderr."""
    script = tmp_path / "program.py"
    script.write_text(PRELUDE + "".join(f"    {line}\n" for line in program.splitlines()))
    ran = subprocess.run(
        [sys.executable, script, tmp_path, method],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "FLIGHTLOG_COMPLETE": "now"},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def the_run(tmp_path: Path) -> Run:
    (path,) = (one for one in (tmp_path / "runs").iterdir() if one.name.startswith("run-"))
    return Run(path)


def lost_reasons(run: Run) -> list[str]:
    """Why attempts were lost, each reason once."""
    return sorted({event.error_message for event in run.events("tasks") if isinstance(event, TaskFailed)})


def workers_lost(run: Run) -> list[str]:
    """Why workers were lost, each reason once."""
    return sorted({event.reason for event in run.events("workers") if isinstance(event, WorkerLost)})


BY_PROGRAM = "the program closed the connection to this worker"
BY_TASK = "a task closed the connection of this worker to its engine"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_program_that_closes_everything_between_tasks_gets_all_results_and_keeps_its_own(tmp_path, method):
    run_program(
        tmp_path,
        method,
        """
with session(**options_of(method)) as one:
    client = one.client
    assert client.gather(client.map(add, range(20))) == [*range(1, 21)]
    mine = Mine()
    assert client.gather(client.map(add, range(20))) == [*range(1, 21)]
    mine.check()
    mine = [mine, Mine()]
for each in mine[1:]:
    each.check()
""",
    )
    run = the_run(tmp_path)
    assert (run.info.status, run.info.tasks_completed, run.info.tasks_failed) == ("completed", 40, 0)
    assert workers_lost(run) == [BY_PROGRAM]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_tasks_that_ran_when_the_program_closed_everything_are_lost_and_those_that_waited_complete(
    tmp_path, method
):
    run_program(
        tmp_path,
        method,
        """
with session(**options_of(method)) as one:
    client = one.client
    held = [client.submit(hold, name, str(folder / "never")) for name in ("a", "b")]
    again = client.submit(hold, "c", str(folder / "never"), retries=1) if method == "spawn" else None
    for name in ("a", "b"):
        wait_for(folder / f"{name}.begun")
    waiting = client.map(add, range(10))
    mine = Mine()
    assert client.gather(waiting) == [*range(1, 11)]
    for future in held:
        assert "the program closed the connection to this worker" in str(future.exception()), future.exception()
    if again is not None:
        wait_for(folder / "c.begun")
        mine.check()
        before, mine = mine, Mine()  # the objects of the first ones would close these when they go
        assert again.result() == "again"
    mine.check()
mine.check()
""",
    )
    run = the_run(tmp_path)
    assert workers_lost(run) == [BY_PROGRAM]
    assert lost_reasons(run) == [BY_PROGRAM]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_task_that_closes_everything_is_lost_with_the_reason_and_retried_as_any_lost_one(tmp_path, method):
    said = run_program(
        tmp_path,
        method,
        """
with session(1, **options_of(method)) as one:
    client = one.client
    before = client.map(add, range(5))
    lost = client.submit(close_everything, "lost", 2)
    retried = client.submit(close_everything, "retried", retries=1)
    after = client.map(add, range(5))
    assert client.gather([*before, *after]) == [*range(1, 6)] * 2
    assert retried.result() == "again"
    assert "a task closed the connection" in str(lost.exception()), lost.exception()
verdicts = [file.read_text() for file in folder.glob("*.verdict")]
assert verdicts == ["all is well"] * 2, verdicts
""",
    )
    run = the_run(tmp_path)
    assert (run.info.status, run.info.tasks_completed, run.info.tasks_failed) == ("completed", 11, 1)
    assert workers_lost(run) == [BY_TASK]
    assert lost_reasons(run) == [BY_TASK]
    assert said.count("cannot be reported") == 2  # once in each worker


def test_tasks_beside_one_that_closes_everything_run_on_in_their_threads_and_are_lost(tmp_path):
    run_program(
        tmp_path,
        "fork",
        """
with session(1, threads_per_worker=2, **options_of(method)) as one:
    client = one.client
    held = client.submit(hold, "a", str(folder / "lost.closed"), retries=1)
    lost = client.submit(close_everything, "lost", 2)
    after = client.map(add, range(5))
    assert client.gather(after) == [*range(1, 6)]
    assert held.result() in ("first", "again")
    assert "a task closed the connection" in str(lost.exception()), lost.exception()
(verdict,) = folder.glob("*.verdict")
assert verdict.read_text() == "all is well", verdict.read_text()
""",
    )
    assert lost_reasons(the_run(tmp_path)) == [BY_TASK]


@pytest.mark.parametrize("method", ["threads", "fork"])
def test_the_output_of_commands_is_read_from_their_own_pipes_alone(tmp_path, method):
    run_program(
        tmp_path,
        method,
        """
command = "echo first; touch %s; while ! test -e %s; do sleep 0.01; done; echo second; sleep 0.01; echo third >&2"
with session(**options_of(method)) as one:
    client = one.client
    begun, go = folder / "begun", folder / "go"
    future = client.submit_command(["sh", "-c", command % (begun, go)])
    wait_for(begun)
    mine = Mine()
    go.touch()
    future.exception()
    mine.check()
    assert client.submit_command(["echo", "well"]).result().stdout.strip() == "well"
mine.check()
""",
    )
    assert the_run(tmp_path).info.status == "completed"


def test_a_program_that_closes_everything_while_a_worker_is_launched_keeps_its_own(tmp_path):
    """It strikes in the launching thread, after the first, second, ... call that `multiprocessing`'s code
    makes."""
    run_program(
        tmp_path,
        "spawn",
        """
import multiprocessing.popen_spawn_posix, multiprocessing.resource_tracker, multiprocessing.util

launching = {
    multiprocessing.popen_spawn_posix.Popen._launch.__code__,
    multiprocessing.resource_tracker.ResourceTracker.ensure_running.__code__,
    multiprocessing.util.spawnv_passfds.__code__,
}
opened, left, struck = [], 0, []


def strike():
    where = f"{len(struck)}"
    struck.append(where)
    os.closerange(3, 65536)
    opened.extend(open(folder / f"{where}-{index}.csv", "w+") for index in range(12))
    for file in opened:
        file.write("a row\\n")
        file.flush()


def watch(frame, event, what):
    global left
    ours = frame.f_code if event == "c_return" else frame.f_back and frame.f_back.f_code
    if event not in ("return", "c_return") or ours not in launching or left < 0:
        return
    left -= 1
    if left == -1:
        strike()


left = -1
threading.setprofile(watch)
with session(1, start_method="spawn") as one:
    client = one.client
    for after in range(0, 40, 5):
        left = after
        assert client.gather(client.map(add, range(3))) == [1, 2, 3]
        assert opened
        for file in opened:
            file.write("another\\n")
            file.flush()
            file.seek(0)
            assert file.read() == "a row\\nanother\\n", (after, file.name)
            file.close()
        opened.clear()
        os.closerange(3, 65536)
""",
    )
