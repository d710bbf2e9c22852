"""The list of runs: filtering, sorting, paging, and updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict, replace
from nicegui import events, ui

from flightlog.show.phrases import moment_text
from flightlog.show.runs import run_duration, run_tasks
from flightlog.show.terminal import brief
from flightlog.web import web_file
from flightlog.web.dashboard import STATUSES, Dashboard, Listing, RunRow
from flightlog.web.layout import heading, page_layout, words
from flightlog.web.limits import WebLimits

APPEAR = "Runs that are recorded there appear automatically."
_COLUMNS = (
    ("status", "Status", "left", "fl-wide"),
    ("run", "Run", "left", ""),
    ("started", "Started (UTC)", "left", "fl-wide"),
    ("duration", "Duration", "right", ""),
    ("tasks", "Tasks", "left", "fl-wide"),
    ("host", "Host", "left", "fl-wide"),
)


def shown(row: RunRow) -> dict[str, Any]:
    """A run as sent to the browser: texts only."""
    entry = row.entry
    ended, of = (entry.tasks_completed or 0) + (entry.tasks_failed or 0), entry.tasks_submitted
    done = round(min(100.0, 100 * ended / of), 1) if row.status == "running" and of else None
    return {
        "key": row.key,
        "run": row.run_id,
        "project": brief(row.project, 80),
        "status": row.status if row.status in STATUSES else "unknown",
        "started": moment_text(entry.start_time)[:16],
        "duration": run_duration(entry),
        "tasks": run_tasks(entry),
        "done": done,
        "host": row.host or "",
        "error": row.error or "",
        "tags": [brief(tag, 40) for tag in row.tags[:6]] or None,
    }


class RunsPage:
    """The list as one viewer sees it."""

    def __init__(self, dashboard: Dashboard, listing: Listing, wanted: RunFilter) -> None:
        self._dashboard, self._listing, self.wanted = dashboard, listing, wanted
        self._rows: list[dict[str, Any]] = []
        self._noted: list[str] = []
        with ui.element("div").classes("fl-title"):
            heading("Runs", level=1)
            self._count = words("", "fl-quiet")
        self._filters()
        self._notes = ui.element("div")
        with ui.element("div").classes("fl-ticked"):
            self._ticked = words("", "fl-quiet")
            self._compare = ui.button("Compare", on_click=self._go, color=None).props(
                "id=compare-runs no-caps outline dense padding='4px 14px'"
            )
            self._clear = ui.button("Clear", on_click=self._untick, color=None).props(
                "flat no-caps dense padding='4px 10px'"
            )
        self._table = self._make_table()
        self._draw()
        self._tick()
        ui.timer(WebLimits.run_list_interval_s, self._refresh)

    def _offered(self, name: str) -> list[str]:
        """The options: all existing values, and the current choice."""
        rows = self._listing.rows
        found = (
            {row.project for row in rows} if name == "project" else {tag for row in rows for tag in row.tags}
        )
        chosen = getattr(self.wanted, name)
        return sorted({*sorted(found - {""})[: WebLimits.max_offered_choices], *([chosen] if chosen else [])})

    def _filters(self) -> None:
        with ui.element("div").classes("fl-filters"):
            ui.input("Search", value=self.wanted.text, on_change=self._ask("text")).props(
                "outlined dense clearable debounce=250 for=filter-text type=search"
            )
            self._project = self._select("Project", "project", self._offered("project"))
            self._select("Status", "status", list(STATUSES))
            self._tag = self._select("Tag", "tag", self._offered("tag"))
            for label, name in (("From", "since"), ("To", "until")):
                ui.input(label, value=getattr(self.wanted, name), on_change=self._ask(name)).props(
                    f"outlined dense type=date stack-label for=filter-{name}"
                )

    def _select(self, label: str, name: str, options: list[str]) -> ui.select:
        value = getattr(self.wanted, name)
        return ui.select(
            options,
            label=label,
            value=value if value and value in options else None,
            with_input=len(options) > 12,
            clearable=True,
            on_change=self._ask(name),
        ).props(f"outlined dense options-dense for=filter-{name}")

    def _ask(self, name: str) -> Callable[[events.ValueChangeEventArguments[Any]], None]:
        def ask(event: events.ValueChangeEventArguments[Any]) -> None:
            self.wanted = replace(self.wanted, page=1, **{name: str(event.value or "")})
            self._draw()
            ui.navigate.history.replace(address_of(self.wanted))

        return ask

    def _make_table(self) -> ui.table:
        fields = ("name", "field", "label", "align", "headerClasses", "sortable")
        columns = [
            dict(zip(fields, (name, name, *rest, name != "host"), strict=True)) for name, *rest in _COLUMNS
        ]
        table = ui.table(
            rows=[],
            columns=columns,
            row_key="key",
            selection="multiple",
            pagination=self._pagination(0),
            on_select=self._tick,
        )
        table.add_slot("body", web_file("runs_row.vue.html"))
        table.add_slot("header-cell", web_file("runs_heading.vue.html"))
        table.add_slot("header-selection", "<span></span>")  # two can be compared, and not all
        table.props("flat binary-state-sort :rows-per-page-options='[25,50,100]'").classes("fl-runs")
        with table.add_slot("no-data"):
            self._nothing = ui.label("").classes("fl-nothing")
        table.on("request", self._request)
        return table

    def _pagination(self, total: int) -> dict[str, Any]:
        wanted = self.wanted
        return {
            "page": wanted.page,
            "rowsPerPage": wanted.per_page,
            "rowsNumber": total,
            "sortBy": wanted.order,
            "descending": wanted.descending,
        }

    def _request(self, event: events.GenericEventArguments) -> None:
        asked = event.args["pagination"]
        order = asked.get("sortBy")
        known = {name for name, *_ in _COLUMNS} - {"host"}
        self.wanted = replace(
            self.wanted,
            page=int(asked.get("page") or 1),
            per_page=min(100, int(asked.get("rowsPerPage") or 25)),
            order=order if order in known else "started",
            descending=bool(asked.get("descending")) if order else True,
        )
        self._draw()

    def _draw(self) -> None:
        chosen = choose(self._listing.rows, self.wanted)
        self.wanted = replace(self.wanted, page=chosen.page)
        rows, pagination = [shown(row) for row in chosen.rows], self._pagination(chosen.total)
        if rows != self._rows or pagination != self._table.pagination:
            self._rows = rows
            self._table.rows, self._table.pagination = rows, pagination
        everything = len(self._listing.rows)
        of = "" if chosen.total == everything else f" of {everything:,}"
        _set(self._count, f"{chosen.total:,}{of} in {self._listing.place}")
        none = f"There are no runs in {self._listing.place} yet."
        _set(self._nothing, "No run matches." if everything else f"{none} {APPEAR}")
        notes = [*self._listing.notes, *([chosen.problem] if chosen.problem else [])]
        if notes != self._noted:
            self._noted = notes
            self._notes.clear()
            with self._notes:
                for note in notes:
                    words(brief(note, WebLimits.max_note_chars), "fl-warn")

    async def _refresh(self) -> None:
        listing = await self._dashboard.listing()
        if listing is not self._listing:
            self._listing = listing
            for select, name in ((self._project, "project"), (self._tag, "tag")):
                options = self._offered(name)
                if options != select.options:
                    select.set_options(options, value=select.value)
            self._draw()

    def _tick(self) -> None:
        ticked = self._table.selected
        self._compare.set_enabled(len(ticked) == 2)
        self._clear.set_visibility(bool(ticked))
        said = (
            "Tick two runs to compare them.",
            "One run is ticked: tick another to compare them.",
            "Two runs are ticked.",
            f"{len(ticked)} runs are ticked: two can be compared.",
        )
        _set(self._ticked, said[min(len(ticked), 3)])

    def _untick(self) -> None:
        self._table.selected = []
        self._tick()

    def _go(self) -> None:
        address = compare_address(self._listing, [str(row["key"]) for row in self._table.selected])
        if address is not None:
            ui.navigate.to(address)


def compare_address(listing: Listing, keys: Sequence[str]) -> str | None:
    """The address of the comparison of two runs, the older one first; None for another number of runs, or
    where one was removed.
    """
    rows = [row for key in keys if (row := listing.find(key)) is not None]
    if len(rows) != 2:
        return None
    before, after = sorted(rows, key=lambda row: (row.started or 0.0, row.run_id))
    return f"/compare?{urlencode({'a': before.key, 'b': after.key})}"


def _set(label: ui.label, text: str) -> None:
    if label.text != text:
        label.set_text(text)


def address_of(wanted: RunFilter) -> str:
    """The address of the list with these filters."""
    texts = {
        name: value
        for name, value in asdict(wanted).items()
        if isinstance(value, str) and value and name != "order"
    }
    return f"/?{urlencode(texts)}" if texts else "/"


async def runs_page(dashboard: Dashboard, query: Mapping[str, str]) -> None:
    """The page at `/`."""
    with page_layout("runs", "Runs"):
        RunsPage(dashboard, await dashboard.listing(), wanted_of(query))


Order = Literal["started", "project", "run", "status", "duration", "tasks"]


class RunFilter(Struct, frozen=True, kw_only=True):
    """The filter; empty texts match everything. Dates are days in UTC, both inclusive."""

    project: str = ""
    status: str = ""
    tag: str = ""
    text: str = ""
    """Words that must all occur in the run's name, project, host, target, commit, tags or error."""
    since: str = ""
    until: str = ""
    order: Order = "started"
    descending: bool = True
    page: int = 1
    per_page: int = WebLimits.runs_per_page


class RunSelection(Struct, frozen=True, kw_only=True):
    """One page of the filtered runs."""

    rows: tuple[RunRow, ...]
    total: int
    page: int
    problem: str | None
    """Problems of the filter; invalid parts were ignored."""


def wanted_of(query: Mapping[str, str]) -> RunFilter:
    """The filter of an address's query; unknown names and invalid values are ignored."""
    texts = ("project", "status", "tag", "text", "since", "until")
    order = query.get("order", "started")
    wanted: dict[str, Any] = {name: query.get(name, "")[:200] for name in texts}
    wanted["order"] = order if order in _ORDERS else "started"
    return RunFilter(**wanted, descending=query.get("descending", "1") != "0")


def choose(rows: Sequence[RunRow], wanted: RunFilter) -> RunSelection:
    """The requested page, or the last one where there are fewer. Unknown values sort last in any order."""
    since, until, problem = _days(wanted)
    words = wanted.text.lower().split()
    found = [
        row
        for row in rows
        if (not wanted.project or row.project == wanted.project)
        and (not wanted.status or row.status == wanted.status)
        and (not wanted.tag or wanted.tag in row.tags)
        and (since is None or (row.started is not None and row.started >= since))
        and (until is None or (row.started is not None and row.started < until))
        and _has(row, words)
    ]
    key = _ORDERS[wanted.order]
    known = [row for row in found if key(row) is not None]
    known.sort(key=key, reverse=wanted.descending)
    ordered = [*known, *(row for row in found if key(row) is None)]
    per_page = max(1, wanted.per_page)
    page = min(max(1, wanted.page), max(1, -(-len(ordered) // per_page)))
    shown = ordered[(page - 1) * per_page : page * per_page]
    return RunSelection(rows=tuple(shown), total=len(ordered), page=page, problem=problem)


def day_of(text: str) -> float | None:
    """The first second of a day, `2026-05-20`, since 1970; None if it is none."""
    try:
        return datetime.strptime(text.strip().replace("/", "-"), "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _days(wanted: RunFilter) -> tuple[float | None, float | None, str | None]:
    since, until = day_of(wanted.since), day_of(wanted.until)
    given = ((wanted.since, since), (wanted.until, until))
    wrong = any(text.strip() and found is None for text, found in given)
    after = None if until is None else until + timedelta(days=1).total_seconds()
    return since, after, "A day is written as 2026-05-20." if wrong else None


def _has(row: RunRow, words: Sequence[str]) -> bool:
    if not words:
        return True
    parts = (row.run_id, row.project, row.status, row.host, row.target, row.commit, row.error, *row.tags)
    text = "\n".join(part for part in parts if part).lower()
    return all(word in text for word in words)


_ORDERS: dict[str, Callable[[RunRow], Any]] = {
    "started": lambda row: None if row.started is None else (row.started, row.run_id),
    "project": lambda row: (row.project, row.started or 0.0),
    "run": lambda row: row.run_id,
    "status": lambda row: (row.status, row.started or 0.0),
    "duration": lambda row: row.entry.duration_s,
    "tasks": lambda row: row.entry.tasks_submitted or row.entry.tasks_completed,
}
