"""The dashboard as an ASGI application: addresses, and the pages behind them.

NiceGUI keeps one application in a process, so its pages are registered once and belong to no dashboard: each
request brings its own along. Several dashboards of one process therefore show each their own runs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.responses import Response

from flightlog.web import served
from flightlog.web.advice_page import advice_page
from flightlog.web.diagnosis_page import diagnosis_page
from flightlog.web.door import Application, Door, Receive, Scope, Send
from flightlog.web.frame import card, frame, run_head, words
from flightlog.web.live_page import live_page
from flightlog.web.runs_page import runs_page
from flightlog.web.trends_page import trends_page

if TYPE_CHECKING:
    from flightlog.web.dashboard import Dashboard

OURS = "flightlog.dashboard"
"""Where in a request its dashboard stands."""
TAB_S = 60.0
"""How long what NiceGUI keeps of a browser's tab outlives it; its own way is a month. There is nothing of
ours in it."""
PATIENCE_S = 30.0
"""How long a page may take to be begun: the first look at a long history on a slow disk."""


def make_app(dashboard: Dashboard, *, token: str | None = None, host: str = "127.0.0.1") -> Door:
    """The dashboard behind its door; see `Door` for `token` and `host`. It is closed when the application
    is.
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

    return Door(app, token=token, host=host)


def _of(request: Request) -> Dashboard:
    return cast("Dashboard", request.scope[OURS])


@cache
def _pages() -> FastAPI:
    """All addresses; made once in a process."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    served.add_to(app, _of)

    @ui.page("/", response_timeout=PATIENCE_S)
    async def runs(request: Request) -> None:
        await runs_page(_of(request), request.query_params)

    @ui.page("/trends", response_timeout=PATIENCE_S)
    async def trends(request: Request) -> None:
        await trends_page(_of(request), request.query_params)

    @ui.page("/run/{key}", response_timeout=PATIENCE_S)
    async def run(request: Request, key: str) -> None:
        await _run_page(request, key, "run")

    @ui.page("/run/{key}/diagnosis", response_timeout=PATIENCE_S)
    async def diagnosis(request: Request, key: str) -> None:
        await _run_page(request, key, "diagnosis")

    @ui.page("/run/{key}/advice", response_timeout=PATIENCE_S)
    async def advice(request: Request, key: str) -> None:
        await _run_page(request, key, "advice")

    nicegui_app.storage.max_tab_storage_age = TAB_S
    nicegui_app.add_exception_handler(404, _nothing_there)
    ui.run_with(
        app,
        title="Flightlog",
        dark=None,
        language="en-US",
        favicon=_ICON,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=20.0,
        # Messages that are sent again would bring old texts after newer ones: a page that missed some loads
        # anew.
        message_history_length=0,
        tailwind=False,
    )
    return app


_CONTENT = {"run": live_page, "diagnosis": diagnosis_page, "advice": advice_page}
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" '
    'fill="#1d5f8a"/>'
    '<path d="M6 21h6l4-12 4 16 3-8h3" fill="none" stroke="#fff" stroke-width="2.6" '
    'stroke-linejoin="round"/></svg>'
)


async def _nothing_there(_request: Request, _error: Exception) -> Response:
    """NiceGUI's own answer keeps a page in memory for each, and logs the address as it was sent."""
    return served.no_such_page()


async def _run_page(request: Request, key: str, page: str) -> None:
    dashboard = _of(request)
    row = await dashboard.find(key)
    if row is None:
        ui.context.client.status_code = 404
        with frame(page, "No such run"), card():
            words("There is no run of that name here. It may have been removed.")
            ui.link("All runs", "/")
        return
    with frame(page, row.project):
        run_head(row, page)
        await _CONTENT[page](dashboard, row)
