"""`flightlog ui` as a process, and what it answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def dashboard(runs: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`flightlog ui` as a process, and the address it printed."""
    command = [sys.executable, "-m", "flightlog", "ui", "--runs-dir", str(runs), "--port", "0", *more]
    environ = {**os.environ, "XDG_STATE_HOME": f"{runs}-state"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.fullmatch(
                r"flightlog: dashboard of the runs in (\S+) at (http://127.0.0.1:\d+/\S*) "
                r"\(Ctrl-C ends it\)\n",
                said,
            )
            assert found is not None, said
            assert found[1] == str(runs)
            yield process, found[2]
        finally:
            if process.poll() is None:
                process.kill()


def status_of(address: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError):
        return 0  # closed before all was sent
