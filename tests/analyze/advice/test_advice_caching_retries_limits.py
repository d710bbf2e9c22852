"""Advice on what to cache, what not to, what to retry, and on time limits."""

from __future__ import annotations

import pytest
from builders.runs import at, make_run
from builders.scheduled_runs import Call, write_shape

from flightlog.analyze.advice.advise import advise_on_work
from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.caching import DuplicateCalls, Mended, advise_caching, find_duplicate_calls
from flightlog.analyze.advice.retries import TRANSIENT, advise_retries
from flightlog.analyze.advice.statistics import (
    CacheUse,
    Job,
    Retried,
    RunStatistics,
    TaskStatistics,
    TimedOut,
    gather,
)
from flightlog.analyze.advice.walltime import advise_walltime
from flightlog.analyze.history.attempts import Planned, Requested, TaskPlan
from flightlog.events import CacheLookup, JobAccounted
from flightlog.store.run import Run

COMMIT = {"git_commit": "4bf92f35", "git_dirty": False}


def shape(number=0, **known):
    """A run of which nothing is known but this."""
    empty = {
        "run_id": f"run-{number}",
        "target": "here",
        "provider": "local",
        "status": "completed",
        "started": 1e9 - 3600.0 * number,
        "wall_s": 100.0,
        "planned": Planned(target="here"),
        "workers": 4,
        "time": None,
        "queue_s": None,
        "waves": None,
        "machine": None,
        "side_by_side": None,
        "tasks": {},
        "cache": {},
        "cached_tasks": frozenset(),
        "retried": [],
        "timed_out": [],
        "jobs": [],
    }
    return RunStatistics(**{**empty, **known})


def task(completed, longest_s):
    return TaskStatistics(
        attempts=completed,
        completed=completed,
        total_s=completed * longest_s / 2,
        longest_s=longest_s,
        handover_s=None,
        handovers=0,
        result_bytes=None,
        on_gpu=False,
    )


def sims(**more):
    return [Call("sim", 2.0, {"n": n}, **more) for n in range(10)]


# --- worth caching


def test_calls_that_are_made_again_in_later_runs_of_the_same_code_are_worth_caching(tmp_path):
    runs = [write_shape(tmp_path, number, [sims()], plan={}, **COMMIT) for number in range(3)]
    [advice] = advise_on_work(runs).advice
    assert advice == Advice(
        kind="cache",
        about="sim",
        sentence=(
            "Cache sim (`cache: true` in the manifest, or `@flightlog.cacheable`): 20 of 30 calls in 3 runs "
            "repeated an earlier one, and gave a result of the same size; it would have saved 40.0s of 1m "
            "00s. Only if its result depends on its arguments alone."
        ),
        evidence={
            "runs": 3,
            "calls": 30,
            "repeated_calls": 20,
            "total_s": 60.0,
            "repeated_s": 40.0,
            "results_compared": True,
        },
        gain="13 worker-seconds a run, 67% of its time",
        gain_s=40.0 / 3,
        changes={"tasks.sim.cache": "true"},
        only_if="its result depends on its arguments alone",
    )


def test_what_only_looks_the_same_is_no_repetition(tmp_path):
    different = [
        Call("sim", 2.0, {"field": "<ndarray float64 (3, 4)>"}),
        Call("sim", 2.0, {"text": "once upon… [+9 characters]"}),
        Call("sim", 2.0, {"token": "[redacted]"}),
        Call("ls", 2.0, {"command": ["ls", "-l"]}),
        Call("draw", 2.0, {}),
    ]
    runs = [write_shape(tmp_path, number, [different * 3], **COMMIT) for number in range(2)]
    assert find_duplicate_calls(runs) == ([], [])


def test_calls_of_runs_whose_code_nobody_can_name_are_the_same_within_a_run_alone(tmp_path):
    runs = [
        write_shape(tmp_path, number, [sims(), sims()], git_commit="4bf92f35", git_dirty=True)
        for number in range(2)
    ]
    assert find_duplicate_calls(runs)[0] == [
        DuplicateCalls(
            name="sim",
            runs=2,
            calls=40,
            different=20,
            total_s=80.0,
            repeated_s=40.0,
            unlike=0,
            results_known=True,
            write_bytes=0.0,
        )
    ]


def test_a_function_whose_source_stayed_the_same_is_the_same_in_another_commit(tmp_path):
    runs = [
        write_shape(tmp_path, number, [sims()], git_commit=f"c{number}", git_dirty=False)
        for number in range(2)
    ]
    for run in runs:
        (run.path / "manifest.lock").write_text('{"functions": {"work.sim": {"sha256": "aa11"}}}')
    assert [(one.name, one.calls, one.different) for one in find_duplicate_calls(runs)[0]] == [
        ("sim", 20, 10)
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"unlike": 2}, "2 calls gave another result for the same arguments"),
        ({"write_bytes": 5e6}, "it makes files, which a cached result would not"),
        ({"calls": 10_000, "different": 10}, "its calls are too short to gain by a lookup"),
        ({"total_s": 600.0}, "too little of it is repeated"),
    ],
)
def test_functions_that_are_not_safe_or_not_worth_caching_are_left_alone(change, why):
    found = {
        "name": "sim",
        "runs": 3,
        "calls": 30,
        "different": 10,
        "total_s": 60.0,
        "repeated_s": 40.0,
        "unlike": 0,
        "results_known": True,
        "write_bytes": 0.0,
    }
    look = advise_caching([shape()], [DuplicateCalls(**{**found, **change})])
    assert look == f"sim: {why}"


def test_a_manifest_that_says_no_is_not_asked_again():
    one = DuplicateCalls(
        name="sim",
        runs=3,
        calls=30,
        different=10,
        total_s=60.0,
        repeated_s=40.0,
        unlike=0,
        results_known=True,
        write_bytes=0.0,
    )
    told = shape(planned=Planned(target="here", tasks={"sim": TaskPlan(cache=False)}))
    assert isinstance(advise_caching([told], [one]), str)
    asked = shape(cached_tasks=frozenset({"sim"}))
    assert isinstance(advise_caching([asked], [one]), str)


# --- caches that never hit


def asked(reasons, **more):
    use = {
        "hits": 0,
        "misses": sum(reasons.values()),
        "bypassed": 0,
        "lookup_s": 0.02,
        "kept_bytes": 10_485_760,
        "reasons": reasons,
    }
    return {"sim": CacheUse(**{**use, **more})}


def test_a_cache_that_is_asked_for_something_new_every_time_is_in_vain():
    planned = Planned(target="here", tasks={"sim": TaskPlan(cache=True)})
    runs = [
        shape(n, cache=asked({"arguments changed": 9, "never seen": 1}), planned=planned) for n in range(3)
    ]
    [advice] = advise_caching(runs, [])
    assert (advice.sentence, advice.gain, advice.changes) == (
        "The cache of sim never had what it was asked for: 30 lookups in 3 runs, no hit: arguments changed "
        "(27), never seen (3). Every call is a new one: do without the cache, or name arguments that do not "
        "change the result in `ignore`.",
        "20 ms of lookups a run, and 30.0 MiB written in vain",
        {"tasks.sim.cache": "false"},
    )


def test_results_that_expire_between_two_runs_should_live_longer():
    planned = Planned(target="here", tasks={"sim": TaskPlan(cache={"ttl_s": 600.0})})
    runs = [shape(n, cache=asked({"expired": 10}), planned=planned) for n in range(3)]
    [advice] = advise_caching(runs, [])
    assert advice.sentence.endswith(
        "Runs are 1h 00m apart, and its `ttl` of 10m 00s is over by then: set 3h, only if its results stay "
        "right for that long."
    )
    assert (advice.changes, advice.only_if) == (
        {"tasks.sim.cache.ttl": "3h"},
        "its results stay right for that long",
    )


@pytest.mark.parametrize(
    "runs",
    [
        [shape(n, cache=asked({"never seen": 10})) for n in range(2)],
        [shape(n, cache=asked({"never seen": 5})) for n in range(3)],
        [shape(n, cache=asked({"never seen": 50}, hits=1)) for n in range(3)],
    ],
    ids=["two runs", "few lookups", "hits"],
)
def test_a_cache_is_given_time_to_fill(runs):
    assert isinstance(advise_caching(runs, []), str)


def test_lookups_of_a_run_are_read_with_their_reasons(tmp_path):
    lookups = [
        CacheLookup(
            timestamp=at(n),
            task="sim",
            result="miss",
            key=f"k{n}",
            reason="never seen",
            duration_s=0.001,
            size_bytes=1000,
            task_id=f"t{n}",
        )
        for n in range(10)
    ]
    runs = [write_shape(tmp_path, number, [sims()], events=lookups, **COMMIT) for number in range(3)]
    [advice] = advise_on_work(runs).advice
    assert (advice.kind, advice.about, advice.evidence["reasons"]) == ("cache", "sim", {"never seen": 30})


# --- retries


def test_retries_of_an_error_that_comes_every_time_are_in_vain(tmp_path):
    bad = [("ValueError", "bad seed")] * 3
    calls = [*sims(), *(Call("check", 5.0, {"n": n}, errors=bad, completes=False) for n in range(3))]
    plan = {"tasks": {"check": {"retries": 2}}}
    runs = [write_shape(tmp_path, number, [calls], plan=plan) for number in range(2)]
    [advice] = advise_on_work(runs).advice
    assert advice == Advice(
        kind="retries",
        about="check",
        sentence=(
            "Do not retry check for ValueError: 6 tasks that failed of it were retried in 2 of 2 runs, "
            "and every one failed of it every time."
        ),
        evidence={
            "runs": 2,
            "runs_with_it": 2,
            "error_type": "ValueError",
            "tried_again": 6,
            "rescued": 0,
            "chance_that_one_helps_at_most": 0.5,
            "again_s": 60.0,
            "retries": 2,
        },
        gain="30 worker-seconds in a run that meets it",
        gain_s=30.0,
        changes={"tasks.check.retries": "0"},
    )


def failures(name="load", error="ConnectionError", **counts):
    rest = {"tasks": 0, "tried_again": 0, "rescued": 0, "same_again": 0, "again_s": 0.0}
    return Retried(name=name, error_type=error, **{**rest, **counts})


@pytest.mark.parametrize(
    "row",
    [
        failures(error="ValueError", tasks=4, tried_again=4, same_again=4, again_s=60.0),
        failures(error="ValueError", tasks=9, tried_again=9, same_again=8, rescued=1, again_s=60.0),
        failures(error="ValueError", tasks=9, tried_again=9, same_again=9, again_s=0.05),
        failures(error="ConnectionError", tasks=9, tried_again=9, same_again=9, again_s=60.0),
        failures(error="MemoryError", tasks=9, tried_again=9, same_again=9, again_s=60.0),
        failures(error="DependencyFailed", tasks=9),
        failures(error="ValueError", tasks=9),
    ],
    ids=["few", "one helped", "cheap", "transient", "memory", "dependents", "never retried"],
)
def test_retries_that_may_help_are_left_alone(row):
    assert isinstance(advise_retries([shape(retried=[row])]), str)


def test_retries_that_help_with_another_error_are_kept():
    rows = [
        failures(error="ValueError", tasks=9, tried_again=9, same_again=9, again_s=60.0),
        failures(error="ConnectionError", tasks=3, tried_again=3, rescued=3),
    ]
    planned = Planned(target="here", tasks={"load": TaskPlan(retries=2)})
    [advice] = advise_retries([shape(retried=rows, planned=planned)])
    assert advice.changes == {}
    assert advice.sentence.endswith(
        "; keep them for ConnectionError, where they helped, and let ValueError end the task at once in "
        "its code."
    )


def test_an_error_that_a_second_attempt_mended_elsewhere_is_worth_one():
    rows = [failures(tasks=8, tried_again=4, rescued=4)]
    [advice] = advise_retries([shape(0, retried=[failures(tasks=3)]), shape(1, retried=rows)])
    assert (advice.sentence, advice.gain, advice.changes) == (
        "Retry load up to 2 times: 7 tasks failed for good of ConnectionError in 2 of 2 runs, and 4 of 4 "
        "tasks that were retried after it completed. Only if it may be run twice.",
        "about 100% of these failures",
        {"tasks.load.retries": "2"},
    )


def test_so_is_one_whose_calls_completed_in_other_runs_of_the_same_code(tmp_path):
    lost = [
        Call("load", 2.0, {"n": n}, errors=[("ConnectionResetError", "reset by peer")], completes=False)
        for n in range(3)
    ]
    fine = [Call("load", 2.0, {"n": n}) for n in range(3)]
    runs = [
        write_shape(tmp_path, 0, [lost], plan={}, **COMMIT),
        write_shape(tmp_path, 1, [fine], plan={}, **COMMIT),
    ]
    assert find_duplicate_calls(runs, TRANSIENT) == (
        [],
        [Mended(name="load", error_type="ConnectionResetError", calls=3, completed=3)],
    )
    [advice] = advise_on_work(runs).advice
    assert advice.sentence == (
        "Retry load up to 2 times: 3 tasks failed for good of ConnectionResetError in 1 of 2 runs, and 3 of "
        "3 calls that failed of it completed in other runs of the same code. Only if it may be run twice."
    )


# --- time limits

SLURM = Planned(target="cluster", provider="slurm", components={"sim": Requested(walltime_s=86400.0)})


def with_jobs(number, *jobs, planned=SLURM):
    made = [Job(state=state, elapsed_s=elapsed, walltime_s=86400.0) for state, elapsed in jobs]
    return shape(number, target="cluster", provider="slurm", jobs=made, planned=planned)


def test_jobs_that_end_long_before_their_limit_should_ask_for_less():
    runs = [with_jobs(n, *[("COMPLETED", 3000.0 + 100 * n)] * 3) for n in range(2)]
    [advice] = advise_walltime(runs)
    assert advice == Advice(
        kind="walltime",
        about="cluster",
        sentence=(
            "Ask for jobs of 90m instead of 1d 00h: the longest of 6 jobs of 2 runs took 51m 40s, and a "
            "batch system fits short jobs in sooner. Runs with more work than these take longer."
        ),
        evidence={
            "runs": 2,
            "jobs": 6,
            "walltime_s": 86400.0,
            "longest_s": 3100.0,
            "median_s": 3050.0,
            "cut_short": 0,
        },
        gain="jobs that may start sooner",
        changes={"components.sim.walltime": "90m"},
    )


def test_a_job_gets_the_longest_limit_of_all_components_so_those_beyond_are_changed():
    parts = {"sim": 86400.0, "fit": 43200.0, "plot": 600.0, "load": None}
    planned = Planned(
        target="cluster",
        components={name: Requested(walltime_s=limit) for name, limit in parts.items()},
    )
    shorter = [with_jobs(n, *[("COMPLETED", 3000.0)] * 3, planned=planned) for n in range(2)]
    longer = [with_jobs(0, ("TIMEOUT", 86400.0), planned=planned)]
    assert [advise_walltime(runs)[0].changes for runs in (shorter, longer)] == [
        {"components.fit.walltime": "90m", "components.sim.walltime": "90m"},
        {"components.sim.walltime": "2d"},
    ]


def test_a_job_that_a_local_session_ran_in_is_not_the_manifests_to_change():
    runs = [
        shape(
            target="cluster",
            jobs=[Job(state="TIMEOUT", elapsed_s=86400.0, walltime_s=86400.0)],
            planned=SLURM,
        )
    ]
    [advice] = advise_walltime(runs)
    assert (advice.about, advice.changes) == ("cluster", {})


def test_long_tasks_say_nothing_of_the_life_of_a_worker():
    """`components.X.walltime` is how long a worker lives, and a worker runs many tasks."""
    runs = [
        shape(n, target="cluster", provider="slurm", planned=SLURM, tasks={"sim": task(50, 40.0)})
        for n in range(5)
    ]
    assert isinstance(advise_walltime(runs), str)


def test_jobs_that_ran_into_their_limit_should_ask_for_more():
    planned = Planned(target="cluster", options={"walltime_s": 86400.0})
    runs = [with_jobs(0, ("COMPLETED", 40000.0), ("TIMEOUT", 86400.0), planned=planned)]
    [advice] = advise_walltime(runs)
    assert (advice.sentence, advice.gain, advice.changes) == (
        "Ask for jobs of 2d instead of 1d 00h: 1 of 2 jobs of 1 run ran into it, and what they would have "
        "needed is not known.",
        "24 worker-hours a run of work cut short",
        {"targets.cluster.walltime": "2d"},
    )


def test_so_should_jobs_that_nearly_did():
    [advice] = advise_walltime([with_jobs(0, ("COMPLETED", 80000.0))])
    assert advice.sentence == (
        "Ask for jobs of 2d instead of 1d 00h: the longest of 1 job of 1 run took 22h 13m, 93% of it."
    )


def test_few_jobs_far_below_their_limit_say_nothing():
    assert isinstance(advise_walltime([with_jobs(0, *[("COMPLETED", 3000.0)] * 4)]), str)


def limited(number, timeout_s, over=0, **tasks):
    planned = Planned(target="here", tasks={"sim": TaskPlan(timeout_s=timeout_s)})
    ended = [TimedOut(name="sim", attempts=over, limit_s=timeout_s)] if over else []
    return shape(number, planned=planned, timed_out=ended, **tasks)


def test_attempts_that_reach_a_timeout_far_beyond_all_others_are_stuck():
    runs = [limited(n, 3600.0, over=1, tasks={"sim": task(50, 40.0)}) for n in range(2)]
    [advice] = advise_walltime(runs)
    assert (advice.sentence, advice.gain_s, advice.changes) == (
        "Give sim a timeout of 2m instead of 1h 00m: 2 attempts ran into it, while the longest of 100 "
        "completed tasks of 2 runs took 40.0s; they look stuck, not slow.",
        3480.0,
        {"tasks.sim.timeout": "2m"},
    )


def test_attempts_that_reach_a_timeout_just_beyond_others_need_more_time():
    runs = [limited(n, 60.0, over=2, tasks={"sim": task(50, 55.0)}) for n in range(2)]
    [advice] = advise_walltime(runs)
    assert (advice.sentence, advice.changes) == (
        "Give sim a timeout of 2m instead of 1m 00s: 4 attempts ran into it, beside 100 completed tasks of "
        "2 runs of which the longest took 55.0s.",
        {"tasks.sim.timeout": "2m"},
    )


def test_a_timeout_that_was_nearly_reached_should_be_longer():
    [advice] = advise_walltime([limited(0, 60.0, tasks={"sim": task(50, 57.0)})])
    assert (advice.sentence, advice.changes) == (
        "Give sim a timeout of 2m instead of 1m 00s: the longest of 50 completed tasks of 1 run took "
        "57.0s, 95% of it.",
        {"tasks.sim.timeout": "2m"},
    )


def test_a_timeout_that_nothing_comes_near_is_fine():
    look = advise_walltime([limited(0, 3600.0, tasks={"sim": task(50, 40.0)})])
    assert look == "time limits suit the work"


def test_timeouts_are_told_by_what_the_engine_says_and_not_by_the_type_of_the_error(tmp_path):
    calls = [
        *sims(),
        Call(
            "sim",
            60.0,
            {"n": 90},
            errors=[("TimeoutError", "sim ran over its timeout of 60 s")],
            completes=False,
        ),
        Call(
            "sim", 60.0, {"n": 91}, errors=[("TimeoutError", "the read operation timed out")], completes=False
        ),
    ]
    run = write_shape(tmp_path, 0, [calls], plan={"tasks": {"sim": {"timeout_s": 60.0}}})
    [advice] = [one for one in advise_on_work([run]).advice if one.kind == "walltime"]
    assert advice.evidence["timed_out"] == 1


# --- what cannot be read


def test_no_runs_and_runs_that_cannot_be_read_give_reasons_and_no_advice(tmp_path):
    assert advise_on_work([]).silent == {"shape": "no run that has ended can be read"}
    run = write_shape(tmp_path, 0, [sims()])
    (run.path / "tasks.jsonl").write_bytes(b'{"event":"task_completed","task":\xff\xfe\n\x00\x00[1,2\n')
    (run.path / "plan.json").write_text('{"options": 3, "tasks": {"sim": 5}}')
    (run.path / "manifest.lock").write_text("[")
    found = advise_on_work([run])
    assert (found.advice, found.runs) == ([], [run.run_id])


def test_jobs_that_ended_and_had_a_limit_are_read_in_order_of_time(tmp_path):
    def job(second, state, elapsed_s, walltime_s):
        told = {"state": state, "elapsed_s": elapsed_s, "walltime_s": walltime_s}
        return JobAccounted(timestamp=at(second), job_id=f"{second}", attempt=1, **told)

    path = make_run(
        tmp_path,
        [
            job(9, "COMPLETED", 60.0, 3600.0),
            job(5, "TIMEOUT", 1800.0, 1800.0),
            job(6, "RUNNING", None, 1800.0),
            job(7, "COMPLETED", 60.0, None),
        ],
    )
    assert gather(Run(path)).jobs == [
        Job(state="TIMEOUT", elapsed_s=1800.0, walltime_s=1800.0),
        Job(state="COMPLETED", elapsed_s=60.0, walltime_s=3600.0),
    ]
