"""The server of `/metrics` answers to this machine's names, and cannot be kept busy."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flightlog.cli.main import main
from flightlog.export.limits import PrometheusLimits
from flightlog.export.prometheus import server as serving
from flightlog.export.prometheus.server import MetricsServer

PATIENCE_S = 10.0
"""How long Prometheus waits for a page, unless it is told otherwise."""
HALF = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Half: "


class Page:
    """Answers `ok`, once `go` is set."""

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), threading.Semaphore(0)
        self.go.set()

    def answer(self, _accept: str = "") -> tuple[bytes, str]:
        self.asked.release()
        assert self.go.wait(60)
        return b"ok\n", "text/plain"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def served(page: Page | None = None, **options) -> Iterator[MetricsServer]:
    host = options.pop("host", "127.0.0.1")
    with MetricsServer(host, 0, page or Page(), **options) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def status(server: MetricsServer, host: str | None = None, *more: str) -> int:
    there = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    try:
        there.putrequest("GET", "/metrics", skip_host=True)
        for name in (*((host,) if host is not None else ()), *more):
            there.putheader("Host", name)
        there.endheaders()
        return there.getresponse().status
    finally:
        there.close()


def connect(server: MetricsServer, sent: bytes) -> socket.socket:
    there = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S)
    there.sendall(sent)
    return there


def test_the_page_is_served_under_names_of_this_machine_and_of_no_other():
    own = [
        "localhost:9464",
        "LOCALHOST",
        "127.0.0.1:9464",
        "[::1]:9464",
        "192.168.7.9",
        socket.gethostname(),
        "named.example",
    ]
    foreign = [
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
        "a b",
        "1@evil.example",
    ]
    with served(names=["Named.example"]) as server:
        assert {host: status(server, host) for host in own} == dict.fromkeys(own, 200)
        assert {host: status(server, host) for host in foreign} == dict.fromkeys(foreign, 403)
        assert (status(server), status(server, "localhost", "evil.example")) == (200, 403)


def test_whoever_is_refused_is_told_the_option_that_allows_the_name():
    with served() as server:
        there = connect(server, b"GET /metrics HTTP/1.0\r\nHost: evil.example\r\n\r\n")
        answer = there.makefile("rb").read()
        there.close()
    assert answer.endswith(b"or start flightlog serve-metrics with --allow-host NAME\n")
    assert b"evil.example" not in answer


def test_half_sent_requests_do_not_keep_others_from_an_answer():
    with served() as server:
        half = [connect(server, HALF) for _ in range(PrometheusLimits.max_connections + 8)]
        try:
            assert [status(server, "localhost") for _ in range(3)] == [200] * 3
            dropped = [one.recv(1) for one in half[:8]]  # the oldest had to go
            assert set(dropped) == {b""}
        finally:
            for one in half:
                one.close()


def test_a_request_that_is_sent_too_slowly_is_dropped_however_steadily():
    clock = Clock()
    with served(clock=clock) as server:
        slow = connect(server, HALF)
        for _ in range(4):
            slow.sendall(b"a")
        assert status(server, "localhost") == 200  # both are known to the server by now
        clock.now = PrometheusLimits.request_timeout_s + 1
        assert slow.recv(1) == b""
        slow.close()
        assert status(server, "localhost") == 200


def test_more_requests_than_can_be_answered_at_a_time_are_refused_at_once():
    page = Page()
    page.go.clear()
    whole = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n"
    with served(page) as server:
        asking = [connect(server, whole) for _ in range(PrometheusLimits.max_connections)]
        for _ in asking:
            assert page.asked.acquire(timeout=60)
        refused = connect(server, b"")
        assert refused.makefile("rb").read() == serving._BUSY
        page.go.set()
        assert [one.makefile("rb").read().endswith(b"ok\n") for one in asking] == [True] * len(asking)
        for one in (*asking, refused):
            one.close()
        assert status(server, "localhost") == 200


@pytest.mark.parametrize("name", ["http://x", "a b", "x:80", ""])
def test_what_is_no_host_name_is_said_in_a_line(tmp_path, capsys, name):
    assert main(["serve-metrics", "--runs-dir", str(tmp_path), "--allow-host", name]) == 2
    assert (
        capsys.readouterr().err
        == f"flightlog: --allow-host {name!r} is not a host name: give it as in node-7.example.org\n"
    )
