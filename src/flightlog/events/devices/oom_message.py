"""What a framework's message says of an allocation that failed."""

from __future__ import annotations

import re

from msgspec import Struct


class Request(Struct, frozen=True, kw_only=True):
    """The figures of a message, in bytes; None each where it does not say."""

    tried_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    process_bytes: int | None = None
    """In use by the process on the device, the allocator's and all else."""
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None
    """Reserved by the allocator and not handed out."""
    other_processes_bytes: int | None = None


_UNITS = {"b": 1, "bytes": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = r"(\d+(?:\.\d+)?)\s*(bytes|[KMGT]?i?B)\b"


def _size(before: str, after: str = "") -> re.Pattern[str]:
    return re.compile(before + _SIZE + after, re.IGNORECASE)


_SAID = {
    "tried_bytes": (
        _size(r"tried to allocate "),
        _size(r"(?:trying|attempting) to allocate "),
        _size(r"failed to allocate (?:request for )?"),
    ),
    "total_bytes": (_size(r"total capac(?:i?ty) of "), _size("", " total capacity"), _size("max allowed: ")),
    "free_bytes": (_size("of which ", " is free"), _size("", " free[;)]")),
    "process_bytes": (_size("this process has ", " memory in use"),),
    "allocated_bytes": (
        _size("", " is allocated by PyTorch"),
        _size("", " already allocated"),
        _size("MPS allocated: "),
    ),
    "unallocated_bytes": (_size("", " is reserved by PyTorch but unallocated"),),
}
_RESERVED = _size("", " reserved in total by PyTorch")
_OTHERS = _size(r"\bProcess \d+ has ", " memory in use")


def parse_request(message: str | None) -> Request:
    """The figures of a message, in bytes; None each where it does not say.

    Reads PyTorch's messages of old and new (`GiB`, and `GB` of Metal, count in 1024s), and the size that JAX
    and TensorFlow name. Figures have two decimals there, and so are good to a hundredth of their unit.
    """
    if not message:
        return Request()
    found = {name: _first(patterns, message) for name, patterns in _SAID.items()}
    held, allocated = _first((_RESERVED,), message), found["allocated_bytes"]
    if found["unallocated_bytes"] is None and held is not None and allocated is not None:
        found["unallocated_bytes"] = max(0, held - allocated)
    others = [_bytes(*match) for match in _OTHERS.findall(message)]
    return Request(**found, other_processes_bytes=sum(others) if others else None)


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    matches = (pattern.search(message) for pattern in patterns)
    return next((_bytes(match[1], match[2]) for match in matches if match), None)


def _bytes(number: str, unit: str) -> int:
    whole, _, decimals = number.partition(".")
    scale: int = 10 ** len(decimals)
    factor = 1 if unit.lower() == "bytes" else _UNITS[unit[0].lower()]
    return int(whole + decimals) * factor // scale
