"""The page of a run in a real browser, as the run goes on in the test itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, Visit, visit
from dashboard_server import dashboard

import flightlog

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PATIENCE_MS = 60_000
BRACES = "{{ constructor.constructor('window.pwned = 1')() }} ${1 + 1} <b v-html='x'>"


def fail(run: Any, text: str) -> None:
    try:
        with run.task("fit", seed=1):
            raise ValueError(text)
    except ValueError:
        pass


@contextmanager
def going_on(tmp_path: Path, browser: Any, **how: Any) -> Iterator[tuple[Any, Visit]]:
    """A run with a failure and tasks of three names, and its page."""
    with dashboard(tmp_path, "--no-token") as served, flightlog.record("demo", runs_dir=tmp_path) as run:
        for number in range(30):
            with run.task(f"step {number % 3}", seed=number):
                pass
        fail(run, f"first {BRACES}")
        with visit(browser, f"{served.address}/run/{run.path.name}", **how) as seen:
            seen.page.wait_for_selector("[data-failure]", timeout=PATIENCE_MS)
            yield run, seen


def test_a_failure_that_was_opened_stays_open_when_another_comes(tmp_path: Path, browser: Any) -> None:
    with going_on(tmp_path, browser) as (run, seen):
        seen.page.locator("[data-failure] summary").click()
        seen.page.wait_for_selector("[data-failure][open] .fl-trace", timeout=PATIENCE_MS)
        fail(run, "second")
        seen.page.wait_for_function(
            "document.querySelectorAll('[data-failure]').length === 2", timeout=PATIENCE_MS
        )
        texts = seen.page.locator("[data-failure][open] .fl-trace").all_inner_texts()
        assert len(texts) == 1
        assert texts[0].startswith("Traceback")
        assert BRACES in texts[0]
        assert seen.problems() == []


def test_a_table_is_sorted_by_the_keyboard_and_stays_so(tmp_path: Path, browser: Any) -> None:
    with going_on(tmp_path, browser) as (run, seen):
        names = "[data-section=tasks] tbody tr td:first-child"
        heading = seen.page.locator("[data-section=tasks] th", has_text="Task")
        heading.focus()
        for order in ("ascending", "descending"):
            seen.page.keyboard.press("Enter")
            assert heading.get_attribute("aria-sort") == order
        with run.task("step 9"):
            pass
        seen.page.wait_for_function(f"document.querySelectorAll('{names}').length === 5", timeout=PATIENCE_MS)
        assert seen.page.locator(names).all_inner_texts() == ["step 9", "step 2", "step 1", "step 0", "fit"]
        assert seen.problems() == []


def test_figures_are_drawn_again_for_another_width(tmp_path: Path, browser: Any) -> None:
    with going_on(tmp_path, browser) as (_, seen):
        drawn = "[data-figure=timeline][data-drawn] svg.main-svg"
        seen.page.wait_for_selector(drawn, timeout=PATIENCE_MS)
        wide = seen.page.locator(drawn).first.bounding_box()["width"]
        seen.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        seen.page.wait_for_function(
            f"document.querySelector('{drawn}').getBoundingClientRect().width < {PHONE[0]}",
            timeout=PATIENCE_MS,
        )
        assert wide > PHONE[0]
        assert (seen.overflow(), seen.problems()) == (0, [])
