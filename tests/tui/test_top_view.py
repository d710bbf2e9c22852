"""The live view: what it shows, and what its keys do."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from driving import column, drive, head, opened, press, shown, titles, until
from states import NOTHING, STATE, Still, changed, top

from flightlog.show.live import IN_TERMINAL, head_lines
from flightlog.store.catalogue import RunEntry
from flightlog.tui.app import TopApp

PANES = list(IN_TERMINAL)


def test_the_head_says_which_run_how_far_it_is_and_how_busy() -> None:
    async def play(pilot, app):
        assert head(app).splitlines() == [
            "run-20260520T035200Z-demo-a1b2c3d4 · running · 2m 05s · on node-1 · $0.42",
            "[███████░░░░░] 120 of 200 (60%) · 3 failed · about 64 s left (50 to 90)",
            "concurrency ▃▅▅████ 4  CPU ▁▁▆▆██▄█ 1.9 cores  memory ▁▁▂▂▂▅▅█ 12.0 GiB",
        ]

    drive(top(), play, size=(80, 24))


def test_each_number_leads_to_its_pane_and_arrows_to_the_next() -> None:
    async def play(pilot, app):
        first = []
        for key in "123456789":
            await press(pilot, key)
            first.append(column(app)[0])
        assert first == [
            "simulate",
            "simulate(n=9)",
            "node-1-0",
            "node-1",
            "GPU 0",
            "03:52:41",
            "simulate(n=4)",
            "prepare",
            "03:52:41",
        ]
        await press(pilot, "right")
        assert column(app) == ["simulate", "reduce"]
        await press(pilot, "left")
        assert column(app) == ["03:52:41", "03:52:01"]

    drive(top(), play)


def test_what_may_be_stuck_stands_first_and_says_so() -> None:
    async def play(pilot, app):
        await press(pilot, "2")
        assert column(app, 3) == ["may be stuck", "", ""]
        assert column(app)[2] == "load(file=a.nc)"

    drive(top(), play)


def test_s_sorts_by_the_next_column_and_shift_s_turns_it_around() -> None:
    async def play(pilot, app):
        assert column(app) == ["simulate", "reduce"]
        await press(pilot, "s")
        assert column(app) == ["reduce", "simulate"]
        assert titles(app)[0] == "Task▲"
        await press(pilot, "S")
        assert column(app) == ["simulate", "reduce"]
        assert titles(app)[0] == "Task▼"
        await press(pilot, "s")
        assert column(app, 1) == ["180", "20"]
        assert titles(app)[:2] == ["Task", "Submitted▼"]
        await press(pilot, *"ssssss")
        assert titles(app)[0] == "Task"

    drive(top(), play)


def test_a_click_on_a_title_sorts_by_it() -> None:
    async def play(pilot, app):
        await pilot.click(app.board.table, offset=(2, 0))
        await pilot.pause()
        assert column(app) == ["reduce", "simulate"]

    drive(top(), play)


def test_what_is_unknown_stands_last_either_way() -> None:
    async def play(pilot, app):
        await press(pilot, "7", "s", "s", "s")
        assert column(app, 2) == ["500 ms", "-"]
        await press(pilot, "S")
        assert column(app, 2) == ["500 ms", "-"]

    drive(top(), play)


def test_a_filter_leaves_rows_with_the_text_and_escape_brings_all_back() -> None:
    async def play(pilot, app):
        await press(pilot, "slash", *"RED", "enter")
        assert column(app) == ["reduce"]
        await press(pilot, "escape")
        assert column(app) == ["simulate", "reduce"]
        await press(pilot, "slash", *"nosuch")
        assert column(app) == []
        assert "No row has 'nosuch' in it." in shown(app)

    drive(top(), play)


def test_a_filter_goes_for_the_pane_one_turns_to() -> None:
    async def play(pilot, app):
        await press(pilot, "slash", *"negative", "enter", "6")
        assert column(app) == ["03:52:41"]
        await press(pilot, "escape")
        assert column(app) == ["03:52:41", "03:52:12"]

    drive(top(), play)


def test_until_another_run_has_been_read_nothing_of_the_former_is_shown() -> None:
    read = threading.Event()

    class Slow:
        def update(self, limit_s=None):
            read.wait()
            return NOTHING

    app = TopApp(
        Path("run-1"),
        open_live=lambda path: Still(STATE) if path == Path("run-1") else Slow(),
        runs=list,
        interval_s=3600.0,
    )

    async def play(pilot, app):
        await press(pilot, "4")
        app._watch(Path("run-2"))
        await pilot.pause()
        assert head(app) == "Reading the run …"
        assert (column(app), "node-1" in shown(app)) == ([], False)
        read.set()
        await until(pilot, lambda: app.state is NOTHING)
        assert "No machine has been sampled." in shown(app)

    drive(app, play)


def test_enter_opens_a_failure_with_its_traceback() -> None:
    async def play(pilot, app):
        await press(pilot, "6", "enter")
        assert opened(app).splitlines() == [
            "At:           2026-05-20 03:52:41 UTC",
            "Task:         simulate",
            "Id:           t7",
            "Attempt:      1",
            "Arguments:    n=7",
            "Worker:       node-1-0",
            "Error:        ValueError",
            "Retried:      no",
            "Fingerprint:  abc",
            "",
            "negative population",
            "",
            "Traceback (most recent call last):",
            '  File "model.py", line 7, in step',
            "ValueError: negative population",
        ]
        await press(pilot, "escape")
        assert column(app)[0] == "03:52:41"

    drive(top(), play)


def test_enter_opens_the_task_under_the_cursor() -> None:
    async def play(pilot, app):
        await press(pilot, "2", "down", "enter")
        assert "Id:            t1" in opened(app)

    drive(top(), play)


def test_a_pause_keeps_what_is_shown_and_going_on_reads_at_once() -> None:
    later = changed(STATE, status="completed", changed=2)

    async def play(pilot, app):
        await press(pilot, "p")
        assert "running · 2m 05s · paused" in head(app)
        await press(pilot, "p")
        await until(pilot, lambda: "completed · 2m 05s · on" in head(app))

    drive(top(STATE, later), play)


def test_another_run_is_chosen_from_the_list() -> None:
    other = changed(NOTHING, run_id="run-20260520T040000Z-other-00000001")

    def entry(name: str) -> RunEntry:
        return RunEntry(Path(name), name, "demo", "running", None, None, None, None, None, None, None)

    app = TopApp(
        Path("run-1"),
        open_live=lambda path: Still(STATE if path == Path("run-1") else other),
        runs=lambda: [entry("run-2"), entry("run-1")],
        interval_s=3600.0,
    )

    async def play(pilot, app):
        from textual.widgets import DataTable

        await press(pilot, "r")
        await until(pilot, lambda: app.screen.query_one(DataTable).row_count == 2)
        assert app.screen.query_one(DataTable).cursor_row == 1
        await press(pilot, "up", "enter")
        await until(pilot, lambda: app.state is other)
        assert head(app).startswith("run-20260520T040000Z-other-00000001 · running")

    drive(app, play)


def test_runs_that_cannot_be_listed_are_said_to_be_so() -> None:
    def runs():
        raise OSError("the disk went away")

    async def play(pilot, app):
        await press(pilot, "r")
        await until(pilot, lambda: "The runs cannot be listed: the disk went away" in shown(app))

    drive(top(runs=runs), play)


def test_the_question_mark_lists_the_keys() -> None:
    async def play(pilot, app):
        await press(pilot, "question_mark")
        assert "s, S            sort by the next column" in opened(app)
        await press(pilot, "q")
        assert column(app) == ["simulate", "reduce"]

    drive(top(), play)


def test_q_quits_also_while_a_read_hangs() -> None:
    """The reading thread waits for ever, as on a disk that does not answer; the view ends all the same."""
    hung = threading.Event()

    class Hangs:
        def update(self, limit_s=None):
            hung.set()
            threading.Event().wait()

    app = TopApp(Path("run-1"), open_live=lambda _: Hangs(), runs=list)

    import asyncio

    async def run() -> None:
        async with app.run_test() as pilot:
            await until(pilot, hung.is_set)
            assert head(app) == "Reading the run …"
            await pilot.press("q")

    asyncio.run(run())
    assert app.return_code == 0


def test_a_run_that_cannot_be_read_is_said_to_be_so_and_tried_again() -> None:
    async def play(pilot, app):
        assert head(app) == "The run cannot be read: OSError: it is gone"
        await press(pilot, "p", "p")
        await until(pilot, lambda: app.state is STATE)
        assert "cannot be read" not in head(app)

    drive(top(OSError("it is gone"), STATE), play)


def test_an_empty_run_says_in_each_pane_that_there_is_nothing() -> None:
    async def play(pilot, app):
        said = []
        for key in "123456789":
            await press(pilot, key)
            said.append(next(line.strip() for line in shown(app).splitlines() if line.strip().endswith(".")))
        assert said == [
            "No task has been submitted.",
            "No task is running.",
            "No worker is known.",
            "No machine has been sampled.",
            "No GPU has been sampled.",
            "Nothing has failed.",
            "No task has ended.",
            "No span has ended.",
            "Nothing has been recorded.",
        ]
        assert head(app).splitlines()[1] == "no task has been submitted"

    drive(top(NOTHING), play)


def test_the_cursor_stays_with_its_row_when_rows_come_before_it() -> None:
    from flightlog.analyze.live.results import LiveTaskName

    new = LiveTaskName(name="prepare", submitted=1, completed=0, failed=0, running=0, mean_s=None, max_s=None)
    later = changed(STATE, names=[new, *STATE.names])

    async def play(pilot, app):
        await press(pilot, "down")
        await press(pilot, "p", "p")
        await until(pilot, lambda: app.state is later)
        assert column(app) == ["prepare", "simulate", "reduce"]
        assert app.board.table.cursor_row == 2

    drive(top(STATE, later), play)


def test_problems_of_the_recording_stand_under_the_head() -> None:
    state = changed(STATE, problems=["3 lines could not be read"], error="killed")

    async def play(pilot, app):
        assert head(app).splitlines()[3:] == ["! killed", "! 3 lines could not be read"]

    drive(top(state), play)


def test_while_a_large_run_is_read_the_bar_is_that_of_the_reading() -> None:
    state = changed(STATE, reading=0.25, problems=["still reading: 25%", "3 lines could not be read"])
    assert head_lines(state, width=98)[1::2] == [
        "[█████░░░░░░░░░░░░░░░] 25% of the run read: 200 tasks so far",
        "! 3 lines could not be read",
    ]


def test_without_unicode_plots_bars_and_marks_are_ascii() -> None:
    async def play(pilot, app):
        await press(pilot, "s")
        assert titles(app)[0] == "Task^"
        await press(pilot, "4")
        assert head(app).isascii()
        plots = next(str(one.content) for one in app.board.query(".plots"))
        assert "#" in plots
        assert plots.isascii()

    drive(top(ascii_only=True), play)


@pytest.mark.parametrize("size", [(40, 10), (200, 60)])
def test_no_size_of_terminal_breaks_the_view_and_another_size_cuts_it_anew(size) -> None:
    async def play(pilot, app):
        for key in "3459":
            await press(pilot, key)
        await pilot.resize_terminal(90, 20)
        await until(pilot, lambda: " · on node-1 · $0.42" in head(app))
        await until(pilot, lambda: "cache" not in head(app))
        assert column(app) == ["03:52:41", "03:52:01"]

    drive(top(), play, size=size)


def test_ctrl_c_quits_also_while_a_filter_is_typed() -> None:
    app = top()

    async def play(pilot, app):
        await press(pilot, "slash", "x")
        await pilot.press("ctrl+c")

    drive(app, play)
    assert app.return_code == 0


def test_markup_escapes_and_long_names_are_text() -> None:
    from flightlog.analyze.live.results import LiveTaskName

    evil = "[bold red]x[/] [@click=app.quit]y[/] \x1b[31m\x07\u202e\n" + "n" * 10_000_000
    state = changed(
        STATE,
        run_id=f"[blink]{evil}",
        names=[
            LiveTaskName(name=evil, submitted=1, completed=0, failed=0, running=0, mean_s=1e300, max_s=None)
        ],
        problems=[evil],
        failures=[
            changed(STATE.failures[0], message=evil, traceback=evil, error_type=evil, task=evil, args=evil)
        ],  # type: ignore[arg-type]
    )

    async def play(pilot, app):
        cell = column(app)[0]
        assert cell.startswith("[bold red]x[/] [@click=app.quit]y")
        await press(pilot, "6")
        await press(pilot, "enter")
        assert "Task:         [bold red]x[/] [@click=app.quit]y[/] \\x1b[31m" in opened(app)
        assert "\x1b" not in shown(app)
        assert len(opened(app)) < 20_000

    drive(top(state), play)


def test_however_narrow_the_terminal_is_the_end_of_the_id_and_the_status_are_there() -> None:
    async def play(pilot, app):
        assert head(app).splitlines()[0] == "run-20260520T035200Z…a1b2c3d4 · running"
        await until(pilot, lambda: "q Quit  ? Help" in shown(app))

    drive(top(), play, size=(41, 16))
    for width in range(20, 120):
        first = head_lines(STATE, width=width)[0]
        assert "a1b2c3d4 · running" in first
        assert len(first) <= width


def test_workers_whose_names_differ_in_their_ends_are_told_apart_in_a_narrow_terminal() -> None:
    worker, *_ = STATE.workers
    workers = [
        msgspec.structs.replace(worker, worker=f"node-1:4711/ThreadPoolExecutor-0_{n}") for n in range(2)
    ]

    async def play(pilot, app):
        await press(pilot, "3")
        assert column(app, 0) == ["node-…or-0_0", "node-…or-0_1"]

    drive(top(changed(STATE, workers=workers)), play, size=(60, 16))


def test_of_a_run_that_is_over_the_last_sample_is_told_from_its_end() -> None:
    host, *_ = STATE.hosts

    async def play(pilot, app):
        await press(pilot, "4")
        assert column(app, 5) == ["at end", "1m 05s before"]

    hosts = [
        msgspec.structs.replace(host, host=name, seen_s=seen) for name, seen in (("a", 0.5), ("b", 65.0))
    ]
    drive(top(changed(STATE, status="completed", end_time="2026-05-20T03:54:05.000000Z", hosts=hosts)), play)


def test_the_list_of_runs_shows_how_they_stand_however_narrow_the_terminal_is() -> None:
    entries = [
        RunEntry(
            run_id=f"run-20260520T035200Z-a-rather-long-name-{token}",
            project="demo",
            status="completed",
            start_time="2026-05-20T03:52:00.000000Z",
            end_time=None,
            duration_s=61.0,
            tasks_submitted=12,
            tasks_completed=12,
            tasks_failed=0,
            size_bytes=None,
            path=Path(token),
        )
        for token in ("00000001", "00000002")
    ]

    async def play(pilot, app):
        await press(pilot, "r")
        await until(pilot, lambda: "00000002" in shown(app))
        assert "00000001  completed  1m 01s     12" in shown(app)

    app = TopApp(
        Path("00000001"), open_live=lambda _path: Still(STATE), runs=lambda: entries, interval_s=3600.0
    )
    drive(app, play, size=(44, 14))
