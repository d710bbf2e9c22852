"""The job a process runs in, by Slurm's variables alone."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import JobStarted
from flightlog.record.environment import job_here
from flightlog.record.recording import record
from flightlog.store.run import Run

ELEMENT = {
    "SLURM_JOB_ID": "15",
    "SLURM_ARRAY_JOB_ID": "14",
    "SLURM_ARRAY_TASK_ID": "0",
    "SLURM_ARRAY_TASK_COUNT": "2",
    "SLURM_CLUSTER_NAME": "flight",
    "SLURM_JOB_NAME": "sweep",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "debug",
    "SLURM_JOB_ACCOUNT": "lab",
    "SLURM_JOB_QOS": "normal",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2),4",
    "SLURM_MEM_PER_NODE": "100",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_JOB_START_TIME": "1794765577",
    "SLURM_JOB_END_TIME": "1794769177",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_SUBMIT_HOST": "login1",
    "SLURM_SUBMIT_DIR": "/home/ada",
}


def test_outside_a_job_there_is_none():
    assert job_here({}) is None
    assert job_here({"SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": " "}) is None


def test_an_element_of_an_array_is_known_by_its_array_and_index():
    assert job_here(ELEMENT, worker="w", task_id="t", host="n1") == JobStarted(
        job_id="14_0",
        cluster="flight",
        raw_job_id="15",
        array_job_id="14",
        array_index=0,
        array_size=2,
        name="sweep",
        user="ada",
        partition="debug",
        account="lab",
        qos="normal",
        nodes="n[1-3]",
        cpus=20,
        memory_bytes=300 << 20,
        gpus=6,
        walltime_s=3600.0,
        worker="w",
        task_id="t",
        host="n1",
        restarts=1,
        submit_host="login1",
        submit_dir="/home/ada",
    )


def test_what_the_variables_do_not_say_is_unknown():
    assert job_here({"SLURM_JOBID": "7", "SLURM_MEM_PER_NODE": "0"}) == JobStarted(job_id="7", raw_job_id="7")


def test_memory_a_cpu_is_that_of_all_cpus():
    job = job_here({"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "200", "SLURM_JOB_CPUS_PER_NODE": "4(x2)"})
    assert job is not None
    assert job.memory_bytes == 1600 << 20


@given(st.dictionaries(st.sampled_from(sorted(ELEMENT)), st.text(max_size=2000)))
def test_variables_of_any_text_do_no_harm(changed: dict[str, str]):
    job = job_here({**ELEMENT, **changed})
    assert job is None or len(job.name or "") <= 500


def test_a_recorded_program_says_which_job_it_is_in(tmp_path: Path, monkeypatch):
    for name, value in ELEMENT.items():
        monkeypatch.setenv(name, value)
    with record("inside", runs_dir=tmp_path, sample_interval_s=None) as run:
        pass
    (job,) = Run(run.path).events("jobs")
    assert isinstance(job, JobStarted)
    assert (job.job_id, job.worker, job.task_id) == ("14_0", None, None)
