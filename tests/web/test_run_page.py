"""The page of a run as it happens: what it says of a state, and that only what has changed is sent."""

from __future__ import annotations

import gc
import unicodedata
import weakref
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders.hostile_run import hostile_run
from builders.runs import START, at, make_run
from nicegui import ui
from nicegui.testing import User
from nicegui.testing.user_interaction import UserInteraction
from viewing import look, viewer

from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.live.results import LiveState, LogLine
from flightlog.core.time import SECOND, moment
from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    Metric,
    ResourceSample,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    WorkerReady,
)
from flightlog.web.limits import WebLimits
from flightlog.web.run_page import CURVES, SHOWN, RunPage, RunParts, run_figures, run_parts

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


def view_of(state: LiveState) -> dict[str, Any]:
    """The parts of the page that have something to show, but for the figures."""
    parts = RunParts()(state).parts
    return {
        name: msgspec.json.decode(parts[name]) for name in ("head", *SHOWN, "failures", "log") if parts[name]
    }


def test_the_page_says_how_far_the_run_is_and_what_hangs(state: LiveState) -> None:
    view = view_of(state)
    head = view["head"]
    assert (head["status"], head["headline"], head["done"]) == ("running", "running for 40.0s", "85.7")
    assert head["progress"].startswith("6 of 7 tasks ended (86%) · 0.15 a second · ")
    assert {tile["path"]: (tile["text"], tile["value"]) for tile in head["tiles"]} == {
        "tasks.submitted": ("7", "7"),
        "tasks.running": ("1", "1"),
        "tasks.pending": ("0", "0"),
        "tasks.completed": ("5", "5"),
        "tasks.failed": ("1", "1"),
        "failures.count": ("1", "1"),
        "workers.count": ("1", "1"),
        "cache.hit_rate": ("50%", "0.5"),
    }
    assert view["running"] == {
        "title": "Running now",
        "note": "1 may be stuck",
        "rows": [
            {
                "id": "t6 1",
                "tone": "warn",
                "call": "simulate(n=6)",
                "elapsed_s": 34.0,
                "elapsed_s_text": "34.0s",
                "usual_s": 1.0,
                "usual_s_text": "1.0s",
                "stuck": 1,
                "stuck_text": "may be stuck",
                "runs_on": "w1",
                "attempt": 1,
                "attempt_text": "1",
            }
        ],
    }
    [machine] = view["resources"]["rows"]
    shown = ("host", "cpu_percent_text", "memory_used_bytes_text", "share_text")
    assert [machine[name] for name in shown] == ["n1", "50%", "1.0 GiB", "25%"]


def test_what_a_run_recorded_stays_text(state: LiveState) -> None:
    [failed] = view_of(state)["failures"]["items"]
    assert (failed["text"], failed["about"]) == ("ValueError: <b>bad</b>", "simulate(n=5) on w1")
    assert RunParts()(state).details == {failed["key"]: "Traceback\n  <script>"}
    timeline = run_figures(state)["timeline"]
    assert timeline is not None
    assert "<b>bad" not in msgspec.json.encode(timeline).decode()


def test_what_is_to_be_said_of_a_figure_stands_beside_it_and_not_in_it(state: LiveState) -> None:
    assert state.memory is not None
    said = msgspec.structs.replace(
        state, memory=msgspec.structs.replace(state.memory, notes=["Two hosts are left out."])
    )
    memory = run_figures(said)["memory"]
    assert memory is not None
    assert memory["note"] == "Two hosts are left out."
    assert "left out" not in msgspec.json.encode(memory["figure"]).decode()


def test_the_curves_of_metrics_are_drawn_those_with_the_most_values_first(tmp_path: Path) -> None:
    values = [
        Metric(timestamp=at(step), name=name, value=1.0 / (step + 1), step=step)
        for name, steps in (("rare", 1), ("loss", 9), ("accuracy", 5))
        for step in range(steps)
    ]
    state = FollowedRun(make_run(tmp_path, values), now=lambda: NOW).update()
    drawn = [found for name in CURVES if (found := run_figures(state)[name]) is not None]
    assert [found["title"] for found in drawn] == ["loss", "accuracy"]
    loss = drawn[0]["figure"]
    assert (list(loss["data"][0]["x"]), loss["layout"]["xaxis"]["title"]["text"]) == (list(range(9)), "step")


def test_a_curve_over_time_begins_with_the_run_and_is_none_where_that_is_unknown(tmp_path: Path) -> None:
    values = [Metric(timestamp=at(second), name="load", value=float(second)) for second in (1, 2, 3)]
    state = FollowedRun(make_run(tmp_path, values), now=lambda: NOW).update()
    drawn = run_figures(state)[CURVES[0]]
    assert drawn is not None
    assert list(drawn["figure"]["data"][0]["x"]) == pytest.approx([1, 2, 3])
    assert "since" in drawn["figure"]["layout"]["xaxis"]["title"]["text"]
    begun_some_day = make_run(tmp_path / "unknown", values, start_time="some day")
    unknown = FollowedRun(begun_some_day, now=lambda: NOW).update()
    assert run_figures(unknown)[CURVES[0]] is None


def test_nothing_on_the_page_of_a_hostile_run_is_long_or_invisible(tmp_path: Path) -> None:
    view = view_of(FollowedRun(hostile_run(tmp_path, name_bytes=1_000_000)).update())
    texts = list(_texts(view))
    assert max(map(len, texts)) <= 8_000
    seen = [text for text in texts if any(unicodedata.category(c) in {"Cc", "Cf"} for c in text if c != "\n")]
    ids = {row["id"] for name in SHOWN if name in view for row in view[name]["rows"]}
    assert set(seen) <= ids


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
    path = make_run(tmp_path, status="failed", error="KeyError: 'x'")
    state = FollowedRun(path, now=lambda: NOW).update()
    head = view_of(state)["head"]
    assert (head["headline"], head["progress"], head["error"]) == (
        "failed after 10.0s",
        "no tasks were recorded",
        "KeyError: 'x'",
    )
    assert set(run_figures(state).values()) == {None}


def test_a_failure_whose_arguments_are_unknown_is_no_call_without_arguments(state: LiveState) -> None:
    [failed] = state.failures
    unknown = msgspec.structs.replace(state, failures=[msgspec.structs.replace(failed, args="")])
    assert [item["about"] for item in view_of(unknown)["failures"]["items"]] == ["simulate on w1"]


@pytest.mark.parametrize(
    ("left_s", "at_least", "said"),
    [(7.0, False, " · about 7 s left"), (7.0, True, " · at least 7 s left"), (0.4, True, "")],
)
def test_a_time_that_is_left_is_said_where_it_says_something(
    state: LiveState, left_s: float, at_least: bool, said: str
) -> None:
    progress = msgspec.structs.replace(
        state.progress,
        submitted=10,
        completed=4,
        failed=0,
        cancelled=0,
        running=0,
        done=0.4,
        per_s=None,
        left_s=left_s,
        left_low_s=left_s,
        left_high_s=left_s,
        left_at_least=at_least,
    )
    view = view_of(msgspec.structs.replace(state, progress=progress))
    assert view["head"]["progress"] == f"4 of 10 tasks ended (40%){said}"


def test_what_twenty_look_at_is_made_once_and_a_part_that_has_not_changed_is_the_same_text(
    state: LiveState,
) -> None:
    clock = SimpleNamespace(now=0.0)
    shown = RunParts(lambda: clock.now)
    first = shown(state)
    assert all(shown(state) is first for _ in range(20))
    more = shown(msgspec.structs.replace(state, failures_all=7))
    assert {name for name, text in more.parts.items() if text is not first.parts[name]} == {
        "head",
        "failures",
    }


def test_figures_are_made_every_two_seconds_at_most_and_of_a_run_that_is_over_once(state: LiveState) -> None:
    clock = SimpleNamespace(now=0.0)
    shown = RunParts(lambda: clock.now)
    fuller = msgspec.structs.replace(state, cpu=state.memory)
    first = shown(state).parts["cpu"]
    clock.now = WebLimits.figures_interval_s - 0.1
    soon = shown(fuller).parts["cpu"]
    clock.now = WebLimits.figures_interval_s
    later = shown(fuller).parts["cpu"]
    assert (soon is first, later == first) == (True, False)
    over = msgspec.structs.replace(state, status="completed")
    ended = RunParts(lambda: clock.now)
    drawn = ended(over).parts["cpu"]
    clock.now += 10 * WebLimits.figures_interval_s
    assert ended(msgspec.structs.replace(over, cpu=state.memory)).parts["cpu"] is drawn


def test_all_who_look_at_a_run_share_what_is_made_of_it_which_goes_with_the_last() -> None:
    first, second, other = run_parts(Path("a")), run_parts(Path("a")), run_parts(Path("b"))
    assert (second is first, other is first) == (True, False)
    gone = weakref.ref(first)
    del first, second
    gc.collect()
    assert gone() is None


class Viewed:
    """The page within a page that somebody has open."""

    def __init__(self, user: User, *states: LiveState | None) -> None:
        self.user, self.now, self.states = user, 0.0, list(states)
        with user.client.content if user.client is not None else ui.element():
            self.page = RunPage(self._state, RunParts(lambda: self.now), address="/run/x")

    def _state(self) -> LiveState | None:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def tick(self) -> list[str]:
        """Bring it up to date, and say which parts that sends."""
        assert self.user.client is not None
        sent = self.user.client.outbox.updates
        sent.clear()
        self.now += 3.0
        self.page.tick()
        return [name for name, part in self.page.parts.items() if part.id in sent]

    def shown(self, name: str) -> Any:
        text = self.page.parts[name].props.get("shown", "")
        return msgspec.json.decode(text) if text else None


def viewed(runs: Path, doing: Callable[[User], Awaitable[Any]]) -> Any:
    async def opened(client: Any, _: Any) -> Any:
        user = viewer(client)
        await user.open("/")
        return await doing(user)

    return look(runs, opened)


def test_what_has_not_changed_is_not_sent_again(tmp_path: Path, state: LiveState) -> None:
    later = msgspec.structs.replace(state, changed=state.changed + 1)
    more = msgspec.structs.replace(
        state, log=[LogLine(at=at(41), kind="user_event", text="epoch", level="info"), *state.log]
    )

    async def doing(user: User) -> list[list[str]]:
        page = Viewed(user, None, state, state, later, more)
        return [page.tick() for _ in range(5)]

    nothing_yet, first, same, later_too, one_line = viewed(tmp_path, doing)
    assert (nothing_yet, same, later_too, one_line) == ([], [], [], ["log"])
    assert {"head", "running", "failures", "timeline", "workers", "tasks", "log"} <= set(first)


def test_a_run_that_cannot_be_read_is_said_and_no_longer_when_it_can(
    tmp_path: Path, state: LiveState
) -> None:
    problems = ["OSError: <b>" + "x" * 5000, None]

    async def doing(user: User) -> list[str]:
        with user.client.content if user.client is not None else ui.element():
            page = RunPage(lambda: None, RunParts(), address="/run/x", problem_of=lambda: problems.pop(0))
        said = []
        for _ in range(2):
            page.tick()
            said.append(page.head.props.get("problem", ""))
        return said

    first, second = viewed(tmp_path, doing)
    assert (first[:12], len(first), second) == ("OSError: <b>", 1000, "")


def test_the_page_of_a_run_is_made_of_few_elements(tmp_path: Path) -> None:
    make_run(tmp_path, events())

    async def doing(client: Any, _: Any) -> int:
        user = viewer(client)
        await user.open("/run/run-20260520T035200Z-demo-a1b2c3d4")
        return len(user.client.elements) if user.client is not None else 0

    assert 20 < look(tmp_path, doing) < 50


def test_headline_figures_failures_and_the_log_are_data(tmp_path: Path, state: LiveState) -> None:
    async def doing(user: User) -> Any:
        page = Viewed(user, state)
        page.tick()
        return [page.shown(name) for name in ("head", "failures", "log", "timeline", "spans")]

    head, failures, log, timeline, spans = viewed(tmp_path, doing)
    values = {tile["path"]: tile["value"] for tile in head["tiles"]}
    assert {path: values[path] for path in ("tasks.submitted", "tasks.completed", "tasks.failed")} == {
        "tasks.submitted": "7",
        "tasks.completed": "5",
        "tasks.failed": "1",
    }
    assert (head["status"], len(failures["items"]), len(log["items"]), spans) == ("running", 1, 3, None)
    assert timeline["figure"]["data"]


def test_a_traceback_is_sent_when_it_is_asked_for_and_not_before(tmp_path: Path, state: LiveState) -> None:
    async def doing(user: User) -> Any:
        page = Viewed(user, state)
        page.tick()
        feed = page.page.parts["failures"]
        [item] = page.shown("failures")["items"]
        asked = (item["key"], "no such key")
        for key in asked:
            UserInteraction(user, {feed}, None).trigger("details", key)
        told = msgspec.json.decode(feed.props["told"])
        return "Traceback" in feed.props["shown"], [told[key] for key in asked]

    assert viewed(tmp_path, doing) == (False, ["Traceback\n  <script>", "no traceback was recorded"])


def test_names_of_a_hostile_run_are_short_in_what_is_sent(tmp_path: Path) -> None:
    state = FollowedRun(hostile_run(tmp_path, name_bytes=1_000_000)).update()
    parts = RunParts()(state).parts
    assert max(len(text) for text in parts.values()) < 1_000_000
    keys = [item["key"] for name in ("failures", "log") for item in msgspec.json.decode(parts[name])["items"]]
    assert {len(key) for key in keys} == {24}
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "name", sorted(path.name for path in files("flightlog.web").iterdir() if path.name.endswith(".js"))
)
def test_the_browser_renders_data_as_text_alone(name: str) -> None:
    script = files("flightlog.web").joinpath(name).read_text("utf-8")
    for way in (
        "v-html",
        "innerHTML",
        "insertAdjacentHTML",
        "outerHTML",
        "document.write",
        "eval(",
        "Function(",
        "http",
    ):
        assert way not in script, way
