"""Requests as a person would write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.advice.base import (
    amount_text,
    cpus_text,
    is_binary,
    memory_text,
    number_text,
    round_cpus,
    round_memory,
)
from flightlog.core.units import parse_size


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        (6.21e9, "6.3GB"),
        (1.234e9, "1.24GB"),
        (819.3e6, "820MB"),
        (125.9e6, "126MB"),
        (48.7e9, "49GB"),
        (1, "1MB"),
    ],
)
def test_memory_is_rounded_up_to_a_figure_people_write(needed: float, text: str) -> None:
    assert memory_text(round_memory(needed)) == text


@pytest.mark.parametrize(
    ("needed", "text"),
    [(6.21 * 2**30, "6.25G"), (1.1 * 2**30, "1.125G"), (500.2 * 2**20, "504M"), (100 * 2**30, "100G")],
)
def test_requests_in_1024s_stay_in_1024s(needed: float, text: str) -> None:
    assert memory_text(round_memory(needed, binary=True)) == text


@given(st.floats(1, 1e15), st.booleans())
def test_rounding_never_goes_below_what_is_needed_nor_far_above(needed: float, binary: bool) -> None:
    rounded = round_memory(needed, binary=binary)
    assert needed <= rounded <= max(needed * 1.03, needed + 2**20)


@given(st.integers(1, 10**15), st.booleans())
def test_a_request_reads_back_as_the_same_bytes(needed: int, binary: bool) -> None:
    rounded = round_memory(needed, binary=binary)
    assert parse_size(memory_text(rounded)) == rounded
    assert parse_size(memory_text(needed)) == needed


def test_cpus_are_whole_and_half_a_one_is_for_tasks_that_wait() -> None:
    assert [round_cpus(used) for used in (0.05, 0.3, 0.31, 0.99, 1.04, 1.06, 1.8, 3.2, 16.0)] == [
        0.5,
        0.5,
        1,
        1,
        1,
        2,
        2,
        4,
        16,
    ]


def test_sizes_in_1024s_are_told_from_those_in_1000s() -> None:
    assert [is_binary(size) for size in (16 * 2**30, 512 * 2**20, 16 * 10**9, 820 * 10**6, 12345, None)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_amounts_are_short_to_read() -> None:
    assert [amount_text(size) for size in (12, 1500, 819.3e6, 6.21e9, 48.71e9, 999.96e9, 2e18)] == [
        "12 B",
        "1.5 kB",
        "819 MB",
        "6.2 GB",
        "48.7 GB",
        "1.0 TB",
        "2000 PB",
    ]
    assert amount_text(6.2 * 2**30, binary=True) == "6.2 GiB"
    assert [cpus_text(cpus) for cpus in (0.5, 1, 2)] == ["0.5 CPUs", "1 CPU", "2 CPUs"]
    assert [number_text(value) for value in (4000.0, 0.25, "rk4")] == ["4,000", "0.25", "rk4"]
