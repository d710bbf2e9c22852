"""The page of a run as it happens: what it says of a state, and that only what has changed is sent."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import START, at, make_run
from hostile_run import hostile_run
from nicegui import ui
from nicegui.testing import User
from nicegui.testing.user_interaction import UserInteraction
from viewing import look, viewer

from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.live.results import Failed, LiveState, LogLine
from flightlog.analyze.moments import SECOND, moment
from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    ResourceSample,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    WorkerReady,
)
from flightlog.web.run_figures import figure_notes, run_figures
from flightlog.web.run_page import RunPage
from flightlog.web.run_view import OncePerState, RunView, run_view

NOW = (moment(START) or 0) / SECOND + 40


def events() -> list[Event]:
    """Seven tasks: six took a second, of which one failed, and the last has run for half a minute."""
    found: list[Event] = [WorkerReady(timestamp=at(0), worker="w1", host="n1", pid=1)]
    for n in range(7):
        name: dict[str, Any] = {"task": "simulate", "task_id": f"t{n}"}
        found.append(TaskSubmitted(**name, args={"n": n}, timestamp=at(0)))
        found.append(TaskStarted(**name, worker="w1", queue_s=float(n), timestamp=at(n)))
        end = {**name, "args": {"n": n}, "worker": "w1", "duration_s": 1.0, "timestamp": at(n + 1)}
        if n == 5:
            error = {"error_type": "ValueError", "fingerprint": "f"}
            found.append(TaskFailed(**end, **error, error_message="<b>bad</b>"))
            told = {
                "message": "<b>bad</b>",
                "traceback": "Traceback\n  <script>",
                "attempt": 1,
                "scope": "task",
            }
            found.append(Failure(**name, **error, **told, timestamp=at(n + 1)))
        elif n < 5:
            found.append(TaskCompleted(**end))
    found += [
        CacheLookup(timestamp=at(1), task="simulate", result=result, key="k") for result in ("hit", "miss")
    ]
    found.append(
        ResourceSample(
            timestamp=at(2),
            scope="node",
            host="n1",
            cpu_percent=50.0,
            memory_used_bytes=1 << 30,
            memory_total_bytes=4 << 30,
        )
    )
    return found


@pytest.fixture
def state(tmp_path: Path) -> LiveState:
    path = make_run(
        tmp_path,
        events(),
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(39),
    )
    return FollowedRun(path, now=lambda: NOW).update()


def test_the_page_says_how_far_the_run_is_and_what_hangs(state: LiveState) -> None:
    view = run_view(state)
    assert (view.status, view.headline, view.done) == ("running", "running for 40.0s", 6 / 7)
    assert view.progress.startswith("6 of 7 tasks ended (86%) · 0.15 a second · ")
    assert {tile.path: (tile.text, tile.value) for tile in view.tiles} == {
        "tasks.submitted": ("7", "7"), "tasks.running": ("1", "1"), "tasks.pending": ("0", "0"),
        "tasks.completed": ("5", "5"), "tasks.failed": ("1", "1"), "failures.count": ("1", "1"),
        "workers.count": ("1", "1"), "cache.hit_rate": ("50%", "0.5"),
    }  # fmt: skip
    assert view.doing == [
        {
            "id": "t6 1 0", "task": "simulate", "args": "n=6", "worker": "w1", "attempt": 1, "state": "may be stuck",
            "tone": "bad", "elapsed": 34.0, "elapsed_text": "34.0s", "usual": 1.0, "usual_text": "1.0s",
        }
    ]  # fmt: skip
    assert view.doing_note == "1 may be stuck"
    assert [
        (row["name"], row["busy_text"], row["used_text"], row["share_text"]) for row in view.machines
    ] == [("n1", "50%", "1.0 GiB", "25%")]


def test_what_a_run_recorded_stays_text(state: LiveState) -> None:
    [failed] = run_view(state).failures
    assert (failed.text, failed.about, failed.details) == (
        "ValueError: <b>bad</b>", "simulate(n=5) on w1", "Traceback\n  <script>",
    )  # fmt: skip
    timeline = run_figures(state)["timeline"]
    assert timeline is not None
    assert "<b>bad" not in msgspec.json.encode(timeline).decode()


def test_what_is_to_be_said_of_a_figure_stands_beside_it_and_not_in_it(state: LiveState) -> None:
    assert state.memory is not None
    said = msgspec.structs.replace(
        state, memory=msgspec.structs.replace(state.memory, notes=["Two hosts are left out."])
    )
    assert figure_notes(said)["memory"] == "Two hosts are left out."
    assert "left out" not in msgspec.json.encode(run_figures(said)["memory"]).decode()


def test_nothing_on_the_page_of_a_hostile_run_is_long_or_invisible(tmp_path: Path) -> None:
    view = run_view(FollowedRun(hostile_run(tmp_path, name_bytes=1_000_000)).update())
    texts = list(_texts(msgspec.to_builtins(view)))
    assert max(map(len, texts)) <= 8_000
    seen = [text for text in texts if any(unicodedata.category(c) in {"Cc", "Cf"} for c in text if c != "\n")]
    kept_as_they_are = {told.details for told in view.failures} | {
        told.key for told in (*view.failures, *view.log)
    }
    ids = {row["id"] for rows in _tables(view) for row in rows}
    assert set(seen) <= kept_as_they_are | ids


def _tables(view: RunView) -> list[list[dict[str, Any]]]:
    return [
        view.doing,
        view.workers,
        view.machines,
        view.names,
        view.slowest,
        view.spans,
        view.open_spans,
        view.metrics,
    ]


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name in value:
            yield from _texts(value[name])
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def test_a_run_without_tasks_and_one_that_is_over_say_so(tmp_path: Path) -> None:
    view = run_view(
        FollowedRun(make_run(tmp_path, status="failed", error="KeyError: 'x'"), now=lambda: NOW).update()
    )
    assert (view.headline, view.progress, view.error) == (
        "failed after 10.0s",
        "no tasks were recorded",
        "KeyError: 'x'",
    )
    assert set(run_figures(FollowedRun(tmp_path / view.status, now=lambda: NOW).update()).values()) == {None}


def test_a_failure_whose_arguments_are_unknown_is_no_call_without_arguments(state: LiveState) -> None:
    [failed] = state.failures
    unknown = msgspec.structs.replace(state, failures=[msgspec.structs.replace(failed, args="")])
    assert [told.about for told in run_view(unknown).failures] == ["simulate on w1"]


@pytest.mark.parametrize(
    ("left_s", "at_least", "said"),
    [(7.0, False, " · about 7 s left"), (7.0, True, " · at least 7 s left"), (0.4, True, "")],
)
def test_a_time_that_is_left_is_said_where_it_says_something(
    state: LiveState, left_s: float, at_least: bool, said: str
) -> None:
    progress = msgspec.structs.replace(
        state.progress, submitted=10, completed=4, failed=0, cancelled=0, running=0, done=0.4, per_s=None,
        left_s=left_s, left_low_s=left_s, left_high_s=left_s, left_at_least=at_least,
    )  # fmt: skip
    view = run_view(msgspec.structs.replace(state, progress=progress))
    assert view.progress == f"4 of 10 tasks ended (40%){said}"


def test_what_twenty_look_at_is_made_once(state: LiveState) -> None:
    made: list[LiveState] = []
    once = OncePerState(lambda one: made.append(one) or len(made))
    assert [once(state) for _ in range(20)] == [1] * 20
    assert once(msgspec.structs.replace(state)) == 2


class Shown:
    """The page within a page that somebody has open."""

    def __init__(self, user: User, *states: LiveState | None) -> None:
        self.user, self.now, self.states = user, 0.0, list(states)
        with user.client.content if user.client is not None else ui.element():
            self.page = RunPage(self._state, address="/run/x", clock=lambda: self.now)

    def _state(self) -> LiveState | None:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def tick(self) -> int:
        """Bring it up to date, and say how many elements that sends."""
        assert self.user.client is not None
        self.user.client.outbox.updates.clear()
        self.now += 3.0
        self.page.tick()
        return len(self.user.client.outbox.updates)

    def traces(self) -> list[str]:
        assert self.user.client is not None
        elements = self.user.client.elements.values()
        return [one.text for one in elements if isinstance(one, ui.label) and "fl-trace" in one.classes]

    def found(self, attribute: str) -> list[ui.element]:
        assert self.user.client is not None
        return [one for one in self.user.client.elements.values() if attribute in one.props]


def shown(runs: Path, doing: Callable[[User], Awaitable[Any]]) -> Any:
    async def opened(client: Any, _: Any) -> Any:
        user = viewer(client)
        await user.open("/")
        return await doing(user)

    return look(runs, opened)


def test_what_has_not_changed_is_not_sent_again(tmp_path: Path, state: LiveState) -> None:
    later = msgspec.structs.replace(state, as_of=at(41))
    more = msgspec.structs.replace(
        state, log=[LogLine(at=at(41), kind="user_event", text="epoch", level="info"), *state.log]
    )

    async def doing(user: User) -> list[int]:
        page = Shown(user, None, state, state, later, more)
        return [page.tick() for _ in range(5)]

    nothing_yet, first, same, later_too, one_line = shown(tmp_path, doing)
    assert (nothing_yet, same, later_too) == (0, 0, 0)
    assert (first > 50, 0 < one_line <= 6) == (True, True)


def test_headline_figures_and_the_log_can_be_found_by_machines(tmp_path: Path, state: LiveState) -> None:
    async def doing(user: User) -> Any:
        page = Shown(user, state)
        page.tick()
        values = {one.props["data-path"]: one.props["data-value"] for one in page.found("data-path")}
        return (
            values,
            len(page.found("data-failure")),
            len(page.found("data-log")),
            len(page.found("data-figure")),
        )

    values, failures, lines, figures = shown(tmp_path, doing)
    assert {path: values[path] for path in ("run.status", "tasks.submitted", "tasks.completed", "tasks.failed")} == {
        "run.status": '"running"', "tasks.submitted": "7", "tasks.completed": "5", "tasks.failed": "1",
    }  # fmt: skip
    assert (failures, lines, figures) == (1, 3, 4)


def test_an_opened_failure_stays_open_when_others_come_and_its_traceback_is_sent_when_asked_for(
    tmp_path: Path, state: LiveState
) -> None:
    other = Failed(
        at=at(39), task="fit", task_id="x", attempt=1, args="", worker=None, error_type="OSError", message="gone",
        traceback=None, retried=False, fingerprint=None,
    )  # fmt: skip

    async def doing(user: User) -> Any:
        page = Shown(
            user, state, msgspec.structs.replace(state, failures=[other, *state.failures], failures_all=2)
        )
        page.tick()
        [first] = page.found("data-failure")
        before = page.traces()
        UserInteraction(user, {first}, None).trigger("toggle")
        after = page.traces()
        page.tick()
        place = first.parent_slot.parent if first.parent_slot is not None else None
        assert place is not None
        return before, after, [one is first for one in place.default_slot.children]

    assert shown(tmp_path, doing) == ([], ["Traceback\n  <script>"], [False, True])


def test_a_figure_is_not_drawn_again_before_the_browser_has_drawn_it_once(
    tmp_path: Path, state: LiveState
) -> None:
    fuller = msgspec.structs.replace(state, cpu=state.memory)

    async def doing(user: User) -> Any:
        page = Shown(user, state, fuller)
        page.tick()
        [cpu] = [one for one in page.found("data-figure") if one.props["data-figure"] == "cpu"]
        assert isinstance(cpu, ui.plotly)
        before = cpu.figure
        page.tick()
        waits = cpu.figure is before
        UserInteraction(user, {cpu}, None).trigger("plotly_afterplot")
        return waits, cpu.figure is before

    assert shown(tmp_path, doing) == (True, False)


def test_a_table_stays_sorted_as_a_viewer_has_sorted_it(tmp_path: Path, state: LiveState) -> None:
    names = [msgspec.structs.replace(state.names[0], name=f"n{n}") for n in range(30)]

    async def doing(user: User) -> Any:
        page = Shown(user, state, msgspec.structs.replace(state, names=names))
        page.tick()
        [table] = [one for one in user.find(ui.table).elements if one.rows and "p95" in one.rows[0]]
        wanted = {"sortBy": "p95", "descending": True, "rowsPerPage": 12, "page": 1}
        table.pagination = wanted
        page.tick()
        return table.pagination == wanted, len(table.rows), "hide-bottom" in table.props

    assert shown(tmp_path, doing) == (True, 30, False)
