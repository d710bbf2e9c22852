"""Pauses between attempts double up to their limit."""

from __future__ import annotations

import random
from itertools import islice

from flightlog.core.retry import delay_s, delays_s


def test_each_pause_is_twice_as_long_up_to_the_limit():
    assert [*islice(delays_s(0.5, 3.0), 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert [delay_s(failures, 0.5, 3.0) for failures in (1, 2, 3, 4, 10**6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_spreads_each_pause_around_its_length():
    for pause, exact in zip(islice(delays_s(1.0, 8.0, jitter=0.5), 6), (1, 2, 4, 8, 8, 8), strict=True):
        assert 0.5 * exact <= pause <= 1.5 * exact


def test_jitter_leaves_the_random_numbers_of_the_program_alone():
    before = random.getstate()
    assert len([*islice(delays_s(1.0, 8.0, jitter=0.5), 3)]) == 3
    assert random.getstate() == before
