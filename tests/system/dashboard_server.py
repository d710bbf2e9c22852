"""`flightlog ui` as a process of its own, on a free port."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from printed_address import printed_address

_ADDRESS = re.compile(r"https?://\S+")
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@dataclass(frozen=True)
class Served:
    """A dashboard that answers."""

    printed: str
    """The address as it was printed, with a token where there is one."""
    pid: int

    @property
    def address(self) -> str:
        """Without path and query, and by a name that reaches it from here."""
        return f"http://127.0.0.1:{urlsplit(self.printed).port}"

    @property
    def token(self) -> str | None:
        """What was printed as the token."""
        return parse_qs(urlsplit(self.printed).query).get("token", [None])[0]

    def status(self, path: str, headers: dict[str, str] | None = None) -> int:
        """What the server answers to a plain request; a socket that is let in is 101."""
        there = http.client.HTTPConnection("127.0.0.1", urlsplit(self.printed).port or 0, timeout=30)
        try:
            there.request("GET", path, headers=headers or {})
            return there.getresponse().status
        finally:
            there.close()


@contextmanager
def dashboard(runs_dir: Path, *words: str, timeout_s: float = 60) -> Iterator[Served]:
    """Start a dashboard of a folder; it is ended as Ctrl-C ends it, and has to go then.

    Its token is kept beside the folder, and not where the user's own is.
    """
    command = [
        str(Path(sys.executable).with_name("flightlog")),
        "ui",
        "--runs-dir",
        str(runs_dir),
        "--port",
        "0",
        *words,
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": f"{runs_dir}-state"},
    )

    def end() -> None:
        process.send_signal(signal.SIGINT)
        process.wait(20)

    said: list[str] = []
    try:
        with printed_address(process, _ADDRESS, "the dashboard", timeout_s, end, said) as printed:
            yield Served(printed, process.pid)
    finally:
        tracebacks = [line for line in said if "Traceback" in line]
        assert tracebacks == [], "".join(said)[-3000:]
