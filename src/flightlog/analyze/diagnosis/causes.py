"""Which of several exceptions in a text the others came of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from flightlog.analyze.diagnosis.exceptions import Raised

FALLBACKS = frozenset(
    [
        "KeyError",
        "AttributeError",
        "StopIteration",
        "StopAsyncIteration",
        "IndexError",
        "Empty",
        "LookupError",
        "NameError",
    ]
)
"""Types that programs raise and handle as a matter of course, to look elsewhere: what comes next is the
failure."""
WRAPPERS = frozenset(
    [
        "ChildFailedError",
        "CalledProcessError",
        "ProcessRaisedException",
        "SubprocessError",
        "ActorDiedError",
        "RayTaskError",
        "MPIAbortException",
        "JobFailedError",
        "TaskError",
        "WorkflowError",
        "CondaError",
        "SystemExit",
        "SparkException",
        "Py4JJavaError",
        "LightningException",
        "TrialFailedError",
        "TuneError",
        "InvocationException",
        "RuleException",
        "HydraException",
        "InstantiationException",
        "ExceptionGroup",
        "BaseExceptionGroup",
        "ExecutionException",
        "InvocationTargetException",
        "CompletionException",
        "UncheckedIOException",
        "PythonException",
        "DeadKernelError",
        "CellExecutionError",
        "AirflowException",
        "InternalError",
        "PicklingFailed",
        "ProcessExitedException",
    ]
)
"""Types that report another failure."""
CONSEQUENCES = frozenset(
    [
        "BrokenPipeError",
        "ConnectionResetError",
        "ConnectionAbortedError",
        "EOFError",
        "CancelledError",
        "BrokenBarrierError",
        "DistBackendError",
        "DistNetworkError",
        "CommClosedError",
        "KeyboardInterrupt",
        "ResourceWarning",
        "IncompleteReadError",
        "UserWarning",
        "RuntimeWarning",
        "FutureWarning",
        "DeprecationWarning",
    ]
)
"""Types that the death of another process or rank brings about, or that only warn."""


_ELSEWHERE = re.compile(
    r"root cause|see (?:the )?(?:stack ?trace|traceback|above|below|log)|look up to see|background process"
    r"|following error",
    re.I,
)
"""Messages that say that the failure stands somewhere else in the text."""


def _chains(found: Sequence[Raised]) -> list[list[Raised]]:
    chains: list[list[Raised]] = []
    following = False
    for one in found:
        if following:
            chains[-1].append(one)
        else:
            chains.append([one])
        following = one.link is not None
    return chains


def _chain_root(chain: Sequence[Raised]) -> Raised:
    for one, after in pairwise(chain):
        if one.link == "cause" and one.name not in CONSEQUENCES:
            return one
        if one.link == "context" and one.name not in FALLBACKS | CONSEQUENCES:
            return one
        if one.link == "context" and after.name in WRAPPERS:
            return one
    return chain[-1]


def root_of(found: Sequence[Raised]) -> Raised | None:
    """Of several chains (ranks, workers, retries) the first that is no report and no consequence of
    another's.
    """
    roots = [_chain_root(chain) for chain in _chains(found)]

    def reports(one: Raised) -> bool:
        elsewhere = _ELSEWHERE.search(one.message) is not None
        unfinished = one is not roots[-1] and one.message.rstrip().endswith(":")
        return one.name in WRAPPERS | CONSEQUENCES or elsewhere or unfinished

    def rank(one: Raised) -> int:
        return (
            reports(one) * 4 + one.quiet * 2 + (one.mentioned and any(not other.mentioned for other in roots))
        )

    return min(roots, key=rank, default=None)


def share_of(one: Raised, root: Raised | None) -> float:
    """How much an exception counts as the cause beside the root: 0 to 1."""
    if one.quiet or one.name in WRAPPERS:
        return 0.25
    if one.name in CONSEQUENCES or (one.link == "context" and one.name in FALLBACKS):
        return 0.2
    return 0.5 if one.mentioned or root is not None else 1.0
