"""Advice on workers, threads and chunks, from runs whose shape is known."""

from __future__ import annotations

import random

import msgspec
from builders.runs import START
from builders.scheduled_runs import Call, write_shape

from flightlog.analyze.advice.advise import advise_on_work, read_statistics
from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.parallelism import advise_threads
from flightlog.analyze.advice.statistics import ProcessSharing, gather
from flightlog.store.run import Run

LONG_AND_SHORT = [Call("fit", 100.0, {"n": 0}), *(Call("sim", 10.0, {"n": n}) for n in range(1, 15))]


def history(folder, count, waves, **options):
    """The same run so many times; its arguments are new in each, as a sweep's are."""
    return [
        write_shape(
            folder,
            number,
            [[call._replace(args={**call.args, "run": number}) for call in wave] for wave in waves],
            **options,
        )
        for number in range(count)
    ]


def test_workers_that_wait_behind_one_long_task_are_too_many(tmp_path):
    runs = history(
        tmp_path,
        3,
        [LONG_AND_SHORT],
        workers=8,
        provider="slurm",
        target="cluster",
        plan={"options": {"n_workers": 8, "partition": "short"}},
    )
    found = advise_on_work(runs)
    assert found.advice == [
        Advice(
            kind="workers",
            about="cluster",
            sentence=(
                "Use 3 workers instead of 8: they were idle for 70% of their time, and on 3 the same work "
                "takes no longer, replayed from 3 runs."
            ),
            evidence={
                "runs": 3,
                "workers": 8,
                "workers_enough": 3,
                "idle_share": 0.7,
                "wall_s": 100.0,
                "wall_change_share": 0.0,
                "worker_s": 800.0,
                "worker_s_after": 300.0,
                "replay_error_share": 0.0,
            },
            gain="8.3 worker-minutes of 13 worker-minutes a run (62%)",
            gain_s=500.0,
            changes={"targets.cluster.n_workers": "3"},
        )
    ]
    assert sorted(found.silent) == ["cache", "chunks", "retries", "threads", "walltime"]


def test_each_target_has_its_own_number_of_workers(tmp_path):
    plan = {"options": {"n_workers": 8}}
    big = history(tmp_path, 3, [LONG_AND_SHORT], workers=8, provider="slurm", target="cluster", plan=plan)
    even = [Call("sim", 10.0, {"n": n}) for n in range(16)]
    small = history(
        tmp_path, 3, [even], workers=8, provider="slurm", target="other", plan=plan, project="other"
    )
    copy = history(tmp_path / "copy", 1, [even], workers=8, project="other")
    found = advise_on_work([*small, *copy, *big])
    assert [(one.kind, one.about) for one in found.advice] == [("workers", "cluster")]
    assert found.runs == [run.run_id for run in (*small, *big)]


def test_two_runs_are_too_few_to_say_how_many_workers_there_should_be(tmp_path):
    found = advise_on_work(
        history(tmp_path, 2, [LONG_AND_SHORT], workers=8, provider="slurm", target="cluster")
    )
    assert found.advice == []
    assert found.silent["workers"] == "2 completed runs with 8 workers on target cluster; 3 are needed"


def test_work_that_does_not_take_as_long_when_it_is_replayed_gives_no_advice(tmp_path):
    """One task after another although there were workers for all: something that is not recorded held them
    up."""
    one_by_one = [[Call("sim", 10.0, {"n": n})] for n in range(6)]
    runs = [write_shape(tmp_path, number, one_by_one, workers=4, between_s=0.0) for number in range(3)]
    # Without the moments of submission every task seems to have been there from the start.
    for run in runs:
        file = run.path / "tasks.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        first = lines[0].split('"timestamp":"')[1][:27]
        file.write_text(
            "".join(
                line.replace(line.split('"timestamp":"')[1][:27], first)
                if "queued" in line or "submitted" in line
                else line
                for line in lines
            )
        )
    found = advise_on_work(runs)
    assert [one for one in found.advice if one.kind == "workers"] == []
    assert found.silent["workers"] == (
        "how long the work takes on other numbers of workers cannot be told: replayed on 4 workers it does "
        "not take as long as it did"
    )


def test_busy_workers_on_a_machine_with_free_cores_are_too_few(tmp_path):
    runs = history(
        tmp_path,
        3,
        [[Call("sim", 10.0, {"n": n}) for n in range(40)]],
        workers=2,
        machine=(16.0, 12.5),
        plan={"options": {"max_workers": 2}},
    )
    [advice] = advise_on_work(runs).advice
    assert (advice.sentence, advice.gain, advice.gain_s, advice.changes) == (
        "Use 4 workers instead of 2: they were all busy, and tasks waited 1m 35s on average; on 4 a run "
        "takes about 1m 40s instead of 3m 20s (12% of 16 cores were in use), replayed from 3 runs.",
        "1m 40s of 3m 20s a run (50% at least)",
        None,
        {"targets.here.max_workers": "4"},
    )


def test_busy_workers_on_a_full_machine_are_as_many_as_can_be(tmp_path):
    runs = history(
        tmp_path, 3, [[Call("sim", 10.0, {"n": n}) for n in range(40)]], workers=2, machine=(2.0, 99.0)
    )
    found = advise_on_work(runs)
    assert found.advice == []
    assert found.silent["workers"] == "2 workers suit the work of 3 runs"


def test_nor_are_more_advised_where_nobody_looked_at_the_machine(tmp_path):
    runs = history(tmp_path, 3, [[Call("sim", 10.0, {"n": n}) for n in range(40)]], workers=2)
    assert advise_on_work(runs).advice == []


def test_threads_that_wait_for_the_interpreter_should_be_processes(tmp_path):
    calls = [Call("sim", 4.0, {"n": n}, cpu=0.25) for n in range(40)]
    runs = history(
        tmp_path,
        2,
        [calls],
        workers=4,
        threads=True,
        machine=(8.0, 15.0),
        interpreter_wait_s=0.015,
        plan={"options": {"max_workers": 4, "processes": False}},
    )
    [advice] = advise_on_work(runs).advice
    assert advice == Advice(
        kind="threads",
        about="here",
        sentence=(
            "Use processes instead of threads: a concurrency of 4.0 kept 1.0 of 8 cores busy, because a "
            "thread waited 15 ms for its turn in the interpreter (the GIL), in 2 runs. Results then travel "
            "as pickles, 100 B each."
        ),
        evidence={
            "runs": 2,
            "tasks_at_once": 4.0,
            "cores_busy": 1.0,
            "cores": 8.0,
            "cpu_percent": 15.0,
            "result_bytes": 100.0,
            "waited_s": 120.0,
            "interpreter_wait_s": 0.015,
        },
        gain="tasks about 4.0 times as fast; 2.0 worker-minutes a run less",
        gain_s=120.0,
        changes={"targets.here.processes": "true"},
    )


def test_worker_processes_whose_threads_take_turns_should_have_one_each(tmp_path):
    calls = [Call("sim", 4.0, {"n": n}, cpu=0.5) for n in range(40)]
    plan = {"options": {"max_workers": 2, "threads_per_worker": 2}}
    runs = history(tmp_path, 2, [calls], workers=4, threads=True, machine=(8.0, 15.0), plan=plan)
    shapes = [
        msgspec.structs.replace(
            gather(run),
            workers=2,
            side_by_side=ProcessSharing(
                processes=2, covered_s=80.0, held_s=160.0, cpu_s=80.0, interpreter_wait_s=0.01
            ),
        )
        for run in runs
    ]
    [advice] = advise_threads(shapes)
    assert advice.sentence.startswith(
        "Use 4 workers with 1 thread each instead of 2 with 2: a concurrency of 2.0 kept 1.0 of 8 cores"
    )
    assert advice.changes == {"targets.here.threads_per_worker": "1", "targets.here.max_workers": "4"}


def test_threads_that_use_one_core_and_were_not_seen_to_wait_for_the_interpreter_are_fine(tmp_path):
    calls = [Call("sim", 4.0, {"n": n}, cpu=0.25) for n in range(40)]
    runs = history(
        tmp_path / "quick",
        3,
        [calls],
        workers=4,
        threads=True,
        machine=(8.0, 15.0),
        interpreter_wait_s=0.0001,
    )  # they take turns at a lock of their own
    assert advise_on_work(runs).advice == []
    runs = history(tmp_path / "unknown", 3, [calls], workers=4, threads=True, machine=(8.0, 15.0))
    assert advise_on_work(runs).advice == []


def test_threads_that_wait_for_something_else_are_fine(tmp_path):
    calls = [Call("fetch", 4.0, {"n": n}, cpu=0.02) for n in range(40)]
    runs = history(tmp_path, 3, [calls], workers=4, threads=True, machine=(8.0, 90.0))
    assert advise_on_work(runs).advice == []


def test_threads_whose_code_lets_go_of_the_lock_are_fine(tmp_path):
    calls = [Call("solve", 4.0, {"n": n}, cpu=0.95) for n in range(40)]
    runs = history(tmp_path, 3, [calls], workers=4, threads=True, machine=(4.0, 95.0))
    assert advise_on_work(runs).advice == []


def test_processes_that_take_longer_to_start_than_all_work_takes_should_be_threads(tmp_path):
    calls = [Call("add", 0.01, {"n": n}) for n in range(40)]
    runs = history(tmp_path, 2, [calls], workers=4, startup_s=2.0, plan={"options": {}})
    [advice] = advise_on_work(runs).advice
    assert (advice.sentence, advice.gain, advice.changes) == (
        "Use threads instead of processes: 40 tasks need 400 ms of CPU time together, and each of 4 "
        "processes took 2.0s to start, 95% of all worker time (2 runs); threads start at once.",
        "8 worker-seconds a run",
        {"targets.here.processes": "false"},
    )


def test_tasks_of_milliseconds_should_be_put_together(tmp_path):
    calls = [Call("step", 0.003, {"n": n}) for n in range(1000)]
    runs = history(tmp_path, 2, [calls], workers=2, handover_s=0.0012)
    [advice] = advise_on_work(runs).advice
    assert advice == Advice(
        kind="chunks",
        about="step",
        sentence=(
            "Give each task of step 50 pieces of work at once: 1,000 tasks a run take 3 ms each, and "
            "dispatch latency adds 1.2 ms, 29% of both (2 runs)."
        ),
        evidence={
            "runs": 2,
            "tasks": 1000,
            "task_s": advice.evidence["task_s"],
            "handover_s": 0.0012,
            "handovers": 1996,
            "chunk": 50,
        },
        gain="about 1.2 worker-seconds a run",
        gain_s=advice.gain_s,
    )


def test_the_same_handovers_between_longer_tasks_are_nothing(tmp_path):
    calls = [Call("step", 0.3, {"n": n}) for n in range(400)]
    runs = history(tmp_path, 2, [calls], workers=2, handover_s=0.0012)
    assert [one.kind for one in advise_on_work(runs).advice] == []


def test_healthy_runs_give_no_advice(tmp_path):
    for seed in range(4):
        dice = random.Random(seed)
        workers, median = dice.choice([2, 4, 8]), dice.uniform(0.5, 10.0)
        waves = dice.choice([1, 3])
        runs = [
            write_shape(
                tmp_path / str(seed),
                number,
                [
                    [
                        Call("sim", dice.lognormvariate(0, 0.3) * median, {"run": number, "wave": w, "n": n})
                        for n in range(workers * 15)
                    ]
                    for w in range(waves)
                ],
                workers=workers,
                handover_s=0.0005,
                startup_s=0.3,
                between_s=0.1,
                machine=(float(workers), 92.0),
                plan={"options": {"max_workers": workers}},
            )
            for number in range(3)
        ]
        assert advise_on_work(runs).advice == [], seed


def test_older_runs_are_looked_at_in_full_only_where_something_happened(tmp_path):
    """Of eight runs the newest five are, and the one of the others in which something failed; all of them
    count."""
    calls = [[Call("sim", 2.0, {"n": n}) for n in range(4)]]
    runs = [write_shape(tmp_path, number, calls, workers=2) for number in range(8)]
    (runs[6].path / "failures.jsonl").write_text("")
    problems = []
    read, shapes = read_statistics(runs, problems)
    assert (read, problems) == (runs, [])
    assert [shape.run_id for shape in shapes] == [run.run_id for run in runs]
    assert [len(shape.tasks) for shape in shapes] == [1, 1, 1, 1, 1, 0, 1, 0]


def test_tasks_that_need_others_wait_for_them_on_any_number_of_workers(tmp_path):
    """Four chains of three: fewer than four workers take longer, more do not help; a circle is damage."""
    calls = [[Call("step", 10.0, {"n": n}) for n in range(4)] for _ in range(3)]
    run = write_shape(tmp_path, 0, calls, workers=4)
    file = run.path / "tasks.jsonl"
    lines = []
    for line in file.read_text().splitlines():
        event = msgspec.json.decode(line)
        number = int(event["task_id"][1:])
        if event["event"] == "task_submitted":
            event["timestamp"] = START
            event["depends_on"] = [f"t{number - 4}"] if number >= 4 else ["t8"] if number == 0 else []
        lines += [event] if event["event"] != "task_queued" else []
    file.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in lines))
    [wave] = gather(Run(run.path)).waves
    assert (wave.wall_s, wave.needs) == (
        30.0,
        [
            [],
            [],
            [],
            [],
            [0],
            [1],
            [2],
            [3],
            [6],
            [7],
            [4],
            [5],
        ],  # those of one moment by their ids: t10, t11, t8, t9
    )
    assert [wave.on(workers) for workers in (1, 2, 4, 12)] == [120.0, 60.0, 30.0, 30.0]
