"""What a plan will take before it runs: the calls, the workers, and what is said of both."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.analyze.predict.baseline import Logs
from flightlog.analyze.predict.eta import ScheduleSpread
from flightlog.analyze.predict.predict import FORMAT, Model
from flightlog.analyze.predict.training import OfName, QuantityModel
from flightlog.core.errors import UsageError
from flightlog.events import TaskCompleted, TaskSubmitted
from flightlog.session.forecast import PlannedCall, Workload, calls_of_file, calls_of_run, forecast
from flightlog.session.manifest import load_manifest
from flightlog.session.plan import Plan, make_plan
from flightlog.show.plan import forecast_text
from flightlog.store.run import Run

TEXT = """\
version: 1
project: {name: demo}
targets:
  local: {provider: local, max_workers: 4, cost: {per_worker_hour: 3.6}}
  free: {provider: local}
  threads: {provider: local, max_workers: 2, threads_per_worker: 2}
  cluster: {provider: slurm, max_workers: 2}
components:
  model: {cpus: 2, memory: 1GB}
tasks:
  sim: {component: model}
"""


@pytest.fixture
def plans(tmp_path: Path) -> dict[str, Plan]:
    (tmp_path / "flightlog.yaml").write_text(TEXT)
    manifest = load_manifest(tmp_path / "flightlog.yaml")
    return {target: make_plan(manifest, target, {}) for target in ("local", "free", "threads", "cluster")}


def of_name(low: float, mid: float, high: float) -> OfName:
    return OfName(examples=50, runs=5, plain=Logs(low, mid, high), method="baseline")


def model(between_runs: float | None = 0.0, **left_out: int) -> Model:
    """Every `sim` takes e seconds (2.718) to the bit, and e**20 bytes (485 MB)."""
    return Model(
        format=FORMAT,
        flightlog="0",
        sklearn=None,
        project="demo",
        trained_at="",
        runs=["run-1"],
        attempts=50,
        duration_s=QuantityModel(
            quantity="duration_s",
            names={"sim": of_name(1.0, 1.0, 1.0)},
            boosted=None,
            between_runs=between_runs,
            left_out=left_out,
        ),
        peak_memory_bytes=QuantityModel(
            quantity="peak_memory_bytes",
            names={"sim": of_name(20.0, 20.0, 21.0)},
            boosted=None,
            between_runs=None,
        ),
    )


def work(count: int, task: str = "sim") -> Workload:
    return Workload(source="a test", calls=[PlannedCall(task=task) for _ in range(count)], around_s=0.0)


E = 2.718281828459045


def test_tasks_of_one_length_take_their_rounds_and_cost_the_workers_for_so_long(plans):
    found = forecast(plans["local"], model(0.0), work(10))
    assert found.wall_s.expected == pytest.approx(3 * E)
    assert (found.workers, found.workers_from, found.uncounted) == (4, "from the manifest", 0)
    assert found.cost.amount == pytest.approx(3.6 * 4 * 3 * E / 3600)
    assert found.cost_low == pytest.approx(found.cost_high)
    assert found.notes == []


def test_the_memory_of_a_worker_is_that_of_its_largest_task_and_more_than_asked_for_is_said(plans):
    memory = forecast(plans["local"], model(0.0), work(3)).memory
    assert (memory.task, memory.at_once, memory.asked_bytes, memory.over) == ("sim", 1, 10**9, 3)
    assert memory.expected == pytest.approx(E**20)
    assert memory.high == pytest.approx(E**21)


def test_a_worker_that_runs_two_at_once_needs_the_memory_of_both(plans):
    found = forecast(plans["threads"], model(0.0), work(3))
    assert (found.workers, found.slots, found.memory.at_once) == (2, 4, 2)
    assert found.memory.expected == pytest.approx(2 * E**20)
    assert found.wall_s.expected == pytest.approx(E)


def test_calls_that_nothing_is_known_of_are_counted_apart(plans):
    mixed = Workload(source="a test", calls=[*work(2).calls, *work(1, "new").calls], around_s=0.0)
    found = forecast(plans["local"], model(0.0), mixed)
    assert (found.calls, found.uncounted) == (3, 1)
    assert found.notes == ["not counted: 1 call of new, of which history knows too little"]
    assert found.tasks["new"].duration_s is None


def test_where_nothing_at_all_is_known_there_is_no_forecast(plans):
    with pytest.raises(UsageError, match=r"history knows too little of the tasks of this plan \(new\)"):
        forecast(plans["local"], model(), work(3, "new"))


def test_without_a_number_of_workers_one_is_asked_for(plans):
    with pytest.raises(UsageError, match="say so with --workers"):
        forecast(plans["free"], model(), work(3))
    assert forecast(plans["free"], model(0.0), work(3), workers=3).wall_s.expected == pytest.approx(E)


def test_without_rates_the_cost_is_unknown_and_why_is_said(plans):
    found = forecast(plans["cluster"], model(), work(3))
    assert (found.cost.amount, found.cost_low, found.cost_high) == (None, None, None)
    assert found.cost.reason == "the target has no rates"


def test_the_machine_at_hand_costs_nothing_where_no_rate_says_otherwise(plans):
    found = forecast(plans["threads"], model(), work(3))
    assert (found.cost.amount, found.cost_low, found.cost_high) == (0.0, 0.0, 0.0)
    assert "  Cost:                $0.00 (local provider)\n" in forecast_text(found)


def test_of_calls_alone_it_is_said_that_what_is_around_them_comes_on_top(plans):
    found = forecast(plans["local"], model(), msgspec.structs.replace(work(3), around_s=None))
    assert found.notes == [
        "starting workers, dispatching tasks and closing come on top: calls alone do not tell"
    ]


def test_what_is_assumed_or_left_out_is_said(plans):
    assert forecast(plans["local"], model(None, failed=7), work(3)).notes == [
        "too few runs to tell how much whole runs differ: 10% is assumed",
        "failures and retries are not counted: 7 of 50 attempts failed before",
    ]


# --- the calls


def submitted(task_id: str, *, task: str = "sim", after: tuple[str, ...] = ()) -> TaskSubmitted:
    return TaskSubmitted(timestamp=at(0), task=task, task_id=task_id, args={"n": 1}, depends_on=list(after))


def completed(task_id: str, ended: float, took: float) -> TaskCompleted:
    return TaskCompleted(
        timestamp=at(ended), task="sim", task_id=task_id, args={"n": 1}, worker="w", duration_s=took
    )


def test_the_calls_of_a_run_come_with_what_they_wait_for_and_what_the_run_took_around_them(tmp_path):
    events = [
        submitted("a", task="sim[0]"),
        submitted("b"),
        submitted("c", after=("a", "b", "gone")),
        completed("a", 3, 2),
        completed("b", 4, 3),
        completed("c", 9, 4),
    ]
    path = make_run(tmp_path, events)
    found = calls_of_run(Run(path))
    call = PlannedCall(task="sim", args={"n": 1})
    assert found == Workload(
        source=f"the 3 calls of {path.name}",
        calls=[call] * 3,
        after=[[], [], [0, 1]],
        durations=[2.0, 3.0, 4.0],
        workers=2,
        span_s=8.0,
        around_s=2.0,
    )


def test_of_a_run_with_too_many_calls_only_those_looked_at_tell_what_they_took(tmp_path):
    tasks = "abcd"
    ends = [completed(each, 2.0 * place + 2, 2.0) for place, each in enumerate(tasks)]
    run = Run(make_run(tmp_path, [*map(submitted, tasks), *ends]))
    found = calls_of_run(run, most=2)
    assert (len(found.calls), found.cut, found.durations) == (2, 2, [2.0, 2.0])
    assert (found.span_s, found.around_s) == (4.0, calls_of_run(run).around_s)


def test_what_a_run_took_beyond_its_tasks_is_added(plans, tmp_path):
    events = [submitted("a"), submitted("b"), completed("a", 3, 2), completed("b", 7, 2)]
    found = forecast(plans["local"], model(0.0), calls_of_run(Run(make_run(tmp_path, events))), workers=1)
    # Two of 2 s took 6 s there: a second for each beyond itself, and 4 s around them.
    assert (found.handover_s, found.around_s) == (1.0, 4.0)
    assert found.wall_s == ScheduleSpread(
        expected=pytest.approx(2 * E + 6), low=pytest.approx(2 * E + 6), high=pytest.approx(2 * E + 6)
    )


def test_calls_are_read_from_a_file_of_json_lines(tmp_path):
    file = tmp_path / "calls.jsonl"
    file.write_text('{"task": "sim[7]", "args": {"n": 1}}\n\n{"task": "reduce"}\n')
    assert calls_of_file(file) == Workload(
        source="the 2 calls of calls.jsonl",
        calls=[PlannedCall(task="sim", args={"n": 1}), PlannedCall(task="reduce")],
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no calls"),
        ('{"task": "sim"}\n{"args": {}}\n', "line 2: not a call"),
        ("no json\n", "line 1: not a call"),
        ("[" * 5000, "line 1: not a call"),
    ],
)
def test_a_file_that_holds_no_calls_is_one_message_with_its_line(tmp_path, text, message):
    file = tmp_path / "calls.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        calls_of_file(file)
    with pytest.raises(UsageError, match="cannot read"):
        calls_of_file(tmp_path / "missing.jsonl")


def test_a_forecast_can_be_written_as_json(plans):
    found = forecast(plans["local"], model(), work(3))
    assert msgspec.json.decode(msgspec.json.encode(found))["wall_s"].keys() == {"expected", "low", "high"}
