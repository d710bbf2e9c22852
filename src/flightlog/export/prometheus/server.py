"""A small web server for `/metrics` and nothing else."""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from flightlog.errors import UsageError
from flightlog.export.prometheus.page import MetricsPage

log = logging.getLogger("flightlog")

PATIENCE_S = 30.0
"""A client that says nothing for so long is left."""


class MetricsServer(ThreadingHTTPServer):
    """Serves one page at `/metrics`. Use `serve_forever` and, from another thread, `shutdown`; a port of 0 is any free one."""

    daemon_threads = True

    def __init__(self, host: str, port: int, page: MetricsPage) -> None:
        self.page = page
        if ":" in host:
            import socket

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
        import socketserver

        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base's signature
        """A client that went away in the middle is nobody to tell."""
        log.debug("a request for metrics was not answered", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server_version = "flightlog"
    sys_version = ""
    server: MetricsServer

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n", "text/plain; charset=utf-8")
            return
        try:
            body, kind = self.server.page.answer(self.headers.get("Accept") or "")
        except Exception as error:  # noqa: BLE001 - the server goes on; the scrape says why it failed
            text = f"the metrics could not be read: {error}\n".encode("utf-8", "replace")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text, "text/plain; charset=utf-8")
            return
        self._send(HTTPStatus.OK, body, kind)

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Nothing: a scrape every few seconds is no news."""
