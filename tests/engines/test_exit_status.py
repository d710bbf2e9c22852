"""How a process ended that is no child of whoever asks."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from flightlog.engines.processes import WatchedProcess

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="there are no descriptors of processes here"
)

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.readline()
child.stdin.close()
if sys.argv[2] == "waits":
    child.wait()
print("over", flush=True)
sys.stdin.readline()
"""


def ended_as(code: str, parent: str) -> tuple[int | None, int | None]:
    """The exit code of somebody else's child before and after its end."""
    command = [sys.executable, "-c", PARENT, f"import os, sys; sys.stdin.read(); {code}", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        watched = WatchedProcess(int(process.stdout.readline()))
        before = watched.exit_code()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "over\n"
        poll = select.poll()
        poll.register(watched.fd, select.POLLIN)
        assert poll.poll(60_000)
        after = watched.exit_code()
        watched.close()
        watched.close()
        process.stdin.close()
    return before, after


def test_the_exit_code_of_a_process_whose_parent_has_not_asked_for_it_is_known():
    assert ended_as("os._exit(3)", "sleeps") == (None, 3)
    assert ended_as(f"os.kill(os.getpid(), {signal.SIGKILL:d})", "sleeps") == (None, -signal.SIGKILL)


@pytest.mark.skipif(
    tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 15),
    reason="Linux keeps it since 6.15",
)
def test_newer_kernels_keep_it_when_the_parent_has():
    assert ended_as("os._exit(3)", "waits") == (None, 3)
    assert ended_as(f"os.kill(os.getpid(), {signal.SIGKILL:d})", "waits") == (None, -signal.SIGKILL)


def test_a_process_that_is_not_there_cannot_be_watched():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ProcessLookupError):
        WatchedProcess(child.pid)
