"""What a rule looks at, and what it says: the contract between the rules and those who ask them.

A rule stands for one class of failure. It is given a case, and yields signs that speak for its class (or,
with a negative weight, against it). Signs are weighed, never counted by who comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from flightlog.analyze.diagnosis.text import ParsedText


class Source(StrEnum):
    """Where a sign comes from, the most trustworthy first."""

    kernel = "kernel"
    """The kernel or a cgroup: `oom_kill` rose."""
    scheduler = "scheduler"
    """A batch system or an engine: `TIMEOUT`, `KilledWorker`."""
    exit = "exit"
    """Exit code or signal."""
    exception = "exception"
    """Type of an exception, or of one in its chain of causes, and `errno`."""
    resources = "resources"
    """The curve before the end: memory that climbs to the limit."""
    neighbours = "neighbours"
    """What else ran or failed there at that moment."""
    words = "words"
    """What a text says: the weakest."""


class Sign(Struct, frozen=True, kw_only=True):
    """One piece of evidence."""

    source: Source
    weight: float
    """How much it speaks for the class: 1 hint, 3 strong, 6 proof; negative speaks against it."""
    text: str
    """The line or fact as the user is shown it."""


class Case(Struct, frozen=True, kw_only=True):
    """One failure to be explained: its text as read, and what the record knows beside it."""

    reading: ParsedText
    facts: RunFacts | None = None
    """None where there is a text alone."""


class Rule(Protocol):
    """Speaks for one class; found by the entry point group `flightlog.rules`, under the name of the class."""

    def signs(self, case: Case, /) -> Iterable[Sign]:
        """The evidence for this class in the case; nothing where there is none."""
        ...

    def suggestions(self, case: Case, /) -> list[str]:
        """What to do about it, the most useful first, in terms of the user's own manifest and code where
        known.
        """
        ...


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What a failure most likely is."""

    failure_class: str
    """One of the classes, a site's own, or `unknown`."""
    confidence: float
    """0 to 1: how likely the class is right; below 0.5 nobody should rely on it. `unknown` is always
    below."""
    evidence: list[str]
    """The lines and facts that speak for it, the strongest first."""
    suggestions: list[str]
    also: dict[str, float] = {}
    """Other classes that some evidence speaks for, with their confidence, the likeliest first."""
    problems: list[str] = []
    """Rules that could not be used, and why."""


CRASHES = {
    "SIGSEGV": "memory that it may not touch",
    "SIGILL": "an instruction that the CPU does not know",
    "SIGFPE": "a division that the CPU refused",
}
"""Signals that a process brings upon itself."""


class RunFacts(Struct, frozen=True, kw_only=True):
    """Facts from events, samples and accounting, about one failed attempt, worker, command or run."""

    scope: str | None = None
    """What failed: `task`, `command`, `worker`, `job`, `run`; or, where nothing failed of it, `metric` (a
    value) and `device`."""
    run_status: str | None = None
    """How the run ended: `completed`, `failed`, `interrupted`, `crashed` (its process
    exited unexpectedly), …"""
    task: str | None = None
    component: str | None = None
    worker: str | None = None
    host: str | None = None
    in_job: bool = False
    """Whether the run, or a worker of it, lived in a job of a batch system."""
    exit_code: int | None = None
    signal: str | None = None
    kernel_oom: bool | None = None
    """The kernel killed for memory in this cgroup, or on this host, at that moment."""
    cgroup_oom_kills: int | None = None
    job_state: str | None = None
    """The batch system's word: `TIMEOUT`, `OUT_OF_MEMORY`, `PREEMPTED`, `NODE_FAIL`, …"""
    worker_lost_reason: str | None = None
    """What the engine and the kernel say of a worker that went away; None where no worker did."""
    duration_s: float | None = None
    """Execution of the attempt; of a job, a command or the run, its whole life."""
    timed_out: bool = False
    """Flightlog ended the attempt at the limit that its task has, `timeout_s`: `timeout`, and not
    `time_limit`."""
    timeout_s: float | None = None
    """The task's own limit in the manifest."""
    walltime_s: float | None = None
    """The limit of the batch job or of the component's workers."""
    requested_memory_bytes: int | None = None
    worker_memory_bytes: int | None = None
    """What the worker was given and was ended for exceeding, by its engine's own watch; None otherwise."""
    memory_limit_bytes: int | None = None
    """The least limit that applied: request, worker, cgroup or rlimit, or else the host's memory."""
    last_rss_bytes: int | None = None
    """The last sample before the end, of the smallest scope there is: task, worker, or the run's cgroup."""
    peak_rss_bytes: int | None = None
    memory_scope: str | None = None
    """Whose memory the last sample and the slope are: `task`, `worker`, `cgroup` or `node`."""
    memory_slope_bytes_per_s: float | None = None
    """Over the last samples before the end; positive is climbing."""
    node_memory_used_percent: float | None = None
    gpu_memory_used_percent: float | None = None
    success_peaks_bytes: tuple[int, ...] = ()
    """Largest memory of attempts of the same task that succeeded, the largest first."""
    neighbours: tuple[str, ...] = ()
    """Names of what else ran on the host then."""
    lost_with: int = 0
    """Other tasks that ended with the same worker or host."""
    hosts_workers_lost: int = 0
    """Worker processes of the same host that went away within seconds, this one included."""
    cancelled_by: str | None = None
    """Who or what gave it up, in the record's words: `SIGINT`, `the session was closed`, …"""
    nonfinite: tuple[str, ...] = ()
    """Metrics that had become NaN or infinite before the end, such as `loss`."""
    device_oom: tuple[str, ...] = ()
    """What the device's allocator said, of each bundle that running out of device memory left in the run."""

    @property
    def was_killed(self) -> bool:
        """Whether it ended by a signal that cannot be caught, or unexpectedly and without a reason."""
        silent = self.exit_code is None and self.signal is None
        return (
            self.signal == "SIGKILL"
            or self.exit_code in (137, -9)
            or (self.scope == "run" and self.run_status == "crashed")
            or (self.worker_lost_reason is not None and silent)
        )

    @property
    def crashed_in(self) -> str | None:
        """What a worker's process did to be ended by the kernel; None where it was not."""
        return CRASHES.get(self.signal or "") if self.worker_lost_reason is not None else None
