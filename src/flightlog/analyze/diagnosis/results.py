"""What a diagnosis of a run says: its causes, root causes first, each with evidence, remedy and check."""

from __future__ import annotations

from msgspec import Struct

from flightlog.core.displayed import DisplayedResult
from flightlog.events.base import Json


class Evidence(Struct, frozen=True, kw_only=True):
    """One fact that speaks for the class, and where it stands in the run."""

    text: str
    source: str
    """`kernel`, `scheduler`, `exit`, `exception`, `resources`, `neighbours` or `words`: how much it is to be
    trusted."""
    file: str | None = None
    """File of the run that holds it, such as `workers.jsonl`; null where it follows from several."""
    event: str | None = None
    """Kind of the event, such as `worker_lost`."""
    time: str | None = None
    """Its timestamp: ISO 8601, UTC."""


class CauseExample(Struct, frozen=True, kw_only=True):
    """The earliest failure of a cause."""

    task: str | None
    task_id: str | None
    attempt: int | None
    args: Json | None
    worker: str | None
    host: str | None
    error_type: str | None
    message: str | None
    frame: str | None
    """Where it came from, `File "model.py", line 7, in step`; null where no traceback was recorded."""


class Explained(Struct, frozen=True, kw_only=True):
    """What else ended because of a cause."""

    lost_tasks: int = 0
    """Attempts that ended with the worker, host or job that is the cause."""
    dependents: int = 0
    """Tasks that failed, or were given up, because one that they depend on had failed."""
    cancelled: int = 0
    """Tasks that were given up when the run ended of it."""
    in_flight: int = 0
    """Attempts without an end: they ran when the run's process went away."""
    at_that_moment: int = 0
    """Failures without a cause of their own, on the same host within seconds."""

    @property
    def count(self) -> int:
        """All of them."""
        return self.lost_tasks + self.dependents + self.cancelled + self.in_flight + self.at_that_moment


class Cause(Struct, frozen=True, kw_only=True):
    """Failures with one cause, and what they most likely are."""

    failure_class: str
    """One of the classes, a site's own, or `unknown`."""
    confidence: float
    """0 to 1: how likely the class is right; below 0.5 nobody should rely on it."""
    certainty: str
    """The confidence in words: `very likely`, `likely`, `possible`, `a guess` or `unknown`."""
    scope: str
    """What failed: `task`, `command`, `worker`, `job`, `run`, or where nothing failed of it `metric` (a
    value) and `device`."""
    headline: str
    """What happened, in a line."""
    count: int
    """Failures with this cause; of workers, those that were lost."""
    first: str | None
    last: str | None
    tasks: dict[str, int]
    """How many failed attempts, by name of the task (`sim` of `sim[3]`), the most frequent first."""
    workers: dict[str, int]
    hosts: list[str]
    recovered: int
    """Tasks of it that completed in a later attempt."""
    failed: int
    """Tasks of it that completed in none."""
    explains: Explained
    evidence: list[Evidence]
    """The strongest first."""
    suggestions: list[str]
    """What to do, the most useful first, in terms of the manifest where that says anything about it."""
    checks: list[str]
    """Commands that show the evidence, as they are to be typed."""
    missing: list[str]
    """What was not recorded and would have told more; what to do about that."""
    also: dict[str, float]
    """Other classes that some evidence speaks for, with their confidence."""
    example: CauseExample | None
    fingerprint: str | None


class RunDiagnosis(DisplayedResult, Struct, frozen=True, kw_only=True):
    """Why a run, or tasks in it, failed. The same files give the same diagnosis."""

    run_id: str
    status: str
    answer: str
    """The diagnosis in a sentence."""
    failures: int
    """Failed attempts, commands, workers' ends and runs' ends in the record, those that were retried
    included."""
    tasks_failed: int
    """Tasks that failed for good."""
    recovered: int
    """Tasks that failed and completed in a later attempt."""
    causes: list[Cause]
    """Root causes first: that which explains most stands above; those that retries mended stand last."""
    more_causes: int
    """How many rarer causes are not listed."""
    problems: list[str]
    """What is wrong with the record itself, as far as it touches the diagnosis."""
