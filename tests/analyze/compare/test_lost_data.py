"""A loss of data is no change: what lost lines recorded is not compared, and the first sentence says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.compare.compare import compare
from flightlog.events import Event, SpanEvent, TaskCompleted, TaskSubmitted
from flightlog.show.comparison import answer_text, comparison_text


def events() -> list[Event]:
    found: list[Event] = []
    for n in range(8):
        ids = {"task": "fit", "task_id": f"t{n}", "span_id": f"{n:016x}"}
        found.append(TaskSubmitted(timestamp=at(n), args={"n": n}, **ids))
        found.append(TaskCompleted(timestamp=at(n + 1), args={"n": n}, worker="w", duration_s=0.9, **ids))
        found.append(
            SpanEvent(timestamp=at(n), name="step", span_id=f"s{n}", parent_id=f"{n:016x}", duration_s=0.8)
        )
    return found


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return make_run(tmp_path, events(), token="aaaaaaaa"), make_run(tmp_path, events(), token="bbbbbbbb")


def test_a_run_whose_tasks_are_missing_is_not_said_to_have_had_none(runs: tuple[Path, Path]) -> None:
    before, after = runs
    (after / "tasks.jsonl").unlink()
    found = compare(before, after)
    assert found.lost == ({}, {"tasks": 16})
    assert answer_text(found).endswith("; B lost 16 lines of tasks, so what changed in them is unknown.")
    assert (found.explained, found.durations, found.appeared, found.vanished) == (None, [], [], [])
    assert found.tasks["completed"].after is None
    assert "only in A" not in comparison_text(found)


def test_what_a_run_without_its_spans_says_of_tasks_is_compared(runs: tuple[Path, Path]) -> None:
    before, after = runs
    (before / "spans.jsonl").unlink()
    found = compare(before, after)
    assert found.lost == ({"spans": 8}, {})
    assert {(one.kind, one.name) for one in found.durations} == {("task", "fit")}
    assert (found.tasks["completed"].before, found.tasks["completed"].after) == (8, 8)


def test_runs_that_lost_nothing_are_compared_in_full(runs: tuple[Path, Path]) -> None:
    found = compare(*runs)
    assert found.lost == ({}, {})
    assert "lost" not in answer_text(found)
    assert {one.kind for one in found.durations} == {"task", "span"}


def test_tasks_that_run_json_counted_and_nobody_wrote_are_lost(tmp_path: Path) -> None:
    before = make_run(tmp_path, events(), token="aaaaaaaa")
    after = make_run(tmp_path, events(), token="bbbbbbbb", tasks_submitted=8, recorder=False)
    (after / "tasks.jsonl").unlink()
    found = compare(before, after)
    assert found.lost == ({}, {"tasks": 8})
    assert answer_text(found).endswith("; B lost 8 lines of tasks, so what changed in them is unknown.")
