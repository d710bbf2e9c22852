"""Ids of spans: those of other tools at W3C's length, and new ones for spans that have none."""

from __future__ import annotations

from typing import Any

from flightlog.adopt.making import RunMaker


def hex_id(value: Any, digits: int) -> str | None:
    """An id of W3C's length: hex without its prefix, with its zeros; None for 0 and for what is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:x}"
    if not isinstance(value, str):
        return None
    bare = value.lower().removeprefix("0x")
    try:
        known = int(bare, 16)
    except ValueError:
        return None
    return f"{known:0{digits}x}" if 0 < known < 16**digits and "_" not in bare else None


def span_id(maker: RunMaker, number: int) -> str:
    """The id of a span that has none: of the recording and the span's place in it, so the same each time."""
    return f"{(int(maker.digest[56:64], 16) << 32 | number + 1) & (2**64 - 1):016x}"
