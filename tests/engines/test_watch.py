"""`flightlog.watch`: what plain Dask does is recorded, and neither the program nor the cluster is changed by
it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import dask
import pytest
from distributed import Client, Future, LocalCluster, Reschedule, get_worker, wait

import flightlog
from flightlog.core.errors import UsageError
from flightlog.events import (
    ArtifactRecorded,
    Failure,
    ResourceSample,
    SpanEvent,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    UserEvent,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.store.liveness import this_host


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def client(cluster):
    with Client(cluster) as made:
        yield made


def inc(x):
    with flightlog.span("inside", x=x):
        return x + 1


def add(x, y):
    return x + y


def nap(seconds):
    time.sleep(seconds)
    return seconds


def fail(x):
    raise ValueError(f"not {x}")


def fail_once(path):
    if not path.exists():
        path.write_text("tried")
        raise OSError("the first try")
    return "the second try"


def goes_elsewhere_once(path):
    if not path.exists():
        path.write_text("tried")
        raise Reschedule
    return "elsewhere"


def big(n):
    return b"x" * n


def record_something(path):
    flightlog.current_run().record_artifact(path)


async def coroutine(x):
    with flightlog.span("awaited"):
        await asyncio.sleep(0)
    return x


def submit_more(x):
    from distributed import worker_client

    with worker_client() as inner:
        return inner.submit(inc, x).result()


def plugins_of(dask_scheduler=None):
    found = (dask_scheduler.plugins, dask_scheduler.worker_plugins, dask_scheduler.nanny_plugins)
    return [name for names in found for name in names if name.startswith("flightlog")]


def is_wrapped(dask_worker=None):
    return "execute" in dask_worker.__dict__ and dask_worker.execute.__module__.startswith("flightlog")


def until(true, patience_s=30.0):
    """Wait for something that has to come."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def of(path, *kinds):
    """The events of a run, of these kinds, by time."""
    run = flightlog.open_run(path)
    names = {kind.stream for kind in kinds}
    found = [one for name in sorted(names) for one in run.events(name) if isinstance(one, kinds)]
    return sorted(found, key=lambda event: (event.timestamp, event.seq))


def test_a_task_submitted_the_moment_watching_began_belongs_to_the_span_it_was_submitted_in(tmp_path):
    inside = []
    # Workers in this process, so that watching begins at once; other orders of what is told are seen by
    # trying often.
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as near, Client(near) as client:
        for number in range(5):
            with flightlog.watch(client, project="plain", runs_dir=tmp_path) as run:
                with flightlog.span("sweep") as sweep:
                    future = client.submit(abs, -number)
                assert future.result() == number
            inside += [event.parent_id == sweep.span_id for event in of(run.path, TaskSubmitted)]
    assert inside == [True] * 5


def test_futures_are_recorded_from_submission_to_end_with_spans_inside_them(client, tmp_path):
    with flightlog.watch(client, project="plain", runs_dir=tmp_path, tags={"a": 1}) as run:
        with flightlog.span("sweep") as sweep:
            results = client.gather(client.map(inc, range(5)))
    assert results == [1, 2, 3, 4, 5]
    info = flightlog.open_run(run.path).info
    assert (info.project, info.provider, info.status, info.tags) == ("plain", "dask", "completed", {"a": 1})
    assert (info.tasks_submitted, info.tasks_completed, info.tasks_failed) == (5, 5, 0)
    events = of(run.path, TaskSubmitted, TaskQueued, TaskStarted, TaskEnded)
    assert Counter(type(event) for event in events) == {
        TaskSubmitted: 5,
        TaskQueued: 5,
        TaskStarted: 5,
        TaskCompleted: 5,
    }
    assert {(event.task, event.parent_id, event.trace_id) for event in events} == {
        ("inc", sweep.span_id, info.trace_id)
    }
    ends = [event for event in events if isinstance(event, TaskCompleted)]
    assert sorted(end.args["x"] for end in ends) == [0, 1, 2, 3, 4]
    assert all(end.duration_s >= 0 and end.queue_s >= 0 and end.scheduler_s >= 0 for end in ends)
    spans = {span.tags["x"]: span for span in of(run.path, SpanEvent) if span.name == "inside"}
    assert {x: span.parent_id for x, span in spans.items()} == {end.args["x"]: end.span_id for end in ends}
    starts = {event.task_id: event for event in events if isinstance(event, TaskStarted)}
    for end in ends:
        assert starts[end.task_id].timestamp <= spans[end.args["x"]].timestamp <= end.timestamp


def test_workers_are_known_by_address_host_and_process(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        pids = client.run(lambda dask_worker: __import__("os").getpid())
    launched = of(run.path, WorkerLaunched)
    assert {event.worker: (event.host, event.pid, event.cpus) for event in launched} == {
        address: (this_host(), pid, 1.0) for address, pid in pids.items()
    }
    assert {event.worker for event in of(run.path, WorkerReady)} == set(pids)
    assert {(event.worker, event.reason) for event in of(run.path, WorkerRemoved)} == {
        (address, "no longer watched") for address in pids
    }


def test_delayed_objects_are_recorded_with_what_they_depend_on(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        first, second = dask.delayed(inc)(1), dask.delayed(inc)(2)
        total = dask.delayed(add)(first, second)
        assert dask.compute(total) == (5,)
    tasks = {event.task_id: event for event in of(run.path, TaskSubmitted)}
    [end] = [event for event in tasks.values() if event.task == "add"]
    assert sorted(tasks[one].task for one in end.depends_on) == ["inc", "inc"]
    assert {event.task_id for event in of(run.path, TaskCompleted)} == set(tasks)


def test_identical_pure_calls_are_one_task_with_several_requesters(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        same = [client.submit(nap, 0.2) for _ in range(3)]
        assert client.gather(same) == [0.2, 0.2, 0.2]
    [end] = of(run.path, TaskCompleted)
    assert (end.requests, flightlog.open_run(run.path).info.tasks_submitted) == (3, 1)


def test_a_result_that_is_asked_for_after_its_end_says_how_often(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        first = client.submit(nap, 0.0)
        wait(first)
        until(lambda: of(run.path, TaskCompleted))
        again = [client.submit(nap, 0.0) for _ in range(2)]
        assert client.gather(again) == [0.0, 0.0]
    [end], [event] = of(run.path, TaskCompleted), of(run.path, UserEvent)
    assert (end.requests, event.name) == (1, "dask.requested_again")
    assert event.fields == {"task_id": end.task_id, "requests": 2}


def test_a_failure_is_recorded_with_the_traceback_of_the_users_code_alone(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        future = client.submit(fail, 3)
        wait(future)
        assert future.status == "error"
    [end] = of(run.path, TaskFailed)
    assert (end.task, end.error_type, end.error_message, end.args) == (
        "fail",
        "ValueError",
        "not 3",
        {"x": 3},
    )
    [failure] = list(flightlog.open_run(run.path).events("failures"))
    assert failure.traceback.count('File "') == 1
    assert 'raise ValueError(f"not {x}")' in failure.traceback
    assert (failure.task_id, failure.span_id) == (end.task_id, end.span_id)


def test_a_retry_is_an_attempt_with_the_reason_of_the_one_before(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        assert client.submit(fail_once, tmp_path / "tried", retries=2).result() == "the second try"
    [retried] = of(run.path, TaskRetried)
    assert (retried.attempt, retried.reason) == (1, "OSError: the first try")
    assert [(type(end), end.attempt) for end in of(run.path, TaskEnded)] == [(TaskCompleted, 2)]


def test_a_task_that_dask_reschedules_has_not_failed(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        assert client.submit(goes_elsewhere_once, tmp_path / "tried").result() == "elsewhere"
    [retried] = of(run.path, TaskRetried)
    assert (retried.attempt, retried.reason, of(run.path, Failure)) == (1, "Dask: reschedule", [])
    assert flightlog.diagnose(run.path).answer == "The run completed without failures (1 task completed)."


def test_a_cancelled_task_says_so(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        waits = client.submit(add, client.submit(nap, 0.4), 1)
        client.cancel(waits)
        until(lambda: of(run.path, TaskCancelled))
    [end] = [end for end in of(run.path, TaskCancelled) if end.task == "add"]
    assert (end.reason, end.worker, end.duration_s) == ("cancelled by the client", None, None)


def test_bytes_that_moved_between_workers_are_spans_of_the_task_they_moved_for(client, tmp_path):
    one, other = client.scheduler_info()["workers"]
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        data = client.submit(big, 1_000_000, workers=[one])
        assert client.submit(len, data, workers=[other]).result() == 1_000_000
    [transfer] = [span for span in of(run.path, SpanEvent) if span.name == "dask.transfer"]
    [end] = [end for end in of(run.path, TaskCompleted) if end.task == "len"]
    assert (transfer.tags, transfer.parent_id) == ({"source": one, "worker": other}, end.span_id)
    assert transfer.metrics["bytes"] >= 1_000_000
    assert end.transfer_s == pytest.approx(transfer.duration_s)


def test_memory_and_cpu_of_each_worker_are_sampled(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        addresses = set(client.scheduler_info()["workers"])
        client.submit(time.sleep, 1.5).result()
    samples = [one for one in of(run.path, ResourceSample) if one.worker in addresses]
    assert {sample.worker for sample in samples} == addresses
    assert all(sample.rss_bytes > 0 and 0 <= sample.cpu_percent <= 100 for sample in samples)


def test_artifacts_inside_tasks_belong_to_them(client, tmp_path):
    output = tmp_path / "out.csv"
    output.write_text("1,2")
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        client.submit(record_something, output).result()
    [artifact], [end] = of(run.path, ArtifactRecorded), of(run.path, TaskCompleted)
    assert (artifact.uri, artifact.size_bytes, artifact.span_id) == (str(output), 3, end.span_id)


def test_spans_inside_coroutines_belong_to_their_task(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        assert client.gather(client.map(coroutine, range(3))) == [0, 1, 2]
    spans = [span.parent_id for span in of(run.path, SpanEvent) if span.name == "awaited"]
    assert sorted(spans) == sorted(end.span_id for end in of(run.path, TaskCompleted))


def test_tasks_that_tasks_submit_are_recorded_too(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        assert client.submit(submit_more, 500).result() == 501
    assert sorted(end.task for end in of(run.path, TaskCompleted)) == ["inc", "submit_more"]


def test_another_clients_tasks_are_not_recorded(client, cluster, tmp_path):
    with Client(cluster, set_as_default=False) as other, flightlog.watch(client, runs_dir=tmp_path) as run:
        assert (other.submit(inc, 900).result(), client.submit(inc, 901).result()) == (901, 902)
    assert [end.args for end in of(run.path, TaskCompleted)] == [{"x": 901}]
    assert [span.tags for span in of(run.path, SpanEvent)] == [{"x": 901}]


def test_inside_a_run_it_records_into_that_run_which_goes_on(client, tmp_path):
    with flightlog.record("outer", runs_dir=tmp_path) as outer:
        with flightlog.watch(client) as run:
            client.submit(inc, 42).result()
        with flightlog.span("afterwards"):
            pass
    assert run is outer
    names = {span.name for span in of(outer.path, SpanEvent)}
    assert (names, len(of(outer.path, TaskCompleted))) == ({"inside", "afterwards"}, 1)
    assert [path.name for path in tmp_path.iterdir()] == [outer.run_id]


def test_without_a_block_it_is_closed_by_hand_and_leaves_everything_as_it_was(client, tmp_path):
    before = dict(client.__dict__)
    watched = flightlog.watch(client, runs_dir=tmp_path)
    assert len(client.run_on_scheduler(plugins_of)) == 3
    assert set(client.run(is_wrapped).values()) == {True}
    client.submit(inc, 4).result()
    watched.close()
    watched.close()
    assert client.run_on_scheduler(plugins_of) == []
    assert set(client.run(is_wrapped).values()) == {False}
    assert client.__dict__.keys() == before.keys()
    client.submit(inc, 5).result()
    assert [end.args for end in of(watched.run.path, TaskCompleted)] == [{"x": 4}]


def test_a_client_that_is_watched_twice_into_one_run_is_recorded_once_until_the_last_is_closed(
    client, tmp_path
):
    before = dict(client.__dict__)
    with flightlog.record("both", runs_dir=tmp_path) as run:
        first, second = flightlog.watch(client), flightlog.watch(client)
        assert len(client.run_on_scheduler(plugins_of)) == 3
        client.submit(inc, 7).result()
        first.close()
        client.submit(inc, 8).result()
        second.close()
        assert client.run_on_scheduler(plugins_of) == []
        assert client.__dict__.keys() == before.keys()
        client.submit(inc, 9).result()
    assert [end.args for end in of(run.path, TaskCompleted)] == [{"x": 7}, {"x": 8}]


def test_watches_of_two_runs_are_closed_in_any_order_and_leave_the_client_as_it_was(cluster, tmp_path):
    with Client(cluster) as client:
        before = dict(client.__dict__)
        first = flightlog.watch(client, runs_dir=tmp_path)
        with flightlog.record("inner", runs_dir=tmp_path) as inner:
            second = flightlog.watch(client)
            client.submit(inc, 10).result()
            second.close()
        client.submit(inc, 11).result()
        client.close()
        assert client.__dict__.keys() == before.keys()
    assert [end.args for end in of(inner.path, TaskCompleted)] == [{"x": 10}]
    assert [end.args for end in of(first.run.path, TaskCompleted)] == [{"x": 10}, {"x": 11}]
    assert flightlog.open_run(first.run.path).info.status == "completed"


def test_a_cluster_that_is_closed_under_the_watch_is_why_tasks_have_no_end(tmp_path):
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as made,
        Client(made) as client,
        flightlog.watch(client, runs_dir=tmp_path) as run,
    ):
        assert client.submit(inc, 1).result() == 2
        held = client.submit(nap, 3600.0, workers=["nowhere"])
        while {one.task for one in of(run.path, TaskSubmitted)} != {"inc", "nap"}:
            time.sleep(0.05)
        made.close()
    del held
    [failure] = of(run.path, Failure)
    assert (failure.scope, failure.error_type) == ("run", "SchedulerLost")
    assert failure.message.endswith("was lost; one task was in flight")


def test_closing_the_client_closes_the_watch(cluster, tmp_path):
    client = Client(cluster)
    watched = flightlog.watch(client, runs_dir=tmp_path)
    client.submit(inc, 6).result()
    client.close()
    assert flightlog.open_run(watched.run.path).info.status == "completed"
    assert [end.args for end in of(watched.run.path, TaskCompleted)] == [{"x": 6}]
    assert flightlog.current_run() is None


def test_an_error_in_the_block_is_the_runs_and_passes_through(client, tmp_path):
    with pytest.raises(ZeroDivisionError), flightlog.watch(client, runs_dir=tmp_path) as run:
        1 / 0
    assert flightlog.open_run(run.path).info.status == "failed"


def test_what_is_no_client_is_refused():
    with pytest.raises(UsageError, match=r"takes a distributed\.Client, and was given dict"):
        flightlog.watch({})


def test_with_recording_off_nothing_is_installed(client, monkeypatch, tmp_path):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "0")
    with flightlog.watch(client, runs_dir=tmp_path) as run:
        run.event("nothing")
        assert client.run_on_scheduler(plugins_of) == []
    assert list(tmp_path.iterdir()) == []


def test_an_asynchronous_client_is_watched_with_async_with(cluster, tmp_path):
    async def program():
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            async with flightlog.watch(client, runs_dir=tmp_path) as run:
                # Held, or it may be given up; `map` has another key for the same call.
                one = client.submit(inc, 1)
                assert isinstance(one, Future)
                assert await client.gather(client.map(inc, range(3))) == [1, 2, 3]
            return run

    run = asyncio.run(program())
    assert len(of(run.path, TaskCompleted)) == 4
    assert flightlog.open_run(run.path).info.status == "completed"


def test_an_asynchronous_client_that_is_closed_closes_its_watch(cluster, tmp_path):
    async def program():
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            watched = await flightlog.watch(client, runs_dir=tmp_path)
            assert await client.submit(inc, 1) == 2
        return watched.run

    run = asyncio.run(program())
    assert len(of(run.path, TaskCompleted)) == 1
    assert flightlog.open_run(run.path).info.status == "completed"


def test_threads_of_the_clients_own_process_are_watched_as_well(tmp_path):
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        flightlog.watch(client, runs_dir=tmp_path) as run,
    ):
        assert client.gather(client.map(inc, range(4))) == [1, 2, 3, 4]
    spans = [span.parent_id for span in of(run.path, SpanEvent) if span.name == "inside"]
    assert sorted(spans) == sorted(end.span_id for end in of(run.path, TaskCompleted))


def test_get_worker_still_works_inside_a_watched_task(client, tmp_path):
    with flightlog.watch(client, runs_dir=tmp_path):
        assert client.submit(lambda: get_worker().address).result() in client.scheduler_info()["workers"]
