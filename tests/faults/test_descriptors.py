"""A program that closes descriptors which are not its own, and gets their numbers again, loses nothing of its
own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.store.run import Run

PRELUDE = """
import os, random, signal, sys, threading, time
from pathlib import Path

import flightlog

folder = Path(sys.argv[1])
ROW = "row {name} {number} of the user's own\\n"


class Files:
    '''Files of the user's, open at once, and what each must hold.'''

    def __init__(self, count, numbers=()):
        self.open = {}
        wanted = list(numbers)
        for index in range(max(count, len(wanted))):
            name = f"{len(list(folder.glob('*.csv')))}-{os.getpid()}.csv"
            fd = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
            if wanted and fd != wanted[0]:
                os.dup2(fd, wanted[0])
                os.close(fd)
                fd = wanted[0]
            wanted = wanted[1:]
            self.open[fd] = (name, os.fstat(fd).st_ino)
        self.rows = 0

    def write(self):
        self.rows += 1
        for fd, (name, _) in self.open.items():
            os.write(fd, ROW.format(name=name, number=self.rows).encode())

    def remove(self):
        for name, _ in self.open.values():
            (folder / name).unlink()

    def check(self):
        '''Every number still means the user's own file, which holds what was written and nothing else.'''
        for fd, (name, inode) in self.open.items():
            assert meaning(fd).endswith(name) and os.fstat(fd).st_ino == inode, (name, fd, meaning(fd))
            rows = "".join(ROW.format(name=name, number=i + 1) for i in range(self.rows))
            assert (folder / name).read_text() == rows, name
            assert os.lseek(fd, 0, os.SEEK_CUR) == len(rows), name


def descriptors():
    return [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and meaning(fd)]


def meaning(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def close_all(but=()):
    for fd in descriptors():
        if fd not in but:
            try:
                os.close(fd)
            except OSError:
                pass


def kept():
    '''Numbers that stay open, and mean the same: descriptors that are kept.'''
    found = {fd: meaning(fd) for fd in descriptors()}
    for _ in range(8):  # a duplicate for one write may last that long on a busy machine
        time.sleep(0.03)
        found = {fd: is_now for fd in descriptors() if (is_now := meaning(fd)) == found.get(fd)}
    return [*found]


def wait_until_started():
    '''Until the recorder has done what it does once, at the start of a run.'''
    while not list(folder.glob("runs/*/environment.json")):
        time.sleep(0.02)


def work(count, name="work"):
    for number in range(count):
        with flightlog.span(name, number=number, text="x" * 200):
            pass


def end(files):
    files.write()
    files.check()
    (folder / "checked").write_text("all is well")
"""


def run_program(tmp_path: Path, program: str, *, returncode: int = 0) -> str:
    """Run it to its end; what it said on stderr."""
    script = tmp_path / "program.py"
    script.write_text(PRELUDE + program)
    ran = subprocess.run(
        [sys.executable, script, tmp_path],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")},
    )
    assert ran.returncode == returncode, ran.stderr
    return ran.stderr


def the_run(tmp_path: Path):
    """The run, of which nothing may be missing without being counted, and which holds nothing of the
    user's."""
    (path,) = (tmp_path / "runs").iterdir()
    for file in path.rglob("*"):
        assert not file.is_file() or b"of the user's own" not in file.read_bytes()
    return Run(path)


def spans(run, name="work"):
    """The numbers of the spans of a name."""
    return sorted(event.tags["number"] for event in finished(run) if event.name == name)


def checked(tmp_path: Path) -> bool:
    return (tmp_path / "checked").exists()


def test_a_program_that_closes_everything_keeps_its_files_and_all_spans(tmp_path):
    said = run_program(
        tmp_path,
        """
with flightlog.record("x", sample_interval_s=0.1):
    work(500)
    os.closerange(3, 65536)
    files = Files(20)
    for _ in range(10):
        files.write()
        work(500)
        files.check()
        time.sleep(0.06)
end(files)
""",
    )
    run = the_run(tmp_path)
    assert checked(tmp_path)
    assert said == ""
    assert spans(run) == sorted([*range(500)] * 11)
    assert run.status == "completed"


def test_numbers_that_the_program_takes_for_its_own_files_stay_its_own(tmp_path):
    run_program(
        tmp_path,
        """
before = descriptors()
with flightlog.record("x", sample_interval_s=0.1):
    work(500)
    time.sleep(0.3)
    ours = [fd for fd in kept() if fd not in before]
    files = Files(0, ours)
    for _ in range(10):
        files.write()
        work(500)
        files.check()
        time.sleep(0.06)
end(files)
assert len(ours) >= 3
""",
    )
    run = the_run(tmp_path)
    assert checked(tmp_path)
    assert spans(run) == sorted([*range(500)] * 11)
    assert run.status == "completed"


def test_a_child_forked_after_the_numbers_changed_hands_closes_nothing(tmp_path):
    run_program(
        tmp_path,
        """
before = descriptors()
with flightlog.record("x"):
    work(500)
    ours = [fd for fd in kept() if fd not in before]
    files = Files(0, ours)
    files.write()
    pid = os.fork()
    work(500)
    files.check()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    files.check()
end(files)
""",
    )
    run = the_run(tmp_path)
    assert checked(tmp_path)
    assert spans(run) == sorted([*range(500)] * 3)
    assert run.status == "completed"


@pytest.mark.parametrize("busy", ["between two instructions", "in a long call"])
def test_a_deadly_signal_is_written_into_no_file_and_the_run_is_interrupted(tmp_path, busy):
    run_program(
        tmp_path,
        """
before = descriptors()
with flightlog.record("x"):
    work(500)
    wait_until_started()
    ours = [fd for fd in kept() if fd not in before]
    files = Files(0, ours)
    files.write()
    deadline = time.monotonic() + 30
    while not any(meaning(fd).startswith("pipe:") for fd in descriptors() if fd not in (*before, *ours)):
        time.sleep(0.01)  # the watching thread is woken up by the end of its pipe, and has another one made
        assert time.monotonic() < deadline
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    end(files)
"""
        + (
            """
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
            if busy == "between two instructions"
            else """
    import hashlib
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 400_000_000)
"""
        ),
        returncode=-signal.SIGTERM,
    )
    assert checked(tmp_path)
    run = the_run(tmp_path)
    assert spans(run) == [*range(500)]
    assert run.status == "interrupted"


@pytest.mark.parametrize("detached", [True, False])
def test_a_daemon_keeps_its_files_and_its_spans(tmp_path, detached):
    program = (
        f"detached = {detached}"
        + """
import daemon

with flightlog.record("x"):
    work(500, "before")
    errors = (folder / "errors").open("w")
    with daemon.DaemonContext(
        working_directory=str(folder), stderr=errors, files_preserve=[errors], detach_process=detached
    ):
        files = Files(20)
        for _ in range(10):
            files.write()
            work(500)
            files.check()
end(files)
"""
    )
    run_program(tmp_path, program)
    deadline = time.monotonic() + 60
    while not checked(tmp_path) and time.monotonic() < deadline:
        assert (tmp_path / "errors").read_text() == ""
        time.sleep(0.05)
    assert checked(tmp_path)
    run = the_run(tmp_path)
    assert spans(run, "before") == [*range(500)]
    assert spans(run) == sorted([*range(500)] * 10)
    assert run.status == "completed"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_closing_everything_again_and_again_beside_busy_threads_hurts_no_file(tmp_path, seed):
    run_program(
        tmp_path,
        f"""
chance = random.Random({seed})
going = True
counts = [0] * 3


def record_on(index):
    while going:
        with flightlog.span("busy", number=counts[index] * 3 + index, text="x" * 200):
            pass
        counts[index] += 1
        time.sleep(0.001)


before = descriptors()
heard = []
with flightlog.record("x", sample_interval_s=0.1) as run:
    run.subscribe(lambda event: heard.append(event.tags["number"]), "span", where=lambda event: event.name == "busy")
    threads = [threading.Thread(target=record_on, args=(index,), daemon=True) for index in range(3)]
    for thread in threads:
        thread.start()
    work(50)
    old = []
    for _ in range(10):
        mine = {{fd for files in old for fd in files.open}}
        theirs = [fd for fd in kept() if fd not in (*before, *mine)]
        if chance.random() < 0.5:
            close_all(mine)
            old.append(Files(chance.randrange(1, 8)))
        else:
            old.append(Files(0, [fd for fd in theirs if chance.random() < 0.7]))
        for files in old:
            files.write()
        time.sleep(chance.random() * 0.05)
        for files in old:
            files.check()
    going = False
    for thread in threads:
        thread.join()
for files in old:
    end(files)
(folder / "counts").write_text(str(counts))
(folder / "heard").write_text(str(sorted(heard)))
""",
    )
    assert checked(tmp_path)
    run = the_run(tmp_path)
    assert spans(run) == [*range(50)]
    counts = json.loads((tmp_path / "counts").read_text())
    recorded = sorted(number * 3 + index for index, count in enumerate(counts) for number in range(count))
    assert spans(run, "busy") == recorded
    assert json.loads((tmp_path / "heard").read_text()) == recorded
    assert run.status == "completed"


# Runs for some beats with a sample every 0.1 s, and tells which files the recorder's threads opened by a bare
# number.
OPENED = """
found = []


def listen(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and threading.current_thread().name.startswith("flightlog-"):
        if not sys._getframe(1).f_code.co_filename.endswith("flightlog/core/descriptors.py"):
            found.append(str(arguments[0]))


sys.addaudithook(listen)
os.environ.pop("FLIGHTLOG_COMPLETE", None)  # what completing a run takes is imported in the background
with flightlog.record("x", sample_interval_s=0.1) as run:
    run.subscribe(lambda event: None)
    while not hasattr(sys.modules.get("flightlog.store.completing"), "complete"):  # the last that is imported
        work(10)
        time.sleep(0.05)
    work(10)
(folder / "found").write_text("\\n".join(found))
"""


def test_the_recorders_threads_open_no_file_by_a_bare_number(tmp_path):
    run_program(tmp_path, OPENED)
    assert (tmp_path / "found").read_text() == ""


def test_what_is_open_for_a_moment_only_while_descriptors_are_closed_hurts_no_file(tmp_path):
    run_program(
        tmp_path,
        """
import importlib
from flightlog.core.descriptors import folder_names
from flightlog.record.background_imports import loading
from flightlog.store.documents import read_document, write_document
from flightlog.store.write.finalize import finalizing

(folder / "imported_again_and_again.py").write_text("x = 1\\n" * 1000)
sys.path.insert(0, str(folder))
going = True
tried = [0] * 6
wrong = []


def try_on(index, deed):
    while going and not wrong:
        try:
            deed()
        except OSError:
            pass  # its descriptor was closed
        except BaseException as error:
            wrong.append(repr(error))
        tried[index] += 1


def seal():
    with finalizing(folder):
        pass


def import_again():
    sys.modules.pop("imported_again_and_again", None)
    with loading():
        assert importlib.import_module("imported_again_and_again").x == 1


deeds = [
    lambda: write_document(folder / "document.json", {"text": "x" * 1000}),
    lambda: folder_names("/proc/self/task"),
    lambda: folder_names(folder),
    lambda: read_document(folder / "document.json", dict),
    seal,
    import_again,
]
threads = [threading.Thread(target=try_on, args=pair, daemon=True) for pair in enumerate(deeds)]
for thread in threads:
    thread.start()
files = Files(0)
while min(tried) < 100 and not wrong:
    files.remove()  # else the folder that is listed grows with each round
    os.closerange(3, 40)
    files = Files(8)
    for _ in range(3):
        files.write()
        files.check()
going = False
for thread in threads:
    thread.join()
assert wrong == []
end(files)
""",
    )
    assert checked(tmp_path)
    assert json.loads((tmp_path / "document.json").read_text()) == {"text": "x" * 1000}
    assert not list(tmp_path.glob(".*.tmp"))
