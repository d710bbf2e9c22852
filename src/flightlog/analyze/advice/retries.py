"""Retries: those that never help, and failures that a second attempt would have mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flightlog.analyze.advice.base import Advice, worker_time
from flightlog.analyze.advice.caching import Mended
from flightlog.analyze.advice.statistics import Outcome, RunStatistics
from flightlog.analyze.limits import AdviceLimits
from flightlog.analyze.tallies import grouped
from flightlog.core.text import plural, words
from flightlog.core.units import format_percent
from flightlog.events import DEPENDENCY_FAILED

TWICE = "it may be run twice"
"""What has to hold for a retry: half of what a failed attempt did may be there already."""

TRANSIENT = words(
    """
    BrokenPipeError CommClosedError ConnectTimeout ConnectionAbortedError ConnectionError
    ConnectionRefusedError ConnectionResetError IncompleteRead KilledWorker NODE_FAIL ReadTimeout
    RemoteDisconnected SSLError TimeoutError URLError WorkerLost gaierror
    """
)
"""Errors that come from outside of the task and may be gone at the next attempt."""
LASTING = words(
    """
    AssertionError AttributeError FileNotFoundError FloatingPointError ImportError IndexError
    IsADirectoryError KeyError LinAlgError ModuleNotFoundError NameError NotADirectoryError
    NotImplementedError OverflowError PermissionError PicklingError RecursionError SyntaxError
    TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError ValueError ZeroDivisionError
    """
)
"""Errors of the code or of what it is given: they come again by their nature."""
_OTHERS = frozenset({DEPENDENCY_FAILED, "MemoryError", "OUT_OF_MEMORY", "OutOfMemoryError", "TIMEOUT"})
"""Errors that other advice is about, or that are not the task's own."""


class _Total(NamedTuple):
    """One kind of failure of one task, over all runs; figures as those of `Retried`."""

    runs: int
    tasks: int
    tried_again: int
    rescued: int
    same_again: int
    again_s: float


def is_transient(error_type: str | None) -> bool:
    """Whether an error is of a kind that a second attempt may not meet."""
    return (error_type or "").rpartition(".")[2] in TRANSIENT


def advise_retries(shapes: Sequence[RunStatistics], mended: Sequence[Mended] = ()) -> Outcome:
    """What to retry and what not, by task. `mended` are failed calls that completed when made again
    elsewhere.
    """
    rows = grouped(((row.name, row.error_type or ""), row) for shape in shapes for row in shape.retried)
    totals = {
        key: _Total(len(of), *(sum(getattr(row, field) for row in of) for field in _Total._fields[1:]))
        for key, of in rows.items()
    }
    if not totals:
        return f"no attempt failed in {len(shapes)} runs"
    advice = [
        one
        for (name, error), total in sorted(totals.items())
        if (one := _useless(name, error, total, totals, shapes) or _worth(name, error, total, shapes, mended))
    ]
    return advice or "no retries were in vain, and none are missing for certain"


def _useless(
    name: str,
    error: str,
    total: _Total,
    totals: dict[tuple[str, str], _Total],
    shapes: Sequence[RunStatistics],
) -> Advice | None:
    """Retries that never helped: the task fails every time, of the same error."""
    kind = error.rpartition(".")[2]
    if kind in TRANSIENT or kind in _OTHERS or not error:
        return None
    least = AdviceLimits.min_vain_retries if kind in LASTING else AdviceLimits.min_vain_retries_of_transient
    if total.tried_again < least or total.rescued or total.same_again < total.tried_again:
        return None
    runs = len(shapes)
    spent = sum(shape.time.total_s for shape in shapes if shape.time is not None)
    each_s = total.again_s / total.runs
    small = each_s < AdviceLimits.large_retry_s and total.again_s < AdviceLimits.min_retry_share * spent
    if each_s < AdviceLimits.min_retry_s or small:
        return None
    helped = sorted(other for (task, other), it in totals.items() if task == name and it.rescued)
    planned = _planned(name, shapes)
    # 0 of n says that fewer than 3 in n help (95 % CI).
    bound = min(1.0, 3 / total.tried_again)
    changes = {f"tasks.{name}.retries": "0"} if planned and not helped else {}
    but = (
        f"; keep them for {', '.join(helped)}, where they helped, and let {kind} end the task at once in "
        "its code"
        if helped
        else ""
    )
    return Advice(
        kind="retries",
        about=name,
        sentence=(
            f"Do not retry {name} for {kind}: {total.tried_again:,} tasks that failed of it were "
            f"retried in {total.runs} of {runs} runs, and every one failed of it every time{but}."
        ),
        evidence={
            "runs": runs,
            "runs_with_it": total.runs,
            "error_type": error,
            "tried_again": total.tried_again,
            "rescued": 0,
            "chance_that_one_helps_at_most": bound,
            "again_s": total.again_s,
            "retries": planned,
        },
        gain=f"{worker_time(total.again_s / total.runs)} in a run that meets it",
        gain_s=total.again_s / runs,
        changes=changes,
    )


def _planned(name: str, shapes: Sequence[RunStatistics]) -> int | None:
    """The retries of a task in the newest plan that names it."""
    return next((s.planned.tasks[name].retries for s in shapes if name in s.planned.tasks), None)


def _worth(
    name: str, error: str, total: _Total, shapes: Sequence[RunStatistics], mended: Sequence[Mended]
) -> Advice | None:
    """Failures for good that a further attempt would likely have mended."""
    kind = error.rpartition(".")[2]
    if kind in _OTHERS or not error:
        return None
    planned = _planned(name, shapes)
    given_up = total.tasks - total.tried_again
    if planned or not given_up:
        return None
    evidence = {"runs": len(shapes), "error_type": error, "failed_for_good": given_up, "retries": planned}
    few, most = AdviceLimits.min_rescued_tasks, AdviceLimits.min_rescued_share
    if total.tried_again >= few and total.rescued >= most * total.tried_again:
        share = total.rescued / total.tried_again
        why = f"{total.rescued:,} of {total.tried_again:,} tasks that were retried after it completed"
        evidence |= {"tried_again": total.tried_again, "rescued": total.rescued}
    else:
        again = next((m for m in mended if (m.name, m.error_type) == (name, error)), None)
        if again is None or again.completed < max(few, most * again.calls):
            return None
        share = again.completed / again.calls
        why = (
            f"{again.completed:,} of {again.calls:,} calls that failed of it completed in other runs of "
            "the same code"
        )
        evidence |= {"calls": again.calls, "completed_elsewhere": again.completed}
    return Advice(
        kind="retries",
        about=name,
        sentence=(
            f"Retry {name} up to {AdviceLimits.advised_retries} times: {plural(given_up, 'task')} failed "
            f"for good of {kind} in {total.runs} of {len(shapes)} runs, and {why}. Only if {TWICE}."
        ),
        evidence=evidence,
        gain=f"about {format_percent(share)} of these failures",
        gain_s=None,
        changes={f"tasks.{name}.retries": str(AdviceLimits.advised_retries)}
        if shapes[0].planned.target is not None
        else {},
        only_if=TWICE,
    )
