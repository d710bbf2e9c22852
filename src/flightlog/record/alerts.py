"""Alerts that a program asks for: a process beside the run looks for them, and a thread tells the program.

That process is `flightlog alert`, see `record/followers.py`. It notes what it has found in the run; here only
this small file is read. So neither rules nor tables are looked at in the program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flightlog.core.alerts import Alert, AlertEntry, SentAlert, parse_rule
from flightlog.core.interruption import pass_interruption
from flightlog.record.background import Ticker
from flightlog.record.followers import ALERTS, start_follower, when_finished
from flightlog.record.limits import RecordLimits
from flightlog.record.run import LiveRun
from flightlog.record.values import error_text
from flightlog.store import layout
from flightlog.store.documents import replace_bytes
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

AlertCallback = Callable[[Alert], object]
_listeners: dict[tuple[int, Path], AlertListener] = {}
"""Those of this process."""


def listener_of(run: LiveRun) -> AlertListener:
    """The one of this process; it ends with the run."""
    found = _listeners.get((os.getpid(), run.path))
    if found is None:
        found = _listeners[os.getpid(), run.path] = AlertListener(run)
        when_finished(run.path, found.close)
    return found


class AlertListener:
    """Calls functions with the alerts that are meant for this process, on a thread; others are logged."""

    def __init__(self, run: LiveRun) -> None:
        self.name = f"{this_host()}-{os.getpid()}"
        """What alerts that its program asked for are addressed to: runs have processes on many hosts."""
        self.log_name = f"{self.name} log"
        """The same of alerts that are logged for others, such as a manifest."""
        self._run, self._folder = run, run.path / layout.FOLLOWERS
        self._file, self._position = self._folder / layout.FIRED_ALERTS, 0
        self._entries: list[AlertEntry] = []
        self._callbacks: dict[str, list[AlertCallback]] = {}
        self._ticker = Ticker(
            "flightlog-alerts",
            RecordLimits.alert_interval_s,
            self._read,
            run.recorder.trouble,
            finish=self._read,
        )

    def ask(self, rule: str, callback: AlertCallback | None, every: str | float) -> None:
        """Have an alert looked for. A `UsageError` for a rule or a period that makes no sense."""
        parsed = parse_rule(rule)
        period = every if isinstance(every, str) else f"{every:f}s"
        entry = AlertEntry(when=(parsed.text,), every=period, program=self.name)
        entry.check()
        self._callbacks.setdefault(parsed.text, []).append(callback or _log)
        self._entries.append(entry)
        self._folder.mkdir(exist_ok=True)
        asked = self._folder / f"{ALERTS}-{self.name}.json"
        replace_bytes(asked, msgspec.json.encode(self._entries))
        follow_alerts(self._run, f"{ALERTS}-{self.name}", f"@{asked.absolute()}", os.environ)

    def close(self) -> None:
        """Tell what there is still to tell, and end."""
        _listeners.pop((os.getpid(), self._run.path), None)
        self._ticker.stop(RecordLimits.end_wait_s)

    def _read(self) -> None:
        try:
            with self._file.open("rb") as file:
                file.seek(self._position)
                lines, newline, _ = file.read().rpartition(b"\n")
        except OSError:  # nothing was found yet
            return
        self._position += len(lines) + len(newline)
        for line in filter(None, lines.split(b"\n")):
            self._tell(msgspec.json.decode(line, type=SentAlert))

    def _tell(self, alert: SentAlert) -> None:
        asked: dict[str, list[AlertCallback]] = {
            self.name: self._callbacks.get(alert.rule, []),
            self.log_name: [_log],
        }
        for callback in asked.get(alert.to, []):
            try:
                callback(alert)
            except BaseException as error:  # noqa: BLE001 - the others are told all the same
                self._run.recorder.trouble(
                    "alert", f"a function that was told of an alert raised {error_text(error)}"
                )


def _log(alert: Alert) -> None:
    log.warning("alert: %s", alert.message)


def watch_entries(run: LiveRun, entries: Sequence[AlertEntry], environ: Mapping[str, str]) -> None:
    """Have alerts looked for while a run is recorded; those without an action are logged. Never raises."""
    try:
        for problem in (problem for entry in entries for problem in entry.problems()):
            run.recorder.trouble(problem, f"alerts of the manifest: {problem}")
        name = listener_of(run).log_name if not all(entry.has_action for entry in entries) else ""
        asked = [
            entry if entry.has_action else msgspec.structs.replace(entry, program=name) for entry in entries
        ]
        if asked:
            follow_alerts(run, f"{ALERTS}-manifest", msgspec.json.encode(asked).decode(), environ)
    except BaseException as error:  # noqa: BLE001 - such as no thread to be had
        pass_interruption(error)
        run.recorder.trouble("alert", f"alerts of the manifest are not looked for: {error_text(error)}")


def follow_alerts(run: LiveRun, name: str, entries: str, environ: Mapping[str, str]) -> None:
    """Start the process, once a name; addresses reach it by its environment, where nobody else sees them."""
    start_follower(run.path, name, ["alert", str(run.path)], environ={**environ, "FLIGHTLOG_ALERTS": entries})
