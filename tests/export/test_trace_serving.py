"""A trace is handed to Perfetto's page, once, and to nobody else."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from flightlog.core.errors import UsageError
from flightlog.export.perfetto.exporter import UI, ServedTrace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.trace.json.gz"
    path.write_bytes(b"trace" * 1000)
    return path


def ask(served: ServedTrace, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def path_of(served: ServedTrace) -> str:
    return urlsplit(served.address).path


def test_the_page_of_the_ui_gets_the_trace_and_then_it_is_done(trace: Path):
    with ServedTrace(trace, port=0) as served:
        assert not served.wait(0)
        answer, body = ask(served, path_of(served), Origin=UI)
        assert (answer.status, body) == (200, b"trace" * 1000)
        assert answer.headers["Access-Control-Allow-Origin"] == UI
        assert served.wait(10)


def test_the_link_names_the_address_of_the_trace(trace: Path):
    with ServedTrace(trace, port=0, ui="https://perfetto.example/ui/", name="run <1>/..") as served:
        link = served.link
        assert link.startswith("https://perfetto.example/ui/#!/?url=http://127.0.0.1:")
        assert unquote(link.partition("?url=")[2]) == served.address
        assert served.address.endswith("/run_1_...json.gz")


def test_no_two_traces_have_the_same_address(trace: Path):
    with ServedTrace(trace, port=0) as one, ServedTrace(trace, port=0) as other:
        assert path_of(one) != path_of(other)


@pytest.mark.parametrize("path", ["/", "/run.trace.json.gz", "/../run.trace.json.gz", "//etc/passwd"])
def test_nothing_else_is_served(trace: Path, path: str):
    with ServedTrace(trace, port=0) as served:
        assert ask(served, path, Origin=UI)[0].status == 404
        assert not served.wait(0)


def test_pages_of_other_origins_are_refused(trace: Path):
    with ServedTrace(trace, port=0) as served:
        for origin in ("https://evil.example", "null", f"{UI}.evil.example", "http://ui.perfetto.dev"):
            answer, body = ask(served, path_of(served), Origin=origin)
            assert (answer.status, b"trace" * 10 in body) == (403, False)
        assert not served.wait(0)


def test_a_name_that_somebody_made_lead_here_is_no_name_of_ours(trace: Path):
    with ServedTrace(trace, port=0) as served:
        assert ask(served, path_of(served), Host="evil.example")[0].status == 404


def test_a_browser_that_asks_first_is_told_that_it_may(trace: Path):
    with ServedTrace(trace, port=0) as served:
        answer, _ = ask(served, path_of(served), "OPTIONS", Origin=UI)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
        answer, body = ask(served, path_of(served), "HEAD", Origin=UI)
        assert (answer.status, answer.headers["Content-Length"], body) == (200, "5000", b"")
        assert not served.wait(0)


def test_a_port_that_is_taken_is_told(trace: Path):
    with (
        ServedTrace(trace, port=0) as served,
        pytest.raises(UsageError, match=f"port {served.port} .* is in use"),
    ):
        ServedTrace(trace, port=served.port)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_number_that_is_no_port_is_told(trace: Path, port: int):
    with pytest.raises(UsageError, match="is no port"):
        ServedTrace(trace, port=port)


@pytest.mark.parametrize("ui", ["ui.perfetto.dev", "file:///etc", "javascript:alert(1)", "", "https://"])
def test_an_address_that_is_none_is_told(trace: Path, ui: str):
    with pytest.raises(UsageError, match="is no address of Perfetto's UI"):
        ServedTrace(trace, port=0, ui=ui)
