"""Parts of a page that are brought up to date in place: only what has changed is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nicegui import ui

from flightlog.web.frame import heading, words
from flightlog.web.run_view import Told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flightlog.web.run_view import Row, Tile

Column = tuple[str, str, str]
"""The field, the heading, and `text`, `toned` (in the tone of its row), `number` (with its text beside it), `quiet` or
`time`.
"""
ROWS = 12
_CELL = (
    "<q-td :props=\"props\" :class=\"props.row.tone ? 'fl-' + props.row.tone : ''\">{{ props.value }}</q-td>"
)


class Section:
    """A card with a heading, which is there only while there is something in it."""

    def __init__(self, title: str, name: str) -> None:
        self._card = ui.element("section").classes("fl-card fl-live").props(f"data-section={name}")
        with self._card, ui.element("div").classes("fl-live-title"):
            heading(title)
            self._note = words("", "fl-quiet")
        self._card.set_visibility(False)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """What is made within stands in it."""
        with self._card:
            yield

    def show(self, there: bool, note: str = "") -> None:
        """Show or hide it; `note` stands beside the heading."""
        if self._card.visible != there:
            self._card.set_visibility(there)
        set_text(self._note, note)


def set_text(label: ui.label, text: str) -> None:
    """Change a text, if it is another."""
    if label.text != text:
        label.set_text(text)


def set_prop(element: ui.element, name: str, value: str) -> None:
    """Change an attribute, if it is another. Values are data: they are never parsed."""
    if element.props.get(name) != value:
        element.props[name] = value


class Table:
    """A table that keeps how a viewer has sorted it and which page is open."""

    def __init__(self, title: str, name: str, columns: Sequence[Column], *, sort: str | None = None) -> None:
        self._section = Section(title, name)
        self._rows: list[Row] = []
        self._columns = [field for field, _, _ in columns]
        pagination: dict[str, Any] = {"rowsPerPage": ROWS}
        if sort is not None:
            pagination |= {"sortBy": sort, "descending": True}
        with self._section():
            self._table = (
                ui.table(
                    rows=[],
                    columns=[_column(*column) for column in columns],
                    row_key="id",
                    pagination=pagination,
                )
                .props("flat dense :rows-per-page-options='[12,50,200]'")
                .classes("fl-runs fl-live-table")
            )
            for field, _, kind in columns:
                if kind == "toned":
                    self._table.add_slot(f"body-cell-{field}", _CELL)

    def update(self, rows: list[Row], note: str = "") -> None:
        """Show these rows; columns with nothing in them are left out."""
        self._section.show(bool(rows), note)
        if rows == self._rows:
            return
        self._rows = rows
        self._table.rows = rows
        self._table.props.set_bool("hide-bottom", len(rows) <= ROWS)
        there = [name for name in self._columns if any(row[name] not in {"", None} for row in rows)]
        if self._table.props.get("visible-columns") != there:
            self._table.props["visible-columns"] = there


def _column(field: str, label: str, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": field, "label": label, "field": field, "sortable": True, "align": "right" if kind == "number" else "left",
        "classes": {"quiet": "fl-live-quiet", "time": "fl-live-quiet fl-live-time"}.get(kind, ""),
    }  # fmt: skip
    if kind == "number":
        made[":format"] = f"(value, row) => row.{field}_text"
    return made


class Feed:
    """Items with the newest first; those that stay are left alone, so that what a viewer has opened stays open."""

    def __init__(self, title: str, name: str, make: Callable[[Told, Feed], ui.element], classes: str) -> None:
        self._section = Section(title, name)
        self._make = make
        self._items: list[Told] = []
        self._shown: dict[str, ui.element] = {}
        with self._section():
            self._place = ui.element("div").classes(classes)

    def update(self, items: list[Told], note: str = "") -> None:
        """Show these items."""
        self._section.show(bool(items), note)
        if items == self._items:
            return
        before, self._items = {item.key: item for item in self._items}, items
        now = {item.key: item for item in items}
        for key in [key for key in self._shown if now.get(key) != before.get(key)]:
            self._place.remove(self._shown.pop(key))
        for place, item in enumerate(items):
            if item.key not in self._shown:
                with self._place:
                    made = self._shown[item.key] = self._make(item, self)
                if place < len(self._shown) - 1:
                    made.move(self._place, target_index=place)

    def item(self, key: str) -> Told | None:
        """An item that is shown."""
        return next((item for item in self._items if item.key == key), None)


def failure(item: Told, feed: Feed) -> ui.element:
    """A failure in two lines, with its traceback behind a click: it is sent when it is asked for."""
    opened = ui.element("details").classes("fl-failure").props("data-failure")
    with opened:
        with ui.element("summary"):
            words(item.text, f"fl-{item.tone}")
            words(f"{item.at} · {item.about}", "fl-quiet fl-live-small")
        place = ui.element("div")

    def fill() -> None:
        found = feed.item(item.key)
        if found is not None and not place.default_slot.children:
            with place:
                ui.label(found.details or "no traceback was recorded").classes("fl-trace")

    opened.on("toggle", fill)
    return opened


def log_line(item: Told, _feed: Feed) -> ui.element:
    """A line of the log."""
    with ui.element("div").classes("fl-log").props("data-log") as made:
        words(item.at[11:19] if len(item.at) > 19 else item.at, "fl-quiet fl-mono")
        words(item.about, "fl-quiet fl-live-small")
        words(item.text, f"fl-{item.tone}" if item.tone else "")
    return made


class Tiles:
    """The figures of the headline."""

    def __init__(self) -> None:
        self._place = ui.element("dl").classes("fl-tiles")
        self._shown: dict[str, tuple[ui.label, ui.element, ui.label]] = {}

    def update(self, tiles: Sequence[Tile]) -> None:
        """Show these."""
        if [tile.path for tile in tiles] != list(self._shown):
            self._place.clear()
            self._shown = {}
            with self._place:
                for tile in tiles:
                    with ui.element("div").classes("fl-tile"):
                        with ui.element("dt"):
                            label = ui.label(tile.label)
                        with ui.element("dd") as figure:
                            text = ui.label(tile.text)
                    set_prop(figure, "data-path", tile.path)
                    self._shown[tile.path] = (label, figure, text)
        for tile in tiles:
            label, figure, text = self._shown[tile.path]
            set_text(label, tile.label)
            set_text(text, tile.text)
            set_prop(figure, "data-value", tile.value)
            set_prop(figure, "data-tone", tile.tone)


class Drawing:
    """A figure, which is drawn again only where it has changed, and not before the browser has drawn it once.

    A browser that was told to draw again before it has Plotly would complain.
    """

    def __init__(self, title: str, name: str) -> None:
        self._section = Section(title, name)
        self._name = name
        self._figure: dict[str, Any] | None = None
        self._plot: ui.plotly | None = None
        self._ready = False

    def update(self, figure: dict[str, Any] | None, note: str) -> None:
        """Show this figure, with a note beside its title; None hides it."""
        self._section.show(figure is not None, note)
        if figure is None or figure == self._figure:
            return
        self._figure = figure
        if self._plot is None:
            with self._section():
                self._plot = (
                    ui.plotly(figure).classes("fl-figure fl-live-figure").props(f"data-figure={self._name}")
                )
            self._plot._update_method = None
            self._plot.on("plotly_afterplot", self._drawn, args=[])
            self._fit(self._plot, figure)
        elif self._ready:
            self._draw_again(self._plot, figure)

    def _drawn(self) -> None:
        if not self._ready and self._plot is not None and self._figure is not None:
            self._ready = True
            self._plot._update_method = "update"
            if self._plot.figure is not self._figure:
                self._draw_again(self._plot, self._figure)

    def _draw_again(self, plot: ui.plotly, figure: dict[str, Any]) -> None:
        plot.update_figure(figure)
        self._fit(plot, figure)

    def _fit(self, plot: ui.plotly, figure: dict[str, Any]) -> None:
        plot.style(f"height: {figure['layout'].get('height', 300)}px; min-height: 0")
