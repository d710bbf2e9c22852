"""HTML and text of every object that displays itself, from the same blocks; modules are loaded on demand.

The HTML is what every notebook shows: inline styles only, no script, no address, readable where styles are
stripped. The elements are those of `show.html`, with a style in place of each class. Colours are of middle
lightness and the writing has the page's own, so that light and dark pages both read well.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

from flightlog.core.displayed import in_notebook
from flightlog.notebook.limits import NotebookLimits
from flightlog.show.bounded import bounded
from flightlog.show.document import Block, Section, Verbatim, display_text
from flightlog.show.html.blocks import Limits, block_of, sections_of
from flightlog.show.html.elements import Child, Element, html_text, tag

WIDTH, NARROWEST, WIDEST = 100, 40, 160
"""Columns of text: in a kernel, which knows no width; and in a terminal at least and at most."""


class DisplayKind(NamedTuple):
    """Who reads what there is to show, and who writes it, as `module:function`."""

    blocks: str | None = None
    """Gives blocks; without, the HTML is the text."""
    text: str | None = None
    """Writes the text, given a width, where that is not of the same blocks."""
    read: str | None = None
    """Reads files; its result is displayed instead of the value."""
    width: int = 100
    """Columns of the text where that is the HTML, too."""


_RUN = DisplayKind("notebook.runs:run_display", read="notebook.runs:read_run")
_KINDS = {
    "flightlog.store.run.Run": _RUN,
    "flightlog.record.run.LiveRun": _RUN,
    "flightlog.analyze.report.report.Report": _RUN._replace(text="show.report:report_text", read=None),
    "flightlog.analyze.report.summary.Summary": _RUN._replace(read=None),
    "flightlog.store.tables.query.Table": DisplayKind(
        "notebook.runs:table_display", "notebook.runs:table_plain", "notebook.runs:read_table"
    ),
    "flightlog.analyze.advice.advise.Advised": DisplayKind(text="show.advice:advice_text"),
    "flightlog.analyze.compare.results.Comparison": DisplayKind(
        "notebook.runs:comparison_display", "show.comparison:comparison_text"
    ),
    "flightlog.analyze.history.trends.Trend": DisplayKind(text="show.trends:trend_text"),
    "flightlog.analyze.diagnosis.results.RunDiagnosis": DisplayKind(
        text="show.diagnosis:diagnosis_text", width=110
    ),
    "flightlog.session.session.Session": DisplayKind("notebook.sessions:session_display"),
    "flightlog.session.futures.TaskFuture": DisplayKind("notebook.sessions:future_display"),
    "flightlog.notebook.extension.MagicAnswer": DisplayKind("notebook.extension:note_display"),
}
"""Displays by class name; subclasses use that of their base."""


def html_of(value: Any) -> str | None:
    """The display of a value, of at most `MOST` characters; None for what has none."""
    kind = _kind(value)
    return None if kind is None else _html(kind, _read(kind, value))


def plain_of(value: Any, width: int | None = None) -> str | None:
    """The same as lines of text, at most `NotebookLimits.max_text_chars` characters, without a final
    newline; None without one.
    """
    kind = _kind(value)
    return None if kind is None else _plain(kind, _read(kind, value), width)


def bundle_of(value: Any) -> dict[str, str]:
    """Both, by their media types, from one reading; empty for what has none."""
    kind = _kind(value)
    if kind is None:
        return {}
    read = _read(kind, value)
    return {"text/html": _html(kind, read), "text/plain": _plain(kind, read, None)}


def _html(kind: DisplayKind, read: Any) -> str:
    blocks = [Verbatim(_text(kind, read, kind.width))] if kind.blocks is None else _found(kind.blocks)(read)
    html = display_html(*blocks)
    if len(html) > NotebookLimits.max_html_chars:
        raise ValueError(f"its display would have {len(html):,} characters")
    return html


def _plain(kind: DisplayKind, read: Any, width: int | None) -> str:
    words, most = _text(kind, read, width or _width()).strip("\n"), NotebookLimits.max_text_chars
    return words if len(words) <= most else f"{words[:most]}\n… cut"


def _text(kind: DisplayKind, read: Any, width: int) -> str:
    if kind.text is None:
        return display_text(_found(kind.blocks or "")(read), width=width)
    text: str = _found(kind.text)(bounded(read), width=width)
    return text


def _width() -> int:
    """The terminal's; what a kernel writes is the same on every machine."""
    if in_notebook():
        return WIDTH
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)


def _read(kind: DisplayKind, value: Any) -> Any:
    return value if kind.read is None else _found(kind.read)(value)


def _kind(value: Any) -> DisplayKind | None:
    names = (f"{one.__module__}.{one.__qualname__}" for one in type(value).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), None)


def _found(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(f"flightlog.{module}"), function)


SMALL = Limits(rows=20, cell=80, drawings=True)
"""What a display shows of a table or list."""
_LOOK: dict[str, str] = dict(
    re.findall(
        r"^(\S+) { (.*) }$", files("flightlog.notebook").joinpath("display.css").read_text("utf-8"), re.M
    )
)
"""Styles by selector: elements by name, by name and scope, and by class."""
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
    return html_text(
        tag("div", children, class_="flightlog tex2jax_ignore mathjax_ignore", style=_LOOK[".flightlog"])
    )


def _inlined(child: Child) -> Child:
    """The same with styles in place of classes, and without any other attribute."""
    if child is None or isinstance(child, str):
        return child
    if not isinstance(child, Element):
        return [_inlined(one) for one in child]
    given = dict(child.attributes)
    classes = (given.get("class") or "").split()
    names = (child.name, f"{child.name}[scope={given.get('scope')}]", *(f".{one}" for one in classes))
    styles = ";".join(filter(None, (*(_LOOK.get(name) for name in names), given.get("style"))))
    children = tuple(_inlined(one) for one in child.children)
    return Element(child.name, (("style", styles),) if styles else (), children)
