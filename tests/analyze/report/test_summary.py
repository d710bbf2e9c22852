from __future__ import annotations

import random
from pathlib import Path

import jsonschema
import msgspec
import pytest
from builders.examples import FEW
from builders.runs import START, at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.analyze.report.report import report_bytes, report_on, report_schema
from flightlog.analyze.report.summary import Summary, summarize
from flightlog.events import CacheLookup, Event, Metric, ResourceSample, SpanEvent, SpanOpened, WorkerReady
from flightlog.store.completing import open_run

OBJECTS = [
    "run",
    "tasks",
    "workers",
    "resources",
    "cache",
    "spans",
    "failures",
    "artifacts",
    "cost",
    "completeness",
    "overhead",
]


def some_events() -> list[Event]:
    return [
        submitted("a", seed=1),
        started("a", 1),
        completed("a", 3.3, 2.1, metrics={"loss": 0.1}),
        submitted("b", seed=2),
        started("b", 1, "w2"),
        failed("b", 2.7, 1.7, "w2"),
        submitted("c"),
        started("c", 4),
        WorkerReady(timestamp=at(0.5), worker="w1", host="n1", pid=1),
        SpanEvent(timestamp=at(1), name="outer", span_id="o", duration_s=2.3),
        SpanEvent(timestamp=at(1.1), name="inner", span_id="i", parent_id="o", duration_s=0.7),
        SpanOpened(
            timestamp=at(4), name="hang", tags={}, trace_id="", span_id="h", parent_id="o", elapsed_s=1.0
        ),
        CacheLookup(timestamp=at(1), task="sim", result="hit", key="k", saved_s=0.3),
        CacheLookup(timestamp=at(1), task="sim", result="hit", key="k", saved_s=0.1),
        ResourceSample(timestamp=at(1), scope="node", host="n1", cpu_percent=33.3, interval_s=0.1),
        ResourceSample(timestamp=at(2), scope="node", host="n1", cpu_percent=11.1, interval_s=0.7),
        Metric(timestamp=at(1), name="loss", value=0.5),
        Metric(timestamp=at(2), name="loss", value=0.2),
    ]


def summary_of(path: Path) -> Summary:
    return summarize(open_run(path))


@given(chance=st.randoms(use_true_random=False))
@settings(FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_lines_in_any_order_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    path = make_run(tmp_path_factory.mktemp("runs"), some_events())
    before = report_bytes(summary_of(path))
    for file in path.glob("*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        chance.shuffle(lines)
        file.write_bytes(b"".join(lines))
    assert report_bytes(summary_of(path)) == before


def test_the_json_has_exactly_its_top_level_objects(tmp_path: Path) -> None:
    decoded = msgspec.json.decode(report_bytes(summary_of(make_run(tmp_path, some_events()))))
    assert list(decoded) == OBJECTS


@pytest.mark.parametrize("events", [[], some_events()], ids=["empty", "full"])
def test_the_json_is_valid_by_its_schema(tmp_path: Path, events: list[Event]) -> None:
    report = report_on(open_run(make_run(tmp_path, events)))
    jsonschema.Draft202012Validator.check_schema(report_schema())
    jsonschema.validate(msgspec.json.decode(report_bytes(report)), report_schema())


def test_the_summary_can_be_read_back(tmp_path: Path) -> None:
    summary = summary_of(make_run(tmp_path, some_events()))
    assert msgspec.json.decode(report_bytes(summary), type=Summary) == summary


def test_the_final_facts_come_from_run_json(tmp_path: Path) -> None:
    path = make_run(tmp_path, target="local", provider="local", python="3.12.1", tags={"a": 1}, exit_code=0)
    run = summary_of(path).run
    assert (run.run_id, run.project, run.target, run.provider) == (path.name, "demo", "local", "local")
    assert (run.status, run.start_time, run.end_time, run.last_seen) == ("completed", START, at(10), None)
    assert (run.duration_s, run.python, run.tags, run.exit_code) == (10.0, "3.12.1", {"a": 1}, 0)


def test_a_killed_run_ends_with_its_last_sign_of_life(tmp_path: Path) -> None:
    events = [submitted("a"), started("a", 4), submitted("b", 9)]
    path = make_run(tmp_path, events, status="crashed", end_time=None, duration_s=None, heartbeat=at(12))
    summary = summary_of(path)
    assert (summary.run.end_time, summary.run.last_seen, summary.run.duration_s) == (None, at(12), 12.0)
    assert summary.tasks.in_flight[0].elapsed_s == 8.0
    assert summary.workers.by_worker["w1"].busy_s == 8.0


def test_series_of_their_own_stand_with_the_run(tmp_path: Path) -> None:
    metrics = summary_of(make_run(tmp_path, some_events())).run.metrics
    assert (metrics["loss"].count, metrics["loss"].last, metrics["loss"].min) == (2, 0.2, 0.2)


def test_lines_that_stand_twice_count_once(tmp_path: Path) -> None:
    path = make_run(tmp_path, some_events())
    tasks = path / "tasks.jsonl"
    tasks.write_bytes(tasks.read_bytes() * 2)
    summary = summary_of(path)
    assert (summary.tasks.submitted, summary.tasks.completed, summary.completeness.doubled) == (3, 1, 8)


def test_a_task_named_like_anything_is_counted_under_its_name(tmp_path: Path) -> None:
    names = ["", "[red]", "\x1b[31m", "größe", "a\nb"]
    path = make_run(tmp_path, [completed(str(n), 3, 1.0, task=name) for n, name in enumerate(names)])
    assert sorted(summary_of(path).tasks.by_name) == sorted(names)
