"""The frame of a self-contained page: head, contents, parts, scripts. It needs no network.

The policy in its head names its two scripts by their digests. So a browser fetches nothing, and a script that
a name or a message smuggled in would not run, even if it got past the escaping.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import msgspec

from flightlog.show.figures import CONFIG, DARK, LIGHT
from flightlog.show.html.elements import Child, Element, data, html_text, script, style, tag, way


class PagePart(NamedTuple):
    """A part of a page with a place in its contents."""

    identity: str
    title: str
    content: Sequence[Child]
    absent: str = ""
    """The sentence at the end of the page where there is no content; a part without content is left out."""


def page_html(
    title: str,
    subtitle: str,
    verdict: Element,
    parts: Sequence[PagePart],
    plotly_js: str,
    *,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The page, ending in a newline. `plotly_js` is the library that draws the figures.

    `ways` lead on to other pages, addresses by what they are called, where the page is served among others.
    """
    own = _file("page.js")
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
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#report", class_="skip"),
        tag(
            "div",
            _ways(ways or {}),
            tag(
                "header",
                tag("p", tag("strong", title), " ", subtitle),
                tag(
                    "button",
                    "Dark",
                    type="button",
                    id="theme",
                    hidden=True,
                    title="Change between light and dark",
                ),
                class_="bar",
            ),
            tag("noscript", tag("p", "The figures need JavaScript. Every number stands in the tables, too.")),
            tag(
                "div",
                _contents(parts),
                tag(
                    "main",
                    verdict,
                    map(_part, parts),
                    tag("p", absent, id="absent", class_="nothing") if absent else None,
                    id="report",
                ),
                class_="columns",
            ),
            tag("footer", "Made by Flightlog. This file needs no network and can be mailed as it is."),
            class_="frame",
        ),
        data(
            "settings",
            msgspec.json.encode({"config": CONFIG, "themes": {"light": LIGHT, "dark": DARK}}).decode(),
        ),
        script(plotly_js, later="plotly"),
        script(own),
    )
    return f"<!DOCTYPE html>\n{html_text(tag('html', head, body, lang='en'))}\n"


def policy(*scripts: str) -> str:
    """What a browser may do with the page: run these scripts, and show what stands in it."""
    digests = " ".join(f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" for code in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; "
        "form-action 'none'"
    )


def plotly_script() -> str:
    """The library that draws the figures, from the installed package."""
    from plotly.offline import get_plotlyjs

    # A script in a page is digested as the browser reads it, with plain line ends.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def _ways(ways: Mapping[str, str]) -> Sequence[Element]:
    if not ways:
        return ()
    links = [way(name, address) for name, address in ways.items()]
    return (tag("div", links, class_="ways", role="navigation", aria_label="Dashboard"),)


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
