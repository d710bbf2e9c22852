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

_OF_TASK = """
SELECT sum(stopped - began), sum(greatest(in_ns(thread_cpu_s), in_ns(cpu_s))),
    coalesce(sum(in_ns(cpu_wait_s)), 0), count(*) = count(cpu_s)
FROM attempt_intervals WHERE task = $1 AND state = 'completed' AND began IS NOT NULL
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
    """The innermost span that holds much of the critical path, where it loads data, or waits and is not what
    the program is for. Where most of the time was is said in any case by the verdict.
    """
    path = facts.critical
    place = place_of_most(path)
    if path is None or place is None:
        return
    name, around = place.names[-1], place.names[:-1]
    loads = bool(LOADING.search(name.lower()))
    waited = _waited(facts, path, place)
    mostly = waited is not None and waited.share >= FindingLimits.min_waiting_share
    if not loads and (WORK.search(name.lower()) or not mostly):
        return
    inside = f" inside {' inside '.join(reversed(around[-2:]))}" if around else ""
    used = f", which mostly waited ({waited.cores:.1f} cores were in use)" if waited and mostly else ""
    what = "Limited most by loading data: " if loads else "Limited most by waiting: " if mostly else ""
    advice = (
        "loading ahead, in the background or with more loading workers"
        if loads
        else f"doing other work meanwhile, or a look at what {name} waits for"
    )
    yield facts.finding(
        "data_loading" if loads else "waiting_span",
        None,
        f"{what}{format_percent(place.share)} ({format_duration(place.seconds)}) of the "
        f"{format_duration(path.wall_s)} was {name}{inside}, {plural(place.times, 'time')}{used}; "
        f"try {advice}.",
        {
            "names": place.names,
            "seconds": place.seconds,
            "times": place.times,
            "waited_share": waited.share if waited is not None else None,
        },
        where=[name],
        limits=place.share,
        saves_s=_saved(facts, path, place),
        certainty="measured"
        if loads or (waited is not None and waited.least >= FindingLimits.min_waiting_share)
        else "likely",
    )


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
    measured.
    """
    if path.of == "tasks":
        rows = facts.tables.execute(_OF_TASK, [place.names[0]]).fetchall()
        lasted, cpu, queued, known = rows[0] if rows else (None, None, 0, False)
        outer = next((one.seconds for one in path.inside if one.names == place.names[:1]), 0.0)
        if not known or not lasted or cpu is None or not outer:
            return None
        part, cores, held_up = place.seconds / outer, cpu / lasted, queued / lasted
    else:
        process = facts.summary.resources.process
        if process is None or process.cpu_s is None or process.trees != 1:
            return None
        program = program_time(facts)
        part, cores = place.share, process.cpu_s / path.wall_s
        held_up = program.waited_s / path.wall_s if program is not None else 0.0
    active = cores + held_up
    least, most = max(0.0, part - active), part - max(0.0, active - (1 - part))
    return Waited(least / part, max(0.0, most) / part, cores)


def _saved(facts: FindingFacts, path: CriticalPath, place: PathPlace) -> float | None:
    """Were it instant: by a replay without its part of each task, else all of its time on the path."""
    if path.of == "spans":
        return place.seconds
    outer = next((one.seconds for one in path.inside if one.names == place.names[:1]), None)
    if outer is None:
        return None
    left = 1 - place.seconds / outer
    lasts = facts.of_attempts(f"(stopped - began) * {left}", "task = $1", [place.names[0]])
    return facts.saved(Changes(lasts=lasts)) if lasts else None


SYMPTOMS = (dominant_span,)
