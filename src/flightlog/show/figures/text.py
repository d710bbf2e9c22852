"""Texts for figures: what a run recorded is shown as it is, and never read as markup."""

from __future__ import annotations

from flightlog.show.terminal import clean, fit

LIMIT = 60
"""Columns of a name in a figure."""
NAMELESS = "(no name)"
_READ_AHEAD = 4
"""A name may be megabytes long: so many characters for each column are looked at, and no more."""
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def plain(text: str, limit: int = LIMIT) -> str:
    """The text for Plotly: on one line, at most `limit` columns wide, controls spelled out, markup shown as
    written.

    Plotly reads `<b>`, `<a href>`, entities and, where MathJax is at hand, `$…$` in every text; after this it
    finds none. For a text in a figure only: a picture or a page of another kind wants `plain_back` or its own
    escapes.
    """
    return shown(text, limit).translate(_MARKUP)


def name_text(text: str, limit: int = LIMIT) -> str:
    """A name for Plotly, as `plain` gives it; one that is nothing but blanks is `(no name)`."""
    return plain(text, limit) if text[: limit * _READ_AHEAD].strip() else NAMELESS


def shown(text: str, limit: int = LIMIT) -> str:
    """The text on one line, at most `limit` columns wide, controls spelled out; not yet safe for Plotly."""
    return fit(clean(text[: limit * _READ_AHEAD]), limit)


def plain_back(text: str) -> str:
    """What a text of a figure looks like when Plotly has drawn it: without its tags, and entities as
    characters.
    """
    return (
        text.replace("<br>", "\n")
        .replace("<b>", "")
        .replace("</b>", "")
        .replace("<i>", "")
        .replace("</i>", "")
        .replace("&#36;", "$")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
    )
