"""Idle workers: at the ends of batches, while the program did something else, or never used at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, idle_before_retries, matters
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.critical_path import AFTER, BEFORE, BETWEEN, UNKNOWN
from flightlog.core.stats import exact_sum
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_duration, format_percent
from flightlog.store.tables.intervals import merge, uncovered

_UNUSED = """
SELECT DISTINCT worker FROM uptimes
WHERE worker NOT IN (SELECT worker FROM attempt_intervals WHERE worker IS NOT NULL AND began IS NOT NULL)
    ORDER BY worker
"""


def idle_workers(facts: FindingFacts) -> Iterable[Finding]:
    """Idle time behind tasks of ordinary length, and idle time in which no task ran anywhere."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    ordinary = [one for one in facts.behind if not one.is_straggler]
    ends = exact_sum(one.idle_s for one in ordinary)
    if matters(facts, ends):
        unused = [name for (name,) in facts.tables.execute(_UNUSED).fetchall()]
        many = f" ({plural(len(unused), 'worker')} never had any)" if unused else ""
        single = _ran_alone(facts)
        shared = exact_sum(one.idle_s for one in ordinary if (one.task_id, one.attempt) not in single)
        yield facts.finding(
            "idle_workers",
            ends,
            f"{cost_text(facts, ends)} went to workers with nothing left to do{many} while others "
            "finished tasks of ordinary length, because there was too little to share out at the end "
            f"of {plural(len(ordinary), 'batch', 'batches')}; "
            f"{'try smaller tasks' if shared else 'fewer workers would cost no time'}.",
            {"batches": len(ordinary), "unused_workers": len(unused), "workers": facts.shares.workers},
            where=unused[:3] or [one.task for one in ordinary[:1]],
            limits=None if shared else 0.0,
            saves_s=min(shared / facts.shares.workers, facts.wall_s) if shared else None,  # if shared evenly
            certainty="likely",
        )
    alone = facts.shares.whole.idle_alone_s - idle_before_retries(facts)
    if matters(facts, alone) and not _is_notebook(facts):
        path = facts.critical if facts.critical is not None and facts.critical.of == "tasks" else None
        stretches = {
            part.name: part.seconds for part in (path.parts if path else []) if part.kind == "program"
        }
        told = ", ".join(f"{format_duration(lasted)} {name}" for name, lasted in stretches.items())
        inside = f" ({told})" if told else ""
        known = program_spans(facts)
        spans = _named(known)
        own = _own_time(facts, stretches) if stretches else {}
        if facts.summary.tasks.queue_s.max:
            gathers = max(own, key=lambda name: own[name], default=BETWEEN) == BETWEEN
            shorter = "submitting the next tasks before gathering" if gathers else _advice(known)
            sentence = (
                f"went to workers waiting for the program, because no task ran or was queued{inside}"
                f"{f', and the program was in {spans}' if spans else ''}; try {shorter},"
                " or starting workers later and ending them sooner."
            )
        else:  # tasks that never waited are stretches of the program itself, and so are their workers
            sentence = (
                f"went to the program outside of its tasks{inside}{f', in {spans}' if spans else ''};"
                f" try {_advice(known)}."
            )
        yield facts.finding(
            "program_alone",
            alone,
            f"{cost_text(facts, alone)} {sentence}",
            {"program_s": stretches, "spans_s": known.told},
            where=list(stretches),
            # Where it is no part of the path, the run did not wait for the program.
            saves_s=sum(own.values()) if path is not None else None,
        )


_RAN_ALONE = """
WITH ran AS (
    SELECT task_id, attempt, coalesce(waits, began) AS waits, stopped,
        max(stopped) OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before,
        lead(began) OVER in_order AS after
    FROM attempt_intervals WHERE began < stopped WINDOW in_order AS (ORDER BY began, task_id, attempt)
)
SELECT task_id, attempt FROM ran
WHERE coalesce(before <= waits, true) AND coalesce(after >= stopped, true)
"""


def _ran_alone(facts: FindingFacts) -> set[tuple[str, int]]:
    """Attempts beside which nothing else ran since they were wanted: batches of one task, of which there is
    nothing to share out.
    """
    return {(task_id, attempt) for task_id, attempt in facts.tables.execute(_RAN_ALONE).fetchall()}


_FIRSTS = """
WITH ends AS (SELECT max(stopped) AS stopped FROM attempt_intervals)
SELECT (SELECT min(coalesce(submitted, waits, began)) FROM attempt_intervals),
    (SELECT min(since) FROM uptimes), (SELECT stopped FROM ends),
    (SELECT min(at_ns("timestamp")) FROM workers JOIN ends ON at_ns("timestamp") >= ends.stopped
        WHERE event = 'worker_removed')
"""


def _own_time(facts: FindingFacts, stretches: Mapping[str, float]) -> dict[str, float]:
    """What of the stretches outside of tasks is the program's own: not the start of the engine, nor its end;
    where these were not recorded, not the start of one whose workers were there before the first task was
    submitted, nor the end after the first worker was removed, nor what starting and ending a session takes.
    """
    found = dict(stretches)
    start = facts.tables.window[0]
    submitted, up, stopped, removed = facts.tables.execute(_FIRSTS).fetchall()[0]
    if AFTER in found and stopped is not None and removed is not None:
        found[AFTER] = min(found[AFTER], seconds(removed - stopped))
    if UNKNOWN in found and start is not None and submitted is not None:
        # Another task began before the first one of the path: what was before both is the program's.
        found[BEFORE] = min(found.pop(UNKNOWN), seconds(max(0, submitted - start)))
    if BEFORE in found and start is not None and submitted is not None and up is not None and up < submitted:
        found[BEFORE] = min(found[BEFORE], seconds(submitted - max(up, start)))
    for name, of_engine_s in ((BEFORE, facts.engine_start_s), (AFTER, facts.engine_end_s)):
        if name in found:
            found[name] = min(found[name], max(0.0, stretches.get(name, found[name]) - of_engine_s))
    return {
        name: lasted
        for name, lasted in found.items()
        if name == BETWEEN or lasted >= FindingLimits.max_framing_s
    }


def before_tasks(facts: FindingFacts) -> Iterable[Finding]:
    """A program that did something else for long before its first task, for which workers were started
    then.
    """
    path, shares = facts.critical, facts.shares
    if path is None or path.of != "tasks" or shares is None or shares.basis != "workers":
        return
    stretches = {part.name: part.seconds for part in path.parts if part.kind == "program"}
    lost = _own_time(facts, stretches).get(BEFORE, 0.0)
    share = lost / path.wall_s
    if share < FindingLimits.min_share_before_tasks or matters(facts, shares.whole.idle_alone_s):
        return
    place = next((one for one in path.inside if one.names[0] not in facts.summary.tasks.by_name), None)
    known = f", in {_called(place.names[0])}" if place is not None and place.seconds >= 0.5 * lost else ""
    advice = "making that shorter" if known else "spans in the program, to see what it did"
    yield facts.finding(
        "before_tasks",
        None,
        f"{format_duration(lost)}, {format_percent(share)} of the wall time, went to the program before its "
        f"first task{known}; try {advice}.",
        {"seconds": lost},
        limits=share,
        saves_s=lost,
    )


def _named(known: ProgramSpans) -> str:
    """`fit (3.0s), read (1.0s)`; how many names there are where none stands out; nothing where there is
    little in them.
    """
    if known.told:
        return ", ".join(
            f"{_called(name)} ({format_duration(lasted)})" for name, lasted in known.told.items()
        )
    many = f"spans of {plural(known.names, 'name')}, none of them long"
    return many if known.known_s > known.unknown_s else ""


def _advice(known: ProgramSpans) -> str:
    """For the largest part: that of the first span, of all spans where none stands out, or of what is not
    known.
    """
    if known.unknown_s >= max(known.told.values(), default=known.known_s):
        return "spans in the program, to see what it did"
    if not known.told:
        return "fewer or shorter spans"
    first = _called(next(iter(known.told)))
    if known.around_tasks:
        return f"spans inside of {first}, to see what the program did there"
    return f"making {first} shorter"


def _called(name: str) -> str:
    """A name that is not empty and does not contain `; try `, which begins the advice."""
    return name.replace("; try ", ", try ") if name.strip() else "a span without a name"


def _is_notebook(facts: FindingFacts) -> bool:
    """Whether the tasks are the cells of a notebook: between them a person reads and writes, and no program
    runs.
    """
    run = facts.summary.run
    return run.tags.get("notebook") == run.project


class ProgramSpans(NamedTuple):
    """Where the program was by the clock: side by side, spans of one name count once, those of two names
    twice.
    """

    told: dict[str, float]
    """Seconds in spans of these names, less those in spans directly inside of them; the most first."""
    around_tasks: bool
    """Whether a task came while the program was in one of those named first."""
    names: int
    """How many there are, told or not."""
    known_s: float
    """Seconds in any span, told or not."""
    unknown_s: float
    """Seconds in none."""


_ALONE = uncovered(
    "SELECT number, 0 AS name, since, until FROM uptime_parts",
    """
    SELECT number, others.since, others.until
    FROM uptime_parts JOIN (FROM astir UNION ALL FROM retry_waits) AS others
        ON others.component = uptime_parts.component AND others.since < uptime_parts.until
            AND others.until > uptime_parts.since
    """,
    "number",
)
_BESIDE = f"""
CREATE OR REPLACE TEMP TABLE beside AS
WITH RECURSIVE outside AS (
    SELECT child.span_id, 1 AS depth FROM span_intervals AS child ANTI JOIN attempt_intervals USING (span_id)
        ANTI JOIN span_intervals AS parent ON parent.span_id = child.parent_id ANTI
            JOIN attempt_intervals AS task
            ON task.span_id = child.parent_id
    UNION
    SELECT child.span_id, depth + 1 FROM span_intervals AS child ANTI JOIN attempt_intervals USING (span_id)
        JOIN outside ON outside.span_id = child.parent_id WHERE depth < {FindingLimits.max_span_depth}
)
SELECT span_id, parent_id, CASE WHEN length(name) > {FindingLimits.max_span_name_characters}
    THEN left(name, {FindingLimits.max_span_name_characters - 1}) || '…' ELSE name END AS name,
    began AS since, stopped AS until
FROM span_intervals SEMI JOIN outside USING (span_id) WHERE began < stopped
"""  # noqa: S608 - numbers of ours
_OWN = uncovered(
    "SELECT span_id, name, since, until FROM beside",
    "SELECT parent_id AS span_id, since, until FROM beside SEMI JOIN beside AS outer_ ON outer_.span_id = "
    "beside.parent_id",
    "span_id",
)
_WAITED = """
WITH moments AS (
    SELECT part, name, unnest([since, until]) AS moment, unnest([-1, 1]) AS sign
    FROM (SELECT 'own' AS part, name, since, until FROM own UNION ALL SELECT 'any', NULL, since, until
        FROM in_any
        UNION ALL SELECT 'all', NULL, since, until FROM alone)
)
SELECT part, moments.name, sum(sign * (before + least(moment, until) - since))::BIGINT AS waited
FROM moments ASOF JOIN alone ON moments.moment > alone.since GROUP BY ALL HAVING waited > 0
    ORDER BY waited DESC, moments.name
"""
_AROUND = """
WITH came AS (SELECT least(waits, began) AS moment FROM attempt_intervals WHERE moment IS NOT NULL)
SELECT coalesce(bool_or(moment < until), FALSE) FROM beside ASOF JOIN came ON beside.since < came.moment
    WHERE name = $1
"""


def program_spans(facts: FindingFacts) -> ProgramSpans:
    """The spans outside of tasks, while workers were up for which no task ran or was queued."""
    tables = facts.tables
    merge(tables, "up_merged", "component", "SELECT component, since, until FROM uptimes")
    tables.execute(
        "CREATE OR REPLACE TEMP TABLE uptime_parts AS SELECT *, row_number() OVER () AS number FROM up_merged"
    )
    merge(tables, "alone", "name", _ALONE)
    tables.execute(_BESIDE)
    merge(tables, "own", "name", _OWN)
    merge(tables, "in_any", "name", "SELECT 0 AS name, since, until FROM own")
    found: dict[str, dict[str | None, int]] = {"own": {}, "any": {}, "all": {}}
    for part, name, waited in tables.execute(_WAITED).fetchall():
        found[part][name] = waited
    own, known, whole = found["own"], sum(found["any"].values()), sum(found["all"].values())
    told = [
        name
        for name, waited in own.items()
        if name is not None and waited >= FindingLimits.min_span_share * whole
    ][: FindingLimits.max_named_spans]
    around = told and tables.execute(_AROUND, [told[0]]).fetchall() == [(True,)]
    return ProgramSpans(
        {name: seconds(own[name]) for name in told},
        around_tasks=bool(around),
        names=len(own),
        known_s=seconds(known),
        unknown_s=seconds(whole - known),
    )


SYMPTOMS = (idle_workers, before_tasks)
