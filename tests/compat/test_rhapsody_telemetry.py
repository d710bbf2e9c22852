"""RHAPSODY's telemetry under its own names: events, metrics, spans, listeners and the checkpoint file."""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders.otlp_receiver import Receiver, listening
from opentelemetry.trace import StatusCode

from flightlog.compat.rhapsody import ComputeTask, Session
from flightlog.compat.rhapsody.backends import ConcurrentExecutionBackend
from flightlog.compat.rhapsody.telemetry import TelemetryReader, TelemetrySubscriber
from flightlog.compat.rhapsody.telemetry.adapters import TelemetryAdapter
from flightlog.compat.rhapsody.telemetry.events import (
    BaseEvent,
    ResourceUpdate,
    TaskCanceled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    TaskQueued,
    TaskStarted,
    TaskSubmitted,
    define_event,
    make_event,
)
from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager
from flightlog.store.run import Run


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def told(kind: type[Any], task_id: str | None = "t1", at: float | None = None, **fields: Any) -> Any:
    when = {} if at is None else {"event_time": at}
    return make_event(kind, session_id="s", backend="b", task_id=task_id, **when, **fields)


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


def values(manager: TelemetryManager, name: str) -> list[tuple[dict[str, Any], float]]:
    data = manager.read_metrics()
    return [
        (dict(point.attributes), point.value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def lines(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.iterdir()
    assert file.name.endswith(".telemetry.jsonl")

    def refuse(word: str) -> None:
        raise ValueError(word)

    return [json.loads(line, parse_constant=refuse) for line in file.read_text().splitlines()]


def test_an_event_has_an_id_of_its_own_and_happened_when_it_says():
    first, second = told(TaskStarted, at=5.0), told(TaskStarted)
    assert (first.event_type, first.event_time, first.task_id) == ("TaskStarted", 5.0, "t1")
    assert first.event_id != second.event_id
    assert second.event_time == second.emit_time
    with pytest.raises(AttributeError):
        first.task_id = "t2"


def test_a_seeded_program_draws_the_same_numbers_with_telemetry():
    def session() -> tuple[TelemetryManager, float]:
        random.seed(7)
        life = told(TaskCreated), told(TaskStarted), told(TaskCompleted, duration_seconds=1.0)
        return after(*life), random.random()

    (one, drawn), (other, drawn_again) = session(), session()
    random.seed(7)
    assert drawn == drawn_again == random.random()
    ids = {span.context.span_id for manager in (one, other) for span in manager.read_traces()}
    assert len(ids) == 4  # sessions of two seeded programs have ids of their own


def test_a_sample_is_of_a_node_or_of_one_gpu():
    assert told(ResourceUpdate, None, cpu_percent=1.0).resource_scope == "per_node"
    assert told(ResourceUpdate, None, gpu_id=0).resource_scope == "per_gpu"


def test_a_defined_event_has_defaults_of_its_types_and_a_name_of_its_own():
    checked = define_event("lab.Checked", score=float, rows=int, label=(str, "unknown"), extra=list)
    event = told(checked, None, score=0.5)
    assert (event.event_type, event.score, event.rows, event.label, event.extra) == (
        "lab.Checked",
        0.5,
        0,
        "unknown",
        None,
    )
    assert isinstance(event, BaseEvent)
    with pytest.raises(ValueError, match="namespaced"):
        define_event("Checked")
    with pytest.raises(ValueError, match="shadow core BaseEvent fields"):
        define_event("lab.Checked", task_id=str)


def test_tasks_are_counted_and_no_label_names_one():
    manager = after(
        *(told(TaskSubmitted, f"t{number}") for number in range(50)),
        *(told(TaskStarted, f"t{number}") for number in range(50)),
        *(told(TaskCompleted, f"t{number}", duration_seconds=1.0) for number in range(50)),
    )
    labels = {"session_id": "s", "backend": "b", "executable": "", "task_type": ""}
    assert values(manager, "tasks_submitted") == [(labels, 50)]
    assert values(manager, "tasks_completed") == [(labels, 50)]
    assert values(manager, "tasks_running") == [(labels, 0)]
    assert manager.task_count() == {
        "submitted": 50,
        "completed": 50,
        "failed": 0,
        "canceled": 0,
        "running": 0,
    }


def test_what_runs_is_never_below_zero():
    manager = after(
        told(TaskCompleted, "never started", duration_seconds=1.0),
        told(TaskStarted, "twice"),
        told(TaskStarted, "twice"),
        told(TaskCompleted, "twice", duration_seconds=1.0),
        told(TaskCompleted, "twice", duration_seconds=1.0),
    )
    assert manager.task_count()["running"] == 0
    assert [value for _, value in values(manager, "tasks_running")] == [0]


def test_more_executables_than_a_metric_can_bear_are_one():
    manager = after(
        *(told(TaskSubmitted, f"t{number}", attributes={"executable": f"e{number}"}) for number in range(300))
    )
    found = values(manager, "tasks_submitted")
    assert len(found) == 101
    assert sum(value for _, value in found) == 300


def test_percentages_of_nodes_stay_percentages_of_each():
    manager = after(
        *(
            make_event(ResourceUpdate, session_id="s", backend="b", node_id=node, cpu_percent=percent)
            for node, percent in (("n1", 90.0), ("n2", 20.0), ("n1", 80.0))
        )
    )
    found = {labels["node_id"]: value for labels, value in values(manager, "node_cpu_utilization")}
    assert found == {"n1": 80.0, "n2": 20.0}
    assert manager.summary()["resources"]["b/n1"]["cpu_percent"] == 80.0


def test_a_span_has_the_times_at_which_things_happened():
    manager = after(
        told(TaskCreated, at=10.0),
        told(TaskQueued, at=11.0),
        told(TaskStarted, at=14.0),
        told(TaskCompleted, at=16.5, duration_seconds=2.5),
    )
    (span,) = TelemetryReader(manager).read_traces(session_id="s", task_id="t1")
    assert (span.start_time, span.end_time) == (10_000_000_000, 16_500_000_000)
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("TaskQueued", 11_000_000_000),
        ("TaskStarted", 14_000_000_000),
    ]
    (task,) = manager.task_spans()
    assert (task["status"], task["duration_seconds"]) == ("completed", 2.5)


def test_a_failed_task_is_an_error_and_a_canceled_one_is_not():
    manager = after(
        told(TaskFailed, "f", duration_seconds=1.0, error_type="ValueError"),
        told(TaskCanceled, "c", duration_seconds=1.0),
    )
    found = {span.attributes["task_id"]: span for span in manager.read_traces() if span.name == "task"}
    assert (found["f"].status.status_code, found["f"].status.description) == (StatusCode.ERROR, "ValueError")
    assert found["c"].status.status_code is StatusCode.UNSET
    assert {task["task_id"]: task["status"] for task in manager.task_spans()} == {
        "f": "failed",
        "c": "canceled",
    }


def test_tasks_created_in_a_scope_are_its_children_in_the_spans_and_in_the_run(runs_here):
    async def run() -> TelemetryManager:
        manager = TelemetryManager("s")
        await manager.start()
        with manager.span_scope("stage", {"number": 1}):
            manager.emit(told(TaskCreated))
            manager.annotate_current_span(told(TaskCreated, attributes={"why": "because"}))
        manager.emit(told(TaskSubmitted))
        manager.emit(told(TaskStarted))
        manager.emit(told(TaskCompleted, duration_seconds=1.0))
        await manager.stop()
        return manager

    manager = asyncio.run(run())
    spans = {span.name: span for span in manager.read_traces()}
    assert spans["task"].parent.span_id == spans["stage"].context.span_id
    assert spans["stage"].parent.span_id == spans["session"].context.span_id
    assert [event.name for event in spans["stage"].events] == ["TaskCreated"]
    recorded = Run(manager.run_path)
    (stage,) = [event for event in recorded.events("spans") if type(event).__name__ == "SpanEvent"]
    (submitted,) = [event for event in recorded.events("tasks") if type(event).__name__ == "TaskSubmitted"]
    assert (stage.name, int(stage.span_id, 16)) == ("stage", spans["stage"].context.span_id)
    assert submitted.parent_id == stage.span_id
    assert int(submitted.span_id, 16) == spans["task"].context.span_id


def test_a_scope_before_the_start_is_nothing():
    with TelemetryManager("s").span_scope("stage"):
        pass
    manager = TelemetryManager("s")
    assert (manager.read_metrics(), manager.read_traces(), manager.session_duration()) == (None, (), 0.0)
    manager.emit(told(TaskStarted))


def test_a_task_that_runs_when_telemetry_ends_has_an_end():
    async def run() -> TelemetryManager:
        manager = TelemetryManager("s")
        await manager.start()
        manager._on_task_state_change({"uid": "t1", "backend": "b"}, "RUNNING")
        await manager.stop()
        return manager

    manager = asyncio.run(run())
    assert manager.task_count() == {"submitted": 0, "completed": 0, "failed": 0, "canceled": 1, "running": 0}
    (task,) = manager.task_spans()
    assert task["status"] == "canceled"


def test_all_threads_may_emit_and_nothing_is_lost_at_the_end():
    async def run() -> TelemetryManager:
        manager = TelemetryManager("s")
        await manager.start()

        def emit(thread: int) -> None:
            for number in range(500):
                manager.emit(told(TaskSubmitted, f"{thread}.{number}"))

        threads = [threading.Thread(target=emit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await manager.stop()
        return manager

    manager = asyncio.run(run())
    assert manager.task_count()["submitted"] == 2000
    submitted = [e for e in Run(manager.run_path).events("tasks") if type(e).__name__ == "TaskSubmitted"]
    assert len({event.task_id for event in submitted}) == 2000


def test_every_listener_hears_everything_in_order_whatever_others_do():
    heard: list[str] = []
    threads: set[int] = set()
    later: list[str] = []

    def listen(event: BaseEvent) -> None:
        heard.append(event.event_type)
        threads.add(threading.get_ident())

    async def listen_later(event: BaseEvent) -> None:
        await asyncio.sleep(0)
        later.append(event.event_type)

    def refuse(event: BaseEvent) -> None:
        raise RuntimeError("no")

    async def run() -> None:
        manager = TelemetryManager("s")
        manager.subscribe(listen)
        await manager.start()
        manager.subscribe(refuse)
        TelemetrySubscriber(manager).subscribe(listen_later)
        manager.emit(told(TaskSubmitted))
        await manager.stop()

    asyncio.run(run())
    assert heard == ["SessionStarted", "TaskSubmitted", "SessionEnded"]
    assert sorted(later) == sorted(heard)
    assert threading.get_ident() not in threads


def test_the_file_holds_events_metrics_and_every_span_once(tmp_path):
    folder = tmp_path / "checkpoints"
    after(
        told(TaskCreated),
        told(TaskStarted, attributes={"score": math.nan, "path": Path("/x")}),
        told(TaskCompleted, duration_seconds=0.5),
        checkpoint_path=str(folder),
        checkpoint_interval=0.001,
    )
    found = lines(folder)
    events = [line for line in found if line["section"] == "event"]
    assert [line["event_type"] for line in events] == [
        "SessionStarted",
        "TaskCreated",
        "TaskStarted",
        "TaskCompleted",
        "SessionEnded",
    ]
    assert events[2]["attributes"] == {"score": None, "path": "/x"}
    spans = [line for line in found if line["section"] == "span"]
    assert [line["name"] for line in spans] == ["task", "session"]
    task, session = spans
    assert {line["span_id"] for line in events[1:4]} == {task["span_id"]}
    assert {line["trace_id"] for line in events} == {session["trace_id"]}
    assert (task["parent_span_id"], task["status_code"]) == (session["span_id"], "OK")
    last = [line for line in found if line["section"] == "metric"][-1]
    assert (last["tasks_completed"], last["task_duration_seconds_count"]) == (1, 1)
    assert last["task_duration_seconds_sum"] == 0.5


def test_two_sessions_of_one_name_and_second_have_files_of_their_own(tmp_path):
    folder = tmp_path / "checkpoints"
    from flightlog.compat.rhapsody.telemetry.dispatch import CheckpointFile

    for _ in range(2):
        CheckpointFile(folder, "a/b", 7.5).close()
    assert sorted(file.name for file in folder.iterdir()) == [
        "a_b.7-2.telemetry.jsonl",
        "a_b.7.telemetry.jsonl",
    ]


def test_a_folder_that_cannot_be_written_costs_the_file_and_not_the_session(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    manager = after(told(TaskSubmitted), checkpoint_path=str(tmp_path / "file"))
    assert manager.task_count()["submitted"] == 1
    assert "there will be no checkpoint file" in caplog.text


PROGRAM = """
import asyncio, sys
from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager
from flightlog.compat.rhapsody.telemetry.events import TaskSubmitted, make_event

async def main():
    manager = TelemetryManager("s", checkpoint_path=sys.argv[1])
    await manager.start()
    print(manager.run_path, flush=True)
    for number in range(1_000_000):
        manager.emit(make_event(TaskSubmitted, session_id="s", backend="b", task_id=str(number)))
        print(number, flush=True)

asyncio.run(main())
"""


def test_what_was_emitted_is_in_the_run_after_kill_9(tmp_path):
    folder = tmp_path / "checkpoints"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        path = program.stdout.readline().strip()
        said = ""
        while said.strip() != "200":
            said = program.stdout.readline()
        program.send_signal(signal.SIGKILL)
        rest = program.stdout.read().split()
    last = int(rest[-1]) if rest else 200
    recorded = [event.task_id for event in Run(Path(path)).events("tasks")]
    assert recorded[: last + 1] == [str(number) for number in range(last + 1)]
    assert {line["section"] for line in lines(folder)} <= {"event"}


def test_a_program_that_ends_without_a_stop_has_all_its_events_in_the_file(tmp_path):
    folder = tmp_path / "checkpoints"
    program = PROGRAM.replace("1_000_000", "2_000")
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, capture_output=True)
    found = lines(folder)
    assert len([line for line in found if line.get("event_type") == "TaskSubmitted"]) == 2000
    assert found[-1]["tasks_submitted"] == 2000


def test_an_adapter_that_does_not_start_is_an_error_and_nothing_runs():
    class Broken(TelemetryAdapter):
        def start(self) -> None:
            raise RuntimeError("broken")

        def stop(self) -> None:
            pass

    manager = TelemetryManager("s")
    manager.register_adapter(Broken())
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(manager.start())
    assert not manager._running


def test_spans_go_out_in_the_protocols_json(tmp_path):
    manager = after(told(TaskCreated, at=1.0), told(TaskFailed, at=2.0, duration_seconds=1.0, error_type="E"))
    manager.export_as_otlp(str(tmp_path / "out" / "spans.json"))
    document = json.loads((tmp_path / "out" / "spans.json").read_text())
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    task = next(span for span in spans if span["name"] == "task")
    assert (task["startTimeUnixNano"], task["endTimeUnixNano"]) == ("1000000000", "2000000000")
    assert task["status"] == {"code": 2, "message": "E"}
    assert task["kind"] == 1
    assert {"key": "task_id", "value": {"stringValue": "t1"}} in task["attributes"]


def test_enrichers_add_to_spans_and_one_that_raises_costs_nothing():
    async def run() -> TelemetryManager:
        manager = TelemetryManager("s")
        await manager.start()
        manager.register_span_enricher(lambda event: {"tags": ("a", "b")})
        manager.register_span_enricher(lambda event: 1 // 0)
        manager.emit(told(TaskCreated))
        manager.emit(told(TaskCompleted, duration_seconds=1.0))
        await manager.stop()
        return manager

    (task, _) = asyncio.run(run()).read_traces()
    assert task.attributes["tags"] == ("a", "b")


def test_custom_events_stand_in_the_run():
    checked = define_event("lab.Checked", score=float)
    manager = after(told(TaskCreated), told(checked, score=0.5, attributes={"by": "me"}))
    (event,) = Run(manager.run_path).events("events")
    assert (event.name, event.fields) == ("lab.Checked", {"by": "me", "score": 0.5, "task_id": "t1"})


def test_telemetry_ends_though_the_programs_threads_are_all_busy_or_gone():
    ends = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        go_on = threading.Event()
        manager = TelemetryManager("s")
        manager.subscribe(lambda event: ends.append(event.event_type))
        await manager.start()
        busy = loop.run_in_executor(None, go_on.wait)
        try:
            await asyncio.wait_for(asyncio.gather(manager.stop(), manager.stop()), 30)
        finally:
            go_on.set()
        await busy
        another = TelemetryManager("s")
        await another.start()
        await loop.shutdown_default_executor()
        await another.stop()

    asyncio.run(run())
    assert ends.count("SessionEnded") == 1


def test_prometheus_shows_the_names_that_dashboards_of_rhapsody_ask_for():
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()

    async def run() -> str:
        manager = TelemetryManager("s", metric_readers=[PrometheusMetricReader(registry=registry)])
        await manager.start()
        manager.emit(
            told(ResourceUpdate, None, node_id="n", cpu_percent=1.0, memory_percent=2.0, gpu_percent=3.0)
        )
        for kind in (TaskSubmitted, TaskStarted, TaskCompleted):
            manager.emit(told(kind))
        manager.emit(told(TaskFailed, "t2"))
        manager.emit(told(TaskCanceled, "t3"))
        manager.summary()
        page = generate_latest(registry).decode()
        await manager.stop()
        return page

    page = asyncio.run(run())
    names = {line.partition("{")[0] for line in page.splitlines() if not line.startswith("#")}
    counters = {f"tasks_{what}_total" for what in ("submitted", "started", "completed", "failed", "canceled")}
    assert counters | {
        "tasks_running",
        "node_cpu_utilization",
        "node_memory_utilization",
        "node_gpu_utilization",
        "task_duration_seconds_bucket",
        "task_duration_seconds_count",
        "task_duration_seconds_sum",
    } == {name for name in names if name.startswith(("task", "node"))}


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_subscriber_that_raises_is_said_once(caplog, kind):
    def refuse(event: BaseEvent) -> None:
        raise RuntimeError("no such table")

    async def refuse_later(event: BaseEvent) -> None:
        refuse(event)

    async def run() -> None:
        manager = TelemetryManager("s")
        await manager.start()
        manager.subscribe(refuse if kind == "function" else refuse_later)
        for number in range(5):
            manager.emit(told(TaskSubmitted, str(number)))
        await manager.stop()

    asyncio.run(run())
    (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "a subscriber raised" in said.message
    assert "no such table" in str(said.exc_info)


@pytest.mark.parametrize("recorded", ["on", "off"])
def test_a_gpu_that_cannot_be_sampled_for_want_of_an_extra_is_said_once(monkeypatch, caplog, recorded):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", recorded)

    async def run() -> None:
        async with Session([ConcurrentExecutionBackend(num_workers=1)]) as session:
            await session.start_telemetry(resource_poll_interval=0.05)
            while not any("flightlog[gpu]" in record.message for record in caplog.records):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)

    asyncio.run(asyncio.wait_for(run(), 30))
    said = [record.levelname for record in caplog.records if "flightlog[gpu]" in record.message]
    assert said == ["WARNING"]


@pytest.mark.parametrize("exported", ["by its own exporter", "by Flightlog"])
def test_every_span_arrives_once_where_an_endpoint_is_set(tmp_path, monkeypatch, exported):
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    receiver = Receiver()
    with listening(receiver) as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", "60")

        async def run() -> TelemetryManager:
            own = [BatchSpanProcessor(OTLPSpanExporter())] if exported == "by its own exporter" else None
            async with Session([ConcurrentExecutionBackend(num_workers=2)]) as session:
                telemetry = await session.start_telemetry(span_processors=own)
                tasks = [ComputeTask(function=abs, args=(number,)) for number in range(20)]
                await session.submit_tasks(tasks)
                await session.wait_tasks(tasks)
            return telemetry

        telemetry = asyncio.run(run())
    spans = {f"{span.context.span_id:016x}" for span in telemetry.read_traces()}
    assert len(spans) == 21
    assert sorted(receiver.span_ids()) == sorted(spans)
    assert receiver.points  # what only the run has is sent all the same


def test_the_first_sample_of_a_machine_says_how_busy_it_was():
    async def run() -> dict[str, Any]:
        async with Session([ConcurrentExecutionBackend(num_workers=1)]) as session:
            telemetry = await session.start_telemetry(resource_poll_interval=60)
            while not telemetry.summary()["resources"]:
                await asyncio.sleep(0.01)
            (node,) = telemetry.summary()["resources"].values()
            return node

    node = asyncio.run(asyncio.wait_for(run(), 30))
    floats = ("cpu_percent", "memory_percent", "disk_read_bytes", "disk_write_bytes", "net_sent_bytes")
    assert {name: type(node[name]) for name in floats} == dict.fromkeys(floats, float)
