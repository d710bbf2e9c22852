"""Timestamps from the monotonic clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from flightlog.record.clock import Clock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
near = st.integers(min_value=-3_000_000_000, max_value=3_000_000_000)
far = st.integers(min_value=-(10**17), max_value=10**18)


@given(st.lists(near | far, min_size=1, max_size=30), st.integers(min_value=0, max_value=10**9))
def test_timestamps_are_right_in_whatever_order_moments_come(moments: list[int], around: int) -> None:
    clock = Clock()
    for moment in moments:
        moment += around
        us = (moment + clock.anchor_ns) // 1000
        expected = (EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert clock.iso(moment) == expected
