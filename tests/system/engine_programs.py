"""Runs `sweep_program.py` on an engine, and says what every engine should give."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("sweep_program.py")
SCRIPTS = Path(sys.executable).parent
MARK = "TEST_PROGRAM"
"""The variable by which processes of a program are found."""
SHARED = Path("/dev/shm")

MANIFEST = """\
version: 1
project:
  name: sweep
targets:
  local:
    provider: local
    max_workers: 2
  dragon:
    provider: dragon
    max_workers: 2
  ray:
    provider: ray
    num_cpus: 2
    object_store_memory: 80MiB
  cluster:
    provider: ray
    address: auto
"""

RESULTS = [0, 1, 4, 9, 16, "no such seed", 36, 49]
RECORDED = {
    "status": "completed",
    "tasks": {"submitted": 8, "completed": 7, "failed": 1, "retried": 2, "started": 10},
    "spans": [0, 1, 2, 3, 3, 4, 5, 5, 6, 7],
    "spans_outside_of_tasks": 0,
    "failures": ["ConnectionError", "ValueError", "ValueError"],
    "lost": 0,
}


class DragonStoodStillError(Exception):
    """The services of Dragon itself waited for a lock for ever."""


def unless_dragon_stands_still(start):
    """What `start()` gives, and once more if Dragon's own services stood still.

    Locks in Dragon's shared memory stay locked when the process that holds one is killed, and these tests
    kill processes. What stood where is printed. Whatever else hangs fails the test at once.
    """
    try:
        return start()
    except DragonStoodStillError as stood:
        print(f"once more, for Dragon stood still: {stood}")
        return start()


def run_program(command, folder, env=None, timeout_s=200):
    """A program's end and what it wrote: stdout and stderr apart.

    One that takes too long fails the test with where each of its processes stood, and nothing of it is left
    behind: no process, whoever has started it, and no shared memory.
    """
    mark = f"{folder}-{time.monotonic_ns()}"
    env = {
        **os.environ,
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "MANIFEST": MANIFEST,
        "PYTHONFAULTHANDLER": "1",
        MARK: mark,
        **(env or {}),
    }
    words = [str(part) for part in command]
    shared = set(SHARED.iterdir())
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        program = subprocess.Popen(
            words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        try:
            code = program.wait(timeout_s)
        except subprocess.TimeoutExpired:
            stood = _end_all(program, mark)
            for left in set(SHARED.iterdir()) - shared:
                if left.name.startswith("DD") and not _is_in_use(left):  # Dragon's
                    left.unlink(missing_ok=True)
            stacks = _text(err)
            told = (
                f"{' '.join(words)} has not ended within {timeout_s:g} s; its processes:\n{stood}\n"
                f"stdout:\n{_text(out)}\nstderr, with the stacks:\n{stacks}"
            )
            if re.search(
                r"dragon/(localservices|globalservices)/.*in (destroy_channel|gs_request)\b", stacks
            ):
                raise DragonStoodStillError(told) from None
            pytest.fail(told)
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _end_all(program, mark):
    """End a program that hangs, each process with its stacks on stderr, the one that passes them on last."""
    marked = f"{MARK}={mark}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marked in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
    for pid in sorted(found, key=lambda pid: pid == program.pid):
        if pid == program.pid:
            time.sleep(2.0)  # what the others have written goes through its hands
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(5.0)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    program.wait()
    return "\n".join(f"{pid}: {line[:300]}" for pid, line in found.items())


def _is_in_use(shared):
    for entry in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(shared) in entry.read_text():
                return True
    return False


def _text(file):
    file.seek(0)
    return file.read()


def sweep(launcher, target, folder, env=None):
    """What the sweep gives on a target: its results and what was recorded, and the two streams of the
    program."""
    marks, home = folder / "marks", folder / "home"

    def start():
        for empty in (marks, home):
            shutil.rmtree(empty, ignore_errors=True)
            empty.mkdir()
        return run_program([*launcher, PROGRAM, home, target], folder, {"MARKS": str(marks), **(env or {})})

    done = unless_dragon_stands_still(start)
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == 1, (done.stdout, done.stderr)
    return json.loads(told[0]), done


def agreed(told):
    """The part of what was recorded that is the same on every engine."""
    return {key: told["recorded"][key] for key in RECORDED}
