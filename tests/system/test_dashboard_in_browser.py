"""The dashboard in a real browser: a process of its own over a folder with a run of every kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from browsing import PHONE, Visit, visit
from builders.hostile_run import PROJECT, TRICKS
from dashboard_server import SOCKET, UPGRADE, Served, dashboard
from runs_to_look_at import RunsToLookAt, at_path, report_json

from flightlog.events import Failure
from flightlog.store.liveness import unix_time
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

KINDS = ("demo", "large", "empty", "written", "killed", "hostile")
SAID = {"run.status", "tasks.submitted", "tasks.completed", "tasks.failed"}
UPDATED_S = 2.0
"""By when an event is on the page of its run."""
PATIENCE_MS = 180_000
"""A page of 1,000,000 tasks takes its time on a busy machine; what is said of speed is measured."""
TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def served(looked_at: RunsToLookAt) -> Iterator[Served]:
    with dashboard(looked_at.runs_dir, "--no-token") as started:
        yield started


def test_the_list_has_every_run(browser: Any, served: Served, looked_at: RunsToLookAt) -> None:
    with visit(browser, f"{served.address}/") as seen:
        rows(seen, 7)
        assert PROJECT[:20] in text_of(seen)
        assert seen.problems() == []


def test_the_list_is_no_wider_than_a_phone(browser: Any, served: Served) -> None:
    with visit(browser, f"{served.address}/", size=PHONE, dark=True) as seen:
        rows(seen, 7)
        assert (seen.overflow(), seen.problems()) == (0, [])


def test_filters_choose_runs(browser: Any, served: Served, looked_at: RunsToLookAt) -> None:
    with visit(browser, f"{served.address}/?status=crashed") as seen:
        rows(seen, 1)
        assert looked_at.killed.name in text_of(seen)
    with visit(browser, f"{served.address}/") as seen:
        rows(seen, 7)
        seen.page.locator("#filter-text").fill("sir-demo")
        rows(seen, 2)
        seen.page.locator("#filter-text").fill("no run is called that")
        rows(seen, 0)
        seen.page.locator("#filter-text").fill(TRICKS["image"])
        seen.page.wait_for_timeout(500)
        assert seen.problems() == []


def test_a_click_on_a_column_sorts(browser: Any, served: Served, looked_at: RunsToLookAt) -> None:
    with visit(browser, f"{served.address}/?text=sir-demo") as seen:
        rows(seen, 2)
        newest_first = names(seen)
        assert newest_first == [looked_at.demo.name, looked_at.before.name]
        header = seen.page.locator("th", has_text="Started")
        header.click()
        seen.page.wait_for_function(
            f"document.querySelector('tr[data-run]').getAttribute('data-run') === '{newest_first[1]}'"
        )
        assert names(seen) == newest_first[::-1]
        assert seen.problems() == []


def test_two_ticked_runs_are_compared(browser: Any, served: Served) -> None:
    with visit(browser, f"{served.address}/?text=sir-demo") as seen:
        rows(seen, 2)
        for number in range(2):
            seen.page.locator("tr[data-run] .q-checkbox").nth(number).click()
        seen.page.locator("#compare-runs:not([disabled])").click()
        seen.page.locator("[data-figure=timeline_after]").scroll_into_view_if_needed(timeout=PATIENCE_MS)
        seen.page.wait_for_selector("[data-figure=timeline_after][data-drawn]", timeout=PATIENCE_MS)
        assert seen.problems() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_run_says_what_its_json_report_says(
    browser: Any, served: Served, looked_at: RunsToLookAt, kind: str
) -> None:
    run = looked_at.each()[kind]
    with looked_at.living.held() if kind == "written" else nullcontext():
        report = report_json(run)
        expected = {path: at_path(report, path) for path in SAID}
        with visit(browser, address_of(served, run)) as seen:
            assert shown_in_time(seen, expected) == expected
            assert seen.problems() == []


@pytest.mark.parametrize(("kind", "title"), [("written", "Running now"), ("killed", "Running at the end")])
def test_tasks_without_an_end_run_now_only_while_the_run_goes_on(
    browser: Any, served: Served, looked_at: RunsToLookAt, kind: str, title: str
) -> None:
    with visit(browser, address_of(served, looked_at.each()[kind])) as seen:
        heading = seen.page.locator("[data-section=running] h2")
        heading.wait_for(timeout=PATIENCE_MS)
        assert (heading.inner_text(), seen.problems()) == (title, [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", ["report", "diagnosis", "advice"])
def test_every_page_of_every_run_is_in_good_order(
    browser: Any, served: Served, looked_at: RunsToLookAt, kind: str, page: str
) -> None:
    run = looked_at.each()[kind]
    with visit(browser, f"{address_of(served, run)}/{page}") as seen:
        if page == "report":
            seen.page.wait_for_selector("main h2", timeout=PATIENCE_MS)
        else:
            seen.page.wait_for_selector(f"[data-page={page}]")
            seen.page.wait_for_function("!document.querySelector('.fl-waiting')", timeout=PATIENCE_MS)
            assert "could not be read" not in text_of(seen)
        assert seen.problems() == []


def test_a_run_page_is_no_wider_than_a_phone(browser: Any, served: Served, looked_at: RunsToLookAt) -> None:
    for kind in ("demo", "hostile", "written"):
        with visit(browser, address_of(served, looked_at.each()[kind]), size=PHONE, dark=True) as seen:
            seen.page.wait_for_selector("[data-path='tasks.completed']", timeout=PATIENCE_MS)
            assert (kind, seen.overflow(), seen.problems()) == (kind, 0, [])


def test_a_hostile_run_is_shown_as_text(browser: Any, served: Served, looked_at: RunsToLookAt) -> None:
    with visit(browser, address_of(served, looked_at.hostile)) as seen:
        seen.page.wait_for_selector("[data-failure]", timeout=PATIENCE_MS)
        for fold in seen.page.locator("[data-failure] summary, [data-failure] .q-expansion-item").all()[:5]:
            fold.click()
        assert TRICKS["script"] in text_of(seen)
        assert (
            seen.page.locator("main img[src=x], main a[href^='javascript:'], main svg[onload]").count() == 0
        )
        assert seen.problems() == []


def test_a_run_that_goes_on_moves_on_the_page(browser: Any, served: Served, looked_at: RunsToLookAt) -> None:
    with visit(browser, address_of(served, looked_at.written)) as seen:
        place = seen.page.locator("[data-path='tasks.completed']").first
        place.wait_for(timeout=PATIENCE_MS)
        counts = [int(place.get_attribute("data-value"))]
        for _ in range(3):
            seen.page.wait_for_function(
                f"+document.querySelector(\"[data-path='tasks.completed']\").dataset.value > {counts[-1]}",
                timeout=PATIENCE_MS,
            )
            counts.append(int(place.get_attribute("data-value")))
        assert counts == sorted(set(counts))
        assert seen.problems() == []


def test_a_failure_is_on_the_page_within_two_seconds(
    browser: Any, served: Served, looked_at: RunsToLookAt
) -> None:
    with visit(browser, address_of(served, looked_at.written)) as seen:
        place = seen.page.locator("[data-path='tasks.failed']").first
        place.wait_for(timeout=PATIENCE_MS)
        taken = []
        for _ in range(3):
            before = int(place.get_attribute("data-value"))
            looked_at.living.tell("fail")
            seen.page.wait_for_function(
                f"+document.querySelector(\"[data-path='tasks.failed']\").dataset.value > {before}",
                timeout=PATIENCE_MS,
            )
            taken.append(time.time() - last_failure(looked_at.written))
        print("on the page after", ", ".join(f"{one:.2f}" for one in taken), "s")
        assert sorted(taken)[1] < UPDATED_S
        seen.page.wait_for_selector("[data-failure]")
        assert "no such seed" in text_of(seen)
        assert seen.problems() == []


def test_trends_are_drawn(browser: Any, served: Served) -> None:
    with visit(browser, f"{served.address}/trends?project=sir-demo") as seen:
        seen.page.wait_for_selector("[data-page=trends] svg.main-svg", timeout=PATIENCE_MS)
        assert seen.problems() == []


def test_an_address_that_names_no_run_says_so(browser: Any, served: Served) -> None:
    for path in (
        "/run/no-such-run",
        "/run/..%2f..%2f..%2fetc%2fpasswd",
        "/run/%00",
        "/run/~0/report",
        "/compare?a=../x&b=y",
    ):
        assert (path, served.status(path)) == (path, 404)
    with visit(browser, f"{served.address}/run/..%2f..%2fetc%2fpasswd") as seen:
        assert "root:" not in seen.page.content()


def test_with_a_token_nothing_is_answered_without_it(browser: Any, looked_at: RunsToLookAt) -> None:
    with dashboard(looked_at.runs_dir, "--token", TOKEN) as guarded:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"flightlog={TOKEN}"}):
            for path in (
                "/",
                "/trends",
                "/metrics",
                "/health",
                f"/run/{looked_at.demo.name}",
                "/?token=wrong",
            ):
                assert (path, guarded.status(path, headers)) == (path, 401)
            assert guarded.status(SOCKET, headers | UPGRADE) in {401, 403}
        assert guarded.status("/", {"Authorization": f"Bearer {TOKEN}"}) == 200
        with visit(browser, f"{guarded.address}/?token={TOKEN}") as seen:
            rows(seen, 7)
            assert urlsplit(seen.page.url).query == ""
            assert seen.problems() == []


def test_the_printed_link_opens_the_dashboard_and_leaves_the_address_bar(
    browser: Any, looked_at: RunsToLookAt
) -> None:
    with dashboard(looked_at.runs_dir) as guarded:
        assert guarded.status("/") == 401
        with visit(browser, guarded.printed) as seen:
            rows(seen, 7)
            assert urlsplit(seen.page.url).query == ""
            assert seen.problems() == []


def test_another_address_has_a_token_by_itself(looked_at: RunsToLookAt) -> None:
    with dashboard(looked_at.runs_dir, "--host", "0.0.0.0") as open_to_all:
        token = open_to_all.token
        assert token is not None
        assert len(token) >= 32
        assert (open_to_all.status("/"), open_to_all.status(SOCKET, UPGRADE)) in {(401, 401), (401, 403)}
        assert open_to_all.status("/", {"Authorization": f"Bearer {token}"}) == 200


def test_a_page_of_another_origin_gets_nothing(served: Served) -> None:
    port = urlsplit(served.address).port
    assert served.status("/", {"Host": f"flightlog.invalid:{port}"}) in {400, 403, 421}
    assert served.status(SOCKET, UPGRADE | {"Origin": "http://flightlog.invalid"}) in {400, 403}


_SHOWS = """(expected) => Object.entries(expected).every(([path, value]) => {
    const found = document.querySelector(`[data-path="${path}"]`);
    return found && found.getAttribute('data-value') === value; })"""


def text(value: Any) -> str:
    """A value as `data-value` has it."""
    return msgspec.json.encode(value).decode()


def shown_in_time(seen: Visit, expected: dict[str, Any]) -> dict[str, Any]:
    """What the page says of these paths once it says what is expected, or when patience ends."""
    from playwright.sync_api import TimeoutError as TooLong

    try:
        wanted = {path: text(value) for path, value in expected.items()}
        seen.page.wait_for_function(_SHOWS, arg=wanted, timeout=PATIENCE_MS)
    except TooLong:
        pass
    shown = seen.values()
    return {path: msgspec.json.decode(shown.get(path) or "null") for path in expected}


def rows(seen: Visit, count: int) -> None:
    """Wait until the list has so many runs."""
    seen.page.wait_for_function(
        f"document.querySelectorAll('tr[data-run]').length === {count}", timeout=PATIENCE_MS
    )


def names(seen: Visit) -> list[str]:
    found: list[str] = seen.page.eval_on_selector_all(
        "tr[data-run]", "all => all.map(one => one.getAttribute('data-run'))"
    )
    return found


def text_of(seen: Visit) -> str:
    return str(seen.page.evaluate("document.body.textContent"))


def address_of(served: Served, run: Path) -> str:
    """The address of a run's page, as the list links to it."""
    from flightlog.web.dashboard import key_of

    return f"{served.address}/run/{key_of(run)}"


def last_failure(run: Path) -> float:
    """When the run's newest failure happened, in seconds since 1970."""
    found = [
        unix_time(event.timestamp) for event in Run(run).events("failures") if isinstance(event, Failure)
    ]
    return max(when for when in found if when is not None)
