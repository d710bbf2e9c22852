"""Real servers on this machine that take alerts: a webhook, and a mail server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "s3cr3t-in-the-path"


class Hook:
    """What was posted. `answers` are used up first, one a request; then all is well."""

    def __init__(self) -> None:
        self.address = ""
        self.posted: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.requests = 0


@contextmanager
def hook() -> Iterator[Hook]:
    """A server that takes JSON at any path."""
    taken = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.requests += 1
            status = taken.answers.pop(0) if taken.answers else 200
            if status == 200:
                taken.posted.append(json.loads(body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            taken.requests += 1
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    taken.address = f"http://127.0.0.1:{server.server_port}/hooks/{SECRET}"
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Mail:
    """The mails that came."""

    def __init__(self) -> None:
        self.address = ""
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        """Called by the server with each mail."""
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"

    def text(self) -> str:
        """The last mail, readable."""
        parts = [part for part in self.mails[-1].walk() if not part.is_multipart()]
        return "\n".join(str(part.get_payload(decode=True).decode()) for part in parts)


@contextmanager
def mail_server() -> Iterator[Mail]:
    """A server that takes any mail, and an address of Apprise that sends there."""
    from aiosmtpd.controller import Controller

    taken = Mail()
    with socket.socket() as probe:  # the library connects to the port it was given, so it cannot be 0
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Controller(taken, hostname="127.0.0.1", port=port, ready_timeout=60)
    server.start()
    try:
        taken.address = (
            f"mailto://127.0.0.1:{port}?from=flightlog@example.org&to=you@example.org&mode=insecure"
        )
        yield taken
    finally:
        server.stop()
