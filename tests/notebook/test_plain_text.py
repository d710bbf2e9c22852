"""What runs, tables, answers, sessions and futures say where no HTML is shown: lines of text, and not objects
at addresses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from builders.hostile_run import hostile_run
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.formatters import PlainTextFormatter

import flightlog
from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.summary import summarize
from flightlog.events import Failure, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted, WorkerReady
from flightlog.notebook.display import plain_of
from flightlog.notebook.extension import MagicAnswer
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.runs import FirstRows, read_run, read_table, run_display, table_plain
from flightlog.session.session import Session
from flightlog.show.document import display_text
from flightlog.show.terminal import clean, width_of
from flightlog.store.run import Run

SHOWN = PlainTextFormatter()
"""As IPython's terminal and its kernels write a value."""


def lives(number: int, failed: tuple[int, ...] = (3,)):
    yield WorkerReady(timestamp=at(0), worker="w1", host="node-1", pid=7)
    for n in range(number):
        ids = {"task": "simulate", "task_id": f"t{n:03d}", "span_id": f"s{n}"}
        begin, end = at(n * 0.01), {"timestamp": at(n * 0.01 + 0.01), "worker": "w1", "duration_s": 0.01}
        end |= {"queue_s": 0.0, "args": {"seed": n}}
        yield TaskSubmitted(timestamp=begin, args={"seed": n}, **ids)
        yield TaskStarted(timestamp=begin, worker="w1", queue_s=0.0, **ids)
        if n in failed:
            yield Failure(
                timestamp=end["timestamp"],
                scope="task",
                error_type="ValueError",
                message="no data",
                traceback=None,
                fingerprint="f1",
                task="simulate",
                task_id=ids["task_id"],
                attempt=1,
            )
            yield TaskFailed(error_type="ValueError", error_message="no data", fingerprint="f1", **ids, **end)
        else:
            yield TaskCompleted(**ids, **end)


def session_in(folder) -> Session:
    manifest = folder / "flightlog.yaml"
    manifest.write_text(
        "version: 1\nproject: {name: trial}\n"
        "targets: {local: {provider: local, max_workers: 2, processes: false}}\n"
    )
    return Session.from_yaml(manifest, runs_dir=folder / "runs", sample_interval_s=None, target="local")


def test_a_run_is_its_verdict_what_stands_out_and_its_names(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    lines = SHOWN(run).splitlines()
    assert lines[0] == "completed · demo · 20 tasks · in 10.0s · 1 failed"
    assert lines[1] == "19 completed, 1 failed"
    assert lines[2] == "What stands out:"
    assert "Failures: 1, 1 cause" in lines
    assert "  1x ValueError: no data" in lines
    assert any(line.split()[:3] == ["simulate", "19", "1"] for line in lines)
    assert lines[-1].startswith(f"{run.run_id} · started ")


def test_a_summary_and_a_large_run_are_told_in_the_same_words(tmp_path):
    path = make_run(tmp_path, lives(20), tasks_submitted=20, tasks_completed=19, tasks_failed=1)
    head = "completed · demo · 20 tasks · in 10.0s"
    assert SHOWN(summarize(Run(path))).splitlines()[0] == f"{head} · 1 failed"
    counted = display_text(run_display(read_run(Run(path), large_bytes=100)), width=100)
    head, counts, more, name = counted.splitlines()
    assert (head, counts) == ("completed · demo · 20 tasks · in 10.0s", "19 completed, 1 failed")
    assert name.startswith(f"{path.name} · started ")
    assert more.endswith(" were recorded: `flightlog report` goes through all of it.")


def test_a_large_run_that_was_killed_is_told_by_what_it_said_last_and_not_gone_through(tmp_path):
    gone = {"status": "running", "end_time": None, "host": "elsewhere", "heartbeat": at(6)}
    known = {"duration_s": 6.0, "tasks_submitted": 20, "tasks_completed": 12, "tasks_failed": 1}
    path = make_run(tmp_path, lives(20), **gone, **known)
    lines = display_text(run_display(read_run(Run(path), large_bytes=100)), width=100).splitlines()
    assert lines[0] == "crashed · demo · at least 20 tasks · in at least 6.0s"
    assert lines[1] == "at least 12 completed, at least 1 failed"
    unknown = make_run(tmp_path, lives(20), token="00000002", **gone, duration_s=None)
    assert (
        display_text(run_display(read_run(Run(unknown), large_bytes=100)), width=100).splitlines()[0]
        == "crashed · demo"
    )


def test_reports_and_answers_are_told_as_the_commands_print_them(tmp_path):
    before = Run(make_run(tmp_path, lives(20), token="00000001"))
    after = Run(make_run(tmp_path, lives(40, ()), token="00000002", duration_s=20.0, end_time=at(20)))
    assert (
        SHOWN(report_on(before)).splitlines()[1].startswith("Run Report: run-20260520T035200Z-demo-00000001")
    )
    assert SHOWN(flightlog.compare(before, after)).startswith("B took 2x as long (10.0s → 20.0s)")
    said = " ".join(SHOWN(flightlog.diagnose(before)).split())  # whatever the width of the terminal
    assert flightlog.diagnose(before).answer in said
    assert SHOWN(flightlog.trends("demo", runs_dir=tmp_path)).startswith("Wall time · project demo · 2 runs")


def test_a_table_is_its_first_rows_in_the_columns_that_fit(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    lines = plain_of(run.tasks, 60).splitlines()
    assert lines[0].split()[:3] == ["task", "task_id", "state"]
    assert [line.split()[1] for line in lines[1:-1]] == [f"t{n:03d}" for n in range(10)]
    assert lines[-1].startswith("20 rows, of which the first 10; ")
    assert lines[-1].endswith(" more columns to the right")
    assert max(map(len, lines[:-1])) <= 60
    assert SHOWN(run.sql("SELECT 1 AS one")).splitlines() == ["one", "  1", "1 row"]
    assert SHOWN(run.sql("SELECT 1 AS one WHERE false")) == "0 rows"


def test_the_id_of_the_run_is_left_out_of_its_tables_and_shown_to_those_who_ask_for_it(tmp_path):
    run = Run(make_run(tmp_path, lives(3)))
    assert "run_id" not in plain_of(run.tasks, 1000)
    assert SHOWN(run.sql("SELECT DISTINCT run_id FROM tasks")).splitlines()[0] == "run_id"
    assert SHOWN(run.sql("SELECT [1] AS run_id")).splitlines() == ["run_id", "[1]", "1 row"]


def test_a_class_made_of_ours_shows_itself_as_it_says(tmp_path):
    class Mine(Run):
        def _repr_pretty_(self, printer, cycle):
            printer.text("mine")

    class Plain(Run):
        pass

    path = make_run(tmp_path, lives(3))
    assert SHOWN(Mine(path)) == "mine"
    assert SHOWN(Plain(path)).startswith("completed · demo · 3 tasks")


def test_nothing_that_draws_is_imported_to_show_text_and_html(tmp_path):
    path = make_run(tmp_path, lives(5))
    code = (
        "import sys, flightlog\n"
        "from flightlog.notebook import follow\n"
        "from flightlog.notebook.display import bundle_of\n"
        f"run = flightlog.open_run({str(path)!r})\n"
        "follow(run)\n"
        "for value in (run, run.tasks, flightlog.diagnose(run)):\n"
        "    assert set(bundle_of(value)) == {'text/html', 'text/plain'}\n"
        "print(sorted({'matplotlib', 'plotly', 'numpy', 'pandas', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_table_that_is_not_gone_through_says_how_to(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    said = table_plain(read_table(run.tasks, large_bytes=100), width=80).splitlines()
    assert said[0] == "FROM tasks"
    assert said[1].endswith("of lines stand behind it: .df() and .rows() go through them.")


@given(
    st.lists(
        st.tuples(
            st.text(max_size=50), st.one_of(st.none(), st.text(max_size=50), st.floats(), st.integers())
        )
    ),
    st.integers(20, 200),
)
def test_rows_stand_on_a_line_each_whatever_is_in_them(rows, width):
    lines = table_plain(
        FirstRows(["a", "b"], [list(row) for row in rows], ["note"]), width=width
    ).splitlines()
    assert len(lines) == len(rows) + 2
    assert all(clean(line) == line for line in lines)


def test_a_session_and_a_future_are_told_in_lines_and_short_inside_of_something(tmp_path):
    session = session_in(tmp_path)
    assert SHOWN(session).splitlines()[0] == "not started · trial · on local"
    with session:
        done, failing = session.client.submit(abs, -1), session.client.submit(int, "x\x1b[31m")
        session.client.gather([done, failing], errors="return")
    lines = SHOWN(session).splitlines()
    assert lines[0] == "closed · trial · on local"
    assert lines[1:3] == ["2 of 2 tasks", "1 completed, 1 failed"]
    assert f"Run:          {session.run_id}" in lines
    assert repr(session) == "<session of trial on local>"
    lines = SHOWN(done).splitlines()
    assert lines[0] == "completed · abs"
    assert "Result:   1" in lines
    assert "\x1b" not in SHOWN(failing)
    assert SHOWN([done, failing]) == "[<future of abs>, <future of int>]"


def test_a_run_that_is_being_recorded_is_told_too(tmp_path):
    with flightlog.record("demo", runs_dir=tmp_path) as run:
        with run.task("first"):
            pass
        assert SHOWN(run).startswith("running · demo")
        assert SHOWN({"run": run}) == f"{{'run': LiveRun({str(run.path)!r})}}"


def test_a_note_is_its_words():
    assert SHOWN(MagicAnswer("one\ntwo \x1b[31m")) == "one\ntwo \\x1b[31m"


def test_texts_of_a_hostile_run_cannot_move_the_cursor(tmp_path):
    run = Run(hostile_run(tmp_path / "runs", name_bytes=200_000))
    for value in (run, run.tasks, run.failures, run.spans, report_on(run), flightlog.diagnose(run)):
        said = plain_of(value, 100)
        assert said is not None
        assert len(said) <= NotebookLimits.max_text_chars + 10
        assert [line for line in said.split("\n") if clean(line) != line] == []


def test_what_cannot_be_told_says_why(tmp_path):
    said = SHOWN(Run(make_run(tmp_path)).sql("SELECT nothing FROM tasks"))
    assert said.startswith("Table('SELECT nothing FROM tasks')\n(cannot be displayed: UsageError: ")


@pytest.mark.parametrize("width", [40, 80, 160])
def test_names_are_cut_to_the_width_of_the_terminal(tmp_path, width):
    run = Run(make_run(tmp_path, lives(5)))
    assert max(width_of(line) for line in plain_of(run.tasks, width).splitlines()[:-1]) <= width


def test_ipython_in_a_terminal_prints_it(tmp_path):
    path = make_run(tmp_path, lives(20))
    code = f"import flightlog; flightlog.open_run({str(path)!r})"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=nocolor", "--simple-prompt", "-i"],
        input=f"{code}\n",
        capture_output=True,
        text=True,
        timeout=100,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "COLUMNS": "90",
        },
    )
    assert "completed · demo · 20 tasks · in 10.0s · 1 failed\n19 completed, 1 failed\n" in done.stdout
    assert "<div" not in done.stdout
