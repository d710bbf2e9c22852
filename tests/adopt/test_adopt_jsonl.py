"""Plain JSONL by a mapping file, the example of the command's page among it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from adopting import adopt_one, events_of

import flightlog.cli.adopt as command
from flightlog.adopt.jsonl import Mapping, read_mapping
from flightlog.core.errors import UsageError
from flightlog.events import (
    Failure,
    Metric,
    SpanEvent,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    UserEvent,
)


def lines(folder: Path, *records: dict[str, Any], mapping: str) -> tuple[Path, Path]:
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "map.yaml").write_text(mapping)
    return folder / "log.jsonl", folder / "map.yaml"


def test_the_example_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    page = command.__doc__ or ""
    [mapping] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    [log] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "map.yaml").write_text(mapping)
    (tmp_path / "log.jsonl").write_text(log)
    _, run = adopt_one(tmp_path / "log.jsonl", tmp_path / "runs", mapping=tmp_path / "map.yaml")
    ended = [event for event in events_of(run, "tasks") if isinstance(event, TaskCompleted | TaskFailed)]
    assert [
        (e.task, e.task_id, e.duration_s, e.worker, e.args, e.metrics, e.tags, e.timestamp) for e in ended
    ] == [
        ("fit", "a1", 0.35, "n1", {"seed": 1}, {"loss": 0.5}, {}, "2026-05-20T03:52:00.500000Z"),
        ("fit", "a2", 0.9, "n2", {"seed": 2}, {"loss": None}, {}, "2026-05-20T03:52:01.700000Z"),
    ]
    [failure] = events_of(run, "failures")
    assert isinstance(failure, Failure)
    assert (failure.task_id, failure.message) == ("a2", "diverged")


def test_every_name_a_mapping_may_have_is_on_the_page() -> None:
    page = command.__doc__ or ""
    assert [
        name for name in Mapping.__struct_fields__ if not re.search(rf"`{name}`|^{name}:", page, re.MULTILINE)
    ] == []


def test_tasks_have_their_waiting_attempts_and_cancellations(tmp_path: Path) -> None:
    log, mapping = lines(
        tmp_path,
        {"when": "2026-05-20T03:52:10Z", "fn": "a", "took": 2, "waited": 3, "how": "done", "x": 1},
        {"when": "2026-05-20T05:52:20+02:00", "fn": "b", "how": "killed", "n": 2},
        mapping="time: when\nname: fn\nduration: took\nqueue: waited\n"
        "status: how\ncancelled: [killed]\nattempt: n\n",
    )
    _, run = adopt_one(log, tmp_path / "runs", mapping=mapping)
    tasks = events_of(run, "tasks")
    [started] = [event for event in tasks if isinstance(event, TaskStarted)]
    assert (started.timestamp, started.queue_s) == ("2026-05-20T03:52:08.000000Z", 3.0)
    [done] = [event for event in tasks if isinstance(event, TaskCompleted)]
    assert (done.duration_s, done.tags) == (2.0, {"x": 1})
    [cancelled] = [event for event in tasks if isinstance(event, TaskCancelled)]
    assert (cancelled.timestamp, cancelled.attempt, cancelled.duration_s) == (
        "2026-05-20T03:52:20.000000Z",
        2,
        None,
    )
    assert run.info.start_time == "2026-05-20T03:52:05.000000Z"


def test_a_duration_that_includes_waiting_is_not_called_execution(tmp_path: Path) -> None:
    log, mapping = lines(tmp_path, {"t": 10, "n": "f", "s": 4}, mapping="time: t\nname: n\nelapsed: s\n")
    adoption, run = adopt_one(log, tmp_path / "runs", mapping=mapping)
    [done] = [event for event in events_of(run, "tasks") if isinstance(event, TaskCompleted)]
    assert (done.duration_s, done.metrics) == (None, {"elapsed_s": 4.0})
    assert adoption.notes == ["s includes waiting, by the mapping: it is recorded as the metric elapsed_s."]


def test_spans_keep_their_parents_and_errors(tmp_path: Path) -> None:
    log, mapping = lines(
        tmp_path,
        {"at": 1_779_249_120_000_000_000, "op": "outer", "ms": 100, "span": "0xa", "up": None},
        {"at": 1_779_249_120_010_000_000, "op": "inner", "ms": 50, "span": "0xb", "up": "0xa", "err": "bad"},
        mapping="kind: span\ntime: at\ntime_unit: ns\nname: op\nduration: ms\nduration_unit: ms\n"
        "id: span\nparent: up\nerror: err\n",
    )
    _, run = adopt_one(log, tmp_path / "runs", mapping=mapping)
    assert [
        (s.name, s.span_id, s.parent_id, s.duration_s, s.status, s.error_message)
        for s in events_of(run, "spans")
        if isinstance(s, SpanEvent)
    ] == [
        ("outer", f"{10:016x}", run.info.span_id, 0.1, "ok", None),
        ("inner", f"{11:016x}", f"{10:016x}", 0.05, "error", "bad"),
    ]
    assert run.info.duration_s == 0.1


def test_metrics_and_events_are_taken_too(tmp_path: Path) -> None:
    log, mapping = lines(
        tmp_path,
        {"t": 10, "loss": 0.5, "i": 1},
        {"t": 11, "loss": "high", "i": 2},
        {"t": 12, "loss": float("nan"), "i": 3},
        mapping="kind: metric\ntime: t\nname: =loss\nvalue: loss\nstep: i\n",
    )
    adoption, run = adopt_one(log, tmp_path / "runs", mapping=mapping)
    assert [
        (m.name, m.value, m.step, m.nonfinite) for m in events_of(run, "metrics") if isinstance(m, Metric)
    ] == [("loss", 0.5, 1, None), ("loss", None, 3, "nan")]
    assert adoption.dropped == {"metrics whose value is no number": 1}
    mapping.write_text("kind: event\ntime: t\nname: =tick\ntags: [i]\n")
    _, other = adopt_one(log, tmp_path / "runs", mapping=mapping)
    assert [(e.name, e.fields) for e in events_of(other, "events") if isinstance(e, UserEvent)] == [
        ("tick", {"i": 1}),
        ("tick", {"i": 2}),
        ("tick", {"i": 3}),
    ]


def test_lines_without_a_time_or_a_name_are_dropped_and_counted(tmp_path: Path) -> None:
    log, mapping = lines(
        tmp_path, {"t": 10, "n": "f"}, {"n": "f"}, {"t": 11}, {"t": 12, "n": ""}, mapping="time: t\nname: n\n"
    )
    adoption, _ = adopt_one(log, tmp_path / "runs", mapping=mapping)
    assert (adoption.mapped, adoption.dropped) == (
        {"lines → task": 1},
        {"lines without a time": 1, "lines without a name": 2},
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time: t\n", "missing required field `name`"),
        ("time: t\nname: n\nduraton: d\n", "Did you mean duration?"),
        ("time: t\nname: n\nkind: job\n", "Invalid enum value 'job'"),
        ("[1]", "holds no names with fields"),
        ("time: [\n", "is no YAML"),
        ("kind: metric\ntime: t\nname: n\n", "does not say which field is the value"),
    ],
)
def test_a_mapping_that_makes_no_sense_says_what_is_wrong_with_it(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(complaint)):
        read_mapping(tmp_path / "map.yaml")


def test_without_a_mapping_the_message_says_how_to_give_one(tmp_path: Path) -> None:
    log, _ = lines(tmp_path, {"t": 10}, mapping="")
    with pytest.raises(UsageError, match="--mapping"):
        adopt_one(log, tmp_path / "runs", kind="jsonl")


def test_a_mapping_that_fits_no_line_names_the_fields_it_looked_for(tmp_path: Path) -> None:
    log, mapping = lines(tmp_path, {"t": 10}, mapping="time: when\nname: what\n")
    with pytest.raises(
        UsageError, match=r"no line whose field 'when' is a time and 'what' a name \(1 lines were read\)"
    ):
        adopt_one(log, tmp_path / "runs", mapping=mapping)
