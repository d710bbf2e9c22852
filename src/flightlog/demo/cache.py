"""A cache of deterministic solutions in a folder that several processes share, its lookups recorded."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec

from flightlog.demo.sir import MeanField, Setting, mean_field
from flightlog.events import CacheLookup
from flightlog.record.active import current_run
from flightlog.record.span import current_span


class Solved(msgspec.Struct, frozen=True):
    """A solution, and what it cost to make."""

    solution: MeanField
    made_in_s: float


def solve(setting: Setting, folder: Path) -> MeanField:
    """The deterministic solution, from the folder where it is there, else computed and left there."""
    began = time.perf_counter()
    key = hashlib.sha256(msgspec.json.encode(setting)).hexdigest()[:16]
    file = folder / f"{key}.json"
    found = _read(file)
    looked_s = time.perf_counter() - began
    if found is not None:
        _record("hit", key, looked_s, saved_s=found.made_in_s, size_bytes=file.stat().st_size)
        return found.solution
    _record("miss", key, looked_s, reason="not computed before")
    began = time.perf_counter()
    made = Solved(mean_field(setting), time.perf_counter() - began)
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(made))
    draft.replace(file)  # at once: another process reads all of it or none
    return made.solution


def _read(file: Path) -> Solved | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Solved)
    except FileNotFoundError:
        return None


def _record(
    result: str, key: str, looked_s: float, *, reason: str | None = None, saved_s: float | None = None,
    size_bytes: int | None = None,
) -> None:  # fmt: skip
    run = current_run()
    if run is not None:
        run.emit(
            CacheLookup(
                task="mean_field", result="hit" if result == "hit" else "miss", key=key, reason=reason,
                duration_s=looked_s, saved_s=saved_s, size_bytes=size_bytes,
                span_id=current_span().span_id or None,
            )
        )  # fmt: skip
