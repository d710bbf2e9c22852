"""The advice page: resource requests and other changes, from the history of the run's project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from flightlog.analyze.advice.wording import gain, notes, reason, request_text, unadvised
from flightlog.core.text import plural
from flightlog.show.advice import is_known
from flightlog.show.terminal import brief
from flightlog.web.layout import card, computed, heading, words

if TYPE_CHECKING:
    from pathlib import Path

    from flightlog.analyze.advice.advise import Advised
    from flightlog.analyze.advice.resources import Recommendation
    from flightlog.web.dashboard import Dashboard, RunRow

SHOWN = 12
LONG = 1000


async def advice_page(dashboard: Dashboard, row: RunRow) -> None:
    """The content of `/run/<key>/advice`."""
    project = row.project_name

    def advised(folder: Path) -> Advised:
        from flightlog.analyze.advice.advise import advise

        return advise(folder, project=project)

    await computed(
        "Reading the project's history",
        lambda: dashboard.of_history(("advice", project), advised),
        draw_advice,
    )


def draw_advice(advised: Advised) -> None:
    """Recommended changes first, then other advice, requests that need no change, and
    what is not known yet.
    """
    changing = [one for one in advised.recommendations if one.is_to_change]
    others = [one for one in advised.advice if one.kind != "resources"]
    fine = [one for one in advised.recommendations if not one.is_to_change and is_known(one)]
    unknown = [one for one in advised.recommendations if not one.is_to_change and not is_known(one)]
    with card():
        heading("Advice")
        found = [plural(len(changing), "request to change", "requests to change")] if changing else []
        found += [plural(len(others), "other piece of advice", "other pieces of advice")] if others else []
        words(f"For the project {brief(advised.project)}: {' and '.join(found) or 'nothing to change'}.")
        learnt = f"{plural(advised.attempts, 'attempt')} in {plural(advised.runs, 'run')}"
        words(
            f"From {learnt}. `flightlog advise --apply` writes it into an overlay of the manifest.",
            "fl-quiet",
        )
    for one in changing[:SHOWN]:
        _draw_recommendation(one)
    if len(changing) > SHOWN:
        words(
            f"… and {plural(len(changing) - SHOWN, 'more task')}: flightlog advise --format json",
            "fl-quiet",
        )
    _draw_list("Also", [f"{one.sentence}{f' Gain: {one.gain}.' if one.gain else ''}" for one in others])
    _draw_list(
        "No change needed", [f"{one.task}: {request_text(one.recommended)} recommended" for one in fine]
    )
    _draw_list("No advice yet", [unadvised(one) for one in unknown])
    _draw_list("What could not be read", list(advised.problems))


def _draw_recommendation(one: Recommendation) -> None:
    with card():
        heading(brief(one.task))
        with ui.element("div").classes("fl-facts"):
            for label, text in (
                ("current", request_text(one.current) or "no resource request"),
                ("recommended", request_text(one.recommended)),
                ("reason", reason(one)),
                ("saves", gain(one) or "unknown"),
            ):
                ui.label(label).classes("fl-label")
                words(brief(text, LONG))
        for note in notes(one):
            words(brief(note, LONG), "fl-quiet")


def _draw_list(title: str, texts: list[str]) -> None:
    if not texts:
        return
    with card():
        heading(title)
        with ui.element("ul").classes("fl-list"):
            for text in texts[:SHOWN]:
                with ui.element("li"):
                    words(brief(text, LONG))
        if len(texts) > SHOWN:
            words(f"… and {len(texts) - SHOWN:,} more", "fl-quiet")
