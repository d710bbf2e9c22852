"""Many look at runs, and one reads them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from builders.runs import make_run
from builders.task_events import submitted

from flightlog.analyze.live.follow import FollowedRun, FollowedRuns
from flightlog.analyze.live.results import LiveState


class Counted(FollowedRun):
    """A run that counts how often it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.updates = 0
        self.fails = False

    def update(self, limit_s: float | None = None) -> LiveState:
        self.updates += 1
        if self.fails:
            raise OSError("the disk is gone")
        return super().update()  # whole, however slow the machine is


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Hub:
    """A hub that reads when it is told to; each reading costs `cost_s` seconds of CPU time."""

    def __init__(self) -> None:
        self.clock, self.opened = Clock(), list[Counted]()
        self.cost_s = 0.0
        self.runs = FollowedRuns(clock=self.clock, cpu=self._cpu, open_run=self._open, background=False)

    def _open(self, path: Path) -> Counted:
        self.opened.append(Counted(path))
        return self.opened[-1]

    def _cpu(self) -> float:
        return self.cost_s * sum(one.updates for one in self.opened)

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.runs.turn()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, [submitted("a")])


def test_a_state_is_worked_out_once_however_many_ask(run: Path) -> None:
    hub = Hub()
    assert [hub.runs.state(run) for _ in range(20)] == [None] * 20
    hub.turn()
    states = {id(hub.runs.state(run)) for _ in range(20)}
    hub.turn(0.5)
    assert (len(states), [one.updates for one in hub.opened]) == (1, [1])
    hub.turn(0.5)
    assert [one.updates for one in hub.opened] == [2]


def test_a_state_that_costs_much_is_computed_less_often(run: Path) -> None:
    hub = Hub()
    hub.cost_s = 0.6
    for _ in range(12):
        hub.runs.state(run)
        hub.turn(1.0)
    assert [one.updates for one in hub.opened] == [4]  # at most a fifth of a core: once in three seconds


def test_what_nobody_asks_for_is_not_read_and_forgotten_after_a_minute(run: Path) -> None:
    hub = Hub()
    hub.runs.state(run)
    for _ in range(30):
        hub.turn(1.0)
    assert ([one.updates for one in hub.opened], len(hub.runs)) == ([1], 1)
    hub.turn(31.0)
    assert len(hub.runs) == 0
    hub.runs.state(run)
    hub.turn()
    assert [one.updates for one in hub.opened] == [1, 1]


def test_several_runs_take_turns(tmp_path: Path) -> None:
    hub, paths = Hub(), [make_run(tmp_path, token=f"{n}" * 8) for n in range(3)]
    for _ in range(9):
        for path in paths:
            hub.runs.state(path)
        hub.turn(0.4)
    assert [one.updates for one in hub.opened] == [3, 3, 3]


def test_a_run_that_cannot_be_read_keeps_its_last_state_and_says_why(run: Path) -> None:
    hub = Hub()
    hub.runs.state(run)
    hub.turn()
    before = hub.runs.state(run)
    hub.opened[0].fails = True
    hub.turn(1.0)
    assert (hub.runs.state(run), hub.runs.problem(run)) == (before, "OSError: the disk is gone")
    hub.opened[0].fails = False
    hub.turn(1.0)
    assert hub.runs.problem(run) is None


def test_one_thread_reads_for_all_and_ends_with_the_hub(run: Path) -> None:
    others, runs = set(threading.enumerate()), FollowedRuns()
    found: list[LiveState] = []

    def ask() -> None:
        while (state := runs.state(run)) is None or state.reading is not None:
            time.sleep(0.01)
        found.append(state)

    def readers() -> list[str]:
        return [one.name for one in threading.enumerate() if one not in others]

    asking = [threading.Thread(target=ask) for _ in range(5)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert [state.progress.submitted for state in found] == [1] * 5
    assert readers() == ["flightlog-live"]
    runs.close()
    assert readers() == []
    assert runs.state(run) is not None


def test_a_state_is_made_at_once_where_that_is_wanted(run: Path) -> None:
    hub = Hub()
    hub.runs.state(run)
    hub.turn()
    hub.runs.state(run, at_once=True)
    hub.turn(0.01)
    assert [one.updates for one in hub.opened] == [2]


def test_a_run_is_opened_by_whoever_reads_it_and_anew_after_a_problem(run: Path) -> None:
    hub = Hub()
    hub.runs.state(run)
    assert hub.opened == []
    hub.turn()
    hub.opened[0].fails = True
    for _ in range(2):
        hub.runs.state(run)
        hub.turn(1.0)
    assert ([one.updates for one in hub.opened], hub.runs.problem(run)) == ([2, 1], None)
