from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.time import moment, nanoseconds, timestamp_of

times = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2199, 1, 1))


@given(times)
def test_a_timestamp_comes_back_as_it_was(time: datetime) -> None:
    text = f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond:06d}Z"
    when = moment(text)
    assert when == _exact(time)
    assert timestamp_of(when) == text


def _exact(time: datetime) -> int:
    since = time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000


def test_other_forms_of_one_moment_are_one_moment() -> None:
    forms = [
        "2026-05-20T03:52:00Z",
        "2026-05-20T03:52:00.000000Z",
        "2026-05-20T05:52:00+02:00",
        "2026-05-20T03:52:00",
    ]
    assert len({moment(form) for form in forms}) == 1


@pytest.mark.parametrize(
    "text",
    [None, "", "yesterday", "2026-13-01T00:00:00Z", "9999-01-01T00:00:00Z", "2026-05-20T03:52:00.12345xZ"],
)
def test_what_is_no_moment_is_none(text: str | None) -> None:
    assert moment(text) is None


@given(st.floats())
def test_a_duration_of_any_kind_fits_into_64_bits(seconds: float) -> None:
    if seconds == seconds:
        assert 0 <= nanoseconds(seconds) < 1 << 62
