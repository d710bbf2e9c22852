"""The threads of an engine on Dragon take turns in asking, and none waits for ever for an answer that was
lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from flightlog.engines.dragon.engine import one_at_a_time, wake_who_waits


class OneThatNeverAnswers:
    """Holds the turn in a thread of its own until it is let go."""

    def __init__(self) -> None:
        self._asked, self.answered = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> OneThatNeverAnswers:
        self._thread.start()
        self._asked.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.answered.set()
        self._thread.join()

    def _ask(self) -> None:
        with one_at_a_time():
            self._asked.set()
            self.answered.wait()


def test_threads_ask_one_after_the_other():
    inside: list[int] = []
    most: list[int] = []

    def ask(number: int) -> None:
        with one_at_a_time(60.0):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(400)))
    assert most == [1] * 400


def test_a_question_may_ask_another_in_its_turn():
    with one_at_a_time(0.0), one_at_a_time(0.0):
        pass
    with ThreadPoolExecutor(1) as other:
        other.submit(wake_who_waits, None, 0.0).result()  # the turn is free again: nothing is asked


def test_one_that_has_waited_long_for_its_turn_asks_all_the_same_and_leaves_the_turn_where_it_is():
    with OneThatNeverAnswers() as other:
        for _ in range(2):
            with one_at_a_time(0.0):
                assert not other.answered.is_set()
    with ThreadPoolExecutor(1) as third:
        third.submit(wake_who_waits, None, 0.0).result()


def test_one_that_waits_long_for_an_answer_is_woken_by_another_question():
    asked: list[str] = []
    with OneThatNeverAnswers():
        wake_who_waits(lambda: asked.append("anything"), 0.0)
    wake_who_waits(lambda: asked.append("nobody waits any more"), 0.0)
    assert asked == ["anything"]
