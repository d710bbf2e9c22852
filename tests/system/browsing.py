"""Pages in Debian's Chromium, watched: what they log, ask for, show as dialogs, and whether a hostile text
became a script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import debian
from perfetto_server import CHROMIUM, FLAGS

WIDE, PHONE = (1400, 900), (375, 812)
_WATCH = """
    Object.defineProperty(window, 'pwned', {
        get: () => window.name === 'pwned',
        set: () => { window.name = 'pwned'; console.error('a text of the run was executed as a script'); },
    });
"""
_OVERFLOW = """async () => {
    const page = document.documentElement;
    const until = performance.now() + 15000; // while parts are drawn the page may be wider for a moment
    while (page.scrollWidth > page.clientWidth && performance.now() < until) await new Promise(requestAnimationFrame);
    return page.scrollWidth - page.clientWidth;
}"""


_WAYS_OUT = """() => {
    const links = Array.from(document.querySelectorAll('a')).map(one => one.href.baseVal ?? one.href);
    const out = links.filter(one => one && !one.startsWith('file:') && new URL(one).origin !== location.origin);
    const buttons = document.querySelectorAll('.modebar-btn[data-title*="Share"], .modebar-btn[data-title*="loud"]');
    return [...out, ...Array.from(buttons).map(one => one.dataset.title)];
}"""
"""Links to other places, by any scheme, and Plotly's buttons that send a figure away."""


class Visit:
    """A page that is open, and all that went wrong in it since.

    Requests to anything but the page's own origin (for a file: the file itself), `data:` and `blob:` are
    foreign.
    """

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.logged: list[str] = []
        """What the console showed as an error or a warning, and exceptions nobody caught."""
        self.foreign: list[str] = []
        self.dialogs: list[str] = []
        self.failed: list[str] = []
        """Requests that got no answer, or one that says no."""
        self._address = address
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.logged.append(f"exception: {error}"))
        page.on("request", lambda request: self._on_request(request.url))
        page.on("websocket", lambda socket: self._on_request(socket.url))
        page.on("dialog", self._on_dialog)
        page.on("response", self._on_response)

    def problems(self) -> list[str]:
        """Everything that should not have happened, in words; [] for a page in good order."""
        run = [frame.url for frame in self.page.frames if frame.evaluate("window.name") == "pwned"]
        return [
            *(f"console: {text}" for text in self.logged),
            *(f"asked for {url[:300]}" for url in self.foreign),
            *(f"dialog: {text}" for text in self.dialogs),
            *(f"no answer: {text}" for text in self.failed),
            *(f"a script of the run was executed in {url}" for url in run),
            *(f"leads out of the page: {way[:300]}" for way in self.page.evaluate(_WAYS_OUT)),
        ]

    def overflow(self) -> int:
        """By how many CSS pixels the page is wider than its window."""
        return int(self.page.evaluate(_OVERFLOW))

    def values(self) -> dict[str, str]:
        """What the page says of each `data-path`: its `data-value`."""
        found = self.page.eval_on_selector_all(
            "[data-path]",
            "all => all.map(one => [one.getAttribute('data-path'), one.getAttribute('data-value')])",
        )
        return dict(found)

    def stops(self, limit: int = 400) -> list[str]:
        """What Tab reaches, in order, until it leaves the page or comes round: tag, id or text of each."""
        self.page.evaluate("document.activeElement && document.activeElement.blur()")
        seen: list[str] = []
        for _ in range(limit):
            self.page.keyboard.press("Tab")
            name = self.page.evaluate(
                """() => { const at = document.activeElement;
                    if (!at || at === document.body || at === document.documentElement) return null;
                    at.__stops = (at.__stops || 0) + 1;
                    if (at.__stops > 1) return null;
                    const text = (at.getAttribute('aria-label') || at.innerText || '').trim().slice(0, 60);
                    return `${at.tagName.toLowerCase()}${at.id ? '#' + at.id : ''} ${text}`; }"""
            )
            if name is None:
                break
            seen.append(name)
        return seen

    def _on_console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.logged.append(f"{message.type}: {message.text} ({message.location.get('url', '')[:200]})")

    def _on_request(self, url: str) -> None:
        if not self._own(url):
            self.foreign.append(url)

    def _own(self, url: str) -> bool:
        to, here = urlsplit(url), urlsplit(self._address)
        if to.scheme in {"data", "blob", "about"}:
            return True
        if here.scheme == "file":
            return url.split("#")[0] == self._address.split("#")[0]
        return to.netloc == here.netloc and to.scheme in {
            here.scheme,
            {"http": "ws", "https": "wss"}[here.scheme],
        }

    def _on_dialog(self, dialog: Any) -> None:
        self.dialogs.append(f"{dialog.type}: {dialog.message[:200]}")
        dialog.dismiss()

    def _on_response(self, response: Any) -> None:
        if response.status >= 400:
            self.failed.append(f"{response.status} of {response.url[:200]}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium, Debian's, which is installed where it is missing."""
    from playwright.sync_api import sync_playwright

    debian.install({"chromium": "chromium"})
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Any,
    address: str,
    *,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    offline: bool = False,
    token: str | None = None,
    patience_s: float = 180,
) -> Iterator[Visit]:
    """Open an address (`file:`, `http:`) in a fresh profile; `token` goes along as the bearer's with every
    request."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        is_mobile=size == PHONE,
        has_touch=size == PHONE,
        offline=offline,
        reduced_motion="reduce",
        extra_http_headers={} if token is None else {"Authorization": f"Bearer {token}"},
    )
    context.set_default_timeout(patience_s * 1000)
    context.add_init_script(_WATCH)
    try:
        page = context.new_page()
        seen = Visit(page, address)
        page.goto(address)
        yield seen
    finally:
        context.close()
