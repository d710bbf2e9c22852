"""A viewer who has gone leaves nothing behind: no traceback, and no memory of the tab."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest
from builders.runs import make_run
from nicegui import app
from nicegui.app.app import prune_tab_storage
from viewing import look, viewer

from flightlog.analyze.diagnosis.diagnose import diagnose
from flightlog.core.errors import UsageError
from flightlog.store.run import Run
from flightlog.web.dashboard import SharedResults

RUN = "run-20260520T035200Z-demo-a1b2c3d4"


def test_nothing_is_logged_of_what_fails_after_all_who_asked_for_it_have_gone():
    begun, gate, logged = threading.Event(), threading.Event(), []

    def fails() -> None:
        begun.set()
        gate.wait(30)
        raise OSError("too late")

    async def viewers() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: logged.append(said))
        once = SharedResults()
        leaves = asyncio.ensure_future(once.get("run", fails))
        await asyncio.to_thread(begun.wait, 30)
        leaves.cancel()
        await asyncio.sleep(0)
        gate.set()
        once.close()
        once.join(30)
        for _ in range(3):
            await asyncio.sleep(0)
        del leaves, once  # as when others need the room
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(viewers())
    assert logged == []


def test_what_is_computed_when_the_event_loop_has_been_closed_is_told_to_nobody(caplog):
    gate = threading.Event()
    once = SharedResults(threads=1)

    async def leaves() -> None:
        waiting = asyncio.ensure_future(once.get("run", lambda: gate.wait(30)))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leaves())
    gate.set()
    once.close()
    once.join(30)
    assert caplog.records == []


@pytest.mark.parametrize("ends", ["well", "with our error", "badly"])
def test_a_page_whose_viewer_left_while_it_was_read_is_not_drawn(tmp_path, caplog, ends):
    gate = threading.Event()

    def read(run: Run) -> Any:
        gate.wait(30)
        if ends == "badly":
            raise OSError("damaged")
        if ends == "with our error":
            raise UsageError("not like that")
        return diagnose(run)

    async def doing(client: Any, dashboard: Any) -> tuple[bool, int]:
        row = await dashboard.find(RUN)
        waiting = asyncio.ensure_future(
            dashboard.of_run("diagnosis", row, read)
        )  # what the page will ask for
        await asyncio.sleep(0)
        user = viewer(client)
        await user.open(f"/run/{RUN}/diagnosis")
        page = user.client
        assert page is not None
        for _ in range(5):
            await asyncio.sleep(0)
        asked = asyncio.all_tasks()
        page.delete()
        gate.set()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait([one for one in asked if "wait for result" in one.get_name()], timeout=30)
        return page.is_deleted, len(page.elements)

    make_run(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert look(tmp_path, doing) == (True, 0)
    assert [record.getMessage() for record in caplog.records] == []


def test_what_is_kept_of_a_tab_is_forgotten_a_minute_later(tmp_path):
    async def doing(client: Any, _: Any) -> list[bool]:
        user = viewer(client)
        await user.open("/")
        tab_id = user.client.tab_id if user.client is not None else None
        assert tab_id is not None
        tab = app.storage._tabs[tab_id]
        kept = []
        for ago in (50.0, 61.0):
            tab.last_modified -= ago - kept.count(True) * 50.0
            await prune_tab_storage()
            kept.append(tab_id in app.storage._tabs)
        return kept

    assert look(tmp_path, doing) == [True, False]
