"""Runs at an address for Prometheus: read through copies, asked seldom, and shown as they were while it is
away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from builders.counted_remote import ADDRESS, CountedMemory, empty_place, sync
from builders.runs import START, at, make_run
from prometheus_client.parser import text_string_to_metric_families as parse_text

from flightlog.events import TaskCompleted, TaskSubmitted
from flightlog.export.prometheus.server import MetricsPage, RunsCollector
from flightlog.store import layout
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.runs_folder import RunsPlace

NOW = (unix_time(START) or 0.0) + 20.0


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedMemory]:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    yield empty_place()
    empty_place()


class Scraped:
    """What Prometheus has of the address; `clock.now` is when."""

    def __init__(self) -> None:
        self.clock = SimpleNamespace(now=0.0)
        place = RunsPlace(ADDRESS, clock=lambda: self.clock.now)
        self._page = MetricsPage(RunsCollector(place, observe=lambda: Observer(now=NOW, host="elsewhere")))

    def __call__(self) -> dict[str, float]:
        text = self._page.answer()[0].decode()
        wanted = (
            "flightlog_tasks_completed_total",
            "flightlog_tasks_submitted_total",
            "flightlog_remote_problems",
        )
        return {
            one.name: one.value for family in parse_text(text) for one in family.samples if one.name in wanted
        }


def a_run_there(tmp_path: Path) -> Path:
    tasks = [TaskSubmitted(task="fit", task_id=one, args={}, timestamp=at(0)) for one in "ab"]
    run = make_run(
        tmp_path / "here",
        tasks,
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(19),
    )
    sync(run)
    return run


def test_a_run_that_goes_on_at_an_address_is_read_on_every_ten_seconds(
    tmp_path: Path, there: CountedMemory
) -> None:
    run, scraped = a_run_there(tmp_path), Scraped()
    first = scraped()
    ended = TaskCompleted(task="fit", task_id="a", args={}, worker="w-1", duration_s=1.0, timestamp=at(3))
    ended.writer, ended.seq = "w0000001", 2
    with layout.stream_file(run, "tasks").open("ab") as out:
        out.write(msgspec.json.encode(ended) + b"\n")
    sync(run)
    asked = there.calls.total()
    scraped.clock.now = StoreLimits.remote_refresh_s - 0.1
    soon, asked_soon = scraped(), there.calls.total()
    scraped.clock.now = StoreLimits.remote_refresh_s
    later = scraped()
    assert asked_soon == asked
    assert first == soon
    assert first == {
        "flightlog_tasks_submitted_total": 2,
        "flightlog_tasks_completed_total": 0,
        "flightlog_remote_problems": 0,
    }
    assert later == {**first, "flightlog_tasks_completed_total": 1}


def test_a_remote_that_went_away_is_a_gauge_and_the_figures_stay(
    tmp_path: Path, there: CountedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run_there(tmp_path)
    scraped = Scraped()
    before = scraped()

    def away(kind: str, path: str) -> None:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(CountedMemory, "broken", staticmethod(away))
    scraped.clock.now = StoreLimits.remote_refresh_s
    assert scraped() == {**before, "flightlog_remote_problems": 1}
    monkeypatch.setattr(CountedMemory, "broken", None)
    scraped.clock.now = 2 * StoreLimits.remote_refresh_s
    assert scraped() == before


def test_a_remote_that_never_answered_is_a_page_without_runs(
    there: CountedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(kind: str, path: str) -> None:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(CountedMemory, "broken", staticmethod(away))
    assert Scraped()() == {"flightlog_remote_problems": 1}


def test_a_remote_that_takes_long_is_asked_less_often(tmp_path: Path, there: CountedMemory) -> None:
    a_run_there(tmp_path)
    clock = SimpleNamespace(now=0.0)
    place = RunsPlace(ADDRESS, clock=lambda: clock.now)

    def slow(kind: str, path: str) -> None:
        if kind == "find":
            clock.now += 30.0

    CountedMemory.broken = staticmethod(slow)
    asked = []
    for clock.now in (0.0, 149.0, 150.0):
        place.folder()
        asked.append(there.calls["find"] + there.calls["ls"])
    assert asked[0] == asked[1] < asked[2]
