"""What Ray's own errors mean for an attempt."""

from __future__ import annotations

from flightlog.engines.contract import Outcome

_REFUSALS = ("RuntimeEnvSetupError", "TaskUnschedulableError", "TaskPlacementGroupRemoved", "OutOfDiskError")
_SAYS_NOTHING = ("WorkerCrashedError", "TaskCancelledError")
"""Errors whose text is the same whatever happened."""


def refusal(error: BaseException) -> Outcome | None:
    """The outcome of an attempt that Ray could not run at all, or whose own frame failed; None if it was
    lost.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "RayTaskError" in kinds:
        cause = getattr(error, "cause", None) or error
        text = f"the worker could not execute it: {cause}"
        return Outcome(
            end="failed", error_type=type(cause).__name__, error_message=text, traceback=str(error)
        )
    if "RayError" not in kinds:
        return Outcome(end="failed", error_type=type(error).__name__, error_message=str(error))
    if kinds.intersection(_REFUSALS):
        return Outcome(end="failed", error_type=type(error).__name__, error_message=str(error).strip())
    return None


def words_of(error: BaseException) -> str | None:
    """What an error of Ray's says that the kernel does not: its first lines, on one; None if that is
    nothing.
    """
    if type(error).__name__ in _SAYS_NOTHING:
        return None
    text = " ".join(str(error).split())
    return text[:500] or type(error).__name__
