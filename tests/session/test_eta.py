"""How long a session still takes: the arithmetic, the words, and that it follows a session's tasks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import THREADS, session_in

from flightlog.analyze.distribution import Distribution
from flightlog.session.eta import EVERY_S, RECENT, Eta, Known, Pace, from_durations, from_earlier, remaining
from flightlog.session.progress import Bar, eta_text
from flightlog.session.tracking import Counts

SECONDS = st.floats(0.001, 10_000)
KNOWN = st.lists(SECONDS, min_size=1, max_size=20).map(from_durations)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def steady(seconds: float) -> Known:
    return Known(mean=seconds, deviation=0.0, error=0.0, long=seconds, seen=(seconds,))


# --- the arithmetic


def test_tasks_of_one_length_take_their_number_over_the_workers():
    eta = remaining({"sim": 40}, {"sim": steady(6.0)}, {"sim": [0.0] * 4}, 4)
    assert eta == Eta(expected=60.0 + 0.5 * 0.75 * 6.0, low=60.0, high=60.0 + 0.75 * 6.0)


def test_what_has_run_for_a_while_takes_less():
    assert remaining({"sim": 2}, {"sim": steady(6.0)}, {"sim": [2.0, 5.0]}, 2) == Eta(
        expected=4.0, low=2.5, high=4.0
    )


def test_one_that_has_run_longer_than_any_before_is_not_expected_to_end_at_once():
    assert steady(6.0).left(60.0) == 6.0


@pytest.mark.parametrize(
    ("left", "known", "running"),
    [({}, {"sim": steady(1.0)}, 3), ({"sim": 3}, {}, 3), ({"sim": 3}, {"sim": steady(1.0)}, 0), ({"sim": 0}, {"sim": steady(1.0)}, 1)],
)  # fmt: skip
def test_where_nothing_is_left_known_or_running_nothing_is_said(left, known, running):
    assert remaining(left, known, {}, running) is None


@given(st.integers(1, 500), KNOWN, st.lists(SECONDS, max_size=8), st.integers(1, 8))
def test_the_expected_time_lies_in_its_interval_and_nothing_is_below_zero(count, known, ages, running):
    eta = remaining({"sim": count}, {"sim": known}, {"sim": ages}, running)
    assert 0 <= eta.low <= eta.expected <= eta.high < math.inf


@given(st.integers(1, 500), KNOWN, st.integers(1, 8))
def test_more_tasks_never_take_less_and_more_workers_never_take_more_work(count, known, running):
    eta = remaining({"sim": count}, {"sim": known}, {}, running)
    more = remaining({"sim": count + 1}, {"sim": known}, {}, running)
    faster = remaining({"sim": count}, {"sim": known}, {}, running + 1)
    assert more.expected >= eta.expected * (1 - 1e-9)
    assert faster.low <= eta.low * (1 + 1e-9)


@given(st.lists(SECONDS, min_size=2, max_size=100))
def test_many_durations_are_surer_than_the_same_few(durations):
    assert from_durations(durations * 4).error <= from_durations(durations).error * (1 + 1e-9)


def test_earlier_runs_count_for_less_than_todays():
    before = from_earlier(Distribution(count=100, p50=10.0, p95=10.0, max=10.0))
    assert before == Known(mean=10.0, deviation=0.0, error=2.0, long=10.0)
    assert from_earlier(Distribution()) is None


# --- a session's own pace


def test_a_pace_knows_nothing_until_a_task_has_ended_then_what_is_left():
    clock = Clock()
    pace = Pace(clock)
    pace.submitted(["sim"] * 6)
    pace.started("a", "sim")
    pace.started("b", "sim")
    assert pace.eta() is None
    clock.now = 10.0
    pace.ended("a", "sim", 10.0)
    pace.ended("b", "sim", 10.0)
    pace.started("c", "sim")
    pace.started("d", "sim")
    assert pace.eta() == Eta(expected=22.5, low=20.0, high=25.0)


def test_earlier_runs_stand_in_until_then_and_a_name_nobody_knows_comes_on_top():
    pace = Pace(Clock())
    pace.submitted(["sim", "sim", "reduce"])
    pace.started("a", "sim")
    eta = pace.eta({"sim": Distribution(count=9, p50=5.0, p95=5.0)})
    assert (eta.expected, eta.at_least) == (10.0, True)


def test_a_look_within_a_second_costs_nothing_and_gives_the_same():
    clock = Clock()
    pace = Pace(clock)
    pace.submitted(["sim"] * 4)
    pace.started("a", "sim")
    pace.ended("a", "sim", 1.0)
    pace.started("b", "sim")
    first = pace.eta()
    pace.submitted(["sim"] * 400)
    clock.now = EVERY_S / 2
    assert pace.eta() is first
    clock.now = EVERY_S
    assert pace.eta().expected > 100 * first.expected


def test_what_is_kept_does_not_grow_with_the_tasks():
    pace = Pace(Clock())
    for n in range(10 * RECENT):
        pace.submitted(["sim"])
        pace.started(str(n), "sim")
        pace.ended(str(n), "sim", 1.0)
    assert (len(pace._recent["sim"]), len(pace._running), pace._left) == (RECENT, 0, {"sim": 0})


def test_a_task_that_is_tried_again_is_still_to_come():
    clock = Clock()
    pace = Pace(clock)
    pace.submitted(["sim", "sim"])
    pace.started("a", "sim")
    pace.ended("a", "sim", 4.0)
    pace.started("b", "sim")
    pace.stopped("b")
    assert pace.eta() is None  # nothing runs
    clock.now = 1.0
    pace.started("b", "sim")
    assert pace.eta().expected == 4.0


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
        Bar(lambda: Counts(submitted=9, completed=3), lambda: eta).text() == "3/9 · about 3 min left (2 to 5)"
    )
    assert Bar(lambda: Counts(submitted=9, completed=9), lambda: eta).text() == "9/9"
    assert Bar(lambda: Counts(submitted=9, completed=3), lambda: None).text() == "3/9"


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
