"""What a Slurm job of workers asks for: from the target's options, else from the largest component, else
nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import UsageError
from flightlog.engines import make_engine
from flightlog.engines.contract import Resources
from flightlog.engines.slurm.engine import SlurmEngine, job_options, largest, slurm_time

SMALL = Resources(cpus=1, memory_bytes=2 << 30, walltime_s=600)
WIDE = Resources(cpus=3.5, memory_bytes=1 << 30, gpus=1)


def script_of(engine: SlurmEngine) -> list[str]:
    """The lines that Slurm reads of a job's script."""
    from dask_jobqueue.slurm import SLURMJob

    options = {name: value for name, value in engine._options.items() if value is not None}
    script = SLURMJob("tcp://127.0.0.1:8786", name="w", job_name="flightlog-worker", **options).job_script()
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_a_job_is_large_enough_for_any_component():
    assert largest([SMALL, WIDE], 2) == Resources(cpus=7.0, memory_bytes=4 << 30, gpus=2, walltime_s=600)
    assert largest([], 2) == Resources()


def test_components_reach_the_engine_and_the_script():
    engine = make_engine("slurm", {"partition": "debug", "account": "lab"}, {"a": SMALL, "b": WIDE})
    assert isinstance(engine, SlurmEngine)
    assert script_of(engine) == [
        "-J flightlog-worker",
        "-p debug",
        "-A lab",
        "-n 1",
        "--cpus-per-task=4",
        "--mem=2048M",
        "-t 0-00:10:00",
        "--gres=gpu:1",
    ]


def test_what_the_target_says_wins_over_components():
    engine = SlurmEngine(
        cpus=2, memory_bytes=1 << 30, gpus=0, walltime_s=60, qos="long", components={"b": WIDE}
    )
    assert script_of(engine) == [
        "-J flightlog-worker",
        "-n 1",
        "--cpus-per-task=2",
        "--mem=1024M",
        "-t 0-00:01:00",
        "--qos=long",
    ]


def test_memory_that_nobody_names_is_left_to_slurm():
    options = job_options(Resources(), processes=2, threads=3, directives=[])
    assert (options["cores"], options["processes"], options["job_directives_skip"]) == (6, 2, ["--mem="])
    assert not [line for line in script_of(SlurmEngine()) if "mem" in line]


def test_the_job_of_a_worker_is_known_by_the_names_the_cluster_gave():
    engine = SlurmEngine()
    named = {
        "tcp://a:1": "SLURMCluster-0",
        "tcp://a:2": "SLURMCluster-1-0",
        "tcp://a:3": "SLURMCluster-2",
        "tcp://b:1": 7,
    }
    engine._cluster = SimpleNamespace(
        scheduler=SimpleNamespace(workers={at: SimpleNamespace(name=name) for at, name in named.items()}),
        workers={
            "SLURMCluster-0": SimpleNamespace(job_id="41"),
            "SLURMCluster-1": SimpleNamespace(job_id=42),
            "SLURMCluster-2": SimpleNamespace(job_id=None),  # not submitted yet
        },
    )
    find = engine._job_of
    found = {worker: find(worker) for worker in [*named, "tcp://gone:1"]}
    assert found == {
        "tcp://a:1": "41",
        "tcp://a:2": "42",
        "tcp://a:3": None,
        "tcp://b:1": None,
        "tcp://gone:1": None,
    }


def test_a_queue_and_another_partition_are_told():
    with pytest.raises(UsageError, match="they are one thing"):
        SlurmEngine(partition="debug", queue="long")


@given(st.floats(0.001, 10**8))
def test_a_duration_in_slurms_words_is_the_same_duration_rounded_up(seconds):
    days, _, clock = slurm_time(seconds).partition("-")
    hours, minutes, rest = map(int, clock.split(":"))
    whole = int(days) * 86400 + hours * 3600 + minutes * 60 + rest
    assert seconds <= whole < seconds + 1
    assert (hours < 24, minutes < 60, rest < 60) == (True, True, True)
