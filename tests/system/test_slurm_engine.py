"""The Slurm engine keeps the contract of engines on a real Slurm, and a session on it records its jobs."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from flightlog.engines.slurm.engine import SlurmEngine
from flightlog.events import JobAccounted, JobStarted, WorkerReady
from flightlog.session.session import Session
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.engines import ProcessEngineContract

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

MANIFEST = """\
version: 1
project:
  name: trial
targets:
  cluster:
    provider: slurm
    partition: debug
    account: lab
    n_workers: 2
components:
  small:
    cpus: 1
    memory: 512MiB
    walltime: 10m
  wide:
    cpus: 2
    memory: 256MiB
"""


@pytest.fixture(autouse=True)
def slurm_commands(slurm, monkeypatch, tmp_path):
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


class TestSlurm(ProcessEngineContract):
    timeout_s = 0.5

    def make_engine(self, workers):
        return SlurmEngine(n_workers=workers, memory_bytes=400 << 20, cpus=1, account="lab", walltime_s=600)

    @contextmanager
    def running(self, workers=1, run_path=None):
        """As ever, once the nannies have settled.

        Dask's nanny gives up, and the job ends with it, when its worker dies while the nanny is still
        starting: a task that ends its process a few milliseconds after the worker came would leave no worker
        to go on with.
        """
        with super().running(workers, run_path) as (engine, reported):
            reported.wait_worker(WorkerReady)
            time.sleep(1.0)  # from outside, nothing tells when a nanny has settled
            yield engine, reported


def test_a_session_on_slurm_asks_for_what_its_components_need_and_records_its_jobs(tmp_path, slurm):
    (tmp_path / "flightlog.yaml").write_text(MANIFEST)
    with Session.from_yaml(
        tmp_path / "flightlog.yaml",
        target="cluster",
        runs_dir=tmp_path / "kept" / "runs",
        sample_interval_s=None,
    ) as session:
        futures = session.client.map(tasks.echo, range(10), component="small")
        assert session.client.gather(futures) == list(range(10))
    run = Run(session.path)
    jobs = [event for event in run.events("jobs") if isinstance(event, JobAccounted)]
    assert [(job.state, job.cpus, job.memory_bytes, job.walltime_s, job.account) for job in jobs] == [
        ("CANCELLED", 2.0, 512 << 20, 600.0, "lab")
    ] * 2
    bound = {event.worker: event.job_id for event in run.events("jobs") if isinstance(event, JobStarted)}
    ready = {event.worker for event in run.events("workers") if isinstance(event, WorkerReady)}
    assert bound.keys() == {worker for worker in ready if not worker.startswith("slurm-")}
    assert set(bound.values()) <= {job.job_id for job in jobs}
    assert run.info.status == "completed"
    assert len(list((tmp_path / "kept" / "slurm").glob("flightlog-worker-*.err"))) == 2
