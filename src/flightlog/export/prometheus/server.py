"""A small web server for `/metrics` and nothing else, which nobody can keep from answering."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.export.prometheus.folder import MetricsPage

log = logging.getLogger("flightlog")

MOST_CONNECTIONS = 64
"""Connections at a time. One more takes the place of the oldest that has not sent its request yet."""
REQUEST_S = 10.0
"""How long a client may take to send its request, in seconds."""
ANSWER_S = 60.0
"""How long it may take from the request until it has received the answer."""
TEXT = "text/plain; charset=utf-8"
_BUSY = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\ntoo many requests at a time\n"
)
_OTHER_NAME = (
    b"the metrics are not served under this name: use localhost, an IP address or the name of the machine, or start "
    b"flightlog serve-metrics with --allow-host NAME\n"
)


class _Connection(Struct, eq=False):
    """A client that is connected."""

    since: float
    answering: bool = False


class MetricsServer(ThreadingHTTPServer):
    """Serves one page at `/metrics`. Use `serve_forever` and, from another thread, `shutdown`; a port of 0 is
    any free one.

    Requests are answered under the names of this machine (`localhost`, its host name, `host`), under any IP
    address and under `names`, so that no page of the web can read the metrics by a name that it makes point
    here. The number of connections is limited, and so is the time each of them may take.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        page: MetricsPage,
        *,
        names: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.page = page
        machine = socket.gethostname()
        known = ("localhost", host, machine, machine.partition(".")[0], *names)
        self._names = frozenset(name.lower().rstrip(".") for name in known)
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, _Connection] = {}
        """In the order of their beginning."""
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Request)
        except OSError as error:
            taken = error.errno in {errno.EADDRINUSE, errno.EACCES}
            hint = "; another --port may be free" if taken and port else ""
            raise UsageError(
                f"cannot serve metrics at {host} port {port}: {error.strerror or error}{hint}"
            ) from None
        except OverflowError:
            raise UsageError(f"--port {port} is no port: 0 to 65535") from None

    @property
    def address(self) -> str:
        """Where the page is."""
        host, port = self.server_name, self.server_port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def server_bind(self) -> None:
        """Bind without asking a name server who this is, which may take its time."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def is_known(self, hosts: list[str]) -> bool:
        """Whether a request with these `Host` headers is to be answered; without any it is no browser's."""
        if len(hosts) != 1:
            return not hosts
        try:
            name = (urlsplit(f"//{hosts[0]}").hostname or "").rstrip(".")
            if name in self._names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; where too many are connected, at the cost of one that has sent no request
        yet.
        """
        with self._lock:
            full = len(self._connections) >= MOST_CONNECTIONS
            waiting = [one for one, found in self._connections.items() if not found.answering] if full else []
            if full and waiting:
                self._drop(waiting[0])
            if not full or waiting:
                self._connections[request] = _Connection(self._clock())
        if full and not waiting:
            with suppress(OSError):
                request.setblocking(False)
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.shutdown_request(request)  # no thread could be started
            raise

    def service_actions(self) -> None:
        """Drop the connections whose time is over; the server calls this several times a second."""
        now = self._clock()
        with self._lock:
            for one, found in list(self._connections.items()):
                if now - found.since > (ANSWER_S if found.answering else REQUEST_S):
                    self._drop(one)

    def answering(self, request: socket.socket) -> bool:
        """Note that a request has come whole; False where its connection was dropped in the meantime."""
        with self._lock:
            found = self._connections.get(request)
            if found is not None:
                found.since, found.answering = self._clock(), True
            return found is not None

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def _drop(self, request: socket.socket) -> None:
        """End a connection from outside; its thread, which reads or writes, sees the end and closes it."""
        del self._connections[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base's signature
        """A client that went away in the middle is nobody to tell."""
        log.debug("a request for metrics was not answered", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    timeout = ANSWER_S
    server_version = "flightlog"
    sys_version = ""
    server: MetricsServer

    def do_GET(self) -> None:
        if not self.server.answering(self.connection):
            return
        if not self.server.is_known(self.headers.get_all("Host") or []):
            self._send(HTTPStatus.FORBIDDEN, _OTHER_NAME, TEXT)
            return
        if self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n", TEXT)
            return
        try:
            body, kind = self.server.page.answer(self.headers.get("Accept") or "")
        except Exception as error:  # noqa: BLE001 - the server goes on; the scrape says why it failed
            text = f"the metrics could not be read: {error}\n".encode("utf-8", "replace")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text, TEXT)
            return
        self._send(HTTPStatus.OK, body, kind)

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Nothing: a scrape every few seconds is no news."""
