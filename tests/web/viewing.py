"""A dashboard that is looked at without a server and without a browser: NiceGUI's own simulation of a
user."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from nicegui.testing import User

from flightlog.web.access import Application
from flightlog.web.app import make_app
from flightlog.web.dashboard import Dashboard

HERE = "http://127.0.0.1:8420"
Result = TypeVar("Result")


class NotLive:
    """Follows no run."""

    def __init__(self) -> None:
        self.asked: list[Path] = []
        self.closed = False

    def state(self, path: Path) -> None:
        self.asked.append(path)

    def problem(self, path: Path) -> None:
        """All is well."""

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def served(app: Application) -> AsyncIterator[httpx.AsyncClient]:
    """The application between its startup and its shutdown, and a client of it."""
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, told.get, said.put))
    await told.put({"type": "lifespan.startup"})
    # NiceGUI asks each object of the process whether it is its server, and some here answer with an error
    gc.freeze()
    try:
        assert (await said.get())["type"] == "lifespan.startup.complete"
    finally:
        gc.unfreeze()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as client:
        yield client
    await told.put({"type": "lifespan.shutdown"})
    assert (await said.get())["type"] == "lifespan.shutdown.complete"
    await life


def look(
    runs: Path, doing: Callable[[httpx.AsyncClient, Dashboard], Awaitable[Result]], **door: Any
) -> Result:
    """Do something with a dashboard of these runs."""

    async def looked() -> Result:
        dashboard = Dashboard(str(runs), live=NotLive())
        try:
            async with served(make_app(dashboard, **door)) as client:
                return await doing(client, dashboard)
        finally:
            dashboard.results.join(30.0)  # a query must not be under way when the interpreter ends

    return asyncio.run(looked())


def viewer(client: httpx.AsyncClient) -> User:
    """Somebody who looks at pages."""
    return User(client)
