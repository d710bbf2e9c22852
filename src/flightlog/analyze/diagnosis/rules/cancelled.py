"""Somebody, or the program above it, told it to stop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clue, Clues, ended, job_state, named, raised, recorded, says


def _given_up(facts: RunFacts) -> Iterator[Sign]:
    if facts.cancelled_by:
        yield Sign(source=Source.scheduler, weight=6, text=f"cancelled by {facts.cancelled_by}")


_STOPPED = re.compile(
    r"\bCANCELLED\b(?: AT |\+| by |.{0,40}by)|\*\*\* (?:JOB|STEP) .{0,60}CANCELLED|JobState=CANCELLED"
    r"|(?i:state)[:=] ?CANCELLED"
    r"|TERM_(?:FORCE_)?OWNER|TERM_ADMIN|Job (?:was )?deleted by|removed by user|via condor_rm|\b(?:qdel"
    r"|bkill|scancel)\b"
    r"|^\s*\d+(?:_\d+)?[\s|].*\bCANCELLED\b"
)
_FOR_A_REASON = re.compile(r"DUE TO|TIME LIMIT|PREEMPT|NODE FAIL|REQUEUE|MEMORY")
_ENDED_ITSELF = re.compile(r"\btasks? [\d,-]{1,200}: Exited with exit code (?!143\b|15\b|130\b)\d")
"""A task that ended of its own; one that was told to stop leaves with the signal's code."""


def _batch_system(case: Case) -> Iterator[Sign]:
    """The batch system cancelled it. After an exception, or a task that failed, it only clears up: the others
    are ended.
    """
    root = case.reading.root
    after = (
        root is not None
        and not root.quiet
        and root.name not in ("KeyboardInterrupt", "CancelledError", "SystemExit")
        and "SIGTERM" not in root.line
    )
    for line in case.reading.text.split("\n"):
        after = after or _ENDED_ITSELF.search(line) is not None
        if _STOPPED.search(line) and not _FOR_A_REASON.search(line):
            yield Sign(source=Source.scheduler, weight=0.8 if after else 5.5, text=line.strip()[:240])
            break
    told = None if case.facts is None else case.facts.signal
    if "SIGTERM" in (*case.reading.signals, told):
        yield Sign(source=Source.exit, weight=0.5 if after else 0.95, text="ended by SIGTERM")


_OTHER = r"TIME LIMIT|PREEMPT|NODE FAIL|REQUEUE|time limit|memory"
_LIMIT = re.compile(
    r"DUE TO|PREEMPT|NODE_FAIL|(?i:\b(?:time|run ?time|memory|wall ?time|execution time)\b.{0,20}\b(?:limit"
    r"|exceeded)"
    r"|exceeded (?:the |its )?(?:maximum|time|memory|wall)|took longer than|preempt|out of memory)"
)


def _unless_limited(clue: Clue) -> Clue:
    """Less of a clue where the text names a limit: reaching it is why the job was cancelled."""

    def look(case: Case) -> Iterator[Sign]:
        part = 0.3 if _LIMIT.search(case.reading.text) else 1.0
        for sign in clue(case):
            yield Sign(source=sign.source, weight=sign.weight * part, text=sign.text)

    return look


rule = Clues(
    recorded(_given_up),
    job_state("CANCELLED", "TERM_OWNER", "TERM_ADMIN"),
    raised(
        5.5,
        "KeyboardInterrupt TaskCancelledError JobCancelled JobCancelledError CancelledException",
        "InterruptedException Interrupted UserInterrupt InterruptException WorkflowCancelled",
        "JobCanceled Abort TaskCanceledException OperationCanceledException Canceled Cancelled",
        "FutureCancelledError RunCancelled JobCancelledException",
    ),
    raised(5.5, "CancelledError QueryCanceled OperationCancelled", unless="timeout|deadline"),
    _batch_system,
    _unless_limited(
        says(
            4.5,
            r"\b(?:job|task|run|workflow|operation|build|query|request|execution|step|pipeline|future"
            r"|process|training|statement|trial|computation|order)s?\b.{0,40}\b(?:was|were|has been"
            "|have been|is|got|been)? ?(?:cancell?ed|aborted by (?:the )?user"
            "|interrupted by (?:the )?user|stopped by (?:the )?user|terminated by (?:the )?user"
            "|killed by (?:the )?user)",
            "(?:cancell?ed|aborted|interrupted|stopped|terminated|killed|deleted|removed) (?:by|at|on"
            "|due to|per) (?:the )?(?:user|request|operator|administrator|admin|owner|uid)",
            "user (?:request(?:ed)?|cancel|abort|interrupt|stop|initiated)|keyboard ?interrupt",
            r"received (?:an )?interrupt|ctrl[-+ ]?c\b|^\^C|interrupt(?:ed)? signal",
            "graceful(?:ly)? (?:stop|shutdown|exit|shut)|cancell?ation (?:requested|was)",
            "the operation was cancell?ed|has received a shutdown signal|caught signal 2|got SIGINT",
            "received SIGINT|SIGINT received",
            unless=rf"{_OTHER}|while waiting for connection|\*\*\*|slurmstepd",
        )
    ),
    says(
        3,
        r"(?:received|caught|got|handling) (?:a )?(?:signal )?SIGTERM|SIGTERM (?:signal|received)",
        r"should(?:n't| not) be running any ?more|no longer in the running state|stop requested",
    ),
    ended("SIGINT", 130, weight=4),
    ended("SIGHUP", weight=0.8),
    named(3.5, "Cancel|KeyboardInterrupt|UserInterrupt|UserAbort", unless="timeout|deadline"),
    suggest=[
        "Ask who stopped it: `sacct -j JOB -o State,User,Comment`, the CI's log, or whoever shares the "
        "session.",
        "If nobody meant to, look for a parent that ended first (a closed terminal, a scheduler, a driver "
        "script).",
    ],
)
