"""Time limits: of batch jobs, which workers live in, and of tasks. Far too long, nearly reached, or
reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from flightlog.analyze.advice.base import Advice, manifest_duration, round_duration, worker_time
from flightlog.analyze.advice.statistics import Outcome, RunStatistics
from flightlog.analyze.limits import AdviceLimits
from flightlog.core.text import plural
from flightlog.core.units import format_duration, format_percent


def advise_walltime(shapes: Sequence[RunStatistics]) -> Outcome:
    """On the time limit of jobs, and on the timeout of each task."""
    names = {name for shape in shapes for name, task in shape.planned.tasks.items() if task.timeout_s}
    names |= {one.name for shape in shapes for one in shape.timed_out}
    timeouts = (_timeout(name, shapes) for name in sorted(names))
    advice = [*_jobs(shapes), *(one for one in timeouts if one is not None)]
    limited = any(
        shape.jobs or shape.timed_out or any(t.timeout_s for t in shape.planned.tasks.values())
        for shape in shapes
    )
    return advice or ("time limits suit the work" if limited else "no time limit is known")


def _jobs(shapes: Sequence[RunStatistics]) -> list[Advice]:
    """On the limit of the newest run's jobs, from all runs whose jobs had the same."""
    newest = next((shape for shape in shapes if shape.jobs), None)
    if newest is None:
        return []
    limit = newest.jobs[0].walltime_s
    alike = [
        s for s in shapes if s.target == newest.target and any(job.walltime_s == limit for job in s.jobs)
    ]
    jobs = [job for shape in alike for job in shape.jobs if job.walltime_s == limit]
    over = [job for job in jobs if job.state == "TIMEOUT"]
    longest = max(job.elapsed_s for job in jobs)
    runs = f"{plural(len(jobs), 'job')} of {plural(len(alike), 'run')}"
    needed = AdviceLimits.limit_margin * longest
    if over:
        needed = 2 * limit
        why = f"{len(over)} of {runs} ran into it, and what they would have needed is not known"
        cut_short = sum(job.elapsed_s for job in over) / len(alike)
        gain = f"{worker_time(cut_short)} a run of work cut short"
    elif longest >= AdviceLimits.near_limit_share * limit:
        share = format_percent(longest / limit)
        why = f"the longest of {runs} took {format_duration(longest)}, {share} of it"
        gain = "jobs that are not cut short"
    else:
        far = max(AdviceLimits.far_limit_ratio * longest, AdviceLimits.min_walltime_s)
        few = len(jobs) < AdviceLimits.min_ended_jobs or len(alike) < AdviceLimits.min_runs_with_limit
        if few or limit < max(far, 2 * round_duration(needed)):
            return []
        why = (
            f"the longest of {runs} took {format_duration(longest)}, and a batch system fits short jobs in "
            "sooner. Runs with more work than these take longer"
        )
        gain = "jobs that may start sooner"
    name, changes = _job_change(newest, limit, round_duration(needed))
    wanted = manifest_duration(round_duration(needed))
    return [
        Advice(
            kind="walltime",
            about=name,
            sentence=f"Ask for jobs of {wanted} instead of {format_duration(limit)}: {why}.",
            evidence={
                "runs": len(alike),
                "jobs": len(jobs),
                "walltime_s": limit,
                "longest_s": longest,
                "median_s": median(job.elapsed_s for job in jobs),
                "cut_short": len(over),
            },
            gain=gain,
            changes=changes,
        )
    ]


def _job_change(shape: RunStatistics, limit: float, seconds: int) -> tuple[str, dict[str, str]]:
    """What the advice is about, and the manifest's key: the target's own, or that of the components that
    decide.

    A job gets the longest limit of all components. None where the run did not ask for its jobs itself, but
    ran in one.
    """
    planned, text = shape.planned, manifest_duration(seconds)
    if planned.target is None or shape.provider != "slurm":
        return shape.target or "jobs", {}
    if "walltime_s" in planned.options or "walltime" in planned.options:
        return planned.target, {f"targets.{planned.target}.walltime": text}
    least = min(limit - 60, seconds)  # a batch system counts in minutes
    decide = sorted(name for name, one in planned.components.items() if (one.walltime_s or 0) > least)
    return planned.target, {f"components.{name}.walltime": text for name in decide}


def _timeout(name: str, shapes: Sequence[RunStatistics]) -> Advice | None:
    """On the timeout that the newest run of a task had, from all runs that had the same."""
    limits = [(shape, _limit(shape, name)) for shape in shapes]
    limit = next((limit for _, limit in limits if limit is not None), None)
    if limit is None:
        return None
    alike = [
        shape
        for shape, one in limits
        if one == limit and (name in shape.tasks or any(it.name == name for it in shape.timed_out))
    ]
    if not alike:
        return None
    tasks = [shape.tasks[name] for shape in alike if name in shape.tasks]
    completed = sum(task.completed for task in tasks)
    longest = max((task.longest_s for task in tasks if task.longest_s is not None), default=None)
    over = sum(one.attempts for shape in alike for one in shape.timed_out if one.name == name)
    many = f"{plural(completed, 'completed task')} of {plural(len(alike), 'run')}"
    hit = f"{over} attempt{'s' * (over != 1)} ran into it"
    took = None if longest is None else format_duration(longest)
    saved = None
    short = longest is not None and longest < AdviceLimits.max_share_of_completed * limit
    if over and longest is not None and short and completed >= AdviceLimits.min_completed_tasks:
        wanted = round_duration(2 * longest)
        if wanted > limit / 2:
            return None
        why = f"{hit}, while the longest of {many} took {took}; they look stuck, not slow"
        saved = over * (limit - wanted) / len(alike)
        gain = f"{worker_time(saved)} a run"
    elif over:
        wanted = round_duration(2 * limit)
        why = f"{hit}, beside {many}" + ("" if took is None else f" of which the longest took {took}")
        gain = "attempts that are not cut short"
    elif (
        longest is not None
        and longest >= AdviceLimits.near_limit_share * limit
        and completed >= AdviceLimits.min_runs_with_limit
    ):
        wanted = round_duration(AdviceLimits.limit_margin * longest)
        why = f"the longest of {many} took {took}, {format_percent(longest / limit)} of it"
        gain = "attempts that are not cut short"
    else:
        return None
    text = manifest_duration(wanted)
    planned = alike[0].planned.task(name).timeout_s  # else it was said in the code, which comes first
    return Advice(
        kind="walltime",
        about=name,
        sentence=f"Give {name} a timeout of {text} instead of {format_duration(limit)}: {why}.",
        evidence={
            "runs": len(alike),
            "completed": completed,
            "timed_out": over,
            "timeout_s": limit,
            "longest_s": longest,
        },
        gain=gain,
        gain_s=saved,
        changes={f"tasks.{name}.timeout": text} if planned is not None else {},
    )


def _limit(shape: RunStatistics, name: str) -> float | None:
    """The timeout of a task in a run: of what ran into it, else by the plan."""
    told = next((one.limit_s for one in shape.timed_out if one.name == name), None)
    return told if told is not None else shape.planned.task(name).timeout_s
