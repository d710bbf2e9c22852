"""The layout of every page: head, navigation, cards. Names from runs are shown as plain text."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from nicegui import ui

from flightlog.core.errors import FlightlogError
from flightlog.show.document import Section
from flightlog.show.html.blocks import blocks_of
from flightlog.show.html.elements import coded, html_text, tag
from flightlog.show.terminal import brief
from flightlog.web import web_file
from flightlog.web.dashboard import RunRow

log = logging.getLogger("flightlog")
Result = TypeVar("Result")


@contextmanager
def page_layout(page: str, title: str) -> Iterator[None]:
    """A page of this kind, as a context manager for its content. `title` is shown as text."""
    ui.page_title(f"{brief(title, 80)} · Flightlog")
    ui.add_css(web_file("dashboard.css"))
    ui.colors(primary="#1d5f8a", positive="#1b7a48", negative="#b1271f", warning="#865600")
    with ui.header(elevated=False).classes("fl-head"), ui.element("div").classes("fl-bar"):
        ui.link("Flightlog", "/").classes("fl-mark")
        _links("Pages", {"runs": ("Runs", "/"), "trends": ("Trends", "/trends")}, page)
    with ui.element("main").classes("fl-page").props(f"data-page={page}"):
        yield


def run_head(row: RunRow, here: str) -> None:
    """The run's name, and the ways to what else there is of it."""
    with ui.element("div").classes("fl-run-head"):
        heading(brief(row.project, 80), level=1)
        words(row.run_id, "fl-quiet fl-mono")
    tabs = {
        "run": ("Live", f"/run/{row.key}"),
        "report": ("Report", f"/run/{row.key}/report"),
        "diagnosis": ("Diagnosis", f"/run/{row.key}/diagnosis"),
        "advice": ("Advice", f"/run/{row.key}/advice"),
    }
    _links("This run", tabs, here).classes("fl-tabs")


def _links(name: str, links: Mapping[str, tuple[str, str]], here: str) -> ui.element:
    """Navigation: labels and addresses by page, the present one marked."""
    with ui.element("nav").props(f'aria-label="{name}"') as made:
        for page, (label, address) in links.items():
            link = ui.link(label, address)
            if page == here:
                link.props("aria-current=page")
    return made


def heading(text: str, *, level: int = 2) -> ui.element:
    """A heading."""
    with ui.element(f"h{level}") as made:
        ui.label(text)
    return made


def words(text: str, classes: str = "") -> ui.label:
    """A line or a paragraph of text."""
    return ui.label(text).classes(f"fl-words {classes}")


@contextmanager
def card() -> Iterator[ui.element]:
    """A box."""
    with ui.element("section").classes("fl-card") as made:
        yield made


def draw_sections(sections: Iterable[Section]) -> None:
    """A box for each section that says something, as in the HTML report."""
    for section in sections:
        if section.says_something():
            title = tag("h2", coded(section.title, 1000)) if section.title else None
            with card():
                ui.html(html_text(title, blocks_of(section)), sanitize=False).classes("fl-blocks")


async def computed(
    what: str,
    work: Callable[[], Awaitable[Result]],
    draw: Callable[[Result], None],
    where: ui.element | None = None,
) -> None:
    """Show that something is being read, then draw it, or the error in its place."""
    place = ui.element("div").classes("fl-computed") if where is None else where
    place.clear()
    with place, ui.element("div").classes("fl-waiting").props("role=status"):
        ui.spinner(size="1.25rem")
        words(f"{what} …", "fl-quiet")
    client = ui.context.client
    await client.connected()
    if client.is_deleted:  # nobody has come
        return
    try:
        found = await work()
    except FlightlogError as error:
        said, tone = brief(str(error), 1000), "fl-quiet"
    except Exception as error:  # a damaged run is no reason for a blank page
        if not client.is_deleted:
            log.exception("%s failed", what)
        said, tone = brief(f"This could not be read: {type(error).__name__}: {error}", 1000), "fl-bad"
    else:
        if not client.is_deleted:
            place.clear()
            with place:
                draw(found)
        return
    if not client.is_deleted:
        place.clear()
        with place, card():
            words(said, tone)
