"""How a growing file is cut into objects that are never rewritten, and stay few."""

from __future__ import annotations

from collections.abc import Sequence

PIECE_BYTES = 32 << 20
"""The largest piece."""
FAN = 16
"""So many pieces of about one size are joined into one, by sending their bytes again from here."""
_SIZES = (16 << 10, 256 << 10, 4 << 20)


def joined_from(sizes: Sequence[int], fresh: int) -> int:
    """How many of the pieces to keep, where `fresh` bytes are new; the rest is sent again together with
    these.

    Small pieces are joined when there are `FAN` of them, then those, and so on up to the largest of `_SIZES`:
    each byte is sent a few times at the most, and a file has a few dozen pieces beside the large ones,
    however often it was sent.
    """
    keep, size = len(sizes), fresh
    for limit in _SIZES:
        first = keep
        while first > 0 and sizes[first - 1] < limit:
            first -= 1
        if size >= limit or keep - first + 1 < FAN:
            break
        size += sum(sizes[first:keep])
        keep = first
    return keep


def cut(start: int, end: int) -> list[tuple[int, int]]:
    """Bytes from `start` to `end` as pieces: where each begins, and how long it is."""
    return [(at, min(PIECE_BYTES, end - at)) for at in range(start, end, PIECE_BYTES)]
