from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightlog.store.limits import StoreLimits
from flightlog.store.remote.upload import cut, joined_from


def grow(additions: list[int]) -> tuple[list[int], int]:
    """Sizes of the pieces after all additions, and the bytes that were sent for them."""
    sizes: list[int] = []
    sent = 0
    for fresh in additions:
        keep = joined_from(sizes, fresh)
        start, end = sum(sizes[:keep]), sum(sizes) + fresh
        new = [size for _, size in cut(start, end)]
        sizes = sizes[:keep] + new
        sent += sum(new)
    return sizes, sent


@given(st.lists(st.integers(1_000, 100_000), max_size=400))
def test_pieces_hold_all_stay_few_and_each_byte_is_sent_a_few_times_at_most(additions: list[int]) -> None:
    sizes, sent = grow(additions)
    total = sum(additions)
    assert sum(sizes) == total
    assert len(sizes) <= 3 * StoreLimits.joined_pieces + total // (1 << 20)
    assert sent <= 5 * total
    assert all(size <= StoreLimits.max_piece_bytes for size in sizes)


def test_a_day_of_small_additions_is_a_few_dozen_pieces() -> None:
    sizes, sent = grow([2_000] * 20_000)
    assert sum(sizes) == 40_000_000
    assert len(sizes) < 60
    assert sent < 4 * 40_000_000


@given(st.integers(0, 3 * StoreLimits.max_piece_bytes), st.integers(0, 3 * StoreLimits.max_piece_bytes))
def test_cutting_leaves_no_byte_out_and_none_twice(start: int, length: int) -> None:
    pieces = cut(start, start + length)
    assert sum(size for _, size in pieces) == length
    assert [at for at, _ in pieces] == [
        start + number * StoreLimits.max_piece_bytes for number in range(len(pieces))
    ]
