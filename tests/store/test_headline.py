"""The headline numbers of a run are those of its report, for any run in any state."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.drawn_runs import a_task, a_worker, events_of
from builders.examples import FEW
from builders.random_runs import Shape
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.summary import summarize
from flightlog.events import CacheLookup, ResourceSample, TaskRetried
from flightlog.store import layout
from flightlog.store.completing import complete_ended
from flightlog.store.headline import (
    CacheHeadline,
    CostHeadline,
    DurationHeadline,
    Headline,
    LossHeadline,
    NameHeadline,
    ProcessHeadline,
    ResourceHeadline,
    RunHeadline,
    TaskHeadline,
    decode_headline,
    headline_bytes,
    headline_of,
)
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run

GOLDEN = Path(__file__).parents[1] / "golden"


def in_report(path: Path) -> Any:
    """What the report says of the same numbers."""
    report = msgspec.json.decode(msgspec.json.encode(summarize(Run(path))), type=Headline)
    return msgspec.to_builtins(msgspec.structs.replace(report, cost=msgspec.UNSET))


def about(value: Any) -> Any:
    """Equal but for the last digits of a sum."""
    if isinstance(value, dict):
        return {name: about(inner) for name, inner in value.items()}
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


@given(st.lists(a_task(), max_size=8), st.lists(a_worker(), max_size=3), st.randoms(use_true_random=False))
@FEW
def test_the_headline_is_what_the_report_says_in_whatever_order_lines_stand(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[Any], workers: list[Any], chance: random.Random
) -> None:
    path = make_run(tmp_path_factory.mktemp("runs"), events_of(tasks, workers))
    found = msgspec.to_builtins(headline_of(Run(path)))
    assert found == about(in_report(path))
    for file in path.glob("*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        chance.shuffle(lines)
        file.write_bytes(b"".join(lines))
    assert msgspec.to_builtins(headline_of(Run(path))) == found


@pytest.mark.parametrize("seed", range(5))
def test_the_headline_of_a_run_with_everything_in_it_is_what_the_report_says(
    tmp_path: Path, seed: int
) -> None:
    path = make_run(tmp_path, Shape(seed).events())
    assert msgspec.to_builtins(headline_of(Run(path))) == about(in_report(path))


def test_a_killed_run_has_a_headline_with_what_was_in_flight_and_what_was_lost(tmp_path: Path) -> None:
    events = [
        submitted("a"),
        started("a", 1),
        completed("a", 3, 2.0, cpu_s=1.5, peak_rss_bytes=7),
        submitted("b"),
        started("b", 1),
        failed("b", 2, 1.0),
        TaskRetried(timestamp=at(2), task="sim", task_id="b", reason="no"),
        started("b", 4, attempt=2),
        submitted("c"),
        CacheLookup(timestamp=at(1), task="sim", result="miss", key="k"),
        CacheLookup(timestamp=at(1), task="sim", result="bypass", key=None),
        ResourceSample(timestamp=at(1), scope="worker", host="n", pid=1, rss_bytes=9, cpu_percent=None),
    ]
    path = make_run(tmp_path, events, status="running", end_time=None, duration_s=None)
    tasks = layout.stream_file(path, "tasks")
    lines = tasks.read_bytes().splitlines(keepends=True)
    tasks.write_bytes(b"".join(lines[:3] + lines[4:]) + lines[0][:20])  # one gone, and one cut off
    whole = DurationHeadline(count=1, total=2.0, mean=2.0, min=2.0, p50=2.0, p95=2.0, max=2.0)
    sim = NameHeadline(
        submitted=2, completed=1, retried=1, running=1, duration_s=whole, cpu_s=1.5, peak_rss_bytes=7
    )
    assert headline_of(Run(path)) == Headline(
        run=RunHeadline(run_id=path.name),
        tasks=TaskHeadline(
            submitted=2,
            completed=1,
            failed=0,
            cancelled=0,
            retried=1,
            running=1,
            pending=1,
            names=1,
            by_name={"sim": sim},
        ),
        resources=ResourceHeadline(process=ProcessHeadline(peak_rss_bytes=9)),
        cache=CacheHeadline(lookups=1, hits=0, bypassed=1),
        completeness=LossHeadline(lost={"tasks": 1}),
    )


def test_of_very_many_names_those_with_the_most_tasks_are_listed(tmp_path: Path) -> None:
    names = [f"task-{n:04}" for n in range(StoreLimits.max_headline_names + 5)]
    events = [submitted(str(n), task=name) for n, name in enumerate([*names, names[-1]])]
    tasks = headline_of(Run(make_run(tmp_path, events))).tasks
    assert (tasks.names, tasks.submitted, len(tasks.by_name)) == (
        StoreLimits.max_headline_names + 5,
        StoreLimits.max_headline_names + 6,
        StoreLimits.max_headline_names,
    )
    assert list(tasks.by_name) == [*names[: StoreLimits.max_headline_names - 1], names[-1]]


def test_a_headline_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = headline_of(Run(make_run(tmp_path, [submitted("a"), completed("a", 3, 2.0)])))
    assert decode_headline(headline_bytes(found)) == found


def test_the_summary_of_an_early_recording_is_read_and_has_the_same_numbers() -> None:
    [file] = (GOLDEN / "summaries").iterdir()
    found = decode_headline(file.read_bytes())
    assert found is not None
    assert found.cost == CostHeadline(total=0.0, currency=None)
    counted = headline_of(Run(GOLDEN / "run-v1" / file.stem))
    assert msgspec.structs.replace(found, cost=msgspec.UNSET) == counted


def test_a_document_with_fields_of_another_kind_tells_nothing_and_not_zero() -> None:
    assert decode_headline(b'{"run": {"run_id": 7}, "tasks": {"submitted": "many"}, "more": 1}') == Headline()


RECORD = """
import sys, flightlog

with flightlog.record("demo", runs_dir=sys.argv[1]) as run:
    for n in range(20):
        with run.task("work"):
            pass
"""
SESSION = """
import sys, flightlog

def work(n):
    return n

if __name__ == "__main__":
    for _ in range(2):  # the second reads the history of the first
        with flightlog.Session.from_yaml("flightlog.yaml", runs_dir=sys.argv[1]) as run:
            run.client.gather(run.client.map(work, range(20)))
"""
MANIFEST = """
version: 1
project: {name: demo}
targets: {local: {provider: local, max_workers: 1}}
components: {c: {}}
tasks: {work: {component: c}}
"""
LOADED = """
if __name__ == "__main__":
    unwanted = ("duckdb", "flightlog.analyze")
    print(run.path, *(name for name in sys.modules if name.startswith(unwanted)))
"""


@pytest.mark.parametrize("parquet", ["0", "1"])
@pytest.mark.parametrize("complete", ["auto", "now"])
@pytest.mark.parametrize("program", [RECORD, SESSION], ids=["record", "session"])
def test_the_end_of_a_run_loads_neither_duckdb_nor_the_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, complete: str, parquet: str
) -> None:
    monkeypatch.setenv("FLIGHTLOG_COMPLETE", complete)
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY_PARQUET", parquet)
    script = tmp_path / "program.py"
    script.write_text(program + LOADED)
    (tmp_path / "flightlog.yaml").write_text(MANIFEST)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "runs")], capture_output=True, text=True, cwd=tmp_path
    )
    path, *loaded = done.stdout.split() or [done.stderr]
    assert loaded == []
    complete_ended(Path(path))
    found = decode_headline((Path(path) / layout.SUMMARY).read_bytes())
    assert found is not None
    assert (found.tasks.submitted, found.tasks.completed) == (20, 20)
    assert (Path(path) / layout.PARQUET).is_dir() is (parquet == "1")
