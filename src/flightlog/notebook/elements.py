"""HTML that every notebook shows: inline styles only, no script, no address, readable where styles are
stripped.

The elements are those of `show.html`, with a style in place of each class. Colours are of middle lightness
and the writing has the page's own, so that light and dark pages both read well.
"""

from __future__ import annotations

from flightlog.show.document import Block, Section
from flightlog.show.html.blocks import Limits, block_of, sections_of
from flightlog.show.html.elements import Child, Element, html_text, tag

SMALL = Limits(rows=20, cell=80, drawings=True)
"""What a display shows of a table or list."""
_COLORS = {"good": "#2f9e6e", "bad": "#d1495b", "warn": "#c98a1b", "name": "#3d7fc1", "quiet": "#8a8f98"}
_OUTER = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;max-width:100%;overflow-x:auto"
_RULE = "border:0;border-bottom:1px solid rgba(128,128,128,.25)"
_CELL = f"text-align:left;padding:2px 8px;white-space:nowrap;{_RULE}"
_LOOK = {
    "table": "border-collapse:collapse;font-size:inherit;font-variant-numeric:tabular-nums;margin:.2em 0",
    "th": _CELL,
    "th[row]": "font-weight:400",
    "td": _CELL,
    ".number": "text-align:right",
    "p": "margin:.2em 0",
    "h3": "font-size:1em;font-weight:600;margin:.7em 0 .2em",
    ".beside": "font-weight:400",
    ".headline": "font-size:1.15em;margin:.2em 0 .4em",
    "ul": "margin:.2em 0 .4em 1.2em;padding:0;max-width:70em",
    ".below": "display:block;opacity:.7",
    ".more": "opacity:.7",
    "dl": "margin:.2em 0",
    "dt": "display:inline-block;min-width:9em;padding-right:12px;opacity:.7;font-weight:400",
    "dd": "display:inline;margin:0",
    "details": "margin:.4em 0",
    "pre": "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px;"
    "line-height:1.35;background:transparent;color:inherit;overflow-x:auto;margin:.3em 0",
    ".bar": "display:flex;height:10px;max-width:40em;border-radius:3px;overflow:hidden;"
    "background:rgba(128,128,128,.2)",
    ".labels": "margin:.15em 0 .4em",
    ".label": "margin-right:1em;white-space:nowrap",
    **{f".{style}": f"color:{color}" for style, color in _COLORS.items()},
    **{f".is-{style}": f"background:{color}" for style, color in _COLORS.items()},
    ".aside": "opacity:.7",
}
"""Styles of elements by name, by name and scope, and by class."""
STATUS = {
    "completed": "good",
    "running": "name",
    "open": "name",
    "failed": "bad",
    "crashed": "bad",
    "interrupted": "warn",
    "cancelled": "warn",
}
"""The style of a status; of others it is `quiet`."""


def display_html(*parts: Section | Block) -> str:
    """Sections and blocks as one display, in which MathJax leaves a `$` alone."""
    children = [
        _inlined(element)
        for part in parts
        for element in (sections_of([part], SMALL) if isinstance(part, Section) else block_of(part, SMALL))
    ]
    return html_text(tag("div", children, class_="flightlog tex2jax_ignore mathjax_ignore", style=_OUTER))


def _inlined(child: Child) -> Child:
    """The same with styles in place of classes, and without any other attribute."""
    if child is None or isinstance(child, str):
        return child
    if not isinstance(child, Element):
        return [_inlined(one) for one in child]
    given = dict(child.attributes)
    classes = (given.get("class") or "").split()
    names = (child.name, f"{child.name}[{given.get('scope')}]", *(f".{one}" for one in classes))
    styles = ";".join(filter(None, (*(_LOOK.get(name) for name in names), given.get("style"))))
    children = tuple(_inlined(one) for one in child.children)
    return Element(child.name, (("style", styles),) if styles else (), children)
