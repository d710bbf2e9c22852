"""Small run directories built in code, for tests of everything that reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from flightlog.events import Event, SpanEvent
from flightlog.store import layout
from flightlog.store.run import Run

START = "2026-05-20T03:52:00.000000Z"


def at(seconds: float) -> str:
    """A timestamp so many seconds after the start of the built run (less than an hour)."""
    us = round(seconds * 1_000_000)
    minutes, us = divmod(us, 60_000_000)
    hours, minutes = divmod(52 + minutes, 60)
    return f"2026-05-20T{3 + hours:02d}:{minutes:02d}:{us // 1_000_000:02d}.{us % 1_000_000:06d}Z"


def make_run(
    runs_dir: Path,
    events: Iterable[Event] = (),
    *,
    project: str = "demo",
    token: str = "a1b2c3d4",
    writer: str = "w0000001",
    numbered: bool = True,
    recorder: bool = True,
    **info: Any,
) -> Path:
    """Write a closed run directory that holds these events, numbered in order; gives its path.

    Without `recorder` there is no `recorder.json`, as in a run that was half-copied.
    """
    run_id = f"run-20260520T035200Z-{project}-{token}"
    path = runs_dir / run_id
    path.mkdir(parents=True)
    fields: dict[str, Any] = {
        "status": "completed",
        "start_time": START,
        "end_time": at(10),
        "duration_s": 10.0,
        "host": "node-1",
        "pid": 1,
    }
    document = layout.RunInfo(run_id=run_id, project=project, **{**fields, **info})
    (path / layout.RUN).write_bytes(msgspec.json.encode(document))
    numbers: dict[str, int] = {}
    for event in events:
        stream = type(event).stream
        if numbered:
            event.writer, event.seq = writer, numbers.get(stream, 0)
            numbers[stream] = event.seq + 1
        event.timestamp = event.timestamp or START
        with layout.stream_file(path, stream).open("ab") as out:
            out.write(msgspec.json.encode(event) + b"\n")
    if numbers and recorder:
        wrote = layout.WriterInfo(writer=writer, pid=1, host="node-1", closed=True, owner=True, lines=numbers)
        (path / layout.RECORDER).write_bytes(msgspec.json.encode({"writers": [wrote]}))
    return path


def note_death(path: Path, when: float) -> None:
    """Note in a built run that the process which wrote its lines was last heard of at that time."""
    file = path / layout.RECORDER
    [wrote] = msgspec.json.decode(file.read_bytes())["writers"]
    gone = {**wrote, "closed": False, "died": True, "owner": False, "heartbeat": at(when)}
    file.write_bytes(msgspec.json.encode({"writers": [gone]}))


def finished(run: Run) -> list[SpanEvent]:
    """The spans of a run that ended; one that was slow has a line of when it was open, too."""
    return [event for event in run.events("spans") if isinstance(event, SpanEvent)]


def remove(folder: Path) -> None:
    """Remove a folder that somebody may be writing into; it is gone for a moment at least."""
    aside = folder.with_name(f"{folder.name}.removed")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
