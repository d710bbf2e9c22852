"""The run of a program that is not recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flightlog.core.settings import DEFAULT_RUNS_DIR
from flightlog.record.span import NOOP, NoopSpan


class NoopRun:
    """Does nothing, keeps nothing, and has the interface of a run."""

    __slots__ = ()

    run_id = "not-recorded"
    path = DEFAULT_RUNS_DIR / run_id
    """Where there is nothing."""
    info = None

    def task(self, _name: str, /, **_args: Any) -> NoopSpan:
        """The no-op span."""
        return NOOP

    def span(self, _name: str, /, **_tags: Any) -> NoopSpan:
        """The no-op span."""
        return NOOP

    def emit(self, _event: object, *_more: object) -> None:
        """Nothing."""

    def event(self, _name: object, /, **_fields: Any) -> None:
        """Nothing."""

    def metric(self, _name: str, _value: float, step: int | None = None) -> None:
        """Nothing."""

    def record_artifact(self, _target: object, **_facts: Any) -> None:
        """Nothing."""

    def subscribe(self, _callback: object, *_events: object, **_options: object) -> Callable[[], None]:
        """Nothing to deliver; gives an unsubscribe that does nothing."""
        return lambda: None
