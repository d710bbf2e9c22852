"""Where the workers of a Dragon engine go, and what it needs to be there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import UsageError
from flightlog.engines.dragon.engine import check_runtime, place_workers

SIZES = st.dictionaries(st.integers(1, 100), st.integers(1, 8), min_size=1, max_size=6)


def test_blocks_fill_one_node_after_the_other_and_spreading_deals_out():
    sizes = {7: 2, 8: 3}
    assert place_workers(sizes, "block", None) == [7, 7, 8, 8, 8]
    assert place_workers(sizes, "spread", None) == [7, 8, 7, 8, 8]
    assert place_workers(sizes, "block", 3) == [7, 7, 8]
    assert place_workers(sizes, "spread", 7) == [7, 8, 7, 8, 8, 7, 8]


@given(sizes=SIZES, policy=st.sampled_from(["block", "spread"]), wanted=st.none() | st.integers(1, 100))
def test_as_many_workers_as_wanted_and_none_too_many_on_a_node_while_they_fit(sizes, policy, wanted):
    placed = place_workers(sizes, policy, wanted)
    assert len(placed) == (sum(sizes.values()) if wanted is None else wanted)
    if len(placed) <= sum(sizes.values()):
        assert all(placed.count(node) <= size for node, size in sizes.items())


def test_other_systems_than_linux_are_told_so():
    with pytest.raises(UsageError) as caught:
        check_runtime("darwin", {})
    assert str(caught.value) == "Dragon runs on Linux alone: choose another provider on this machine"
