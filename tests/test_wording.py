"""Phrases that users stumbled over stand in nothing that they read: help, messages, documents, golden
reports."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import flightlog
from flightlog.analyze.charts.report_with_charts import report_with_charts
from flightlog.analyze.compare.compare import compare
from flightlog.analyze.diagnosis.diagnose import diagnose
from flightlog.show.comparison import comparison_markdown, comparison_text
from flightlog.show.diagnosis import diagnosis_text
from flightlog.show.html.report_page import report_page
from flightlog.show.report import PARTS, report_markdown, report_text
from flightlog.store.run import Run

SOURCE = Path(flightlog.__file__).parent
PROJECT = Path(__file__).parent.parent
GOLDEN = PROJECT / "tests" / "golden"
RUNS = [*sorted((GOLDEN / "run-v1").iterdir()), GOLDEN / "killed-for-memory"]
INSTEAD = {
    "tried again": "retried",
    "19 of 20": "p95",
    "19 times in 20": "95 % CI",
    "nine runs in ten": "p5 to p95",
    "getting workers to work": "worker start-up",
    "workers that start": "worker start-up",
    "free workers while tasks were queued": "scheduling overhead",
    "workers free while tasks were queued": "scheduling overhead",
    "handing a task over": "dispatch latency",
    "handing tasks over": "dispatch latency",
    "running but not on a processor": "waiting for CPU",
    "too much at once": "CPU oversubscription",
    "tasks at once": "concurrency",
    "saves if instant": "max. saving",
    "waited for nothing on record": "unknown dependency",
    "too few to tell": "inconclusive",
    "cannot tell a step from noise": "not enough runs",
    "without a word": "exited unexpectedly",
    "last heard of": "last heartbeat",
    "asks for nothing": "no resource request",
    "one row an attempt": "one row per attempt",
    "a json object a line": "one JSON object per line",
    "only say what would go": "dry run: show what would be removed",
    "has to bring": "access token",
    "ask nobody": "without network access",
}
"""What must not be said, and what to say."""
_UNITS = "row|line|file|table|folder|task|bar|step|series|sentence|command|event|column|point"
_WHOLES = "run|stream|task|attempt|worker|table|function|name|check|node|host|job|part|reason|file|problem"
_DISTRIBUTIVE = re.compile(rf"\b(?:one|a) (?:{_UNITS}) an? (?:{_WHOLES})\b(?! \w+s\b)", re.IGNORECASE)
"""`one row a task`, which is `one row per task`."""
_PHRASES = re.compile("|".join(rf"\b{re.escape(phrase)}\b" for phrase in INSTEAD), re.IGNORECASE)


def texts_of(module: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string in a module: messages, help, templates and docstrings."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def found_in(text: str) -> list[str]:
    """The phrases in a text, whatever its line breaks."""
    line = re.sub(r"\s+", " ", text)
    return [
        *(f"{found!r}: say {INSTEAD[found.lower()]!r}" for found in _PHRASES.findall(line)),
        *(f"{found!r}: say 'per'" for found in _DISTRIBUTIVE.findall(line)),
    ]


def test_no_text_of_the_program_has_such_a_phrase() -> None:
    assert [
        f"{module.relative_to(SOURCE)}:{line} {said}"
        for module in sorted(SOURCE.rglob("*.py"))
        for line, text in texts_of(module)
        for said in found_in(text)
    ] == []


@pytest.mark.parametrize("suffix", ["*.js", "*.css", "*.html"])
def test_no_page_of_the_program_has_such_a_phrase(suffix: str) -> None:
    assert [
        f"{file.relative_to(SOURCE)} {said}"
        for file in sorted(SOURCE.rglob(suffix))
        for said in found_in(file.read_text("utf-8"))
    ] == []


def test_no_document_has_such_a_phrase() -> None:
    """The changelog may quote what a release said."""
    pages = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    assert [
        f"{page.relative_to(PROJECT)} {said}" for page in pages for said in found_in(page.read_text("utf-8"))
    ] == []


@pytest.mark.parametrize("golden", RUNS, ids=lambda path: path.name)
def test_no_golden_report_has_such_a_phrase(golden: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(golden, tmp_path / golden.name))
    drawn = report_with_charts(run)
    diagnosis = diagnose(run)
    texts = {
        "text": report_text(drawn.report),
        "full text": report_text(drawn.report, parts=PARTS),
        "Markdown": report_markdown(drawn.report),
        "page": report_page(drawn, diagnosis=diagnosis, plotly_js="0"),
        "diagnosis": diagnosis_text(diagnosis),
    }
    assert [f"{kind}: {said}" for kind, text in texts.items() for said in found_in(text)] == []


def test_no_golden_comparison_has_such_a_phrase(tmp_path: Path) -> None:
    before, after = (shutil.copytree(golden, tmp_path / golden.name) for golden in RUNS[:2])
    found = compare(before, after)
    assert found_in(comparison_text(found)) + found_in(comparison_markdown(found)) == []


def test_the_search_finds_a_phrase_across_lines() -> None:
    assert found_in("It was Tried\n  again.") == ["'Tried again': say 'retried'"]
    assert found_in("It writes one file\n  a stream.") == ["'one file a stream': say 'per'"]
