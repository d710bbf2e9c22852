"""Where the dashboard is served, to whom, and how it begins and ends."""

from __future__ import annotations

import logging
import os
import signal

import pytest
from builders.runs import make_run
from dashboards import dashboard, status_of

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.web.access import is_loopback
from flightlog.web.limits import WebLimits
from flightlog.web.serving import PORT, CleanLines, ServerAddress, listen, needs_ui

TOKEN = "a-token-that-is-long-enough"


@pytest.mark.parametrize(
    ("hosts", "here"),
    [
        (["127.0.0.1", "127.0.0.9", "::1", "localhost", "LOCALHOST"], True),
        (["0.0.0.0", "::", "192.168.1.5", "node-7", ""], False),
    ],
)
def test_an_address_is_known_as_this_machines_alone_or_as_one_that_others_reach(hosts, here):
    assert {is_loopback(host) for host in hosts} == {here}


@pytest.mark.parametrize(
    ("place", "address"),
    [
        (ServerAddress(host="127.0.0.1", port=8420, token=None), "http://127.0.0.1:8420/"),
        (ServerAddress(host="::1", port=1, token=None), "http://[::1]:1/"),
        (ServerAddress(host="0.0.0.0", port=8420, token=TOKEN), f"http://127.0.0.1:8420/?token={TOKEN}"),
        (ServerAddress(host="node-7", port=8420, token=TOKEN), f"http://node-7:8420/?token={TOKEN}"),
    ],
)
def test_the_address_can_be_opened_as_it_is_printed(place, address):
    assert place.address == address


def test_a_port_that_is_taken_is_one_clear_message():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=f"cannot serve at 127.0.0.1 port {port}: .*; another --port may be free"
        ):
            listen("127.0.0.1", port)


def test_without_a_port_the_next_free_one_is_taken():
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        assert PORT <= first.getsockname()[1] < second.getsockname()[1]


@pytest.mark.parametrize("port", [65536, -1, 10**12])
def test_a_number_that_is_no_port_is_said(port):
    with pytest.raises(UsageError, match=f"--port {port} is no port"):
        listen("127.0.0.1", port)


def test_an_address_that_is_not_this_machines_is_said():
    with pytest.raises(UsageError, match=r"cannot serve at 192\.0\.2\.1 port 0"):
        listen("192.0.2.1", 0)


def test_a_missing_library_is_answered_with_the_line_that_installs_it():
    with pytest.raises(MissingExtra, match=r"pip install 'flightlog\[ui\]'"), needs_ui():
        raise ModuleNotFoundError("No module named 'nicegui'", name="nicegui")


def test_a_log_line_spells_out_what_would_move_the_cursor_and_keeps_its_lines():
    said = logging.LogRecord("x", logging.WARNING, "x.py", 1, "%s not found\nthen", ("/\x1b[2J\r",), None)
    assert CleanLines("flightlog: %(message)s").format(said) == "flightlog: /\\x1b[2J\\r not found\nthen"


def test_a_dashboard_serves_low_in_priority_until_it_is_interrupted(tmp_path):
    make_run(tmp_path)
    with dashboard(tmp_path, "--no-token") as (process, address):
        told = process.stderr.readline()
        statuses = [
            status_of(address),
            status_of(f"{address}health"),
            status_of(address, Host="evil.example"),
            status_of(address, Long="a" * (2 * WebLimits.max_headers_bytes)) or 400,
        ]
        niceness = os.getpriority(os.PRIO_PROCESS, process.pid)
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
        rest = process.stderr.read()
    assert (statuses, code) == ([200, 200, 403, 400], 130)
    assert told == "flightlog: no token is required: every user of this machine can read what is shown\n"
    assert rest == "flightlog: Invalid HTTP request received.\n"
    assert niceness >= 10


def test_a_dashboard_for_others_prints_its_token_and_that_there_is_no_tls(tmp_path):
    with dashboard(tmp_path, "--host", "0.0.0.0") as (process, address):
        bare = address.partition("?")[0]
        statuses = [status_of(bare), status_of(f"{bare}metrics"), status_of(address)]
        told = process.stderr.readline()
    assert statuses == [401, 401, 401]  # the last is led on, to where this client brings no cookie
    assert "there is no TLS" in told


@pytest.mark.parametrize("host", ["a..b", "x" * 70, ""])
def test_what_is_no_name_of_a_machine_is_said_without_a_port(host: str) -> None:
    with pytest.raises(UsageError, match=r"^cannot serve at [^ ]*: "):
        listen(host, None)
