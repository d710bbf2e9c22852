"""What a finding is, and the facts that it is derived from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from flightlog.analyze.limits import FindingLimits
from flightlog.core.time import seconds
from flightlog.core.units import format_percent
from flightlog.store.tables.intervals import merge

if TYPE_CHECKING:
    from flightlog.analyze.devices.results import DeviceReport
    from flightlog.analyze.report.critical_path import CriticalPath
    from flightlog.analyze.report.replay import Changes, Replay
    from flightlog.analyze.report.summary import Summary
    from flightlog.analyze.report.tasks import InFlight
    from flightlog.analyze.report.time_shares import Shares
    from flightlog.store.tables.run_tables import RunTables


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that stands out, and what it cost."""

    kind: str
    seconds: float | None
    """Worker-seconds it took; of wall time where no worker is known; null where that cannot be said."""
    share: float | None
    """Of all worker time, or of the wall time."""
    sentence: str
    """What happened, why, and what to try."""
    evidence: dict[str, Any]
    """The numbers behind it, by name, with their units."""
    where: list[str]
    """Tasks, workers or hosts it is about, the worst first."""
    limits: float | None = None
    """The part of the wall time that ending it could save at most; null where that cannot be said."""
    saves_s: float | None = None
    """Wall time that ending it would save, by a replay of the run without it; null where that cannot be
    said."""
    certainty: Literal["measured", "likely"] = "measured"
    """Whether the cause was measured, or is what the measurements look like."""


class FindingFacts(NamedTuple):
    """What is known of one run: its results so far, and its tables."""

    summary: Summary
    shares: Shares | None
    critical: CriticalPath | None
    in_flight: list[InFlight]
    behind: list[Behind]
    tables: RunTables
    devices: DeviceReport | None = None
    """None where no device memory was recorded."""
    replay: Replay | None = None
    """None where there are no tasks, or too many."""
    planned_workers: int = 0
    """Workers that the session planned with; 0 where that is not known."""
    missing_tasks: int = 0
    """Tasks that `run.json` counted and no file of the run holds."""
    engine_start_s: float = 0.0
    """What the session took to start its engine, and to end it."""
    engine_end_s: float = 0.0
    staffed: float = 1.0
    """The part of the wall time in which any worker was there; 1 where none is known."""

    @property
    def total_s(self) -> float:
        """All worker time, or the wall time; 0 where neither is known."""
        return self.shares.whole.total_s if self.shares is not None else self.wall_s

    @property
    def workers(self) -> int:
        """Workers that there were, or that there could have been had they been needed."""
        return max(self.shares.workers if self.shares is not None else 0, self.planned_workers)

    @property
    def wall_s(self) -> float:
        """The wall time; 0 where it is unknown."""
        start, until = self.tables.window
        return seconds(max(0, until - start)) if start is not None and until is not None else 0.0

    def saved(self, changes: Changes) -> float | None:
        """Wall time that a run under other conditions would save; None where that cannot be said."""
        found = self.replay.saved_by(changes) if self.replay is not None else None
        return None if found is None else min(self.wall_s, seconds(found))

    def of_attempts(self, value: str, where: str = "true", parameters: Any = None) -> dict[int, int]:
        """An SQL expression of `attempt_intervals` in nanoseconds, by the number that the replay has for the
        attempt, where it is known.
        """
        if self.replay is None:
            return {}
        rows = self.tables.execute(
            f"""
            SELECT n, CAST({value} AS BIGINT) AS value
            FROM (SELECT n, task_id, attempt FROM nodes) AS numbers
                JOIN attempt_intervals USING (task_id, attempt)
            WHERE value IS NOT NULL AND ({where})
            """,  # noqa: S608 - ours
            parameters,
        )
        return dict(rows.fetchall())

    def finding(
        self,
        kind: str,
        lost_s: float | None,
        sentence: str,
        evidence: dict[str, Any],
        *,
        where: Sequence[str] = (),
        limits: float | None = None,
        saves_s: float | None = None,
        certainty: Literal["measured", "likely"] = "measured",
    ) -> Finding:
        """A finding that cost `lost_s` seconds, with their share; of the wall time it `limits` that share
        of what workers were there for, unless that is given.
        """
        share = share_of(self, lost_s)
        return Finding(
            kind=kind,
            seconds=lost_s,
            share=share,
            sentence=sentence,
            evidence=evidence,
            where=list(where),
            limits=share * self.staffed if limits is None and share is not None else limits,
            saves_s=saves_s,
            certainty=certainty,
        )


class Symptom(Protocol):
    """Looks at a run for one thing; gives nothing where it is not there or does not matter."""

    def __call__(self, facts: FindingFacts, /) -> Iterable[Finding]:
        """What was found."""
        ...


def split_advice(sentence: str) -> tuple[str, str]:
    """What a finding says, and what it advises to try; the latter is empty where it advises nothing."""
    what, found, advice = sentence.rpartition("; try ")
    return (what, advice) if found else (sentence, "")


def matters(facts: FindingFacts, lost_s: float | None) -> bool:
    """Whether this loss is large enough to be reported."""
    return (
        lost_s is not None
        and lost_s >= FindingLimits.min_seconds
        and lost_s >= FindingLimits.min_share * facts.total_s > 0
    )


def share_of(facts: FindingFacts, lost_s: float | None) -> float | None:
    """The part of all worker time; null where either is unknown.

    So it is where tasks ran side by side for longer than the whole: several seconds of them went into one of
    the clock.
    """
    if lost_s is None or facts.total_s <= 0 or lost_s > facts.total_s * (1 + 1e-9):
        return None
    return min(1.0, lost_s / facts.total_s)


def cost_text(facts: FindingFacts, lost_s: float) -> str:
    """`1.9 worker-hours, 23% of this run,`; the time alone where the share cannot be said."""
    of = "worker-" if facts.shares is not None and facts.shares.basis == "workers" else ""
    number, unit = (
        (lost_s / 3600, "hours")
        if lost_s >= 3600
        else (lost_s / 60, "minutes")
        if lost_s >= 120
        else (lost_s, "seconds")
    )
    text = f"{number:,.1f}" if number >= 0.95 else f"{number:.2g}"
    share = share_of(facts, lost_s)
    return f"{text} {of}{unit}{'' if share is None else f', {format_percent(share)} of this run,'}"


def call(task: str, args: str | None) -> str:
    """`simulate(seed=3)`, of arguments as JSON; the name alone where there are none."""
    found = msgspec.json.decode(args) if args else None
    if not isinstance(found, dict) or not found:
        return task
    inside = ", ".join(
        f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in found.items()
    )
    return f"{task}({inside[:60]}{'…' if len(inside) > 60 else ''})"


_COVERED_IN_GAPS = """
WITH moments AS (
    SELECT component, unnest([since, until]) AS moment, unnest([-1, 1]) AS sign
    FROM gaps WHERE ready AND since < until
)
SELECT coalesce(sum(sign * (covered.before + least(moment, covered.until) - covered.since)), 0)
FROM moments ASOF JOIN {covered} AS covered
    ON moments.component = covered.component AND moments.moment > covered.since
"""
"""How much of the time in which workers were free a table of merged intervals covers."""


def idle_before_retries(facts: FindingFacts) -> float:
    """Seconds in which workers were free, and no task ran or was queued, because tasks that had failed waited
    to be retried; no part of it is the program's.
    """
    tables = facts.tables
    if not tables.scalar("SELECT count(*) FROM retry_waits"):
        return 0.0
    both = (
        "SELECT component, since, until FROM astir UNION ALL SELECT component, since, until FROM retry_waits"
    )
    merge(tables, "astir_or_waiting", "component", both)
    with_waits, without = (
        int(tables.scalar(_COVERED_IN_GAPS.format(covered=covered)))
        for covered in ("astir_or_waiting", "astir")
    )
    return seconds(with_waits - without)


_BEHIND = """
WITH idle AS (
    SELECT lane, since, until, astir - queued AS ns FROM measured
), gap AS (
    SELECT row_number() OVER () AS id, uptimes.worker, idle.since, idle.until, idle.ns
    FROM idle JOIN uptimes USING (lane) WHERE ns > 0
), ended AS ( -- when the last task ended in each gap; null where all went on
    SELECT gap.*, CASE WHEN ends.stopped > gap.since THEN ends.stopped END AS stopped
    FROM gap ASOF LEFT JOIN (SELECT stopped FROM attempt_intervals WHERE began < stopped) AS ends
        ON gap.until >= ends.stopped
), reach AS ( -- up to when those last that have begun
    SELECT began, max(stopped) OVER (ORDER BY began, stopped) AS stopped FROM attempt_intervals
    WHERE began < stopped AND EXISTS (SELECT 1 FROM ended WHERE stopped IS NULL)
), told AS (
    SELECT id, worker, ns, stopped FROM ended WHERE stopped IS NOT NULL
    UNION ALL
    SELECT ended.id, ended.worker, ended.ns, reach.stopped
    FROM (SELECT * FROM ended WHERE stopped IS NULL) AS ended ASOF JOIN reach ON ended.until > reach.began
), last AS ( -- of several that ended at that very moment the longest
    SELECT told.worker, told.ns, attempt_intervals.task, attempt_intervals.task_id, attempt_intervals.attempt,
        attempt_intervals.args, attempt_intervals.began, attempt_intervals.stopped,
        attempt_intervals.state = 'failed' AS failed
    FROM told JOIN attempt_intervals USING (stopped) WHERE attempt_intervals.began < attempt_intervals.stopped
    QUALIFY row_number() OVER (PARTITION BY told.id ORDER BY attempt_intervals.began,
        attempt_intervals.task_id, attempt_intervals.attempt) = 1
), usual AS (
    SELECT task, median(stopped - began) AS usual, count(stopped - began) AS known
    FROM attempt_intervals WHERE state = 'completed' GROUP BY task
)
SELECT last.task, last.task_id, last.attempt, any_value(last.args),
    any_value(last.stopped - last.began) / 1e9 AS lasted_s,
    round_even(any_value(usual.usual), 0) / 1e9 AS usual_s, coalesce(any_value(usual.known), 0) AS known,
    sum(last.ns) / 1e9 AS idle_s, count(DISTINCT last.worker) AS workers, any_value(last.failed)
FROM last LEFT JOIN usual USING (task)
GROUP BY last.task, last.task_id, last.attempt
ORDER BY sum(last.ns) DESC, last.task, last.task_id, last.attempt
"""


class Behind(NamedTuple):
    """One task that others were idle behind: nothing was left to start while it ran, and it ended last.

    Where nothing ended while a worker was idle, as before a worker that was removed too early, it is the task
    that would have held it the longest.
    """

    task: str
    task_id: str
    attempt: int
    args: str | None
    """As JSON."""
    lasted_s: float
    usual_s: float | None
    """The median of completed tasks of its name; None where none completed."""
    known: int
    idle_s: float
    workers: int
    failed: bool
    """It did not end by completing: however long it took, that says nothing of how long it takes."""

    @property
    def is_straggler(self) -> bool:
        """Whether it took twice as long as tasks of its name usually do."""
        return self.usual_s is not None and self.known >= 5 and self.lasted_s >= 2 * self.usual_s


def behind(tables: RunTables, shares: Shares | None) -> list[Behind]:
    """The tasks that workers were idle behind, the costliest first; their idle times add up to
    `idle_behind_s`.
    """
    if shares is None or shares.basis != "workers" or not shares.whole.idle_behind_s:
        return []
    return [Behind(*row) for row in tables.rows(_BEHIND)]
