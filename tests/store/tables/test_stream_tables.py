from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from events.strategies import BUILT_IN_STREAMS, events_like
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_of_runs import in_order, make_killed, row_of, rows_held, rows_read

from flightlog.core.errors import UsageError
from flightlog.events import Metric, TaskCompleted, TaskStarted, define_event, streams
from flightlog.events.codec import encode_line
from flightlog.events.columns import columns
from flightlog.store import layout
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import open_tables
from flightlog.store.tables.sources import Sources

GOOD = encode_line(Metric(name="loss", value=0.5, timestamp=at(1), writer="w0000001", seq=0))[:-1]
ODD = [
    b"",
    b"   ",
    b"not json",
    b"[1]",
    b'"text"',
    b"{}",
    b"\0\0\0\0",
    b'{"event":5,"seq":1,"writer":"w"}',
    b'{"timestamp":"2026-05-20T03:52:00.000000Z"}',
    b"\xef\xbb\xbf" + GOOD,
    b"\0\0" + GOOD,
    b"  " + GOOD + b" \r",
    GOOD + GOOD,
    GOOD[:-1] + b",}",
    GOOD[:-20],
    b'{"event":"metric","name":"\xff","value":1}',
    b'{"event":"metric","name":"lone \\ud800","value":1,"writer":"w","seq":3}',
    b'{"event":"metric","name":"n","value":NaN,"writer":"w","seq":4}',
    b'{"event":"metric","name":"huge","value":1e400,"writer":"w","seq":5}',
    b'{"event":"metric","name":"twice","value":1,"value":2,"writer":"w","seq":6}',
    b'{"event":"metric","name":"text","value":"1.5","step":"2","writer":"w","seq":7}',
    b'{"event":"metric","name":5,"value":1,"writer":"w","seq":8}',
    b'{"event":"metric","name":"whole","value":1,"step":3.0,"writer":"w","seq":9}',
    b'{"event":"metric","name":"broken","value":1,"step":3.7,"writer":"w","seq":10}',
    b'{"event":"metric","value":1,"writer":"w","seq":11}',
    b'{"event":"metric","name":"later","value":1,"new":{"a":[1]},"writer":"w","seq":12}',
    b'{"event":"metric_of_the_future","name":"f","step":1,"value":true,"writer":"w","seq":13}',
    b'{"event":"metric","name":"soon","value":1,"timestamp":"soon","writer":"w","seq":"14"}',
    b'{"event":"metric","name":"unnumbered","value":1}',
    b'{"event":"metric","name":"a b","value":null,"seq":15}',
    b'{"event":"metric","name":"nul \\u0000 in","value":1,"writer":"w","seq":16}',
]
"""Lines that stand in damaged, foreign, newer and hand-made files."""


@st.composite
def lines_of(draw) -> list[bytes]:
    """Lines of the stream `metrics`, as they may stand in one file: numbered, doubled, odd."""
    numbered = st.builds(
        lambda writer, seq, value: encode_line(
            Metric(name="m", value=value, timestamp=at(seq), writer=writer, seq=seq)
        )[:-1],
        st.sampled_from(["w0000001", "w0000002"]),
        st.integers(0, 5),
        st.sampled_from([0.1, 2.0, None]),
    )
    plain = draw(st.booleans())
    return draw(st.lists(numbered if plain else numbered | st.sampled_from(ODD), max_size=6))


FILES = [
    "metrics.jsonl",
    "metrics-000001.jsonl",
    "segments/w0000001/metrics.jsonl",
    "segments/w0000001/metrics-000002.jsonl",
    "segments/w0000002/metrics.jsonl",
]
TAILS = [
    "segments/w0000001/metrics.tail-a",
    "segments/w0000001/metrics.tail-b",
    "segments/w0000002/metrics.tail-a",
]


@st.composite
def runs(draw, folder: Path, token: str = "a1b2c3d4") -> Run:
    """A run of one stream in any state: closed, killed, living, half-copied; torn, doubled, with and without
    tails."""
    path = make_run(folder, token=token)
    for name in draw(st.lists(st.sampled_from(FILES), unique=True)):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        end = draw(st.sampled_from([b"\n", b"", b"\n" + GOOD[:30], b"\n" + GOOD, b"\n\0\0\0"]))
        file.write_bytes(b"\n".join(draw(lines_of())) + end)
    for name in draw(st.lists(st.sampled_from(TAILS), unique=True)):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(
            (b"\n".join(draw(lines_of())) + draw(st.sampled_from([b"\n", b""]))).ljust(4096, b"\0")
        )
    for folder in (path / "segments").glob("*"):
        if draw(st.booleans()):
            dead = layout.WriterInfo(writer=folder.name, pid=1, host="node-1", pid_start=1.0)
            (folder / "writer.json").write_bytes(msgspec.json.encode(dead))
    state = draw(st.sampled_from(["closed", "killed", "living", "no run.json"]))
    if state == "killed":
        make_killed(path)
    elif state == "living":
        info = json.loads((path / "run.json").read_bytes()) | {"status": "running", "host": "elsewhere"}
        info["heartbeat"] = "2999-01-01T00:00:00.000000Z"
        (path / "run.json").write_text(json.dumps(info))
    elif state == "no run.json":
        (path / "run.json").unlink()
    return Run(path)


@FEW
@given(data=st.data())
def test_the_table_of_a_stream_holds_what_the_reader_gives_whatever_happened_to_the_run(data):
    with tempfile.TemporaryDirectory() as folder:
        run = data.draw(runs(Path(folder)))
        assert rows_held(run, "metrics") == rows_read(run, "metrics")


def test_a_line_with_blanks_of_a_power_cut_before_it_is_a_row_also_where_it_stands_twice(tmp_path):
    run = Run(make_run(tmp_path))
    line = (
        b'{"event":"metric","timestamp":"2026-05-20T03:52:01.000000Z","writer":"w0000001","seq":0,'
        b'"name":"m","value":0.5}'
    )
    (run.path / "metrics.jsonl").write_bytes(b"\0\0" + line + b"\n\0\0\0")
    (run.path / "metrics-000002.jsonl").write_bytes(line)
    assert rows_held(run, "metrics") == rows_read(run, "metrics")
    assert len(rows_held(run, "metrics")) == 1


@FEW
@given(data=st.data())
def test_so_do_the_tables_of_very_many_runs(data):
    with tempfile.TemporaryDirectory() as folder:
        made = [data.draw(runs(Path(folder) / str(n), token=f"{n:08x}")) for n in range(10)]
        expected = sorted(row for run in made for row in rows_read(run, "metrics"))
        assert rows_held(made[0], "metrics", *made[1:]) == expected


@pytest.mark.parametrize("stream", BUILT_IN_STREAMS)
@settings(max_examples=4)
@given(data=st.data())
def test_the_table_of_every_stream_holds_its_events_with_every_value(stream, data):
    events = [data.draw(events_like(cls)) for cls in streams()[stream]]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(make_run(Path(folder), events))
        assert rows_held(run, stream) == rows_read(run, stream)
        assert rows_held(run, stream) == in_order({"run_id": run.run_id} | row_of(e, stream) for e in events)
        write_checksums(run.path)
        assert rows_held(run, stream) == rows_read(run, stream)  # and when it is read without a look before


@pytest.mark.parametrize("stream", BUILT_IN_STREAMS)
def test_a_stream_that_no_run_has_is_an_empty_table_with_its_columns(stream, tmp_path):
    run = Run(make_run(tmp_path))
    view = {"tasks": "task_events", "spans": "span_events"}.get(stream, stream)
    for given_runs in ([run], []):
        with open_tables(given_runs) as connection:
            described = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {view}").fetchall()}
            assert described == {"run_id": "VARCHAR"} | columns(stream)
            assert connection.execute(f"SELECT * FROM {view}").fetchall() == []


def closed_run(folder: Path, count: int = 3, **more) -> Run:
    path = make_run(
        folder, [Metric(name=f"m{n}", value=float(n), timestamp=at(n)) for n in range(count)], **more
    )
    write_checksums(path)
    return Run(path)


def test_the_file_of_a_run_that_closed_in_good_order_is_read_as_it_is(tmp_path):
    run = closed_run(tmp_path)
    assert Sources(run, tmp_path).source("metrics").files == (run.path / "metrics.jsonl",)
    assert list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.parametrize("spoil", ["grown", "rewritten", "segments", "died", "lost", "no recorder"])
def test_a_run_that_something_happened_to_is_looked_at_line_by_line(tmp_path, spoil):
    run = closed_run(tmp_path)
    file = run.path / "metrics.jsonl"
    twice = file.read_bytes().splitlines(keepends=True)[0]
    stamp = file.stat()
    if spoil == "grown":
        file.write_bytes(file.read_bytes() + twice)
    else:
        file.write_bytes(twice + twice + file.read_bytes()[2 * len(twice) :])
    if spoil not in {"grown", "rewritten"}:  # as if it had been so when the run closed
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    recorder = json.loads((run.path / "recorder.json").read_bytes())
    if spoil == "segments":
        (run.path / "segments").mkdir()
    elif spoil in {"died", "lost"}:
        recorder["writers"][0][spoil] = True if spoil == "died" else {"metrics": 1}
        (run.path / "recorder.json").write_text(json.dumps(recorder))
    elif spoil == "no recorder":
        (run.path / "recorder.json").unlink()
    run = Run(run.path)
    assert rows_held(run, "metrics") == rows_read(run, "metrics")
    assert len(rows_held(run, "metrics")) == 3 - (spoil != "grown")


def test_files_that_are_all_right_are_not_copied_when_a_run_was_killed(tmp_path):
    run = closed_run(tmp_path / "runs")
    make_killed(run.path)
    tail = run.path / "segments/w0000001/metrics.tail-a"
    tail.parent.mkdir(parents=True)
    owner = layout.WriterInfo(writer="w0000001", pid=1, host="node-1", pid_start=1.0, owner=True)
    (tail.parent / "writer.json").write_bytes(msgspec.json.encode(owner))
    rest = encode_line(Metric(name="m3", value=3.0, timestamp=at(3), writer="w0000001", seq=3))
    tail.write_bytes(rest.ljust(4096, b"\0"))
    (tmp_path / "scratch").mkdir()
    source = Sources(Run(run.path), tmp_path / "scratch").source("metrics")
    assert source.files[0] == run.path / "metrics.jsonl"
    assert [file.read_bytes() for file in source.files[1:]] == [rest]


def test_a_line_too_long_to_be_one_is_passed_over(tmp_path):
    run = closed_run(tmp_path)
    with (run.path / "metrics.jsonl").open("ab") as out:
        out.truncate(out.tell() + (40 << 20))
        out.seek(0, 2)
        out.write(b"\n" + encode_line(Metric(name="last", value=9)))
    assert rows_held(Run(run.path), "metrics") == rows_read(Run(run.path), "metrics")
    assert len(rows_held(Run(run.path), "metrics")) == 4


def test_lines_recorded_after_a_stream_was_first_needed_are_not_in_it(tmp_path):
    run = closed_run(tmp_path)
    info = json.loads((run.path / "run.json").read_bytes()) | {"status": "running", "host": "elsewhere"}
    (run.path / "run.json").write_text(json.dumps(info | {"heartbeat": "2999-01-01T00:00:00.000000Z"}))
    live = Run(run.path)
    assert live.status == "running"
    with open_tables([live]) as connection:
        connection.make(["metrics"])
        with (run.path / "metrics.jsonl").open("ab") as out:
            out.write(encode_line(Metric(name="late", value=1, writer="w0000001", seq=3)))
        (run.path / "metrics.jsonl").rename(run.path / "metrics-000001.jsonl")
        assert connection.execute("SELECT count(*) FROM metrics").fetchone() == (3,)


def test_many_runs_are_one_table_with_the_run_of_each_row(tmp_path):
    made = [closed_run(tmp_path, count=n, token=f"{n:08x}") for n in range(1, 13)]
    with open_tables(made) as connection:
        found = connection.execute(
            "SELECT run_id, count(*) FROM metrics GROUP BY run_id ORDER BY run_id"
        ).fetchall()
        assert found == [(run.run_id, n) for n, run in enumerate(made, start=1)]
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (12,)


def test_one_run_named_twice_counts_once_and_two_of_one_id_are_refused(tmp_path):
    run = closed_run(tmp_path)
    other = closed_run(tmp_path / "copy")
    with open_tables([run, Run(run.path)]) as connection:
        assert connection.execute("SELECT count(*) FROM metrics").fetchone() == (3,)
    with (
        pytest.raises(UsageError, match="are both run-20260520T035200Z-demo-a1b2c3d4"),
        open_tables([run, other]),
    ):
        pass


@pytest.mark.parametrize("name", ["a=b", "it's", "x[1]*?", "a,b;--", 'q"q', "sp ace é", "a{b}c", "$files"])
def test_names_of_folders_are_only_names(tmp_path, name):
    run = closed_run(tmp_path / name)
    assert rows_held(run, "metrics") == rows_read(run, "metrics")
    (run.path / "run.json").unlink()
    renamed = run.path.rename(run.path.with_name(name))
    assert rows_held(Run(renamed), "metrics") == rows_read(Run(renamed), "metrics")


def test_users_events_have_a_table_of_what_they_hold(tmp_path):
    known = define_event(
        "tables_user.sub.Known", loss=float, step=(int, -1), run_id=(str, ""), file=(str, "f")
    )
    run = Run(make_run(tmp_path, [known(loss=1, run_id="mine"), known(loss=2.5, step=3)]))
    with (run.path / "user.tables_user.sub.jsonl").open("ab") as out:
        out.write(b'{"event":"tables_user.sub.Other","step":2,"more":{"x":[1]}}\n')
        out.write(b'{"event":"tables_user.sub.Known","loss":"low","beside":true}\n')
    runs_ = [run, *(closed_run(tmp_path, token=f"{n:08x}") for n in range(10))]
    for given_runs in ([run], runs_):
        with open_tables(given_runs) as connection:
            found = connection.execute(
                "SELECT * EXCLUDE (timestamp, writer, seq) FROM user_tables_user_sub ORDER BY ALL"
            )
            assert [column[0] for column in found.description] == [
                "run_id",
                "event",
                "loss",
                "step",
                "event_run_id",
                "file",
                "beside",
                "more",
            ]
            assert [row[1:] for row in found.fetchall()] == [
                ("tables_user.sub.Known", 1.0, -1, "mine", "f", None, None),
                ("tables_user.sub.Known", 2.5, 3, "", "f", None, None),
                ("tables_user.sub.Known", None, -1, "", "f", True, None),
                ("tables_user.sub.Other", None, 2, None, None, None, '{"x":[1]}'),
            ]


def test_streams_whose_tables_would_share_a_name_get_numbers(tmp_path):
    run = Run(make_run(tmp_path))
    for stream in ("user.a.b", "user.a_b", "runs"):
        (run.path / f"{stream}.jsonl").write_bytes(b'{"event":"x","stream":"%s"}\n' % stream.encode())
    with open_tables([run]) as connection:
        for view, stream in (("user_a_b", "user.a.b"), ("user_a_b_2", "user.a_b"), ("runs_2", "runs")):
            assert connection.execute(f"SELECT stream FROM {view}").fetchall() == [(stream,)]


def test_only_the_tables_that_are_asked_for_are_made(tmp_path):
    run = closed_run(tmp_path)
    with open_tables([run]) as connection:
        connection.execute("SELECT count(*) FROM attempts")
        names = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
    assert {"attempts", "task_events"} <= names
    assert not names & {"metrics", "workers", "spans", "span_events", "tasks"}


def test_events_that_lack_what_they_must_have_are_rows_of_their_stream_and_nothing_else(tmp_path):
    run = Run(make_run(tmp_path, [TaskStarted(task="sim", task_id="t1", worker="w", queue_s=None)]))
    with (run.path / "tasks.jsonl").open("ab") as out:  # an end without arguments is no TaskCompleted
        out.write(b'{"event":"task_completed","task":"sim","task_id":"t1","duration_s":1.0,"worker":"w"}\n')
    assert [type(event).__name__ for event in run.events("tasks")] == ["TaskStarted", "UnknownEvent"]
    assert rows_held(run, "tasks") == rows_read(run, "tasks")
    with open_tables([run]) as connection:
        assert connection.execute("SELECT state FROM attempts").fetchall() == [("running",)]


def test_a_stream_file_that_is_a_link_out_of_the_run_gives_its_events_and_nothing_of_it_to_sql(tmp_path):
    run = Run(
        make_run(
            tmp_path / "runs", [TaskCompleted(task="t", task_id="1", args={}, worker=None, duration_s=1.0)]
        )
    )
    elsewhere = tmp_path / "secret.jsonl"
    elsewhere.write_bytes(b'{"password":"hunter2"}\n' + encode_line(Metric(name="m", value=1.0)))
    (run.path / "metrics.jsonl").symlink_to(elsewhere)
    assert rows_held(run, "metrics") == rows_read(run, "metrics")
    (tmp_path / "scratch").mkdir()
    source = Sources(run, tmp_path / "scratch").source("metrics")
    assert [file.read_bytes() for file in source.files] == [encode_line(Metric(name="m", value=1.0))]


def test_the_table_of_runs_says_who_what_and_when(tmp_path):
    run = Run(make_run(tmp_path, target="local", python="3.12.1", tasks_submitted=2, git_commit="abc"))
    with open_tables([run]) as connection:
        found = connection.execute("SELECT * REPLACE (CAST(started_at AS VARCHAR) AS started_at) FROM runs")
        (row,) = [dict(zip([c[0] for c in found.description], row, strict=True)) for row in found.fetchall()]
    assert {name: row[name] for name in row if name != "ended_at"} == {
        "run_id": run.run_id,
        "project": "demo",
        "status": "completed",
        "started_at": "2026-05-20 03:52:00",
        "duration_s": 10.0,
        "target": "local",
        "provider": None,
        "host": "node-1",
        "python": "3.12.1",
        "git_commit": "abc",
        "tasks_submitted": 2,
        "tasks_completed": run.info.tasks_completed,
        "tasks_failed": run.info.tasks_failed,
        "path": str(run.path),
    }
    assert msgspec.json.encode(row["ended_at"]) == b'"2026-05-20T03:52:10"'


def test_a_writer_without_a_document_may_be_alive_so_its_lines_are_copied(tmp_path):
    run = closed_run(tmp_path / "runs")
    folder = layout.writer_folder(run.path, "w0000009")
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_bytes(encode_line(Metric(name="z", value=1, writer="w0000009", seq=0)))
    (tmp_path / "scratch").mkdir()
    source = Sources(Run(run.path), tmp_path / "scratch").source("metrics")
    assert [file.parent for file in source.files] == [tmp_path / "scratch"]


def test_what_a_statement_names_by_with_is_not_made_as_a_table(tmp_path):
    run = Run(make_run(tmp_path, [Metric(name="loss", value=0.5)]))
    with open_tables([run]) as tables:
        statement = "WITH attempts AS (SELECT name FROM metrics), tasks AS (FROM attempts) FROM tasks"
        assert tables.execute(statement).fetchall() == [("loss",)]
        made = "SELECT view_name FROM duckdb_views() WHERE view_name IN ('attempts', 'tasks')"
        assert tables.execute(made).fetchall() == []
