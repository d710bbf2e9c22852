"""Driving the view in a terminal: pressing keys, and reading what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

from flightlog.tui.app import TopApp

Drive = Callable[[Pilot[Any], TopApp], Awaitable[None]]


def drive(app: TopApp, play: Drive, *, size: tuple[int, int] = (100, 30)) -> None:
    """Run the app without a terminal, wait for its first state, and play."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.state is not None or "cannot be read" in head(app))
            await play(pilot, app)

    asyncio.run(run())


async def until(pilot: Pilot[Any], true: Callable[[], bool]) -> None:
    """Let the app work until something is so; a test that waits for ever is ended by its time limit."""
    while not true():
        await pilot.pause(0.01)
    await pilot.pause()


async def press(pilot: Pilot[Any], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


def head(app: TopApp) -> str:
    """The lines above the panes."""
    return _plain(app.query_one("#head", Static))


def column(app: TopApp, at: int = 0) -> list[str]:
    """The texts of a column of the pane in front."""
    table = app.board.table
    return [table.get_row_at(row)[at].plain for row in range(table.row_count)]


def titles(app: TopApp) -> list[str]:
    return [str(one.label) for one in app.board.table.ordered_columns]


def opened(app: TopApp) -> str:
    """The text that was opened over the view."""
    return _plain(app.screen.query(Static).first())


def shown(app: TopApp) -> str:
    """The whole screen as text."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def _plain(static: Static) -> str:
    content = static.content
    return getattr(content, "plain", None) or str(content)
