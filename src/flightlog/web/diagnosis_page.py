"""The diagnosis page of a run: the causes of failures with their evidence, remedies and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nicegui import ui

from flightlog.core.text import plural
from flightlog.show.diagnosis import SHOWN, cause_parts, cause_title
from flightlog.show.terminal import brief
from flightlog.web.layout import card, computed, heading, words

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis
    from flightlog.store.run import Run
    from flightlog.web.dashboard import Dashboard, RunRow

LINES = 20
LONG = 1000
"""Maximum lines under one label, and characters of a line."""


async def diagnosis_page(dashboard: Dashboard, row: RunRow) -> None:
    """The content of `/run/<key>/diagnosis`."""
    await computed(
        "Looking for causes", lambda: dashboard.of_run("diagnosis", row, _diagnose), draw_diagnosis
    )


def _diagnose(run: Run) -> RunDiagnosis:
    from flightlog.analyze.diagnosis.diagnose import diagnose
    from flightlog.store.read.snapshot import held_still

    with held_still(run) as still:
        return diagnose(still)


def draw_diagnosis(diagnosis: RunDiagnosis) -> None:
    """The answer first, then each cause, then problems of the recording."""
    with card():
        heading("Diagnosis")
        words(brief(diagnosis.answer, LONG))
    for number, cause in enumerate(diagnosis.causes[:SHOWN], 1):
        _draw_cause(cause, number)
    more = max(0, len(diagnosis.causes) - SHOWN) + diagnosis.more_causes
    if more:
        words(f"… and {plural(more, 'rarer cause')}: flightlog diagnose --format json", "fl-quiet")
    if diagnosis.problems:
        with card():
            heading("The record")
            for problem in diagnosis.problems[:LINES]:
                words(brief(problem, LONG))


def _draw_cause(cause: Cause, number: int) -> None:
    with card():
        heading(f"{number}. {brief(cause_title(cause), LONG)}")
        with ui.element("div").classes("fl-facts"):
            for label, texts in cause_parts(cause):
                said = [text for text in texts if text]
                if said:
                    _draw_part(label, said)


def _draw_part(label: str, texts: Sequence[str]) -> None:
    ui.label(label).classes("fl-label")
    with ui.element("div").classes("fl-lines"):
        for text in texts[:LINES]:
            if label == "check":
                ui.label(brief(text, LONG)).classes("fl-code fl-words")
            else:
                words(brief(text, LONG))
        if len(texts) > LINES:
            words(f"… and {len(texts) - LINES:,} more", "fl-quiet")
