"""Runs, answers, sessions and futures as lines of text: for IPython in a terminal and for front ends without
HTML.

What a run recorded is on one line, cut, with every control character spelled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.notebook.elements import Part
from flightlog.notebook.runs import (
    NAMES,
    Counted,
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
from flightlog.show.document import Remarks, Section, Table, facts, section_text
from flightlog.show.report import report_text
from flightlog.show.report_sections import names_table
from flightlog.show.terminal import Ink, clean, fit, wrap
from flightlog.show.trends import trend_text
from flightlog.units import format_bytes

if TYPE_CHECKING:
    from flightlog.analyze.changes import Comparison
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.report import Report
    from flightlog.analyze.summary import Summary
    from flightlog.analyze.trends import Trend
    from flightlog.session.futures import TaskFuture
    from flightlog.session.session import Session

INK = Ink(False)
TEXT = 200


def run_text(read: Report | Summary | Counted, width: int) -> str:
    """A run: the verdict in a line, what stands out, how the tasks ended, why some failed, the names of
    tasks.
    """
    from flightlog.analyze.report import Report as Whole

    if isinstance(read, Counted):
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
        [fit(clean(summary.run.error[: 4 * TEXT]), width)] if summary.run.error else [],
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
    return wrap(" · ".join(fit(clean(word[: 4 * TEXT]), TEXT) for word in words), width)


def _counts(parts: Sequence[Part]) -> list[str]:
    said = ", ".join(part.label for part in parts if part.amount > 0)
    return [said] if said else []


def _section(title: str, said: Sequence[str], more: str = "") -> Section:
    cut = [fit(clean(one[: 4 * TEXT]), 2 * TEXT) for one in said]
    return Section(title, blocks=[Remarks(cut, more)]) if cut else Section(title)


def _cut(names: Table) -> Table:
    rows = [[fit(clean(cell[: 4 * TEXT]), TEXT) for cell in row] for row in names.rows]
    return Table(names.head, rows, names.left, names.more)


def _facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return facts([(label, fit(clean(value[: 4 * TEXT]), TEXT)) for label, value in pairs], ink=INK, indent="")


def _lines(*parts: Sequence[str]) -> str:
    return "\n".join(line for part in parts for line in part)
