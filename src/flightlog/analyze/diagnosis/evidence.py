"""Evidence that only a record has for and against a class, beside what the rules see in its facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from flightlog.analyze.diagnosis.base import Case, Rule, RunFacts, Sign, Source
from flightlog.core.units import format_bytes, format_duration, format_percent

FULL = 0.9
"""Memory beyond this part of its limit leaves no room for the next allocation."""
HOST_FULL_PERCENT = 97.0
ROOMY = 0.5
"""Memory below this part of its limit was not the matter."""
RECORDER = "the recorder itself could not write"
DEVICE = "a device ran out of memory"
CRASHES = {
    "SIGSEGV": "memory that it may not touch",
    "SIGILL": "an instruction that the CPU does not know",
    "SIGFPE": "a division that the CPU refused",
}
"""Signals that a process brings upon itself."""
NOT_FOUND = 127
"""Exit code of a command that is not there."""
KILLED_CODES = frozenset({137, -9})

FactSigns = Callable[[RunFacts], Iterator[Sign]]


def with_record(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules, each with the signs of the record for its class beside its own."""
    return {name: _Both(rule, _SIGNS[name]) if name in _SIGNS else rule for name, rule in rules.items()}


class _Both:
    """A rule, and what the record says for its class."""

    def __init__(self, rule: Rule, of_record: FactSigns) -> None:
        self._rule, self._of_record = rule, of_record

    def signs(self, case: Case, /) -> Iterable[Sign]:
        """Both."""
        yield from self._rule.signs(case)
        if case.facts is not None:
            yield from self._of_record(case.facts)

    def suggestions(self, case: Case, /) -> list[str]:
        """The rule's."""
        return self._rule.suggestions(case)


def was_killed(facts: RunFacts) -> bool:
    """Whether it ended by a signal that nobody can catch, or without any word."""
    return (
        facts.signal == "SIGKILL"
        or facts.exit_code in KILLED_CODES
        or (facts.scope == "run" and facts.run_status == "crashed")
        or (facts.worker_lost_reason is not None and facts.exit_code is None and facts.signal is None)
    )


def _out_of_memory(facts: RunFacts) -> Iterator[Sign]:
    reason = facts.worker_lost_reason or ""
    if "for memory" in reason:  # an engine's own watch over its workers
        yield Sign(source=Source.scheduler, weight=5.0, text=reason)
    if not was_killed(facts):
        return
    known = [one for one in (facts.last_rss_bytes, facts.peak_rss_bytes) if one is not None]
    used, limit, host = max(known, default=None), facts.memory_limit_bytes, facts.node_memory_used_percent
    share = used / limit if used is not None and limit and facts.memory_scope != "node" else None
    silent = facts.signal is None and facts.exit_code is None
    if silent and share is not None and share >= FULL:
        text = (
            f"it was last seen with {format_bytes(used)}, {format_percent(share)} of the "
            f"{format_bytes(limit)} there are"
        )
        yield Sign(source=Source.resources, weight=3.5, text=text)
    elif silent and host is not None and host >= HOST_FULL_PERCENT:
        yield Sign(source=Source.resources, weight=2.5, text=f"{host:.0f}% of the host's memory was in use")
    elif _was_roomy(facts, share):
        text = f"memory was far from its limit: {format_bytes(used)} of {format_bytes(limit)}"
        yield Sign(source=Source.resources, weight=-2.5, text=text)


def _was_roomy(facts: RunFacts, share: float | None) -> bool:
    """Whether memory is known not to have been the matter; a kernel or a batch system that says otherwise is
    right.
    """
    blamed = facts.kernel_oom or facts.cgroup_oom_kills or facts.job_state == "OUT_OF_MEMORY"
    full = (facts.node_memory_used_percent or 0.0) >= 100 * FULL
    return not blamed and not full and share is not None and share < ROOMY


def _time_limit(facts: RunFacts) -> Iterator[Sign]:
    ran, limit = facts.duration_s, facts.walltime_s
    if facts.scope == "run" and facts.run_status == "crashed" and ran and limit and ran >= 0.98 * limit:
        text = f"it went away after {format_duration(ran)}; its job may take {format_duration(limit)}"
        yield Sign(source=Source.scheduler, weight=3.0, text=text)


def _timeout(facts: RunFacts) -> Iterator[Sign]:
    if facts.timed_out:
        limit = f" of {format_duration(facts.timeout_s)}" if facts.timeout_s is not None else ""
        yield Sign(
            source=Source.scheduler, weight=6.0, text=f"the engine ended the attempt at its timeout{limit}"
        )


def _worker_lost(facts: RunFacts) -> Iterator[Sign]:
    by_memory = facts.kernel_oom or "for memory" in (facts.worker_lost_reason or "")
    if by_memory or facts.job_state in _SCHEDULERS_REASONS or facts.signal in CRASHES:
        yield Sign(source=Source.scheduler, weight=-6.0, text="what ended the worker is known")
    elif facts.hosts_workers_lost > 1:
        text = f"{facts.hosts_workers_lost} workers of host {facts.host} went away within seconds"
        yield Sign(source=Source.neighbours, weight=3.0, text=text)


def _code_error(facts: RunFacts) -> Iterator[Sign]:
    if facts.worker_lost_reason is not None and facts.signal in CRASHES:
        text = f"its process crashed by itself: {facts.signal}, {CRASHES[facts.signal]}"
        yield Sign(source=Source.exit, weight=3.0, text=text)


def _import_error(facts: RunFacts) -> Iterator[Sign]:
    if facts.scope == "command" and facts.exit_code == NOT_FOUND:
        yield Sign(source=Source.exit, weight=4.0, text=f"exit code {NOT_FOUND}: a command is not there")


def _gpu_out_of_memory(facts: RunFacts) -> Iterator[Sign]:
    for said in facts.device_oom[:1]:
        yield Sign(source=Source.resources, weight=5.0, text=f"{DEVICE}: {said}")


def _disk_full(facts: RunFacts) -> Iterator[Sign]:
    if facts.recorder_lost is not None and facts.scope not in {"metric", "device"}:
        text = f"{RECORDER}: {facts.recorder_lost}"
        yield Sign(source=Source.kernel, weight=1.6 if facts.scope == "run" else 2.0, text=text)


_SCHEDULERS_REASONS = frozenset({"TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "CANCELLED"})
_SIGNS: dict[str, FactSigns] = {
    "out_of_memory": _out_of_memory,
    "time_limit": _time_limit,
    "timeout": _timeout,
    "worker_lost": _worker_lost,
    "code_error": _code_error,
    "import_error": _import_error,
    "gpu_out_of_memory": _gpu_out_of_memory,
    "disk_full": _disk_full,
}
