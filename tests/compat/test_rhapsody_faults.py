"""RHAPSODY's telemetry under what goes wrong: odd values, forks, others' spans and processors, sessions in
sessions."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from flightlog.compat.rhapsody.api import ComputeTask, Session
from flightlog.compat.rhapsody.backends import ConcurrentExecutionBackend
from flightlog.compat.rhapsody.telemetry.adapters import TelemetryAdapter
from flightlog.compat.rhapsody.telemetry.events import (
    BaseEvent,
    ResourceUpdate,
    TaskCompleted,
    TaskStarted,
    TaskSubmitted,
    define_event,
    make_event,
)
from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager
from flightlog.events import ResourceSample
from flightlog.store.run import Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))


def told(kind: type[Any], task_id: str | None = "t1", **fields: Any) -> Any:
    return make_event(kind, session_id="s", backend="b", task_id=task_id, **fields)


def after(*events: BaseEvent, **options: Any) -> TelemetryManager:
    """A manager that was told these events and has ended."""

    async def run() -> TelemetryManager:
        manager = TelemetryManager("s", **options)
        await manager.start()
        for event in events:
            manager.emit(event)
        await manager.stop()
        return manager

    return asyncio.run(run())


def run_of(manager: TelemetryManager) -> Run:
    assert manager.run_path is not None
    return Run(manager.run_path)


def lines(folder: Path, section: str) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise ValueError(word)

    (file,) = folder.iterdir()
    found = [json.loads(line, parse_constant=refuse) for line in file.read_text("utf-8").splitlines()]
    return [line for line in found if line["section"] == section]


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("not a word")

    __repr__ = __str__


ODD = [{"half": "\udc80"}, {(1, 2): 3}, {"no number": math.nan}, {"mute": Mute()}, {"bytes": b"\xff"}]


def test_values_that_json_cannot_hold_cost_no_event_in_the_file_or_the_run(tmp_path):
    checked = define_event("lab.Checked", score=float)
    odd = [told(checked, f"t{number}", attributes=values) for number, values in enumerate(ODD)]
    folder = tmp_path / "checkpoints"
    manager = after(
        *odd, told(TaskSubmitted, "ha\udc80lf"), told(TaskSubmitted, "last"), checkpoint_path=str(folder)
    )
    assert [line["task_id"] for line in lines(folder, "event")[1:-1]] == [
        "t0",
        "t1",
        "t2",
        "t3",
        "t4",
        "ha\\udc80lf",
        "last",
    ]
    written = [line["attributes"] for line in lines(folder, "event")[1:4]]
    assert written == [{"half": "\\udc80"}, {"(1, 2)": 3}, {"no number": None}]
    assert [event.fields["task_id"] for event in run_of(manager).events("events")] == [
        "t0",
        "t1",
        "t2",
        "t3",
        "t4",
    ]
    assert manager.task_count()["submitted"] == 2


@pytest.mark.parametrize("moment", [math.nan, math.inf, -1.0, 1e300])
def test_a_time_that_is_none_is_the_time_of_telling(moment):
    event = told(TaskStarted, event_time=moment)
    manager = after(event, told(TaskCompleted, duration_seconds=1.0))
    (span,) = [span for span in manager.read_traces() if span.name == "task"]
    assert span.start_time == int(event.emit_time * 1e9)
    assert [type(recorded).__name__ for recorded in run_of(manager).events("tasks")] == [
        "TaskStarted",
        "TaskCompleted",
    ]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_duration_that_is_none_is_unknown_and_spoils_no_other(seconds):
    manager = after(
        told(TaskCompleted, "odd", duration_seconds=seconds),
        told(TaskCompleted, "well", duration_seconds=2.0),
    )
    assert manager.task_count()["completed"] == 2
    assert manager.summary()["duration"] == {
        "total_seconds": 2.0,
        "mean_seconds": 2.0,
        "min_seconds": 2.0,
        "max_seconds": 2.0,
    }
    assert [event.duration_s for event in run_of(manager).events("tasks")] == [None, 2.0]


def test_numbers_that_are_none_have_their_names_in_the_protocols_json():
    async def run() -> TelemetryManager:
        manager = TelemetryManager("s")
        await manager.start()
        with manager.span_scope("odd", {"a": math.nan, "b": -math.inf, "c": 1.5}):
            pass
        await manager.stop()
        return manager

    text = asyncio.run(run()).export_as_otlp()
    spans = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    (odd,) = [span for span in spans if span["name"] == "odd"]
    assert [attribute["value"] for attribute in odd["attributes"]] == [
        {"doubleValue": "NaN"},
        {"doubleValue": "-Infinity"},
        {"doubleValue": 1.5},
    ]


FORKING = """
import asyncio, atexit, os, sys
from flightlog.compat.rhapsody.telemetry.events import TaskSubmitted, make_event
from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager

def tell(manager, task_id):
    manager.emit(make_event(TaskSubmitted, session_id="s", backend="b", task_id=task_id))

async def main():
    manager = TelemetryManager("s", checkpoint_path=sys.argv[1])
    await manager.start()
    tell(manager, "before")
    child = os.fork()
    if not child:
        tell(manager, "child")
        try:
            atexit._run_exitfuncs() if sys.argv[2] == "exit" else manager.stop().send(None)
        except StopIteration:
            pass  # it did not wait for anything
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    tell(manager, "after")
    await manager.stop()
    print(manager.task_count()["submitted"])
    print(manager.run_path)

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["stop", "exit"])
def test_a_process_that_is_forked_off_tells_the_run_and_does_not_wait_for_threads_it_has_not(tmp_path, end):
    folder = tmp_path / "checkpoints"
    made = subprocess.run(
        [sys.executable, "-c", FORKING, str(folder), end],
        capture_output=True,
        text=True,
        check=True,
        timeout=25,
    )
    code, submitted, path = made.stdout.split()
    assert (code, submitted) == ("7", "2")
    assert [line["task_id"] for line in lines(folder, "event") if line["task_id"]] == ["before", "after"]
    assert sorted(event.task_id for event in Run(Path(path)).events("tasks")) == ["after", "before", "child"]


def test_tasks_of_a_session_inside_another_belong_to_their_own():
    async def run() -> list[TelemetryManager]:
        managers = []
        async with Session(uid="outer") as outer, Session(uid="inner") as inner:
            for session in (outer, inner):
                session.add_backend(await ConcurrentExecutionBackend(ThreadPoolExecutor(1)))
                managers.append(await session.start_telemetry())
            for session in (outer, inner):
                task = ComputeTask(function=abs, args=(-1,))
                await session.submit_tasks([task])
                await session.wait_tasks([task])
        return managers

    for manager in asyncio.run(run()):
        (session,) = [span for span in manager.read_traces() if span.name == "session"]
        (task,) = [span for span in manager.read_traces() if span.name == "task"]
        assert task.parent.span_id == session.context.span_id
        recorded = {event.parent_id for event in run_of(manager).events("tasks")}
        assert recorded == {f"{session.context.span_id:016x}"}


def test_spans_of_other_tracers_stand_inside_the_session_with_the_tasks_inside_them():
    tracer = TracerProvider().get_tracer("mine")

    async def run() -> tuple[TelemetryManager, Any, Any]:
        manager = TelemetryManager("s")
        await manager.start()
        with tracer.start_as_current_span("mine") as mine:
            manager.emit(told(TaskStarted))
        await manager.stop()
        return manager, mine, trace.get_current_span()

    manager, mine, left = asyncio.run(run())
    (session,) = [span for span in manager.read_traces() if span.name == "session"]
    (task,) = [span for span in manager.read_traces() if span.name == "task"]
    assert (mine.parent.span_id, task.parent.span_id) == (session.context.span_id, mine.context.span_id)
    assert {span.context.trace_id for span in (session, task, mine)} == {session.context.trace_id}
    assert not left.get_span_context().is_valid


class Raising(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise RuntimeError("of the processor's own")

    def shutdown(self) -> None:
        """Nothing to end."""


def test_a_processor_that_raises_costs_neither_file_nor_metrics_and_is_told_of_once(tmp_path, caplog):
    folder = tmp_path / "checkpoints"
    ends = [told(TaskCompleted, f"t{number}", duration_seconds=1.0) for number in range(5)]
    manager = after(*ends, checkpoint_path=str(folder), span_processors=[Raising()])
    assert len(lines(folder, "span")) == 6
    assert lines(folder, "metric")[-1]["tasks_completed"] == 5
    assert manager.task_count()["completed"] == 5
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == [
        "an event of type TaskCompleted was not taken in",
        "a processor or reader of OpenTelemetry's failed",
    ]


def test_where_opentelemetry_is_switched_off_the_run_is_whole_all_the_same(monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    manager = after(told(TaskStarted), told(TaskCompleted, duration_seconds=1.0))
    run = run_of(manager)
    assert {(event.trace_id, event.parent_id) for event in run.events("tasks")} == {
        (run.info.trace_id, run.info.span_id)
    }
    assert manager.task_count()["completed"] == 1


def test_samples_of_other_machines_stand_in_the_run_which_samples_its_own():
    host = os.uname().nodename
    manager = after(
        told(ResourceUpdate, None, node_id=host, cpu_percent=1.0),
        told(ResourceUpdate, None, node_id="far", cpu_percent=2.0),
        told(ResourceUpdate, None, node_id="far", gpu_percent=3.0, gpu_id=1),
        told(ResourceUpdate, None, node_id=host, cpu_percent=4.0, attributes={"worker": "tcp://a:1"}),
    )
    found = [
        (event.scope, event.host, event.worker, event.cpu_percent, event.gpu_index, event.gpu_percent)
        for event in run_of(manager).events("resources")
        if isinstance(event, ResourceSample) and (event.host == "far" or event.worker == "tcp://a:1")
    ]
    assert found == [
        ("node", "far", None, 2.0, None, None),
        ("gpu", "far", None, None, 1, 3.0),
        ("worker", host, "tcp://a:1", 4.0, None, None),
    ]


@dataclass(frozen=True)
class Checked(BaseEvent):
    score: float = 0.0
    event_type: str = field(default="Checked", init=False)


def test_events_of_a_class_of_ones_own_stand_in_the_run():
    manager = after(told(Checked, None, score=0.5, attributes={"why": "so"}))
    assert [(event.name, event.fields) for event in run_of(manager).events("events")] == [
        ("Checked", {"why": "so", "score": 0.5})
    ]


def test_telemetry_that_does_not_start_leaves_the_session_without_and_a_run_that_failed(tmp_path):
    class Broken(TelemetryAdapter):
        def start(self) -> None:
            raise RuntimeError("broken")

        def stop(self) -> None:
            """Nothing runs."""

    async def run() -> None:
        async with Session() as session:
            session.add_backend(await ConcurrentExecutionBackend(ThreadPoolExecutor(1)))
            adapter = Broken()
            attach = TelemetryManager.attach_backend

            def attach_broken(manager: TelemetryManager, *args: Any, **options: Any) -> None:
                attach(manager, *args, **options)
                manager.register_adapter(adapter)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TelemetryManager, "attach_backend", attach_broken)
                with pytest.raises(RuntimeError, match="broken"):
                    await session.start_telemetry()
            with pytest.raises(RuntimeError, match="Telemetry not started"):
                session.get_telemetry()
            task = ComputeTask(function=abs, args=(-1,))
            await session.submit_tasks([task])
            assert (await task).return_value == 1

    asyncio.run(run())
    (path,) = (tmp_path / "runs").glob("run-*")
    assert Run(path).info.status == "failed"
