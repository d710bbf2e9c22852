"""The rows that the reader's events make, in plain Python; and what the tables hold, in the same form."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from flightlog.events import Event, kind_of, kinds
from flightlog.events.codec import UnknownEvent
from flightlog.events.columns import columns
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import RENAMED, open_tables

FITTING: dict[str, Any] = {
    "BIGINT": int,
    "DOUBLE": float,
    "VARCHAR": str,
    "TIMESTAMP": str,
    "BOOLEAN": bool,
    "JSON": Any,
    "VARCHAR[]": list[str],
}


def row_of(event: Event | UnknownEvent, stream: str) -> dict[str, Any]:
    """An event's row: null where it has no such field, where a common field says nothing, and what does not
    fit.

    What an event of a known kind leaves out has its default, even where the event lacks something else.
    """
    row: dict[str, Any] = {}
    for name, kind in columns(stream).items():
        if isinstance(event, UnknownEvent):
            try:
                row[name] = msgspec.convert(event.data.get(name), FITTING[kind] | None)
            except msgspec.ValidationError:
                row[name] = None
        else:
            row[name] = kind_of(event) if name == "event" else getattr(event, name, None)
    if isinstance(event, UnknownEvent) and event.kind in kinds():
        for field in msgspec.structs.fields(kinds()[event.kind]):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            if row[field.name] is None and default is not msgspec.NODEFAULT:
                row[field.name] = default
    row["timestamp"] = time_of(row["timestamp"])
    row["writer"] = row["writer"] or None
    row["seq"] = None if row["seq"] == -1 else row["seq"]
    return row


def time_of(timestamp: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat((timestamp or "").removesuffix("Z"))
    except ValueError:
        return None


def rows_read(run: Run, stream: str) -> list[str]:
    """The rows of the events that the reader gives, in an order of their own."""
    events = [event for event in run.events(stream) if not isinstance(event, UnknownEvent) or event.kind]
    return in_order({"run_id": run.run_id} | row_of(event, stream) for event in events)


def rows_held(run: Run, stream: str, *others: Run) -> list[str]:
    """The rows that the table of a stream holds, of one run or several, in the same order."""
    view = RENAMED.get(stream, stream)
    table = columns(stream)
    with open_tables([run, *others]) as connection:
        found = connection.execute(f"SELECT * FROM {view}")
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    for row in rows:  # compared as values: DuckDB may write a number another way
        row.update(
            (name, json.loads(row[name])) for name, kind in table.items() if kind == "JSON" and row[name]
        )
    return in_order(rows)


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def make_killed(path: Path) -> None:
    """Let a closed run look as one whose process was killed."""
    info = json.loads((path / "run.json").read_bytes())
    info |= {"status": "running", "end_time": None, "duration_s": None, "pid": 1, "pid_start": 1.0}
    (path / "run.json").write_text(json.dumps(info))
    (path / "recorder.json").unlink(missing_ok=True)
