"""HTML that every notebook shows: inline styles only, no script, no address, readable where styles are
stripped.

Every text that a run recorded goes through `text`, which cuts it, spells out what cannot be seen, and escapes
it. Colours are of middle lightness and the writing has the page's own, so that light and dark pages both read
well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from typing import NamedTuple

from flightlog.show.document import FactsBlock, Items, Remarks, Section, TableBlock
from flightlog.show.terminal import brief

CELL = 80
"""Maximum width of a cell."""
SENTENCE = 600
ROWS = 20
"""Maximum rows of a table, and items of a list."""
LONGEST = 60_000
GOOD, BAD, WARN, NEW, QUIET = "#2f9e6e", "#d1495b", "#c98a1b", "#3d7fc1", "#8a8f98"
STATUS = {"completed": GOOD, "running": NEW, "failed": BAD, "crashed": BAD, "interrupted": WARN}

_OUTER = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;max-width:100%;overflow-x:auto"
_RULE = "border:0;border-bottom:1px solid rgba(128,128,128,.25)"


class BarPart(NamedTuple):
    """One stretch of a bar."""

    label: str
    amount: float
    color: str


def text(value: str, limit: int = CELL) -> str:
    """A recorded text as HTML: on one line, cut to this width, and escaped."""
    return escape(brief(value, limit))


def prose(value: str, limit: int = SENTENCE) -> str:
    """A sentence of the package; names and commands in backticks become code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value, limit))


def fragment(*pieces: str) -> str:
    """The pieces as one display, in which MathJax leaves a `$` alone."""
    inner = "".join(piece for piece in pieces if piece)
    return f'<div class="flightlog tex2jax_ignore mathjax_ignore" style="{_OUTER}">{inner}</div>'


def badge(status: str) -> str:
    """A status, in its colour."""
    color = STATUS.get(status, QUIET)
    return f'<b style="color:{color}">{text(status, 20)}</b>'


def headline(html: str) -> str:
    """The answer, on a line of its own."""
    return f'<div style="font-size:1.15em;margin:.2em 0 .4em">{html}</div>'


def line(html: str) -> str:
    """A line."""
    return f"<div>{html}</div>"


def quiet(html: str) -> str:
    """A line that is there to be read last."""
    return f'<div style="opacity:.7">{html}</div>'


def title(words: str) -> str:
    """The heading of what follows."""
    return f'<div style="font-weight:600;margin:.7em 0 .2em">{escape(words)}</div>'


def sentences(said: Iterable[str], more: str = "", written: Callable[[str, int], str] = text) -> str:
    """A list of sentences; `prose` formats those of the package."""
    items = "".join(f"<li>{written(one, SENTENCE)}</li>" for one in said)
    style = "margin:.2em 0 .4em 1.2em;padding:0;max-width:70em"
    return f'<ul style="{style}">{items}</ul>{_more(more)}' if items else ""


def bar(parts: Sequence[BarPart], total: float | None = None) -> str:
    """A bar of shares, with their names and figures below it; nothing where there is nothing to share."""
    whole = sum(part.amount for part in parts) if total is None else total
    shown = [part for part in parts if part.amount > 0]
    if whole <= 0 or not shown:
        return ""
    stretches = "".join(
        f'<div style="width:{100 * part.amount / whole:.2f}%;background:{part.color}"></div>'
        for part in shown
    )
    names = "".join(
        f'<span style="margin-right:1em;white-space:nowrap"><span style="color:{part.color}">&#9632;</span> '
        f"{text(part.label)}</span>"
        for part in shown
    )
    frame = (
        "display:flex;height:10px;max-width:40em;border-radius:3px;overflow:hidden;"
        "background:rgba(128,128,128,.2)"
    )
    return f'<div style="{frame}">{stretches}</div><div style="margin:.15em 0 .4em">{names}</div>'


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str] = (), more: str = ""
) -> str:
    """Rows in columns; the first column and those in `left` are left-aligned. Empty columns are left out."""
    said = [n for n in range(len(head)) if n == 0 or any(n < len(row) and row[n] for row in rows)]

    def cell(tag: str, value: str, n: int) -> str:
        side = "left" if n == 0 or head[n] in left else "right"
        return (
            f'<{tag} style="text-align:{side};padding:2px 8px;white-space:nowrap;{_RULE}">'
            f"{text(value)}</{tag}>"
        )

    top = "".join(cell("th", head[n], n) for n in said)
    body = "".join(
        f"<tr>{''.join(cell('td', row[n] if n < len(row) else '', n) for n in said)}</tr>" for row in rows
    )
    frame = "border-collapse:collapse;font-size:inherit;font-variant-numeric:tabular-nums;margin:.2em 0"
    return f'<table style="{frame}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{_more(more)}'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Labels and values."""
    rows = "".join(
        f'<tr><td style="text-align:left;padding:1px 12px 1px 0;opacity:.7">{text(label)}</td>'
        f'<td style="text-align:left;padding:1px 0">{text(value, 2 * CELL)}</td></tr>'
        for label, value in pairs
    )
    return (
        '<table style="border-collapse:collapse;font-size:inherit;margin:.2em '
        f'0"><tbody>{rows}</tbody></table>'
        if rows
        else ""
    )


def folded(words: str, html: str) -> str:
    """Something that opens when its words are clicked."""
    return (
        f'<details style="margin:.4em 0"><summary>{escape(words)}</summary>{html}</details>' if html else ""
    )


def pre(words: str) -> str:
    """Preformatted lines, at most `LONGEST` characters."""
    cut = words if len(words) <= LONGEST else f"{words[:LONGEST]}\n… cut"
    style = (
        "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px;"
        "line-height:1.35;"
        "background:transparent;color:inherit;overflow-x:auto;margin:.3em 0"
    )
    return f'<pre style="{style}">{escape(cut)}</pre>'


def sections_html(sections: Iterable[Section]) -> str:
    """The non-empty sections of a report, with at most `ROWS` rows and items each."""
    return "".join(_section(one) for one in sections if one.says_something())


def _section(section: Section) -> str:
    note = f'<span style="font-weight:400"> {text(section.note, SENTENCE)}</span>' if section.note else ""
    name = f"{escape(section.title)}:" if section.title else ""
    heading = f'<div style="font-weight:600;margin:.7em 0 .2em">{name}{note}</div>'
    return heading + "".join(_block(block) for block in section.blocks)


def _block(block: FactsBlock | TableBlock | Items | Remarks) -> str:
    match block:
        case FactsBlock(pairs):
            return facts(pairs)
        case TableBlock(head, lines, left, more):
            return table(head, lines[:ROWS], left, more or _left(len(lines) - ROWS))
        case Items(items, more):
            said = "".join(
                f"<li>{text(item.mark + item.text, SENTENCE)}"
                + "".join(f'<div style="opacity:.7">{text(one, SENTENCE)}</div>' for one in item.below if one)
                + "</li>"
                for item in items[:ROWS]
            )
            return f'<ul style="margin:.2em 0 .4em 1.2em;padding:0">{said}</ul>' + _more(
                more or _left(len(items) - ROWS)
            )
        case Remarks(remarks, more):
            return sentences(remarks, more)


def _left(number: int) -> str:
    return f"and {number:,} more" if number > 0 else ""


def _more(words: str) -> str:
    return f'<div style="opacity:.7">… {text(words, SENTENCE)}</div>' if words else ""
