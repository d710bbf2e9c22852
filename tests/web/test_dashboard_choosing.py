"""Which runs the list shows: filters, order and pages; names in addresses; one computation for all who
ask."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.show.terminal import brief
from flightlog.store.catalogue import RunEntry
from flightlog.web.dashboard import RunRow, RunsFolder, SharedResults, key_of
from flightlog.web.limits import WebLimits
from flightlog.web.runs_page import RunFilter, RunSelection, choose, wanted_of


def row(name: str, **fields: object) -> RunRow:
    entry = RunEntry(
        path=Path(name),
        run_id=name,
        project="demo",
        status="completed",
        start_time=None,
        end_time=None,
        duration_s=fields.pop("duration_s", None),
        tasks_submitted=None,
        tasks_completed=None,
        tasks_failed=None,
        size_bytes=None,
    )
    unknown = dict.fromkeys(("started", "host", "target", "commit", "error"))
    known = {"run_id": name, "project": "demo", "status": "completed", "tags": (), **unknown}
    return RunRow(key=name, entry=entry, **{**known, **fields})


def names(chosen: RunSelection) -> list[str]:
    return [one.key for one in chosen.rows]


ROWS = [
    row(
        "a",
        project="heat",
        started=1_779_235_200.0,
        duration_s=3.0,
        tags=("night", "size=big"),
        host="node-1",
    ),
    row("b", project="wind", started=1_779_321_599.0, status="failed", error="MemoryError: no more"),
    row("c", project="heat", started=1_779_321_600.0, status="running", duration_s=1.0),
    row("d", project="heat", status="unknown"),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["c", "b", "a", "d"]),
        ({"project": "heat"}, ["c", "a", "d"]),
        ({"status": "failed"}, ["b"]),
        ({"tag": "size=big"}, ["a"]),
        ({"tag": "size"}, []),
        ({"text": "memory B"}, ["b"]),
        ({"text": "NODE-1"}, ["a"]),
        ({"since": "2026-05-20", "until": "2026-05-20"}, ["b", "a"]),
        ({"since": "2026-05-21"}, ["c"]),
        ({"order": "duration", "descending": False}, ["c", "a", "b", "d"]),
        ({"order": "project", "descending": False}, ["d", "a", "c", "b"]),
        ({"per_page": 3, "page": 2}, ["d"]),
        ({"per_page": 3, "page": 99}, ["d"]),
    ],
)
def test_the_list_shows_what_is_asked_for_in_the_order_asked_for(wanted, found):
    assert names(choose(ROWS, RunFilter(**wanted))) == found


def test_a_day_that_is_none_is_said_and_left_out_of_account():
    chosen = choose(ROWS, RunFilter(since="yesterday"))
    assert (len(chosen.rows), chosen.problem) == (4, "A day is written as 2026-05-20.")


@given(
    st.dictionaries(
        st.sampled_from(["project", "status", "text", "since", "order", "descending", "page"]), st.text()
    )
)
def test_any_query_of_an_address_is_understood_or_passed_over(query):
    choose(ROWS, wanted_of(query))


@given(st.integers(-5, 50), st.integers(-5, 50), st.integers(0, 30))
def test_the_pages_hold_every_run_once(page, per_page, count):
    rows = [row(f"{number:02d}", started=float(number)) for number in range(count)]
    first = choose(rows, RunFilter(page=page, per_page=per_page))
    pages = -(-count // max(1, per_page))
    seen = [
        key
        for number in range(1, pages + 1)
        for key in names(choose(rows, RunFilter(page=number, per_page=per_page)))
    ]
    assert seen == [f"{number:02d}" for number in reversed(range(count))]
    assert first.total == count


@pytest.mark.parametrize("name", ["run-20260520T035200Z-demo-a1b2c3d4", "x"])
def test_a_run_with_a_plain_name_is_called_by_it(name):
    assert key_of(Path("/runs") / name) == name


@given(
    st.binary(min_size=1, max_size=60).filter(lambda name: not {b"/", b"\0"} & {bytes([one]) for one in name})
)
def test_whatever_a_folder_is_called_its_address_holds_nothing_but_plain_characters(name):
    key = key_of(Path(os.fsdecode(b"/runs/" + name)))
    assert set(key) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
    assert not key.startswith(".")


@given(st.text(), st.integers(2, 50))
def test_a_text_is_shown_on_one_line_and_no_longer_than_allowed(text, limit):
    shown = brief(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable() or not shown.isascii()
    assert "\n" not in shown


def test_only_what_stands_in_the_folder_is_found_and_never_by_a_path(tmp_path):
    make_run(tmp_path / "runs")
    make_run(tmp_path / "elsewhere", token="ffffffff")
    listing = RunsFolder(str(tmp_path / "runs")).look()
    assert [one.run_id for one in listing.rows] == ["run-20260520T035200Z-demo-a1b2c3d4"]
    assert listing.find("run-20260520T035200Z-demo-a1b2c3d4") == listing.rows[0]
    for trick in (
        "",
        ".",
        "..",
        "../elsewhere/run-20260520T035200Z-demo-ffffffff",
        "/etc",
        "run-20260520T035200Z-demo-",
        "latest",
        "run-20260520T035200Z-demo-a1b2c3d4/",
        "./run-20260520T035200Z-demo-a1b2c3d4",
    ):
        assert listing.find(trick) is None


def test_a_folder_that_is_not_there_yet_is_an_empty_list(tmp_path):
    assert RunsFolder(str(tmp_path / "later")).look().rows == ()


def test_tags_and_the_reason_of_a_failure_stand_in_the_list(tmp_path):
    make_run(
        tmp_path, status="failed", error="no\nroom", tags={"night": True, "size": 3}, git_commit="c0ffee" * 5
    )
    (found,) = RunsFolder(str(tmp_path)).look().rows
    assert (found.tags, found.error, found.commit) == (("night", "size=3"), "no\\nroom", "c0ffeec0ffe…")


def test_what_many_ask_for_at_once_is_computed_once():
    gate, reads = threading.Event(), []

    def compute() -> str:
        gate.wait(30)
        reads.append(1)
        return "done"

    async def viewers() -> list[str]:
        once = SharedResults()
        waiting = [asyncio.ensure_future(once.get("run", compute)) for _ in range(20)]
        await asyncio.sleep(0)
        gate.set()
        found = await asyncio.gather(*waiting)
        found.append(await once.get("run", compute))
        once.close()
        return found

    assert asyncio.run(viewers()) == ["done"] * 21
    assert reads == [1]


def test_a_result_is_computed_again_when_it_is_too_old():
    clock = SimpleNamespace(now=0.0)
    once, reads = SharedResults(clock=lambda: clock.now), []

    def read() -> int:
        reads.append(1)
        return len(reads)

    def ask() -> int:
        return once.begin("runs", read, max_age_s=2.0).result(30)

    found = [ask()]
    clock.now = 2.0
    found.append(ask())
    clock.now = 2.1
    found.append(ask())
    once.close()
    assert found == [1, 1, 2]


def test_what_fails_fails_for_all_who_ask_soon_and_is_tried_again_for_the_next():
    clock = SimpleNamespace(now=0.0)
    once, tries = SharedResults(clock=lambda: clock.now), []

    def fails_first() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not now")
        return "now"

    for clock.now in (0.0, WebLimits.failure_reuse_s):
        with pytest.raises(OSError, match="not now"):
            once.begin("x", fails_first).result(30)
    clock.now = WebLimits.failure_reuse_s + 0.1
    assert once.begin("x", fails_first).result(30) == "now"
    once.close()


def test_what_is_kept_is_bounded_in_number_and_in_size():
    once, reads = SharedResults(threads=1, kept=2, kept_bytes=100), []

    def page(name: str, size: int) -> str:
        reads.append(name)
        return name * size

    for name, size in (("a", 1), ("b", 1), ("c", 1), ("a", 1), ("d", 150), ("d", 150), ("a", 1)):
        once.begin(name, lambda name=name, size=size: page(name, size)).result(30)
    once.close()
    assert reads == ["a", "b", "c", "a", "d", "a"]


def test_a_viewer_who_leaves_does_not_stop_the_others():
    gate = threading.Event()

    def compute() -> str:
        gate.wait(30)
        return "done"

    async def viewers() -> str:
        once = SharedResults()
        leaves, stays = (asyncio.ensure_future(once.get("run", compute)) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        gate.set()
        found = await stays
        once.close()
        return found

    assert asyncio.run(viewers()) == "done"


def test_what_waits_for_its_turn_when_all_ends_is_cancelled():
    begun, gate = threading.Event(), threading.Event()
    once = SharedResults(threads=1)

    def wait() -> bool:
        begun.set()
        return gate.wait(30)

    first, second = once.begin("first", wait), once.begin("second", lambda: "never")
    assert begun.wait(30)
    once.close()
    gate.set()
    once.join(30)
    assert first.result(0) is True
    with pytest.raises(CancelledError):
        second.result(0)
