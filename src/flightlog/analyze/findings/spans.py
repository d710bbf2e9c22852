"""Spans that hold most of the time and are no work: data that is loaded, and waits that the program names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from flightlog.analyze.findings.base import Finding, FindingFacts
from flightlog.analyze.findings.cpu import program_time
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.critical_path import CriticalPath
from flightlog.analyze.report.descent import PathPlace, deepest
from flightlog.analyze.report.replay import Changes
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_duration, format_percent

_BEFORE, _AFTER = r"(^|[^a-z])(", r")($|[^a-z])"
LOADING = re.compile(
    rf"{_BEFORE}load|loads|loading|loader|dataloader|read|reads|reading|fetch|fetching|download|downloading|"
    rf"prefetch|ingest|open{_AFTER}"
)
"""Names of spans that tell of loading data."""
WORK = re.compile(
    rf"{_BEFORE}train|training|step|steps|comput\w*|simulat\w*|solv\w*|fit|fitting|forward|backward|iter\w*|"
    rf"epoch|epochs|run|work|worker|process|processing|main|task|tasks|job|jobs|predict\w*|infer\w*|"
    rf"evaluat\w*|trial|trials|batch|batches|calculat\w*|analy[sz]\w*|optimi[sz]\w*|sampl\w*|generat\w*"
    rf"{_AFTER}"
)
"""Names of spans that tell of what the program is for: waiting there is its work, for all that is known."""

BY_DESIGN = re.compile(
    rf"{_BEFORE}pace\w*|pacing|poll\w*|sleep\w*|wait\w*|idle|idling|listen\w*|serve|serves|serving|pause\w*|"
    rf"delay\w*|back.?off|cool.?down|heartbeat|throttle|rate.?limit\w*{_AFTER}"
)
"""Names of spans that wait by design: that is what they are there for."""

_OF_TASK = """
SELECT sum(stopped - began), sum(greatest(in_ns(thread_cpu_s), in_ns(cpu_s))),
    coalesce(sum(in_ns(cpu_wait_s)), 0), count(*) = count(cpu_s)
FROM attempt_intervals WHERE task = $1 AND state = 'completed' AND began IS NOT NULL
"""


_ALL_IN_ONE_PROCESS = """
SELECT count(DISTINCT row(host, pid)) = 1 AND count(*) = count(pid) AND EXISTS (FROM workers) FROM (
    SELECT host, pid FROM workers UNION ALL SELECT host, pid FROM samples_of_run WHERE scope = 'worker'
)
"""


class Waited(NamedTuple):
    """How much of the time of a span was no computing."""

    least: float
    """The part that it waited for something else than a CPU, were all computing around it inside of it."""
    most: float
    """The same, were as much as possible of the computing beside it."""
    cores: float
    """That the task, or the program, used on average."""

    @property
    def share(self) -> float:
        """About how much it waited."""
        return (self.least + self.most) / 2


def dominant_span(facts: FindingFacts) -> Iterable[Finding]:
    """The innermost span that holds much of the critical path, where it waits, and that is neither what the
    program is for nor meant. Where most of the time was is said in any case by the verdict.
    """
    path = facts.critical
    place = place_of_most(path)
    if path is None or place is None:
        return
    name, around = place.names[-1], place.names[:-1]
    waited = _waited(facts, path, place)
    if waited is None or waited.share < FindingLimits.min_waiting_share:
        return
    loads = bool(LOADING.search(name.lower()))
    if BY_DESIGN.search(name.lower()) or (not loads and WORK.search(name.lower())):
        return
    held_up = min(place.seconds, _alone_s(facts, place)) if path.of == "spans" else place.seconds
    sure = loads and waited.least >= FindingLimits.min_waiting_share
    inside = f" inside {' inside '.join(reversed(around[-2:]))}" if around else ""
    what = f"{'Limited' if sure else 'Probably limited'} most by {'loading data' if loads else 'waiting'}"
    advice = (
        "loading ahead, in the background or with more loading workers"
        if loads
        else f"doing other work meanwhile, or a look at what {name} waits for"
    )
    yield facts.finding(
        "data_loading" if loads else "waiting_span",
        None,
        f"{what}: {format_percent(place.share)} ({format_duration(place.seconds)}) of the "
        f"{format_duration(path.wall_s)} was {name}{inside}, {plural(place.times, 'time')}, which mostly "
        f"waited ({waited.cores:.1f} cores were in use); try {advice}.",
        {"names": place.names, "seconds": place.seconds, "times": place.times, "waited_share": waited.share},
        where=[name],
        limits=held_up / path.wall_s,
        saves_s=_saved(facts, path, place, held_up) if loads else None,
        certainty="measured" if sure else "likely",
    )


_ALONE = """
WITH RECURSIVE inside AS (
    SELECT span_id FROM span_intervals WHERE name = $name AND span_id IS NOT NULL
    UNION SELECT child.span_id FROM span_intervals AS child JOIN inside ON child.parent_id = inside.span_id
), beside AS ( -- without those around others, which do not work themselves
    SELECT began, stopped FROM span_intervals ANTI JOIN inside USING (span_id)
        ANTI JOIN span_intervals AS child ON child.parent_id = span_intervals.span_id
    WHERE began < stopped AND name IS DISTINCT FROM $name
), steps AS (
    SELECT began AS moment, 1 AS own, 0 AS other FROM span_intervals WHERE name = $name AND began < stopped
    UNION ALL SELECT stopped, -1, 0 FROM span_intervals WHERE name = $name AND began < stopped
    UNION ALL SELECT began, 0, 1 FROM beside UNION ALL SELECT stopped, 0, -1 FROM beside
), moments AS (SELECT moment, sum(own) AS own, sum(other) AS other FROM steps GROUP BY moment), states AS (
    SELECT lead(moment) OVER (ORDER BY moment) - moment AS lasted,
        sum(own) OVER (ORDER BY moment) AS own, sum(other) OVER (ORDER BY moment) AS other FROM moments
)
SELECT coalesce(sum(lasted), 0) FROM states WHERE own > 0 AND other = 0
"""


def _alone_s(facts: FindingFacts, place: PathPlace) -> float:
    """How long spans of that name ran while none ran beside them: what others do meanwhile takes its time
    though they were instant.
    """
    return seconds(int(facts.tables.scalar(_ALONE, {"name": place.names[-1]}) or 0))


def place_of_most(path: CriticalPath | None) -> PathPlace | None:
    """The innermost place that holds much of the critical path, where there is something beside it or around
    it to tell it from.
    """
    place = deepest(path.inside, FindingLimits.min_dominant_share) if path is not None else None
    if path is None or place is None:
        return None
    if len(place.names) > 1:
        return place
    alone = place.share > FindingLimits.max_dominant_share_alone
    return None if path.of == "tasks" or alone else place


def _waited(facts: FindingFacts, path: CriticalPath, place: PathPlace) -> Waited | None:
    """What is left of the span's time beside computing, and waiting for a CPU; None where CPU time was not
    measured. That of tasks is their own, or that of the program where all of them ran in its threads.
    """
    measured = False
    if path.of == "tasks":
        rows = facts.tables.execute(_OF_TASK, [place.names[0]]).fetchall()
        lasted, cpu, queued, known = rows[0] if rows else (None, None, 0, False)
        outer = next((one.seconds for one in path.inside if one.names == place.names[:1]), 0.0)
        measured = bool(known and lasted and cpu is not None and outer)
        if not measured and not facts.tables.scalar(_ALL_IN_ONE_PROCESS):
            return None
    process = facts.summary.resources.process
    if measured:
        part, cores, held_up = place.seconds / outer, cpu / lasted, queued / lasted
    elif process is None or process.cpu_s is None or (path.of == "spans" and process.trees != 1):
        return None
    else:
        program = program_time(facts)
        part, cores = place.share, process.cpu_s / path.wall_s
        held_up = program.waited_s / path.wall_s if program is not None else 0.0
    active = cores + held_up
    least, most = max(0.0, part - active), part - max(0.0, active - (1 - part))
    return Waited(least / part, max(0.0, most) / part, cores)


def _saved(facts: FindingFacts, path: CriticalPath, place: PathPlace, held_up: float) -> float | None:
    """Were it done ahead, beside what is around it: no more than the rest of that takes. By a replay without
    that part of each task where there are tasks.
    """
    around = next(
        (one.seconds for one in path.inside if place.names[:-1] and one.names == place.names[:-1]),
        path.wall_s,
    )
    saved = min(held_up, max(0.0, around - place.seconds))
    if path.of == "spans":
        return saved
    outer = next((one.seconds for one in path.inside if one.names == place.names[:1]), None)
    if outer is None:
        return None
    left = 1 - saved / outer
    lasts = facts.of_attempts(f"(stopped - began) * {left}", "task = $1", [place.names[0]])
    return facts.saved(Changes(lasts=lasts)) if lasts else None


SYMPTOMS = (dominant_span,)
