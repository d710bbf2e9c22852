"""A self-contained page: head, contents, scripts, and its sections, tables and figures. It needs no network.

Each figure has a caption and its numbers in a table. The policy in the head names the two scripts by their
digests, so a browser fetches nothing, and a script injected through a name or a message does not run, even
past the escaping.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.show.document import Section, TableBlock
from flightlog.show.figures.style import CONFIG, DARK, LIGHT, figure_json
from flightlog.show.html.blocks import blocks_of, table_of
from flightlog.show.html.elements import Child, Element, data, html_text, said, script, style, tag, way
from flightlog.show.phrases import capitalized

if TYPE_CHECKING:
    import plotly.graph_objects as go


class PagePart(NamedTuple):
    """A part of a page with a place in its contents."""

    identity: str
    title: str
    content: Sequence[Child]
    absent: str = ""
    """The sentence at the end of the page where there is no content; a part without content is left out."""


def take_section(named: dict[str, Section], title: str) -> list[Element]:
    """What a section says, for a part of its own; it is taken out of `named`."""
    section = named.pop(title, None)
    return [] if section is None else blocks_of(section)


def other_parts(named: Mapping[str, Section]) -> list[PagePart]:
    """A part each for the sections that no other part has placed, in their order."""
    rest = [section for section in named.values() if section.says_something()]
    return [
        PagePart(f"more-{number}", said(section.title, 80), blocks_of(section))
        for number, section in enumerate(rest, 1)
    ]


def page_html(
    title: str,
    subtitle: str,
    verdict: Element,
    parts: Sequence[PagePart],
    *,
    plotly_js: str | None = None,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The page, ending in a newline. `plotly_js` is the library that draws the figures, by default the
    installed one.

    `ways` lead on to other pages, addresses by what they are called, where the page is served among others.
    """
    own, plotly_js = _file("page.js"), plotly_js or plotly_script()
    absent = " ".join(part.absent for part in parts if part.absent and not part.content)
    parts = [part for part in parts if part.content]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(own, plotly_js)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content="Flightlog"),
        tag("title", title),
        style(_file("page.css")),
    )
    links = [way(name, address) for name, address in (ways or {}).items()]
    about_button = "Change between light and dark"
    button = tag("button", "Dark", type="button", id="theme", hidden=True, title=about_button)
    not_there = tag("p", absent, id="absent", class_="nothing") if absent else None
    frame = tag(
        "div",
        tag("div", links, class_="ways", role="navigation", aria_label="Dashboard") if links else None,
        tag("header", tag("p", tag("strong", title), " ", subtitle), button, class_="bar"),
        tag("noscript", tag("p", "The figures need JavaScript. Every number is in the tables, too.")),
        tag(
            "div",
            _contents(parts),
            tag("main", verdict, map(_part, parts), not_there, id="report"),
            class_="columns",
        ),
        tag("footer", "Made by Flightlog. This file needs no network and can be mailed as it is."),
        class_="frame",
    )
    settings = msgspec.json.encode({"config": CONFIG, "themes": {"light": LIGHT, "dark": DARK}}).decode()
    skip = tag("a", "Skip to the report", href="#report", class_="skip")
    scripts = data("settings", settings), script(plotly_js, later="plotly"), script(own)
    body = tag("body", skip, frame, *scripts)
    return f"<!DOCTYPE html>\n{html_text(tag('html', head, body, lang='en'))}\n"


def policy(*scripts: str) -> str:
    """The content security policy: run these scripts, and show the page's own content."""
    digests = " ".join(f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" for code in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def plotly_script() -> str:
    """The library that draws the figures, from the installed package."""
    from plotly.offline import get_plotlyjs

    # A script in a page is digested as the browser reads it, with plain line ends.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def _contents(parts: Sequence[PagePart]) -> Element:
    links = (tag("li", tag("a", part.title, href=f"#{part.identity}")) for part in parts)
    return tag("nav", tag("details", tag("summary", "Contents"), tag("ol", links)), aria_label="Contents")


def _part(part: PagePart) -> Element:
    return tag(
        "section",
        tag("h2", part.title, id=f"{part.identity}-title"),
        part.content,
        id=part.identity,
        aria_labelledby=f"{part.identity}-title",
    )


def _file(name: str) -> str:
    return files("flightlog.show.html").joinpath(name).read_text(encoding="utf-8")


_CIRCLE = {"cx": 12, "cy": 12, "r": 10}
_SIGNS = {
    "good": "M7.5 12.5l3 3 6-6.5",
    "bad": "M8.5 8.5l7 7M15.5 8.5l-7 7",
    "warn": "M12 7v6M12 16.5v.01",
    "plain": "M12 7v5l3.5 2",
}
"""Paths in a circle: a tick, a cross, an exclamation mark, a clock."""


def verdict_section(style: str, headline: str, *content: Child) -> Element:
    """The first part of a page: the answer with an icon, and what belongs to it."""
    head = tag("div", status_icon(style), tag("h1", headline), class_="headline")
    return tag("section", head, *content, id="verdict", class_=f"verdict is-{style}")


def number(path: str, value: Any, text: str) -> Element:
    """A number, with its path and value in the JSON of what the page shows."""
    return tag("span", text, data_path=path, data_value=msgspec.json.encode(value).decode())


def tile(label: str, value: Child, below: str) -> Element:
    """A key figure, with a word below it."""
    return tag("div", tag("dt", label), tag("dd", value, tag("small", below) if below else None))


def status_icon(style: str) -> Element:
    """An icon for a status, which is never shown by colour alone."""
    circle, path = tag("circle", **_CIRCLE), tag("path", d=_SIGNS[style])
    return tag("svg", circle, path, viewBox="0 0 24 24", aria_hidden="true", focusable="false")


def advice_list(rows: Sequence[tuple[Child, Child]], heads: tuple[str, str]) -> Element | None:
    """What happened, each with what to do about it; the headings are above the first."""
    items = []
    for number, texts in enumerate(rows):
        both = zip(heads, texts, strict=True)
        boxes = [tag("div", tag("h2", head) if number == 0 and text else None, text) for head, text in both]
        items.append(tag("li", boxes))
    return tag("ul", items, class_="told") if items else None


DEFAULT_HEIGHT_PX = 360
"""Pixels of a figure that does not say."""

EMPTY = (
    "A script draws this figure when it comes into view. Where none runs, the caption and the tables "
    "say what it shows."
)
"""Placeholder of a figure that is not drawn."""


def plot(
    identity: str,
    figure: go.Figure | None,
    caption: str,
    *,
    notes: Sequence[str] = (),
    numbers: TableBlock | None = None,
    numbers_of: str = "",
    title: str = "",
) -> list[Element]:
    """A figure with its caption, or nothing without one; `numbers` are in a part that unfolds, under the
    caption `numbers_of`.

    `identity` is unique on the page. `notes` say what is not drawn one by one.
    """
    if figure is None:
        return []
    words = " ".join([caption, *(_sentence(note) for note in notes)])
    place = tag(
        "div",
        class_="plot",
        data_figure=identity,
        tabindex="0",
        role="img",
        aria_label=f"{title}. {words}" if title else words,
        data_height=int(figure.layout.height or DEFAULT_HEIGHT_PX),
        data_empty=EMPTY,
    )
    table = tag("details", tag("summary", "Numbers"), table_of(numbers, numbers_of)) if numbers else None
    head, drawn = tag("h3", title) if title else None, data(f"{identity}-data", figure_json(figure))
    return [tag("figure", head, place, tag("figcaption", words), table, drawn)]


def _sentence(text: str) -> str:
    text = said(text.strip(), 1000)
    return capitalized(text) + ("" if text.endswith((".", "!", "?")) else ".")
