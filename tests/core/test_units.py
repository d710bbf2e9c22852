from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import UsageError
from flightlog.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    parse_age,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", 100),
        ("100B", 100),
        ("10GB", 10_000_000_000),
        ("1.5kB", 1500),
        ("512MiB", 512 * 2**20),
        ("16G", 16 * 2**30),
        ("1.5g", 3 * 2**29),
        (" 2 TiB ", 2 * 2**40),
        ("0", 0),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_size_is_read_in_1024s_unless_it_ends_in_a_plain_b(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "G", "-1G", "1.G", "10 apples", "1e9", "nan", "٣", "1" * 100])
def test_a_size_that_is_not_understood_is_a_usage_error_that_says_what_is(text: str) -> None:
    with pytest.raises(UsageError, match="'512MiB'"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45s", 45.0),
        ("90m", 5400.0),
        ("12h", 43_200.0),
        ("30d", 2_592_000.0),
        ("1w", 604_800.0),
        ("1.5H", 5400.0),
        ("1h 30m", 5400.0),
        ("2m 05s", 125.0),
        ("350 ms", 0.35),
    ],
)
def test_an_age_is_read_in_seconds(text: str, expected: float) -> None:
    assert parse_age(text) == expected


@pytest.mark.parametrize("text", ["", " ", "30", "d", "-1d", "30 days ago", "1m 2h", "1h 1h", "1y"])
def test_an_age_without_a_clear_unit_is_a_usage_error_that_says_what_is_understood(text: str) -> None:
    with pytest.raises(UsageError, match="'30d'"):
        parse_age(text)


@given(st.text(max_size=40))
def test_any_other_text_is_either_understood_or_a_usage_error(text: str) -> None:
    for parse in (parse_size, parse_age):
        try:
            assert math.isfinite(parse(text))
        except UsageError:
            pass


@given(st.integers(0, 2**70))
def test_a_size_written_out_reads_back_within_what_it_shows(n: int) -> None:
    assert parse_size(format_bytes(n)) == pytest.approx(n, rel=0.05, abs=0.5)


@given(st.integers(0, 10**18))
def test_a_size_in_bytes_reads_back_exactly(n: int) -> None:
    assert parse_size(f"{n}") == parse_size(f"{n} B") == n
    assert parse_size(f"{n}GiB") == n * 2**30


@given(st.floats(1e-7, 1e9))
def test_a_duration_written_out_reads_back_within_what_it_shows(seconds: float) -> None:
    assert parse_age(format_duration(seconds)) == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "unknown"),
        (math.nan, "unknown"),
        (0, "0.0s"),
        (3.5e-6, "3.50 µs"),
        (0.00035, "0.35 ms"),
        (0.0042, "4.2 ms"),
        (0.35, "350 ms"),
        (0.99951, "1.0s"),
        (4.2, "4.2s"),
        (45.2, "45.2s"),
        (59.96, "1m 00s"),
        (125, "2m 05s"),
        (3599.7, "1h 00m"),
        (3720, "1h 02m"),
        (86_399, "1d 00h"),
        (3 * 86_400 + 4 * 3600, "3d 04h"),
        (-4.2, "-4.2s"),
    ],
)
def test_a_duration_reads_as_people_say_it(seconds: float | None, expected: str) -> None:
    assert format_duration(seconds) == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (6.2 * 2**30, "6.2 GiB"),
        (2**30 - 1, "1.0 GiB"),
        (-2048, "-2.0 KiB"),
        (math.inf, "unknown"),
    ],
)
def test_a_size_shows_one_decimal_and_its_unit(n: float | None, expected: str) -> None:
    assert format_bytes(n) == expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (None, "unknown"),
        (0, "0%"),
        (0.0001, "<0.1%"),
        (0.005, "0.5%"),
        (0.07, "7%"),
        (0.874, "87%"),
        (0.996, "99.6%"),
        (0.99999, ">99.9%"),
        (1, "100%"),
        (1.5, "150%"),
        (-0.25, "-25%"),
    ],
)
def test_a_share_is_0_percent_only_if_nothing_and_100_only_if_all(
    fraction: float | None, expected: str
) -> None:
    assert format_percent(fraction) == expected


def test_a_count_is_grouped_in_thousands() -> None:
    assert [format_count(n) for n in (None, 0, 1234567, 2.5, 3.0)] == [
        "unknown",
        "0",
        "1,234,567",
        "2.5",
        "3",
    ]


def test_numbers_beyond_all_reason_stay_short():
    assert format_duration(1e300) == "1.16e+295d"
    assert format_duration(-1e300) == "-1.16e+295d"
    assert format_count(10**300) == "1e+300"
    assert format_bytes(1e300) == "8.67e+281 EiB"
    assert format_percent(1e300) == "1e+302%"
    assert format_duration(1e13) == "115740740d 18h"
    assert format_count(10**17) == "100,000,000,000,000,000"
