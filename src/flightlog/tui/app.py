"""The live view of a run in a terminal: the application, its panes (tables that keep their cursor while rows
change, with plots below) and screens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane, Tabs

from flightlog.analyze.live.follow import FollowedRun, FollowedRuns
from flightlog.core.units import format_count, format_duration
from flightlog.show import live
from flightlog.show.live import IN_TERMINAL, TABLES, LiveRow, Pane
from flightlog.show.phrases import moment_text
from flightlog.show.plot import half, plot_over_time, side_by_side, unit_label
from flightlog.show.terminal import ascii_text, brief, cut_middle

if TYPE_CHECKING:
    from flightlog.analyze.charts.results import Chart
    from flightlog.analyze.live.results import LiveState
    from flightlog.store.catalogue import RunEntry

POLL_S = 0.1
"""How often it is asked whether there is a newer state."""


class TopApp(App[None]):
    """A run as it happens. A thread reads it every `interval_s` seconds; recorded texts are never markup.

    `open_live` returns the follower of a run, `runs` lists the runs to choose from, newest first.
    """

    CSS_PATH = "top.tcss"
    TITLE = "flightlog top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("question_mark", "keys", "Help"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn_around", "Reverse", show=False),
        Binding("slash", "filter", "Filter"),
        Binding("p", "pause", "Pause"),
        Binding("r", "runs", "Runs"),
        Binding("escape", "all", "All rows", show=False),
        *(Binding(str(number), f"pane('{name}')", show=False) for number, name in enumerate(IN_TERMINAL, 1)),
    ]

    def __init__(
        self,
        path: Path,
        *,
        open_live: Callable[[Path], FollowedRun],
        runs: Callable[[], Sequence[RunEntry]],
        interval_s: float = 1.0,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.animation_level = "none"  # over a slow line every frame counts
        self.state: LiveState | None = None
        self.path = path
        self.paused = False
        self._problem: str | None = None
        self._runs, self._drawn = runs, ascii_text if ascii_only else str
        self._open_live, self._interval_s = open_live, interval_s
        self._live = self._reader()

    def _reader(self) -> FollowedRuns:
        """What reads one run; it is not forgotten, however long the view is paused."""
        return FollowedRuns(
            every_s=self._interval_s, forget_s=threading.TIMEOUT_MAX, open_run=self._open_live
        )

    def compose(self) -> ComposeResult:
        """Head, panes, filter and keys."""
        yield Static(Text("Reading the run …"), id="head", markup=False)
        with TabbedContent(initial="tasks"):
            for name in IN_TERMINAL:
                with TabPane(TABLES[name].title, id=name):
                    yield PaneView(name=name, drawn=self._drawn)
        yield Input(placeholder="only rows with this text in them", id="filter", select_on_focus=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#filter", Input).cursor_blink = False
        self.query_one(Tabs).can_focus = False
        self.board.table.focus()
        self.set_interval(POLL_S, self._poll)
        self._poll()

    def on_unmount(self) -> None:
        """Read no more; a read that hangs is not waited for."""
        self._live.close(wait_s=0.0)

    @property
    def board(self) -> PaneView:
        """The pane in front."""
        return self.query_one(f"#{self.query_one(TabbedContent).active}", TabPane).query_one(PaneView)

    def _poll(self, *, at_once: bool = False) -> None:
        """Show a newer state where there is one, unless the view is paused."""
        if self.paused:
            return
        state = self._live.state(self.path, at_once=at_once)
        problem = self._live.problem(self.path)
        if state is not self.state or problem != self._problem:
            self.state, self._problem = state, problem
            self._show()

    def on_resize(self) -> None:
        """Everything is cut to the width, which is known once the event has been dealt with."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        if not self.query("#head"):  # not there yet, or on its way out
            return
        width = max(20, self.size.width - 2)
        head = self.query_one("#head", Static)
        problem = f"The run cannot be read: {brief(self._problem)}" if self._problem else ""
        if self.state is None:
            say(head, Text(problem or "Reading the run …"))
            return
        lines = live.head_lines(self.state, width=width, remark="paused" if self.paused else "")
        lines = [*map(self._drawn, lines), *([f"! {problem}"] if problem else [])]
        say(head, _painted(lines, self.state.status))
        found = live.panes(self.state)
        tabs = self.query_one(TabbedContent)
        for name, pane in found.items():
            tab = tabs.get_tab(name)
            if tab.label_text != pane.title:
                tab.label = pane.title
        front = found[tabs.active]
        self.board.show(front, self._plots(front.table.name, self.state, width))

    def _plots(self, name: str, state: LiveState, width: int) -> list[str]:
        charts: dict[str, list[tuple[str, Chart | None]]] = {
            "resources": [("CPU", state.cpu), ("Memory", state.memory), ("Concurrency", state.concurrency)],
            "gpu": [("GPU memory, all devices together", state.device_memory)],
        }
        known = []
        for title, chart in charts.get(name, ()):
            found = live.latest_of(chart, only="running" if title == "Concurrency" else None, cells=2 * width)
            if chart is not None and found is not None:
                known.append((title, chart, *found))
        blocks = [
            plot_over_time(
                f"{title}: {said}",
                values,
                length_s=chart.length_s,
                label=unit_label(chart),
                width=half(width) if len(known) > 1 else width,
                ends=(f"-{format_duration(chart.length_s)}", "end" if state.over else "now"),
            )
            for title, chart, values, said in known
        ]
        return [self._drawn(line) for line in side_by_side(blocks, width=width)]

    def on_tabbed_content_tab_activated(self) -> None:
        """Update the pane that comes to the front, with the filter applied."""
        self.board.narrow(self.query_one("#filter", Input).value)
        self.board.table.focus()
        self._show()

    def on_pane_view_row_opened(self, event: PaneView.RowOpened) -> None:
        """Show all about a row."""
        self.push_screen(TextScreen(event.title, live.details_lines(event.about)))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow while typing."""
        self.board.narrow(event.value)

    def on_input_submitted(self) -> None:
        """Back to the rows."""
        self.board.table.focus()

    def action_turn(self, step: int) -> None:
        """Another pane."""
        tabs = self.query_one(TabbedContent)
        tabs.active = IN_TERMINAL[(IN_TERMINAL.index(tabs.active) + step) % len(IN_TERMINAL)]

    def action_pane(self, name: str) -> None:
        """Go to a pane."""
        self.query_one(TabbedContent).active = name

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.board.sort_next()

    def action_turn_around(self) -> None:
        """The other way round."""
        self.board.turn_around()

    def action_filter(self) -> None:
        """Ask for a text."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_all(self) -> None:
        """Show all rows again."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        for board in self.query(PaneView):
            board.narrow("")
        self.board.table.focus()

    def action_pause(self) -> None:
        """Pause, or go on at once."""
        self.paused = not self.paused
        self._show()
        self._poll(at_once=True)

    def action_runs(self) -> None:
        """Choose another run."""
        self.push_screen(RunsScreen(self._runs, self.path), self._watch)

    def _watch(self, path: Path | None) -> None:
        if path is None or path == self.path:
            return
        self.path, self.state, self.paused, self._problem = path, None, False, None
        self._live.close(wait_s=0.0)
        self._live = self._reader()
        for board in self.query(PaneView):
            board.forget()
        self._show()

    def action_keys(self) -> None:
        """Say which keys there are."""
        self.push_screen(TextScreen("Keys", KEYS.splitlines()))


def _painted(lines: Sequence[str], status: str) -> Text:
    """The head: the run in bold, problems in red, the status in its colour."""
    text = Text()
    for number, line in enumerate(lines):
        style = "bold" if number == 0 else "red" if line.startswith("! ") else ""
        text.append(("\n" if number else "") + line, style=style)
    tones = {"failed": "red", "crashed": "red", "interrupted": "red", "completed": "green"}
    if status in tones and (at := lines[0].find(status)) >= 0:
        text.stylize(tones[status], at, at + len(status))
    return text


STYLES = {"bad": "red", "warn": "yellow", "good": "green", "quiet": "dim", "name": "cyan"}
"""Styles of `show.terminal` in Rich's words. Without colour nothing is lost: the words say it, too."""
PADDING = 2
"""Columns around a cell."""


class PaneTable(DataTable[Text]):
    """A table of lines; left and right turn to another pane."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "app.turn(-1)", "Previous pane", show=False),
        Binding("right", "app.turn(1)", "Next pane", show=False),
    ]


class PaneView(Vertical):
    """A pane's table. Sorting and filtering stay when the state changes; the cursor stays with its row."""

    class RowOpened(Message):
        """Somebody wants to know all about a row."""

        def __init__(self, title: str, about: Struct) -> None:
            self.title, self.about = title, about
            super().__init__()

    def __init__(self, *, name: str, drawn: Callable[[str], str]) -> None:
        super().__init__(name=name)
        self._marks = drawn("▲▼")
        self._pane: Pane | None = None
        self._by: int | None = None
        self._reverse = False
        self._having = ""
        self._rows: list[LiveRow] = []
        self._head: list[tuple[str, int]] = []

    def compose(self) -> ComposeResult:
        """The table, its placeholder, and the plots."""
        yield PaneTable(cursor_type="row", zebra_stripes=False, cell_padding=PADDING // 2)
        yield Static(markup=False, classes="empty")
        yield Static(markup=False, classes="plots")

    @property
    def table(self) -> PaneTable:
        """The table."""
        return self.query_one(PaneTable)

    def show(self, pane: Pane, plots: Sequence[str] = ()) -> None:
        """Show a new state."""
        self._pane = pane
        self._fill()
        below = self.query_one(".plots", Static)
        below.display = bool(plots)
        say(below, Text("\n".join(plots)))

    def forget(self) -> None:
        """Show nothing until there is a state of another run."""
        self._pane, self._rows, self._head = None, [], []
        self.table.clear(columns=True)
        self.query_one(".plots", Static).display = False
        say(self.query_one(".empty", Static), Text())

    def sort_next(self) -> None:
        """Sort by the next column, after the last one as it comes."""
        by = 0 if self._by is None else self._by + 1
        self._sort(by if self._pane is not None and by < len(self._pane.columns) else None)

    def _sort(self, by: int | None) -> None:
        columns = self._pane.columns if self._pane else ()
        self._by = by
        self._reverse = by is not None and columns[by].right  # of numbers the largest first
        self._fill()

    def turn_around(self) -> None:
        """The other way round."""
        self._reverse = not self._reverse
        self._fill()

    def narrow(self, having: str) -> None:
        """Only rows that have this text in them; all for none."""
        self._having = having
        self._fill()

    def on_resize(self) -> None:
        """Columns are cut to the new width."""
        self._fill()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a title sorts; the second one the other way round."""
        event.stop()
        if event.column_index == self._by:
            self.turn_around()
        else:
            self._sort(event.column_index)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row that is marked, opens it."""
        event.stop()
        found = next((row for row in self._rows if row.key == event.row_key.value), None)
        if found is not None and self._pane is not None:
            self.post_message(self.RowOpened(self._pane.table.one, found.about))

    def _fill(self) -> None:
        if self._pane is None or not self.is_mounted:
            return
        rows = live.arranged(self._pane, by=self._by, reverse=self._reverse, having=self._having)
        sizes = live.widths(self._pane, rows, max(self.size.width, 40) - 2, PADDING)
        table = self.table
        head = [
            (f"{column.title}{self._marks[self._reverse] if at == self._by else ''}", size + (at == self._by))
            for at, (column, size) in enumerate(zip(self._pane.columns, sizes, strict=True))
        ]
        cells = [self._texts(row, sizes) for row in rows]
        if head == self._head and [row.key for row in rows] == [row.key for row in self._rows]:
            self._change(table, cells)
        else:
            self._replace(table, head, rows, cells)
        self._head, self._rows = head, rows
        empty = self.query_one(".empty", Static)
        empty.display = not rows
        none = self._having and self._pane.rows
        say(empty, Text(f"No row has {self._having!r} in it." if none else self._pane.table.empty))

    def _texts(self, row: LiveRow, sizes: Sequence[int]) -> list[Text]:
        assert self._pane is not None
        return [
            Text(
                column.cut(cell.text, size),
                style=STYLES.get(row.style, ""),
                justify="right" if column.right else "left",
                no_wrap=True,
            )
            for cell, size, column in zip(row.cells, sizes, self._pane.columns, strict=True)
        ]

    @staticmethod
    def _change(table: PaneTable, cells: Sequence[Sequence[Text]]) -> None:
        for at, texts in enumerate(cells):
            for column, (old, new) in enumerate(zip(table.get_row_at(at), texts, strict=True)):
                if old != new or old.style != new.style:
                    table.update_cell_at((at, column), new)  # type: ignore[arg-type]

    def _replace(
        self,
        table: PaneTable,
        head: Sequence[tuple[str, int]],
        rows: Sequence[LiveRow],
        cells: Sequence[Sequence[Text]],
    ) -> None:
        at = table.cursor_row
        marked = self._rows[at].key if 0 <= at < len(self._rows) else None
        place = table.scroll_offset
        assert self._pane is not None
        if list(head) != self._head:
            table.clear(columns=True)
            for (title, size), column in zip(head, self._pane.columns, strict=True):
                label = Text(title, justify="right" if column.right else "left", no_wrap=True)
                table.add_column(label, width=size)
        else:
            table.clear()
        for row, texts in zip(rows, cells, strict=True):
            table.add_row(*texts, key=row.key)
        keys = [row.key for row in rows]
        if at > 0 and marked in keys:  # the first line stays the first line
            table.move_cursor(row=keys.index(marked), scroll=False)
        table.scroll_to(place.x, place.y, animate=False)


def say(static: Static, text: Text) -> None:
    """Show a text, unless it is there already: each change lays out the whole screen anew."""
    if static.content != text:
        static.update(text)


WIDE, NAME, END = 100, 40, 8
"""Minimum width of a terminal that shows start times; maximum width of a run's id;
minimum width of its end.
"""
BESIDE = 42
"""Width of the other columns in a narrow terminal."""
KEYS = """\
left, right     another pane (or 1 to 9)
up, down        another row
enter           all about this row; of a failure its traceback
s, S            sort by the next column, the other way round
/               only rows with a text in them; escape shows all again
p               pause, and go on
r               another run
?               this help
q, Ctrl-C       quit"""


class TextScreen(ModalScreen[None]):
    """Text to read and scroll; any of the keys that end things closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "dismiss", "Close")]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        """The text in a frame."""
        with VerticalScroll(classes="card") as card:
            card.border_title = self._title
            card.border_subtitle = "escape closes"
            yield Static(Text("\n".join(self._lines), overflow="fold"), markup=False)

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VerticalScroll).focus()


class RunsScreen(ModalScreen[Path | None]):
    """The runs of the folder, the newest first; enter chooses one. They are listed in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,r", "dismiss(None)", "Close")]

    def __init__(self, runs: Callable[[], Sequence[RunEntry]], watched: Path) -> None:
        super().__init__()
        self._runs, self._watched = runs, watched
        self._listed: Sequence[RunEntry] = ()

    def compose(self) -> ComposeResult:
        """The list in a frame."""
        with VerticalScroll(classes="card") as card:
            card.border_title = "Runs, the newest first"
            card.border_subtitle = "enter chooses, escape closes"
            yield DataTable[Text](cursor_type="row", cell_padding=1)
            yield Static("Reading the list …", markup=False)

    def on_mount(self) -> None:
        """Ask for the list."""
        self.query_one(DataTable).focus()
        self._list()

    @work(thread=True)
    def _list(self) -> None:
        try:
            found, said = list(self._runs())[:200], ""
        except Exception as error:  # noqa: BLE001 - said where the list would stand
            found, said = [], f"The runs cannot be listed: {brief(str(error))}"
        self.app.call_from_thread(self._fill, found, said)

    def _fill(self, found: Sequence[RunEntry], said: str) -> None:
        self._listed = found
        table = self.query_one(DataTable)
        columns = 5 if self.app.size.width >= WIDE else 4  # the id says when it started, too
        name = max(END, min(NAME, self.app.size.width - BESIDE))
        for title in ("Run", "Status", "Took", "Tasks", "Started")[:columns]:
            table.add_column(Text(title, justify="right" if title in {"Took", "Tasks"} else "left"))
        for number, one in enumerate(found):
            took = "-" if one.duration_s is None else format_duration(one.duration_s)
            tasks = "-" if one.tasks_submitted is None else format_count(one.tasks_submitted)
            cells = (
                Text(cut_middle(brief(one.run_id), name, END)),
                Text(brief(one.status, 12)),
                Text(took, justify="right"),
                Text(tasks, justify="right"),
                Text(moment_text(one.start_time)),
            )
            table.add_row(*cells[:columns], key=str(number))
        at = next((number for number, one in enumerate(found) if one.path == self._watched), 0)
        table.move_cursor(row=at)
        self.query_one(Static).update(Text(said or ("" if found else "There are no runs.")))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter chooses."""
        event.stop()
        if event.row_key.value is not None:
            self.dismiss(self._listed[int(event.row_key.value)].path)
