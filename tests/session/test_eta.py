"""How long a session still takes: the words, and that it follows a session's tasks."""

from __future__ import annotations

import pytest
from sessions import THREADS, session_in

from flightlog.analyze.predict.eta import Eta
from flightlog.core.stats import Distribution
from flightlog.session.progress import EVERY_S, RECENT, ProgressBar, TaskPace, eta_text
from flightlog.session.tracking import Counts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(Clock):
    """One that goes on with each look at it."""

    step = 0.25

    def __call__(self) -> float:
        self.now += self.step
        return self.now


# --- a session's own pace


def done(pace: TaskPace, name: str, *durations: float) -> None:
    """Tasks of this name, submitted, started and ended."""
    for duration in durations:
        pace.submitted([name])
        pace.started("one of these", name)
        pace.ended("one of these", name, duration)


def test_a_pace_knows_nothing_until_three_tasks_have_ended_then_what_is_left():
    clock = Clock()
    pace = TaskPace(clock)
    pace.submitted(["sim"] * 4)
    done(pace, "sim", 10.0, 10.0)
    clock.now = 10.0
    pace.started("c", "sim")
    pace.started("d", "sim")
    assert pace.eta() is None
    clock.now = 12.0
    done(pace, "sim", 10.0)
    eta = pace.eta()
    assert eta.low <= 18.0 <= eta.high
    assert not eta.at_least


def test_earlier_runs_stand_in_until_then_and_a_name_nobody_knows_comes_on_top():
    pace = TaskPace(Clock())
    pace.submitted(["sim", "sim", "reduce"])
    pace.started("a", "sim")
    eta = pace.eta({"sim": Distribution(count=9, p50=5.0, p95=5.0)})
    assert eta.low <= 10.0 <= eta.high
    assert eta.at_least


def test_a_look_within_a_second_costs_nothing_and_gives_the_same():
    clock = Clock()
    pace = TaskPace(clock)
    pace.submitted(["sim"] * 4)
    done(pace, "sim", 1.0, 1.0, 1.0)
    pace.started("b", "sim")
    first = pace.eta()
    pace.submitted(["sim"] * 400)
    clock.now = EVERY_S / 2
    assert pace.eta() is first
    clock.now = EVERY_S
    assert pace.eta().expected > 50 * first.expected


def test_an_answer_that_took_long_is_given_for_fifty_times_as_long():
    clock = Slow()
    pace = TaskPace(clock)
    pace.submitted(["sim"] * 4)
    done(pace, "sim", 1.0, 1.0, 1.0)
    pace.started("b", "sim")
    first = pace.eta()
    pace.submitted(["sim"] * 400)
    clock.now += 50 * clock.step - 3 * clock.step
    assert pace.eta() is first
    clock.now += clock.step
    assert pace.eta() is not first


def test_what_is_kept_does_not_grow_with_the_tasks():
    pace = TaskPace(Clock())
    for n in range(10 * RECENT):
        pace.submitted(["sim"])
        pace.started(str(n), "sim")
        pace.ended(str(n), "sim", 1.0)
    assert (len(pace._recent["sim"]), len(pace._running), pace._left) == (RECENT, 0, {"sim": 0})


def test_a_task_that_is_tried_again_is_still_to_come():
    clock = Clock()
    pace = TaskPace(clock)
    pace.submitted(["sim"])
    done(pace, "sim", 4.0, 4.0, 4.0)
    pace.started("b", "sim")
    pace.stopped("b")
    assert pace.eta() is None  # nothing runs
    clock.now = 1.0
    pace.started("b", "sim")
    eta = pace.eta()
    assert eta.low <= 4.0 <= eta.high


# --- the words


@pytest.mark.parametrize(
    ("eta", "text"),
    [
        (Eta(expected=180, low=120, high=300), "about 3 min left (2 to 5)"),
        (Eta(expected=40, low=31, high=58.2), "about 40 s left (31 to 58)"),
        (Eta(expected=2.2, low=2.1, high=2.3), "about 2 s left"),
        (Eta(expected=7200, low=5400, high=10800), "about 2.0 h left (1.5 to 3.0)"),
        (Eta(expected=300_000, low=200_000, high=400_000), "about 3.5 days left (2.3 to 4.6)"),
        (Eta(expected=180, low=120, high=300, at_least=True), "at least 3 min left (2 to 5)"),
        (Eta(expected=0.2, low=0.1, high=0.4), "about 0 s left"),
    ],
)
def test_what_is_left_is_put_into_words(eta, text):
    assert eta_text(eta) == text


def test_the_bar_says_it_until_everything_has_ended():
    eta = Eta(expected=180, low=120, high=300)
    assert (
        ProgressBar(lambda: Counts(submitted=9, completed=3), lambda: eta).text()
        == "3/9 · about 3 min left (2 to 5)"
    )
    assert ProgressBar(lambda: Counts(submitted=9, completed=9), lambda: eta).text() == "9/9"
    assert ProgressBar(lambda: Counts(submitted=9, completed=3), lambda: None).text() == "3/9"


def test_every_task_of_a_session_is_counted_to_its_end_however_it_ends(tmp_path):
    with session_in(tmp_path, where=THREADS) as session:
        client = session.client
        client.gather(
            [*client.map(abs, range(20)), *client.map(int, ["1", "no"], retries=1)], errors="return"
        )
        client.submit(abs, client.submit(int, "no")).exception()
    pace = session._tracker.pace
    assert (pace._left, pace._running) == ({"abs": 0, "int": 0}, {})
    assert pace.eta() is None
