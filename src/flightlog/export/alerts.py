"""Alerts sent: to a command, a webhook, an address of Apprise, a function, or the recorded program.

Each is sent at most once per cause and period, by what `.followers/alerts.jsonl` of the run remembers. An
address is never written down, nor named in a message: it may hold a secret.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from flightlog.analyze.alerts import Found, RuleWatch
from flightlog.analyze.live.results import LiveState, update_pause_s
from flightlog.core.alerts import (
    Alert,
    AlertEntry,
    AlertRule,
    SentAlert,
    address_mark,
    parse_rule,
    public_address,
    without_address,
)
from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.redaction import redact_command, redact_text
from flightlog.core.retry import delay_s
from flightlog.core.text import cut, first_line, last_line
from flightlog.core.time import SECOND, moment, timestamp_of
from flightlog.export.limits import SendingLimits
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.version import __version__

PRINTED = "standard output"


class Action(NamedTuple):
    """Somewhere an alert goes: `send` raises `NotSent` where it does not get there."""

    to: str
    """What may be shown and written down of it."""
    send: Callable[[Alert], None]


class NotSent(Exception):  # noqa: N818 - reads as what happened
    """Why an alert was not sent; `passing` says whether sending it later may help."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


def actions_of(entry: AlertEntry, put: Callable[[str], None]) -> list[Action]:
    """What is done with an alert; without anything else it is printed. A `FlightlogError` for what can never
    be done.
    """
    found = []
    if entry.command:
        shown = cut(" ".join(redact_command(list(entry.command))), SendingLimits.max_shown_chars)
        found.append(Action(f"command {shown}", lambda alert: _run(entry.command, alert)))
    if entry.webhook is not None:
        found.append(_webhook(entry.webhook))
    found += [_notifier(address) for address in entry.notify]
    if entry.python is not None:
        function = _function(entry.python, entry.folder)
        found.append(Action(f"function {entry.python}", lambda alert: _call(function, alert)))
    if entry.program:
        found.append(Action(entry.program, lambda _: None))  # it reads what was noted
    return found or [Action(PRINTED, lambda alert: put(f"{alert.line}\n"))]


def _run(command: Sequence[str], alert: Alert) -> None:
    """Run a command, which gets the alert as JSON on its standard input, and as variables."""
    fields = {name: value for name, value in asdict(alert).items() if isinstance(value, str)}
    variables = {f"FLIGHTLOG_ALERT_{name.upper()}": value for name, value in fields.items()}
    with TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **variables},
                start_new_session=True,
            )
            try:
                process.communicate(msgspec.json.encode(alert), timeout=SendingLimits.send_timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise NotSent(f"it took more than {SendingLimits.send_timeout_s:g} s") from None
        except (OSError, ValueError) as error:
            raise NotSent(redact_text(str(error))) from None
        if process.returncode:
            errors.seek(0)
            said = last_line(errors.read()[-4096:].decode("utf-8", "replace").strip())
            raise NotSent(redact_text(f"exit code {process.returncode}{f': {said}' if said else ''}"))


def _webhook(address: str) -> Action:
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"{public_address(address)} is no webhook: write http://HOST/… or https://HOST/…")

    def send(alert: Alert) -> None:
        text = f"{alert.title}\n{alert.line}"  # which Slack, Mattermost and others show
        body = msgspec.json.encode({**asdict(alert), "text": text})
        headers = {"Content-Type": "application/json", "User-Agent": f"flightlog/{__version__}"}
        try:
            request = urllib.request.Request(address, body, headers)  # noqa: S310 - http or https, see above
            urllib.request.urlopen(request, timeout=SendingLimits.send_timeout_s).close()  # noqa: S310
        except urllib.error.HTTPError as error:
            error.close()
            passing = error.code >= 500 or error.code in {408, 429}
            raise NotSent(f"the server answered {error.code}", passing=passing) from None
        except (OSError, ValueError) as error:
            why = without_address(str(getattr(error, "reason", error)), address)
            raise NotSent(why, passing=isinstance(error, OSError)) from None

    return Action(f"webhook {public_address(address)} ({address_mark(address)})", send)


def _notifier(address: str) -> Action:
    try:
        import apprise
    except ImportError:
        raise MissingExtra(
            "notifications need Apprise, which is not installed: pip install 'flightlog[alerts]'"
        ) from None
    server = apprise.Apprise()
    with warnings.catch_warnings():  # of modules that it loads for every kind of address
        warnings.simplefilter("ignore")
        known = server.add(address)
    if not known:
        raise UsageError(f"{public_address(address)} is no address that Apprise understands")

    def send(alert: Alert) -> None:
        capture: Any = apprise.LogCapture
        with capture(level=logging.WARNING) as log:
            done = server.notify(title=alert.title, body=f"{alert.message}\n\n{alert.run_id}\n{alert.path}")
            said = last_line(log.getvalue().strip())
        if not done:
            raise NotSent(without_address(said, address) or "Apprise could not send it", passing=True)

    return Action(f"notify {public_address(address)} ({address_mark(address)})", send)


def _function(named: str, folder: str | None) -> Callable[[Alert], object]:
    """The function that `module:function` names; looked for in the working directory, too."""
    module, _, name = named.partition(":")
    for place in filter(None, (folder, str(Path.cwd()))):
        if place not in sys.path:
            sys.path.append(place)
    try:
        found: Callable[[Alert], object] = getattr(import_module(module), name)
    except Exception as error:
        raise UsageError(f"{named!r} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _call(function: Callable[[Alert], object], alert: Alert) -> None:
    try:
        function(alert)
    except Exception as error:
        raise NotSent(redact_text(f"{type(error).__name__}: {first_line(str(error))}")) from error


class FiredAlerts:
    """What was sent of a run, in a file of it that is no part of the run: at most once per cause and period.

    Of a run that cannot be written to, it is remembered for as long as this process lives.
    """

    def __init__(self, run: Path, note: Callable[[str], None]) -> None:
        self._file, self._note = run / layout.FOLLOWERS / layout.FIRED_ALERTS, note
        self._last = {(one.rule, one.cause, one.to): one for one in read_fired(run)}
        self._signs: dict[tuple[str, str, str], str] = {}

    def is_due(self, rule: AlertRule, found: Found, to: str, every_s: float, now: str) -> bool:
        """Whether this was not sent in the last period, and there was a new sign of it since then."""
        key = (rule.text, found.cause, to)
        last = self._last.get(key)
        if last is None:
            return True
        period_over = (moment(now) or 0) - (moment(last.at) or 0) >= every_s * SECOND
        return period_over and found.at > self._signs.get(key, last.at)

    def add(self, alert: Alert, to: str, sign: str) -> None:
        """Take note that this is being sent."""
        key = (alert.rule, alert.cause, to)
        self._last[key], self._signs[key] = SentAlert(**asdict(alert), to=to), sign

    def write(self, alert: Alert, to: str, problem: str | None) -> None:
        """Write down that it was sent, or why not."""
        line = msgspec.json.encode(SentAlert(**asdict(alert), to=to, problem=problem)) + b"\n"
        try:
            self._file.parent.mkdir(exist_ok=True)
            with self._file.open("ab", buffering=0) as out:
                out.write(line)
        except OSError as error:
            self._note(f"the alert could not be noted in the run: {error.strerror or error}")


def read_fired(run: Path) -> list[SentAlert]:
    """What was sent of a run, in order; lines that are damaged are passed over."""
    try:
        lines = (run / layout.FOLLOWERS / layout.FIRED_ALERTS).read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=SentAlert))
        except msgspec.DecodeError:
            continue
    return found


class _Unsent(NamedTuple):
    alert: Alert
    action: Action
    failures: int
    due: float
    until: float


class AlertSender:
    """Watches a run, and sends what its rules find until the run is over and everything is sent.

    `entries` is asked at each look. Looking takes a fifth of a core at most. Sending is retried
    for some minutes, each time after a longer wait; then `note` says why not.
    """

    def __init__(
        self,
        run: Path,
        entries: Callable[[], Sequence[AlertEntry]],
        *,
        put: Callable[[str], None],
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        cpu: Callable[[], float] = time.process_time,
        patience_s: float = SendingLimits.patience_s,
    ) -> None:
        self._path, self._entries, self._put, self._note = run, entries, put, note
        self._clock, self._now, self._sleep, self._cpu = clock, now, sleep, cpu
        self._patience_s = patience_s
        self._fired = FiredAlerts(run, note)
        self._actions: dict[AlertEntry, list[Action]] = {}
        self._rules: dict[str, AlertRule] = {}
        self._watch = RuleWatch(run, self._all_rules, now=now)
        self._waiting: list[_Unsent] = []
        self._said: set[str] = set()
        self.failed = False
        """Whether anything could not be asked or sent."""

    def follow(self, *, once: bool = False) -> None:
        """Look and send until the run is over, or once. A `FlightlogError` for actions that cannot be
        done.
        """
        over = False
        while True:
            begun = self._cpu()
            if not over:
                over = self.look() or once
            self._send_waiting()
            if over and not self._waiting:
                return
            self._pause(update_pause_s(SendingLimits.interval_s, self._cpu() - begun), over=over)

    def look(self) -> bool:
        """Send what is due for the first time; whether the run is over."""
        self._all_rules()
        state, found, problems = self._watch.look()
        for problem in problems:
            self._say(problem)
        for rule, one in found:
            for entry, actions in self._actions.items():
                if rule.text in entry.when:
                    for action in actions:
                        self._fire(state, rule, one, entry, action)
        return (state.over and state.reading is None) or not self._path.is_dir()

    def _all_rules(self) -> list[AlertRule]:
        for entry in self._entries():
            if entry not in self._actions:
                self._actions[entry] = actions_of(entry, self._put)
                self._rules.update((rule, parse_rule(rule)) for rule in entry.when)
        return list(self._rules.values())

    def _fire(
        self, state: LiveState, rule: AlertRule, found: Found, entry: AlertEntry, action: Action
    ) -> None:
        at = timestamp_of(round(self._now() * SECOND))
        if not self._fired.is_due(rule, found, action.to, entry.every_s, at):
            return
        alert = Alert(
            rule=rule.text,
            cause=found.cause,
            message=redact_text(found.message),
            at=at,
            run_id=state.run_id,
            project=state.project,
            status=state.status,
            path=str(self._path),
            values=dict(found.values),
        )
        self._fired.add(alert, action.to, found.at)
        now = self._clock()
        self._waiting.append(_Unsent(alert, action, 0, now, now + self._patience_s))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.due > self._clock():
                self._waiting.append(one)
                continue
            problem = None
            try:
                one.action.send(one.alert)
            except NotSent as error:
                failures = one.failures + 1
                due = self._clock() + delay_s(
                    failures, SendingLimits.first_retry_s, SendingLimits.longest_retry_s
                )
                if error.passing and due < one.until:
                    self._waiting.append(one._replace(failures=failures, due=due))
                    continue
                problem = str(error)
                self._say(f"an alert could not be sent to {one.action.to}: {problem}")
            if one.action.to != PRINTED:
                self._fired.write(one.alert, one.action.to, problem)

    def _pause(self, pause_s: float, *, over: bool) -> None:
        """Wait until the next look, or until the run is over, whichever comes first."""
        until = self._clock() + pause_s
        while (left := until - self._clock()) > 0:
            self._sleep(min(left, SendingLimits.end_check_s))
            if not over and not self._is_running():
                return

    def _is_running(self) -> bool:
        info = read_document(self._path / layout.RUN, layout.RunInfo).value
        return info is not None and info.end_time is None

    def _say(self, problem: str) -> None:
        self.failed = True
        if problem not in self._said:
            self._said.add(problem)
            self._note(problem)


def send_test(entries: Iterable[AlertEntry], run: Path, put: Callable[[str], None]) -> list[str]:
    """Send one alert to everywhere, for a test; gives the problems there were."""
    problems = []
    at = timestamp_of(round(time.time() * SECOND))
    for entry in entries:
        for action in actions_of(entry, put):
            alert = Alert(
                rule=entry.when[0] if entry.when else "test",
                cause="test",
                message="this is a test: no rule holds",
                at=at,
                run_id=run.name,
                project="test",
                status="test",
                path=str(run),
            )
            try:
                action.send(alert)
            except NotSent as error:
                problems.append(f"the test could not be sent to {action.to}: {error}")
    return problems
