"""Why a run failed: its failures grouped, root causes first, each with class, evidence, remedy and check.

Failures that another cause explains (a full disk, a job at its time limit) are attributed to it. Silent
failures are causes too: values that became NaN, and device memory that ran out in a run in which nothing
failed.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from flightlog.analyze.diagnosis.base import Case, RunFacts
from flightlog.analyze.diagnosis.explain import cause_of, explain, sql_command, with_device_cause
from flightlog.analyze.diagnosis.group import Group, GroupCounts, collect, find_groups
from flightlog.analyze.diagnosis.read import RunContext, read_context, read_record, read_workers
from flightlog.analyze.diagnosis.results import Cause, Evidence, Explained, RunDiagnosis
from flightlog.analyze.diagnosis.rules import load_rules
from flightlog.analyze.diagnosis.score import case_of, weigh
from flightlog.analyze.diagnosis.text import ParsedText
from flightlog.analyze.limits import DiagnosisLimits
from flightlog.analyze.tallies import copied
from flightlog.core.errors import DamagedRun
from flightlog.core.settings import expanded
from flightlog.core.text import plural
from flightlog.events import DEPENDENCY_FAILED
from flightlog.events.schema import result_schema
from flightlog.store.liveness import unix_time
from flightlog.store.read.completeness import reasons_text
from flightlog.store.runs_folder import place
from flightlog.store.tables.connection import path_text

if TYPE_CHECKING:
    from flightlog.store.readable import Readable
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


def diagnose(run: Readable | str | os.PathLike[str] = "latest") -> RunDiagnosis:
    """Why a run, or tasks in it, failed; a run in any state, also one that is damaged or without failures.

    `run` is what `open_run` takes. Reads each stream a few times and keeps a few hundred
    bytes of every ended attempt. Raises `RunNotFound`, `AmbiguousRun`, and `DamagedRun` where nothing can be
    read.
    """
    from flightlog.store.completing import open_run
    from flightlog.store.tables.run_tables import open_tables

    opened = open_run(run)
    try:
        with open_tables([opened]) as tables:
            return _diagnosis(opened, tables)
    except OSError as error:
        raise DamagedRun(f"{opened.path} cannot be read: {error.strerror or error}") from error


def _diagnosis(run: Run, tables: RunTables) -> RunDiagnosis:
    """Read, group, score and explain, while the run's tables are open."""
    workers, ref = read_workers(run), _reference(run)
    collect(tables, workers)
    groups, counts = find_groups(run, tables, workers)
    record = read_record(run, ref, tables, workers, groups)
    contexts = read_context(tables, groups, workers, run.info.host)
    causes = [explain(case_of(record, *both)) for both in zip(groups, contexts, strict=True)]
    classes = {cause.failure_class for cause in causes}
    if record.values and "numerical" not in classes:
        causes.append(_nonfinite_cause(record))
    if record.bundles and "gpu_out_of_memory" not in classes:
        causes.append(_device_cause(record))
    causes = attribute_cancelled(causes, tables.execute(CANCELLED).fetchall())
    damage, incomplete = _damage(run, ref)
    causes = sort_causes(attribute_to_causes(causes))
    [(completed, cancelled)] = tables.execute(_ENDS).fetchall()
    return copied(
        RunDiagnosis,
        counts,
        run_id=run.run_id,
        status=run.status,
        answer=answer(run.status, causes, counts, completed, cancelled, incomplete=incomplete),
        causes=causes,
        more_causes=max(0, counts.roots - DiagnosisLimits.max_causes),
        problems=list(dict.fromkeys([*run.problems, *load_rules().problems, *record.problems, *damage])),
    )


_ENDS = """
SELECT count(*) FILTER (event = 'task_completed'), count(*) FILTER (event = 'task_cancelled') FROM ended
"""


def _damage(run: Run, ref: str) -> tuple[list[str], bool]:
    """That lines are missing, and whether they are; of a large record that is for `flightlog verify`, which
    takes as long as it takes.
    """
    if run.size_bytes() > DiagnosisLimits.max_checked_bytes:
        return [], False
    found = run.completeness()
    many = found.lost_lines or found.torn + found.foreign + found.oversized
    if many:
        why = reasons_text(found.reasons, found.lost_lines) if found.lost_lines else ""
        how = f"lost ({why})" if why else "lost" if found.lost_lines else "damaged"
        lines = f"{plural(many, 'line')} of the record {'is' if many == 1 else 'are'} {how}"
        check = f"`flightlog verify {shlex.quote(ref)}` says which."
        return [f"{lines}, so failures may be missing here: {check}"], True
    if not found.loss_known and run.status != "running":
        return ["It is unknown whether lines of the record are lost, so failures may be missing here."], False
    return [], False


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
    return result_schema(RunDiagnosis, "Flightlog diagnosis")


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
    sure = f"{_ADVERBS.get(first.certainty, first.certainty)} {first.failure_class}"
    said = first.headline.removeprefix(f"{begun[:1].lower()}{begun[1:]}: ")
    why = f"{'why is unknown' if first.failure_class == 'unknown' else sure}: {said}".rstrip(".")
    explained = first.explains.count
    more = f"; that explains {plural(explained, 'other end', 'other ends')}" if explained > 1 else ""
    others = f" {plural(len(causes) - 1, 'other cause')} below." if len(causes) > 1 else ""
    said = f"{why[:1].upper()}{why[1:]}{more}"
    return f"{head}. {said}{'' if said.endswith('…') else '.'}{others}"


UNFAILED = frozenset({"metric", "device"})
"""Scopes of causes that nothing failed of."""
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


def attribute_to_causes(causes: Sequence[Cause]) -> list[Cause]:
    """The causes without those that another one explains; that one says how many failures they were.

    Full disks of one host are one cause, wherever in the code they were met.
    """
    left = _one_disk(list(causes))
    for above in [cause for cause in left if cause.failure_class in FOR_ALL and cause.confidence >= 0.5]:
        taken = [other for other in left if other is not above and _explains(above, other)]
        if taken:
            count = sum(max(other.count, 1) + other.explains.count for other in taken)
            explains = replace(above.explains, at_that_moment=above.explains.at_that_moment + count)
            left = [one for one in left if one not in taken]
            left[left.index(above)] = replace(above, explains=explains)
    return left


def _one_disk(causes: list[Cause]) -> list[Cause]:
    places: dict[tuple[str, ...], int] = {}
    left: list[Cause] = []
    for cause in sorted(causes, key=lambda cause: (cause.first or "", -cause.count)):
        disk = cause.failure_class == "disk_full" and cause.confidence >= 0.5
        at = places.setdefault(tuple(cause.hosts), len(left)) if disk else len(left)
        if at < len(left):
            left[at] = _merged(left[at], cause)
        else:
            left.append(cause)
    return left


def _merged(one: Cause, other: Cause) -> Cause:
    known = {evidence.text for evidence in one.evidence}
    return replace(
        one,
        count=one.count + other.count,
        last=max(one.last or "", other.last or "") or None,
        recovered=one.recovered + other.recovered,
        failed=one.failed + other.failed,
        tasks=_sum(one.tasks, other.tasks),
        workers=_sum(one.workers, other.workers),
        evidence=[*one.evidence, *(new for new in other.evidence if new.text not in known)][:8],
    )


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    both = Counter(one) + Counter(other)
    return dict(sorted(both.items(), key=lambda pair: (-pair[1], pair[0])))


def _explains(above: Cause, other: Cause) -> bool:
    if other.failure_class not in UNEXPLAINED or other.scope in UNFAILED:
        return False
    stamps = (above.first, above.last, other.first, other.last)
    moments = [moment for stamp in stamps if (moment := unix_time(stamp)) is not None]
    if len(moments) < len(stamps) or (above.hosts and other.hosts and not {*above.hosts} & {*other.hosts}):
        return False
    first, last, begun, ended = moments
    after = first - DiagnosisLimits.consequence_before_s <= begun
    before = ended <= last + DiagnosisLimits.consequence_after_s
    return last - first <= DiagnosisLimits.max_incident_s and after and before


def attribute_cancelled(causes: Sequence[Cause], reasons: Sequence[tuple[str, int]]) -> list[Cause]:
    """The causes, each with the tasks that were given up when the session or the run ended of it."""
    left = list(causes)
    for reason, number in reasons:
        error = reason.removeprefix("the session ended with ")
        by_error = error != reason
        by_run = by_error or reason.startswith("the run ended as ")
        for at, cause in enumerate(left):
            kind = (cause.example.error_type or "") if cause.example is not None else ""
            if (by_run and cause.scope == "run") or (by_error and kind.rpartition(".")[2] == error):
                explains = replace(cause.explains, cancelled=cause.explains.cancelled + number)
                left[at] = replace(cause, explains=explains)
                break
    return left


def sort_causes(causes: Sequence[Cause]) -> list[Cause]:
    """Root causes first: those of which most came, then the most frequent; what retries mended, what came of
    a failure that is not in the record, and values last.
    """
    return sorted(
        causes,
        key=lambda cause: (
            cause.scope in UNFAILED,
            cause.recovered > 0 and cause.failed == 0,
            cause.example is not None and cause.example.error_type == DEPENDENCY_FAILED,
            -(cause.explains.count + cause.count),
            cause.first or "",
            cause.headline,
        ),
    )


_NAN = (
    "SELECT timestamp, name, step, nonfinite FROM metrics WHERE nonfinite IS NOT NULL ORDER BY timestamp "
    "LIMIT 10"
)


def _nonfinite_cause(record: RunContext) -> Cause:
    """Values that became NaN and that no failure is laid to."""
    values, first = record.values, record.values[0]
    step = "" if first.step is None else f", first at step {first.step}"
    others = f" and {len(values) - 1} other values" if len(values) > 1 else ""
    group = Group(root="", scope="metric", count=sum(one.count for one in values))
    group.first = group.last = first.first
    group.message = f"`{first.name}`{others} became NaN{step}"
    evidence = [
        Evidence(
            text=f"`{one.name}` was NaN {f'{one.count:,} times' if one.count > 1 else 'once'}",
            source="resources",
            file=one.file,
            event=one.event,
            time=one.first,
        )
        for one in values[: DiagnosisLimits.max_silent_failures]
    ]
    checks = [sql_command(_NAN, record.ref)] if any(one.file == "metrics.jsonl" for one in values) else []
    facts = RunFacts(scope=group.scope, nonfinite=tuple(one.name for one in values))
    return _silent_cause(record, group, facts, evidence, checks)


def _device_cause(record: RunContext) -> Cause:
    """Device memory that ran out and was caught, and that no failure is laid to."""
    bundles = record.bundles
    group = Group(root="", scope="device", count=len(bundles))
    times = "once" if len(bundles) == 1 else f"{len(bundles)} times or more"
    group.message = f"a device ran out of memory {times}, and the program went on"
    evidence = [
        Evidence(text=message.partition("\n")[0][:240], source="resources", file=f"{folder}/bundle.json")
        for _, message, folder in bundles[: DiagnosisLimits.max_silent_failures]
    ]
    facts = RunFacts(scope=group.scope, device_oom=tuple(message for _, message, _ in bundles))
    return _silent_cause(record, group, facts, evidence, [f"flightlog devices {shlex.quote(record.ref)}"])


def _silent_cause(
    record: RunContext, group: Group, facts: RunFacts, evidence: list[Evidence], checks: list[str]
) -> Cause:
    """A cause that nothing failed of."""
    judged = weigh(Case(reading=ParsedText(), facts=facts)).diagnosis
    record.problems += judged.problems
    return cause_of(
        group,
        judged,
        headline=group.message,
        hosts=[],
        explains=Explained(),
        evidence=evidence,
        suggestions=[*with_device_cause(record, judged.failure_class, judged.suggestions)],
        checks=checks,
        missing=[],
        example=None,
    )
