"""An OTLP server of the tests' own: takes what is sent, decodes it with the official messages, and fails on
demand."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}
IDS = {"traceId", "spanId", "parentSpanId"}
Answer = tuple[int, Mapping[str, str], bytes]


class Receiver:
    """What has been taken, and what was asked. `faults` are used up first, one a request: an answer, or a
    call that raises."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.points: list[tuple[dict[str, Any], Any, Any]] = []
        self.records: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.faults: deque[Answer | Callable[[], Answer | None]] = deque()
        self.takes = {"traces", "metrics", "logs"}
        self.delay_s = 0.0
        self.busy = 0
        """Requests that came over a socket and have no answer yet."""
        self._lock = threading.Lock()

    def __call__(self, server: Any, body: bytes, headers: Mapping[str, str]) -> Answer:
        """As the exporter posts, without a network."""
        return self.post(server.url, body, headers)

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        signal = url.rpartition("/v1/")[2].partition("?")[0]
        with self._lock:
            self.requests.append((url, {name.lower(): value for name, value in headers.items()}))
            fault = self.faults.popleft() if self.faults else None
        if callable(fault):
            fault = fault()
        if fault is not None:
            return fault
        if signal not in self.takes:
            return 404, {}, b"no such place"
        if headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        in_json = headers["Content-Type"] == "application/json"
        message = (
            MESSAGES[signal].FromString(body)
            if not in_json
            else from_json(json.loads(body), MESSAGES[signal]())
        )
        with self._lock:
            self._take(signal, message)
        return 200, {"Content-Type": headers["Content-Type"]}, b"{}" if in_json else b""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self._lock:
            self.busy += 1
        try:
            yield
        finally:
            with self._lock:
                self.busy -= 1

    def _take(self, signal: str, message: Any) -> None:
        if signal == "traces":
            for group in message.resource_spans:
                self.resources.append(attributes(group.resource))
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
        elif signal == "logs":
            for group in message.resource_logs:
                self.records += [record for scope in group.scope_logs for record in scope.log_records]
        else:
            for group in message.resource_metrics:
                node = attributes(group.resource)
                for scope in group.scope_metrics:
                    for metric in scope.metrics:
                        data = getattr(metric, metric.WhichOneof("data"))
                        self.points += [(node, metric, point) for point in data.data_points]

    def span_ids(self) -> list[str]:
        return [span.span_id.hex() for span in self.spans]

    def series(self, name: str) -> list[tuple[int, Any]]:
        """Time and value of each point of a metric, in the order they came."""
        return [
            (point.time_unix_nano, value(point)) for _, metric, point in self.points if metric.name == name
        ]


def from_json(form: Any, message: Any) -> Any:
    """The message that a document in OTLP's JSON holds: as protobuf has it, but for ids, which are hex."""

    def in_base64(found: Any) -> Any:
        if isinstance(found, dict):
            return {
                key: base64.b64encode(bytes.fromhex(inner)).decode() if key in IDS else in_base64(inner)
                for key, inner in found.items()
            }
        return [in_base64(one) for one in found] if isinstance(found, list) else found

    return json_format.ParseDict(in_base64(form), message)


def value(point: Any) -> Any:
    if hasattr(point, "bucket_counts"):
        return point.count
    return point.as_int if point.WhichOneof("value") == "as_int" else point.as_double


def attributes(holder: Any) -> dict[str, Any]:
    def plain(any_value: Any) -> Any:
        kind = any_value.WhichOneof("value")
        if kind == "array_value":
            return [plain(item) for item in any_value.array_value.values]
        return getattr(any_value, kind)

    return {one.key: plain(one.value) for one in holder.attributes}


@contextmanager
def listening(receiver: Receiver) -> Iterator[str]:
    """The receiver behind a real socket; gives its address."""

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with receiver.at_work():
                time.sleep(receiver.delay_s)
                status, headers, answer = receiver.post(self.path, body, self.headers)
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that gave up is no error here."""

    server = Server(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
