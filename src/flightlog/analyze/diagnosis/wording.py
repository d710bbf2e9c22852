"""A scored group in words: headline, evidence with its place in the run, what was not recorded, and the
commands that show it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from flightlog.analyze.diagnosis.base import Sign, Source
from flightlog.analyze.diagnosis.case import without_own_frames
from flightlog.analyze.diagnosis.evidence import DEVICE, RECORDER, was_killed
from flightlog.analyze.diagnosis.groups import NAMES
from flightlog.analyze.diagnosis.results import Evidence
from flightlog.core.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flightlog.analyze.diagnosis.base import Rule
    from flightlog.analyze.diagnosis.case import GatheredCase

EVIDENCE = 6
"""Most signs that are told of one cause."""
_MEMORY_MATTERS = frozenset({"unknown", "worker_lost", "out_of_memory"})
_INSTALLED = ("/lib/python3", "site-packages", "dist-packages", "<frozen ")
_ORDER = {source: number for number, source in enumerate(Source)}


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
            return f"worker {lost.worker}{where} was lost: {_line(lost.reason)}"
        many = (
            "a worker process"
            if incident.processes == 1
            else f"{format_count(incident.processes)} worker processes"
        )
        return f"{many} went away: {_line(lost.reason)}"
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
    said = ": ".join(part for part in (kind, _line(group.message)) if part)
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
    return f"the run failed: {_line(how)}"


def _line(text: str | None) -> str:
    return _short(next((line.strip() for line in (text or "").splitlines() if line.strip()), ""))


def last_line(text: str | None) -> str:
    """The last line of an output that is not blank; empty where there is none."""
    return _short(next((line.strip() for line in reversed((text or "").splitlines()) if line.strip()), ""))


def _short(line: str) -> str:
    return line if len(line) <= 160 else line[:159] + "…"


def frame(traceback: str | None) -> str | None:
    """The innermost frame of a traceback that is in the user's own code; else the innermost that is not
    Flightlog's.
    """
    lines = without_own_frames(traceback or "").splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    own = [line for line in frames if not any(part in line for part in _INSTALLED)]
    return own[-1] if own else frames[-1] if frames else None


def evidence(found: GatheredCase, rule: Rule | None, failure_class: str) -> list[Evidence]:
    """What speaks for the class, the strongest first, each with where it stands; then what else is known."""
    kept: dict[str, Sign] = {}
    for sign in sorted(_signs(found, rule), key=lambda sign: (-sign.weight, _ORDER[sign.source])):
        if sign.weight > 0:
            kept.setdefault(sign.text, sign)
    signs = [
        one for one in kept.values() if not any(one.text in other and one.text != other for other in kept)
    ]
    told = [_placed(found, sign.text, sign.source, failure_class) for sign in signs[:EVIDENCE]]
    if not told and (found.group.message or found.group.error_type):
        said = ": ".join(part for part in (found.group.error_type, _line(found.group.message)) if part)
        told.append(_placed(found, said, Source.words))
    printed = last_line(found.group.output_tail)
    if found.group.scope == "command" and printed and not any(printed in one.text for one in told):
        told.append(_placed(found, f"the last that it printed: {printed}", Source.words))
    job = found.job
    if (
        job is not None
        and job.reason
        and found.incident is not None
        and not any(job.reason in text for text in kept)
    ):
        told.append(_placed(found, job.reason, Source.scheduler))
    if failure_class in _MEMORY_MATTERS:
        told += [one for one in _beside(found) if one.text not in kept]
    return told or [_placed(found, "nothing was recorded that tells how it ended", Source.words)]


def _signs(found: GatheredCase, rule: Rule | None) -> Iterable[Sign]:
    if rule is None:
        return []
    try:
        return list(rule.signs(found.case))
    except Exception:  # noqa: BLE001 - anybody's code; that it fails, `weigh` has said
        return []


def _placed(found: GatheredCase, text: str, source: Source, failure_class: str = "") -> Evidence:
    text = text.rstrip(": ")  # of an exception without a message
    if text.startswith(RECORDER):
        return Evidence(text=text, source=source.value, file=found.recorder_file)
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
    if facts is None or group.scope == "metric" or not (was_killed(facts) or facts.worker_lost_reason):
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
    dark = failure_class in {"unknown", "worker_lost", "out_of_memory"} and (
        was_killed(facts) or facts.worker_lost_reason
    )
    if dark and not found.around.samples:
        said.append(
            "No memory was sampled before the end: record with `sample_interval_s=1` to see it climb."
        )
    if dark and was_killed(facts) and facts.kernel_oom is None and not facts.job_state:
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
                "SELECT task, attempt, state, peak_rss_bytes, duration_s, worker FROM attempts "  # noqa: S608 - quoted
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
