"""Tells when something happens to a run: on the terminal, by mail or chat, at a webhook, or by a command.

    flightlog alert latest --when failed --when stuck
    flightlog alert latest --when 'loss is NaN' --notify ntfy://my-topic
    flightlog alert latest --when 'memory > 90 %' --webhook https://example.org/hook --every 10m
    flightlog alert latest --when 'SELECT task FROM tasks WHERE duration_s > 3600' --once
    flightlog alert --test --notify ntfy://my-topic

| rule | holds when |
|---|---|
| `failed` | the run failed, was interrupted or crashed, or tasks failed; also `run failed`, `tasks failed` |
| `finished` | the run is over |
| `stuck` | a task or span takes far longer than those before, or the run gives no sign of life |
| `slower than usual` | a completed run took longer than earlier ones, in the words of its report |
| `memory > 90 %` | a machine's memory, or the limit that the run has there, is so full; also `gpu memory` |
| `loss is NaN` | a value of the metric `loss` is NaN; `is not finite` for infinite ones, too |
| `loss < 0.01 for 5 steps` | so many values of a metric in a row; also `<=`, `>`, `>=`; one without `for` |
| `SELECT …` | the query, over the tables of `flightlog sql`, gives a row |

It reads the run's files and nothing else, until the run is over; `--once` looks once. Runs in any state can
be watched, also at an address. An alert is sent at most once per cause and `--every`, also by several calls;
what is only printed is not remembered. Sending is retried for five minutes. Then a message says so, and the
exit code is 1. `--fired` lists what was sent.

[Alerts](../alerts.md) says what a command and a webhook get, and how a manifest, a program or the variable
`FLIGHTLOG_ALERTS`, whose entries are used without `--when`, asks for alerts. Put addresses with passwords or
tokens there, or into a file that it names: everybody on the machine can see arguments of commands (`ps`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import json_text, note, put
from flightlog.core.errors import UsageError
from flightlog.show.terminal import clean

if TYPE_CHECKING:
    from flightlog.core.alerts import Alert, AlertEntry

VARIABLE = "FLIGHTLOG_ALERTS"
NOTED = "nobody"


def alert(
    run: options.RunRef = None,
    when: list[str] | None = option(
        "RULE", "When to alert, such as failed. May be given several times. Default: FLIGHTLOG_ALERTS"
    ),
    command: str | None = option(
        "COMMAND", "Run this command, which gets the alert as JSON on standard input."
    ),
    webhook: str | None = option("URL", "Send the alert as JSON to this address."),
    notify: list[str] | None = option(
        "URL", "Notify this address of Apprise (mail, Slack, Teams, ntfy, …). May be given several times."
    ),
    python: str | None = option("MODULE:FUNCTION", "Call this function with the alert."),
    every: str = option("AGE", "Least time between two alerts of one cause, such as 10m.", default="1h"),
    once: bool = flag("--once", "Look once, and exit."),
    test: bool = flag("--test", "Send a test, whatever the run does."),
    fired: bool = flag("--fired", "List what was sent of the run."),
    runs_dir: options.RunsDir = None,
    format_: options.AnyFormat = "text",
) -> None:
    """Tell when a run fails, finishes, gets stuck, or a metric is off.

    Example: flightlog alert latest --when failed --notify ntfy://my-topic
    """
    from msgspec import json

    from flightlog.core.alerts import AlertEntry, parse_rule
    from flightlog.export.alerts import AlertSender, read_fired, send_test
    from flightlog.store.run import find_run

    given = AlertEntry(
        when=tuple(when or ()),
        every=every,
        command=tuple(_words(command)),
        webhook=webhook,
        notify=tuple(notify or ()),
        python=python,
    )
    given.check()
    for rule in map(parse_rule, given.when):
        if rule.kind == "query":
            from flightlog.store.tables.query import names_in

            names_in(rule.text)
    entries: Callable[[], Sequence[AlertEntry]] = (
        (lambda: [given]) if when or given.has_action else _AskedEntries()
    )

    def put_alert(alert: Alert) -> None:
        put(f"{json.encode(alert).decode() if format_ == 'json' else clean(alert.line)}\n")

    if test:
        if not entries():
            raise UsageError(f"there is nothing to test: name an action, as in --webhook, or set {VARIABLE}")
        problems = send_test(entries(), Path(run or "run-of-a-test"), put_alert)
        for problem in problems:
            note(problem)
        if problems:
            raise typer.Exit(1)
        return
    if not fired and not any(entry.when for entry in entries()):
        raise UsageError(f"name a rule, as in --when failed, or set {VARIABLE}")
    path = find_run(run or "latest", runs_dir=runs_dir, note=note).absolute()
    if fired:
        sent = read_fired(path)
        lines = (f"{one.line} → {one.to}{f': {one.problem}' if one.problem else ''}" for one in sent)
        put(json_text(sent) if format_ == "json" else "".join(f"{clean(line)}\n" for line in lines))
        return
    sender = AlertSender(path, entries, put=put_alert, note=note)
    sender.follow(once=once)
    if sender.failed:
        raise typer.Exit(1)


def _words(command: str | None) -> list[str]:
    try:
        return shlex.split(command or "")
    except ValueError as error:
        raise UsageError(f"--command cannot be split into words: {error}") from None


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes with a file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


class _AskedEntries:
    """The entries of the variable; of a file that it names, read again whenever it has changed.

    They are kept where it cannot be read.
    """

    def __init__(self) -> None:
        value = os.environ.get(VARIABLE, "").strip()
        self._file = Path(value[1:]).expanduser() if value.startswith("@") else None
        self._stamp: tuple[int, ...] | None = None
        self._entries = self._read(value) if self._file is None and value else []

    def __call__(self) -> Sequence[AlertEntry]:
        if self._file is not None and (stamp := _stamp(self._file)) != self._stamp:
            try:
                self._entries = self._read(self._file.read_text("utf-8"))
            except (OSError, UnicodeDecodeError, UsageError) as error:  # gone, or half-saved
                why = f"cannot read {self._file}: {getattr(error, 'strerror', None) or error}"
                if self._stamp is None:
                    raise UsageError(why) from None
                note(f"{why}; its entries stay as they were")
            self._stamp = stamp
        return self._entries

    @staticmethod
    def _read(text: str) -> list[AlertEntry]:
        """An alert of an entry without an action is noted in the run."""
        from msgspec.structs import replace

        from flightlog.core.alerts import read_entries

        return [
            replace(one, program=one.program or ("" if one.has_action else NOTED))
            for one in read_entries(text)
        ]
