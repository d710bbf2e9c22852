from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flightlog.events import (
    Metric,
    SpanEvent,
    TaskCompleted,
    TaskSubmitted,
    define_event,
)
from flightlog.events.codec import encode_line
from flightlog.events.columns import columns, projection
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run, write_rows

AT = "2026-05-20T03:52:00.123456Z"
TASKS = [
    TaskSubmitted(
        task="sim",
        task_id="t1",
        args={"seed": 1, "deep": {"a": [None]}},
        depends_on=["t0", "é"],
        timestamp=AT,
        writer="w1",
        seq=0,
    ),
    TaskCompleted(
        task="sim",
        task_id="t1",
        args={},
        worker=None,
        duration_s=0.25,
        peak_rss_bytes=2**40,
        attempt=2,
        timestamp=AT,
        writer="w1",
        seq=1,
        metrics={"loss": 0.5},
    ),
]


def write_snapshot(files: dict[str, list[Path]], folder: Path) -> dict[str, int]:
    """Snapshots of a run of these files of lines, put into a folder; gives the number of rows by stream."""
    folder.mkdir(exist_ok=True)
    run = folder / "run-20260520T035200Z-demo-a1b2c3d4"
    run.mkdir()
    for stream, paths in files.items():
        for number, path in enumerate(paths, 1):
            shutil.copyfile(path, run / (f"{stream}-{number:06d}.jsonl" if paths[1:] else f"{stream}.jsonl"))
    made = snapshot_run(Run(run))
    rows = {name: number for name, number in made.items() if not name.startswith("views/")}
    for name in rows:
        (run / "parquet" / f"{name}.parquet").replace(folder / f"{name}.parquet")
    assert {one.name for one in (run / "parquet").iterdir()} <= {"views", "snapshot.json"}
    shutil.rmtree(run)
    return rows


def rows_of(path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(
            "SELECT * FROM read_parquet(?, hive_partitioning=false)", [str(path)]
        ).fetchall()


def table_of(path) -> dict[str, str]:
    with duckdb.connect() as connection:
        described = connection.execute(
            "DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning=false)", [str(path)]
        ).fetchall()
    return {name: kind for name, kind, *_ in described}


def lines_of(stream, path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(
            f"SELECT {projection(stream)} FROM read_json(?, columns=?, format='newline_delimited')",
            [str(path), columns(stream)],
        ).fetchall()


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"".join(map(encode_line, TASKS)))
    return path


def test_a_snapshot_holds_what_the_lines_hold(tmp_path, tasks):
    spans = tmp_path / "spans.jsonl"
    spans.write_bytes(b"".join(encode_line(SpanEvent(name=f"s{n}", duration_s=n / 8)) for n in range(300)))
    assert write_snapshot({"tasks": [tasks], "spans": [spans]}, tmp_path / "parquet") == {
        "tasks": 2,
        "spans": 300,
    }
    assert rows_of(tmp_path / "parquet/tasks.parquet") == lines_of("tasks", tasks)
    assert rows_of(tmp_path / "parquet/spans.parquet") == lines_of("spans", spans)
    assert table_of(tmp_path / "parquet/tasks.parquet") == columns("tasks")
    assert sorted(path.name for path in (tmp_path / "parquet").iterdir()) == [
        "spans.parquet",
        "tasks.parquet",
    ]


def test_defaults_that_lines_leave_out_are_in_the_snapshot(tmp_path, tasks):
    write_snapshot({"tasks": [tasks]}, tmp_path)
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT event, attempt, depends_on, tags, metrics, component FROM read_parquet(?)",
            [str(tmp_path / "tasks.parquet")],
        ).fetchall()
    assert found == [
        ("task_submitted", 1, ["t0", "é"], None, None, None),
        ("task_completed", 2, None, "{}", '{"loss":0.5}', None),
    ]


def test_the_files_of_a_stream_are_one_table_in_their_order(tmp_path):
    paths = []
    for n in range(5):
        paths.append(tmp_path / f"metrics-{n:06d}.jsonl")
        paths[-1].write_bytes(
            b"".join(encode_line(Metric(name=f"m{n}", value=v, step=v)) for v in range(100))
        )
    assert write_snapshot({"metrics": paths}, tmp_path) == {"metrics": 500}
    rows = rows_of(tmp_path / "metrics.parquet")
    assert [(row[4], row[6]) for row in rows] == [(f"m{n}", v) for n in range(5) for v in range(100)]


def test_damage_is_skipped_and_the_rest_is_there(tmp_path, tasks):
    good = tasks.read_bytes().splitlines(keepends=True)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(
        b"not json\n"
        + good[0]
        + b'[1]\n"text"\n\n\0\0\0\0\n{"event":"task_started","name":"\xff"}\n{}\n'
        + b'{"timestamp":"'
        + AT.encode()
        + b'"}\n'
        + good[1]
        + b'{"event":"task_started","task":"to'
    )
    assert write_snapshot({"tasks": [damaged]}, tmp_path) == {"tasks": 2}
    assert rows_of(tmp_path / "tasks.parquet") == lines_of("tasks", tasks)


def test_a_line_too_long_to_be_one_is_skipped_like_other_damage(tmp_path, tasks):
    good = tasks.read_bytes().splitlines(keepends=True)
    damaged = tmp_path / "damaged.jsonl"
    with damaged.open("wb") as out:
        out.write(good[0])
        out.truncate(len(good[0]) + 3 * StoreLimits.max_line_bytes)
        out.seek(0, 2)
        out.write(b"\n" + good[1][:-1])
    assert write_snapshot({"tasks": [damaged]}, tmp_path / "parquet") == {"tasks": 2}
    assert rows_of(tmp_path / "parquet/tasks.parquet") == lines_of("tasks", tasks)
    assert [path.name for path in (tmp_path / "parquet").iterdir()] == ["tasks.parquet"]


def test_values_that_do_not_fit_their_column_are_null_and_fields_unknown_here_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"event":"metric","timestamp":"soon","name":"loss","value":"low","step":2,"later":1}\n'
    )
    assert write_snapshot({"metrics": [path]}, tmp_path) == {"metrics": 1}
    assert rows_of(tmp_path / "metrics.parquet") == [
        ("metric", None, None, None, "loss", None, 2, None, None)
    ]


@pytest.mark.parametrize("name", ["a=b", "it's", "x[1]*?", "a,b;--", 'q"q', "sp ace é"])
def test_names_of_files_and_folders_are_only_names(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    path = folder / f"{name}.jsonl"
    path.write_bytes(encode_line(Metric(name="loss", value=0.5)))
    other = tmp_path / "x1zz/x1zz.jsonl"  # what a pattern would also find
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    assert write_snapshot({"metrics": [path], name: [path]}, folder / "parquet") == {"metrics": 1, name: 1}
    assert table_of(folder / "parquet/metrics.parquet") == columns("metrics")
    assert list(table_of(folder / "parquet" / f"{name}.parquet")) == [
        "event",
        "timestamp",
        "writer",
        "seq",
        "name",
        "value",
    ]


def test_an_empty_stream_is_an_empty_table_and_no_files_are_no_table(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert write_snapshot({"tasks": [empty], "user.x": [empty], "spans": []}, tmp_path / "p") == {
        "tasks": 0,
        "user.x": 0,
    }
    assert table_of(tmp_path / "p/tasks.parquet") == columns("tasks")
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["tasks.parquet", "user.x.parquet"]


def test_users_events_need_no_declaration_and_keep_their_values(tmp_path):
    path = tmp_path / "user.fit.jsonl"
    lines = [
        {
            "event": "fit.A",
            "timestamp": AT,
            "writer": "w",
            "seq": 0,
            "n": 1,
            "x": 1,
            "day": "2026-05-20",
            "d": {},
            "mixed": 1,
            "big": 2**64 - 1,
            "many": [1, 2],
            "ok": True,
            "nothing": None,
            "": 1,
            "odd \"'name": "v",
        },
        {
            "event": "fit.B",
            "timestamp": AT,
            "writer": "w",
            "seq": 1,
            "n": -5,
            "x": 0.5,
            "d": {"k": 1},
            "mixed": "b",
            "N": 7,
        },
    ]
    path.write_text("[1]\nzz\n" + "".join(json.dumps(line) + "\n" for line in lines))
    assert write_snapshot({"user.fit": [path]}, tmp_path) == {"user.fit": 2}
    table = table_of(tmp_path / "user.fit.parquet")
    assert table == {
        "event": "VARCHAR",
        "timestamp": "TIMESTAMP",
        "writer": "VARCHAR",
        "seq": "BIGINT",
        "N": "BIGINT",
        "big": "JSON",
        "d": "JSON",
        "day": "VARCHAR",
        "many": "JSON",
        "mixed": "JSON",
        "odd \"'name": "VARCHAR",
        "ok": "BOOLEAN",
        "x": "DOUBLE",
    }
    values = [dict(zip(table, row, strict=True)) for row in rows_of(tmp_path / "user.fit.parquet")]
    assert [list(row.values())[5:] for row in values] == [
        [str(2**64 - 1), "{}", "2026-05-20", "[1,2]", "1", "v", True, 1.0],
        [None, '{"k":1}', None, None, '"b"', None, None, 0.5],
    ]


def test_users_events_declared_in_part_have_the_declared_columns_and_the_found_ones(tmp_path):
    known = define_event("parquet_part.Known", loss=float, step=(int, -1))
    path = tmp_path / "lines.jsonl"
    path.write_bytes(encode_line(known(loss=1)) + b'{"event":"parquet_part.Other","step":2,"more":"x"}\n')
    assert write_snapshot({"user.parquet_part": [path]}, tmp_path) == {"user.parquet_part": 2}
    assert [row[0:1] + row[4:] for row in rows_of(tmp_path / "user.parquet_part.parquet")] == [
        ("parquet_part.Known", 1.0, -1, None),
        ("parquet_part.Other", None, 2, "x"),
    ]


def test_a_file_that_cannot_be_written_leaves_the_earlier_one_and_no_litter(tmp_path):
    target = tmp_path / "rows.parquet"
    with duckdb.connect() as connection:
        write_rows(connection, "SELECT 1 AS n", target)
        with pytest.raises(duckdb.Error):
            write_rows(connection, "SELECT error('no') AS n", target)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    assert rows_of(target) == [(1,)]
