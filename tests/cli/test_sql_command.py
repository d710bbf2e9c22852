"""`flightlog sql` and `flightlog compact`, through `main`: what they print, where, and the exit code."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.events import Metric, TaskCompleted

Captured = pytest.CaptureFixture[str]
RUN = "run-20260520T035200Z-demo-a1b2c3d4"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def some_run(runs: Path, token: str = "a1b2c3d4", second: int = 0, **more: object) -> Path:
    events = [
        TaskCompleted(
            timestamp=at(n), task=task, task_id=f"t{n}", args={"seed": n}, worker="w1", duration_s=n / 4
        )
        for n, task in enumerate(["sim", "sim", "fit"], start=1)
    ]
    start = f"2026-05-20T03:52:{second:02d}.000000Z"
    return make_run(runs, events, token=token, start_time=start, **more)


def test_the_answer_is_a_table_with_numbers_on_the_right(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    assert (
        main(
            [
                "sql",
                "SELECT task, count(*) AS n, avg(duration_s) AS mean_s FROM attempts GROUP BY ALL ORDER BY n",
            ]
        )
        == 0
    )
    assert capsys.readouterr() == ("task  n  mean_s\nfit   1    0.75\nsim   2   0.375\n", "")


def test_the_run_that_started_last_is_asked_unless_another_or_all_are_named(
    runs: Path, capsys: Captured
) -> None:
    some_run(runs, "00000001", 1)
    some_run(runs, "00000003", 3)
    some_run(runs, "00000002", 2)
    for options, expected in (
        ([], "3"),
        (["--run", "00000001"], "1"),
        (["--run", "00000001", "--run", "00000002"], "1 2"),
        (["--all"], "1 2 3"),
        (["--run", "all"], "1 2 3"),
        (["--run", str(runs), "--all"], None),
    ):
        query = "SELECT string_agg(run_id[-1:], ' ' ORDER BY run_id) AS found FROM runs"
        code = main(["sql", query, *options])
        out, err = capsys.readouterr()
        assert (code, out) == ((0, f"found\n{expected}\n") if expected else (2, ""))
        assert bool(err) == (expected is None)


def test_csv_is_for_spreadsheets_and_pipes(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    query = (
        "SELECT ended_at, args, duration_s, cpu_s, retried, depends_on FROM attempts ORDER BY task_id LIMIT 1"
    )
    assert main(["sql", query, "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert list(csv.reader(io.StringIO(out))) == [
        ["ended_at", "args", "duration_s", "cpu_s", "retried", "depends_on"],
        ["2026-05-20T03:52:01.000000Z", '{"seed":1}', "0.25", "", "false", ""],
    ]


def test_json_is_a_list_of_objects_in_which_arguments_are_objects(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    query = "SELECT task, args, duration_s, cpu_s, ended_at FROM attempts ORDER BY task_id LIMIT 2"
    assert main(["sql", query, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"task": "sim", "args": {"seed": n}, "duration_s": n / 4, "cpu_s": None, "ended_at": at(n)}
        for n in (1, 2)
    ]
    assert main(["sql", "SELECT 1 WHERE false", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_parquet_goes_into_a_file_and_nowhere_else(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    some_run(runs)
    assert main(["sql", "FROM attempts", "--format", "parquet"]) == 2
    assert capsys.readouterr().err == "flightlog: Parquet cannot be printed: name a file with --output\n"
    assert (
        main(["sql", "SELECT task, duration_s FROM attempts", "--format", "parquet", "-o", "it's.parquet"])
        == 0
    )
    assert capsys.readouterr() == ("", "")
    with duckdb.connect() as connection:
        found = connection.execute(
            "FROM read_parquet($file) ORDER BY ALL", {"file": str(tmp_path / "it's.parquet")}
        )
        assert found.fetchall() == [("fit", 0.75), ("sim", 0.25), ("sim", 0.5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it's.parquet", "runs"]


def test_a_query_that_fails_leaves_an_earlier_file_as_it_was(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    some_run(runs)
    for format_ in ("parquet", "csv", "json", "table"):
        (tmp_path / "out").write_text("before")
        assert main(["sql", "SELECT error('no')", "--format", format_, "--output", "out"]) == 2
        assert (tmp_path / "out").read_text() == "before"
        assert capsys.readouterr() == ("", "flightlog: the query cannot be answered: no\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "runs"]


def test_a_table_of_very_many_rows_says_what_it_leaves_out(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    assert main(["sql", "SELECT * FROM range(2345)"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1001
    assert err == "flightlog: these are the first 1,000 of 2,345 rows; --format csv gives all\n"
    assert main(["sql", "SELECT * FROM range(2345)", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2346


def test_no_rows_are_said_to_be_none(runs: Path, capsys: Captured) -> None:
    some_run(runs)
    assert main(["sql", "SELECT task FROM attempts WHERE state = 'failed'"]) == 0
    assert capsys.readouterr() == ("task\n", "flightlog: no rows\n")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT tsk FROM attempts", 'column "tsk" not found in FROM clause'),
        ("FROM tusks", "there is no table tusks. Did you mean tasks? The tables are attempts, tasks,"),
        ("DROP VIEW tasks", "only SELECT is allowed, and this is DROP"),
        ("FROM read_csv('/etc/passwd')", "a query reads the tables of runs and nothing else"),
    ],
)
def test_a_query_that_cannot_be_answered_is_one_line_and_exit_code_2(
    runs: Path, capsys: Captured, query: str, message: str
) -> None:
    some_run(runs)
    assert main(["sql", query]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_without_runs_there_is_nothing_to_ask(runs: Path, capsys: Captured) -> None:
    assert main(["sql", "FROM runs"]) == 2
    assert "there are no runs in" in capsys.readouterr().err
    assert main(["sql", "FROM runs", "--all"]) == 2
    assert "there are no runs in" in capsys.readouterr().err


def test_compact_says_what_it_made_and_does_nothing_twice(runs: Path, capsys: Captured) -> None:
    path = some_run(runs)
    assert main(["compact"]) == 0
    assert capsys.readouterr().out == f"{RUN}: 6 rows in 2 tables beside its lines\n"
    assert sorted(file.relative_to(path).as_posix() for file in (path / "parquet").rglob("*.parquet")) == [
        "parquet/tasks.parquet",
        "parquet/views/attempts.parquet",
    ]
    assert main(["compact", "latest"]) == 0
    assert capsys.readouterr().out == f"{RUN}: nothing new beside its lines\n"


def test_compact_adds_every_run_to_a_history_and_passes_over_the_running_ones(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    some_run(runs, "00000001")
    make_run(runs, [Metric(name="loss", value=1.0)], token="00000002")
    live = some_run(runs, "00000003")
    document = json.loads((live / "run.json").read_bytes()) | {"status": "running", "host": "elsewhere"}
    (live / "run.json").write_text(json.dumps(document | {"heartbeat": "2999-01-01T00:00:00.000000Z"}))
    history = tmp_path / "history"
    assert main(["compact", "--all", "--history", str(history)]) == 0
    assert capsys.readouterr() == (
        f"run-20260520T035200Z-demo-00000001: 10 rows in 4 tables in {history}\n"
        f"run-20260520T035200Z-demo-00000002: 2 rows in 2 tables in {history}\n",
        "flightlog: run-20260520T035200Z-demo-00000003 is running, and was skipped\n",
    )
    with duckdb.connect() as connection:
        query = (
            f"SELECT project, count(*) FROM read_parquet('{history}/runs/**', hive_partitioning=true) "
            "GROUP BY ALL"
        )
        assert connection.execute(query).fetchall() == [("demo", 2)]
    assert main(["compact", live.name, "--history", str(history)]) == 2
    assert "is running: it goes into a history when it has ended" in capsys.readouterr().err
    assert main(["compact", live.name, "--all"]) == 2
    assert capsys.readouterr().err == "flightlog: give either --all or runs, not both\n"
