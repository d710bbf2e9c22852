"""The HTML and the text of everything that displays itself: one door, which finds the writers of each kind
when needed.
"""

from __future__ import annotations

import shutil
from importlib import import_module
from typing import Any, NamedTuple

from flightlog.displayed import in_notebook

MOST = 200_000
"""A display has so many characters of HTML at most."""
MOST_PLAIN = 20_000
WIDTH, NARROWEST, WIDEST = 100, 40, 160
"""Columns of text: in a kernel, which knows no width; and in a terminal at least and at most."""


class Kind(NamedTuple):
    """Who reads what there is to show, and who writes it, as `module:function`."""

    html: str
    plain: str
    read: str | None = None
    """Goes through files; what it gives is written instead of the value."""


_KINDS = {
    "flightlog.store.run.Run": Kind("runs:read_html", "plain:run_text", "runs:read_run"),
    "flightlog.record.run.LiveRun": Kind("runs:read_html", "plain:run_text", "runs:read_recording"),
    "flightlog.analyze.report.Report": Kind("runs:report_html", "plain:report_plain"),
    "flightlog.analyze.summary.Summary": Kind("runs:summary_html", "plain:run_text"),
    "flightlog.store.query.Table": Kind("tables:read_html", "tables:read_text", "tables:read_table"),
    "flightlog.analyze.changes.Comparison": Kind("answers:comparison_html", "plain:comparison_plain"),
    "flightlog.analyze.trends.Trend": Kind("answers:trend_html", "plain:trend_plain"),
    "flightlog.analyze.diagnosis.results.RunDiagnosis": Kind(
        "answers:diagnosis_html", "plain:diagnosis_plain"
    ),
    "flightlog.session.session.Session": Kind("sessions:session_html", "plain:session_text"),
    "flightlog.session.futures.TaskFuture": Kind("sessions:future_html", "plain:future_text"),
    "flightlog.notebook.notes.Note": Kind("notes:note_html", "notes:note_plain"),
}
"""By the name of the class; that of a base holds for what is made of it."""


def html_of(value: Any) -> str | None:
    """The display of a value, of at most `MOST` characters; None for what has none."""
    kind = _kind(value)
    return None if kind is None else _html(kind, _read(kind, value))


def plain_of(value: Any, width: int | None = None) -> str | None:
    """The same in lines of text, at most `MOST_PLAIN` characters, without a line break at the end; None for
    what has none.
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


def _html(kind: Kind, read: Any) -> str:
    html: str = _found(kind.html)(read)
    if len(html) > MOST:
        raise ValueError(f"its display would have {len(html):,} characters")
    return html


def _plain(kind: Kind, read: Any, width: int | None) -> str:
    words: str = _found(kind.plain)(read, width or _width())
    words = words.strip("\n")
    return words if len(words) <= MOST_PLAIN else f"{words[:MOST_PLAIN]}\n… cut"


def _width() -> int:
    """The terminal's; what a kernel writes is the same on every machine."""
    if in_notebook():
        return WIDTH
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)


def _read(kind: Kind, value: Any) -> Any:
    return value if kind.read is None else _found(kind.read)(value)


def _kind(value: Any) -> Kind | None:
    names = (f"{one.__module__}.{one.__qualname__}" for one in type(value).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), None)


def _found(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(f"flightlog.notebook.{module}"), function)
