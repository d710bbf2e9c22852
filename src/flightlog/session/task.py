"""One task of a session, from its submission to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flightlog.engines.contract import Work
from flightlog.session.futures import TaskFuture
from flightlog.session.preparation import Preparation, prepared


class Task:
    """What the session knows of one task. `attempt`, `held` and `met` change under the tracker's lock
    alone.
    """

    __slots__ = (
        "args",
        "args_digest",
        "attempt",
        "call",
        "component",
        "depends_on",
        "future",
        "given_up",
        "held",
        "met",
        "name",
        "parent_id",
        "place",
        "preparation",
        "retries",
        "span_id",
        "submitted",
        "task_id",
        "timeout_s",
        "waits_for",
    )

    def __init__(
        self,
        *,
        task_id: str,
        span_id: str,
        name: str,
        call: bytes,
        args: dict[str, Any],
        args_digest: str | None,
        submitted: float,
        place: dict[str, str],
        parent_id: str | None,
        component: str | None,
        retries: int,
        timeout_s: float | None,
        future: TaskFuture,
        depends_on: Sequence[TaskFuture],
        waits_for: Sequence[TaskFuture],
        preparation: Preparation | None = None,
    ) -> None:
        self.task_id, self.span_id, self.name, self.call = task_id, span_id, name, call
        self.args, self.args_digest, self.submitted = args, args_digest, submitted
        self.place, self.parent_id, self.component = place, parent_id, component
        self.retries, self.timeout_s, self.future = retries, timeout_s, future
        self.depends_on = [one.task_id for one in depends_on]
        self.waits_for = tuple(waits_for)
        self.preparation = preparation
        self.met = 0
        """How many of `waits_for` have completed."""
        self.attempt = 1
        self.held = True
        """The session has it, not the engine: it waits for other tasks, or for its next attempt."""
        self.given_up: str | None = None
        """Why it was cancelled, once its engine has agreed to end it."""

    def work(self) -> Work:
        """The present attempt, ready to travel."""
        return Work(
            task_id=self.task_id,
            task=self.name,
            attempt=self.attempt,
            call=self.call if self.preparation is None else prepared(self.preparation, self.call),
            args=self.args,
            args_bytes=len(self.call),
            submitted=self.submitted,
            place=self.place,
            span_id=self.span_id,
            component=self.component,
            timeout_s=self.timeout_s,
        )
