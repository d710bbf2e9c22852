"""Why a run failed: its failures grouped, root causes first, each with class, evidence, remedy and check.

Failures that another cause explains (a full disk, a job at its time limit) are attributed to it. Silent
failures are causes too: values that became NaN, and device memory that ran out in a run in which nothing
failed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.analyze.diagnosis.base import Case, RunFacts
from flightlog.analyze.diagnosis.case import GatheredCase, gather
from flightlog.analyze.diagnosis.failures import (
    MOST_CAUSES,
    Group,
    GroupCounts,
    Incident,
    Nonfinite,
    RunEnd,
    WorkerHosts,
    collect,
    explain_dependents,
    find_groups,
    lay_to_incidents,
    read_nonfinite,
    read_workers,
    run_end,
)
from flightlog.analyze.diagnosis.reading import ParsedText
from flightlog.analyze.diagnosis.results import Cause, CauseExample, Evidence, Explained, RunDiagnosis
from flightlog.analyze.diagnosis.scoring import load_rules, weigh
from flightlog.analyze.diagnosis.wording import (
    certainty,
    checks,
    evidence,
    frame,
    headline,
    missing,
    what_to_do,
)
from flightlog.core.errors import DamagedRun
from flightlog.core.settings import expanded
from flightlog.core.text import plural
from flightlog.store import layout
from flightlog.store.liveness import unix_time
from flightlog.store.read.completeness import reasons_text
from flightlog.store.runs_folder import place
from flightlog.store.tables.connection import path_text

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.case import Plans
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables

LARGEST_CHECKED = 32 << 20
"""Bytes of a record up to which it is checked for lines that are missing."""
NEAR_S = 60.0
"""A bundle of a device that ran out of memory belongs to failures that are no further off."""


def diagnose(run: Run | str | os.PathLike[str] = "latest") -> RunDiagnosis:
    """Why a run, or tasks in it, failed; a run in any state, also one that is damaged or without failures.

    `run` is an opened run, or what `open_run` takes. Reads each stream a few times and keeps a few hundred
    bytes of every ended attempt. Raises `RunNotFound`, `AmbiguousRun`, and `DamagedRun` where nothing can be
    read.
    """
    from flightlog.store.completing import open_run
    from flightlog.store.run import Run

    opened = run if isinstance(run, Run) else open_run(run)
    return _Diagnosing(opened).result()


class _Diagnosing:
    """One diagnosis, while the run's tables are open."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ref = _reference(run)
        self._problems = [*run.problems, *load_rules().problems]
        self._incomplete = False
        self._workers: WorkerHosts = read_workers(run)
        self._ends: dict[str, RunEnd] = {}
        self._bundles: list[tuple[float | None, str, str]] = []

    def result(self) -> RunDiagnosis:
        from flightlog.store.tables.run_tables import open_tables

        try:
            with open_tables([self._run]) as connection:
                return self._result(connection)
        except OSError as error:
            raise DamagedRun(f"{self._run.path} cannot be read: {error.strerror or error}") from error

    def _result(self, connection: RunTables) -> RunDiagnosis:
        from flightlog.analyze.diagnosis.case import (
            FailureContext,
            GroupPlace,
            context_around,
            read_plans,
            read_successes,
        )

        collect(connection)
        lay_to_incidents(connection, self._workers)
        explain_dependents(connection)
        groups, counts = find_groups(connection)
        values = read_nonfinite(connection)
        self._read_bundles()
        incidents = self._join_incidents(groups)
        ended = run_end(self._run, connection, told=bool(groups) or self._run.info.status != "failed")
        if ended is not None:
            self._add_end(ended, groups)
        home = self._run.info.host
        places = [
            GroupPlace(
                number,
                group.at,
                self._host(group, incidents.get(group.root)),
                self._worker(group, incidents.get(group.root)),
                group.task_id,
            )
            for number, group in enumerate(groups)
            if group.at is not None
        ]
        around = context_around(connection, places, self._workers.hosts, home)
        plans = read_plans(self._run, connection, {group.task_id for group in groups if group.task_id})
        successes = read_successes(connection, {group.task for group in groups if group.task})
        given_up = dict(connection.execute("SELECT root, number FROM given_up").fetchall())
        causes = []
        for number, group in enumerate(groups):
            found = gather(
                self._run,
                group,
                incidents.get(group.root),
                around.get(number, FailureContext()),
                self._workers,
                plans,
                successes.get(group.task or ""),
                values,
                self._bundles_near(group),
                self._cancelled_by(group),
            )
            causes.append(self._cause(found, plans, given_up.get(group.root, 0)))
        causes += of_values(values, causes, self._ref)
        causes += of_bundles(self._bundles, causes, self._ref)
        causes = lay_cancelled(causes, connection.execute(CANCELLED).fetchall())
        if plans.problem:
            self._problems.append(plans.problem)
        self._count_damage()
        return self._put_together(in_order(fold(causes)), counts, connection)

    def _put_together(self, causes: list[Cause], counts: GroupCounts, connection: RunTables) -> RunDiagnosis:
        [(completed, cancelled)] = connection.execute(
            "SELECT count(*) FILTER (event = 'task_completed'), count(*) FILTER (event = 'task_cancelled') "
            "FROM ended"
        ).fetchall()
        return RunDiagnosis(
            run_id=self._run.run_id,
            status=self._run.status,
            answer=answer(
                self._run.status, causes, counts, completed, cancelled, incomplete=self._incomplete
            ),
            failures=counts.mishaps + len(self._ends),
            tasks_failed=counts.tasks_failed,
            recovered=counts.recovered,
            causes=causes,
            more_causes=max(0, counts.roots - MOST_CAUSES),
            problems=list(dict.fromkeys(self._problems)),
        )

    def _cause(self, found: GatheredCase, plans: Plans, given_up: int) -> Cause:
        group, end = found.group, self._ends.get(found.group.root)
        judged, signs = weigh(found.case)
        self._problems += judged.problems
        unaccounted = [
            job.array_job_id or job.job_id
            for job in self._workers.started
            if job.worker not in self._workers.jobs
        ]
        scope = group.scope
        if found.incident is not None:
            scope = "job" if found.incident.jobs else "worker"
        return Cause(
            failure_class=judged.failure_class,
            confidence=judged.confidence,
            certainty=certainty(judged.failure_class, judged.confidence),
            scope=scope,
            headline=headline(found),
            count=found.incident.processes or len(found.incident.jobs) if found.incident else group.count,
            first=group.first,
            last=group.last,
            tasks=group.tasks,
            workers=group.workers,
            hosts=sorted(
                {host for name in group.workers if (host := self._workers.hosts.get(name))}
                | ({found.host} if found.host else set())
            ),
            recovered=group.recovered,
            failed=group.failed,
            explains=Explained(
                lost_tasks=group.lost_tasks if found.incident is not None else 0,
                dependents=group.dependents + given_up,
                in_flight=end.in_flight if end is not None else 0,
            ),
            evidence=evidence(found, signs, judged.failure_class),
            suggestions=what_to_do(found, judged.failure_class, plans, judged.suggestions),
            checks=checks(found, judged.failure_class, self._ref, self._run.info.project),
            missing=missing(found, judged.failure_class, unaccounted),
            also=judged.also,
            example=_example(found),
            fingerprint=group.fingerprint,
        )

    def _join_incidents(self, groups: list[Group]) -> dict[str, Incident]:
        """The incidents by root; one that no failure belongs to gets a group of its own."""
        found = {incident.key: incident for incident in self._workers.incidents}
        known = {group.root for group in groups}
        for key, incident in found.items():
            if key in known:
                continue
            times = [lost.event.timestamp for lost in incident.losses] + [
                job.timestamp for job in incident.jobs
            ]
            at = next((lost.at for lost in incident.losses if lost.at is not None), None)
            groups.append(
                Group(
                    root=key,
                    incident=key,
                    count=0,
                    dependents=0,
                    first=min(times),
                    last=max(times),
                    at=at,
                    last_at=at,
                    scope="worker",
                    workers={lost.event.worker: 1 for lost in incident.losses[:20]},
                )
            )
        return found

    def _add_end(self, ended: RunEnd, groups: list[Group]) -> None:
        """The run's own end: a group of its own, or what the end of its job explains."""
        states = {f"job {job.state}" for job in self._workers.run_jobs}
        above = next(
            (group for group in groups if group.incident in states and self._run.status == "crashed"), None
        )
        if above is None:
            groups.append(ended.group)
        self._ends[(above or ended.group).root] = ended

    def _worker(self, group: Group, incident: Incident | None) -> str | None:
        return group.worker or (incident.losses[0].event.worker if incident and incident.losses else None)

    def _host(self, group: Group, incident: Incident | None) -> str | None:
        return self._workers.hosts.get(self._worker(group, incident) or "") or self._run.info.host or None

    def _cancelled_by(self, group: Group) -> str | None:
        end = self._ends.get(group.root)
        return end.cancelled_by if end is not None else None

    def _read_bundles(self) -> None:
        if not (self._run.path / layout.OOM).is_dir():
            return
        from flightlog.analyze.devices.oom import read_bundles

        bundles, problems = read_bundles(self._run.path)
        self._problems += problems
        for one in bundles:
            at = None if one.time_ns is None else one.time_ns / 1e9
            self._bundles.append((at, one.message or one.folder, one.folder))

    def _count_damage(self) -> None:
        """Say that lines are missing; of a large record that is for `flightlog verify`, which takes as long
        as it takes.
        """
        if self._run.size_bytes() > LARGEST_CHECKED:
            return
        found = self._run.completeness()
        damaged = found.torn + found.foreign + found.oversized
        self._incomplete = bool(found.lost_lines or damaged)
        if self._incomplete:
            many = found.lost_lines or damaged
            how = "damaged"
            if found.lost_lines:
                why = reasons_text(found.reasons, found.lost_lines)
                how = f"lost ({why})" if why else "lost"
            self._problems.append(
                f"{many:,} {'line' if many == 1 else 'lines'} of the record {'is' if many == 1 else 'are'} "
                f"{how}, so failures may be missing here: `flightlog verify {shlex.quote(self._ref)}` says "
                "which."
            )
        elif not found.loss_known and self._run.status != "running":
            self._problems.append(
                "It is unknown whether lines of the record are lost, so failures may be missing here."
            )

    def _bundles_near(self, group: Group) -> list[tuple[str, str]]:
        """Message and folder of each."""
        first, last = group.at, group.last_at
        return [
            (message, folder)
            for at, message, folder in self._bundles
            if at is None or first is None or first - NEAR_S <= at <= (last or first) + NEAR_S
        ]


def _example(found: GatheredCase) -> CauseExample | None:
    group = found.group
    if group.task_id is None and group.message is None:
        return None
    return CauseExample(
        task=group.task,
        task_id=group.task_id,
        attempt=group.attempt,
        args=group.args,
        worker=group.worker,
        host=found.host,
        error_type=group.error_type,
        message=group.message,
        frame=frame(group.traceback),
    )


def _reference(run: Run) -> str:
    """What names the run to a command: its id where it stands in the configured folder, else its path or
    address.
    """
    from flightlog.core.settings import read_settings

    settings, folder = read_settings(), run.home.absolute().parent
    where = place(folder)
    configured = settings.runs_address or str(expanded(settings.runs_dir).absolute())
    if where == configured and run.home.name == run.run_id:
        return run.run_id
    return path_text(run.home) if where == str(folder) else f"{where}/{run.home.name}"


def diagnosis_bytes(diagnosis: RunDiagnosis) -> bytes:
    """The diagnosis as JSON: UTF-8, indented, names in order."""
    return msgspec.json.format(msgspec.json.encode(diagnosis, order="deterministic"), indent=2) + b"\n"


def diagnosis_schema() -> dict[str, Any]:
    """The JSON Schema of the diagnosis's JSON."""
    schema = msgspec.json.schema(RunDiagnosis)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flightlog diagnosis",
        **schema,
    }


_ENDED = {
    "completed": "The run completed",
    "running": "The run is running",
    "failed": "The run failed",
    "interrupted": "The run was interrupted",
    "crashed": "The run crashed",
    "unknown": "How the run ended is unknown",
}
_ADVERBS = {"possible": "possibly", "a guess": "at a guess"}


def answer(
    status: str,
    causes: Sequence[Cause],
    counts: GroupCounts,
    completed: int,
    cancelled: int,
    *,
    incomplete: bool = False,
) -> str:
    """What happened and most likely why; ends in a full stop. `incomplete` says that lines of the record are
    lost.
    """
    begun = _ENDED.get(status, f"The run is {status}")
    done = f" ({plural(completed, 'task')} completed)" if completed else ""
    left = (
        f"; {plural(cancelled, 'task')} {'was' if cancelled == 1 else 'were'} cancelled" if cancelled else ""
    )
    if not causes:
        if status in {"completed", "running"} and incomplete:
            return f"{begun}; the record is incomplete, and no failure is in it{done}{left}."
        if status in {"completed", "running"}:
            return f"{begun} without failures{done}{left}."
        return f"{begun}, and the record holds no failure{done}{left}: why is unknown."
    first = causes[0]
    parts = []
    if counts.tasks_failed:
        parts.append(f"{plural(counts.tasks_failed, 'task')} failed")
    if counts.recovered:
        parts.append(f"{plural(counts.recovered, 'task')} failed first and completed when retried")
    if first.scope in UNFAILED and not parts:
        parts.append("nothing failed, but something went wrong")
    head = f"{begun}{': ' + ', '.join(parts) if parts else ''}"
    why = (
        f"why is unknown: {first.headline}"
        if first.failure_class == "unknown"
        else f"{_ADVERBS.get(first.certainty, first.certainty)} {first.failure_class}: {first.headline}"
    ).rstrip(".")
    explained = first.explains.count
    more = f"; that explains {plural(explained, 'other end', 'other ends')}" if explained > 1 else ""
    others = f" {plural(len(causes) - 1, 'other cause')} below." if len(causes) > 1 else ""
    return f"{head}. {why[:1].upper()}{why[1:]}{more}.{others}"


FOR_ALL = frozenset({"disk_full", "time_limit", "preempted"})
"""Classes that end whatever is there at that moment."""
UNEXPLAINED = frozenset({"unknown", "worker_lost", "cancelled"})
"""Classes that say how something ended, and not why."""
CANCELLED = """
SELECT words, count(DISTINCT task_id) AS number FROM ended
WHERE event = 'task_cancelled' AND words IS NOT NULL AND task_id NOT IN (SELECT task_id FROM climbs
    WHERE task_id IS NOT NULL)
GROUP BY words ORDER BY number DESC, words LIMIT 100
"""
"""Why tasks were given up that depend on no failed one, and how many."""
BEFORE_S = 2.0
AFTER_S = 15.0
MOMENT_S = 60.0
"""What went on for longer was no moment: that something else ended meanwhile says nothing."""


def fold(causes: Sequence[Cause]) -> list[Cause]:
    """The causes without those that another one explains; that one says how many failures they were.

    Full disks of one host are one cause, wherever in the code they were met.
    """
    left = _one_disk(list(causes))
    for above in [cause for cause in left if cause.failure_class in FOR_ALL and cause.confidence >= 0.5]:
        taken = [other for other in left if other is not above and _explains(above, other)]
        if taken:
            count = sum(max(other.count, 1) + other.explains.count for other in taken)
            explains = msgspec.structs.replace(
                above.explains, at_that_moment=above.explains.at_that_moment + count
            )
            left = [one for one in left if one not in taken]
            left[left.index(above)] = msgspec.structs.replace(above, explains=explains)
    return left


def _one_disk(causes: list[Cause]) -> list[Cause]:
    first: dict[tuple[str, ...], Cause] = {}
    left: list[Cause] = []
    for cause in sorted(causes, key=lambda cause: (cause.first or "", -cause.count)):
        key = tuple(cause.hosts)
        if cause.failure_class != "disk_full" or cause.confidence < 0.5:
            left.append(cause)
        elif key not in first:
            first[key] = cause
            left.append(cause)
        else:
            one = first[key]
            merged = msgspec.structs.replace(
                one,
                count=one.count + cause.count,
                last=max(one.last or "", cause.last or "") or None,
                recovered=one.recovered + cause.recovered,
                failed=one.failed + cause.failed,
                tasks=_sum(one.tasks, cause.tasks),
                workers=_sum(one.workers, cause.workers),
                evidence=[
                    *one.evidence,
                    *(e for e in cause.evidence if e.text not in {x.text for x in one.evidence}),
                ][:8],
            )
            first[key] = left[left.index(one)] = merged
    return left


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    both = {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
    return dict(sorted(both.items(), key=lambda pair: (-pair[1], pair[0])))


def _explains(above: Cause, other: Cause) -> bool:
    if other.failure_class not in UNEXPLAINED or other.scope in UNFAILED:
        return False
    first, last = unix_time(above.first), unix_time(above.last)
    begun, ended = unix_time(other.first), unix_time(other.last)
    if first is None or last is None or begun is None or ended is None or last - first > MOMENT_S:
        return False
    beside = not above.hosts or not other.hosts or bool({*above.hosts} & {*other.hosts})
    return beside and begun >= first - BEFORE_S and ended <= last + AFTER_S


def lay_cancelled(causes: Sequence[Cause], reasons: Sequence[tuple[str, int]]) -> list[Cause]:
    """The causes, each with the tasks that were given up when the session or the run ended of it."""
    left = list(causes)
    for reason, number in reasons:
        error = (
            reason.removeprefix("the session ended with ")
            if reason.startswith("the session ended with ")
            else None
        )
        status = reason.startswith("the run ended as ")
        for at, cause in enumerate(left):
            kind = (cause.example.error_type or "") if cause.example is not None else ""
            own = cause.scope == "run" and (status or error is not None)
            if own or (error is not None and kind.rpartition(".")[2] == error):
                explains = msgspec.structs.replace(
                    cause.explains, cancelled=cause.explains.cancelled + number
                )
                left[at] = msgspec.structs.replace(cause, explains=explains)
                break
    return left


def in_order(causes: Sequence[Cause]) -> list[Cause]:
    """Root causes first: those of which most came, then the most frequent; what retries mended, and values,
    last.
    """
    return sorted(
        causes,
        key=lambda cause: (
            cause.scope in UNFAILED,
            cause.recovered > 0 and cause.failed == 0,
            -(cause.explains.count + cause.count),
            cause.first or "",
            cause.headline,
        ),
    )


SHOWN = 6
UNFAILED = frozenset({"metric", "device"})
"""Scopes of causes that nothing failed of."""

_NAN = (
    "SELECT timestamp, name, step, nonfinite FROM metrics WHERE nonfinite IS NOT NULL ORDER BY timestamp "
    "LIMIT 10"
)


def of_values(values: Sequence[Nonfinite], causes: Sequence[Cause], ref: str) -> list[Cause]:
    """Values that became NaN as a cause of their own; none where a failure is laid to them."""
    if not values or any(cause.failure_class == "numerical" for cause in causes):
        return []
    first = values[0]
    step = "" if first.step is None else f", first at step {first.step}"
    others = f" and {len(values) - 1} other values" if len(values) > 1 else ""
    facts = RunFacts(scope="metric", nonfinite=tuple(one.name for one in values))
    told = [
        Evidence(
            text=f"`{one.name}` was NaN {one.count:,} times"
            if one.count > 1
            else f"`{one.name}` was NaN once",
            source="resources",
            file=one.file,
            event=one.event,
            time=one.first,
        )
        for one in values[:SHOWN]
    ]
    head = f"`{first.name}`{others} became NaN{step}"
    check = f'flightlog sql "{_NAN}" --run {shlex.quote(ref)}'
    checks = [check] if any(one.file == "metrics.jsonl" for one in values) else []
    return [_cause(facts, head, told, checks, sum(one.count for one in values), first.first)]


def of_bundles(
    bundles: Sequence[tuple[float | None, str, str]], causes: Sequence[Cause], ref: str
) -> list[Cause]:
    """Device memory that ran out and was caught; none where a failure is laid to it. Each is time, message,
    folder.
    """
    if not bundles or any(cause.failure_class == "gpu_out_of_memory" for cause in causes):
        return []
    facts = RunFacts(scope="device", device_oom=tuple(message for _, message, _ in bundles))
    told = [
        Evidence(text=message.partition("\n")[0][:240], source="resources", file=f"{folder}/bundle.json")
        for _, message, folder in bundles[:SHOWN]
    ]
    times = "once" if len(bundles) == 1 else f"{len(bundles)} times or more"
    head = f"a device ran out of memory {times}, and the program went on"
    return [_cause(facts, head, told, [f"flightlog devices {shlex.quote(ref)}"], len(bundles), None)]


def _cause(
    facts: RunFacts,
    headline: str,
    evidence: list[Evidence],
    checks: list[str],
    count: int,
    first: str | None,
) -> Cause:
    judged = weigh(Case(reading=ParsedText(), facts=facts)).diagnosis
    return Cause(
        failure_class=judged.failure_class,
        confidence=judged.confidence,
        certainty=certainty(judged.failure_class, judged.confidence),
        scope=facts.scope or "metric",
        headline=headline,
        count=count,
        first=first,
        last=first,
        tasks={},
        workers={},
        hosts=[],
        recovered=0,
        failed=0,
        explains=Explained(),
        evidence=evidence,
        suggestions=judged.suggestions,
        checks=checks,
        missing=[],
        also={},
        example=None,
        fingerprint=None,
    )
