"""A scored group in words: headline, evidence with its place in the run, what was not recorded, the commands
that show it, and what to do about it, in terms of the run's own manifest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from flightlog.analyze.devices.report import REMEDIES
from flightlog.analyze.diagnosis.base import Diagnosis, Sign, Source
from flightlog.analyze.diagnosis.group import Group, RunningAttempt
from flightlog.analyze.diagnosis.read import RunContext
from flightlog.analyze.diagnosis.results import Cause, CauseExample, Evidence, Explained
from flightlog.analyze.diagnosis.rules.functions import DEVICE
from flightlog.analyze.diagnosis.score import GroupCase, weigh, without_own_frames
from flightlog.analyze.limits import DiagnosisLimits, HistoryLimits
from flightlog.analyze.tallies import copied
from flightlog.core.text import cut, first_line, first_sentences, last_line, plural
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.store.read.completeness import lowered
from flightlog.store.tables.connection import text as sql_text

_MEMORY_MATTERS = frozenset({"unknown", "worker_lost", "out_of_memory"})
_INSTALLED = ("/lib/python3", "site-packages", "dist-packages", "<frozen ")
_NOT_FOUND = 127
"""Exit code of a command that is not there."""


def explain(found: GroupCase) -> Cause:
    """The cause of a group: scored once, and told in the run's own words."""
    group, hosts = found.group, found.record.workers.hosts
    judged, signs = weigh(found.case)
    found.record.problems += judged.problems
    scope, count, example = group.scope, group.count, None
    if group.lost is not None:
        scope = "job" if group.lost.jobs else "worker"
        count = group.lost.processes or len(group.lost.jobs)
    if group.task_id is not None or group.message is not None:
        example = copied(CauseExample, group, frame=frame(group.traceback))
    known = {host for name in group.workers if (host := hosts.get(name))}
    known |= {group.host} if group.host else set()
    return cause_of(
        group,
        judged,
        scope=scope,
        headline=_headline(found),
        count=count,
        hosts=sorted(known),
        explains=Explained(
            lost_tasks=group.lost_tasks if group.lost is not None else 0,
            dependents=group.dependents + group.given_up,
            in_flight=group.in_flight,
        ),
        evidence=_evidence(found, signs, judged.failure_class),
        suggestions=_what_to_do(found, judged.failure_class, judged.suggestions),
        checks=list(_checks(found, judged.failure_class)),
        missing=list(_missing(found, judged.failure_class)),
        example=example,
    )


def cause_of(group: Group, judged: Diagnosis, **others: Any) -> Cause:
    """The cause that a group was judged to have; `others` are the fields that neither of them has."""
    sure = certainty(judged.failure_class, judged.confidence)
    return copied(Cause, {**asdict(group), **asdict(judged)}, certainty=sure, **others)


def certainty(failure_class: str, confidence: float) -> str:
    """The confidence in words."""
    if failure_class == "unknown":
        return "unknown"
    for least, word in ((0.9, "very likely"), (0.7, "likely"), (0.5, "possible")):
        if confidence >= least:
            return word
    return "a guess"


def _headline(found: GroupCase) -> str:
    """What happened, in a line without a full stop."""
    group, incident, job = found.group, found.group.lost, found.job
    if incident is not None and incident.jobs:
        first = incident.jobs[0]
        more = f" and {len(incident.jobs) - 1:,} more" if len(incident.jobs) > 1 else ""
        return f"{first.scheduler} job {first.job_id}{more} ended as {first.state}"
    if incident is not None and incident.host is not None:
        return f"host {incident.host} went away with {format_count(incident.processes)} workers"
    if incident is not None and incident.losses:
        lost, many = incident.losses[0], incident.processes
        what = "a worker process" if many == 1 else f"{format_count(many)} worker processes"
        surest = first_line(lost.reason).partition("; ")[0]
        reason = cut(surest, DiagnosisLimits.max_quoted_characters)
        if len(incident.losses) == 1:
            where = f" on {lost.host}" if lost.host else ""
            return f"worker {lost.worker}{where} was lost: {reason}"
        return f"{what} went away: {reason}"
    if group.recorded_in == "run.json":
        return _run_line(found)
    scopes = {"worker": "a worker", "command": "a command"}
    what = f"`{group.task}`" if group.task else scopes.get(group.scope, "the run")
    what = _named(group.tasks) if len(group.tasks) > 1 and group.scope != "run" else what
    times = "" if group.count == 1 else f" {format_count(group.count)} times"
    said = _said(group.error_type or ("job " + job.state if job else None), group.message)
    return f"{what} failed{times}{f': {said}' if said else ''}"


def _said(error_type: str | None, message: str | None) -> str:
    return ": ".join(
        part for part in (error_type, first_sentences(message, DiagnosisLimits.max_quoted_characters)) if part
    )


def _named(tasks: Mapping[str, int]) -> str:
    """Names of several tasks, the most frequent first."""
    first, *others = (f"`{name}`" for name in tasks)
    if len(others) == 1:
        return f"{first} and {others[0]}"
    more = f"{len(others) - 1}{' or more' if len(tasks) >= DiagnosisLimits.max_named else ''}"
    return f"{first}, {others[0]} and {more} other tasks"


def _run_line(found: GroupCase) -> str:
    facts = found.facts
    if facts.run_status == "crashed":
        return "the run's process exited unexpectedly"
    if facts.run_status == "interrupted":
        return f"the run was interrupted{f' by {facts.cancelled_by}' if facts.cancelled_by else ''}"
    how = f"ended by {found.group.signal}" if found.group.signal else "no reason was recorded"
    return f"the run failed: {first_line(found.group.message or how, DiagnosisLimits.max_quoted_characters)}"


def frame(traceback: str | None) -> str | None:
    """The innermost frame of a traceback that is in the user's own code; else the innermost that is not
    Flightlog's.
    """
    lines = without_own_frames(traceback or "").splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    own = [line for line in frames if not any(part in line for part in _INSTALLED)]
    return own[-1] if own else frames[-1] if frames else None


def _evidence(found: GroupCase, speaking: Sequence[Sign], failure_class: str) -> list[Evidence]:
    """What speaks for the class, the strongest first, each with where it stands; then what else is known."""
    texts = [sign.text for sign in speaking]
    signs = [one for one in speaking if not any(one.text in other and one.text != other for other in texts)]
    shown: list[Evidence] = []
    for sign in signs[: DiagnosisLimits.max_evidence]:
        message = sign.text.removeprefix(f"{DEVICE}: ")
        start = message[: DiagnosisLimits.max_quoted_characters // 2]
        if message != sign.text and any(start in one.text for one in shown):
            message = DEVICE  # where it stands is new, and what it says is not
        else:
            message = cut(sign.text, DiagnosisLimits.max_evidence_characters + len(DEVICE))
        shown.append(_placed(found, message, sign.source, failure_class))
    if not shown and (found.group.message or found.group.error_type):
        shown.append(_placed(found, _said(found.group.error_type, found.group.message), Source.words))
    printed = cut(last_line(found.group.output_tail), DiagnosisLimits.max_quoted_characters)
    if found.group.scope == "command" and printed and not any(printed in one.text for one in shown):
        shown.append(_placed(found, f"the last that it printed: {printed}", Source.words))
    reason = found.job.reason if found.job is not None and found.group.lost is not None else None
    if reason and not any(reason in text for text in texts):
        shown.append(_placed(found, reason, Source.scheduler))
    if failure_class in _MEMORY_MATTERS:
        shown += [one for one in _beside(found) if one.text not in texts]
    return shown or [_placed(found, "nothing was recorded that tells how it ended", Source.words)]


def _placed(found: GroupCase, text: str, source: Source, failure_class: str = "") -> Evidence:
    text = text.rstrip(": ")  # of an exception without a message
    if text.startswith(DEVICE) and found.device_file is not None:
        return Evidence(text=text, source=source.value, file=found.device_file)
    origin = found.origins[source]
    if source is Source.resources:
        origin = found.origins.get(failure_class, origin)
    return Evidence(text=text, source=source.value, **origin._asdict())


def _beside(found: GroupCase) -> Iterator[Evidence]:
    """The curve and the neighbours, where they help to judge a death that nothing else explains."""
    facts, around, group = found.facts, found.around, found.group
    if group.under_way:
        calls = ", ".join(
            f"{_call(one)}{f' on {one.worker}' if one.worker else ''} for {format_duration(one.lasted_s)}"
            for one in group.under_way
        )
        yield Evidence(text=f"under way then: {calls}", source="neighbours", file="tasks.jsonl")
    if not (facts.was_killed or facts.worker_lost_reason):
        return
    if group.suspect is not None and group.lost is not None and group.suspect[2] >= group.lost.processes:
        task, task_id, workers = group.suspect
        yield Evidence(
            text=f"each of the {workers} lost workers had `{task}` ({task_id}): it may be what ends them",
            source="neighbours",
            file="tasks.jsonl",
        )
    if around.samples and around.last_bytes is not None:
        whose = {"task": "the task", "worker": "its process tree", "cgroup": "the cgroup", "node": "the host"}
        over = f", from {format_bytes(around.first_bytes)}" if around.samples > 1 else ""
        limit = facts.memory_limit_bytes
        of = f" of {format_bytes(limit)}" if limit and around.memory_scope != "node" else ""
        text = f"memory of {whose.get(around.memory_scope or '', 'it')} before the end: "
        yield _placed(found, f"{text}{format_bytes(around.last_bytes)}{of}{over}", Source.resources)
    if group.peak_rss_bytes is not None and group.peak_rss_bytes > (around.last_bytes or 0):
        yield Evidence(
            text=f"the most that was seen of it: {format_bytes(group.peak_rss_bytes)}",
            source="resources",
            file="tasks.jsonl",
            event="task_failed",
        )
    if around.running and group.scope != "run":  # of a run that went away, nobody knows when exactly it did
        names = ", ".join(f"`{name}`" for name in around.neighbours[:3])
        text = f"{plural(around.running, 'other attempt')} ran on the host then: {names}"
        yield Evidence(text=text, source="neighbours", file="tasks.jsonl")


def _call(one: RunningAttempt) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in one.args.items())
    return cut(f"{one.task}({given})", DiagnosisLimits.max_quoted_characters // 2)


def _missing(found: GroupCase, failure_class: str) -> Iterator[str]:
    """What would have told more, and how to have it next time."""
    facts = found.facts
    dark = failure_class in _MEMORY_MATTERS and (facts.was_killed or facts.worker_lost_reason)
    if facts.scope == "run" and facts.run_status == "crashed" and found.record.recorder_lost is not None:
        yield (
            "How the program ended is not recorded. The recorder could not write then "
            f"({lowered(found.record.recorder_lost)}): that is why data is missing, not why the program "
            "ended."
        )
    if dark and not found.around.samples:
        yield "No memory was sampled before the end: record with `sample_interval_s=1` to see it climb."
    if dark and facts.was_killed and facts.kernel_oom is None and not facts.job_state:
        where = f" on {found.group.host}" if found.group.host else ""
        yield (
            "Nothing in the record says that the kernel killed it for memory; "
            f"`dmesg -T | grep -i 'killed process'`{where} would."
        )
    if (unaccounted := found.record.workers.unaccounted) and failure_class in {"unknown", "worker_lost"}:
        jobs = ",".join(unaccounted[:3])
        yield (
            f"The batch system was not asked how its jobs ended: `flightlog adopt --slurm {jobs}` adds it "
            "to the run."
        )
    if failure_class == "unknown" and found.group.scope == "command" and not found.group.output_tail:
        yield (
            "No output of the command is in the record: it printed nothing, or printed past `flightlog run`."
        )


def _checks(found: GroupCase, failure_class: str) -> Iterator[str]:
    """Commands that show the evidence, ready to be typed."""
    group, ref = found.group, found.record.ref
    named = shlex.quote(ref)
    if group.task is not None and failure_class in {"out_of_memory", "timeout", "time_limit"}:
        task, many = sql_text(group.task), sql_text(group.task + "[")
        most = "peak_rss_bytes" if failure_class == "out_of_memory" else "duration_s"
        query = f"{_ATTEMPTS} WHERE task = {task} OR starts_with(task, {many}) ORDER BY {most} DESC"
        yield sql_command(f"{query} NULLS LAST LIMIT 10", ref)
    if group.lost is not None and group.lost.losses:
        yield sql_command(_LOST, ref)
    if found.job is not None:
        yield sql_command(_JOBS, ref)
    if failure_class == "gpu_out_of_memory":
        yield f"flightlog devices {named}"
    own_end = group.scope == "run" and group.recorded_in == "run.json"
    if own_end and failure_class == "cancelled":
        yield f"flightlog report {named}"
    elif own_end:
        yield sql_command(_MEMORY_SAMPLES, ref)
    elif group.count:
        yield f"flightlog report {named} --failures"
    if failure_class == "out_of_memory" and group.task is not None and found.facts.component is not None:
        elsewhere = f" --runs-dir {shlex.quote(ref.rpartition('/')[0])}" if "/" in ref else ""
        project = shlex.quote(found.record.run.info.project)
        yield f"flightlog advise --task {shlex.quote(group.task)} --project {project}{elsewhere}"


_ATTEMPTS = "SELECT task, attempt, state, peak_rss_bytes, duration_s, worker FROM attempts"
_LOST = "SELECT timestamp, worker, host, signal, exit_code, reason FROM workers WHERE event = 'worker_lost'"
_JOBS = (
    "SELECT job_id, state, reason, elapsed_s, walltime_s, max_rss_bytes FROM jobs "
    "WHERE event = 'job_accounted'"
)
_MEMORY_SAMPLES = (
    "SELECT timestamp, scope, host, memory_used_bytes, memory_total_bytes, oom_kills FROM resources "
    "WHERE scope IN ('node', 'cgroup') ORDER BY timestamp DESC LIMIT 5"
)


def sql_command(query: str, ref: str) -> str:
    """A command that shows the rows of a query, ready to be typed."""
    plain = not any(character in query for character in '"$`\\!\n')
    quoted = f'"{query}"' if plain else shlex.quote(query)
    return f"flightlog sql {quoted} --run {shlex.quote(ref)}"


_GIB = 1 << 30
_OF_LIMITS = frozenset({"out_of_memory", "timeout", "time_limit", "unknown"})
_TRANSIENT = frozenset({"worker_lost", "preempted", "network"})


def _what_to_do(found: GroupCase, failure_class: str, general: Sequence[str]) -> list[str]:
    """What the record's own values say, and what is said in general: its first says less where the record
    says more.
    """
    general = with_device_cause(found.record, failure_class, general)
    ended = _how_it_ended(found, failure_class)
    own = _remedies(found, failure_class)
    if ended:
        return [*ended, *own, *(general[1:] if failure_class != "worker_lost" else [])]
    if own and failure_class in _OF_LIMITS:
        return [*own, *general[1:]]
    return [*general[:1], *own, *general[1:]]


def with_device_cause(record: RunContext, failure_class: str, general: Sequence[str]) -> Sequence[str]:
    """What is said in general; where it is known why a device ran out of memory, that and how to see more."""
    cause = record.device_cause
    if cause is None or failure_class != "gpu_out_of_memory":
        return general
    return [f"{cause.text} Try {REMEDIES[cause.kind]}.", *general[1:2]]


def _how_it_ended(found: GroupCase, failure_class: str) -> list[str]:
    """Where to look, from how the process ended; nothing where that says no more than the class does."""
    facts, group = found.facts, found.group
    running = f"`{group.task}`" if group.task else "what it ran"
    if failure_class == "code_error" and facts.crashed_in:
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
    if failure_class == "worker_lost" and group.scope == "run" and group.under_way:
        which = "One of the calls that were" if group.in_flight > 1 else "The call that was"
        return [
            f"{which} under way ended its process, most often for memory: run it alone, and watch its memory."
        ]
    if failure_class == "unknown" and group.error_type == "SystemExit":
        place = frame(group.traceback)
        return [f"The program ended itself{f', at {place}' if place else ''}: see what it had checked there."]
    if failure_class == "unknown" and group.scope == "command" and group.output_tail:
        return ["Read what the command printed before it ended: it says more than its exit code."]
    code = facts.exit_code or _NOT_FOUND
    if failure_class == "unknown" and group.scope == "command" and code < _NOT_FOUND:
        return [f"{running} said no more than its exit code, {code}: look that up in its manual."]
    absent = group.error_type == "CommandNotFound" or "could not be started" in (group.message or "")
    if group.scope == "command" and facts.exit_code == _NOT_FOUND and absent:
        return [f"See that {running} is installed where it is to run (`command -v`), or give its whole path."]
    return []


def _remedies(found: GroupCase, failure_class: str) -> list[str]:
    """Suggestions that name the user's own values, the most useful first; none where the record has none to
    name.
    """
    if failure_class == "out_of_memory":
        return _more_memory(found)
    if failure_class == "timeout" and found.facts.timed_out:
        return _more_time(found, "timeout", found.facts.timeout_s)
    if failure_class == "time_limit":
        return _more_time(found, "walltime", found.facts.walltime_s)
    if failure_class in _TRANSIENT:
        return _retries(found)
    if failure_class == "unknown" and found.group.scope == "run" and not found.group.message:
        where = f" on {found.group.host}" if found.group.host else ""
        batch = "the batch system (`sacct -j JOB`), " if found.facts.in_job else ""
        return [
            f"Ask what ended the process{where} then: the kernel (`dmesg -T`), {batch}a reboot (`last -x "
            "reboot`), or whoever may kill it. What was under way, `flightlog report` shows."
        ]
    return []


def _more_memory(found: GroupCase) -> list[str]:
    facts, group, asked = found.facts, found.group, found.facts.requested_memory_bytes
    last = facts.last_rss_bytes if facts.memory_scope in {"task", "worker"} else None
    own = _largest(group.last_peak_bytes, group.peak_rss_bytes, last)
    given = found.job.memory_bytes if found.job else None
    limit = _largest(asked if found.record.enforced else None, given)
    in_cgroup = found.cgroup_bytes if facts.kernel_oom and limit is None else None
    watched = facts.worker_memory_bytes if limit is None else None
    if watched is not None:
        most = max(watched, *facts.success_peaks_bytes, 0)
        size = size_text(int(most * HistoryLimits.retry_factor_after_kill))
        what = f"`{facts.task}`" if facts.task else "what it ran"
        return [
            f"The worker may use {format_bytes(watched)}, and Dask's nanny ends it near that: give workers "
            f"`memory_limit={size!r}` (`dask worker --memory-limit {size}`) and fewer threads, or let {what} "
            "hold less at once.",
            *_crowded(found),
        ]
    parts = [_who_asks(found, limit)]
    if in_cgroup is not None:
        parts.append(f"the kernel killed it when its cgroup was at its limit of {format_bytes(in_cgroup)}")
    elif own is not None:
        killed = facts.signal == "SIGKILL" or facts.kernel_oom
        parts.append(f"its last attempt {'was killed at' if killed else 'had reached'} {format_bytes(own)}")
    peaks = facts.success_peaks_bytes
    if peaks:
        number = {2: "two", 3: "three"}.get(len(peaks), str(len(peaks)))
        many = "the largest success" if len(peaks) == 1 else f"the {number} largest successes"
        parts.append(f"{many} needed {format_bytes(peaks[0])}{'' if len(peaks) == 1 else ' at most'}")
    far = own is not None and own < 0.5 * (limit or 0) and facts.job_state != "OUT_OF_MEMORY"
    met = _largest(in_cgroup, None if far else limit, own)
    needed = _largest(
        met and int(met * HistoryLimits.retry_factor_after_kill),
        int(peaks[0] * DiagnosisLimits.needed_memory_ratio) if peaks else None,
    )
    said: list[str] = []
    if in_cgroup is not None and needed is not None:
        said.append(
            f"{'; '.join(parts)}: give the job or container that it runs in {size_text(needed)}, "
            "or let fewer workers run in it at once."
        )
    elif asked is not None and (needed or 0) <= asked:
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
        where = f"`components.{facts.component}.memory: {size}` in {_manifest(found)}"
        do = f"set {where}" if facts.component in found.record.plan.components else f"give it {size}"
        said.append(f"{'; '.join(parts)}: {do}.")
    said += _crowded(found)
    if not said and group.task:
        said.append(
            f"How much memory `{group.task}` needs is not in the record: give it more, or run fewer at once."
        )
    return said


def _had_room(found: GroupCase, own: int | None, limit: int | None) -> bool:
    """Whether an allocation was refused while, as far as anybody saw, there was room."""
    facts = found.facts
    if own is None or limit is not None or facts.kernel_oom or facts.was_killed:
        return False
    room = facts.memory_limit_bytes
    full = (facts.node_memory_used_percent or 0.0) >= 90
    return not full and room is not None and own < DiagnosisLimits.roomy_memory_share * room


def _crowded(found: GroupCase) -> list[str]:
    """That others had the host's memory."""
    facts, around = found.facts, found.around
    if (facts.node_memory_used_percent or 0.0) < 95 or not around.running:
        return []
    beside = ", ".join(f"`{name}`" for name in around.neighbours[:3])
    target = found.record.target if found.record.plan.manifest else None
    fewer = f" of target `{target}`" if target else ""
    return [
        f"The host was full, and {around.running} other attempts ran on it ({beside}): "
        f"let fewer workers{fewer} run at once."
    ]


def _who_asks(found: GroupCase, limit: int | None) -> str:
    facts, asked = found.facts, found.facts.requested_memory_bytes
    name = f"`{facts.task}`" if facts.task else "the run"
    name = f"component `{facts.component}`" if facts.component else name
    if asked is not None:
        return f"{name} asks for {format_bytes(asked)}"
    return f"{name} may use {format_bytes(limit)}" if limit is not None else f"{name} asks for no memory"


def _more_time(found: GroupCase, what: str, limit_s: float | None) -> list[str]:
    group, record, success = found.group, found.record, found.record.successes.get(found.group.task or "")
    if limit_s is None:
        return []
    parts = [f"`{group.task or 'it'}` may take {format_duration(limit_s)}"]
    longest = success.longest_s if success is not None else None
    if success is not None and longest is not None:
        took = format_duration(longest)
        parts.append(f"the longest of {success.completed:,} that succeeded took {took}")
    else:
        parts.append("none succeeded in that time")
    target = time_text(max(limit_s * HistoryLimits.retry_factor_after_kill, (longest or 0.0) * 2))
    component, asked_s = found.facts.component, record.requested(group).walltime_s
    if what == "timeout" and group.task in record.plan.tasks:
        do = f"set `tasks.{group.task}.timeout: {target}` in {_manifest(found)}"
    elif what == "walltime" and component in record.plan.components and asked_s is not None:
        do = f"set `components.{component}.walltime: {target}` in {_manifest(found)}"
    else:
        do = f"give it {target}"
    return [f"{'; '.join(parts)}: {do}, or find out what it waited for."]


def _manifest(found: GroupCase) -> str:
    return found.record.plan.manifest or "the manifest"


def _retries(found: GroupCase) -> list[str]:
    group, plan, exit_code = found.group, found.record.plan, found.facts.exit_code
    retries = plan.task(group.task).retries or 0
    if exit_code is not None and exit_code >= 0:  # it ended by itself, and would again
        return []
    if group.task is None or (group.recovered and not group.failed) or retries > 1:
        return []
    tried = "once" if not retries else f"{retries + 1} times"
    if group.task in plan.tasks and plan.manifest:
        do = f"set `tasks.{group.task}.retries: {max(2, retries + 2)}` in {plan.manifest}"
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


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)
