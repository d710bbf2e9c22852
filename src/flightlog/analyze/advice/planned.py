"""What a run's manifest had said, as far as advice changes it: from the plan that the run keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.documents import read_document


class PlannedTask(Struct, frozen=True):
    """How tasks of a name were run; None is "not said"."""

    component: str | None = None
    retries: int | None = None
    timeout_s: float | None = None
    cache: Any = None
    """A switch, or a table with `ttl_s` and others."""
    outputs: tuple[str, ...] = ()


class PlannedComponent(Struct, frozen=True):
    """What its workers were given."""

    walltime_s: float | None = None


class Planned(Struct, frozen=True):
    """The plan of a run; empty where it was made without a manifest, or its plan cannot be read."""

    target: str | None = None
    provider: str | None = None
    options: dict[str, Any] = {}
    """The provider's own, sizes in bytes and durations in seconds."""
    tasks: dict[str, PlannedTask] = {}
    components: dict[str, PlannedComponent] = {}

    def whole(self, option: str) -> int | None:
        """An option that is a whole number; None where it is not said."""
        value = self.options.get(option)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def task(self, name: str) -> PlannedTask:
        """What was said of a task; nothing where it is not named."""
        return self.tasks.get(name, PlannedTask())


def read_plan(run: Path) -> Planned:
    """The plan in a run's folder; fields of another type than expected are passed over."""
    return read_document(run / layout.PLAN, Planned).value or Planned()
