"""The life of a session: what it records by itself, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import threading
import time
from collections import Counter

import pytest
import work_for_sessions as work
from builders.runs import at, make_run
from sessions import HEAD, PROCESSES, THREADS, counts, events_of, run_of, session_in, summary_of

import flightlog
from flightlog.analyze.report.report import report_on
from flightlog.core.errors import ManifestError, UsageError
from flightlog.events import (
    ArtifactRecorded,
    CostEstimate,
    ResourceRequest,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskQueued,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
    kind_of,
)
from flightlog.session.session import Session
from flightlog.store import layout
from flightlog.store.completing import complete_ended
from flightlog.store.earlier_runs import EarlierRuns
from flightlog.store.run import Run


def test_a_session_is_recorded_as_a_run_of_its_target(tmp_path):
    with session_in(tmp_path) as session:
        assert session.client.gather(session.client.map(work.add, range(8))) == list(range(1, 9))
    info = run_of(session).info
    assert (info.project, info.target, info.provider, info.status) == ("trial", "local", "local", "completed")
    assert (info.tasks_submitted, info.tasks_completed, info.tasks_failed) == (8, 8, 0)
    assert info.manifest_hash == session.manifest.sha256
    assert (session.run_id, session.path) == (info.run_id, tmp_path / "runs" / info.run_id)


def test_each_worker_process_is_sampled_under_its_own_name(tmp_path):
    release = tmp_path / "release"

    def sampled():
        found = events_of(session, "resources", ResourceSample)
        return {(one.worker, one.pid) for one in found if one.scope == "worker_process"}

    with session_in(tmp_path, sample_interval_s=0.1) as session:
        waiting = session.client.map(work.wait_for, [str(release)] * 2)
        until = time.monotonic() + 60
        while len(sampled()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        release.touch()
        session.client.gather(waiting)
    assert sampled() == {(one.worker, one.pid) for one in events_of(session, "workers", WorkerLaunched)}


def test_each_task_has_one_line_for_each_step_of_its_life(tmp_path):
    with session_in(tmp_path) as session:
        session.client.gather(session.client.map(work.add, range(20)))
    for kind in (TaskSubmitted, TaskQueued, TaskStarted, TaskCompleted):
        found = events_of(session, "tasks", kind)
        assert len({e.task_id for e in found}) == len(found) == 20
    ends = events_of(session, "tasks", TaskCompleted)
    assert all(e.queue_s >= 0 and e.duration_s >= 0 and e.result_bytes > 0 for e in ends)
    assert all(e.call_bytes > 0 and e.serialize_s > 0 and e.session_serialize_s > 0 for e in ends)
    ready = {e.worker: e.pid for e in events_of(session, "workers", WorkerReady)}
    assert {e.worker for e in ends} <= set(ready)
    assert os.getpid() not in ready.values()
    launched = {e.worker for e in events_of(session, "workers", WorkerLaunched)}
    assert {e.worker for e in events_of(session, "workers", WorkerRemoved)} == launched
    assert set(ready) <= launched
    assert run_of(session).completeness().lost == {}


def test_the_run_keeps_the_manifest_as_written_the_plan_and_the_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIAL_SECRET", "hunter2")
    more = "components:\n  main:\n    env:\n      KEY: ${TRIAL_SECRET}\n"
    with session_in(tmp_path, more) as session:
        session.client.submit(work.add, 1).result()
    kept = {path.name: path.read_text() for path in session.path.iterdir() if path.is_file()}
    assert kept["manifest.yaml"] == HEAD + PROCESSES + more
    assert json.loads(kept["plan.json"])["target"] == "local"
    lock = json.loads(kept["manifest.lock"])
    assert lock["manifest_sha256"] == session.manifest.sha256
    assert list(lock["functions"]) == ["work_for_sessions.add"]
    assert [name for name, text in kept.items() if "hunter2" in text] == []


def test_the_plan_of_a_run_holds_what_the_runs_before_it_suggest(tmp_path):
    for _ in range(2):
        with session_in(
            tmp_path, where="targets:\n  local:\n    provider: local\n    processes: false\n"
        ) as session:
            session.client.gather(session.client.map(work.add, range(3)))
    first, second = sorted((tmp_path / "runs").iterdir(), key=lambda path: path != session.path, reverse=True)
    before, after = (json.loads((path / "plan.json").read_text()) for path in (first, second))
    assert before["history"] is None
    assert after["history"]["runs"] == [first.name]
    assert after["history"]["tasks"]["add"]["tasks"] == 3
    assert (before["workers_from"], after["workers_from"]) == (None, "history")


def test_the_lock_names_the_commit_of_the_manifests_folder(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    git = ["git", "-C", str(project), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    monkeypatch.chdir(tmp_path)
    with session_in(project, where=THREADS) as session:
        session.client.submit(work.add, 1).result()
    assert json.loads((session.path / "manifest.lock").read_text())["git_commit"] == commit


def test_what_components_ask_for_is_recorded(tmp_path):
    more = "components:\n  main:\n    cpus: 2\n    memory: 1GB\ntasks:\n  add:\n    component: main\n"
    with session_in(tmp_path, more) as session:
        session.client.submit(work.add, 1).result()
    found = events_of(session, "resources", ResourceRequest)
    assert [(e.task, e.component, e.cpus, e.memory_bytes) for e in found] == [
        (None, "main", 2.0, 1_000_000_000),
        ("add", "main", 2.0, 1_000_000_000),
    ]


def test_workers_cost_what_the_rates_of_the_target_say(tmp_path):
    rates = "    cost:\n      currency: EUR\n      per_worker_hour: 3600\n"
    with session_in(tmp_path, where=PROCESSES + rates) as session:
        session.client.submit(work.add, 1).result()
    *_, cost = events_of(session, "cost", CostEstimate)
    assert (cost.item, cost.currency, cost.rate, cost.quantity_unit) == (
        "workers",
        "EUR",
        3600.0,
        "worker-hour",
    )
    assert cost.amount == pytest.approx(3600 * cost.quantity)
    assert cost.amount > 0


def test_an_exception_in_the_body_makes_the_run_failed_and_passes_through(tmp_path):
    session = session_in(tmp_path)
    assert session.client.submit(work.add, 1).result() == 2
    with pytest.raises(RuntimeError, match="of the body"), session:
        raise RuntimeError("of the body")
    info = run_of(session).info
    assert (info.status, info.error) == ("failed", "RuntimeError: of the body")
    assert counts(summary_of(session)) == {"submitted": 1, "completed": 1}


def test_ctrl_c_in_the_body_makes_the_run_interrupted(tmp_path):
    session = session_in(tmp_path)
    with pytest.raises(KeyboardInterrupt), session:
        raise KeyboardInterrupt
    assert run_of(session).info.status == "interrupted"


def test_failed_tasks_are_shown_when_the_session_closes_and_the_run_is_completed(tmp_path, caplog):
    with session_in(tmp_path) as session, caplog.at_level(logging.WARNING, "flightlog"):
        session.client.gather(session.client.map(work.fail, ["one", "two"]), errors="return")
        session.client.submit(work.add, 1).result()
        session.close()
    assert sorted(caplog.messages) == [
        "  fail(message='one'): ValueError: one",
        "  fail(message='two'): ValueError: two",
        "2 of 3 tasks failed:",
    ]
    assert (run_of(session).info.status, run_of(session).info.tasks_failed) == ("completed", 2)


def test_tasks_that_depend_on_a_failed_one_are_counted_and_hide_no_other_failure(tmp_path, caplog):
    with session_in(tmp_path) as session, caplog.at_level(logging.WARNING, "flightlog"):
        first = session.client.submit(work.fail, "one")
        ends = [session.client.submit(work.add, first) for _ in range(20)]
        session.client.gather([first, *ends, session.client.submit(work.fail, "two")], errors="return")
        session.close()
    told = ["  fail(message='one'): ValueError: one", "  fail(message='two'): ValueError: two"]
    assert sorted(caplog.messages[1:-1]) == told
    assert (caplog.messages[0], caplog.messages[-1]) == (
        "22 of 22 tasks failed:",
        "  … and 20 tasks that depend on them",
    )


def earlier_runs(folder, *, took, tasks=4):
    """Ten runs of the session's project that took so long, about; nobody has completed them yet."""
    for number in range(10):
        lasts, ids = took / 10, {"task": "wait", "args": {}}
        events = []
        for n in range(tasks):
            ids["task_id"] = f"t{n}"
            events += [
                TaskSubmitted(timestamp=at(0), **ids),
                TaskCompleted(timestamp=at(lasts), duration_s=lasts, worker="w1", **ids),
            ]
        whole = took * (1 + number / 1000)
        yield make_run(
            folder,
            events,
            project="trial",
            token=f"{number:08x}",
            target="local",
            duration_s=whole,
            end_time=at(whole),
            tasks_submitted=tasks,
            to_complete=True,
        )


@pytest.mark.parametrize("complete", [True, False])
def test_a_session_that_took_longer_than_those_before_says_so_and_why(tmp_path, caplog, complete):
    for path in earlier_runs(tmp_path / "runs", took=0.005):
        if complete:
            complete_ended(path)
        assert (path / layout.SUMMARY).exists() is complete
    with session_in(tmp_path, where=THREADS) as session, caplog.at_level(logging.WARNING, "flightlog"):
        session.client.gather(session.client.map(work.wait, [0.1] * 4))
        session.close()
    [said] = caplog.messages
    run = run_of(session)
    past = report_on(run, details=False, history=EarlierRuns(run)).verdict.past
    assert past is not None
    assert said == f"This run was {past.sentence}"
    assert re.match(r"This run was \d+\.\d times slower than 10 earlier runs with the same tasks \(", said)
    assert "because wait took " in said


@pytest.mark.parametrize(("took", "tasks"), [(1000.0, 4), (0.005, 40)], ids=["faster", "other work"])
def test_a_session_that_is_faster_or_does_something_else_says_nothing(tmp_path, caplog, took, tasks):
    assert len(list(earlier_runs(tmp_path / "runs", took=took, tasks=tasks))) == 10
    with session_in(tmp_path) as session, caplog.at_level(logging.WARNING, "flightlog"):
        session.client.gather(session.client.map(work.wait, [0.01] * 4))
        session.close()
    assert caplog.messages == []


def test_a_session_without_a_block_is_started_and_closed_by_hand(tmp_path):
    session = session_in(tmp_path).start()
    assert session.start() is session
    assert session.client.submit(work.add, 1).result() == 2
    session.close()
    session.close()
    assert run_of(session).info.status == "completed"
    with pytest.raises(UsageError, match="closed"):
        session.start()
    with pytest.raises(UsageError, match="closed"):
        session.client.submit(work.add, 1)


def test_two_sessions_in_a_row_are_two_runs(tmp_path):
    paths = []
    for expected in (2, 3):
        with session_in(tmp_path) as session:
            assert session.client.submit(work.add, expected - 1).result() == expected
        paths.append(session.path)
    assert len({*paths}) == 2
    assert [counts(summary_of_path(path)) for path in paths] == 2 * [{"submitted": 1, "completed": 1}]


def summary_of_path(path):
    from flightlog.analyze.report.summary import summarize

    return summarize(Run(path))


def test_a_session_works_in_an_event_loop(tmp_path):
    async def main() -> Session:
        async with session_in(tmp_path) as session:
            futures = session.client.map(work.add, range(3))
            assert [await future for future in futures] == [1, 2, 3]
            with flightlog.span("inside"):
                pass
        assert flightlog.current_run() is None
        return session

    session = asyncio.run(main())
    assert run_of(session).info.status == "completed"
    assert [e.name for e in run_of(session).events("spans")] == ["inside"]


def test_where_recording_is_off_sessions_work_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "0")
    with session_in(tmp_path) as session:
        client = session.client
        assert client.gather(client.map(work.add, range(3))) == [1, 2, 3]
        assert client.submit(work.add, client.submit(work.add, 1)).result() == 3
        assert type(client.submit(work.fail, "x").exception()) is ValueError
        session.record_artifact("nothing.csv", kind="result")
        assert session.run_id == "not-recorded"
        assert not session.path.exists()
    assert not (tmp_path / "runs").exists()


def test_threads_of_this_process_can_be_the_workers(tmp_path):
    with session_in(tmp_path, where=THREADS) as session:
        assert session.client.submit(os.getpid).result() == os.getpid()
    [end] = events_of(session, "tasks", TaskCompleted)
    assert (end.task, end.args) == ("getpid", {})


def test_subscribers_hear_of_what_workers_start_span_and_measure(tmp_path):
    heard, all_of_it = Counter(), threading.Event()
    kinds = ("task_submitted", "task_started", "task_completed", "metric", "span")

    def subscriber(event):
        heard[kind_of(event)] += 1
        if heard == dict.fromkeys(kinds, 8):
            all_of_it.set()

    def is_wanted(event):
        return kind_of(event) != "span" or event.name == "measuring"

    with session_in(tmp_path) as session:
        session.telemetry.subscribe(subscriber, events=kinds, where=is_wanted)
        session.client.gather(session.client.map(work.measure, range(8)))
        assert all_of_it.wait(30), heard
    assert heard == dict.fromkeys(kinds, 8)


def test_telemetry_is_the_run(tmp_path):
    seen = []
    with session_in(tmp_path) as session:
        unsubscribe = session.telemetry.subscribe(seen.append, events="task_completed")
        session.client.gather(session.client.map(work.add, range(3)))
        unsubscribe()
        session.telemetry.metric("loss", 0.5)
        output = tmp_path / "output.csv"
        output.write_text("a,b\n")
        session.record_artifact(output, kind="result", rows=1)
    assert [isinstance(event, TaskCompleted) for event in seen] == 3 * [True]
    [artifact] = events_of(session, "artifacts", ArtifactRecorded)
    assert (artifact.name, artifact.kind, artifact.metadata) == ("output.csv", "result", {"rows": 1})


def test_tasks_that_have_not_ended_when_a_session_closes_are_cancelled(tmp_path):
    with session_in(tmp_path) as session:
        done = session.client.submit(work.add, 1)
        done.result()
        left = session.client.map(work.add, [session.client.submit(time.sleep, 60)] * 3, range(3))
        with pytest.raises(RuntimeError), session:
            raise RuntimeError
    assert [future.cancelled() for future in left] == [True] * 3
    assert counts(summary_of(session)) == {"submitted": 5, "completed": 1, "cancelled": 4}
    reasons = {e.reason for e in events_of(session, "tasks", TaskCancelled) if e.worker is None}
    assert reasons == {"the session ended with RuntimeError"}


def test_a_wrong_target_or_manifest_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(UsageError, match="there is no target 'moon'"):
        session_in(tmp_path, target="moon")
    with pytest.raises(ManifestError, match="'procesess'"):
        session_in(tmp_path, where=PROCESSES + "    procesess: false\n")
    assert not (tmp_path / "runs").exists()


def test_a_session_that_cannot_start_its_engine_leaves_a_failed_run(tmp_path):
    class Broken:
        def start(self, run_path, reports):
            raise OSError("no workers to be had")

    session = session_in(tmp_path, engine=Broken())
    with pytest.raises(OSError, match="no workers"):
        session.start()
    [path] = (tmp_path / "runs").iterdir()
    assert (Run(path).info.status, Run(path).info.error) == ("failed", "OSError: no workers to be had")
    assert flightlog.current_run() is None


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
def test_a_thousand_finished_tasks_are_a_thousand_completed_ones(tmp_path, where):
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with session_in(folder, where=where) as session:
            assert sum(session.client.gather(session.client.map(work.add, range(1000)))) == 500500
        assert counts(summary_of(session)) == {"submitted": 1000, "completed": 1000}


def test_tasks_start_in_their_order_while_workers_are_still_coming(tmp_path):
    marks = [str(tmp_path / name) for name in ("first", "second")]
    with session_in(tmp_path) as session:
        client = session.client
        long_ones = client.map(work.touch_and_wait, marks, [str(tmp_path / "enough")] * 2)
        short_ones = client.map(work.add, range(4))
        for mark in marks:  # both are begun before any of the short ones is
            work.wait_for(mark)
        assert not any(future.done() for future in short_ones)
        (tmp_path / "enough").touch()
        client.gather([*long_ones, *short_ones])
    started = sorted(events_of(session, "tasks", TaskStarted), key=lambda e: e.timestamp)
    assert [e.task for e in started] == ["touch_and_wait"] * 2 + ["add"] * 4
