"""Pages of what was concluded from runs: diagnosis, advice and trends.

The diagnosis of a run has the causes of failures with their evidence, remedies and checks. Advice (resource
requests and other changes) and trends (how a metric changed) come from the history of a project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nicegui import ui

from flightlog.core.text import plural
from flightlog.show.advice import advice_sections
from flightlog.show.diagnosis import SHOWN as SHOWN_CAUSES
from flightlog.show.diagnosis import cause_title, record_section
from flightlog.show.document import Paragraph, Section
from flightlog.show.figures import CONFIG, trends_figure
from flightlog.show.html.report_page import cause_block
from flightlog.show.terminal import brief
from flightlog.show.trends import left_out_text, trend_answer, trend_title
from flightlog.web.dashboard import Dashboard, Listing
from flightlog.web.layout import card, computed, draw_sections, heading, page_layout, words

if TYPE_CHECKING:
    from pathlib import Path

    from flightlog.analyze.advice.advise import Advised
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.history.trends import LevelChange, Trend
    from flightlog.store.run import Run
    from flightlog.web.dashboard import RunRow


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
    more = max(0, len(diagnosis.causes) - SHOWN_CAUSES) + diagnosis.more_causes
    left = f"… and {plural(more, 'rarer cause')}: flightlog diagnose --format json" if more else ""
    draw_sections(
        [
            Section("Diagnosis", blocks=[Paragraph(diagnosis.answer)]),
            *(
                Section(f"{number}. {cause_title(cause)}", blocks=[cause_block(cause)])
                for number, cause in enumerate(diagnosis.causes[:SHOWN_CAUSES], 1)
            ),
            Section("", left),
            record_section(diagnosis),
        ]
    )


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
    """The sections of the advice."""
    draw_sections(advice_sections(advised))


OF_RUNS = {
    "wall": "Wall time",
    "failures": "Failures",
    "memory": "Peak memory",
    "hits": "Cache hits",
    "cost": "Cost",
}
OF_TASKS = {
    "duration": "Mean duration of a task",
    "p95": "p95 duration of a task",
    "memory of": "Peak memory of a task",
}
STEPS = 5
LAST = 1000
"""The newest steps that lead to their runs, and the newest runs that are drawn."""


async def trends_page(dashboard: Dashboard, query: Mapping[str, str]) -> None:
    """The page at `/trends`; `project` and `metric` may be in the query."""
    with page_layout("trends", "Trends"):
        heading("Trends", level=1)
        await _Chooser(dashboard, await dashboard.listing(), query).draw()


class _Chooser:
    """What is drawn, as one viewer chose it."""

    def __init__(self, dashboard: Dashboard, listing: Listing, query: Mapping[str, str]) -> None:
        self._dashboard, self._listing = dashboard, listing
        self._projects = {row.project: row.project_name for row in reversed(listing.rows)}
        ended = [row.project for row in listing.rows if row.status != "running"]
        newest = ended[0] if ended else listing.rows[0].project if listing.rows else ""
        project = query.get("project", "")
        kind, _, task = query.get("metric", "wall").partition(":")
        kind = "memory of" if kind == "memory" and task else kind
        known = OF_TASKS if task else OF_RUNS
        with ui.element("div").classes("fl-picks"):
            self._project = (
                ui.select(
                    list(reversed(self._projects)),
                    label="Project",
                    value=project if project in self._projects else newest or None,
                    with_input=len(self._projects) > 12,
                    on_change=self.draw,
                )
                .props("outlined dense options-dense for=trends-project")
                .classes("fl-pick")
            )
            self._metric = (
                ui.select(
                    {**OF_RUNS, **OF_TASKS},
                    label="Figure",
                    value=kind if kind in known else "wall",
                    on_change=self.draw,
                )
                .props("outlined dense options-dense for=trends-metric")
                .classes("fl-pick")
            )
            self._task = (
                ui.input("Task", value=task[:200], on_change=self.draw)
                .props("outlined dense debounce=500 for=trends-task")
                .classes("fl-pick")
            )
        self._place = ui.element("div")
        self._drawn = 0

    async def draw(self) -> None:
        """Draw the current choice; of two choices in quick succession, the last."""
        kind, task = str(self._metric.value), str(self._task.value or "").strip()
        self._task.set_visibility(kind in OF_TASKS)
        if not self._listing.rows:
            with self._place, card():
                words(f"There are no runs in {self._listing.place} yet.", "fl-quiet")
            return
        if kind in OF_TASKS and not task:
            self._place.clear()
            with self._place, card():
                words("Name the task.", "fl-quiet")
            return
        project = self._projects.get(str(self._project.value), "")
        metric = f"{kind.removesuffix(' of')}:{task}" if kind in OF_TASKS else kind
        self._drawn += 1
        number = self._drawn
        keys = {row.run_id: row.key for row in self._listing.rows}

        def read(folder: Path) -> Trend:
            from flightlog.analyze.history.trends import trends

            return trends(project, metric, last=LAST, runs_dir=folder)

        await computed(
            "Reading the project's history",
            lambda: self._dashboard.of_history(("trends", project, metric), read),
            lambda trend: draw_trend(trend, keys) if number == self._drawn else None,
            self._place,
        )


def draw_trend(trend: Trend, keys: Mapping[str, str]) -> None:
    """The answer in words, the ways to the runs where the level stepped, and the figure. `keys` name runs in
    addresses.
    """
    with card():
        heading(brief(trend_title(trend), 300))
        for sentence in trend_answer(trend):
            words(brief(sentence, 1000))
        for change in reversed(trend.changes[-STEPS:]):
            _draw_ways(trend, change, keys)
        figure = trends_figure(trend)
        if figure is not None:
            ui.plotly({**figure.to_plotly_json(), "config": CONFIG}).classes("fl-figure").props(
                "data-figure=trends"
            )
    if trend.left_out:
        words(left_out_text(trend), "fl-quiet")


def _draw_ways(trend: Trend, change: LevelChange, keys: Mapping[str, str]) -> None:
    """Links to the run where a step began, and to its comparison with the run before."""
    here, before = keys.get(change.run_id), keys.get(trend.points[change.at - 1].run_id)
    if here is None:
        return
    with ui.element("div").classes("fl-ways"):
        ui.link(brief(change.run_id), f"/run/{here}")
        if before is not None:
            ui.link("compare with the run before", f"/compare?{urlencode({'a': before, 'b': here})}")
