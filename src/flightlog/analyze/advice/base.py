"""What a piece of advice is: what to change, why, and what it saves."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Advice(Struct, frozen=True, kw_only=True):
    """One thing to change, with its evidence; nothing is advised without any."""

    kind: str
    """`resources`, `workers`, `threads`, `chunks`, `cache`, `retries` or `walltime`."""
    about: str
    """The task, component or target it is about."""
    sentence: str
    """What to change and why, in plain words."""
    evidence: dict[str, Any]
    """The numbers behind it, by name, with their units; how much history there is among them."""
    gain: str | None
    """What it would give, in words with a number; null where that cannot be said."""
    gain_s: float | None = None
    """The same in worker-seconds for each run; null where it is something else."""
    changes: dict[str, str] = {}
    """Values to set, by path in the manifest: `components.sim.memory` to `8GB`."""
    only_if: str | None = None
    """What has to hold for it, where no record can tell and a wrong guess would change results; null where
    nothing has to."""
