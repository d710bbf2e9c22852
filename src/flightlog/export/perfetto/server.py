"""Serves a trace to Perfetto's UI: one file, once, to one page.

The UI fetches the address after `#!/?url=` in its own. It runs in the browser alone: the trace goes from this
process to the browser, and to no server.
"""

from __future__ import annotations

import errno
import re
import secrets
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, urlsplit

from flightlog.core.errors import UsageError

UI = "https://ui.perfetto.dev"
PORT = 9001
"""The port from which any version of the UI lets its page fetch."""
HOST = "127.0.0.1"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class ServedTrace:
    """A trace at an unguessable address until it was fetched; a context manager.

    Answers only requests for this address, and only the pages of the UI's origin may read the answer. `name`
    is the UI's title of the trace. Raises `UsageError` where the port is taken or the UI's address is
    invalid.
    """

    def __init__(self, trace: Path, *, ui: str = UI, port: int = PORT, name: str = "trace") -> None:
        self._ui = _origin_and_path(ui)
        self._path = f"/{secrets.token_urlsafe(16)}/{_UNSAFE.sub('_', name)[:100]}.json.gz"
        self._fetched = threading.Event()
        try:
            self._server = _Server(port, trace, self._path, self._ui[0], self._fetched)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = (
                "is in use, maybe by another trace that waits for its browser"
                if taken
                else f"cannot be used: {error.strerror}"
            )
            raise UsageError(f"port {port} of this machine {why}; name another with --port") from error
        except OverflowError:
            raise UsageError(f"{port} is no port: name one from 1 to 65535, or 0 for any free one") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def port(self) -> int:
        """Where it is served."""
        return self._server.server_port

    @property
    def address(self) -> str:
        """Of the trace itself."""
        return f"http://{HOST}:{self.port}{self._path}"

    @property
    def link(self) -> str:
        """The address to open in a browser: that of the UI, which then fetches the trace."""
        return f"{''.join(self._ui)}/#!/?url={quote(self.address, safe=':/')}"

    def wait(self, timeout_s: float) -> bool:
        """Wait until the trace was fetched, but no longer than so; whether it was."""
        return self._fetched.wait(timeout_s)

    def __enter__(self) -> ServedTrace:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _origin_and_path(ui: str) -> tuple[str, str]:
    """As a browser names the origin, in small letters."""
    try:
        parts = urlsplit(ui)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:  # such as a bracket that is not closed
        known = False
    if not known:
        raise UsageError(f"{ui[:80]!r} is no address of Perfetto's UI: write it as {UI}")
    return f"{parts.scheme}://{parts.netloc.lower()}", parts.path.rstrip("/")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, trace: Path, path: str, origin: str, fetched: threading.Event) -> None:
        self.trace, self.path, self.origin, self.fetched = trace, path, origin, fetched
        super().__init__((HOST, port), _Answer)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: a browser that disconnected asks again, or the command reports that nothing was
        fetched.
        """


class _Answer(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """The trace; and then it is done."""
        if not self._is_meant():
            return
        with self.server.trace.open("rb") as file:
            self._head(HTTPStatus.OK, self.server.trace.stat().st_size)
            shutil.copyfileobj(file, self.wfile, 1 << 20)
            self.wfile.flush()
        self.server.fetched.set()

    def do_HEAD(self) -> None:
        """What a GET would say of the trace."""
        if self._is_meant():
            self._head(HTTPStatus.OK, self.server.trace.stat().st_size)

    def do_OPTIONS(self) -> None:
        """A browser asks this before a page of the internet may talk to this machine."""
        if self._is_meant():
            self._head(HTTPStatus.NO_CONTENT, None)

    def _is_meant(self) -> bool:
        """Whether a request is for the trace, under this machine's name, and from the UI's page only."""
        port = self.server.server_port
        here = self.headers.get("Host", "") in {f"{HOST}:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        if not here or self.path != self.server.path:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif origin is not None and origin != self.server.origin:
            self.send_error(HTTPStatus.FORBIDDEN)
        else:
            return True
        return False

    def _head(self, status: HTTPStatus, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        self.send_header("Vary", "Origin")
        self.send_header("Cache-Control", "no-store")
        if length is not None:
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: the command reports what matters."""
