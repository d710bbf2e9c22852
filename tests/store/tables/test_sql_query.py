from __future__ import annotations

import sys
from datetime import datetime

import pytest
from builders.runs import at, make_run

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.events import Metric, SpanEvent, TaskCompleted, TaskStarted, define_event
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run
from flightlog.store.tables.query import Table, ask, connected, lock
from flightlog.store.tables.run_tables import open_views


@pytest.fixture
def run(tmp_path) -> Run:
    events = [
        TaskStarted(timestamp=at(1), task="sim", task_id="t1", worker="w1", queue_s=0.5),
        TaskCompleted(
            timestamp=at(3), task="sim", task_id="t1", worker="w1", args={"seed": 1}, duration_s=2.0
        ),
        *(Metric(timestamp=at(n), name="loss", value=1 / (n + 1), step=n) for n in range(4)),
        SpanEvent(timestamp=at(0), name="sweep", span_id="s1", duration_s=4.0),
    ]
    path = make_run(tmp_path / "runs", events)
    write_checksums(path)
    return Run(path)


def test_a_query_gives_rows_and_columns(run):
    answer = run.sql("SELECT task, worker, duration_s, args->>'seed' AS seed FROM attempts")
    assert answer.columns == ["task", "worker", "duration_s", "seed"]
    assert answer.rows() == list(answer) == [("sim", "w1", 2.0, "1")]


def test_parameters_take_the_place_of_marks_and_names(run):
    assert run.sql("SELECT count(*) FROM metrics WHERE step > ? AND name = ?", [1, "loss"]).rows() == [(2,)]
    assert run.sql("SELECT count(*) FROM metrics WHERE step > $least", {"least": 2}).rows() == [(1,)]


def test_the_tables_of_a_run_are_its_attributes(run):
    assert run.tasks.columns[:3] == ["run_id", "task", "task_id"]
    assert [row[5] for row in run.attempts] == ["completed"]
    assert [row[1] for row in run.spans] == ["sweep"]
    assert len(run.task_events.rows()) == 2
    assert len(run.span_events.rows()) == 1
    for name in ("concurrency", "workers", "resources", "cache", "failures", "artifacts", "cost", "devices"):
        assert isinstance(getattr(run, name), Table)
        assert getattr(run, name).columns[0] == "run_id"


def test_the_answer_as_a_pandas_frame(run):
    frame = run.sql("SELECT step, value FROM metrics ORDER BY step").df()
    assert frame.to_dict("list") == {"step": [0, 1, 2, 3], "value": [1.0, 0.5, 1 / 3, 0.25]}


def test_the_answer_as_a_polars_frame(run):
    frame = run.sql("SELECT step, timestamp FROM metrics ORDER BY step LIMIT 1").pl()
    assert frame.to_dicts() == [{"step": 0, "timestamp": datetime(2026, 5, 20, 3, 52)}]


def test_the_answer_as_an_arrow_table_that_outlives_everything(run):
    table = run.sql("SELECT * FROM spans").arrow()
    assert table.select(["name", "duration_s", "depth"]).to_pylist() == [
        {"name": "sweep", "duration_s": 4.0, "depth": 0}
    ]


@pytest.mark.parametrize(("method", "library"), [("df", "pandas"), ("pl", "polars"), ("arrow", "pyarrow")])
def test_a_library_that_is_not_there_is_named_with_the_line_that_installs_it(
    run, method, library, monkeypatch
):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=f"needs {library}, which is not installed: pip install {library}"):
        getattr(run.tasks, method)()


def test_all_rows_come_however_many_there_are(run):
    with ask([run], "SELECT * FROM range(4500)") as answer:
        assert sum(map(len, answer.batches())) == 4500
    assert len(run.sql("SELECT * FROM range(4500)").rows()) == 4500


REFUSED = {
    "COPY attempts TO '{folder}/x.csv'": "only SELECT is allowed, and this is COPY",
    "COPY (SELECT 1) TO '{lines}'": "only SELECT is allowed, and this is COPY",
    "WITH c AS (COPY (SELECT 1) TO '{lines}') SELECT 1": "(only SELECT is allowed, also within WITH|"
    "A CTE needs a SELECT)",
    "WITH c AS (DELETE FROM runs RETURNING *) FROM c": "(only SELECT is allowed, also within WITH|"
    "A CTE needs)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{lines}'": "only SELECT is allowed, and this is EXPLAIN",
    "ATTACH '{folder}/x.db'": "this is ATTACH",
    "ATTACH ':memory:' AS other": "this is ATTACH",
    "INSTALL httpfs": "this is LOAD",
    "LOAD httpfs": "this is LOAD",
    "SET enable_external_access = true": "this is SET",
    "RESET allowed_paths": "this is SET",
    "PRAGMA enable_external_access = true": "this is",
    "CALL pragma_version()": "this is CALL",
    "CREATE TABLE x (i INTEGER)": "this is CREATE",
    "CREATE SECRET (TYPE s3)": "this is CREATE",
    "INSERT INTO runs (run_id) VALUES ('x')": "this is INSERT",
    "UPDATE runs SET project = 'x'": "this is UPDATE",
    "DELETE FROM runs": "this is DELETE",
    "DROP VIEW attempts": "this is DROP",
    "EXPORT DATABASE '{folder}/x'": "this is EXPORT",
    "IMPORT DATABASE '{folder}/x'": "(only SELECT is allowed|out of reach|cannot be answered)",
    "BEGIN": "this is TRANSACTION",
    "SELECT 1; COPY (SELECT 1) TO '{lines}'": "there are 2 statements",
    "": "there is nothing",
    "-- nothing": "there is nothing",
    "SELECT * FROM read_csv('/etc/passwd')": r"read_csv\(\) cannot be used",
    "SELECT * FROM read_text('{lines}')": r"read_text\(\) cannot be used",
    "SELECT * FROM read_blob('/etc/passwd')": r"read_blob\(\) cannot be used",
    "SELECT * FROM read_json('{lines}')": r"read_json\(\) cannot be used",
    "SELECT * FROM read_parquet('{folder}/*')": r"read_parquet\(\) cannot be used",
    "SELECT * FROM parquet_metadata('{folder}/x')": r"parquet_metadata\(\) cannot be used",
    "SELECT * FROM glob('/etc/*')": r"glob\(\) cannot be used",
    "SELECT * FROM sniff_csv('/etc/passwd')": r"sniff_csv\(\) cannot be used",
    "SELECT * FROM query('WITH c AS (COPY (SELECT 1) TO ''{lines}'') SELECT 1')": r"query\(\) cannot be used",
    "SELECT * FROM json_execute_serialized_sql('{{}}')": r"json_execute_serialized_sql\(\) cannot be used",
    "SELECT * FROM duckdb_secrets()": r"duckdb_secrets\(\) cannot be used",
    "SELECT * FROM enable_logging()": r"enable_logging\(\) cannot be used",
    "WITH a AS (SELECT * FROM (SELECT * FROM read_text('/etc/passwd'))) FROM a": r"read_text\(\) "
    r"cannot be used",
    "SELECT (SELECT max(content) FROM read_text('/etc/passwd'))": r"read_text\(\) cannot be used",
    "FROM '/etc/passwd'": "(no table /etc/passwd|out of reach)",
    "FROM '{beside}'": "out of reach",
    "SELECT * FROM attempts, '{beside}'": "out of reach",
    "FROM 'https://example.com/x.csv'": "out of reach",
    "FROM 's3://bucket/x.parquet'": "out of reach",
    "FROM run": "there is no table run",
    "SELECT getenv('HOME')": "getenv does not exist",
    "SELECT read_text('/etc/passwd')": "table function",
    "SELECT * FROM query_table('{beside}')": "out of reach",
    "SELECT * FROM duckdb_settings()": r"duckdb_settings\(\) cannot be used",
    "PREPARE p AS SELECT 1": "this is PREPARE",
    "SET VARIABLE a = 1": "this is SET",
    "VACUUM": "this is VACUUM",
    "/* one */ SELECT 1; -- two\nDROP VIEW attempts": "there are 2 statements",
    "PIVOT attempts ON state USING count(*)": "PIVOT needs the values it makes columns of",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_would_read_or_write_anything_else_is_refused_in_one_line(run, tmp_path, query):
    beside = run.path / "secret.csv"
    beside.write_text("a,b\n1,2\n")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    asked = query.format(folder=tmp_path, lines=run.path / "tasks.jsonl", beside=beside)
    with pytest.raises(UsageError, match=REFUSED[query]) as raised:
        run.sql(asked).rows()
    assert "\n" not in str(raised.value)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{folder}/x.csv'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_text('{beside}')",
        "SELECT * FROM read_text('{lines}/../secret.csv')",
        "SELECT * FROM glob('/etc/*')",
        "ATTACH '{folder}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET allowed_paths = ['/etc/passwd']",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
    ],
)
def test_the_database_itself_is_locked_too(run, tmp_path, statement):
    beside = run.path / "secret.csv"
    beside.write_text("a,b\n")
    asked = statement.format(folder=tmp_path, lines=run.path / "tasks.jsonl", beside=beside)
    with (
        pytest.raises(UsageError, match=r"reads the tables of runs and nothing else|cannot change settings"),
        connected([run], "FROM attempts") as connection,
    ):
        connection.execute(asked).fetchall()


def test_a_link_in_a_run_directory_opens_no_door(run, tmp_path):
    secret = tmp_path / "secret.jsonl"
    secret.write_text(
        '{"event":"metric","name":"m","value":1,"password":"hunter2"}\n{"password":"hunter2"}\n'
    )
    (run.path / "metrics.jsonl").unlink()
    (run.path / "metrics.jsonl").symlink_to(secret)
    (run.path / "events.jsonl").symlink_to("/etc/passwd")
    other = Run(run.path)
    assert [row[5] for row in other.metrics] == ["m"]
    assert other.sql("FROM events").rows() == []
    for path in (run.path / "metrics.jsonl", run.path / "events.jsonl", secret):
        with pytest.raises(UsageError, match="out of reach"):
            other.sql(f"SELECT * FROM metrics, events, '{path}'").rows()


def test_the_program_s_own_variables_are_no_tables(run):
    import pandas

    hidden = pandas.DataFrame({"a": [1]})
    with pytest.raises(UsageError, match="there is no table hidden"):
        run.sql("FROM hidden").rows()
    assert len(hidden) == 1


MISTAKES = {
    "SELECT tsk FROM attempts": 'Referenced column "tsk" not found.*Candidate bindings:.*"task"',
    "SELECT * FROM atempts": r"there is no table atempts\. Did you mean attempts\? "
    r"The tables are attempts, tasks, spans,",
    "SELEC 1": 'syntax error at or near "SELEC"',
    "SELECT * FROM attempts WHERE": "syntax error",
    "SELECT sume(duration_s) FROM attempts": "sume does not exist.*Did you mean",
    "SELECT count(*) FROM attempts WHERE state = 1": "Could not convert string 'completed'.*state = 1",
    "SELECT ?": "parameter",
}


@pytest.mark.parametrize("query", MISTAKES)
def test_a_mistake_is_explained_in_one_line_with_what_would_be_right(run, query):
    with pytest.raises(UsageError, match=MISTAKES[query]) as raised:
        run.sql(query).rows()
    assert "\n" not in str(raised.value)


def test_an_unknown_table_is_answered_with_the_user_s_own_ones_too(tmp_path):
    known = define_event("query_user.Step", loss=float)
    run = Run(make_run(tmp_path, [known(loss=1.0)]))
    assert run.sql("SELECT loss FROM user_query_user").rows() == [(1.0,)]
    assert run.sql("SELECT loss FROM USER_QUERY_USER").rows() == [(1.0,)]
    with pytest.raises(UsageError, match=r"The tables are .* user_query_user, workers\."):
        run.sql("FROM nothing_here").rows()


@pytest.mark.parametrize(
    "query",
    [
        "SHOW TABLES",
        "DESCRIBE attempts",
        "SUMMARIZE tasks",
        "FROM runs",
        "VALUES (1)",
        "TABLE spans",
        "WITH a AS (FROM attempts) SELECT * FROM a",
        "SELECT * FROM main.attempts",
        "SELECT * FROM query_table('tasks')",
        "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 3) FROM r",
        "FROM attempts UNION ALL BY NAME FROM attempts",
        "SELECT unnest([1, 2])",
        "SELECT 1 -- a remark",
        "FROM Attempts PIVOT (count(*) FOR state IN ('completed'))",
        "SELECT * FROM information_schema.tables;",
    ],
)
def test_every_way_to_read_the_tables_is_open(run, query):
    assert run.sql(query).rows()


def test_what_does_not_fit_into_memory_is_spilled_although_files_are_out_of_reach(run):
    with open_views([run], {"attempts"}) as tables:
        tables.connection.execute("SET memory_limit = '120MB'")
        lock(tables.connection, tables.files)
        found = tables.connection.execute(
            "SELECT count(*) FROM (SELECT i, md5(CAST(i AS VARCHAR)) "
            "FROM range(2000000) t(i) ORDER BY hash(i) OFFSET 1)"
        )
        assert found.fetchone() == (1999999,)
