"""A folder of runs as a Prometheus collector: running and recently ended runs on the page `/metrics`, and a
small web server for that page alone, which slow or hostile clients cannot block.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from flightlog.core.errors import UsageError
from flightlog.export.limits import PrometheusLimits
from flightlog.export.prometheus.run_metrics import STATUSES, RunMetrics, RunWatch, families
from flightlog.store.catalogue import PastRun, past_runs
from flightlog.store.liveness import Observer, here, unix_time
from flightlog.store.runs_folder import RunsPlace

log = logging.getLogger("flightlog")


TEXT = "text/plain; charset=utf-8"
_BUSY = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\ntoo many requests at a time\n"
)
_OTHER_NAME = (
    b"the metrics are not served under this name: use localhost, an IP address or the name of the machine, "
    b"or start "
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
            why = f"{error.strerror or error}{hint}"
            raise UsageError(f"cannot serve metrics at {host} port {port}: {why}") from None
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
            if len(self._connections) >= PrometheusLimits.max_connections:
                waiting = [one for one, found in self._connections.items() if not found.answering]
                if waiting:
                    self._drop(waiting[0])
            full = len(self._connections) >= PrometheusLimits.max_connections
            if not full:
                self._connections[request] = _Connection(self._clock())
        if full:
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
                limits = PrometheusLimits.request_timeout_s, PrometheusLimits.answer_timeout_s
                if now - found.since > limits[found.answering]:
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
        """Ignore clients that disconnect."""
        log.debug("a request for metrics was not answered", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    timeout = PrometheusLimits.answer_timeout_s
    server_version = "flightlog"
    sys_version = ""
    server: MetricsServer

    def do_GET(self) -> None:
        if not self.server.answering(self.connection):
            return
        if not self.server.is_known(self.headers.get_all("Host") or []):
            self._send(HTTPStatus.FORBIDDEN, _OTHER_NAME)
        elif self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n")
        else:
            try:
                body, kind = self.server.page.answer(self.headers.get("Accept") or "")
            except Exception as error:  # noqa: BLE001 - the server goes on; the scrape says why it failed
                text = f"the metrics could not be read: {error}\n".encode("utf-8", "replace")
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text)
            else:
                self._send(HTTPStatus.OK, body, kind)

    def _send(self, status: HTTPStatus, body: bytes, kind: str = TEXT) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Nothing: a scrape every few seconds is no news."""


class RunsCollector(Collector):
    """The metrics of a folder of runs; each scrape reads what was written since the previous one.

    Thread-safe: scrapes wait for each other. Never raises for the content of the folder: an unreadable run is
    counted in `flightlog_runs_unreadable`, an unreachable remote in `flightlog_remote_problems`, and its
    local copies are shown.
    """

    def __init__(
        self,
        runs: Path | RunsPlace,
        *,
        recent_s: float = PrometheusLimits.ended_run_shown_s,
        max_runs: int = PrometheusLimits.max_runs,
        observe: Callable[[], Observer] = here,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runs = RunsPlace(runs) if isinstance(runs, Path) else runs
        self._recent_s, self._max_runs = recent_s, max_runs
        self._observe, self._clock = observe, clock
        self._watches: dict[Path, RunWatch] = {}
        self._lock = threading.Lock()
        self._scrapes = 0
        self._unreadable: set[Path] = set()

    def describe(self) -> list[Metric]:
        """Nothing beforehand: registering must not read the folder."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as of now."""
        with self._lock:
            began = self._clock()
            observer = self._observe()
            choice = choose(self._runs.folder(), observer, recent_s=self._recent_s, max_runs=self._max_runs)
            metrics = self._metrics_of(choice.shown, observer)
            found = [*families(metrics), *self._about_the_folder(choice, began)]
        yield from found

    def _metrics_of(self, paths: Sequence[Path], observer: Observer) -> list[RunMetrics]:
        self._watches = {path: self._watches.get(path) or RunWatch(path) for path in paths}
        self._unreadable = set()
        found: dict[tuple[str, str], RunMetrics] = {}
        for path, watch in self._watches.items():
            try:
                metrics = watch.look(observer)
            except Exception:  # noqa: BLE001 - whatever stands in one run, the others are shown
                self._unreadable.add(path)
                continue
            found.setdefault((metrics.project, metrics.run_id), metrics)  # a copy of a run is not shown twice
        for path in self._unreadable:
            del self._watches[path]  # half a look is no beginning for the next
        return list(found.values())

    def _about_the_folder(self, choice: Choice, began: float) -> Iterator[Metric]:
        """What is known of all runs together, and of this scrape, which began then."""
        runs = GaugeMetricFamily("flightlog_runs", "Runs in the folder, by status.", labels=["status"])
        for status in STATUSES:
            runs.add_metric([status], choice.statuses.get(status, 0))
        yield runs
        what = "Runs in the folder that cannot be read, and are not shown."
        yield GaugeMetricFamily("flightlog_runs_unreadable", what, value=len(self._unreadable))
        what = "Runs that run or ended lately, and are not shown because there are too many."
        yield GaugeMetricFamily("flightlog_runs_hidden", what, value=choice.hidden)
        if self._runs.is_remote:
            what = "What is wrong with the address of the runs: with any, figures are of copies from before."
            yield GaugeMetricFamily("flightlog_remote_problems", what, value=len(self._runs.notes))
        self._scrapes += 1
        yield CounterMetricFamily("flightlog_scrapes", "Number of scrapes.", value=self._scrapes)
        what = "Time that reading the runs took."
        took_s = self._clock() - began
        yield GaugeMetricFamily("flightlog_scrape_duration_seconds", what, value=took_s)


class Choice(Struct, frozen=True, kw_only=True):
    """The runs found, and those shown."""

    shown: tuple[Path, ...]
    """Runs that run first, then the newest."""
    hidden: int
    """Runs that would be shown, too, if there were fewer."""
    statuses: dict[str, int]
    """All runs of the folder."""


def choose(folder: Path, observer: Observer, *, recent_s: float, max_runs: int) -> Choice:
    """The choice as of now; a folder that is missing has no runs."""
    runs = past_runs(folder, headlines=False, observer=observer)
    recent = (one for one in runs if observer.now - _last_heard(one) <= recent_s)
    shown = [one.entry.path for one in runs if one.entry.status == "running"]
    shown += [one.entry.path for one in recent if one.entry.status != "running"]
    statuses = Counter(one.entry.status for one in runs)
    return Choice(shown=tuple(shown[:max_runs]), hidden=len(shown[max_runs:]), statuses=statuses)


def _last_heard(run: PastRun) -> float:
    """The end or last heartbeat of a run, in Unix seconds; an unknown time is long ago."""
    entry = run.entry
    heard = unix_time(entry.end_time) or (None if run.info is None else unix_time(run.info.heartbeat))
    return heard or (unix_time(entry.start_time) or 0.0) + (entry.duration_s or 0.0)


class MetricsPage:
    """The page of one collector; thread-safe if that is. `flightlog serve-metrics` and other servers show
    it.
    """

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)

    def answer(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, in the format that the header `Accept` asks for: text or
        OpenMetrics.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
