"""RHAPSODY's sessions, tasks and backends under their own names, on real threads, processes and commands."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import flightlog
from flightlog.compat import rhapsody
from flightlog.compat.rhapsody.api import (
    AITask,
    BackendError,
    BaseTask,
    ComputeTask,
    ResourceError,
    Session,
    TaskExecutionError,
    TaskStateManager,
    TaskValidationError,
)
from flightlog.compat.rhapsody.backends import (
    ConcurrentExecutionBackend,
    NoopExecutionBackend,
    StateMapper,
    TasksMainStates,
)
from flightlog.core.errors import FlightlogError, UsageError
from flightlog.store.liveness import this_host
from flightlog.store.run import Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))


def square(number: int) -> int:
    with flightlog.span("inner"):
        return number * number


def fail() -> None:
    raise ValueError("as it was told")


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def in_session(
    use: Callable[[Session], Awaitable[Any]], executor: Any = None, telemetry: bool = False
) -> Any:
    """What `use` makes of a session; with telemetry, that and the manager."""

    async def run() -> Any:
        backend = await ConcurrentExecutionBackend(executor or ThreadPoolExecutor(2))
        session = Session([backend])
        manager = await session.start_telemetry(resource_poll_interval=60) if telemetry else None
        async with session:
            made = await use(session)
        return (made, manager) if telemetry else made

    return asyncio.run(run())


async def run_all(session: Session, tasks: list[Any]) -> list[Any]:
    await session.submit_tasks(tasks)
    return await session.wait_tasks(tasks, timeout=60)


# --- tasks


def test_a_task_is_a_dict_whose_entries_are_attributes():
    task = ComputeTask(executable="echo", arguments=["hi"], mine=7)
    assert (task.executable, task["arguments"], task.mine, task.state, task.backend) == (
        "echo",
        ["hi"],
        7,
        None,
        None,
    )
    task.state = "DONE"
    assert task["state"] == "DONE"
    with pytest.raises(AttributeError, match="'ComputeTask' has no attribute 'nothing'"):
        _ = task.nothing


def test_tasks_have_ids_of_their_own_and_are_equal_by_them():
    first, second = ComputeTask(executable="x"), ComputeTask(executable="x")
    assert first.uid != second.uid
    assert first.uid.startswith("task.")
    assert ComputeTask(executable="x", uid="a") == ComputeTask(function=square, uid="a")
    assert len({first, second, first}) == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ComputeTask(), "requires either 'executable' or 'function'"),
        (lambda: ComputeTask(executable="x", function=square), "cannot have both"),
        (lambda: ComputeTask(executable=7), "executable must be a string"),
        (lambda: ComputeTask(executable="x", arguments="y"), "arguments must be a list"),
        (lambda: ComputeTask(function=7), "function must be callable"),
        (lambda: ComputeTask(function=square, args=7), "args must be a tuple or list"),
        (lambda: ComputeTask(function=square, kwargs=7), "kwargs must be a dict"),
        (lambda: ComputeTask(executable="x", uid=""), "uid must be a non-empty string"),
        (lambda: AITask(prompt=""), "prompt is required"),
        (lambda: AITask(prompt="p"), "AITask requires either 'model'"),
        (lambda: AITask(prompt=["p", 7], model="m"), "prompt item 1 must be a string"),
        (lambda: AITask(prompt="p", model="m", temperature=-1), "temperature must be a non-negative number"),
        (lambda: AITask(prompt="p", model="m", max_tokens=0), "max_tokens must be a positive integer"),
        (lambda: AITask(prompt="p", model="m", top_p=2), "top_p must be between 0 and 1"),
        (lambda: AITask(prompt="p", model="m", top_k=0), "top_k must be a positive integer"),
        (lambda: AITask(prompt="p", model="m", stop_sequences="s"), "stop_sequences must be a list"),
        (lambda: BaseTask.from_dict({}), "Cannot determine task type"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(make, said):
    with pytest.raises(TaskValidationError, match=said):
        make()


def test_a_task_comes_back_from_a_dict_and_from_a_pickle():
    assert type(BaseTask.from_dict({"prompt": "p", "model": "m"})) is AITask
    task = ComputeTask(function=square, args=(3,), uid="a")
    again = pickle.loads(pickle.dumps(task))
    assert type(again) is ComputeTask
    assert dict(again) == dict(task)
    with pytest.raises(RuntimeError, match="has no bound future"):
        again.__await__()


def test_errors_say_whose_they_are():
    assert str(BackendError("dask", "gone")) == "Backend 'dask' failed: gone"
    assert str(TaskExecutionError("t", "bad", 3)) == "Task 't' failed with exit code 3: bad"
    assert str(ResourceError(None, "gpu", "none")) == "Resource error (gpu): none"


# --- sessions


def test_functions_coroutines_and_commands_run_and_their_results_stand_in_the_tasks():
    async def use(session: Session) -> list[Any]:
        tasks = [
            ComputeTask(function=square, args=(3,)),
            ComputeTask(function=double, kwargs={"number": 4}),
            ComputeTask(executable="/bin/sh", arguments=["-c", "echo out; echo err >&2"]),
        ]
        return await run_all(session, tasks)

    first, second, third = in_session(use)
    assert [task.state for task in (first, second, third)] == ["DONE"] * 3
    assert (first.return_value, first.stdout, first.exit_code) == (9, "9", 0)
    assert second.return_value == 8
    assert (third.stdout, third.stderr, third.exit_code) == ("out\n", "err\n", 0)


def test_a_future_gives_the_task_or_raises_what_it_raised():
    async def use(session: Session) -> None:
        good, bad, wrong = tasks = [
            ComputeTask(function=square, args=(3,)),
            ComputeTask(function=fail),
            ComputeTask(executable="/bin/sh", arguments=["-c", "exit 3"], uid="wrong"),
        ]
        futures = await session.submit_tasks(tasks)
        assert await futures[0] is good
        assert await good is good
        with pytest.raises(ValueError, match="as it was told"):
            await futures[1]
        with pytest.raises(TaskExecutionError, match="exit code 3") as caught:
            await futures[2]
        assert (caught.value.task_uid, caught.value.exit_code) == ("wrong", 3)
        assert [task.state for task in (bad, wrong)] == ["FAILED", "FAILED"]

    in_session(use)


def test_commands_have_a_folder_an_environment_a_shell_and_files_for_their_output(tmp_path):
    async def use(session: Session) -> list[Any]:
        options = {"cwd": str(tmp_path), "env": {"WORD": "hello"}, "shell": True}
        tasks = [
            ComputeTask(executable="echo $WORD; pwd", task_backend_specific_kwargs=options),
            ComputeTask(executable="/bin/echo", arguments=["kept"], capture_stdio=True, uid="kept"),
        ]
        return await run_all(session, tasks)

    first, second = in_session(use)
    assert first.stdout == f"hello\n{tmp_path}\n"
    assert Path(second.stdout).name == "kept.stdout"
    assert Path(second.stdout).read_text() == "kept\n"


def test_tasks_go_to_the_backend_they_name_and_none_goes_anywhere_if_one_is_not_there():
    async def run() -> None:
        first, second = NoopExecutionBackend(name="one"), NoopExecutionBackend(name="two")
        async with Session([first, second]) as session:
            named, plain = ComputeTask(executable="x", backend="two"), ComputeTask(executable="x")
            await run_all(session, [named, plain])
            assert (named.backend, plain.backend) == ("two", "one")
            with pytest.raises(ValueError, match=r"Backend 'three' requested by task .* not found"):
                await session.submit_tasks(
                    [ComputeTask(executable="x"), ComputeTask(executable="x", backend="three")]
                )
            assert first.tasks == {}

    asyncio.run(run())
    with pytest.raises(RuntimeError, match="No task-executing backend"):
        asyncio.run(Session().submit_tasks([ComputeTask(executable="x")]))


def test_waiting_ends_when_the_time_is_over_and_what_is_cancelled_is_killed(tmp_path):
    async def use(session: Session) -> None:
        mark = tmp_path / "alive"
        task = ComputeTask(executable="/bin/sh", arguments=["-c", f"sleep 30; touch {mark}"])
        await session.submit_tasks([task])
        with pytest.raises(TimeoutError, match="0/1 tasks completed"):
            await session.wait_tasks([task], timeout=0.05)
        (backend,) = session.backends.values()
        assert await backend.cancel_task(task.uid)
        assert not await backend.cancel_task(task.uid)
        await session.wait_tasks([task])
        assert task.state == "CANCELED"

    in_session(use)  # and it ends long before the command would have


def test_no_more_tasks_run_at_once_than_there_are_workers():
    running = most = 0
    lock = threading.Lock()
    met = threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        met.wait(30)
        with lock:
            running -= 1

    async def use(session: Session) -> list[int]:
        found: list[int] = []
        tasks = [ComputeTask(function=work) for _ in range(8)]
        await session.submit_tasks(tasks)
        while any(task.state != "DONE" for task in tasks):
            found.append(sum(task.state == "RUNNING" for task in tasks))
            await asyncio.sleep(0)
        return found

    states = in_session(use)
    assert most == 2
    assert max(states) <= 2


def test_a_task_may_be_submitted_once_more():
    async def use(session: Session) -> list[Any]:
        task = ComputeTask(function=square, args=(3,))
        await run_all(session, [task])
        task.args = (4,)
        await run_all(session, [task])
        return [task.state, task.return_value]

    assert in_session(use) == ["DONE", 16]


def test_a_task_that_ends_the_interpreter_fails_alone():
    def leave() -> None:
        raise SystemExit(3)

    async def use(session: Session) -> Any:
        (task,) = await run_all(session, [ComputeTask(function=leave)])
        with pytest.raises(TaskExecutionError, match="SystemExit"):
            await task
        return task

    assert in_session(use).state == "FAILED"


def test_a_state_after_the_end_changes_nothing():
    states = TaskStateManager()
    states.set_terminal_states({"DONE", "CANCELED"})
    task = {"uid": "a"}
    states.update_task(task, "DONE")
    states.update_task(task, "CANCELED")
    assert task["state"] == "DONE"


# --- telemetry of a session


def test_every_task_has_its_whole_life_told_and_durations_are_execution_alone():
    async def use(session: Session) -> list[BaseTask]:
        tasks = [ComputeTask(function=time.sleep, args=(0.02,)) for _ in range(6)]
        return await run_all(session, tasks)

    tasks, manager = in_session(use, ThreadPoolExecutor(1), telemetry=True)
    summary = manager.summary()
    assert summary["tasks"] == {"submitted": 6, "completed": 6, "failed": 0, "canceled": 0, "running": 0}
    recorded = list(Run(manager.run_path).events("tasks"))
    lives: dict[str, list[str]] = {}
    for event in sorted(recorded, key=lambda event: event.timestamp):
        lives.setdefault(event.task_id, []).append(type(event).__name__)
    assert set(map(tuple, lives.values())) == {
        ("TaskSubmitted", "TaskQueued", "TaskStarted", "TaskCompleted")
    }
    assert set(lives) == {task.uid for task in tasks}
    ended = [event for event in recorded if type(event).__name__ == "TaskCompleted"]
    one_after_the_other = sum(event.duration_s for event in ended)
    first, last = (pick(event.timestamp for event in recorded) for pick in (min, max))
    assert one_after_the_other <= flightlog_seconds(first, last)
    assert max(event.queue_s for event in ended) >= 5 * min(event.duration_s for event in ended)


def flightlog_seconds(first: str, last: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def processes(number: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(number, mp_context=get_context("spawn"))


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, processes])
def test_a_run_holds_what_tasks_used_what_was_inside_them_and_why_they_failed(executor):
    async def use(session: Session) -> list[Any]:
        tasks = [
            ComputeTask(function=square, args=(3,), uid="good"),
            ComputeTask(function=fail, uid="bad"),
            ComputeTask(executable="/bin/sh", arguments=["-c", "echo why >&2; exit 3"], uid="wrong"),
        ]
        return await run_all(session, tasks)

    tasks, manager = in_session(use, executor(1), telemetry=True)
    assert [task.state for task in tasks] == ["DONE", "FAILED", "FAILED"]
    run = Run(manager.run_path)
    assert (run.info.status, run.info.provider) == ("completed", "rhapsody")
    ended = {event.task_id: event for event in run.events("tasks") if hasattr(event, "duration_s")}
    started = [event.task_id for event in run.events("tasks") if type(event).__name__ == "TaskStarted"]
    assert sorted(started) == ["bad", "good", "wrong"]
    assert (ended["good"].task, ended["good"].args) == ("square", {"0": 3})
    assert ended["good"].cpu_s is not None
    assert ended["good"].worker is not None
    assert (ended["bad"].error_type, ended["bad"].error_message) == ("ValueError", "as it was told")
    assert ended["wrong"].exit_code == 3
    failures = {event.task_id: event for event in run.events("failures")}
    assert "as it was told" in failures["bad"].traceback
    assert failures["wrong"].output_tail == "why\n"
    (inner,) = [event for event in run.events("spans") if type(event).__name__ == "SpanEvent"]
    assert (inner.name, inner.parent_id) == ("inner", ended["good"].span_id)


def test_events_say_where_a_task_ran_and_how_a_command_ended():
    heard: list[Any] = []

    async def use(session: Session) -> None:
        session.get_telemetry().subscribe(heard.append)
        wrong = ComputeTask(executable="/bin/sh", arguments=["-c", "exit 3"], uid="wrong")
        await run_all(session, [ComputeTask(function=square, args=(3,), uid="good"), wrong])

    in_session(use, telemetry=True)
    told = {(event.event_type, event.task_id): event for event in heard}
    assert told["TaskStarted", "good"].node_id == told["TaskCompleted", "good"].node_id == this_host()
    assert told["TaskFailed", "wrong"].attributes == {
        "executable": "/bin/sh",
        "task_type": "ComputeTask",
        "error_type": "TaskExecutionError",
        "exit_code": 3,
    }


def test_what_has_not_ended_when_the_session_closes_is_canceled():
    gate = threading.Event()

    async def use(session: Session) -> list[Any]:
        tasks = [ComputeTask(function=gate.wait, args=(30,)) for _ in range(3)]
        await session.submit_tasks(tasks)
        while tasks[0].state != "RUNNING":
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, gate.set)
        return tasks

    tasks, manager = in_session(use, ThreadPoolExecutor(1), telemetry=True)
    assert [task.state for task in tasks] == ["CANCELED"] * 3
    assert manager.summary()["tasks"] == {
        "submitted": 3,
        "completed": 0,
        "failed": 0,
        "canceled": 3,
        "running": 0,
    }


def test_a_session_that_ends_with_an_error_is_a_run_that_failed():
    paths = []

    async def use(session: Session) -> None:
        paths.append(session.get_telemetry().run_path)
        raise KeyError("lost")

    with pytest.raises(KeyError):
        in_session(use, telemetry=True)
    assert Run(paths[0]).info.status == "failed"


def test_the_package_needs_neither_opentelemetry_nor_dask_until_they_are_asked_for():
    program = """
import asyncio, sys
from flightlog.compat import rhapsody
import flightlog.compat.rhapsody.telemetry, flightlog.compat.rhapsody.backends
print(sorted({"distributed", "opentelemetry", "pynvml"} & sys.modules.keys()))
sys.modules["opentelemetry"] = None
try:
    asyncio.run(rhapsody.Session().start_telemetry())
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[]",
        "MissingExtra telemetry needs OpenTelemetry's SDK: pip install 'flightlog[otel]'",
    ]


def test_the_telemetry_of_a_session_is_there_while_it_is_open():
    async def run() -> None:
        session = Session([await NoopExecutionBackend()])
        with pytest.raises(RuntimeError, match="start_telemetry"):
            session.get_telemetry()
        manager = await session.start_telemetry()
        assert session.get_telemetry() is manager
        await session.close()
        with pytest.raises(RuntimeError):
            session.get_telemetry()
        await manager.stop()

    asyncio.run(run())


def test_a_session_records_nothing_where_recording_is_switched_off(monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "off")

    async def use(session: Session) -> list[Any]:
        return await run_all(session, [ComputeTask(function=square, args=(2,))])

    (task,), manager = in_session(use, telemetry=True)
    assert (task.return_value, manager.run_path) == (4, None)
    assert manager.task_count()["completed"] == 1


# --- backends


def test_a_backend_of_so_many_workers_runs_without_being_awaited_in_a_session_entered_after_telemetry_began():
    async def run() -> dict[str, int]:
        backend = ConcurrentExecutionBackend(num_workers=3)
        assert backend.executor._max_workers == 3
        session = Session(backends=[backend])
        telemetry = await session.start_telemetry(resource_poll_interval=2.0, checkpoint_path="telemetry")
        tasks = [ComputeTask(executable="/bin/true") for _ in range(4)]
        async with session:
            await session.submit_tasks(tasks)
            await session.wait_tasks(tasks)
        assert telemetry._session_span.get_span_context().is_valid
        counted: dict[str, int] = telemetry.summary()["tasks"]
        return counted

    assert asyncio.run(run()) == {"submitted": 4, "completed": 4, "failed": 0, "canceled": 0, "running": 0}


@pytest.mark.parametrize("name", ["RadicalExecutionBackend", "OrbitExecutionBackend"])
def test_a_backend_that_is_not_here_can_be_imported_and_says_what_there_is_instead(name):
    with pytest.raises(UsageError, match=f"{name} is not part of flightlog.compat.rhapsody: "):
        getattr(rhapsody.backends, name)(name="hpc")


def test_a_program_that_dragon_did_not_start_is_told_how_to_and_has_no_nodes_to_sample(monkeypatch):
    from flightlog.compat.rhapsody.backends.execution import dragon
    from flightlog.compat.rhapsody.telemetry.adapters import DragonTelemetryAdapter

    monkeypatch.delenv("DRAGON_MY_PUID", raising=False)
    with pytest.raises(FlightlogError, match="dragon"):
        rhapsody.get_backend("dragon", batch_kwargs={"num_nodes": 1})
    with pytest.warns(DeprecationWarning, match="DragonExecutionBackend now"):
        assert dragon.DragonExecutionBackendV3 is rhapsody.backends.DragonExecutionBackend
    before = threading.active_count()
    adapter = DragonTelemetryAdapter("session", "dragon", interval=1.0)
    adapter.start()
    adapter.stop()
    assert threading.active_count() == before


def test_backends_are_found_by_name():
    found = rhapsody.discover_backends()
    assert (found["concurrent"], found["noop"], found["radical_pilot"]) == (True, True, False)
    assert isinstance(rhapsody.get_backend("noop"), NoopExecutionBackend)
    with pytest.raises(ValueError, match="Backend 'nobody' not found"):
        rhapsody.get_backend("nobody")
    with pytest.raises(UsageError, match="not part of flightlog"):
        rhapsody.get_backend("radical_pilot")


def test_states_have_a_backends_own_words():
    StateMapper.register_backend_tasks_states("Mine", "OK", "BAD", "STOPPED", "GOING")
    words = StateMapper("mine")
    assert (words.DONE, words.terminal_states) == ("OK", ("OK", "BAD", "STOPPED"))
    assert words.to_main_state("GOING") is TasksMainStates.RUNNING
    assert words.get_backend_state("FAILED") == "BAD"
    with pytest.raises(ValueError, match="Unknown backend state"):
        words.to_main_state("?")
    with pytest.raises(ValueError, match="not registered"):
        StateMapper("nobody")
    with pytest.raises(AttributeError):
        _ = words.PENDING


def test_the_interval_of_samples_is_that_of_the_run_too():
    async def run() -> Path:
        async with Session([ConcurrentExecutionBackend(num_workers=1)]) as session:
            telemetry = await session.start_telemetry(resource_poll_interval=0.25)
            assert telemetry.run_path is not None
            return telemetry.run_path

    assert Run(asyncio.run(run())).info.sample_interval_s == 0.25


ALIAS = """
import pickle, sys
import flightlog.compat.rhapsody.install
import flightlog.compat.rhapsody.install as again
import flightlog.compat.rhapsody as ours
import rhapsody, rhapsody.backends, rhapsody.telemetry.manager
from rhapsody.api.task import ComputeTask
from rhapsody.backends.execution.concurrent import ConcurrentExecutionBackend
from rhapsody.logger import enable_logging
from rhapsody.telemetry.adapters.concurrent import ConcurrentTelemetryAdapter
from rhapsody.telemetry.events import TaskStarted, make_event
from rhapsody.telemetry.interfaces.reader import TelemetryReader
from rhapsody.telemetry.interfaces.subscriber import TelemetrySubscriber

assert rhapsody is ours and ours.__spec__.name == "flightlog.compat.rhapsody"
assert rhapsody.telemetry.manager is sys.modules["flightlog.compat.rhapsody.telemetry.manager"]
assert ComputeTask is ours.ComputeTask and isinstance(ComputeTask(function=abs), rhapsody.BaseTask)
event = make_event(TaskStarted, session_id="s", backend="b")
assert pickle.loads(pickle.dumps(event)) == event
assert pickle.loads(b"crhapsody.api.task\\nComputeTask\\n.") is ComputeTask  # as the original pickles it
try:
    import rhapsody.no_such_module
except ModuleNotFoundError as error:
    print(error)
"""


def run_with_a_real_rhapsody(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "rhapsody").mkdir()
    (folder / "rhapsody" / "__init__.py").write_text("real = True")
    (folder / "rhapsody" / "no_such_module.py").write_text("")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_rhapsody_is_a_name_of_this_package_once_that_is_installed(tmp_path):
    done = run_with_a_real_rhapsody(tmp_path, ALIAS)
    assert (done.stdout, done.stderr) == ("No module named 'rhapsody.no_such_module'\n", "")


def test_an_entry_that_keeps_rhapsody_from_being_imported_is_an_error(tmp_path):
    program = """
import sys
from flightlog.core.errors import UsageError
sys.modules["rhapsody"] = None
try:
    import flightlog.compat.rhapsody.install
except UsageError as error:
    print(error)
"""
    done = run_with_a_real_rhapsody(tmp_path, program)
    assert done.stdout.startswith("rhapsody has an entry in sys.modules already: ")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_name_is_not_taken_from_a_rhapsody_that_is_in_use(tmp_path):
    program = """
import rhapsody
from flightlog.core.errors import UsageError
try:
    import flightlog.compat.rhapsody.install
except UsageError as error:
    print(error)
import rhapsody.no_such_module
assert rhapsody.real
"""
    done = run_with_a_real_rhapsody(tmp_path, program)
    assert "rhapsody has been imported already" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("exported", [False, True])
def test_what_is_read_after_tasks_were_awaited_has_them_all(exported):
    async def read_twenty_times(session: Session, telemetry: Any) -> None:
        for times in range(1, 21):
            tasks = [ComputeTask(function=abs, args=(number,)) for number in range(200)]
            await session.submit_tasks(tasks)
            await asyncio.gather(*tasks)
            assert telemetry.summary()["tasks"]["completed"] == 200 * times
            assert len(telemetry.task_spans()) == 200 * times
            assert {span["status"] for span in telemetry.task_spans()} == {"completed"}
            if times % 5 == 0:
                assert counted(telemetry.read_metrics(), "tasks_completed") == 200 * times
                assert counted(telemetry.read_metrics(), "task_duration_seconds") == 200 * times
                assert len(telemetry.read_traces()) == 200 * times

    async def run() -> None:
        async with Session([ConcurrentExecutionBackend(num_workers=2)]) as session:
            processors = [SimpleSpanProcessor(InMemorySpanExporter())] if exported else []
            telemetry = await session.start_telemetry(span_processors=processors)
            await read_twenty_times(session, telemetry)

    asyncio.run(run())


def counted(metrics: Any, name: str) -> float:
    """The sum of a metric's values, or the count of a histogram."""
    found = (
        metric for one in metrics.resource_metrics for scope in one.scope_metrics for metric in scope.metrics
    )
    points = [point for metric in found if metric.name == name for point in metric.data.data_points]
    return sum(point.count if hasattr(point, "count") else point.value for point in points)


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_functions_and_commands_share_the_workers(executor, tmp_path):
    async def use(session: Session) -> list[int]:
        found: list[int] = []
        functions = [ComputeTask(function=time.sleep, args=(0.02,)) for _ in range(20)]
        commands = [ComputeTask(executable="/bin/sleep", arguments=["0.02"]) for _ in range(10)]
        tasks = [*functions[:10], *commands[:5], *functions[10:], *commands[5:]]
        await session.submit_tasks(tasks)
        while any(task.state != "DONE" for task in tasks):
            found.append(sum(task.state == "RUNNING" for task in tasks))
            await asyncio.sleep(0.001)
        return found

    states = in_session(use, executor(2))
    assert max(states) == 2


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_tasks_that_wait_are_cancelled_and_may_be_submitted_again(executor):
    async def use(session: Session) -> list[ComputeTask]:
        tasks = [ComputeTask(function=time.sleep, args=(0.3,)) for _ in range(100)]
        (backend,) = session.backends.values()
        await session.submit_tasks(tasks)
        while not any(task.state == "RUNNING" for task in tasks):
            await asyncio.sleep(0.001)
        assert await backend.cancel_all_tasks() == 100
        await session.wait_tasks(tasks)
        assert {task.state for task in tasks} == {"CANCELED"}
        again = tasks[50:60]
        for task in again:
            task.args = (0,)
        await run_all(session, again)
        return again

    began = time.monotonic()
    assert {task.state for task in in_session(use, executor(1))} == {"DONE"}
    assert time.monotonic() - began < 15  # one after the other they take 30 s


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_spans_in_tasks_of_a_session_without_telemetry_are_in_the_run_around_it(executor):
    pool = executor(1)
    pool.submit(abs, 1).result()  # its worker is older than the run
    with flightlog.record("around") as run:
        (task,) = in_session(
            lambda session: run_all(session, [ComputeTask(function=square, args=(3,))]), pool
        )
    assert task.return_value == 9
    spans = [event.name for event in Run(run.path).events("spans") if type(event).__name__ == "SpanEvent"]
    assert spans == ["inner"]
