"""Signs to a diagnosis: what speaks for each class, how it adds up, and how sure one may be; and the case of
a group of failures, that signs are looked for in.

A class's strength is its strongest sign, and of each further one a smaller part: ten lines that say the same
are one fact. Signs against are taken off in full. The class with the greatest strength is the answer;
confidence is the share of its strength, squared, among all classes' and a fixed doubt that stands for what no
rule knows, greater where only words speak, less a part of the strongest rival's share. Two classes that are
about equally strong therefore both stay below one half, and a lone hint stays near it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from flightlog.analyze.diagnosis.base import Case, Diagnosis, Rule, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.group import LOST_TYPES, Group
from flightlog.analyze.diagnosis.read import (
    ENDED_BY_SCHEDULER,
    FailureContext,
    Nonfinite,
    RunContext,
    WorkerHosts,
)
from flightlog.analyze.diagnosis.rules import RuleSet, load_rules
from flightlog.analyze.diagnosis.text import read_text
from flightlog.analyze.history.attempts import timed_out
from flightlog.analyze.limits import DiagnosisLimits
from flightlog.analyze.tallies import copied
from flightlog.events import JobAccounted
from flightlog.store.liveness import unix_time

UNKNOWN = "unknown"


class Scored(NamedTuple):
    """What a case most likely is, and the signs that speak for it, the strongest first; none of `unknown`."""

    diagnosis: Diagnosis
    signs: list[Sign]


def weigh(case: Case, rules: Mapping[str, Rule] | None = None) -> Scored:
    """What the case most likely is; `unknown` where nothing speaks strongly for any class.

    `rules` are those to ask, by class; by default all that are installed. Each is asked once. A rule that
    raises or yields something else than signs is left out, and named in `problems`.
    """
    asked = load_rules() if rules is None else rules
    problems = list(asked.problems) if isinstance(asked, RuleSet) else []
    signs: dict[str, list[Sign]] = {}
    strengths: dict[str, float] = {}
    doubts: dict[str, float] = {}
    for name, rule in asked.items():
        try:
            found = _checked(rule, case)
        except Exception as error:  # noqa: BLE001 - anybody's code
            problems.append(f"rule {name!r} failed and was left out: {type(error).__name__}: {error}")
            continue
        signs[name] = _speaking(found)
        against = sum(sign.weight for sign in found if sign.weight < 0)
        less = DiagnosisLimits.further_sign_weight
        strength = sum(sign.weight * less**n for n, sign in enumerate(signs[name])) + against
        if strength > 0:
            strengths[name] = strength
            words = all(sign.source is Source.words for sign in found if sign.weight > 0)
            doubts[name] = DiagnosisLimits.doubt_of_words if words else DiagnosisLimits.doubt
    ranked = sorted(strengths, key=lambda name: (-strengths[name], name))
    doubt = (doubts[ranked[0]] if ranked else DiagnosisLimits.doubt) ** 2
    whole = doubt + sum(value**2 for value in strengths.values())
    shares = {
        name: round(min(DiagnosisLimits.max_confidence, strengths[name] ** 2 / whole), 2) for name in ranked
    }
    weak = not ranked or strengths[ranked[0]] < DiagnosisLimits.min_strength
    if weak or shares[ranked[0]] < DiagnosisLimits.min_confidence:
        unsure = round(min(0.49, doubt / whole), 2)
        unknown = Diagnosis(
            failure_class=UNKNOWN,
            confidence=unsure,
            evidence=[signs[name][0].text for name in ranked[:2]],
            suggestions=_look_further(case),
            also={name: min(shares[name], unsure) for name in ranked[:3]},
            problems=problems,
        )
        return Scored(unknown, [])
    best, *others = ranked
    confidence = round(
        shares[best] - DiagnosisLimits.rival_weight * max((shares[name] for name in others), default=0.0), 2
    )
    try:
        suggested = asked[best].suggestions(case)
    except Exception as error:  # noqa: BLE001 - the class stands even where its rule cannot say what to do
        problems.append(f"rule {best!r} could not suggest anything: {type(error).__name__}: {error}")
        suggested = []
    found_out = Diagnosis(
        failure_class=best,
        confidence=confidence,
        evidence=[sign.text for sign in signs[best]][: DiagnosisLimits.max_evidence],
        suggestions=[suggested] if isinstance(suggested, str) else [str(one) for one in suggested],
        also={name: min(shares[name], confidence) for name in others[:3] if shares[name] >= 0.05},
        problems=problems,
    )
    return Scored(found_out, signs[best])


def _checked(rule: Rule, case: Case) -> list[Sign]:
    found = list(rule.signs(case))
    for sign in found:
        if not isinstance(sign, Sign):
            raise TypeError(f"a sign was expected, not {type(sign).__name__}")
        if not math.isfinite(sign.weight):
            raise ValueError(f"a finite weight was expected, not {sign.weight}")
    return found


def _speaking(signs: list[Sign]) -> list[Sign]:
    """What speaks for a class, the strongest and most trustworthy first; those with the same text are one."""
    speaking: dict[str, Sign] = {}
    for sign in sorted(signs, key=lambda sign: (-sign.weight, _TRUST[sign.source])):
        if sign.weight > 0:
            speaking.setdefault(sign.text, sign)
    return list(speaking.values())


_TRUST = {source: number for number, source in enumerate(Source)}


def _look_further(case: Case) -> list[str]:
    if "SIGKILL" in case.reading.signals and not case.reading.exceptions:
        batch = " or the batch system (`sacct -j JOB -o State,ExitCode,MaxRSS,ReqMem`)"
        batch = batch if case.facts is None or case.facts.in_job else ""
        return [
            "Something killed the process and left no reason. Ask the kernel (`dmesg -T | grep -i oom`)"
            f"{batch}: running out of memory is the usual one."
        ]
    return ["Read the lines before the first error: this text names no cause that is known here."]


def diagnose_text(text: str, exception_type: str | None = None) -> Diagnosis:
    """What a log's end, a traceback or an error message most likely means; `unknown` where it does not tell.

    `exception_type` is the type of the exception (`ValueError`, `torch.cuda.OutOfMemoryError`) where it is
    known and the text does not show it. Never raises on any text; of a long one, its beginning and its end
    are read.
    """
    return weigh(Case(reading=read_text(text, exception_type))).diagnosis


_OWN_FRAME = re.compile(
    r'^  File "[^"\n]*[/\\]flightlog[/\\](?:engines|session|record'
    r'|compat)[/\\][^"\n]*", line \d+.*\n(?:    .*\n)*',
    re.M,
)
_NO_EXCEPTIONS = frozenset({*LOST_TYPES, "ExitCode", "CommandNotFound", "CommandNotExecutable"})


class Origin(NamedTuple):
    """Where a fact stands."""

    file: str
    event: str | None = None
    time: str | None = None


class GroupCase(Struct, kw_only=True):
    """All there is to say of a group before it is explained."""

    record: RunContext
    group: Group
    case: Case
    facts: RunFacts
    around: FailureContext
    job: JobAccounted | None
    cgroup_bytes: int | None
    """The limit of the cgroup that it was in."""
    device_file: str | None
    """The document of a device that ran out of memory near it."""
    origins: dict[Source | str, Origin]
    """By source; by class where figures that speak for a class are no samples: durations, and values that
    became NaN."""


def case_of(record: RunContext, group: Group, around: FailureContext) -> GroupCase:
    """Put the case of a group together: its text, its facts, and where each of them stands in the run."""
    run, machine, success = record.run, record.machine, record.successes.get(group.task or "")
    job, asked = _job(group, record.workers), record.requested(group)
    cgroup = around.cgroup_limit_bytes or (
        machine.cgroup_memory_bytes if group.host == run.info.host else None
    )
    limits = [job.memory_bytes if job else None, cgroup, asked.memory_bytes if record.enforced else None]
    values = [one for one in record.values if group.at is None or one.at is None or one.at <= group.at + 1]
    far, last_at = DiagnosisLimits.bundle_distance_s, group.last_at or group.at
    bundles = [
        (message, folder)
        for at, message, folder in record.bundles
        if None in (at, group.at) or (group.at or 0) - far <= (at or 0) <= (last_at or 0) + far
    ]
    lost = group.lost.losses[0] if group.lost is not None and group.lost.losses else None
    reason = lost.reason or "it went away" if lost is not None else None
    if reason is None and group.error_type in {"WorkerLost", "KilledWorker"}:
        reason = group.message or "it went away"
    given = record.workers.memory_bytes.get(group.worker or "") if "for memory" in (reason or "") else None
    exit_code = group.exit_code if group.exit_code is not None else lost.exit_code if lost else None
    signal = group.signal or (lost.signal if lost is not None else None) or (job.signal if job else None)
    state = next((one for one in (job and job.state, group.error_type) if one in ENDED_BY_SCHEDULER), None)
    dead = signal == "SIGKILL" or group.exit_code in {137, -9} or reason is not None or group.scope == "run"
    blamed = f"{reason}{group.message if group.scope == 'command' else ''}"
    kernel = "OOM killer" in blamed or (dead and bool(around.oom_kills))
    duration = run.info.duration_s if group.duration_s is None and group.scope == "run" else group.duration_s
    if job is not None and job.elapsed_s is not None and (group.lost is not None or duration is None):
        duration = job.elapsed_s
    facts = copied(
        RunFacts,
        {**asdict(group), **asdict(around)},
        run_status=run.status,
        in_job=record.workers.in_jobs or run.info.provider == "slurm",
        exit_code=exit_code,
        signal=signal,
        kernel_oom=kernel or (False if around.oom_kills == 0 else None),
        cgroup_oom_kills=around.oom_kills if kernel and around.oom_kills else None,
        job_state=state,
        worker_lost_reason=reason,
        duration_s=duration,
        timed_out=group.error_type == "TimeoutError" and timed_out(group.error_type, group.message, None),
        timeout_s=record.plan.task(group.task).timeout_s,
        walltime_s=(job.walltime_s if job else None) or asked.walltime_s,
        requested_memory_bytes=asked.memory_bytes,
        worker_memory_bytes=given,
        memory_limit_bytes=min((one for one in (*limits, given) if one), default=None)
        or around.node_total_bytes
        or machine.memory_bytes,
        last_rss_bytes=around.last_bytes if around.memory_scope != "node" else None,
        peak_rss_bytes=group.peak_rss_bytes or (job.max_rss_bytes if job else None),
        success_peaks_bytes=success.peaks_bytes if success else (),
        neighbours=around.neighbours if group.scope != "run" else (),
        lost_with=max(0, group.lost_tasks - 1) if group.lost is not None else 0,
        hosts_workers_lost=group.lost.processes if group.lost is not None and group.lost.host else 0,
        nonfinite=tuple(dict.fromkeys((*group.nonfinite, *sorted({one.name for one in values})))),
        device_oom=tuple(message for message, _ in bundles),
    )
    return GroupCase(
        record=record,
        group=group,
        case=Case(reading=read_text(*_text(group)), facts=facts),
        facts=facts,
        around=around,
        job=job,
        cgroup_bytes=cgroup,
        device_file=f"{bundles[0][1]}/bundle.json" if bundles else None,
        origins=_origins(group, around, job, values),
    )


def _job(group: Group, workers: WorkerHosts) -> JobAccounted | None:
    """The job that the failure was in, where its end may be the failure's.

    An exception has its own reasons, however its job was ended later: a session cancels its jobs when it
    closes.
    """
    if group.lost is not None:
        return group.lost.jobs[0] if group.lost.jobs else workers.jobs.get(group.worker or "")
    own = group.traceback is not None or (group.scope == "task" and group.error_type not in _NO_EXCEPTIONS)
    if own:
        return None
    job = workers.jobs.get(group.worker or "") or workers.task_jobs.get(group.task_id or "")
    if job is None and group.scope in {"run", "command"} and workers.run_jobs:
        job = workers.run_jobs[-1]
    ended = None if job is None else unix_time(job.ended or job.timestamp)
    near = ended is None or group.last_at is None or abs(ended - group.last_at) <= DiagnosisLimits.job_end_s
    return job if near else None


def _text(group: Group) -> tuple[str, str | None]:
    """What is read as the failure's text, and the exception's type where it is one."""
    if group.lost is not None:
        reasons = dict.fromkeys(lost.reason or "" for lost in group.lost.losses[:20])
        said = dict.fromkeys(job.reason or "" for job in group.lost.jobs[:20])
        return "\n".join(filter(None, (*said, *reasons, group.output_tail))), None
    kind = group.error_type
    signal = kind is not None and kind.startswith("SIG")
    kind = None if kind in _NO_EXCEPTIONS or signal or group.scope == "command" else kind
    if group.traceback:
        return without_own_frames(group.traceback), kind
    return "\n".join(part for part in (group.message, group.output_tail) if part), kind


def without_own_frames(traceback: str) -> str:
    """A traceback without Flightlog's own frames, which are no place to look for the error."""
    return _OWN_FRAME.sub("", traceback)


def _origins(
    group: Group, around: FailureContext, job: JobAccounted | None, values: Sequence[Nonfinite]
) -> dict[Source | str, Origin]:
    event = {"failures.jsonl": "failure", "tasks.jsonl": "task_failed"}.get(group.recorded_in)
    own, reason = Origin(group.recorded_in, event, group.first), ""
    account = None if job is None else Origin("jobs.jsonl", "job_accounted", job.timestamp)
    if group.lost is not None and group.lost.losses:
        lost = group.lost.losses[0]
        own, reason = Origin("workers.jsonl", "worker_lost", lost.timestamp), lost.reason or ""
    elif group.lost is not None and account is not None:
        own = account
    found: dict[Source | str, Origin] = dict.fromkeys(Source, own)
    if account is not None:
        found[Source.scheduler] = account
    if around.samples:
        found[Source.resources] = Origin("resources.jsonl", "resource_sample", around.last_time)
    if around.oom_kills and "OOM" not in reason:
        found[Source.kernel] = Origin("resources.jsonl", "resource_sample", around.oom_time)
    found["timeout"] = found["time_limit"] = found[Source.scheduler if job is not None else Source.exit]
    if values:
        found["numerical"] = Origin(values[0].file, values[0].event, values[0].first)
    return found
