"""A run as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing, and its server: one file, once, to
one page.

Perfetto's UI fetches the address after `#!/?url=` in its own. It runs in the browser alone: the trace goes
from this process to the browser, and to no server.
"""

from __future__ import annotations

import errno
import gzip
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.text import natural_key, plural
from flightlog.core.time import moment, timestamp_of
from flightlog.export.base import Exported, ExportOptions, refuse, whole_file
from flightlog.export.limits import ExportLimits
from flightlog.export.perfetto import drawing
from flightlog.export.perfetto.drawing import Drawing, Emit, Extent
from flightlog.store.liveness import latest
from flightlog.store.tables.run_tables import open_tables
from flightlog.version import __version__

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables

COUNTED = ("tasks", "spans", "waits", "arrows", "counter values", "marks")


class PerfettoExporter(Struct, frozen=True, kw_only=True):
    """Writes a trace; zipped unless the file's name ends in `.json`."""

    name: str = "perfetto"
    what: str = "a trace for ui.perfetto.dev and chrome://tracing"
    ending: str | None = ".trace.json.gz"

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Draw the run. Memory: open slices and DuckDB's limit; the rest is on disk."""
        assert output is not None
        refuse(self.name, options)
        with whole_file(output) as made, open_tables([run]) as tables:
            extent = drawing.prepare_rows(tables)
            start, until = _bounds(run, extent)
            first = start if extent.first is None else min(start, extent.first)
            about = _about(run, start, first)
            with trace_file(made, about, zipped=output.suffix != ".json") as file:
                trace = Drawing(
                    file,
                    first=first,
                    until=until,
                    workers=_workers(tables),
                    writers={writer.writer: writer for writer in run.writers()},
                    homes=_homes(tables, run),
                )
                trace.run(run.info.project, start, about)
                for number, row in enumerate(drawing.rows(tables)):
                    trace.row(row)
                    if options.progress is not None and number % ExportLimits.progress_interval_rows == 0:
                        options.progress(number, extent.rows)
                for point in drawing.curves(tables, first, until):
                    trace.point(point)
                for mark in drawing.marks(tables):
                    trace.mark(mark)
        return Exported(
            to=self.name,
            where=str(output),
            counts={what: trace.counts[what] for what in COUNTED},
            notes=(*_notes(run, extent, trace), *run.problems),
        )


exporter = PerfettoExporter()


def _bounds(run: Run, extent: Extent) -> tuple[int, int]:
    """Start of the run and its end, or last heartbeat, in microseconds."""
    began = moment(run.info.start_time)
    start = began // 1000 if began is not None else extent.first or 0
    beats = [run.info.heartbeat, *(writer.heartbeat for writer in run.writers())]
    ended = moment(run.info.end_time) or moment(latest(*beats))
    known = start if ended is None else ended // 1000
    # An end that was noted stands, whatever clocks elsewhere say; without one, the last that was heard
    # counts.
    return start, known if run.info.end_time else max(known, extent.last or start)


def _about(run: Run, start: int, first: int) -> dict[str, Any]:
    info = run.info
    about = {
        "run_id": run.run_id,
        "project": info.project,
        "status": run.status,
        "start_time": info.start_time,
        "end_time": info.end_time,
        "trace_start_time": timestamp_of(first * 1000) if first != start else None,
        "host": info.host or None,
        "command": " ".join(info.command) or None,
        "git_commit": info.git_commit,
        "error": info.error,
        "made_by": f"flightlog {__version__}",
    }
    return {name: value for name, value in about.items() if value is not None}


def _workers(tables: RunTables) -> dict[str, tuple[int, str | None]]:
    """Place in the order and host of every worker."""
    found = tables.execute(
        """
        SELECT worker, max(host) FROM (
            SELECT DISTINCT worker, NULL AS host FROM drawn UNION ALL SELECT worker, host FROM workers
            UNION ALL SELECT DISTINCT worker, NULL FROM resources
        ) WHERE worker IS NOT NULL GROUP BY worker
        """
    ).fetchall()
    found.sort(key=lambda row: natural_key(row[0]))
    return {worker: (place, host) for place, (worker, host) in enumerate(found)}


def _homes(tables: RunTables, run: Run) -> dict[str, str]:
    """The worker of each writer, where a writer's process is one worker's alone."""
    found = tables.execute(
        """
        SELECT host, pid, max(worker) FROM (
            SELECT host, pid, worker FROM workers UNION SELECT host, pid, worker FROM resources
                WHERE scope = 'worker'
        ) WHERE host IS NOT NULL AND pid IS NOT NULL GROUP BY host, pid HAVING count(DISTINCT worker) = 1
        """
    ).fetchall()
    alone = {(host, pid): worker for host, pid, worker in found}
    homes = {writer.writer: alone.get((writer.host, writer.pid)) for writer in run.writers()}
    return {writer: worker for writer, worker in homes.items() if worker is not None}


def _notes(run: Run, extent: Extent, trace: Drawing) -> Iterator[str]:
    if run.status == "running":
        yield "the run is running: this is what it had recorded so far"
    many = (
        f"as more than {ExportLimits.max_waiting_lanes} tasks waited at once: "
        "the curve of waiting tasks has all of them"
    )
    for number, noun, what in (
        (extent.unended, "task", "had not ended, drawn up to the end of the run"),
        (extent.open_spans, "span", "had not ended, drawn up to the last sign of life of its process"),
        (extent.unplaced, "attempt", "not drawn: when they ran is unknown"),
        (trace.undrawn_waits, "wait", f"not drawn, {many}"),
        (extent.backward, "arrow", "not drawn: by the clocks, they would lead back in time"),
    ):
        if number:
            yield f"{plural(number, noun)} {what}"


COMPRESSION = 4
"""Of gzip: twice as fast as the default, for a file a few per cent larger."""


@contextmanager
def trace_file(path: Path, about: dict[str, Any], *, zipped: bool) -> Iterator[Emit]:
    """A function that writes an event into the trace at this path; the same events give the same bytes.

    The document is complete when the context ends.
    """
    encode_into = msgspec.json.Encoder().encode_into
    buffer = bytearray(b'{"displayTimeUnit":"ms","otherData":' + msgspec.json.encode(about))
    buffer += b',"traceEvents":['
    lead = b"\n"
    with ExitStack() as opened:
        out: Any = opened.enter_context(path.open("wb"))
        if zipped:
            packed = gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=out, mtime=0)
            out = opened.enter_context(packed)

        def write(event: dict[str, Any]) -> None:
            nonlocal buffer, lead
            buffer += lead
            lead = b",\n"
            encode_into(event, buffer, len(buffer))
            if len(buffer) >= ExportLimits.write_buffer_bytes:
                out.write(buffer)
                buffer.clear()

        yield write
        out.write(buffer + b"\n]}\n")


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
            why = f"cannot be used: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                why = "is in use, maybe by another trace that waits for its browser"
            raise UsageError(f"port {port} of this machine {why}; name another with --port") from error
        except OverflowError:
            raise UsageError(f"{port} is no port: name one from 1 to 65535, or 0 for any free one") from None
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        self._thread = threading.Thread(target=serve, daemon=True)

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

    def __exit__(self, *_error: object) -> None:
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
        if self._begin(HTTPStatus.OK):
            with self.server.trace.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            self.wfile.flush()
            self.server.fetched.set()

    def do_HEAD(self) -> None:
        """What a GET would say of the trace."""
        self._begin(HTTPStatus.OK)

    def do_OPTIONS(self) -> None:
        """A browser asks this before a page of the internet may talk to this machine."""
        self._begin(HTTPStatus.NO_CONTENT)

    def _begin(self, status: HTTPStatus) -> bool:
        """Send the head of an answer, where the request is for the trace, under this machine's name, and from
        the UI's page only; else an error.
        """
        port = self.server.server_port
        here = self.headers.get("Host", "") in {f"{HOST}:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        if not here or self.path != self.server.path:
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        if origin is not None and origin != self.server.origin:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        headers = {
            "Access-Control-Allow-Origin": self.server.origin,
            "Access-Control-Allow-Private-Network": "true",
            "Access-Control-Allow-Methods": "GET, HEAD",
            "Vary": "Origin",
            "Cache-Control": "no-store",
        }
        if status is HTTPStatus.OK:
            headers |= {"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff"}
            headers["Content-Length"] = str(self.server.trace.stat().st_size)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        return True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: the command reports what matters."""
