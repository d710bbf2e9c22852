"""Where a run came from that another tool recorded, as it stands in `run.json`, and what is said when it is
made.
"""

from __future__ import annotations

from msgspec import Struct, field

ELAPSED = "elapsed_s"
"""The metric of an adopted task that has the tool's own duration, where that includes waiting."""


class Adopted(Struct, kw_only=True, frozen=True):
    """What became of a recording. Numbers are of lines, records or files, as the words beside them say."""

    kind: str
    """What it was: `scalable`, `rhapsody`, …"""
    title: str
    """The same in words: `Scalable run directory`."""
    source: str
    """The path it was adopted from."""
    digest: str
    """SHA-256 of the recording: the same one is not adopted twice."""
    kept: dict[str, int] = field(default_factory=dict)
    """What stands in the run as the recording had it."""
    mapped: dict[str, int] = field(default_factory=dict)
    """What stands there as something else, and as what."""
    dropped: dict[str, int] = field(default_factory=dict)
    """What no event has a place for, and why."""
    notes: list[str] = field(default_factory=list)
    """What to know before trusting a figure, in sentences."""
    problems: list[str] = field(default_factory=list)
    """What could not be read, in sentences."""


class Adoption(Adopted, kw_only=True, frozen=True):
    """The same, and the run it became."""

    run_id: str
    path: str
    made: bool
    """False where the recording had been adopted before: nothing was changed then."""
    events: dict[str, int] = field(default_factory=dict)
    """Events of the run by kind; empty where nothing was made."""
