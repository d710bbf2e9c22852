"""Prints every event of a run as it happens, of all its processes and hosts.

    flightlog follow                                     # the latest run, from its first event on
    flightlog follow latest --from-now
    flightlog follow latest --events task_failed,worker_lost
    flightlog follow latest --format json | jq -c 'select(.event == "metric" and .value > 10)'
    flightlog follow s3://bucket/runs/run-20260520T035200Z-demo-a1b2c3d4

Each event is printed once, and those of one process and stream in the order in which they were recorded. An
event of a process on this machine is there within half a second; the copy of a remote run is brought up to
date every ten seconds. The command ends when the run has ended and no process writes into it any more. Of a
run that has ended it prints what there is.

`--events` names kinds of events: those in [the reference of events](../events.md), and those that the program
defined, such as `training.Epoch`. `--format json` prints one JSON object per line, as in the files of the
run, without fields that this version of Flightlog does not know; [Live events](../live.md) says how a program
follows a run by itself.

Ctrl-C ends the command, with exit code 130, and says how to go on: `--since` with a position begins behind
the last event that was printed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import msgspec
import typer

from flightlog.cli.options import RunId, RunRef, RunsDir, flag, open_named, option
from flightlog.cli.output import columns, note, put, put_text
from flightlog.core.errors import UsageError
from flightlog.events.codec import UnknownEvent
from flightlog.show.terminal import clean, fit

if TYPE_CHECKING:
    from flightlog.store.read.lines import AnyEvent
    from flightlog.store.run import Run

_PLAIN = ("timestamp", "writer", "seq", "event", "trace_id", "span_id", "parent_id", "thread")
"""What a line of text says elsewhere, or leaves out."""


def complete_kinds(incomplete: str) -> list[str]:
    """Kinds of events, for the shell."""
    from flightlog.events import kinds

    return [name for name in kinds() if name.startswith(incomplete)]


def follow(
    run: RunRef = None,
    run_id: RunId = None,
    events: list[str] | None = option(
        "KIND",
        "Print events of this kind only. Several kinds: separated by commas, or given several times.",
        autocompletion=complete_kinds,
    ),
    format_: Literal["text", "json"] = typer.Option("text", "--format", help="Output format."),
    since: str | None = option("POSITION", "Begin behind the event where an earlier follow ended."),
    from_now: bool = flag("--from-now", "Leave out what was recorded before."),
    runs_dir: RunsDir = None,
) -> None:
    """Print every event of a run as it happens.

    Example: flightlog follow latest --events task_failed
    """
    if since is not None and from_now:
        raise UsageError("give one of --since and --from-now")
    kinds = [kind.strip() for several in events or () for kind in several.split(",") if kind.strip()] or None
    opened = open_named(run, run_id, runs_dir=runs_dir)
    _note_undefined(opened, {kind for kind in kinds or () if "." in kind})
    stream = opened.follow(events=kinds, since=since, from_now=from_now)
    position, said = stream.position, 0
    try:
        while not stream.over or stream.has_more:
            found = stream.poll()
            if format_ == "json":
                put("".join(map(_json_line, found)))
            else:
                put_text("".join(map(_text_line, found)))
            position = stream.position
            for problem in stream.problems[said:]:
                note(problem)
            said = len(stream.problems)
            time.sleep(stream.pause_s)
    except KeyboardInterrupt:
        note(f"to go on: flightlog follow {opened.run_id} --since {position}")
        raise
    if stream.missing:
        note(f"{stream.missing:,} events are missing in the files of the run")


def _note_undefined(run: Run, users: set[str]) -> None:
    """Tell of users' kinds that no process has defined: of a run that goes on they may still come."""
    from flightlog.core.plugins import did_you_mean
    from flightlog.events import EventDefined

    found = run.events(EventDefined.stream) if users else ()
    defined = {event.name for event in found if isinstance(event, EventDefined)}
    for kind in sorted(users - defined):
        note(f"no process of the run has defined an event {kind!r} so far.{did_you_mean(kind, defined)}")


def _json_line(event: AnyEvent) -> str:
    return msgspec.json.encode(_content(event)).decode() + "\n"


def _text_line(event: AnyEvent) -> str:
    from flightlog.store.read.follow import kind_name

    fields = msgspec.to_builtins(_content(event))
    said = (
        f"{name}={_value(value)}" for name, value in fields.items() if name not in _PLAIN and _says(value)
    )
    text = clean(f"{event.timestamp[:23]:23}  {kind_name(event) or 'unknown':15}  {' '.join(said)}")
    width = columns()
    return f"{text if width is None else fit(text, width)}\n"


def _content(event: AnyEvent) -> object:
    return event.data if isinstance(event, UnknownEvent) else event


def _says(value: object) -> bool:
    return value is not None and value not in ("", {}, [])


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
