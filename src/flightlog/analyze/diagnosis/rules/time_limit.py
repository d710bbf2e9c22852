"""The job ran as long as it was allowed to, and was ended."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import (
    Clues,
    ended,
    job_state,
    named,
    raised,
    recorded,
    reports,
    says,
)
from flightlog.core.units import format_duration


def _facts(facts: RunFacts) -> Iterator[Sign]:
    ran, limit = facts.duration_s, facts.walltime_s
    if ran is not None and limit and ran >= 0.98 * limit:
        stopped = (
            facts.was_killed or facts.signal in ("SIGTERM", "SIGXCPU") or facts.exit_code in (124, 143, -15)
        )
        text = f"it ran {format_duration(ran)} of {format_duration(limit)} allowed"
        yield Sign(source=Source.resources, weight=4 if stopped else 2, text=text)


def _suggest(case: Case) -> list[str]:
    allowed = None if case.facts is None else case.facts.walltime_s
    ask = "Ask for more time" if not allowed else f"Ask for more than the {format_duration(allowed)} it had"
    return [
        f"{ask}, or split the work into jobs that fit.",
        "Write checkpoints, and ask for a signal before the end (`#SBATCH --signal=B:USR1@300`) to write "
        "the last one.",
    ]


rule = Clues(
    recorded(_facts),
    job_state("TIMEOUT", "TIMELIMIT", "TERM_RUNLIMIT", "TERM_CPULIMIT", "DEADLINE"),
    reports(
        6,
        r"DUE TO TIME LIMIT|\bCANCELLED\b.{0,60}TIME ?LIMIT|TERM_RUNLIMIT|TERM_CPULIMIT|\bTIMELIMIT\b",
        "JobState=TIMEOUT|State[:=] ?TIMEOUT|STATE: ?TIMEOUT|Reason=TimeLimit",
    ),
    reports(
        5,
        r"^\s*\d+(?:_\d+)?(?:\.\w+)?[\s|].*\bTIMEOUT\b|\bTIMEOUT\b[\s|]+(?:\d+-)?\d\d:\d\d:\d\d",
        r"hard limit \"?(?:h_rt|s_rt|h_cpu)|allowed_(?:job|execute)_duration|allocation (?:has "
        r"|was )?expired",
    ),
    reports(
        4.5,
        r"\b(?<!\.)DeadlineExceeded\b|active longer than specified deadline|activeDeadlineSeconds",
        unless=r"rpc|desc =",
    ),
    says(
        5,
        r"\bwall[ -]?(?:clock )?time\b.{0,60}\b(?:exceed|limit|expired|reached|over)",
        r"\b(?:exceed|reach)\w*\b.{0,60}\bwall[ -]?(?:clock)?[ -]?time",
        r"\b(?:job|step|task|run|build|query|workflow|instance|kernel|notebook|pod|container"
        r"|allocation|session)\b.{0,60}\b(?:exceeded|reached|hit|over)\b.{0,40}\b(?:time ?limit"
        "|maximum (?:execution|run) ?time|run ?time limit|time allowed)",
        r"\btime ?limit (?:was )?(?:exceeded|reached|expired|hit)|\bcpu(?: ?time)? ?limit exceeded",
        "maximum (?:execution|run) ?time|exceeded (?:the |its |hard |soft )*(?:time|run ?time|cpu) ?limit",
        "killed? .{0,30}(?:time|runtime) limit|run time limit",
    ),
    says(
        4,
        r"\bwallclock\b.{0,40}(?:exceed|limit)",
        r"\b(?:exceed\w*|reach(?:ed|ing)|hit|after|over)\b.{0,40}\b(?:job|run|run ?time|hard|soft"
        r"|cpu|execution|maximum|max|allowed|queue)[- ]?(?:run)?[ -]?time(?: ?limit)?\b(?!out)",
        unless=r"\b(?:retries|memory)\b",
    ),
    says(
        4,
        "job attempt duration exceeded timeout|job execution exceeded",
        "ran (?:for )?longer than (?:the )?(?:allowed|maximum|permitted)",
        r"\b(?:exceeded|ran past|ran over|used up|past) (?:its|the|their) (?:maximum |allowed |requested )*"
        r"(?:time (?:allotment|allocation|budget|window)|(?:run|job) duration|duration|wall ?time)\b",
        r"\b(?:build|workflow|pipeline) timed out|wall ?clock limit",
    ),
    raised(4.5, "TimeLimitExceeded SoftTimeLimitExceeded WallTimeExceeded WalltimeExceeded TimeLimitError"),
    ended("SIGXCPU", weight=4),
    named(4, "TimeLimit|Wall[Tt]ime|RunLimit"),
    says(
        4,
        r"\b(?:execution|job|build|run|step)\b.{0,40}took longer than|exceeded .{0,20}\btime ?limit",
        unless="answer|respon|reply",
    ),
    suggest=_suggest,
)
