"""Which of the runs a viewer wants to see, in which order, and a page of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

from flightlog.web.listing import Row

PER_PAGE = 25
Order = Literal["started", "project", "run", "status", "duration", "tasks"]


class Wanted(Struct, frozen=True, kw_only=True):
    """What is asked for; empty texts ask for nothing. Dates are days, UTC, both counted in."""

    project: str = ""
    status: str = ""
    tag: str = ""
    text: str = ""
    """Words that have to stand, all of them, in the run's name, project, host, target, commit, tags or
    error."""
    since: str = ""
    until: str = ""
    order: Order = "started"
    descending: bool = True
    page: int = 1
    per_page: int = PER_PAGE


class Chosen(Struct, frozen=True, kw_only=True):
    """One page of what was asked for."""

    rows: tuple[Row, ...]
    total: int
    page: int
    problem: str | None
    """What is wrong with what was asked for; it was left out of account."""


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """What the query of an address asks for; what is none of its names or makes no sense is passed over."""

    def text(name: str) -> str:
        return query.get(name, "")[:200]

    order = query.get("order", "started")
    return Wanted(
        project=text("project"),
        status=text("status"),
        tag=text("tag"),
        text=text("text"),
        since=text("since"),
        until=text("until"),
        order=order if order in _ORDERS else "started",  # type: ignore[arg-type]
        descending=query.get("descending", "1") != "0",
    )


def choose(rows: Sequence[Row], wanted: Wanted) -> Chosen:
    """The page that is asked for, or the last one where there are fewer. What is unknown stands last in any
    order.
    """
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
    return Chosen(rows=tuple(shown), total=len(ordered), page=page, problem=problem)


def day_of(text: str) -> float | None:
    """The first second of a day, `2026-05-20`, since 1970; None if it is none."""
    try:
        return datetime.strptime(text.strip().replace("/", "-"), "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _days(wanted: Wanted) -> tuple[float | None, float | None, str | None]:
    since, until = day_of(wanted.since), day_of(wanted.until)
    wrong = [
        text
        for text, found in ((wanted.since, since), (wanted.until, until))
        if text.strip() and found is None
    ]
    if until is not None:
        until += timedelta(days=1).total_seconds()
    return since, until, "A day is written as 2026-05-20." if wrong else None


def _has(row: Row, words: Sequence[str]) -> bool:
    if not words:
        return True
    parts = (row.run_id, row.project, row.status, row.host, row.target, row.commit, row.error, *row.tags)
    text = "\n".join(part for part in parts if part).lower()
    return all(word in text for word in words)


def _started(row: Row) -> Any:
    return None if row.started is None else (row.started, row.run_id)


_ORDERS: dict[str, Callable[[Row], Any]] = {
    "started": _started,
    "project": lambda row: (row.project, row.started or 0.0),
    "run": lambda row: row.run_id,
    "status": lambda row: (row.status, row.started or 0.0),
    "duration": lambda row: row.duration_s,
    "tasks": lambda row: row.submitted or row.completed,
}
