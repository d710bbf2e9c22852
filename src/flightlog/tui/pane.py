"""One pane of the live view: a table that keeps its cursor while rows change, and plots below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable, Static

from flightlog.show.live import LiveRow, Pane, arranged, widths

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

    class Opened(Message):
        """Somebody wants to know all about a row."""

        def __init__(self, about: Struct) -> None:
            self.about = about
            super().__init__()

    def __init__(self, *, name: str, ascii_only: bool = False) -> None:
        super().__init__(name=name)
        self._marks = ("^", "v") if ascii_only else ("▲", "▼")
        self._pane: Pane | None = None
        self._by: int | None = None
        self._reverse = False
        self._having = ""
        self._rows: list[LiveRow] = []
        self._head: list[tuple[str, int]] = []

    def compose(self) -> ComposeResult:
        """The table, what is said in its place, and the plots."""
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

    def sort_next(self) -> str:
        """Sort by the next column, after the last one as it comes; says which."""
        columns = self._pane.columns if self._pane else ()
        by = 0 if self._by is None else self._by + 1
        return self._sort(by if by < len(columns) else None)

    def sort_by(self, by: int) -> str:
        """Sort by a column, the other way round the second time; says which."""
        if by == self._by:
            return self.turn_around()
        return self._sort(by)

    def _sort(self, by: int | None) -> str:
        columns = self._pane.columns if self._pane else ()
        self._by = by
        self._reverse = by is not None and columns[by].right  # of numbers the largest first
        self._fill()
        return "as it comes" if by is None else columns[by].title

    def turn_around(self) -> str:
        """The other way round."""
        self._reverse = not self._reverse
        self._fill()
        return "the other way round"

    def narrow(self, having: str) -> None:
        """Only rows that have this text in them; all for none."""
        self._having = having
        self._fill()

    def on_resize(self) -> None:
        """Columns are cut to the new width."""
        self._fill()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a title sorts."""
        event.stop()
        self.sort_by(event.column_index)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row that is marked, opens it."""
        event.stop()
        found = next((row for row in self._rows if row.key == event.row_key.value), None)
        if found is not None:
            self.post_message(self.Opened(found.about))

    def _fill(self) -> None:
        if self._pane is None or not self.is_mounted:
            return
        rows = _unlike(arranged(self._pane, by=self._by, reverse=self._reverse, having=self._having))
        sizes = widths(self._pane, rows, max(self.size.width, 40) - 2, PADDING)
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
        said = f"No row has {self._having!r} in it." if self._having and self._pane.rows else self._pane.empty
        say(empty, Text(said))

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


def _unlike(rows: Sequence[LiveRow]) -> list[LiveRow]:
    """The rows, of those with one key the first: a run may say the same thing twice."""
    return list({row.key: row for row in reversed(rows)}.values())[::-1]
