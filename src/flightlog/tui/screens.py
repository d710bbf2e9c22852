"""Screens over the live view: details of a row, the list of runs, the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from flightlog.core.units import format_count, format_duration
from flightlog.show.phrases import moment_text
from flightlog.show.terminal import brief, cut_middle

if TYPE_CHECKING:
    from flightlog.store.catalogue import RunEntry

WIDE, NAME, END = 100, 40, 8
"""Columns of a terminal that has room for the time at which a run started, those of a run's id, and of its
end at least."""
BESIDE = 42
"""Columns that the rest of the list takes in a narrow terminal."""
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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "Close"),
    ]

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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,r", "dismiss(None)", "Close"),
    ]

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
