"""The watch over pages sees what it is there to see: a test that found nothing has looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, visit

pytestmark = pytest.mark.system

QUIET = (
    "<!DOCTYPE html><html><head><title>quiet</title></head><body><p data-path='a.b' "
    "data-value='1'>one</p></body></html>"
)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("<script>console.error('broken')</script>", "console: error: broken"),
        ("<script>console.warn('odd')</script>", "console: warning: odd"),
        ("<script>throw new Error('uncaught')</script>", "console: exception: uncaught"),
        ("<img src=x onerror=window.pwned=1>", "console: error: a text of the run was executed as a script"),
        ("<img src='http://flightlog.invalid/seen.png'>", "asked for http://flightlog.invalid/seen.png"),
        ("<script>fetch('//flightlog.invalid/').catch(() => 0)</script>", "console: error: "),
        ("<script>alert('hello')</script>", "dialog: alert: hello"),
        ("<a href='javascript:void(0)'>here</a>", "leads out of the page: javascript:void(0)"),
        (
            "<a href='https://flightlog.invalid/'>here</a>",
            "leads out of the page: https://flightlog.invalid/",
        ),
        ("<a class=modebar-btn data-title='Share chart...'></a>", "leads out of the page: Share chart..."),
    ],
    ids=[
        "error",
        "warning",
        "exception",
        "script",
        "request",
        "fetch",
        "dialog",
        "script link",
        "link",
        "share",
    ],
)
def test_what_goes_wrong_is_found(browser: Any, tmp_path: Path, body: str, found: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(QUIET.replace("</body>", f"{body}</body>"))
    with visit(browser, page.as_uri(), offline=True) as seen:
        assert any(problem.startswith(found) for problem in seen.problems()), seen.problems()


def test_a_quiet_page_has_no_problems(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(QUIET)
    with visit(browser, page.as_uri(), offline=True) as seen:
        assert (seen.problems(), seen.overflow(), seen.values(), seen.stops()) == ([], 0, {"a.b": "1"}, [])


def test_a_wide_page_is_wider_than_a_phone(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!DOCTYPE html><meta name=viewport content='width=device-width'><div style='width:500px'>wide</div>"
    )
    with visit(browser, page.as_uri(), size=PHONE, offline=True) as seen:
        assert seen.overflow() > 100


def test_tab_stops_come_in_order_and_once(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        QUIET.replace(
            "</body>", "<a href='#x' id=x>first</a><button>second</button><button disabled>no</button></body>"
        )
    )
    with visit(browser, page.as_uri(), offline=True) as seen:
        assert seen.stops() == ["a#x first", "button second"]
