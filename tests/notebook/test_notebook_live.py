"""Displays that change: the progress of a session, and a run that is followed."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders.runs import make_run

import flightlog
from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.live.results import LiveState
from flightlog.core.errors import RunNotFound, UsageError
from flightlog.events import TaskCompleted, TaskStarted, TaskSubmitted
from flightlog.notebook import follow
from flightlog.notebook.display import display_html
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.live import PrintedDisplay, _NotebookDisplay, state_html, words_of
from flightlog.notebook.sessions import displayed
from flightlog.session.tracking import Counts
from flightlog.show.document import Paragraph, StatusLine, TableBlock


class Page:
    """What was shown, in order."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.changed = threading.Event()

    def show(self, html: str) -> Page:
        self.update(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)
        self.changed.set()


def test_the_progress_is_drawn_while_somebody_waits_and_once_more_at_the_end():
    page, counts = Page(), Counts(submitted=4, completed=1)
    with displayed(lambda: counts, show=page.show, every_s=0.001):
        assert page.changed.wait(30)
        counts.completed, counts.failed = 3, 1
    assert "1 of 4 tasks" in page.shown[0]
    assert "4 of 4 tasks" in page.shown[-1]
    assert "1 failed" in page.shown[-1]


def test_what_is_over_at_once_is_not_drawn():
    page = Page()
    with displayed(Counts, show=page.show, every_s=60.0):
        pass
    assert page.shown == []


def test_a_display_that_fails_is_said_once_and_the_tasks_go_on(caplog):
    tried = threading.Event()

    def refuse(_html: str) -> Page:
        tried.set()
        raise OSError("no front end")

    with caplog.at_level(logging.WARNING, "flightlog"), displayed(Counts, show=refuse, every_s=0.001):
        assert tried.wait(30)
    assert [record.message for record in caplog.records] == [
        "the progress of the session cannot be displayed"
    ]


def lives(number: int):
    for n in range(number):
        ids = {"task": "simulate", "task_id": f"t{n}", "span_id": f"s{n}"}
        yield TaskSubmitted(args={"seed": n}, **ids)
        yield TaskStarted(worker="w1", queue_s=0.0, **ids)
        yield TaskCompleted(worker="w1", duration_s=0.01, queue_s=0.0, args={"seed": n}, **ids)


def states(path: Path, *changes: dict) -> Callable[[Path], object]:
    """A follower that gives the run's state, changed in turn."""
    first = FollowedRun(path).update()
    left = [msgspec.structs.replace(first, **change) for change in changes]

    class Following:
        def update(self, limit_s: float | None = None) -> LiveState:
            return left.pop(0)

    return lambda _path: Following()


def test_a_run_is_followed_until_it_ends(tmp_path):
    path, page = make_run(tmp_path, lives(3)), Page()
    follower = states(
        path, {"status": "running"}, {"status": "running"}, {"status": "failed", "error": "<b>x</b>"}
    )
    follow(path, show=page.show, every_s=0.0, follower=follower)
    assert len(page.shown) == 2  # what would look the same is not sent again
    assert "running" in page.shown[0]
    assert "&lt;b&gt;x&lt;/b&gt;" in page.shown[1]
    assert "3 of 3 tasks" in page.shown[1]


def test_an_interrupt_stops_the_looking_and_nothing_else(tmp_path):
    path = make_run(tmp_path, lives(3))

    class Interrupted:
        def update(self, limit_s: float | None = None) -> LiveState:
            raise KeyboardInterrupt

    follow(path, follower=lambda _path: Interrupted())


def test_a_run_may_be_followed_while_the_cell_goes_on(tmp_path):
    path, page = make_run(tmp_path, lives(3)), Page()
    follow(path, show=page.show, wait=False)
    assert page.changed.wait(30)
    assert "3 of 3 tasks" in page.shown[0]


def test_a_recording_can_be_followed_by_itself(tmp_path):
    page = Page()
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as run:
        with run.task("first"):
            pass
        follow(run, show=page.show, wait=False, every_s=0.01)
        assert page.changed.wait(30)
        assert "running" in page.shown[0]


def test_the_display_stands_in_the_cell_that_asked_for_it(tmp_path):
    path, shown_by = make_run(tmp_path, lives(3)), []

    def show(_html: str) -> Page:
        shown_by.append(threading.current_thread())
        return Page()

    follow(path, show=show, wait=False)
    assert shown_by == [threading.current_thread()]  # what another thread shows after the cell's end is lost


def test_a_large_run_is_shown_while_it_is_still_read(tmp_path):
    path, page = make_run(tmp_path, lives(3)), Page()
    follow(path, show=page.show, every_s=0.0, follower=states(path, {"reading": 0.25}, {"reading": None}))
    assert ["25% read so far" in html for html in page.shown] == [True, False]


def test_what_cannot_be_a_run_is_said_in_words():
    with pytest.raises(
        UsageError, match=r"^int is no run: give one that is opened, its id, its path, or 'latest'$"
    ):
        follow(3)


def test_a_run_of_this_process_is_not_waited_for_unless_that_is_asked(tmp_path):
    page = Page()
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as run:
        follow(run.path, show=page.show, every_s=0.01)
        assert page.changed.wait(30)
        assert "running" in page.shown[0]


def test_what_is_no_run_is_said_at_once(tmp_path):
    with pytest.raises(RunNotFound):
        follow(tmp_path / "nothing")


def test_a_state_shows_failures_and_what_runs(tmp_path):
    path = make_run(
        tmp_path,
        [
            *lives(3),
            TaskSubmitted(task="a<b", task_id="x", args={"q": "<i>"}),
            TaskStarted(task="a<b", task_id="x", worker="w1", queue_s=0.0),
        ],
        status="crashed",
    )
    html = state_html(FollowedRun(path).update())
    assert "a&lt;b" in html
    assert "<i>" not in html
    assert "Running at the end" in html


def test_a_console_without_html_gets_the_words():
    class IPython:
        said: list[tuple[dict, dict]] = []

        def display(self, bundle, **options):
            self.said.append((bundle, options))
            return self

        def update(self, bundle, **options):
            self.said.append((bundle, options))

    front_end = IPython()
    shown = _NotebookDisplay(front_end, "<div><b>3 of 4</b> tasks</div>")
    shown.update("<div>a &lt; b</div>")
    assert front_end.said == [
        (
            {"text/html": "<div><b>3 of 4</b> tasks</div>", "text/plain": "3 of 4 tasks"},
            {"raw": True, "display_id": True},
        ),
        ({"text/html": "<div>a &lt; b</div>", "text/plain": "a < b"}, {"raw": True}),
    ]


def test_a_console_prints_all_once_then_a_line_now_and_then_and_one_for_each_status():
    said, now = [], [0.0]

    def at_count(status: str, done: int) -> str:
        return display_html(StatusLine([status, f"{done} of 9 tasks"], "good"), Paragraph("two workers"))

    shown = PrintedDisplay(at_count("running", 0), write=said.append, clock=lambda: now[0])
    shown.update(at_count("running", 1))
    now[0] = NotebookLimits.print_interval_s
    shown.update(at_count("running", 2))
    shown.update(at_count("running", 3))
    shown.update(at_count("completed", 9))
    assert said == [
        "running · 0 of 9 tasks\ntwo workers\n",
        "running · 2 of 9 tasks\n",
        "completed · 9 of 9 tasks\n",
    ]


def test_words_of_a_display_stand_in_its_lines_and_what_a_run_said_is_no_markup():
    html = display_html(TableBlock(("Task", "Since"), [("<b>x</b>\n&amp;", "2 s"), ("y", "3 s")]))
    assert words_of(html).splitlines() == ["Task Since", "<b>x</b>\\n&amp; 2 s", "y 3 s"]


def test_a_run_is_followed_in_a_console(tmp_path, capsys):
    follow(make_run(tmp_path, lives(3)))
    assert capsys.readouterr().out.startswith("completed · demo · 3 of 3 tasks")


def test_a_console_without_unicode_gets_escapes_at_once(tmp_path, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    follow(make_run(tmp_path, lives(3)))
    assert written.getvalue().startswith(rb"completed \xb7 demo \xb7 3 of 3 tasks")
