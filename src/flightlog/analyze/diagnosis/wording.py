"""A scored group in words: headline, evidence with its place in the run, what was not recorded, the commands
that show it, and what to do about it, in terms of the run's own manifest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.diagnosis.base import Sign, Source
from flightlog.analyze.diagnosis.case import without_own_frames
from flightlog.analyze.diagnosis.failures import NAMES
from flightlog.analyze.diagnosis.results import Evidence
from flightlog.analyze.diagnosis.rules.gpu_out_of_memory import DEVICE
from flightlog.analyze.diagnosis.rules.out_of_memory import ROOMY
from flightlog.analyze.history.attempts import MORE_THAN_KILLED
from flightlog.core.text import cut, first_line, last_line
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.store.read.completeness import lowered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flightlog.analyze.diagnosis.case import GatheredCase, Plans

EVIDENCE = 6
"""Most pieces of evidence that are shown of one cause."""
LONGEST_LINE = 160
"""Characters of a line that a cause quotes."""
_MEMORY_MATTERS = frozenset({"unknown", "worker_lost", "out_of_memory"})
_INSTALLED = ("/lib/python3", "site-packages", "dist-packages", "<frozen ")
_NOT_FOUND = 127
"""Exit code of a command that is not there."""


def certainty(failure_class: str, confidence: float) -> str:
    """The confidence in words."""
    if failure_class == "unknown":
        return "unknown"
    for least, word in ((0.9, "very likely"), (0.7, "likely"), (0.5, "possible")):
        if confidence >= least:
            return word
    return "a guess"


def headline(found: GatheredCase) -> str:
    """What happened, in a line without a full stop."""
    group, incident, job = found.group, found.incident, found.job
    if incident is not None and incident.jobs:
        first = incident.jobs[0]
        more = f" and {len(incident.jobs) - 1:,} more" if len(incident.jobs) > 1 else ""
        return f"{first.scheduler} job {first.job_id}{more} ended as {first.state}"
    if incident is not None and incident.host is not None:
        return f"host {incident.host} went away with {format_count(incident.processes)} workers"
    if incident is not None and incident.losses:
        lost = incident.losses[0].event
        if len(incident.losses) == 1:
            where = f" on {lost.host}" if lost.host else ""
            return f"worker {lost.worker}{where} was lost: {first_line(lost.reason, LONGEST_LINE)}"
        many = (
            "a worker process"
            if incident.processes == 1
            else f"{format_count(incident.processes)} worker processes"
        )
        return f"{many} went away: {first_line(lost.reason, LONGEST_LINE)}"
    if group.scope == "run" and group.recorded_in == "run.json":
        return _run_line(found)
    what = (
        _named(group.tasks)
        if len(group.tasks) > 1
        else f"`{group.task}`"
        if group.task
        else {"worker": "a worker", "command": "a command"}.get(group.scope, "the run")
    )
    times = "" if group.count == 1 else f" {format_count(group.count)} times"
    kind = group.error_type or ("job " + job.state if job else "")
    said = ": ".join(part for part in (kind, first_line(group.message, LONGEST_LINE)) if part)
    return f"{what} failed{times}{f': {said}' if said else ''}"


def _named(tasks: Mapping[str, int]) -> str:
    """Names of several tasks, the most frequent first."""
    first, *others = (f"`{name}`" for name in tasks)
    if len(others) == 1:
        return f"{first} and {others[0]}"
    return (
        f"{first}, {others[0]} and {len(others) - 1}{' or more' if len(tasks) >= NAMES else ''} other tasks"
    )


def _run_line(found: GatheredCase) -> str:
    facts = found.case.facts
    status = facts.run_status if facts else None
    if status == "crashed":
        return "the run's process exited unexpectedly"
    if status == "interrupted":
        return f"the run was interrupted{f' by {facts.cancelled_by}' if facts and facts.cancelled_by else ''}"
    how = (
        found.group.message
        or (found.group.signal and f"ended by {found.group.signal}")
        or "no reason was recorded"
    )
    return f"the run failed: {first_line(how, LONGEST_LINE)}"


def frame(traceback: str | None) -> str | None:
    """The innermost frame of a traceback that is in the user's own code; else the innermost that is not
    Flightlog's.
    """
    lines = without_own_frames(traceback or "").splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    own = [line for line in frames if not any(part in line for part in _INSTALLED)]
    return own[-1] if own else frames[-1] if frames else None


def evidence(found: GatheredCase, speaking: Sequence[Sign], failure_class: str) -> list[Evidence]:
    """What speaks for the class, the strongest first, each with where it stands; then what else is known."""
    texts = [sign.text for sign in speaking]
    signs = [one for one in speaking if not any(one.text in other and one.text != other for other in texts)]
    told = [_placed(found, sign.text, sign.source, failure_class) for sign in signs[:EVIDENCE]]
    if not told and (found.group.message or found.group.error_type):
        said = ": ".join(
            part for part in (found.group.error_type, first_line(found.group.message, LONGEST_LINE)) if part
        )
        told.append(_placed(found, said, Source.words))
    printed = cut(last_line(found.group.output_tail), LONGEST_LINE)
    if found.group.scope == "command" and printed and not any(printed in one.text for one in told):
        told.append(_placed(found, f"the last that it printed: {printed}", Source.words))
    reason = found.job.reason if found.job is not None and found.incident is not None else None
    if reason and not any(reason in text for text in texts):
        told.append(_placed(found, reason, Source.scheduler))
    if failure_class in _MEMORY_MATTERS:
        told += [one for one in _beside(found) if one.text not in texts]
    return told or [_placed(found, "nothing was recorded that tells how it ended", Source.words)]


def _placed(found: GatheredCase, text: str, source: Source, failure_class: str = "") -> Evidence:
    text = text.rstrip(": ")  # of an exception without a message
    if text.startswith(DEVICE) and found.device_file is not None:
        return Evidence(text=text, source=source.value, file=found.device_file)
    origin = found.origins.get(source)
    if source is Source.resources:
        origin = found.of_class.get(failure_class, origin)
    if origin is None:
        return Evidence(text=text, source=source.value)
    return Evidence(text=text, source=source.value, file=origin.file, event=origin.event, time=origin.time)


def _beside(found: GatheredCase) -> Iterable[Evidence]:
    """The curve and the neighbours, where they help to judge a death that nothing else explains."""
    facts, around, group = found.case.facts, found.around, found.group
    if facts is None or group.scope == "metric" or not (facts.was_killed or facts.worker_lost_reason):
        return
    if (
        group.suspect is not None
        and found.incident is not None
        and group.suspect[2] >= found.incident.processes
    ):
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
        yield Evidence(
            text=f"memory of {whose.get(around.memory_scope or '', 'it')} before the end: "
            f"{format_bytes(around.last_bytes)}{of}{over}",
            source="resources",
            file="resources.jsonl",
            event="resource_sample",
            time=around.last_time,
        )
    if group.peak_rss_bytes is not None and group.peak_rss_bytes > (around.last_bytes or 0):
        yield Evidence(
            text=f"the most that was seen of it: {format_bytes(group.peak_rss_bytes)}",
            source="resources",
            file="tasks.jsonl",
            event="task_failed",
        )
    if around.running and group.scope != "run":  # of a run that went away, nobody knows when exactly it did
        names = ", ".join(f"`{name}`" for name in around.neighbours[:3])
        yield Evidence(
            text=(
                f"{around.running} other {'attempt' if around.running == 1 else 'attempts'} ran on the "
                f"host then: {names}"
            ),
            source="neighbours",
            file="tasks.jsonl",
        )


def missing(found: GatheredCase, failure_class: str, unaccounted: list[str]) -> list[str]:
    """What would have told more, and how to have it next time."""
    facts, said = found.case.facts, []
    if facts is None or found.group.scope == "metric":
        return []
    dark = failure_class in _MEMORY_MATTERS and (facts.was_killed or facts.worker_lost_reason)
    if facts.scope == "run" and facts.run_status == "crashed" and found.recorder_lost is not None:
        said.append(
            "How the program ended is not recorded. The recorder could not write then "
            f"({lowered(found.recorder_lost)}): that is why data is missing, not why the program ended."
        )
    if dark and not found.around.samples:
        said.append(
            "No memory was sampled before the end: record with `sample_interval_s=1` to see it climb."
        )
    if dark and facts.was_killed and facts.kernel_oom is None and not facts.job_state:
        where = f" on {found.host}" if found.host else ""
        said.append(
            "Nothing in the record says that the kernel killed it for memory; "
            f"`dmesg -T | grep -i 'killed process'`{where} would."
        )
    if unaccounted and failure_class in {"unknown", "worker_lost"}:
        jobs = ",".join(unaccounted[:3])
        said.append(
            f"The batch system was not asked how its jobs ended: `flightlog adopt --slurm {jobs}` adds it "
            "to the run."
        )
    if failure_class == "unknown" and found.group.scope == "command" and not found.group.output_tail:
        said.append(
            "No output of the command is in the record: it printed nothing, or printed past `flightlog run`."
        )
    return said


def checks(found: GatheredCase, failure_class: str, ref: str, project: str) -> list[str]:
    """Commands that show the evidence, ready to be typed; `ref` names the run: its id, or else its path."""
    group, named = found.group, shlex.quote(ref)
    commands: list[str] = []
    if group.task is not None and failure_class in {"out_of_memory", "timeout", "time_limit"}:
        task, most = (
            _sql_text(group.task),
            "peak_rss_bytes" if failure_class == "out_of_memory" else "duration_s",
        )
        commands.append(
            _sql(
                # Quoted.
                "SELECT task, attempt, state, peak_rss_bytes, duration_s, worker FROM attempts "  # noqa: S608
                f"WHERE task = {task} OR "
                f"starts_with(task, {_sql_text(group.task + '[')}) ORDER BY {most} DESC NULLS LAST LIMIT 10",
                named,
            )
        )
    if found.incident is not None and found.incident.losses:
        commands.append(
            _sql(
                "SELECT timestamp, worker, host, signal, exit_code, reason FROM workers WHERE event = "
                "'worker_lost'",
                named,
            )
        )
    if found.job is not None:
        commands.append(
            _sql(
                "SELECT job_id, state, reason, elapsed_s, walltime_s, max_rss_bytes FROM jobs WHERE event "
                "= 'job_accounted'",
                named,
            )
        )
    if failure_class == "gpu_out_of_memory":
        commands.append(f"flightlog devices {named}")
    if group.scope == "run" and group.recorded_in == "run.json" and failure_class == "cancelled":
        commands.append(f"flightlog report {named}")
    elif group.scope == "run" and group.recorded_in == "run.json" and found.incident is None:
        commands.append(
            _sql(
                "SELECT timestamp, scope, host, memory_used_bytes, memory_total_bytes, oom_kills FROM "
                "resources "
                "WHERE scope IN ('node', 'cgroup') ORDER BY timestamp DESC LIMIT 5",
                named,
            )
        )
    elif group.scope != "metric" and group.count:
        commands.append(f"flightlog report {named} --failures")
    if failure_class == "out_of_memory" and group.task is not None and found.asked.component is not None:
        elsewhere = f" --runs-dir {shlex.quote(ref.rpartition('/')[0])}" if "/" in ref else ""
        commands.append(
            f"flightlog advise --task {shlex.quote(group.task)} --project {shlex.quote(project)}{elsewhere}"
        )
    return commands


def _sql(query: str, named: str) -> str:
    plain = not any(character in query for character in '"$`\\!\n')
    quoted = f'"{query}"' if plain else shlex.quote(query)
    return f"flightlog sql {quoted} --run {named}"


def _sql_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


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
    if failure_class == "unknown" and group.error_type == "SystemExit":
        place = frame(group.traceback)
        return [f"The program ended itself{f', at {place}' if place else ''}: see what it had checked there."]
    if failure_class == "unknown" and group.scope == "command" and group.output_tail:
        return ["Read what the command printed before it ended: it says more than its exit code."]
    if (
        failure_class == "unknown"
        and group.scope == "command"
        and facts.exit_code
        and facts.exit_code < _NOT_FOUND
    ):
        return [f"{running} said no more than its exit code, {facts.exit_code}: look that up in its manual."]
    absent = group.error_type == "CommandNotFound" or "could not be started" in (group.message or "")
    if group.scope == "command" and facts.exit_code == _NOT_FOUND and absent:
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
    if facts is None or own is None or limit is not None or facts.kernel_oom or facts.was_killed:
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
