"""The pages of the dashboard, as a viewer sees them, and its other addresses."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import threading
from pathlib import Path

import pytest
from builders.hostile_run import hostile_run
from builders.runs import at, make_run
from nicegui import ui
from viewing import look, viewer

from flightlog.core.errors import UsageError
from flightlog.events import Failure, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted
from flightlog.store.liveness import process_start, this_host
from flightlog.web.runs_page import compare_address

RUN = "run-20260520T035200Z-demo-a1b2c3d4"
OTHER = "run-20260520T035200Z-heat-b2b2b2b2"
SETTLES = 300
"""Times that a page is looked at again, a tenth of a second apart, until it shows what was computed."""


def task(number: int, *, fails: bool = False):
    name = {"task": "simulate", "task_id": f"t{number}"}
    end = {**name, "args": {}, "worker": "w-1", "duration_s": 0.5, "timestamp": at(number + 0.5)}
    yield TaskSubmitted(**name, args={}, timestamp=at(number))
    yield TaskStarted(**name, worker="w-1", queue_s=0.0, timestamp=at(number))
    if fails:
        error = {"error_type": "MemoryError", "fingerprint": "f1"}
        yield TaskFailed(**end, **error, error_message="no room")
        yield Failure(
            **name, **error, scope="task", message="no room", traceback=None, timestamp=end["timestamp"]
        )
    else:
        yield TaskCompleted(**end)


def two_runs(folder: Path) -> Path:
    """A run of `demo` in which a task failed, and one of `heat` that was tagged and began a minute later."""
    events = [event for number in range(6) for event in task(number, fails=number == 5)]
    make_run(folder, events, tasks_submitted=6, tasks_completed=5, tasks_failed=1)
    make_run(
        folder,
        project="heat",
        token="b2b2b2b2",
        status="failed",
        error="MemoryError: no room",
        start_time=at(60),
        tags={"night": True},
        duration_s=90.0,
    )
    return folder


def table_of(user) -> ui.table:
    (found,) = user.find(ui.table).elements
    return found


def keys_in(user) -> list[str]:
    return [row["key"] for row in table_of(user).rows]


def test_a_folder_without_runs_says_so(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open("/")
        await user.should_see("There are no runs in", retries=SETTLES)

    look(tmp_path, doing)


def test_the_list_shows_each_run_with_what_its_document_says(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open("/")
        return table_of(user).rows

    assert look(two_runs(tmp_path), doing) == [
        {
            "key": OTHER,
            "run": OTHER,
            "project": "heat",
            "status": "failed",
            "started": "2026-05-20 03:53",
            "duration": "1m 30s",
            "tasks": "",
            "done": None,
            "host": "node-1",
            "error": "MemoryError: no room",
            "tags": ["night"],
        },
        {
            "key": RUN,
            "run": RUN,
            "project": "demo",
            "status": "completed",
            "started": "2026-05-20 03:52",
            "duration": "10.0s",
            "tasks": "5 of 6, 1 failed",
            "done": None,
            "host": "node-1",
            "error": "",
            "tags": None,
        },
    ]


def test_the_list_can_be_searched_and_the_address_says_for_what(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open("/?project=demo")
        by_address = keys_in(user)
        await user.open("/")
        user.find("Search").type("memoryerror")
        return by_address, keys_in(user)

    assert look(two_runs(tmp_path), doing) == ([RUN], [OTHER])


def test_the_table_is_sorted_and_paged_by_the_server(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open("/")
        asked = {"page": 2, "rowsPerPage": 1, "sortBy": "duration", "descending": False}
        user.find(ui.table).trigger("request", {"pagination": asked})
        return keys_in(user), table_of(user).pagination

    assert look(two_runs(tmp_path), doing) == (
        [OTHER],
        {"page": 2, "rowsPerPage": 1, "rowsNumber": 2, "sortBy": "duration", "descending": False},
    )


def test_two_ticked_runs_can_be_compared_the_older_one_first(tmp_path):
    async def doing(client, dashboard):
        user = viewer(client)
        await user.open("/")
        for key in (OTHER, RUN):
            row = next(row for row in table_of(user).rows if row["key"] == key)
            user.find(ui.table).trigger("selection", {"added": True, "rows": [row], "keys": [key]})
        await user.should_see("Two runs are ticked.", retries=SETTLES)
        return compare_address(await dashboard.listing(), [row["key"] for row in table_of(user).selected])

    assert look(two_runs(tmp_path), doing) == f"/compare?a={RUN}&b={OTHER}"


def test_a_run_that_began_since_the_last_look_is_found(tmp_path):
    async def doing(client, dashboard):
        await dashboard.listing()
        two_runs(tmp_path)
        return (await client.get(f"/run/{RUN}/diagnosis")).status_code

    assert look(tmp_path, doing) == 200


def test_a_list_that_is_looked_at_shows_new_runs_and_offers_their_projects(tmp_path):
    make_run(tmp_path)

    async def doing(client, dashboard):
        user = viewer(client)
        await user.open("/?project=demo")
        make_run(tmp_path, project="heat", token="b2b2b2b2")
        make_run(tmp_path, token="c3c3c3c3")
        for _ in range(SETTLES):
            if len(keys_in(user)) == 2:
                break
            await asyncio.sleep(0.1)
        offered = next(
            one.options for one in user.find(ui.select).elements if one.props["label"] == "Project"
        )
        return keys_in(user), offered

    assert look(tmp_path, doing) == ([RUN.replace("a1b2c3d4", "c3c3c3c3"), RUN], ["demo", "heat"])


@pytest.mark.parametrize(
    "trick",
    [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "nothing",
        "latest",
        f"{RUN}%2f",
        f".%2f{RUN}",
        "%00",
        "~",
        "a%0d%0ax",
    ],
)
def test_an_address_that_names_no_run_of_the_list_is_not_found(tmp_path, trick):
    async def doing(client, _):
        paths = (f"/run/{trick}/report", f"/run/{trick}/diagnosis", f"/compare?a={trick}&b={RUN}")
        return [(await client.get(path)).status_code for path in paths]

    assert look(two_runs(tmp_path), doing) == [404, 404, 404]


@pytest.mark.parametrize("path", ["/nowhere", "/docs", "/openapi.json", "/%1b[2J", "/run/a/b/c"])
def test_an_address_of_no_page_is_answered_in_words_and_nothing_of_it_is_repeated_or_logged(
    tmp_path, path, caplog
):
    async def doing(client, _):
        return await client.get(path)

    answer = look(tmp_path, doing)
    assert (answer.status_code, "There is no such page" in answer.text) == (404, True)
    assert "nowhere" not in answer.text
    assert caplog.messages == []


def test_a_report_that_fails_after_the_window_went_on_waiting_is_said_and_not_made_over_and_over(tmp_path):
    two_runs(tmp_path)
    made: list[str] = []
    gate = threading.Event()

    def fails(run) -> bytes:
        made.append(run.run_id)
        gate.wait(60)
        raise UsageError("this run is damaged")

    async def doing(client, dashboard):
        window, dashboard.patience_s = {"sec-fetch-dest": "document"}, 0.0
        making = asyncio.ensure_future(dashboard.of_run("report", await dashboard.find(RUN), fails))
        await asyncio.sleep(0)
        first = await client.get(f"/run/{RUN}/report", headers=window)
        gate.set()
        await asyncio.wait({making})
        return first, await client.get(f"/run/{RUN}/report"), making.exception()

    first, later, error = look(tmp_path, doing)
    assert ("being made" in first.text, str(error), made) == (True, "this run is damaged", [RUN])
    assert (later.status_code, "this run is damaged" in later.text) == (422, True)


def test_a_report_leads_back_to_the_dashboard_and_a_comparison_does(tmp_path):
    async def doing(client, _):
        pages = [await client.get(f"/run/{RUN}/report"), await client.get(f"/compare?a={RUN}&b={OTHER}")]
        return [re.findall(r'<a href="(/[^"]*)"', page.text) for page in pages]

    here = f"/run/{RUN}"
    assert look(two_runs(tmp_path), doing) == [["/", here, f"{here}/diagnosis", f"{here}/advice"], ["/"]]


def test_the_diagnosis_of_a_run_names_the_cause_and_what_to_do(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open(f"/run/{RUN}/diagnosis")
        await user.should_see("out_of_memory", retries=SETTLES)
        await user.should_see("Because", retries=SETTLES)

    look(two_runs(tmp_path), doing)


def test_advice_says_what_is_missing_where_there_is_too_little_history(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open(f"/run/{RUN}/advice")
        await user.should_see("simulate", retries=SETTLES)

    look(two_runs(tmp_path), doing)


def test_trends_say_in_words_what_the_figure_shows(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open("/trends?project=demo")
        await user.should_see("Typically 10.0s", retries=SETTLES)
        await user.should_see(ui.plotly, retries=SETTLES)

    look(two_runs(tmp_path), doing)


def test_a_step_leads_to_the_run_where_it_began_and_to_what_differs(tmp_path):
    for number in range(30):
        make_run(
            tmp_path,
            token=f"{number:08x}",
            start_time=at(60 + number),
            duration_s=(10.0 if number < 15 else 20.0) + number % 3 / 10,
        )

    async def doing(client, _):
        user = viewer(client)
        await user.open("/trends")
        await user.should_see("compare with the run before", retries=SETTLES)
        return sorted(
            link.props["href"] for link in user.find(ui.link).elements if "0000" in link.props["href"]
        )

    before, here = (f"run-20260520T035200Z-demo-{number:08x}" for number in (14, 15))
    assert look(tmp_path, doing) == [f"/compare?a={before}&b={here}", f"/run/{here}"]


def test_a_figure_that_makes_no_sense_is_answered_in_words(tmp_path):
    async def doing(client, _):
        user = viewer(client)
        await user.open("/trends?project=demo&metric=duration:nosuch")
        await user.should_see("no run has a task 'nosuch'", retries=SETTLES)

    look(two_runs(tmp_path), doing)


def test_what_viewers_ask_of_a_run_is_read_once_until_its_documents_change(tmp_path):
    two_runs(tmp_path)
    reads: list[str] = []
    gate = threading.Event()

    def read(run) -> int:
        gate.wait(30)
        reads.append(run.run_id)
        return len(reads)

    async def doing(_, dashboard):
        row = await dashboard.find(RUN)
        waiting = [asyncio.ensure_future(dashboard.of_run("thing", row, read)) for _ in range(20)]
        await asyncio.sleep(0)
        gate.set()
        first = await asyncio.gather(*waiting)
        document = row.path / "run.json"
        document.write_text(document.read_text().replace('"node-1"', '"node-22"'))
        return first, await dashboard.of_run("thing", row, read)

    assert look(tmp_path, doing) == ([1] * 20, 2)
    assert reads == [RUN, RUN]


def test_what_is_read_of_a_run_that_goes_on_is_as_good_for_a_few_seconds_whatever_its_documents_say(tmp_path):
    path = make_run(
        tmp_path, status="running", host=this_host(), pid=os.getpid(), pid_start=process_start(os.getpid())
    )
    reads: list[str] = []

    async def doing(_, dashboard):
        row = await dashboard.find(RUN)
        for heartbeat in range(3):
            document = path / "run.json"
            document.write_text(document.read_text().replace("{", f'{{"beat{heartbeat}":1,', 1))
            await dashboard.of_run("thing", row, lambda run: reads.append(run.run_id))
        return row.status

    assert look(tmp_path, doing) == "running"
    assert reads == [RUN]


def test_a_window_that_would_stay_empty_says_that_its_page_is_being_made_and_asks_again(tmp_path):
    two_runs(tmp_path)
    gate = threading.Event()

    def slow(run) -> bytes:
        gate.wait(60)
        return gzip.compress(b"<p>the report</p>")

    async def doing(client, dashboard):
        window, dashboard.patience_s = {"sec-fetch-dest": "document"}, 0.0
        making = asyncio.ensure_future(dashboard.of_run("report", await dashboard.find(RUN), slow))
        await asyncio.sleep(0)
        first = await client.get(f"/run/{RUN}/report", headers=window)
        gate.set()
        await making
        dashboard.patience_s = 60.0
        return first, [(await client.get(f"/run/{RUN}/report", headers=kind)).text for kind in (window, {})]

    first, later = look(tmp_path, doing)
    assert (first.headers["refresh"], "being made" in first.text) == ("1", True)
    assert later == ["<p>the report</p>"] * 2


def test_many_viewers_of_the_list_are_one_look_at_the_folder(tmp_path):
    async def doing(client, dashboard):
        await asyncio.gather(*(client.get("/") for _ in range(20)))
        return dashboard.runs.looks

    assert look(two_runs(tmp_path), doing) == 1


def test_metrics_and_health_are_served_as_text(tmp_path):
    async def doing(client, _):
        metrics, health = await client.get("/metrics"), await client.get("/health")
        return (
            metrics.headers["content-type"].partition(";")[0],
            'flightlog_runs{status="failed"} 1.0' in metrics.text,
            health.text,
        )

    assert look(two_runs(tmp_path), doing) == ("text/plain", True, "ok\n")


def test_every_address_asks_for_the_token(tmp_path):
    paths = [
        "/",
        "/trends",
        f"/run/{RUN}",
        f"/run/{RUN}/report",
        "/compare",
        "/metrics",
        "/health",
        "/favicon.ico",
        "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
    ]

    async def doing(client, dashboard):
        statuses = {(await client.get(path)).status_code for path in paths}
        inside = await client.get("/health", headers={"authorization": "Bearer a-token-that-is-long"})
        return statuses, inside.text, dashboard.runs.looks

    assert look(two_runs(tmp_path), doing, token="a-token-that-is-long") == ({401}, "ok\n", 0)


def test_what_a_hostile_run_says_is_text_in_every_page(tmp_path):
    path = hostile_run(tmp_path, name_bytes=500)

    async def doing(client, dashboard):
        (row,) = (await dashboard.listing()).rows
        pages = [await client.get(page) for page in ("/", f"/run/{row.key}/diagnosis", "/trends")]
        user = viewer(client)
        await user.open(f"/run/{row.key}/diagnosis")
        await user.should_see("Diagnosis", kind=ui.label, retries=SETTLES)
        return row, pages

    row, pages = look(tmp_path, doing)
    assert (row.key[0], row.path) == ("~", path)
    for page in pages:
        assert page.status_code == 200
        for trick in ("<script>window", "<img src=x", "onerror=window.pwned=1>"):
            assert trick not in page.text


def test_dashboards_of_one_process_show_each_their_own_runs(tmp_path):
    two_runs(tmp_path / "two")
    make_run(tmp_path / "one", token="cccccccc")

    async def doing(client, _):
        user = viewer(client)
        await user.open("/")
        return len(keys_in(user))

    assert [look(tmp_path / "two", doing), look(tmp_path / "one", doing), look(tmp_path / "two", doing)] == [
        2,
        1,
        2,
    ]


def test_the_end_of_the_application_is_the_end_of_what_it_follows(tmp_path):
    async def doing(_, dashboard):
        return dashboard

    assert look(tmp_path, doing).live.closed
