"""HTML and text of every object that displays itself, from the same blocks; modules are loaded on demand."""

from __future__ import annotations

import shutil
from importlib import import_module
from typing import Any, NamedTuple

from flightlog.core.displayed import in_notebook
from flightlog.notebook.elements import display_html
from flightlog.show.bounded import bounded
from flightlog.show.document import Verbatim, display_text

MOST = 200_000
"""Maximum characters of HTML in a display."""
MOST_PLAIN = 20_000
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
        "notebook.tables:table_display", "notebook.tables:table_plain", "notebook.tables:read_table"
    ),
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
    """The same as lines of text, at most `MOST_PLAIN` characters, without a final
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
    if len(html) > MOST:
        raise ValueError(f"its display would have {len(html):,} characters")
    return html


def _plain(kind: DisplayKind, read: Any, width: int | None) -> str:
    words = _text(kind, read, width or _width()).strip("\n")
    return words if len(words) <= MOST_PLAIN else f"{words[:MOST_PLAIN]}\n… cut"


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
