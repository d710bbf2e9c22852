"""The dashboard as an ASGI application: its addresses, and the pages and documents behind them.

The pages of one run and the list of runs have modules of their own; here are those of what was concluded from
runs: diagnosis, advice and trends.

NiceGUI keeps one application in a process, so its pages are registered once and belong to no dashboard: each
request brings its own along. Several dashboards of one process therefore show each their own runs.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from html import escape
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from flightlog.core.errors import FlightlogError
from flightlog.core.text import plural
from flightlog.show.advice import advice_sections
from flightlog.show.diagnosis import cause_title, rarer_causes, record_section
from flightlog.show.document import Paragraph, Section
from flightlog.show.figures.lines import trends_figure
from flightlog.show.figures.style import CONFIG
from flightlog.show.html.report_page import cause_block
from flightlog.show.limits import TextLimits
from flightlog.show.terminal import brief
from flightlog.show.trends import left_out_text, trend_answer, trend_title
from flightlog.web import web_file
from flightlog.web.access import AccessControl, Application, Receive, Scope, Send, message_page
from flightlog.web.dashboard import Dashboard, Listing
from flightlog.web.layout import card, computed, draw_sections, heading, page_layout, run_head, words
from flightlog.web.limits import WebLimits
from flightlog.web.run_page import live_page
from flightlog.web.runs_page import runs_page

if TYPE_CHECKING:
    from pathlib import Path

    from flightlog.analyze.advice.advise import Advised
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.history.trends import LevelChange, Trend
    from flightlog.store.run import Run
    from flightlog.web.dashboard import RunRow

OURS = "flightlog.dashboard"
"""Key of the dashboard in a request's scope."""


def make_app(dashboard: Dashboard, *, token: str | None = None, host: str = "127.0.0.1") -> AccessControl:
    """The dashboard behind its door; see `AccessControl` for `token` and `host`. It is closed when the
    application is.
    """
    inner = cast("Application", _pages())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await inner(scope, receive, send)
            finally:
                dashboard.close()
        else:
            scope[OURS] = dashboard
            await inner(scope, receive, send)

    return AccessControl(app, token=token, host=host)


def _of(request: Request) -> Dashboard:
    return cast("Dashboard", request.scope[OURS])


@cache
def _pages() -> FastAPI:
    """All addresses; made once in a process."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_route("/run/{key}/report", _report_page)
    app.add_route("/compare", _compare_page)
    app.add_route("/metrics", _metrics_text)
    app.add_route("/health", _health)

    @ui.page("/", response_timeout=WebLimits.page_timeout_s)
    async def runs(request: Request) -> None:
        await runs_page(_of(request), request.query_params)

    @ui.page("/trends", response_timeout=WebLimits.page_timeout_s)
    async def trends(request: Request) -> None:
        await trends_page(_of(request), request.query_params)

    for page, address in (("run", ""), ("diagnosis", "/diagnosis"), ("advice", "/advice")):
        ui.page(f"/run/{{key}}{address}", response_timeout=WebLimits.page_timeout_s)(_page_of_run(page))

    nicegui_app.storage.max_tab_storage_age = WebLimits.tab_storage_s
    nicegui_app.add_exception_handler(404, _nothing_there)
    ui.run_with(
        app,
        title="Flightlog",
        dark=None,
        language="en-US",
        favicon=web_file("icon.svg"),
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=20.0,
        # Messages that are sent again would bring old texts after newer ones: a page that missed some loads
        # anew.
        message_history_length=0,
        tailwind=False,
    )
    return app


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
    more = rarer_causes(diagnosis)
    left = f"… and {plural(more, 'rarer cause')}: flightlog diagnose --format json" if more else ""
    draw_sections(
        [
            Section("Diagnosis", blocks=[Paragraph(diagnosis.answer)]),
            *(
                Section(f"{number}. {cause_title(cause)}", blocks=[cause_block(cause)])
                for number, cause in enumerate(diagnosis.causes[: TextLimits.max_causes], 1)
            ),
            Section("", left),
            record_section(diagnosis),
        ]
    )


async def advice_page(dashboard: Dashboard, row: RunRow) -> None:
    """The content of `/run/<key>/advice`."""
    project = row.entry.project

    def advised(folder: Path) -> Advised:
        from flightlog.analyze.advice.advise import advise

        return advise(runs_dir=folder, project=project)

    await computed(
        "Reading the project's history",
        lambda: dashboard.of_history(("advice", project), advised),
        lambda found: draw_sections(advice_sections(found)),
    )


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


async def trends_page(dashboard: Dashboard, query: Mapping[str, str]) -> None:
    """The page at `/trends`; `project` and `metric` may be in the query."""
    with page_layout("trends", "Trends"):
        heading("Trends", level=1)
        await _Chooser(dashboard, await dashboard.listing(), query).draw()


class _Chooser:
    """What is drawn, as one viewer chose it."""

    def __init__(self, dashboard: Dashboard, listing: Listing, query: Mapping[str, str]) -> None:
        self._dashboard, self._listing = dashboard, listing
        self._projects = {row.project: row.entry.project for row in reversed(listing.rows)}
        ended = [row.project for row in listing.rows if row.status != "running"]
        newest = ended[0] if ended else listing.rows[0].project if listing.rows else ""
        project = query.get("project", "")
        kind, _, task = query.get("metric", "wall").partition(":")
        kind = "memory of" if kind == "memory" and task else kind
        known = OF_TASKS if task else OF_RUNS
        with ui.element("div").classes("fl-picks"):
            self._project = ui.select(
                list(reversed(self._projects)),
                label="Project",
                value=project if project in self._projects else newest or None,
                with_input=len(self._projects) > 12,
                on_change=self.draw,
            ).props("options-dense for=trends-project")
            self._metric = ui.select(
                {**OF_RUNS, **OF_TASKS},
                label="Figure",
                value=kind if kind in known else "wall",
                on_change=self.draw,
            ).props("options-dense for=trends-metric")
            self._task = ui.input("Task", value=task[:200], on_change=self.draw).props(
                "debounce=500 for=trends-task"
            )
            for pick in (self._project, self._metric, self._task):
                pick.props("outlined dense").classes("fl-pick")
        self._place = ui.element("div")
        self._drawn = 0

    async def draw(self) -> None:
        """Draw the current choice; of two choices in quick succession, the last."""
        kind, task = str(self._metric.value), str(self._task.value or "").strip()
        self._task.set_visibility(kind in OF_TASKS)
        if not self._listing.rows or (kind in OF_TASKS and not task):
            none = f"There are no runs in {self._listing.place} yet."
            self._place.clear()
            with self._place, card():
                words("Name the task." if self._listing.rows else none, "fl-quiet")
            return
        project = self._projects.get(str(self._project.value), "")
        metric = f"{kind.removesuffix(' of')}:{task}" if kind in OF_TASKS else kind
        self._drawn += 1
        number = self._drawn
        keys = {row.run_id: row.key for row in self._listing.rows}

        def read(folder: Path) -> Trend:
            from flightlog.analyze.history.trends import trends

            return trends(project, metric, last=WebLimits.max_runs_in_trend, runs_dir=folder)

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
        for change in reversed(trend.changes[-WebLimits.max_listed_changes :]):
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


_CONTENT = {"run": live_page, "diagnosis": diagnosis_page, "advice": advice_page}


async def _nothing_there(_request: Request, _error: Exception) -> Response:
    """NiceGUI's own 404 keeps a page in memory for each, and logs the address as sent."""
    return _said("There is no such page", "", 404)


def _page_of_run(page: str) -> Callable[..., Awaitable[None]]:
    async def show(request: Request, key: str) -> None:
        dashboard = _of(request)
        row = await dashboard.find(key)
        if row is None:
            ui.context.client.status_code = 404
            with page_layout(page, "No such run"), card():
                words("There is no run of that name here. It may have been removed.")
                ui.link("All runs", "/")
            return
        with page_layout(page, row.project):
            run_head(row, page)
            await _CONTENT[page](dashboard, row)

    return show


log = logging.getLogger("flightlog")


async def _report_page(request: Request) -> Response:
    dashboard = _of(request)
    row = await dashboard.find(request.path_params["key"])
    if row is None:
        return _no_such_run()
    here = f"/run/{row.key}"
    ways = {"All runs": "/", "Live": here, "Diagnosis": f"{here}/diagnosis", "Advice": f"{here}/advice"}
    return await _page(request, lambda: dashboard.of_run("report", row, lambda run: _report(run, ways)))


async def _compare_page(request: Request) -> Response:
    dashboard = _of(request)
    rows = [await dashboard.find(request.query_params.get(side, "")) for side in ("a", "b")]
    found = tuple(row for row in rows if row is not None)
    if len(found) < 2:
        return _no_such_run()
    return await _page(request, lambda: dashboard.of_runs("compare", found, _compare))


async def _metrics_text(request: Request) -> Response:
    dashboard, accept = _of(request), request.headers.get("accept", "")[: WebLimits.max_accept_chars]
    try:
        body, kind = await dashboard.results.get(
            ("metrics", accept), lambda: _metrics(dashboard, accept), max_age_s=1.0
        )
    except FlightlogError as error:
        return PlainTextResponse(f"{error}\n", status_code=501)
    return Response(body, headers={"content-type": kind})


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _report(run: Run, ways: Mapping[str, str]) -> bytes:
    from flightlog.show.html.report_page import report_html
    from flightlog.store.earlier_runs import EarlierRuns
    from flightlog.store.read.snapshot import held_still

    with held_still(run, note=log.warning) as still:
        return _packed(report_html(still, ways=ways, history=EarlierRuns(run)))


def _compare(runs: tuple[Run, ...]) -> bytes:
    from flightlog.show.html.compare_page import compare_html

    before, after = runs
    page, _ = compare_html(before, after, runs_dir=before.path.parent, ways={"All runs": "/"})
    return _packed(page)


def _packed(page: str) -> bytes:
    """A compressed page: a quarter of its size, made off the event loop."""
    return gzip.compress(page.encode(), 4)


async def _page(request: Request, work: Callable[[], Awaitable[bytes]]) -> Response:
    try:
        packed = await _in_time(request, work)
        headers = {"cache-control": "no-store", "vary": "accept-encoding"}
        if packed is None:
            return _said("The page is being made", "It appears here automatically.", 200, refresh=True)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return HTMLResponse(packed, headers={**headers, "content-encoding": "gzip"})
        return HTMLResponse(gzip.decompress(packed), headers=headers)
    except FlightlogError as error:
        return _said("This cannot be shown", str(error), 422)
    except Exception as error:  # a damaged run is said, and does not end the server
        log.exception("a page could not be made")
        return _said("This cannot be shown", f"{type(error).__name__}: {error}", 500)


async def _in_time(request: Request, work: Callable[[], Awaitable[bytes]]) -> bytes | None:
    """The result; None where it takes long and the window would stay empty: the work continues."""
    if request.headers.get("sec-fetch-dest") != "document":
        return await work()
    waiting = asyncio.ensure_future(work())
    await asyncio.wait({waiting}, timeout=_of(request).patience_s)
    if not waiting.done():
        waiting.cancel()
        return None
    return waiting.result()


def _no_such_run() -> Response:
    return _said("There is no run of that name here", "It may have been removed.", 404)


def _said(title: str, text: str, status: int, *, refresh: bool = False) -> Response:
    again = {"refresh": "1"} if refresh else {}
    about = f"<p>{escape(brief(text, 1000))}</p>" if text else ""
    return HTMLResponse(
        message_page(escape(title), f'{about}<p><a href="/">All runs</a></p>'),
        status_code=status,
        headers={"cache-control": "no-store", **again},
    )


_making = threading.Lock()


def _metrics(dashboard: Dashboard, accept: str) -> tuple[bytes, str]:
    """The page for Prometheus; its collector resumes where the last scrape ended, and is kept with the
    dashboard.
    """
    from flightlog.export.base import extras_of

    with extras_of("prometheus"):
        from flightlog.export.prometheus.server import MetricsPage, RunsCollector
    with _making:
        if dashboard.metrics is None:
            dashboard.metrics = MetricsPage(RunsCollector(dashboard.runs.place))
    return dashboard.metrics.answer(accept)
