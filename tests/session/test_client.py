"""What the client of a session promises, on two real worker processes."""

from __future__ import annotations

import asyncio
import functools
import pickle
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures as standard
from pathlib import Path

import pytest
import work_for_sessions as work
from sessions import THREADS, events_of, session_in

from flightlog.core.errors import CommandError, TaskError, UsageError
from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    Failure,
    SpanEvent,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskRetried,
    TaskSubmitted,
)
from flightlog.session.cache.store import default_folder
from flightlog.session.client import Client
from flightlog.session.limits import SessionLimits
from flightlog.session.session import Session

MORE = """
components:
  small:
    cpus: 1
  large:
    cpus: 8
tasks:
  add:
    component: small
  flaky:
    retries: 2
  write:
    outputs: [{folder}/made.txt]
  counted:
    cache:
      ignore: [folder]
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("client")
    with session_in(folder, MORE.format(folder=folder), project="  local_cache: cache\n") as opened:
        yield opened


@pytest.fixture
def client(session: Session) -> Client:
    return session.client


def test_a_task_gives_what_its_function_returns(client):
    assert client.submit(work.add, 1, b=2).result() == 3


def test_map_gives_a_future_for_each_call_in_order_and_stops_with_the_shortest(client):
    futures = client.map(work.add, range(5), [10, 20, 30])
    assert client.gather(futures) == [10, 21, 32]
    assert {future.task for future in futures} == {"add"}


def test_map_passes_keywords_to_each_call(client):
    assert client.gather(client.map(work.add, [1, 2], b=5)) == [6, 7]


def test_map_without_arguments_is_refused(client):
    with pytest.raises(UsageError, match="at least one iterable"):
        client.map(work.add)


def test_gather_raises_the_first_error_in_order_or_returns_them_in_place(client):
    futures = [client.submit(work.add, 1), client.submit(work.fail, "one"), client.submit(work.fail, "two")]
    with pytest.raises(ValueError, match="one"):
        client.gather(futures)
    three, one, two = client.gather(futures, errors="return")
    assert (three, type(one), str(one), type(two), str(two)) == (2, ValueError, "one", ValueError, "two")
    with pytest.raises(UsageError, match="neither 'raise' nor 'return'"):
        client.gather(futures, errors="skip")


def test_gather_raises_as_soon_as_the_first_error_is_known_and_the_others_go_on(client, tmp_path):
    until = str(tmp_path / "until")
    futures = [client.submit(work.fail, "early"), client.submit(work.wait_for, until)]
    with pytest.raises(ValueError, match="early"):
        client.gather(futures)
    assert not futures[1].done()
    Path(until).touch()
    assert futures[1].result() == until


def test_gather_raises_as_soon_as_a_task_is_cancelled_and_the_others_go_on(client, tmp_path):
    until, freed = str(tmp_path / "until"), tmp_path / "freed"
    cancelled, other = client.map(work.wait_for, [str(freed), until])
    threading.Timer(0.2, cancelled.cancel).start()
    late = threading.Timer(5, Path(until).touch)  # where gather waits for the other one
    late.start()
    with pytest.raises(standard.CancelledError):
        client.gather([cancelled, other])
    late.cancel()
    assert not other.done()
    Path(until).touch()
    assert other.result() == until
    freed.touch()  # a thread goes on after its task was cancelled


def test_gather_of_nothing_is_nothing_and_one_future_may_stand_twice(client):
    future = client.submit(work.add, 1)
    assert (client.gather([]), client.gather([future, future])) == ([], [2, 2])


def test_an_exception_comes_back_as_itself_with_the_traceback_of_the_worker(client):
    error = client.submit(work.fail, "no such luck").exception()
    assert (type(error), str(error)) == (ValueError, "no such luck")
    [note] = error.__notes__
    assert note.startswith("In the worker on ")
    assert "work_for_sessions.py" in note
    assert "in fail" in note


def test_an_exception_that_does_not_unpickle_comes_back_as_a_task_error(client):
    error = client.submit(work.raise_unpicklable).exception()
    assert type(error) is TaskError
    assert (str(error), error.error_type) == (
        "work_for_sessions.Unpicklable: 1 and 2",
        "work_for_sessions.Unpicklable",
    )
    assert "in raise_unpicklable" in error.remote_traceback


def test_a_result_that_does_not_pickle_is_a_failure_that_says_so(client):
    error = client.submit(work.return_unpicklable).exception()
    assert isinstance(error, pickle.PicklingError)
    assert "the result of return_unpicklable, a function, cannot be pickled" in str(error)


def test_a_task_that_exits_ends_itself_and_not_the_session(client):
    error = client.submit(work.quit_program).exception()
    assert (type(error), error.error_type) == (TaskError, "SystemExit")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("import asyncio; raise asyncio.CancelledError", "asyncio.exceptions.CancelledError"),
        (
            "import concurrent.futures; raise concurrent.futures.CancelledError",
            "concurrent.futures._base.CancelledError",
        ),
    ],
)
def test_a_task_that_gives_itself_up_has_failed_and_who_awaits_it_is_not_cancelled(
    session, client, code, kind
):
    future = client.submit(exec, code)

    async def waits() -> BaseException | None:
        try:
            await future
        except Exception as error:
            return error
        return None

    error = asyncio.run(waits())
    assert (type(error), error.error_type, future.cancelled()) == (TaskError, kind, False)
    [end] = [e for e in events_of(session, "tasks", TaskEnded) if e.task_id == future.task_id]
    [failure] = [e for e in events_of(session, "failures", Failure) if e.task_id == future.task_id]
    assert (type(end), end.error_type, failure.error_type) == (TaskFailed, kind, kind)
    assert kind.rpartition(".")[2] in failure.traceback


def test_a_task_that_says_it_failed_is_recorded_as_failed_and_its_result_given(session, client):
    future = client.submit(work.says_it_failed)
    assert future.result() == "what there is"
    [failed] = [e for e in events_of(session, "tasks", TaskFailed) if e.task_id == future.task_id]
    assert (failed.error_type, failed.error_message) == (None, "no convergence")


def test_a_call_that_cannot_be_sent_is_refused_at_once(client):
    with pytest.raises(UsageError, match=r"<lambda> cannot be sent to a worker.*top of a module"):
        client.submit(lambda: None)
    with pytest.raises(UsageError, match="the call of add cannot be sent to a worker"):
        client.submit(work.add, threading.Lock())


def test_arguments_are_recorded_by_name_with_a_digest_that_is_the_same_for_the_same_call(session, client):
    futures = [
        client.submit(work.add, 20, 30),
        client.submit(work.add, 20, b=30),
        client.submit(functools.partial(work.add, b=30), 20),
        client.submit(work.add, 30, 20),
    ]
    client.gather(futures)
    found = {e.task_id: e for e in events_of(session, "tasks", TaskSubmitted)}
    same, keyword, bound, other = (found[future.task_id] for future in futures)
    assert [e.args for e in (same, keyword, bound)] == 3 * [{"a": 20, "b": 30}]
    assert {e.args_digest for e in (same, keyword, bound)} == {same.args_digest}
    assert other.args_digest != same.args_digest
    ends = {e.task_id: e for e in events_of(session, "tasks", TaskCompleted)}
    assert (ends[futures[0].task_id].args, ends[futures[0].task_id].args_digest) == (
        same.args,
        same.args_digest,
    )


def test_the_manifest_says_how_a_task_is_run_and_what_is_said_at_the_call_wins(session, client):
    futures = [
        client.submit(work.add, 1),
        client.submit(work.add, 1, component="large"),
        client.submit(work.add, 1, tag="large"),
        client.submit(work.add, 1, task="unknown to the manifest"),
    ]
    client.gather(futures)
    found = {e.task_id: (e.task, e.component) for e in events_of(session, "tasks", TaskCompleted)}
    assert [found[future.task_id] for future in futures] == [
        ("add", "small"),
        ("add", "large"),
        ("add", "large"),
        ("unknown to the manifest", None),
    ]


def test_options_that_make_no_sense_are_refused(client):
    with pytest.raises(UsageError, match=r"no component 'smal'.*Did you mean 'small'"):
        client.submit(work.add, 1, component="smal")
    with pytest.raises(UsageError, match="two names of one thing"):
        client.submit(work.add, 1, component="small", tag="large")
    with pytest.raises(UsageError, match="no number of further attempts"):
        client.submit(work.add, 1, retries=-1)
    with pytest.raises(UsageError, match="timeout=0"):
        client.submit(work.add, 1, timeout=0)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda c: c.submit(3), "3 is no function"),
        (lambda c: c.submit(work.add, 1, task=5), "task=5 is no text to call a task by"),
        (lambda c: c.map(work.add, [1], task=""), "task='' is no text to call a task by"),
        (lambda c: c.submit(work.add, 1, retries="2"), "retries='2' is no number of further attempts"),
        (lambda c: c.submit_command(["true"], retries=1.5), "retries=1.5 is no number of further attempts"),
        (lambda c: c.submit(work.add, 1, timeout="3s"), "timeout='3s' is no time to run in"),
        (lambda c: c.gather(c.submit(work.add, 1)), "<future of add> alone, take the result()"),
        (lambda c: c.gather([[1]]), "is no future: give a list of what submit and map return"),
        (lambda c: c.as_completed([3]), "is no future: give a list of what submit and map return"),
    ],
)
def test_what_makes_no_sense_is_said_at_once_and_no_task_comes_of_it(client, use, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        use(client)


def test_a_coroutine_function_is_awaited_in_its_worker(session, client, tmp_path):
    future = client.submit(work.later, str(tmp_path), 3)
    assert future.result() == 6
    [end] = [e for e in events_of(session, "tasks", TaskCompleted) if e.task_id == future.task_id]
    assert end.args == {"folder": str(tmp_path), "x": 3}


def test_what_a_coroutine_function_gives_is_kept_where_the_manifest_says_so(tmp_path):
    more = "tasks:\n  later:\n    cache:\n      ignore: [folder]\n"
    with session_in(tmp_path, more, where=THREADS, project="  local_cache: cache\n") as session:
        assert [session.client.submit(work.later, str(tmp_path), 3).result() for _ in range(2)] == [6, 6]
    assert [e.result for e in events_of(session, "cache", CacheLookup)] == ["miss", "hit"]
    assert len(list(tmp_path.glob("3-*"))) == 1


def test_a_parameter_with_the_name_of_an_option_is_bound_by_partial(client):
    assert client.submit(functools.partial(dict, task=3, timeout=4)).result() == {"task": 3, "timeout": 4}


def test_keys_are_the_ids_of_tasks_and_unique(client):
    assert client.submit(work.add, 1, key="first").task_id == "first"
    assert [one.task_id for one in client.map(work.add, [1, 2], key="many")] == ["many[0]", "many[1]"]
    with pytest.raises(UsageError, match="keys are unique"):
        client.submit(work.add, 1, key="first")


@pytest.mark.parametrize("before", [2, SessionLimits.max_tasks_submitted_together + 1])
def test_the_key_of_a_map_that_could_not_be_sent_can_be_given_again(session, client, before):
    key = f"again after {before}"
    taken = client.submit(work.add, 1, key=f"{key}[1]") if before == 2 else None
    with pytest.raises(UsageError, match="keys are unique" if taken else "cannot be sent to a worker"):
        client.map(work.add, [*range(before), threading.Lock()], key=key)
    free = 1 if taken else before
    assert client.gather(client.submit(work.add, n, key=f"{key}[{n}]") for n in range(free)) == [
        n + 1 for n in range(free)
    ]
    submitted = [e.task_id for e in events_of(session, "tasks", TaskSubmitted) if e.task_id.startswith(key)]
    assert len(submitted) == len(set(submitted)) == (2 if taken else before)


def test_a_future_as_an_argument_stands_for_its_result_at_any_depth(session, client):
    one, two = client.submit(work.add, 1), client.submit(work.add, 2)
    three = client.submit(work.add, one, two)
    four = client.submit(work.total, [one, three, 4])
    nested = client.submit(dict, deep={"pair": (three, [four])})
    assert client.gather([three, four, nested]) == [5, 11, {"deep": {"pair": (5, [11])}}]
    assert client.submit(work.add, four, four).result() == 22  # done by now
    found = {e.task_id: e for e in events_of(session, "tasks", TaskSubmitted)}
    assert found[three.task_id].depends_on == [one.task_id, two.task_id]
    assert found[three.task_id].args == {"a": "<future of add>", "b": "<future of add>"}


def test_a_chain_of_dependencies_is_worked_off(client):
    future = client.submit(work.add, 0)
    for _ in range(30):
        future = client.submit(work.add, future)
    assert future.result() == 31


def test_a_failed_dependency_fails_the_task_and_those_behind_it(session, client):
    first = client.submit(work.fail, "at the root", key="root")
    second = client.submit(work.add, first, key="middle")
    third = client.submit(work.add, second)
    error = third.exception()
    assert type(error) is TaskError
    assert "add (middle), which add depends on, failed" in str(error)
    assert "fail (root), which add depends on, failed: ValueError: at the root" in str(second.exception())
    assert second.exception().__cause__ is first.exception()
    ends = {e.task_id: e.error_type for e in events_of(session, "tasks", TaskFailed)}
    assert [ends[one.task_id] for one in (first, second, third)] == [
        "ValueError",
        "DependencyFailed",
        "DependencyFailed",
    ]


def test_a_future_is_no_argument_for_anything_but_a_task(client):
    with pytest.raises(TypeError, match="as an argument of another task"):
        pickle.dumps(client.submit(work.add, 1))


def test_a_task_that_fails_is_tried_again_as_often_as_the_manifest_says(session, client, tmp_path):
    future = client.submit(work.flaky, str(tmp_path), 3)
    assert future.result() == 3
    retries = [e for e in events_of(session, "tasks", TaskRetried) if e.task_id == future.task_id]
    assert [(e.attempt, e.reason) for e in retries] == [
        (1, "OSError: attempt 1 met a file system that is not there"),
        (2, "OSError: attempt 2 met a file system that is not there"),
    ]
    assert 0 < retries[0].delay_s < retries[1].delay_s
    [end] = [e for e in events_of(session, "tasks", TaskCompleted) if e.task_id == future.task_id]
    assert end.attempt == 3
    assert len({end.span_id, *(e.span_id for e in retries)}) == 3
    failures = [e for e in events_of(session, "failures", Failure) if e.task_id == future.task_id]
    assert [(e.attempt, e.error_type) for e in failures] == [(1, "OSError"), (2, "OSError")]
    assert all("in flaky" in e.traceback for e in failures)


def test_when_no_attempt_is_left_the_last_error_counts(client, tmp_path):
    error = client.submit(work.flaky, str(tmp_path), 3, retries=1).exception()
    assert "attempt 2" in str(error)


def test_spans_metrics_and_artifacts_of_a_task_lie_inside_it(session, client):
    future = client.submit(work.measured, 0.5)
    assert future.result() == 0.5
    [end] = [e for e in events_of(session, "tasks", TaskCompleted) if e.task_id == future.task_id]
    assert end.metrics == {"x": 0.5}
    spans = [e for e in events_of(session, "spans", SpanEvent) if e.parent_id == end.span_id]
    assert [(e.name, e.metrics) for e in spans] == [("inner", {"twice": 1.0})]


def test_the_outputs_that_the_manifest_names_are_registered(session, client):
    made = session.manifest.path.with_name("made.txt")
    client.submit(work.write, str(made), "hello").result()
    [artifact] = events_of(session, "artifacts", ArtifactRecorded)
    assert (artifact.name, artifact.kind, artifact.size_bytes, artifact.uri) == (
        "made.txt",
        "output",
        5,
        str(made),
    )


def test_an_attempt_that_is_retried_has_what_it_took(session, client, tmp_path):
    future = client.submit(work.flaky, str(tmp_path), 2, retries=1)
    assert future.result() == 2
    attempts = """SELECT attempt, state, worker IS NOT NULL, duration_s > 0, queue_s > 0, cpu_s >= 0,
        rss_scope FROM attempts WHERE task_id = ? ORDER BY attempt"""
    of_both = True, True, True, True, "process"
    assert session.telemetry.sql(attempts, [future.task_id]).rows() == [
        (1, "failed", *of_both),
        (2, "completed", *of_both),
    ]


def test_a_command_gives_its_exit_code_its_output_and_what_it_used(session, client, tmp_path):
    code = "import os; print(os.environ['WORD'], os.getcwd())"
    future = client.submit_command([sys.executable, "-c", code], cwd=tmp_path, env={"WORD": "hush"})
    output = future.result()
    assert (output.exit_code, output.stdout, output.stderr) == (0, f"hush {tmp_path}\n", "")
    assert output.cpu_s > 0
    [end] = [e for e in events_of(session, "tasks", TaskCompleted) if e.task_id == future.task_id]
    assert end.task == Path(sys.executable).name
    assert end.args == {"command": [sys.executable, "-c", code], "cwd": str(tmp_path)}
    assert (end.exit_code, end.metrics["exit_code"]) == (0, 0)
    assert end.metrics["command_cpu_s"] == output.cpu_s


def test_a_command_that_fails_is_a_failure_of_a_command(session, client):
    future = client.submit_command(["sh", "-c", "echo out; echo wrong >&2; exit 7"], task="checking")
    error = future.exception()
    assert (type(error), str(error), error.exit_code, error.signal, error.stdout, error.stderr) == (
        CommandError,
        "sh ended with exit code 7",
        7,
        None,
        "out\n",
        "wrong\n",
    )
    [failure] = [e for e in events_of(session, "failures", Failure) if e.task_id == future.task_id]
    assert (failure.scope, failure.error_type, failure.exit_code, failure.output_tail, failure.task) == (
        "command",
        "ExitCode",
        7,
        "wrong\n",
        "checking",
    )
    [end] = [e for e in events_of(session, "tasks", TaskFailed) if e.task_id == future.task_id]
    assert (end.error_type, end.exit_code) == ("ExitCode", 7)


def test_a_command_ended_by_a_signal_says_which(client):
    error = client.submit_command(["sh", "-c", "kill -TERM $$"]).exception()
    assert (str(error), error.exit_code, error.signal) == ("sh was ended by SIGTERM", None, "SIGTERM")


def test_a_command_that_is_not_there_is_a_failure(client):
    error = client.submit_command(["no-such-program-anywhere"]).exception()
    assert (type(error), error.exit_code) == (CommandError, 127)
    assert "could not be started" in str(error)


def test_a_command_is_given_by_its_words(client):
    with pytest.raises(UsageError, match="as a list of words"):
        client.submit_command("ls -l")
    with pytest.raises(UsageError, match="at least one word"):
        client.submit_command([])


def test_secrets_on_a_command_line_are_not_recorded(session, client):
    future = client.submit_command(["true", "--password=hunter2"])
    future.result()
    [event] = [e for e in events_of(session, "tasks", TaskSubmitted) if e.task_id == future.task_id]
    assert "hunter2" not in str(event.args)


def test_futures_come_as_they_are_done(client, tmp_path):
    late = client.submit(work.wait_for, str(tmp_path / "go"))
    early = client.submit(work.add, 1)
    order = client.as_completed([late, early])
    assert next(order) is early
    (tmp_path / "go").touch()
    assert list(order) == [late]


def test_the_tools_of_the_standard_library_take_the_futures(client):
    futures = client.map(work.add, range(4))
    done, waiting = standard.wait(futures)
    assert (done, waiting) == (set(futures), set())
    called = threading.Event()
    futures[0].add_done_callback(lambda future: called.set())
    assert called.is_set()


def test_result_gives_up_after_its_timeout_and_the_task_goes_on(client, tmp_path):
    future = client.submit(work.wait_for, str(tmp_path / "go"))
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    (tmp_path / "go").touch()
    assert future.result() == str(tmp_path / "go")


def test_futures_are_awaited_in_any_loop(client):
    async def both() -> list[int]:
        return await asyncio.gather(client.submit(work.add, 1), client.submit(work.add, 2))

    async def failing() -> None:
        await client.submit(work.fail, "awaited")

    assert asyncio.run(both()) == [2, 3]
    assert asyncio.run(both()) == [2, 3]
    with pytest.raises(ValueError, match="awaited"):
        asyncio.run(failing())


def test_a_task_that_waits_is_cancelled_at_once(client, tmp_path):
    blocker = client.submit(work.wait_for, str(tmp_path / "go"))
    waiting = client.submit(work.add, blocker)
    assert client.cancel(waiting)
    assert (waiting.cancelled(), waiting.done(), waiting.cancel()) == (True, True, True)
    with pytest.raises(standard.CancelledError):
        waiting.result()
    behind = client.submit(work.add, waiting)
    assert standard.wait([behind]).done == {behind}
    assert behind.cancelled()
    (tmp_path / "go").touch()
    assert blocker.result() == str(tmp_path / "go")
    assert not client.cancel(blocker)


def test_a_task_that_runs_is_cancelled_and_its_worker_replaced(session, client, tmp_path):
    mark, never = tmp_path / "runs", tmp_path / "never"
    future = client.submit(work.touch_and_wait, str(mark), str(never))
    work.wait_for(str(mark))
    assert client.cancel(future)
    assert future.cancelled()
    assert client.gather(client.map(work.add, range(4))) == [1, 2, 3, 4]


def test_a_task_that_takes_too_long_is_ended_and_says_so(session, client, tmp_path):
    future = client.submit(work.wait_for, str(tmp_path / "never"), timeout=0.2)
    error = future.exception()
    assert isinstance(error, TaskError)
    assert isinstance(error, TimeoutError)
    assert error.error_type == "TimeoutError"
    assert str(error).startswith("TimeoutError: wait_for ran over its timeout of 0.2 s")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.error_type) == (type(error), str(error), "TimeoutError")
    [end] = [e for e in events_of(session, "tasks", TaskFailed) if e.task_id == future.task_id]
    assert (end.error_type, end.attempt) == ("TimeoutError", 1)
    assert end.duration_s >= 0.2


def test_a_worker_that_is_killed_fails_its_task_and_the_next_goes_on(session, client):
    future = client.submit(work.leave, 9)
    error = future.exception()
    assert (type(error), error.error_type) == (TaskError, "WorkerLost")
    assert "exit code 9" in str(error)
    assert client.submit(work.add, 1).result() == 2


def test_a_task_whose_worker_is_killed_is_tried_again(client, tmp_path):
    assert client.submit(work.kill_own_process, str(tmp_path), retries=1).result() == "alive"


def test_the_task_of_a_span_is_inside_it(session, client):
    import flightlog

    with flightlog.span("outer") as outer:
        future = client.submit(work.add, 1)
        future.result()
    [event] = [e for e in events_of(session, "tasks", TaskCompleted) if e.task_id == future.task_id]
    assert (event.parent_id, event.trace_id) == (outer.span_id, outer.trace_id)


def test_a_future_says_whether_it_runs(client, tmp_path):
    mark = tmp_path / "runs"
    future = client.submit(work.touch_and_wait, str(mark), str(tmp_path / "go"))
    work.wait_for(str(mark))
    while not future.running():
        assert not future.done()
    (tmp_path / "go").touch()
    future.result()
    assert not future.running()


def test_a_task_whose_results_are_kept_is_executed_once(session, client, tmp_path):
    for task in (work.counted, work.kept):  # by the manifest, and by the function itself
        folder = tmp_path / task.__name__
        folder.mkdir()
        assert [client.submit(task, str(folder), x).result() for x in (1, 2, 1, 1)] == [2, 4, 2, 2]
        assert len(list(folder.iterdir())) == 2
        found = [e for e in events_of(session, "cache", CacheLookup) if e.task == task.__name__]
        assert [e.result for e in sorted(found, key=lambda e: e.timestamp)] == ["miss", "miss", "hit", "hit"]
        spans = {e.span_id for e in events_of(session, "tasks", TaskCompleted) if e.task == task.__name__}
        assert {e.span_id for e in found} == spans
    assert (session.manifest.path.parent / "cache").is_dir()


def test_false_in_the_manifest_switches_the_functions_own_cache_off_and_says_so(tmp_path):
    more = "tasks:\n  kept: {cache: false}\n  counted: {cache: false}\n"
    with session_in(tmp_path, more, where=THREADS, project="  local_cache: cache\n") as session:
        assert session.client.gather(
            [session.client.submit(work.kept, str(tmp_path), 4) for _ in range(2)]
        ) == [8, 8]
        assert session.client.submit(functools.partial(work.kept, str(tmp_path)), 4).result() == 8
        assert session.client.submit(work.counted, str(tmp_path), 5).result() == 10
    assert len(list(tmp_path.glob("4-*"))) == 3
    lookups = [(e.task, e.result, e.reason, e.key) for e in events_of(session, "cache", CacheLookup)]
    assert lookups == [("kept", "bypass", "the manifest says `cache: false` of kept", None)] * 3


def test_a_function_that_the_manifest_is_silent_about_keeps_its_own_cache(tmp_path):
    with session_in(tmp_path, where=THREADS, project="  local_cache: cache\n") as session:
        for _ in range(2):
            assert session.client.submit(work.kept, str(tmp_path), 4).result() == 8
    assert [e.result for e in events_of(session, "cache", CacheLookup)] == ["miss", "hit"]


def test_the_cache_folder_of_a_session_on_threads_is_its_own_business(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with session_in(tmp_path, where=THREADS, project="  local_cache: cache\n") as session:
        session.client.submit(work.kept, str(tmp_path), 4).result()
    assert default_folder() == Path(".flightlog/cache")
    assert (tmp_path / "cache").is_dir()


def test_the_environments_cache_folder_comes_before_the_manifests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTLOG_CACHE_DIR", "mine")
    with session_in(tmp_path, project="  local_cache: cache\n") as session:
        session.client.submit(work.kept, str(tmp_path), 4).result()
        assert [e.result for e in events_of(session, "cache", CacheLookup)] == ["miss"]
    assert ((tmp_path / "mine").is_dir(), (tmp_path / "cache").exists()) == (True, False)


def test_who_gives_up_awaiting_a_task_cancels_it(client, tmp_path):
    future = client.submit(work.wait_for, str(tmp_path / "never"))

    async def impatient() -> None:
        await asyncio.wait_for(future, 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    assert future.cancelled()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_command_over_its_time_is_ended_with_its_worker(client, tmp_path):
    command = ["sh", "-c", "echo $$ > pid.part; mv pid.part pid; exec sleep 600"]
    mark = tmp_path / "pid"
    for timeout in (0.5, 5.0, 30.0):  # a busy machine may take longer than the first to start a shell
        error = client.submit_command(command, cwd=tmp_path, timeout=timeout).exception()
        assert error.error_type == "TimeoutError"
        if mark.exists():
            break
    while alive(int(mark.read_text())):
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
