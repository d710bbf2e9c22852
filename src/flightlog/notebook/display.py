"""HTML and text of every object that displays itself; modules are loaded on demand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.core.displayed import in_notebook
from flightlog.core.units import format_bytes
from flightlog.notebook.elements import BarPart
from flightlog.notebook.runs import (
    NAMES,
    CountsOnly,
    count_parts,
    counted_words,
    failure_words,
    finding_words,
    foot_words,
    summary_names,
    verdict_words,
)
from flightlog.notebook.sessions import counts_words, future_facts, session_facts
from flightlog.show.bounded import bounded
from flightlog.show.comparison import comparison_text
from flightlog.show.diagnosis import diagnosis_text
from flightlog.show.document import Remarks, Section, TableBlock, facts, section_text
from flightlog.show.report import report_text
from flightlog.show.report_sections import names_table
from flightlog.show.terminal import Ink, brief, clean, wrap
from flightlog.show.trends import trend_text

if TYPE_CHECKING:
    from flightlog.analyze.compare.results import Comparison
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.history.trends import Trend
    from flightlog.analyze.report.report import Report
    from flightlog.analyze.report.summary import Summary
    from flightlog.session.futures import TaskFuture
    from flightlog.session.session import Session

MOST = 200_000
"""Maximum characters of HTML in a display."""
MOST_PLAIN = 20_000
WIDTH, NARROWEST, WIDEST = 100, 40, 160
"""Columns of text: in a kernel, which knows no width; and in a terminal at least and at most."""


class DisplayKind(NamedTuple):
    """Who reads what there is to show, and who writes it, as `module:function`."""

    html: str
    plain: str
    read: str | None = None
    """Reads files; its result is displayed instead of the value."""


_KINDS = {
    "flightlog.store.run.Run": DisplayKind("runs:read_html", "display:run_text", "runs:read_run"),
    "flightlog.record.run.LiveRun": DisplayKind("runs:read_html", "display:run_text", "runs:read_recording"),
    "flightlog.analyze.report.report.Report": DisplayKind("runs:report_html", "display:report_plain"),
    "flightlog.analyze.report.summary.Summary": DisplayKind("runs:summary_html", "display:run_text"),
    "flightlog.store.tables.query.Table": DisplayKind(
        "tables:read_html", "tables:read_text", "tables:read_table"
    ),
    "flightlog.analyze.compare.results.Comparison": DisplayKind(
        "runs:comparison_html", "display:comparison_plain"
    ),
    "flightlog.analyze.history.trends.Trend": DisplayKind("runs:trend_html", "display:trend_plain"),
    "flightlog.analyze.diagnosis.results.RunDiagnosis": DisplayKind(
        "runs:diagnosis_html", "display:diagnosis_plain"
    ),
    "flightlog.session.session.Session": DisplayKind("sessions:session_html", "display:session_text"),
    "flightlog.session.futures.TaskFuture": DisplayKind("sessions:future_html", "display:future_text"),
    "flightlog.notebook.extension.MagicAnswer": DisplayKind("extension:note_html", "extension:note_plain"),
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
    html: str = _found(kind.html)(read)
    if len(html) > MOST:
        raise ValueError(f"its display would have {len(html):,} characters")
    return html


def _plain(kind: DisplayKind, read: Any, width: int | None) -> str:
    words: str = _found(kind.plain)(read, width or _width())
    words = words.strip("\n")
    return words if len(words) <= MOST_PLAIN else f"{words[:MOST_PLAIN]}\n… cut"


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
    return getattr(import_module(f"flightlog.notebook.{module}"), function)


INK = Ink(False)
TEXT = 200


def run_text(read: Report | Summary | CountsOnly, width: int) -> str:
    """A run: the verdict, findings, how the tasks ended, why some failed, the task names."""
    from flightlog.analyze.report.report import Report as Whole

    if isinstance(read, CountsOnly):
        words, parts = counted_words(read.run)
        more = (
            f"{format_bytes(read.run.size_bytes())} were recorded: `flightlog report` goes through all of it."
        )
        return _lines(_joined(words, width), _counts(parts), wrap(more, width), [clean(read.run.run_id)])
    summary = bounded(read)
    sections = []
    names = summary_names(summary)
    if isinstance(summary, Whole):
        sections.append(_section("What stands out", *finding_words(summary)))
        names = names_table(summary, NAMES)
    sections.append(_section("Failures", *failure_words(summary)))
    if names.rows:
        sections.append(Section("Tasks", blocks=[_cut(names)]))
    return _lines(
        _joined(verdict_words(summary), width),
        [brief(summary.run.error, width)] if summary.run.error else [],
        _counts(count_parts(summary)),
        *([section_text(one, width=width, ink=INK)] for one in sections if one.says_something()),
        _joined(foot_words(summary).split(" · "), width),
    )


def report_plain(report: Report, width: int) -> str:
    """The whole report, as the command prints it."""
    return report_text(bounded(report), width=width)


def comparison_plain(comparison: Comparison, width: int) -> str:
    """The whole comparison, as the command prints it."""
    return comparison_text(bounded(comparison), width=width)


def trend_plain(trend: Trend, width: int) -> str:
    """The trend, as the command prints it."""
    return trend_text(bounded(trend), width=width)


def diagnosis_plain(diagnosis: RunDiagnosis, width: int) -> str:
    """The diagnosis, as the command prints it."""
    return diagnosis_text(bounded(diagnosis), width=width)


def session_text(session: Session, width: int) -> str:
    """A session: where it runs, how far its tasks are, and which run they are recorded in."""
    seen = session.seen()
    said, parts = counts_words(seen.counts, seen.eta) if seen.counts is not None else ([], [])
    failed = _section("Failed for good", seen.failures)
    return _lines(
        _joined([seen.state, seen.project, f"on {session.target}"], width),
        _joined(said, width) if said else [],
        _counts(parts),
        [section_text(failed, width=width, ink=INK)] if failed.says_something() else [],
        _facts(session_facts(session, seen)),
    )


def future_text(future: TaskFuture, width: int) -> str:
    """What became of a task so far."""
    state = future.state()
    return _lines(_joined([state, future.task], width), _facts(future_facts(future, state)))


def _joined(words: Sequence[str], width: int) -> list[str]:
    return wrap(" · ".join(brief(word, TEXT) for word in words), width)


def _counts(parts: Sequence[BarPart]) -> list[str]:
    said = ", ".join(part.label for part in parts if part.amount > 0)
    return [said] if said else []


def _section(title: str, said: Sequence[str], more: str = "") -> Section:
    cut = [brief(one, 2 * TEXT) for one in said]
    return Section(title, blocks=[Remarks(cut, more)]) if cut else Section(title)


def _cut(names: TableBlock) -> TableBlock:
    rows = [[brief(cell, TEXT) for cell in row] for row in names.rows]
    return TableBlock(names.head, rows, names.left, names.more)


def _facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return facts([(label, brief(value, TEXT)) for label, value in pairs], ink=INK, indent="")


def _lines(*parts: Sequence[str]) -> str:
    return "\n".join(line for part in parts for line in part)
