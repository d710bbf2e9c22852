"""The tables of a run as CSV, JSON and Parquet: all rows, as they are, whole or not at all."""

from __future__ import annotations

import csv as csv_files
import json as json_files
from pathlib import Path

import duckdb
import pytest
from builders.runs import at, make_run

from flightlog.core.errors import UsageError
from flightlog.events import Event, Metric, TaskCompleted, TaskSubmitted, define_event
from flightlog.export.base import Exported, ExportOptions, ending_of
from flightlog.export.tables import csv, json, parquet
from flightlog.store.run import Run


def some_run(folder: Path, **info: object) -> Path:
    events: list[Event] = []
    for n in (3, 1, 2):
        ids = {"task": "sim", "task_id": f"t{n}"}
        events += [
            TaskSubmitted(
                timestamp=at(n), args={"s": 'a "b", c\\n'}, depends_on=["t1"] if n == 2 else [], **ids
            ),
            TaskCompleted(timestamp=at(n + 1), args={}, worker="w1", duration_s=n / 4, **ids),
        ]
    return make_run(folder / "runs", [*events, Metric(timestamp=at(5), name="loss", value=0.5)], **info)


def exported(of: object, path: Path, output: Path, *tables: str) -> Exported:
    return of.export(Run(path), output, ExportOptions(tables=tables))  # type: ignore[attr-defined]


ALL = {
    "rows of attempts": 3,
    "rows of tasks": 3,
    "rows of runs": 1,
    "rows of metrics": 1,
    "rows of task_events": 6,
}


@pytest.mark.parametrize("of", [csv, parquet], ids=["csv", "parquet"])
def test_a_folder_holds_one_file_for_each_table_that_has_rows(tmp_path: Path, of: object) -> None:
    ending = of.name  # type: ignore[attr-defined]
    found = exported(of, some_run(tmp_path), tmp_path / "out")
    assert found == Exported(to=ending, where=str(tmp_path / "out"), counts=ALL)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        f"{table}.{ending}" for table in ("attempts", "metrics", "runs", "task_events", "tasks")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "runs"]


def test_csv_has_a_header_times_as_iso_and_json_in_quotes(tmp_path: Path) -> None:
    exported(csv, some_run(tmp_path), tmp_path / "attempts.csv", "attempts")
    with (tmp_path / "attempts.csv").open(newline="") as file:
        rows = list(csv_files.DictReader(file))
    wanted = ("task_id", "state", "submitted_at", "ended_at", "duration_s", "retried", "cpu_s")
    assert [tuple(row[name] for name in wanted) for row in rows] == [
        (f"t{n}", "completed", at(n), at(n + 1), str(n / 4), "false", "") for n in (1, 2, 3)
    ]
    assert [json_files.loads(row["depends_on"]) for row in rows] == [[], ["t1"], []]
    assert json_files.loads(rows[0]["args"]) == {}


def test_texts_with_quotes_commas_and_line_ends_come_back_from_csv(tmp_path: Path) -> None:
    exported(csv, some_run(tmp_path), tmp_path / "events.csv", "task_events")
    with (tmp_path / "events.csv").open(newline="") as file:
        first = next(csv_files.DictReader(file))
    assert json_files.loads(first["args"]) == {"s": 'a "b", c\\n'}


def test_streams_come_as_they_were_written(tmp_path: Path) -> None:
    exported(csv, some_run(tmp_path), tmp_path / "events.csv", "task_events")
    with (tmp_path / "events.csv").open(newline="") as file:
        assert [row["seq"] for row in csv_files.DictReader(file)] == list("012345")


def test_json_is_one_document_in_which_arguments_are_objects(tmp_path: Path) -> None:
    path = some_run(tmp_path)
    found = exported(json, path, tmp_path / "run.json")
    document = json_files.loads((tmp_path / "run.json").read_text())
    assert found.counts == ALL
    assert (document["run_id"], list(document["tables"])) == (
        path.name,
        ["attempts", "tasks", "runs", "metrics", "task_events"],
    )
    assert [
        (row["task_id"], row["submitted_at"], row["depends_on"], row["args"], row["cpu_s"])
        for row in document["tables"]["attempts"]
    ] == [("t1", at(1), [], {}, None), ("t2", at(2), ["t1"], {}, None), ("t3", at(3), [], {}, None)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "runs"]


def test_parquet_holds_what_sql_gives(tmp_path: Path) -> None:
    path = some_run(tmp_path)
    exported(parquet, path, tmp_path / "out")
    for table in ("attempts", "tasks", "task_events"):
        file = tmp_path / "out" / f"{table}.parquet"
        kept = duckdb.sql(f"SELECT * FROM read_parquet('{file}') ORDER BY ALL")
        asked = Run(path).sql(f"SELECT * FROM {table} ORDER BY ALL")
        assert (kept.columns, kept.fetchall()) == (asked.columns, asked.rows())


def test_a_table_that_is_named_is_written_even_if_it_is_empty_and_others_are_not(tmp_path: Path) -> None:
    found = exported(csv, some_run(tmp_path), tmp_path / "out", "cache", "concurrency")
    assert found.counts == {"rows of concurrency": 6}
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["cache.csv", "concurrency.csv"]
    assert (tmp_path / "out" / "cache.csv").read_text().startswith("run_id,event,timestamp,")


def test_the_users_own_streams_are_tables_too(tmp_path: Path) -> None:
    kind = define_event("flasks.Reading", celsius=float)
    found = exported(
        csv, make_run(tmp_path / "runs", [kind(timestamp=at(1), celsius=20.5)]), tmp_path / "out"
    )
    assert "rows of user_flasks" in found.counts


def test_one_table_is_a_file_and_several_are_a_folder() -> None:
    cases = {(): "", ("attempts",): ".attempts.csv", ("attempts", "spans"): ""}
    assert {tables: ending_of(csv, ExportOptions(tables=tables)) for tables in cases} == cases
    assert ending_of(json, ExportOptions(tables=("attempts",))) == ".json"


def test_a_table_that_there_is_not_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no table 'atempts'\. Did you mean attempts\?"):
        exported(csv, some_run(tmp_path), tmp_path / "out", "atempts")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_run_that_is_half_copied_gives_what_there_is_and_says_so(tmp_path: Path) -> None:
    path = some_run(tmp_path)
    (path / "run.json").unlink()
    found = exported(csv, path, tmp_path / "out")
    assert found.counts["rows of attempts"] == 3
    assert len(found.notes) == 1
    assert "run.json" in found.notes[0]
