"""A line of tens of megabytes ends no command: it is left out, and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.events import TaskCompleted
from flightlog.store import layout
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run

SIZE = 34 << 20
"""More than DuckDB takes, whatever it is told."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that closed in good order, to all appearances, and has an enormous name in its third line."""
    named = {"task": "simulate", "args": {}, "worker": "w1", "duration_s": 1.0}
    events = [TaskCompleted(timestamp=at(n), task_id=f"t{n}", **named) for n in range(4)]
    path = make_run(tmp_path, events)
    file = layout.stream_file(path, "tasks")
    lines = file.read_bytes().splitlines(keepends=True)
    begun, end = b'{"event":"task_completed","task":"', b'","task_id":"long"}\n'
    long = begun + b"x" * (SIZE + 1 - len(begun) - len(end)) + end
    file.write_bytes(b"".join([*lines[:2], long, *lines[2:]]))
    write_checksums(path)
    return path


def test_it_is_left_out_of_tables_and_reports_and_named_among_what_is_wrong(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _compacted in (False, True):
        assert main(["sql", "SELECT count(*) AS n FROM attempts", "--run", str(run)]) == 0
        assert capsys.readouterr().out == "n\n4\n"
        assert main(["report", str(run), "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["tasks"]["completed"] == 4
        assert found["completeness"]["oversized"] == 1
        assert "tasks: 1 line too long to be an event: line 3 of tasks.jsonl has 34.0 MiB" in str(
            found["completeness"]["problems"]
        )
        assert main(["compact", str(run)]) == 0
        capsys.readouterr()
    assert Run(run).sql("SELECT count(*) FROM task_events").rows() == [(4,)]
