"""HTML elements: the one place where text becomes markup and is escaped.

A text is always a text: markup cannot be passed in. Recorded texts are bounded by `said` and `bounded_lines`
first, so that no long name makes a page that cannot be opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Union

from msgspec import Struct

from flightlog.show.bounded import cut
from flightlog.show.limits import HtmlLimits
from flightlog.show.terminal import clean

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_PAGE = re.compile(r"/([A-Za-z0-9_.~-]+(/[A-Za-z0-9_.~-]+)*)?")
_VOID = frozenset({"meta", "br", "hr"})
_RAW = frozenset({"script", "style"})
_CLOSES = re.compile(r"</script|<script|<!--", re.IGNORECASE)

Attribute = str | int | float | bool | None
Child = Union["Element", str, None, Iterable["Child"]]


class Element(Struct, frozen=True):
    """One element with its children; made by `tag`, `script` or `style`."""

    name: str
    attributes: tuple[tuple[str, str | None], ...]
    children: tuple[Child, ...]


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Element:
    """An element. Children are elements, texts, or several of these; None is nothing.

    `class_` is `class`, and `data_path` is `data-path`. None and False leave an attribute out, True gives it
    no value. Raises ValueError for what a page of data must not have: handlers (`onclick`), inline scripts
    and styles, and links that lead out of the page.
    """
    if name in _RAW or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no element that holds text")
    return Element(name, tuple(_attributes(attributes)), children)


def way(name: str, address: str) -> Element:
    """A link to another page of the server that this one is served by. Raises ValueError for any other
    address.
    """
    if not _PAGE.fullmatch(address):
        raise ValueError(f"no page of this server: {address[:80]!r}")
    return Element("a", (("href", address),), (name,))


def _attributes(given: dict[str, Attribute]) -> Iterable[tuple[str, str | None]]:
    for key, value in given.items():
        name = key.rstrip("_").replace("_", "-")
        if not _NAME.fullmatch(name.lower()) or name.lower().startswith("on"):
            raise ValueError(f"{name!r} is no attribute of data")
        if name in {"href", "src", "action"} and not str(value).startswith("#"):
            raise ValueError(f"{name} leads out of the page: {str(value)[:80]!r}")
        if value is True:
            yield name, None
        elif value is not None and value is not False:
            yield name, str(value)


def script(code: str, *, later: str | None = None) -> Element:
    """A script of the package. Raises ValueError where the code would end its element.

    One with `later` is not run by the browser, but by another script.
    """
    if _CLOSES.search(code):
        raise ValueError("a script that holds a tag of its own would end early")
    attributes = () if later is None else (("type", "text/plain"), ("id", later))
    return Element("script", attributes, (code,))


def style(rules: str) -> Element:
    """A style sheet of our own. Raises ValueError where it would end its element."""
    if "<" in rules:
        raise ValueError("a style sheet holds no tags")
    return Element("style", (), (rules,))


def data(identity: str, document: str) -> Element:
    """A JSON document that scripts read and no browser runs; `<` in it is written so that nothing ends the
    element.
    """
    safe = document.replace("<", "\\u003c")
    return Element("script", (("type", "application/json"), ("id", identity)), (safe,))


def html_text(*children: Child) -> str:
    """The elements as HTML."""
    pieces: list[str] = []
    for child in children:
        _write(child, pieces)
    return "".join(pieces)


def _write(child: Child, out: list[str]) -> None:
    if child is None:
        return
    if isinstance(child, str):
        out.append(escape(child, quote=False))
    elif isinstance(child, Element):
        out.append(f"<{child.name}")
        for name, value in child.attributes:
            out.append(f" {name}" if value is None else f' {name}="{escape(value)}"')
        out.append(">")
        if child.name in _RAW:
            out.extend(text for text in child.children if isinstance(text, str))
        else:
            for inner in child.children:
                _write(inner, out)
        if child.name not in _VOID:
            out.append(f"</{child.name}>")
    else:
        for inner in child:
            _write(inner, out)


def said(text: str, limit: int = HtmlLimits.max_text) -> str:
    """A recorded text on one line, with control characters spelled out; a long one is cut, with the number of
    characters cut.
    """
    return clean(cut(text, limit))


def bounded_lines(text: str, lines: int = HtmlLimits.max_text_lines) -> str:
    """The same of several lines: the last ones, each cut where it is long."""
    found = text[-lines * HtmlLimits.max_line_length * 4 :].splitlines()
    kept = [said(line, HtmlLimits.max_line_length) for line in found[-lines:]]
    left = text.count("\n") + (not text.endswith("\n")) - len(kept)
    return "\n".join([f"… ({left:,} earlier lines)", *kept] if left > 0 else kept)


def coded(text: str, limit: int = 2000) -> list[Child]:
    """A sentence of the package; names and commands in backticks become code."""
    return [
        tag("code", said(piece, limit)) if number % 2 else said(piece, limit)
        for number, piece in enumerate(text.split("`"))
    ]
