"""What the rules look for and suggest where a pattern is not enough, by the name that their files use.

A clue is given the case, or the facts of the record alone (`of_record`), and yields signs. A suggestion names
the case's own values: a file, a module, a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from flightlog.analyze.diagnosis.base import CRASHES, Case, RunFacts, Source
from flightlog.analyze.diagnosis.text import CONSEQUENCES, WRAPPERS, exit_codes, signals
from flightlog.analyze.limits import DiagnosisLimits, HistoryLimits
from flightlog.core.units import format_bytes, format_duration

Found = Iterator[tuple[Source, float, str]]
"""Source, weight and text of signs."""
CLUES: dict[str, Callable[[Case], Found]] = {}
SUGGESTIONS: dict[str, Callable[[Case], list[str]]] = {}


DEVICE = "a device ran out of memory"


def of_case(find: Callable[[Case], Found]) -> Callable[[Case], Found]:
    """Register what a function finds in a case."""
    CLUES[find.__name__] = find
    return find


def of_record(find: Callable[[RunFacts], Found]) -> Callable[[RunFacts], Found]:
    """Register what a function finds in the facts of the record; nothing where there is a text alone."""
    CLUES[find.__name__] = lambda case: iter(()) if case.facts is None else find(case.facts)
    return find


def suggestion(suggest: Callable[[Case], list[str]]) -> Callable[[Case], list[str]]:
    """Register what a function suggests."""
    SUGGESTIONS[suggest.__name__] = suggest
    return suggest


# --- cancelled ---


@of_record
def given_up(facts: RunFacts) -> Found:
    """The record says who gave it up."""
    if facts.cancelled_by:
        yield Source.scheduler, 6, f"cancelled by {facts.cancelled_by}"


_STOPPED = re.compile(
    r"\bCANCELLED\b(?: AT |\+| by |.{0,40}by)|\*\*\* (?:JOB|STEP) .{0,60}CANCELLED|JobState=CANCELLED"
    r"|(?i:state)[:=] ?CANCELLED"
    r"|TERM_(?:FORCE_)?OWNER|TERM_ADMIN|Job (?:was )?deleted by|removed by user|via condor_rm|\b(?:qdel"
    r"|bkill|scancel)\b(?!: error)"
    r"|^\s*\d+(?:_\d+)?[\s|].*\bCANCELLED\b"
)
_FOR_A_REASON = re.compile(r"DUE TO|TIME LIMIT|PREEMPT|NODE FAIL|REQUEUE|MEMORY")
_ENDED_ITSELF = re.compile(
    r"\btasks? [\d,-]{1,200}: Exited with exit code (?!143\b|15\b|130\b)\d|\bMPI_A(?:bort\(|BORT was)"
)
"""A task that ended of its own; one that was told to stop leaves with the signal's code."""
_CRASHED = re.compile(
    r"\btasks? [\d,-]{1,200}: (?:Segmentation fault|Aborted|Bus error|Floating point|Illegal|Out Of Memory)"
)


@of_case
def cancelled_by_batch_system(case: Case) -> Found:
    """The batch system cancelled it. After an exception, or a task that failed, it only clears up: the others
    are ended.
    """
    root = case.reading.root
    after = (
        root is not None
        and not root.quiet
        and root.name not in ("KeyboardInterrupt", "CancelledError", "SystemExit")
        and "SIGTERM" not in root.line
    ) or _CRASHED.search(case.reading.text) is not None
    for line in case.reading.text.split("\n"):
        after = after or _ENDED_ITSELF.search(line) is not None
        if _STOPPED.search(line) and not _FOR_A_REASON.search(line):
            yield Source.scheduler, 0.6 if after else 5.5, line.strip()[:240]
            break
    recorded = None if case.facts is None else case.facts.signal
    if "SIGTERM" in (*case.reading.signals, recorded):
        yield Source.exit, 0.4 if after else 0.95, "ended by SIGTERM"


# --- code_error ---


@of_record
def crashed(facts: RunFacts) -> Found:
    """A signal that a process brings upon itself."""
    if how := facts.crashed_in:
        yield Source.exit, 3.0, f"its process crashed by itself: {facts.signal}, {how}"


@suggestion
def line_that_failed(case: Case) -> list[str]:
    """The innermost line of the user's own code."""
    root = case.reading.root
    if root is None or not root.frames:
        return []
    own = [frame for frame in root.frames if "site-packages" not in frame[0] and frame[0][:1] != "<"]
    file, function, code = own[-1] if own else root.frames[-1]
    return [f"Look at `{file}`, in `{function}`{f': `{code}`' if code else ''}."]


# --- data_error ---

_PIPE = re.compile(
    r"\b(?:header|records?|input|data|read\w*)\b.{0,20}\bfrom [\"'`]?(?:-|stdin"
    r"|standard input)[\"'`]?(?=[\s.,:]|$)",
    re.M,
)


@of_case
def input_from_a_pipe(case: Case) -> Found:
    """What comes down a pipe is cut off where the program before it failed: that one's words count."""
    if found := _PIPE.search(case.reading.text):
        yield Source.words, -1.5, found[0]


# --- gpu_out_of_memory ---


@of_record
def device_memory(facts: RunFacts) -> Found:
    """What the device's allocator said, and a GPU that was full."""
    for said in facts.device_oom[:1]:
        yield Source.resources, 5.0, f"{DEVICE}: {said}"
    used = facts.gpu_memory_used_percent
    if used is not None and used >= 95:
        yield Source.resources, 1.5, f"{used:.0f} % of the GPU's memory was in use"


# --- import_error ---


@of_record
def command_not_found(facts: RunFacts) -> Found:
    """The exit code that a shell has for a command that is not there."""
    if facts.scope == "command" and facts.exit_code == 127:
        yield Source.exit, 4.0, "exit code 127: a command is not there"


_MODULE = re.compile(r"No module named '?\"?([\w.]+)")
_LIBRARY = re.compile(r"\b(lib[\w.+-]+\.so[\w.]*)")


@suggestion
def what_to_install(case: Case) -> list[str]:
    """The module and the library that are not there."""
    said = []
    if found := _MODULE.search(case.reading.text):
        said.append(
            f"`{found[1]}` is not in the environment that ran this: check with "
            f"`python -c 'import {found[1]}'` there, and install it where the workers run, too."
        )
    if found := _LIBRARY.search(case.reading.text):
        said.append(
            f"`{found[1]}` was not found or does not fit: load its module or add its folder to "
            "`LD_LIBRARY_PATH`."
        )
    return said


# --- missing_input ---

_PATH = re.compile(r"['\"]((?:[\w.-]+:/)?/?[^'\"\n]{0,300}[/.][^'\"\n]{1,300})['\"]")


@suggestion
def path_to_check(case: Case) -> list[str]:
    """The file that is not there."""
    root = case.reading.root
    found = _PATH.search(root.message if root is not None else case.reading.text)
    if found is None or "://" in found[1]:
        return []
    return [f"See whether it is there, from where the task runs: `ls -l '{found[1]}'`."]


# --- numerical ---


@of_record
def nonfinite_values(facts: RunFacts) -> Found:
    """Metrics that had become NaN."""
    if facts.nonfinite:
        names = ", ".join(f"`{name}`" for name in facts.nonfinite[:3])
        yield Source.resources, 3, f"{names} had become NaN or infinite before the end"


# --- out_of_memory ---


@of_record
def host_memory(facts: RunFacts) -> Found:
    """What the kernel and the engine say, and memory that was at its limit or far from it."""
    reason, limit = facts.worker_lost_reason or "", facts.memory_limit_bytes
    node, killed = facts.node_memory_used_percent, facts.was_killed
    blamed = facts.kernel_oom or facts.cgroup_oom_kills or facts.job_state == "OUT_OF_MEMORY"
    if facts.kernel_oom:
        yield Source.kernel, 6, "the kernel killed for memory at that moment"
    if kills := facts.cgroup_oom_kills:
        yield Source.kernel, 6, f"the cgroup counts {kills} kills for memory"
    if "for memory" in reason:  # an engine's own watch over its workers
        yield Source.scheduler, 5, reason
    known = [one for one in (facts.last_rss_bytes, facts.peak_rss_bytes) if one is not None]
    used = f"{format_bytes(max(known, default=None))} of {format_bytes(limit)}"
    share = max(known) / limit if known and limit else None
    if share is not None and share >= DiagnosisLimits.full_memory_share:
        yield Source.resources, 4 if killed else 2, f"memory stood at {used}"
        if (slope := facts.memory_slope_bytes_per_s) and slope > 0:
            text = f"memory was climbing by {format_bytes(int(slope))} a second"
            yield Source.resources, 2 if killed else 1, text
    if killed and node is not None and node >= 95:
        yield Source.resources, 3, f"{node:.0f} % of the host's memory was in use"
    elif (
        killed
        and not blamed
        and facts.memory_scope != "node"
        and share
        and share < DiagnosisLimits.roomy_memory_share
    ):
        yield Source.resources, -2.5, f"memory was far from its limit: {used}"


@suggestion
def memory_to_request(case: Case) -> list[str]:
    """The limit that was met, and what to try."""
    facts = case.facts
    limit = facts and (facts.requested_memory_bytes or facts.memory_limit_bytes)
    if facts is None or not limit:
        return ["Ask for more memory, or lower the concurrency on a host."]
    most = max((*facts.success_peaks_bytes, facts.peak_rss_bytes or 0, limit))
    enough = format_bytes(int(most * HistoryLimits.retry_factor_after_kill))
    return [f"Ask for more memory: {format_bytes(limit)} was the limit; try {enough}."]


# --- time_limit ---


@of_record
def walltime(facts: RunFacts) -> Found:
    """It ran as long as its job may."""
    ran, limit = facts.duration_s, facts.walltime_s
    if ran is not None and limit and ran >= 0.98 * limit:
        stopped = facts.signal in ("SIGTERM", "SIGXCPU") or facts.exit_code in (124, 143, -15)
        text = f"it ran {format_duration(ran)} of {format_duration(limit)} allowed"
        yield Source.resources, 4 if stopped or facts.was_killed else 2, text


@suggestion
def time_to_request(case: Case) -> list[str]:
    """The time that it had."""
    allowed = None if case.facts is None else case.facts.walltime_s
    ask = "Ask for more time" if not allowed else f"Ask for more than the {format_duration(allowed)} it had"
    return [f"{ask}, or split the work into jobs that fit."]


# --- timeout ---


@of_record
def task_timeout(facts: RunFacts) -> Found:
    """It ran as long as its task may."""
    ran, limit = facts.duration_s, facts.timeout_s
    if facts.timed_out:
        of = f" of {format_duration(limit)}" if limit is not None else ""
        yield Source.scheduler, 6, f"the engine ended the attempt at its timeout{of}"
    if ran is not None and limit and ran >= 0.98 * limit:
        yield Source.resources, 4, f"it ran {format_duration(ran)}; its timeout is {format_duration(limit)}"


_WATCHDOG = re.compile(
    r"[^\n]{0,200}(?:collective operation timeout|ran for \d+ milliseconds before timing out"
    r"|Some NCCL operations have failed or timed out|\bCollective timeout\b)[^\n]{0,100}"
)


@of_case
def collective_timeout(case: Case) -> Found:
    """A collective timed out. Where another rank raised something, that is why it waited in vain."""
    root, found = case.reading.root, _WATCHDOG.search(case.reading.text)
    if found:
        own = root is None or root.name in WRAPPERS | CONSEQUENCES or _WATCHDOG.search(root.line)
        yield Source.exception, 6 if own else 1.5, found[0]


# --- worker_lost ---

_SCHEDULERS_REASONS = frozenset({"TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "CANCELLED"})


@of_record
def lost_worker(facts: RunFacts) -> Found:
    """What is known of the worker, unless it is known why it went away."""
    reason = facts.worker_lost_reason
    if reason is not None:
        yield Source.scheduler, 3.5, f"the worker was lost: {reason}"
    if facts.lost_with:
        yield Source.neighbours, 2, f"{facts.lost_with} other tasks ended with the same worker or host"
    by_memory = facts.kernel_oom or "for memory" in (reason or "")
    if by_memory or facts.job_state in _SCHEDULERS_REASONS or facts.signal in CRASHES:
        yield Source.scheduler, -6, "what ended the worker is known"
    elif facts.hosts_workers_lost > 1:
        text = f"{facts.hosts_workers_lost} workers of host {facts.host} went away within seconds"
        yield Source.neighbours, 3, text


_LAUNCHED = frozenset({"ChildFailedError", "ProcessExitedException", "SignalException"})
_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGHUP", "SIGTERM", "SIGBUS"})
_FIRST = "Root Cause (first observed failure)"
"""What torch's launcher writes above the rank that failed first; it ends the others itself, by SIGTERM."""


@of_case
def killed_rank(case: Case) -> Found:
    """A launcher that reports a child killed from outside: the child is gone, and nobody says why."""
    root = case.reading.root
    if root is None or root.name not in _LAUNCHED:
        return
    first = case.reading.text.rpartition(_FIRST)[2]
    ends = [one for one in signals(first, exit_codes(first)) if one in _FROM_OUTSIDE]
    if ends:
        yield Source.exit, 4, f"a child process was ended by {ends[0]}"


_LAUNCHER = re.compile(r"BAD TERMINATION OF ONE OF YOUR|noticed that process rank \d")
_WHY = re.compile(
    r"\b(?:CUDA|HIP|ROCm) error\b|\bforrtl: severe|Fortran runtime error|terminate called after|FOAM FATAL",
    re.I,
)


@of_case
def rank_said_why(case: Case) -> Found:
    """A rank that says what went wrong and is then reported by its launcher was not lost."""
    text = case.reading.text
    report = _LAUNCHER.search(text)
    if report and (why := _WHY.search(text, 0, report.start())):
        yield Source.words, -2.5, why[0]
