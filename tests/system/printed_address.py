"""A server that says on its output where it is."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def printed_address(
    process: subprocess.Popen[str],
    pattern: re.Pattern[str],
    name: str,
    timeout_s: float,
    end: Callable[[], None],
    said: list[str],
) -> Iterator[str]:
    """The address that a process prints; `end` ends it. Its lines are added to `said` up to then."""
    found = threading.Event()
    assert process.stdout is not None
    output = process.stdout

    def listen() -> None:
        for line in output:
            said.append(line)
            if pattern.search(line):
                found.set()
        found.set()  # it ended

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        found.wait(timeout_s)
        address = pattern.search("".join(said))
        if address is None:
            raise RuntimeError(f"{name} printed no address:\n{''.join(said)[-3000:]}")
        yield address.group()
    finally:
        try:
            end()
        finally:
            process.kill()
            thread.join(10)
            output.close()
