"""What to do about a cause, in terms of the run's own manifest and of how it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.diagnosis.evidence import CRASHES, NOT_FOUND, ROOMY, was_killed
from flightlog.analyze.diagnosis.wording import frame
from flightlog.analyze.history.attempts import MORE_THAN_KILLED
from flightlog.core.units import format_bytes, format_duration

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.case import GatheredCase
    from flightlog.analyze.diagnosis.requests import Plans

NEEDED = 1.2
"""Room above what a success is known to have needed."""
_GIB = 1 << 30
_MEMORY = frozenset({"out_of_memory"})
_OF_LIMITS = frozenset({"out_of_memory", "timeout", "time_limit", "unknown"})
_TRANSIENT = frozenset({"worker_lost", "preempted", "network"})


def what_to_do(found: GatheredCase, failure_class: str, plans: Plans, general: Sequence[str]) -> list[str]:
    """What the record's own values say, and what is said in general: its first says less where the record
    says more.
    """
    ended = _how_it_ended(found, failure_class)
    own = remedies(found, failure_class, plans)
    if ended:
        return [*ended, *own, *(general[1:] if failure_class != "worker_lost" else [])]
    if own and failure_class in _OF_LIMITS:
        return [*own, *general[1:]]
    return [*general[:1], *own, *general[1:]]


def _how_it_ended(found: GatheredCase, failure_class: str) -> list[str]:
    """Where to look, from how the process ended; nothing where that says no more than the class does."""
    facts, group = found.case.facts, found.group
    if facts is None:
        return []
    running = f"`{group.task}`" if group.task else "what it ran"
    if failure_class == "code_error" and facts.worker_lost_reason is not None and facts.signal in CRASHES:
        return [
            f"{running} crashed in native code, which leaves no traceback. Run that call alone, with "
            "`python -X faulthandler`, to see the line; suspect extensions that were built for other "
            "versions."
        ]
    if failure_class == "worker_lost" and facts.exit_code is not None and facts.exit_code >= 0:
        return [
            f"The worker's process ended by itself, with exit code {facts.exit_code}, while it had "
            f"{running}: look there for `os._exit`, or for a library that ends its process when something "
            "is wrong."
        ]
    if failure_class == "unknown" and group.error_type == "SystemExit":
        place = frame(group.traceback)
        return [f"The program ended itself{f', at {place}' if place else ''}: see what it had checked there."]
    if failure_class == "unknown" and group.scope == "command" and group.output_tail:
        return ["Read what the command printed before it ended: it says more than its exit code."]
    if (
        failure_class == "unknown"
        and group.scope == "command"
        and facts.exit_code
        and facts.exit_code < NOT_FOUND
    ):
        return [f"{running} said no more than its exit code, {facts.exit_code}: look that up in its manual."]
    absent = group.error_type == "CommandNotFound" or "could not be started" in (group.message or "")
    if group.scope == "command" and facts.exit_code == NOT_FOUND and absent:
        return [f"See that {running} is installed where it is to run (`command -v`), or give its whole path."]
    return []


def remedies(found: GatheredCase, failure_class: str, plans: Plans) -> list[str]:
    """Suggestions that name the user's own values, the most useful first; none where the record has none to
    name.
    """
    said: list[str] = []
    if failure_class in _MEMORY:
        said += _more_memory(found, plans)
    elif failure_class == "timeout" and found.case.facts is not None and found.case.facts.timed_out:
        said += _more_time(found, plans, "timeout", found.case.facts.timeout_s)
    elif failure_class == "time_limit" and found.case.facts is not None:
        said += _more_time(found, plans, "walltime", found.case.facts.walltime_s)
    elif failure_class in _TRANSIENT:
        said += _retries(found, plans)
    elif failure_class == "unknown" and found.group.scope == "run" and not found.group.message:
        where = f" on {found.host}" if found.host else ""
        said.append(
            f"Ask what ended the process{where} then: the kernel (`dmesg -T`), the batch system (`sacct -j "
            "JOB`), a reboot (`last -x reboot`), or whoever may kill it. What was under way, `flightlog "
            "report` shows."
        )
    return said


def _more_memory(found: GatheredCase, plans: Plans) -> list[str]:
    facts, asked, group = found.case.facts, found.asked, found.group
    assert facts is not None
    own = _largest(
        [
            group.last_peak_bytes,
            group.peak_rss_bytes,
            facts.last_rss_bytes if facts.memory_scope in {"task", "worker"} else None,
        ]
    )
    limit = _largest(
        [asked.memory_bytes if plans.enforced else None, found.job.memory_bytes if found.job else None]
    )
    in_cgroup = found.cgroup_bytes if facts.kernel_oom and limit is None else None
    parts = [_who_asks(found, limit)]
    if in_cgroup is not None:
        parts.append(f"the kernel killed it when its cgroup was at its limit of {format_bytes(in_cgroup)}")
    elif own is not None:
        killed = facts.signal == "SIGKILL" or facts.kernel_oom
        parts.append(f"its last attempt {'was killed at' if killed else 'had reached'} {format_bytes(own)}")
    peaks = facts.success_peaks_bytes
    if peaks:
        many = "the largest success" if len(peaks) == 1 else f"the {_word(len(peaks))} largest successes"
        parts.append(f"{many} needed {format_bytes(peaks[0])}{'' if len(peaks) == 1 else ' at most'}")
    far = own is not None and own < 0.5 * (limit or 0) and facts.job_state != "OUT_OF_MEMORY"
    met = [in_cgroup, None if far else limit, own]
    needed = _largest(
        [
            *(None if one is None else int(one * MORE_THAN_KILLED) for one in met),
            int(peaks[0] * NEEDED) if peaks else None,
        ]
    )
    said: list[str] = []
    if in_cgroup is not None and needed is not None:
        said.append(
            f"{'; '.join(parts)}: give the job or container that it runs in {size_text(needed)}, "
            "or let fewer workers run in it at once."
        )
    elif asked.memory_bytes is not None and (needed or 0) <= asked.memory_bytes:
        said.append(
            f"{'; '.join(parts)}: the request was not what it met, but a smaller limit (`ulimit -v`, a "
            "cgroup) or one allocation larger than all there is. Look at the line that failed."
        )
    elif _had_room(found, own, limit):
        said.append(
            f"{'; '.join(parts)}, of the {format_bytes(facts.memory_limit_bytes)} there are: it met a limit "
            "of the process (`ulimit -v`), or asked for more than there is in one piece. Look at the line "
            "that failed."
        )
    elif needed is not None:
        size = size_text(needed)
        where = f"`components.{asked.component}.memory: {size}` in {plans.manifest or 'the manifest'}"
        do = f"set {where}" if asked.in_manifest and asked.component else f"give it {size}"
        said.append(f"{'; '.join(parts)}: {do}.")
    said += _crowded(found, plans)
    if not said and group.task:
        said.append(
            f"How much memory `{group.task}` needs is not in the record: give it more, or run fewer at once."
        )
    return said


def _had_room(found: GatheredCase, own: int | None, limit: int | None) -> bool:
    """Whether an allocation was refused while, as far as anybody saw, there was room."""
    facts = found.case.facts
    if facts is None or own is None or limit is not None or facts.kernel_oom or was_killed(facts):
        return False
    room = facts.memory_limit_bytes
    full = (facts.node_memory_used_percent or 0.0) >= 90
    return not full and room is not None and own < ROOMY * room


def _crowded(found: GatheredCase, plans: Plans) -> list[str]:
    """That others had the host's memory."""
    facts, around = found.case.facts, found.around
    if facts is None or (facts.node_memory_used_percent or 0.0) < 95 or not around.running:
        return []
    beside = ", ".join(f"`{name}`" for name in around.neighbours[:3])
    fewer = f" of target `{plans.target}`" if plans.manifest and plans.target else ""
    return [
        f"The host was full, and {around.running} other attempts ran on it ({beside}): "
        f"let fewer workers{fewer} run at once."
    ]


def _who_asks(found: GatheredCase, limit: int | None) -> str:
    asked, group = found.asked, found.group
    name = (
        f"component `{asked.component}`"
        if asked.component
        else f"`{group.task}`"
        if group.task
        else "the run"
    )
    if asked.memory_bytes is not None:
        return f"{name} asks for {format_bytes(asked.memory_bytes)}"
    return f"{name} may use {format_bytes(limit)}" if limit is not None else f"{name} asks for no memory"


def _more_time(found: GatheredCase, plans: Plans, what: str, limit_s: float | None) -> list[str]:
    group, asked, success = found.group, found.asked, found.success
    task = group.task or "it"
    if limit_s is None:
        return []
    parts = [f"`{task}` may take {format_duration(limit_s)}"]
    if success is not None and success.longest_s is not None:
        parts.append(
            f"the longest of {success.completed:,} that succeeded took {format_duration(success.longest_s)}"
        )
    else:
        parts.append("none succeeded in that time")
    target = time_text(max(limit_s * MORE_THAN_KILLED, (success.longest_s or 0.0) * 2 if success else 0.0))
    if what == "timeout" and asked.task_in_manifest:
        do = f"set `tasks.{group.task}.timeout: {target}` in {plans.manifest or 'the manifest'}"
    elif what == "walltime" and asked.in_manifest and asked.walltime_s is not None:
        do = f"set `components.{asked.component}.walltime: {target}` in {plans.manifest or 'the manifest'}"
    else:
        do = f"give it {target}"
    return [f"{'; '.join(parts)}: {do}, or find out what it waited for."]


def _retries(found: GatheredCase, plans: Plans) -> list[str]:
    asked, group = found.asked, found.group
    exit_code = found.case.facts.exit_code if found.case.facts is not None else None
    if exit_code is not None and exit_code >= 0:  # it ended by itself, and would again
        return []
    if group.task is None or (group.recovered and not group.failed) or (asked.retries or 0) > 1:
        return []
    tried = "once" if not asked.retries else f"{asked.retries + 1} times"
    if asked.task_in_manifest and plans.manifest:
        do = f"set `tasks.{group.task}.retries: {max(2, (asked.retries or 0) + 2)}` in {plans.manifest}"
    else:
        do = "give it retries"
    return [
        f"`{group.task}` is tried {tried}: {do}, so that what passes by itself costs time and not the result."
    ]


def size_text(needed: int) -> str:
    """`12G`: rounded up to whole GiB, below four of them to 256 MiB."""
    if needed > 4 * _GIB:
        return f"{math.ceil(needed / _GIB)}G"
    pieces = max(1, math.ceil(needed / (256 << 20)))
    return f"{pieces // 4}G" if pieces % 4 == 0 else f"{pieces * 256}M"


def time_text(seconds: float) -> str:
    """`90m`: rounded up to whole minutes, below five of them to seconds."""
    return f"{math.ceil(seconds)}s" if seconds < 300 else f"{math.ceil(seconds / 60)}m"


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _word(number: int) -> str:
    return {2: "two", 3: "three"}.get(number, str(number))
