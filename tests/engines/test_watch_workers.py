"""What a Dask cluster tells of its workers becomes their events; how one died waits for who saw it."""

from __future__ import annotations

import msgspec

from flightlog.engines.dask import messages as m
from flightlog.engines.dask.watched_workers import WorkerDeath, Workers
from flightlog.engines.execute import Started
from flightlog.engines.limits import DaskLimits
from flightlog.events import (
    JobStarted,
    ResourceSample,
    SpanEvent,
    UserEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)

A = "tcp://10.0.0.1:4000"
WHO = {"worker": A, "host": "node1", "pid": 77}
DASKS = "Dask: handle-worker-cleanup (its connection to the scheduler closed)"


class Watch:
    """Workers with a clock that stands still until it is moved."""

    def __init__(self):
        self.now = 0.0
        ids = iter(f"{n:016x}" for n in range(100))
        self.workers = Workers(
            iso=lambda at: f"{at:.3f}",
            trace_id="t",
            parent_id="run",
            next_id=lambda: next(ids),
            clock=lambda: self.now,
        )
        self.workers.parent_of_transfer = lambda worker, start: "task" if start == 2.0 else None

    def take(self, *messages):
        return [event for message in messages for event in self.workers.take(list(message))]


def arrived(watch):
    return watch.take(
        [m.SCHEDULER, 0.5, "head"],
        [m.WORKER, 1.0, A, "10.0.0.1", 4, 1000, None],
        [m.HELLO, 1.2, A, "node1", 77, 8, None],
    )


def gone(expected=False, stimulus="handle-worker-cleanup-1763230402.5"):
    return [m.WORKER_GONE, 9.0, A, stimulus, expected]


def test_a_worker_is_launched_and_ready_when_it_has_said_who_it_is():
    assert arrived(Watch()) == [
        WorkerLaunched(timestamp="1.000", cpus=4.0, memory_bytes=1000, **WHO),
        WorkerReady(timestamp="1.000", **WHO),
    ]


def test_the_batch_job_of_a_worker_is_told_once_it_has_said_who_it_is():
    job = JobStarted(timestamp="2026-05-20T03:52:00.000000Z", job_id="12", raw_job_id="12", worker=A)
    [said] = m.decode(m.encode([[m.HELLO, 1.2, A, "node1", 77, 8, job]]))
    assert Watch().take(said) == [job]


def test_a_death_is_told_with_what_its_nanny_and_the_kernel_saw():
    watch = Watch()
    arrived(watch)
    assert watch.take(gone()) == []
    assert watch.workers.due() == []
    began = [[3, ["2026-05-20T03:52:00Z", 1, 0.5]]]
    watch.take([m.DEATH, 9.1, A, "its process was killed by SIGKILL", None, "SIGKILL", began])
    reason = f"its process was killed by SIGKILL; {DASKS}"
    assert watch.workers.due() == [WorkerLost(timestamp="9.000", reason=reason, signal="SIGKILL", **WHO)]
    started = Started("2026-05-20T03:52:00Z", 1, 0.5)
    assert watch.workers.death_of(A) == WorkerDeath(reason, None, "SIGKILL", {3: started})


def test_a_death_that_nobody_saw_is_told_after_a_while_in_dasks_words():
    watch = Watch()
    arrived(watch)
    watch.take(gone())
    watch.now = DaskLimits.explanation_wait_s
    assert watch.workers.due() == [WorkerLost(timestamp="9.000", reason=DASKS, **WHO)]
    assert watch.workers.death_of(A) == WorkerDeath(DASKS)


def test_a_worker_that_its_nanny_ended_for_memory_says_how_much_it_held():
    watch = Watch()
    arrived(watch)
    watch.take([m.MEMORY_RESTART, 8.9, A, 2_000_000_000], gone())
    [lost] = watch.workers.due(all_of_it=True)
    assert lost.reason == f"its nanny ended it for memory: 1.9 GiB resident was over its limit; {DASKS}"


def test_a_retired_worker_is_removed_and_not_lost():
    watch = Watch()
    arrived(watch)
    assert watch.take(gone(expected=True, stimulus="retire-workers-1763230402.5")) == [
        WorkerRemoved(timestamp="9.000", reason="Dask: retire-workers (it was retired)", uptime_s=8.0, **WHO)
    ]


def test_a_worker_at_the_address_of_a_dead_one_is_alive():
    watch = Watch()
    arrived(watch)
    watch.take(gone(), [m.DEATH, 9.1, A, "killed", None, "SIGKILL", []])
    watch.workers.due()
    arrived(watch)
    assert watch.workers.death_of(A) == WorkerDeath("Dask lost its worker; nobody saw how it ended")


def test_a_heartbeat_is_a_sample_whose_share_is_of_the_workers_own_cpus():
    watch = Watch()
    arrived(watch)
    beat = {
        "cpu": 200.0,
        "memory": 500,
        "managed_bytes": 50,
        "spilled_bytes": {"memory": 9, "disk": 7},
        "time_delay": 0.25,
    }
    assert watch.take([m.METRICS, 3.0, A, beat], [m.METRICS, 4.0, A, {"memory": 600}]) == [
        UserEvent(
            timestamp="3.000",
            name="dask.clock_offset",
            fields={"worker": A, "host": "node1", "offset_s": 0.25},
        ),
        ResourceSample(
            timestamp="3.000",
            scope="worker",
            host="node1",
            worker=A,
            pid=77,
            cpu_percent=25.0,
            cpu_cores=2.0,
            cpus=8,
            rss_bytes=500,
            memory_total_bytes=1000,
            managed_bytes=50,
            spilled_bytes=7,
        ),
        ResourceSample(
            timestamp="4.000",
            scope="worker",
            host="node1",
            worker=A,
            pid=77,
            cpu_percent=None,
            cpus=8,
            interval_s=1.0,
            rss_bytes=600,
            memory_total_bytes=1000,
        ),
    ]


def test_how_long_threads_of_a_worker_wait_for_the_interpreter_is_a_sample_of_its_process():
    watch = Watch()
    arrived(watch)
    assert watch.take([m.INTERPRETER, 2.0, A, 0.012]) == [
        ResourceSample(
            timestamp="2.000", scope="worker_process", cpu_percent=None, interpreter_wait_s=0.012, **WHO
        )
    ]
    assert watch.take([m.INTERPRETER, 2.0, "tcp://10.0.0.9:1", 0.012]) == []


def test_of_several_workers_on_a_host_one_speaks_for_the_machine():
    watch = Watch()
    sample = msgspec.json.encode(ResourceSample(scope="node", host="node1", cpu_percent=50.0))
    messages = [[m.NODE, at, "node1", who, sample] for at, who in ((1.0, A), (1.1, "tcp://b"), (2.0, A))]
    assert [event.timestamp for event in watch.take(*messages)] == ["1.000", "2.000"]


def test_a_transfer_is_a_span_of_the_task_it_was_for_or_of_the_run():
    watch = Watch()
    watch.take(
        [m.TRANSFER, 3.0, A, "tcp://b", 2.0, 2.5, 4096, 2, 0.5],
        [m.TRANSFER, 3.0, A, "tcp://b", 2.1, 2.1, 1, 1, 0.5],
    )
    assert watch.workers.due() == []
    watch.now = DaskLimits.explanation_wait_s
    first, second = watch.workers.due()
    assert first == SpanEvent(
        timestamp="1.500",
        name="dask.transfer",
        tags={"source": "tcp://b", "worker": A},
        metrics={"bytes": 4096, "keys": 2},
        status="ok",
        duration_s=0.5,
        trace_id="t",
        span_id=f"{0:016x}",
        parent_id="task",
    )
    assert second.parent_id == "run"


def test_when_watching_ends_everything_that_waits_is_told():
    watch = Watch()
    arrived(watch)
    assert list(watch.workers.end(5.0, "no longer watched")) == [
        WorkerRemoved(timestamp="5.000", reason="no longer watched", uptime_s=4.0, **WHO)
    ]
