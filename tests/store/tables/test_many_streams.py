"""What a run of many streams costs grows with their number and not with its square: what is needed once is
done once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.analyze.report.report import report_on
from flightlog.events import EventDefined, TaskStarted
from flightlog.store.integrity import write_checksums
from flightlog.store.read import files, lines
from flightlog.store.run import Run
from flightlog.store.tables import snapshots
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.run_tables import open_views


def make(folder: Path, streams: int, *, closed: bool) -> Path:
    names = [f"user.many_{folder.name}_{n}" for n in range(streams)]
    defined = [
        EventDefined(name=f"{name}.Step", fields={"loss": {"type": "number"}}, required=["loss"], defaults={})
        for name in names
    ]
    path = make_run(
        folder, [TaskStarted(timestamp=at(1), task="sim", task_id="t1", worker="w1", queue_s=0.0), *defined]
    )
    for name in names:
        line = {"event": f"{name}.Step", "timestamp": at(1), "writer": "w0000001", "seq": 0, "loss": 0.5}
        (path / f"{name}.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    if closed:
        write_checksums(path)
    return path


def show_tables(run: Run) -> None:
    assert len(run.sql("SHOW ALL TABLES").rows()) > 10


def test_the_names_of_tables_are_told_without_reading_the_users_streams(tmp_path):
    run = Run(make(tmp_path / "named", 3, closed=False))
    with open_views([run], None) as tables:
        every = {name for (name,) in tables.connection.execute("SHOW TABLES").fetchall()}
    assert {name for (name,) in run.sql(" show  tables ;\n")} == every
    with open_views([run], None, names_alone=True) as tables:
        assert [file for file in tables.files if "user." in file.name] == []


@pytest.mark.parametrize("command", [show_tables, report_on, snapshot_run])
@pytest.mark.parametrize("closed", [True, False])
def test_folders_are_listed_and_definitions_read_as_often_for_many_streams_as_for_few(
    tmp_path, monkeypatch, command, closed
):
    counts: Counter[str] = Counter()

    def counted(module: object, name: str) -> None:
        function = getattr(module, name)

        def call(*args: object, **options: object) -> object:
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, call)

    counted(files, "entries_of")  # lists a folder
    counted(duckdb, "connect")
    counted(snapshots, "write_document")
    scanned = lines.Scan.__init__

    def scan(self: lines.Scan, run: Path, stream: str, *more: object) -> None:
        counts["definitions"] += stream == "definitions"
        scanned(self, run, stream, *more)

    monkeypatch.setattr(lines.Scan, "__init__", scan)
    found = []
    for streams in (10, 20):
        folder = tmp_path / f"{command.__name__}{streams}"
        path = make(folder, streams, closed=closed)
        counts.clear()
        command(Run(path))
        found.append(dict(counts))
    assert found[0] == found[1]
