"""What runs, tables, comparisons, sessions and futures show in a notebook: the report's numbers, and texts as
texts."""

from __future__ import annotations

import re
import threading
from concurrent.futures import wait
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from builders.hostile_run import hostile_run
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.summary import summarize
from flightlog.core.displayed import Displayed, in_notebook
from flightlog.events import Failure, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted, WorkerReady
from flightlog.notebook.display import display_html, html_of
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.runs import read_run, read_table, run_display, table_display
from flightlog.session.session import Session
from flightlog.show.document import Bar, BarPart, Item, Items, Paragraph, TableBlock
from flightlog.store.completing import open_run
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run

HARMLESS = {
    "div",
    "span",
    "b",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "li",
    "details",
    "summary",
    "pre",
    "code",
    "p",
    "h3",
    "dl",
    "dt",
    "dd",
}


GATE = threading.Event()


def wait_for_the_gate() -> bool:
    return GATE.wait(30)


class Reading(HTMLParser):
    """The tags, the attributes and the text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: list[str] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.pieces.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.pieces))


def read(html: str | None) -> Reading:
    assert html is not None
    found = Reading(html)
    assert found.tags <= HARMLESS
    assert found.attributes <= {"style", "class"}
    assert not any("url" in style or "expression" in style for style in found.styles)
    assert found.open == []
    assert len(html) <= NotebookLimits.max_html_chars
    return found


def session_in(folder: Path) -> Session:
    """A session on two threads, recorded in the folder."""
    manifest = folder / "flightlog.yaml"
    manifest.write_text(
        "version: 1\nproject:\n  name: trial\n"
        "targets:\n  local:\n    provider: local\n    max_workers: 2\n    processes: false\n"
    )
    return Session.from_yaml(manifest, runs_dir=folder / "runs", sample_interval_s=None, target="local")


def lives(number: int, worker: str = "w1", failed: tuple[int, ...] = (3,)):
    yield WorkerReady(timestamp=at(0), worker=worker, host="node-1", pid=7)
    for n in range(number):
        ids = {"task": "simulate", "task_id": f"t{n}", "span_id": f"s{n}"}
        yield TaskSubmitted(timestamp=at(n * 0.01), args={"seed": n}, **ids)
        yield TaskStarted(timestamp=at(n * 0.01), worker=worker, queue_s=0.0, **ids)
        end = {
            "timestamp": at(n * 0.01 + 0.01),
            "worker": worker,
            "duration_s": 0.01,
            "queue_s": 0.0,
            "args": {"seed": n},
        }
        if n in failed:
            yield Failure(
                timestamp=end["timestamp"],
                scope="task",
                error_type="ValueError",
                message="no data",
                traceback=None,
                fingerprint="f1",
                task="simulate",
                task_id=f"t{n}",
                attempt=1,
            )
            yield TaskFailed(error_type="ValueError", error_message="no data", fingerprint="f1", **ids, **end)
        else:
            yield TaskCompleted(**ids, **end)


def test_a_run_shows_the_numbers_of_its_report(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    report = report_on(run)
    words = read(run._repr_html_()).words
    assert "completed · demo · 20 tasks · in 10.0s · 1 failed" in words
    assert (report.tasks.completed, report.tasks.failed) == (19, 1)
    assert "19 completed" in words
    assert "1 failed" in words
    assert "1x ValueError: no data" in words
    assert report.findings
    for finding in report.findings[:4]:
        assert finding.sentence[1:60] in words
    assert "The whole report" in words
    assert run.run_id in words


def test_a_report_and_a_summary_show_themselves_too(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    assert html_of(report_on(run)) == run._repr_html_()
    words = read(html_of(summarize(run))).words
    assert "completed · demo · 20 tasks · in 10.0s · 1 failed" in words
    assert "simulate 19 1 10 ms 10 ms 10 ms" in words


def test_an_empty_run_says_so_without_a_bar(tmp_path):
    found = read(Run(make_run(tmp_path))._repr_html_())
    assert found.words.strip().startswith("completed · demo · in 10.0s")
    assert not any("display:flex" in style for style in found.styles)


def test_a_killed_run_shows_what_ran_at_its_end_and_praises_nothing(tmp_path):
    started = [
        TaskSubmitted(task="a", task_id="1", args={}, timestamp=at(0)),
        TaskStarted(task="a", task_id="1", worker="w", queue_s=0.0, timestamp=at(1)),
    ]
    words = read(Run(make_run(tmp_path, started, status="crashed"))._repr_html_()).words
    assert "1 running at the end" in words
    assert "nothing stands out" not in words


def test_a_large_run_is_shown_by_its_own_counts_without_reading_its_events(tmp_path):
    path = make_run(tmp_path, lives(20), tasks_submitted=20, tasks_completed=19, tasks_failed=1)
    (path / "tasks.jsonl").write_bytes(b"\n" * 1000)  # whoever reads it finds no task
    words = read(display_html(*run_display(read_run(Run(path), large_bytes=100)))).words
    assert "completed · demo · 20 tasks · in 10.0s" in words
    assert "19 completed" in words
    assert "1 failed" in words
    assert "goes through all of it" in words


def test_a_run_is_shown_as_it_is_when_it_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path))
    with flightlog.record("demo") as recording:
        opened = open_run(recording.path)
        with recording.task("first"):
            pass
        assert "running" in read(recording._repr_html_()).words
    assert "completed · demo · 1 task" in read(opened._repr_html_()).words
    assert opened._repr_html_() == recording._repr_html_()


def test_a_table_shows_its_first_rows_and_the_count_of_all(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    words = read(run.tasks._repr_html_()).words
    assert "20 rows, of which the first 10" in words
    assert words.count("simulate") == 10
    assert run.run_id not in words
    three = read(
        run.sql("SELECT task, count(*) AS n FROM tasks GROUP BY task -- by name")._repr_html_()
    ).words
    assert three.split("1 row")[0].split() == ["task", "n", "simulate", "20"]
    one = read(run.sql("SELECT task_id FROM tasks WHERE state = ?;", ["failed"])._repr_html_()).words
    assert one.split()[:2] == ["task_id", "t3"]


def test_a_table_of_a_large_run_is_not_gone_through_for_a_display_before_it_was_compacted(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    words = read(display_html(*table_display(read_table(run.tasks, large_bytes=100)))).words
    assert words.strip().startswith("FROM tasks")
    assert "of lines stand behind it, which a display does not go through" in words
    assert (
        "1 row;" in read(display_html(*table_display(read_table(run.failures, large_bytes=1000)))).words
    )  # a few lines beside many
    snapshot_run(run)
    assert (
        "20 rows, of which the first 10"
        in read(display_html(*table_display(read_table(run.tasks, large_bytes=100)))).words
    )


def test_the_first_tasks_of_a_compacted_run_are_whole_rows_of_it(tmp_path):
    run = Run(make_run(tmp_path, lives(40)))
    snapshot_run(run)
    found = run.tasks.peek(5)
    assert (len(found.rows), found.total, found.columns) == (5, 40, run.tasks.columns)
    assert set(found.rows) <= set(run.tasks.rows())


def test_a_table_without_rows_says_so(tmp_path):
    assert "0 rows" in read(Run(make_run(tmp_path)).tasks._repr_html_()).words


def test_a_display_that_fails_falls_back_to_the_repr_and_says_why(tmp_path):
    shown = read(Run(make_run(tmp_path)).sql("SELECT nothing FROM tasks")._repr_html_()).words
    assert shown.startswith("Table('SELECT nothing FROM tasks') (cannot be displayed: UsageError: ")


def test_a_comparison_shows_its_answer_first(tmp_path):
    before = make_run(tmp_path, lives(20), token="00000001")
    after = make_run(tmp_path, lives(40, failed=()), token="00000002", duration_s=20.0, end_time=at(20))
    words = read(flightlog.compare(str(before), str(after))._repr_html_()).words
    assert words.strip().startswith("B took 2x as long (10.0s → 20.0s)")
    assert "run-20260520T035200Z-demo-00000001" in words
    assert "Why the wall time differs" in words
    assert "simulate" in words


def test_a_diagnosis_and_a_trend_show_their_text(tmp_path):
    run = Run(make_run(tmp_path, lives(20)))
    assert flightlog.diagnose(run).answer in read(flightlog.diagnose(run)._repr_html_()).words
    trend = flightlog.trends("demo", runs_dir=tmp_path)
    assert "Wall time · project demo · 1 run" in read(trend._repr_html_()).words
    assert "font-family:ui-monospace" in trend._repr_html_()  # its plot is drawn with characters


def test_names_in_our_own_sentences_are_code_and_what_a_run_said_is_not():
    assert "<code>a&lt;b&gt;</code> is slower" in display_html(Paragraph("`a<b>` is slower"))
    assert display_html(Items([Item("`a`")])).count("<code>") == 0


@pytest.mark.parametrize("name_bytes", [10_000, 200_000])
def test_texts_of_a_hostile_run_are_shown_as_texts(tmp_path, name_bytes):
    path = hostile_run(tmp_path / "runs", name_bytes=name_bytes)
    run = Run(path)
    for shown in (run, run.tasks, run.failures, run.spans, run.workers, flightlog.diagnose(run)):
        found = read(shown._repr_html_())
        assert "cannot be displayed" not in found.words
    assert (
        "<script>window.pwned=1</script>"
        in read(run.tasks._repr_html_()).words + read(run._repr_html_()).words
    )


@given(st.text())
def test_any_text_comes_out_as_one_short_piece_of_text(value):
    found = Reading(display_html(TableBlock((value,), [(value,)]), Items([Item(value)])))
    assert found.tags <= HARMLESS
    assert max(map(len, found.pieces)) <= 400 * 10
    assert "\n" not in "".join(found.pieces)


@given(st.lists(st.tuples(st.text(max_size=5), st.floats(0, 1e9), st.just("good")), max_size=5))
def test_the_stretches_of_a_bar_fill_it(parts):
    html = display_html(Bar([BarPart(*part) for part in parts]))
    widths = [float(found) for found in re.findall(r"width:([\d.]+)%\"", html)]
    assert not widths or abs(sum(widths) - 100) < 0.1


def test_columns_that_say_nothing_are_left_out():
    found = Reading(display_html(TableBlock(("a", "b", "c"), [("1", "", "3"), ("4", "", "")])))
    assert found.words.split() == ["a", "c", "1", "3", "4"]


def test_formulas_are_left_alone():
    assert 'class="flightlog tex2jax_ignore mathjax_ignore"' in display_html(Paragraph("x"))


def test_a_run_whose_folder_is_gone_is_shown_as_unknown(tmp_path):
    run = Run(make_run(tmp_path))
    run.path = tmp_path / "gone <b>"
    assert read(run._repr_html_()).words.strip().startswith("unknown · gone <b> · in unknown")


def test_what_nobody_writes_has_no_display():
    class Other(Displayed):
        pass

    assert Other()._repr_html_() is None


def test_a_session_shows_how_far_it_is_and_starts_nothing(tmp_path):
    session = session_in(tmp_path)
    assert read(session._repr_html_()).words.strip().startswith("not started · ")
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())
    with session:
        futures = session.client.map(abs, [-1, -2, -3])
        session.client.gather(futures)
        words = read(session._repr_html_()).words
        assert words.strip().startswith("open · ")
        assert "3 of 3 tasks" in words
        assert "3 completed" in words
        assert session.run_id in words
    assert read(session._repr_html_()).words.strip().startswith("closed · ")


def test_a_future_shows_what_became_of_its_task(tmp_path):
    with session_in(tmp_path) as session:
        held = session.client.submit(wait_for_the_gate, task="held")
        wait([held], timeout=0)
        assert read(held._repr_html_()).words.strip().split(" · ")[0] in {"waiting", "running"}
        GATE.set()
        held.result(30)
        failing = session.client.submit(int, "<b>x</b>", task="parse")
        wait([failing], timeout=30)
        words = read(failing._repr_html_()).words
    assert words.strip().startswith("failed · parse")
    assert "ValueError: invalid literal for int() with base 10: '<b>x</b>'" in words
    done = read(held._repr_html_()).words
    assert done.strip().startswith("completed · held")
    assert "Result True" in done
    assert "Took" in done
    assert f"Worker {held.worker}" in done


def test_a_process_is_a_notebook_where_ipython_has_a_kernel():
    class Shell:
        kernel = object()

    class IPython:
        get_ipython = staticmethod(Shell)

    assert not in_notebook({})
    assert not in_notebook({"IPython": IPython})
    assert in_notebook({"IPython": IPython, "ipykernel": object()})
    assert not in_notebook({"IPython": object(), "ipykernel": object()})


def test_the_display_changes_nothing_in_a_results_json(tmp_path):
    report = report_on(Run(make_run(tmp_path, lives(5))))
    assert "_repr_html_" not in msgspec.json.decode(msgspec.json.encode(report))
    assert Path(report.run.run_id)
