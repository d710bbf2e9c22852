"""Serves the dashboard: socket, server, logging, shutdown."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.show.terminal import clean
from flightlog.web.limits import WebLimits

if TYPE_CHECKING:
    from flightlog.web.access import Application

PORT = 8420

NICENESS = 10
"""The server runs at low priority: it must not slow down the runs it shows."""
SWITCH_S = 0.0005
"""Interval at which threads that read runs release the interpreter, so that requests are answered soon."""


class ServerAddress(Struct, frozen=True, kw_only=True):
    """Where the dashboard is served."""

    host: str
    port: int
    token: str | None

    @property
    def address(self) -> str:
        """What to open in a browser, with the token if there is one."""
        # Shown, not bound.
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/{f'?token={self.token}' if self.token else ''}"


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens there; without a port, at the usual one or the next that is free. `UsageError` if
    that fails.
    """
    if port is not None and not 0 <= port <= 65535:
        raise UsageError(f"--port {port} is no port: 0 to 65535")
    tried = [port] if port is not None else list(range(PORT, PORT + WebLimits.max_ports_tried))
    for number, one in enumerate(tried, 1):
        try:
            return _bound(host, one)
        except UnicodeError:
            raise UsageError(f"cannot serve at {host!r}: that is no name of a machine") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE and number < len(tried):
                continue
            hint = "; another --port may be free" if error.errno in {errno.EADDRINUSE, errno.EACCES} else ""
            where = f"{host} port {one}" if number == 1 else f"{host} ports {tried[0]} to {one}"
            where = host if isinstance(error, socket.gaierror) else where
            raise UsageError(f"cannot serve at {where}: {error.strerror or error}{hint}") from None
    raise AssertionError("one port at least is tried")


def _bound(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(256)
    except BaseException:
        made.close()
        raise
    return made


def serve(app: Application, listening: socket.socket, *, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until the process is asked to end; `ready` is called when the first request would be answered."""
    with needs_ui():
        import uvicorn

    class DashboardServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                ready()

    _log_cleanly()
    sys.setswitchinterval(SWITCH_S)
    with suppress(OSError, AttributeError):
        os.nice(NICENESS)
    config = uvicorn.Config(
        app,
        http="h11",  # the other one sets no limit on headers
        h11_max_incomplete_event_size=WebLimits.max_headers_bytes,
        ws_max_size=WebLimits.max_message_bytes,
        limit_concurrency=WebLimits.max_connections,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=WebLimits.shutdown_timeout_s,
        proxy_headers=False,
        ws_per_message_deflate=False,  # twenty viewers, each packed apart: more work than all the rest
    )
    DashboardServer(config).run(sockets=[listening])


class CleanLines(logging.Formatter):
    """Log lines without control characters: addresses and errors in them come from clients and runs."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, each line of it clean and cut."""
        lines = super().format(record).split("\n")
        return "\n".join(clean(line[: WebLimits.max_logged_chars]) for line in lines)


def _log_cleanly() -> None:
    """Log warnings of the process and its libraries to standard error, unless there are handlers already."""
    shown = logging.StreamHandler()
    shown.setFormatter(CleanLines("flightlog: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])


@contextmanager
def needs_ui() -> Iterator[None]:
    """Within it, a library that is not installed is a `MissingExtra` that names what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "flightlog":
            raise
        raise MissingExtra(
            f"the dashboard needs what is not installed here ({error}): pip install 'flightlog[ui]'"
        ) from error
