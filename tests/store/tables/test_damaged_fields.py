"""Lines with damage in fields that nobody asks for."""

from __future__ import annotations

from builders.runs import make_run

from flightlog.events import TaskCompleted
from flightlog.store.run import Run


def test_bytes_that_are_no_text_in_an_unknown_field_cost_neither_the_event_nor_the_table(tmp_path):
    path = make_run(tmp_path, [TaskCompleted(task="sim", task_id="t1", args={}, worker="w1", duration_s=2.0)])
    file = path / "tasks.jsonl"
    line = file.read_bytes()
    file.write_bytes(line.replace(b'"worker":', b'"wo\xd5ker":"w9","worker":'))
    run = Run(path)
    assert [event.task_id for event in run.events("tasks")] == ["t1"]
    assert run.sql("SELECT task_id, worker, duration_s FROM attempts").rows() == [("t1", "w1", 2.0)]
