"""Alerts sent: to a command, a webhook, an address of Apprise, a function, or the recorded program.

Each is sent at most once per cause and period, by what `.followers/alerts.jsonl` of the run remembers. An
address is never written down, nor named in a message: it may hold a secret.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from queue import Queue
from tempfile import TemporaryFile
from threading import Lock, Thread, get_ident
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import asdict

from flightlog.analyze.alerts import Found, RuleWatch
from flightlog.analyze.live.results import LiveState, update_pause_s
from flightlog.core.alerts import (
    NO_APPRISE,
    Alert,
    AlertEntry,
    AlertRule,
    SentAlert,
    address_mark,
    parse_rule,
    public_address,
    webhook_problem,
    without_address,
)
from flightlog.core.errors import FlightlogError, MissingExtra, UsageError
from flightlog.core.locks import sole_holder, try_lock
from flightlog.core.redaction import redact_command, redact_text
from flightlog.core.retry import delays_s
from flightlog.core.text import cut, first_line, last_line
from flightlog.core.time import SECOND, moment, timestamp_of
from flightlog.export.limits import SendingLimits
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.version import __version__

PRINTED = "standard output"
_ADDRESS = re.compile(r"""[A-Za-z][\w+.-]*://[^\s"'<>]+""")


class Action(NamedTuple):
    """Somewhere an alert goes: `send` raises `NotSent` where it does not get there."""

    to: str
    """What may be shown and written down of it."""
    identity: str
    """All that tells it apart from others; secret."""
    send: Callable[[Alert], object]


class NotSent(Exception):  # noqa: N818 - reads as what happened
    """Why an alert was not sent; `passing` says whether sending it later may help."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


def actions_of(entry: AlertEntry, put: Callable[[Alert], None]) -> list[Action]:
    """What is done with an alert; without anything else it is printed. A `FlightlogError` for what can never
    be done.
    """
    found = []
    if entry.command:
        shown = cut(_public_text(" ".join(redact_command(entry.command))), SendingLimits.max_shown_chars)
        words = "\0".join(entry.command)
        found.append(Action(f"command {shown}", f"command {words}", lambda alert: _run(entry.command, alert)))
    if entry.webhook is not None:
        found.append(_webhook(entry.webhook))
    found += [_notifier(address) for address in entry.notify]
    if entry.python is not None:
        function = _function(entry.python, entry.folder)
        found.append(Action(f"function {entry.python}", f"function {entry.python} {entry.folder}", function))
    if entry.program:
        found.append(
            Action(entry.program, f"program {entry.program}", lambda _: None)
        )  # it reads what was noted
    return found or [Action(PRINTED, PRINTED, put)]


def _public_text(text: str) -> str:
    """A text, such as a command line, with nothing secret left of the addresses in it."""
    return _ADDRESS.sub(lambda found: public_address(found.group()), text)


def _run(command: Sequence[str], alert: Alert) -> None:
    """Run a command, which gets the alert as JSON on its standard input, and as variables."""
    fields = {name: value for name, value in asdict(alert).items() if isinstance(value, str)}
    variables = {  # which cannot hold a NUL
        f"FLIGHTLOG_ALERT_{name.upper()}": value.replace("\0", "\\x00") for name, value in fields.items()
    }
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
            said = _public_text(last_line(errors.read()[-4096:].decode("utf-8", "replace").strip()))
            raise NotSent(redact_text(f"exit code {process.returncode}{f': {said}' if said else ''}"))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would be followed without the alert, and to anywhere: it is an answer as any other."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


def _webhook(address: str) -> Action:
    if problem := webhook_problem(address):
        raise UsageError(problem)
    opener = urllib.request.build_opener(_NoRedirects)

    def send(alert: Alert) -> None:
        text = f"{alert.title}\n{alert.line}"  # which Slack, Mattermost and others show
        body = msgspec.json.encode({**asdict(alert), "text": text})
        headers = {"Content-Type": "application/json", "User-Agent": f"flightlog/{__version__}"}
        try:
            request = urllib.request.Request(address, body, headers)  # noqa: S310 - http or https, see above
            opener.open(request, timeout=SendingLimits.send_timeout_s).close()
        except urllib.error.HTTPError as error:
            error.close()
            redirect = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
            passing = error.code >= 500 or error.code in {408, 429}
            raise NotSent(f"the server answered {error.code}{redirect}", passing=passing) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, it may hold the address
            said = first_line(str(getattr(error, "reason", error))) or type(error).__name__
            why = without_address(said, address)
            raise NotSent(why, passing=isinstance(error, OSError | HTTPException)) from None

    shown = f"webhook {public_address(address)} ({address_mark(address)})"
    return Action(shown, f"webhook {address}", send)


def _notifier(address: str) -> Action:
    try:
        import apprise
    except ImportError:
        raise MissingExtra(NO_APPRISE) from None
    server = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False))  # on the thread that sends
    with warnings.catch_warnings():  # of modules that it loads for every kind of address
        warnings.simplefilter("ignore")
        known = server.add(address)
    if not known:
        raise UsageError(f"{public_address(address)} is no address that Apprise understands")

    def send(alert: Alert) -> None:
        body = f"{alert.message}\n\n{alert.run_id}\n{alert.path}"
        try:
            with _Warnings() as log:
                done = bool(server.notify(title=alert.title, body=body))
            why = last_line("\n".join(log.messages)) or "Apprise could not send it"
        except Exception as error:  # noqa: BLE001 - whatever it is, it may hold the address
            done, why = False, f"{type(error).__name__}: {first_line(str(error))}"
        if not done:
            raise NotSent(without_address(why, address), passing=True) from None

    return Action(f"notify {public_address(address)} ({address_mark(address)})", f"notify {address}", send)


class _Warnings(logging.Handler):
    """What Apprise warns of on this thread, inside the block."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread, self.messages = get_ident(), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        if record.thread == self._thread:
            self.messages.append(record.getMessage())

    def __enter__(self) -> Self:
        logging.getLogger("apprise").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeHandler(self)


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


def send_within_limit(action: Action, alert: Alert) -> None:
    """Send, and raise `NotSent` for whatever goes wrong, or if it takes too long: it is left alone then."""
    outcome: list[BaseException | None] = []

    def send() -> None:
        try:
            action.send(alert)
        except BaseException as error:  # noqa: BLE001 - also an exit, of a user's function
            outcome.append(error)
        else:
            outcome.append(None)

    thread = Thread(target=send, name="flightlog-alert", daemon=True)
    thread.start()
    thread.join(SendingLimits.deadline_s)
    if not outcome:
        raise NotSent(f"it took more than {SendingLimits.deadline_s:g} s")
    error = outcome[0]
    if isinstance(error, NotSent):
        raise error
    if error is not None:
        raise NotSent(redact_text(f"{type(error).__name__}: {first_line(str(error))}")) from error


class FiredAlerts:
    """What was sent of a run, in a file of it that is no part of the run: at most once per cause and period,
    by however many processes.

    Of a run that cannot be written to, it is remembered for as long as this process lives.
    """

    def __init__(self, run: Path, note: Callable[[str], None]) -> None:
        self._folder, self._note = run / layout.FOLLOWERS, note
        self._file, self._position = self._folder / layout.FIRED_ALERTS, 0
        self._sent: dict[_Cause, str] = {}
        """When each was sent last, by any process."""
        self._mine: dict[_Cause, tuple[str, str]] = {}
        """When this process took each up last, and of when the sign was."""
        self._keys: dict[str, str] = {}
        self._reading = Lock()
        self._read()

    def key(self, action: Action) -> str:
        """What tells an action apart from others in the file, without saying anything of it."""
        if action.identity not in self._keys:
            identity = action.identity.encode("utf-8", "surrogateescape")
            made = blake2b(identity, digest_size=16, key=self._secret)
            self._keys[action.identity] = made.hexdigest()
        return self._keys[action.identity]

    @cached_property
    def _secret(self) -> bytes:
        """Random, and for the owner of the run alone: nobody else can try which address it was."""
        file = self._folder / layout.ALERTS_KEY
        try:
            self._folder.mkdir(exist_ok=True)
            lock = try_lock(file, wait_s=SendingLimits.lock_wait_s)
            if lock is not None:
                try:
                    if not file.stat().st_size:
                        lock.write(os.urandom(16).hex().encode())
                    return file.read_bytes()[:64]
                finally:
                    lock.release()
        except OSError:  # then nothing can be noted, either
            pass
        return os.urandom(16)

    def is_due(self, rule: AlertRule, found: Found, key: str, every_s: float, now: str) -> bool:
        """Whether this was not sent in the last period, and there was a new sign of it since then."""
        cause = (rule.text, found.cause, key)
        sent = self._sent.get(cause, "")
        taken, sign = self._mine.get(cause, ("", sent))
        last = max(sent, taken)
        return not last or (_is_period_over(last, every_s, now) and found.at > sign)

    def add(self, alert: Alert, key: str, sign: str) -> None:
        """Take note that this is to be sent by this process."""
        self._mine[alert.rule, alert.cause, key] = alert.at, sign

    @contextmanager
    def to_send(self, alert: Alert, key: str, every_s: float) -> Iterator[bool]:
        """Keep other processes from sending anywhere in the same way inside the block; gives whether this is
        still to be sent. Raises `NotSent` if they do not come to an end.
        """
        file = self._folder / f"alerts-{key}.lock"
        with sole_holder(file, "", wait_s=SendingLimits.lock_wait_s) as holder:
            if holder is not None:
                raise NotSent("another process has been sending there for too long", passing=True)
            try:
                self._read()
                sent = self._sent.get((alert.rule, alert.cause, key), "")
                yield not sent or _is_period_over(sent, every_s, alert.at)
            finally:
                with suppress(OSError):
                    file.unlink()

    def write(self, alert: Alert, to: str, key: str, problem: str | None = None) -> None:
        """Write down that it was sent, or why not."""
        line = msgspec.json.encode(SentAlert(**asdict(alert), to=to, key=key, problem=problem)) + b"\n"
        try:
            self._folder.mkdir(exist_ok=True)
            with self._file.open("ab", buffering=0) as out:
                out.write(line)
        except OSError as error:
            self._note(f"the alert could not be noted in the run: {error.strerror or error}")

    def _read(self) -> None:
        """Take in what was written since the last time; what could not be sent may be sent again."""
        with self._reading:
            fired, self._position = _read_fired(self._file, self._position)
            self._sent.update({(one.rule, one.cause, one.key): one.at for one in fired if not one.problem})


_Cause = tuple[str, str, str]
"""Rule, cause, and the key of the action."""


def _is_period_over(last: str, every_s: float, now: str) -> bool:
    return (moment(now) or 0) - (moment(last) or 0) >= every_s * SECOND


def read_fired(run: Path) -> list[SentAlert]:
    """What was sent of a run, in order; lines that are damaged are passed over."""
    return _read_fired(run / layout.FOLLOWERS / layout.FIRED_ALERTS, 0)[0]


def _read_fired(file: Path, position: int) -> tuple[list[SentAlert], int]:
    """The whole lines from a position on, and the position after them."""
    try:
        with file.open("rb") as opened:
            opened.seek(position)
            lines, newline, _ = opened.read().rpartition(b"\n")
    except OSError:
        return [], position
    found = []
    for line in lines.split(b"\n"):
        with suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=SentAlert))
    return found, position + len(lines) + len(newline)


class _Unsent(NamedTuple):
    alert: Alert
    every_s: float
    until: float


class AlertDelivery:
    """Sends each action's alerts in order, on a thread of its own, so that no receiver delays another."""

    def __init__(
        self,
        fired: FiredAlerts,
        note: Callable[[str], None],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        patience_s: float,
    ) -> None:
        self._fired, self._note = fired, note
        self._clock, self._sleep, self._patience_s = clock, sleep, patience_s
        self._waiting: dict[str, tuple[Queue[_Unsent | None], Thread]] = {}
        self._said: set[str] = set()
        self.failed = False
        """Whether there was anything to say."""

    def add(self, alert: Alert, action: Action, every_s: float) -> None:
        """Have an alert sent."""
        key = self._fired.key(action)
        if key not in self._waiting:
            queue: Queue[_Unsent | None] = Queue()
            thread = Thread(
                target=self._send_all, args=(action, queue), name="flightlog-sending", daemon=True
            )
            self._waiting[key] = queue, thread
            thread.start()
        self._waiting[key][0].put(_Unsent(alert, every_s, self._clock() + self._patience_s))

    def finish(self) -> None:
        """Wait until everything is sent, or was tried for long enough."""
        for queue, _ in self._waiting.values():
            queue.put(None)
        for _, thread in self._waiting.values():
            thread.join()
        self._waiting.clear()

    def say(self, problem: str) -> None:
        """Say what is wrong, once."""
        self.failed = True
        if problem not in self._said:
            self._said.add(problem)
            self._note(problem)

    def _send_all(self, action: Action, queue: Queue[_Unsent | None]) -> None:
        problem = None
        while (one := queue.get()) is not None:
            try:
                problem = self._send(action, one, problem)
            except Exception as error:  # noqa: BLE001 - the next one is sent all the same
                problem = redact_text(f"{type(error).__name__}: {first_line(str(error))}")
                self.say(f"an alert could not be sent to {action.to}: {problem}")

    def _send(self, action: Action, one: _Unsent, before: str | None) -> str | None:
        """Send, and retry while that may help; gives the problem there was in the end.

        `before` is the problem with the alert before this one. If that took all the time there is, this one
        is not tried.
        """
        key, problem = self._fired.key(action), before
        for pause_s in delays_s(SendingLimits.first_retry_s, SendingLimits.longest_retry_s):
            if problem is not None and self._clock() >= one.until:
                break
            try:
                with self._fired.to_send(one.alert, key, one.every_s) as wanted:
                    if wanted:
                        send_within_limit(action, one.alert)
                        self._fired.write(one.alert, action.to, key)
                return None
            except NotSent as error:
                problem = str(error)
                if not error.passing or self._clock() + pause_s >= one.until:
                    break
            self._sleep(pause_s)
        self.say(f"an alert could not be sent to {action.to}: {problem}")
        self._fired.write(one.alert, action.to, key, problem)
        return problem


class _Watched(NamedTuple):
    rules: list[AlertRule]
    actions: list[Action]


class AlertSender:
    """Watches a run, and sends what its rules find until the run is over and everything is sent.

    `entries` is asked at each look. Looking takes a fifth of a core at most. Each action is done on a thread
    of its own. Sending is retried for some minutes, each time after a longer wait; then `note` says why not.
    """

    def __init__(
        self,
        run: Path,
        entries: Callable[[], Sequence[AlertEntry]],
        *,
        put: Callable[[Alert], None],
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        cpu: Callable[[], float] = time.process_time,
        patience_s: float = SendingLimits.patience_s,
    ) -> None:
        self._path, self._entries, self._put = run, entries, put
        self._clock, self._now, self._sleep, self._cpu = clock, now, sleep, cpu
        self._fired = FiredAlerts(run, note)
        self._watched: dict[AlertEntry, _Watched] = {}
        self._watch = RuleWatch(run, self._all_rules, now=now)
        self._delivery = AlertDelivery(self._fired, note, clock, sleep, patience_s)

    def follow(self, *, once: bool = False) -> None:
        """Look and send until the run is over, or once. A `FlightlogError` for actions that cannot be
        done.
        """
        while True:
            begun = self._cpu()
            if self.look() or once:
                self.finish()
                return
            self._pause(update_pause_s(SendingLimits.interval_s, self._cpu() - begun))

    def finish(self) -> None:
        """Wait until everything is sent, or was tried for long enough."""
        self._delivery.finish()

    @property
    def failed(self) -> bool:
        """Whether anything could not be asked or sent."""
        return self._delivery.failed

    def look(self) -> bool:
        """Have sent what is due; whether the run is over."""
        self._all_rules()
        state, found, problems = self._watch.look()
        for problem in problems:
            self._delivery.say(problem)
        for rule, one in found:
            for entry, watched in self._watched.items():
                if rule in watched.rules:
                    for action in watched.actions:
                        self._fire(state, rule, one, entry, action)
        return (state.over and state.reading is None) or not self._path.is_dir()

    def _all_rules(self) -> list[AlertRule]:
        entries = self._entries()
        for gone in self._watched.keys() - {*entries}:
            del self._watched[gone]
        for entry in entries:
            if entry not in self._watched:
                try:
                    actions = actions_of(entry, self._put)
                except FlightlogError as error:
                    if len(entries) == 1:
                        raise
                    self._delivery.say(str(error))  # the others are looked for all the same
                    actions = []
                self._watched[entry] = _Watched([parse_rule(rule) for rule in entry.when], actions)
        return list(dict.fromkeys(rule for watched in self._watched.values() for rule in watched.rules))

    def _fire(
        self, state: LiveState, rule: AlertRule, found: Found, entry: AlertEntry, action: Action
    ) -> None:
        at = timestamp_of(round(self._now() * SECOND))
        key = PRINTED if action.to == PRINTED else self._fired.key(action)
        if not self._fired.is_due(rule, found, key, entry.every_s, at):
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
        self._fired.add(alert, key, found.at)
        if action.to == PRINTED:
            action.send(alert)
            return
        self._delivery.add(alert, action, entry.every_s)

    def _pause(self, pause_s: float) -> None:
        """Wait until the next look, or until the run is over, whichever comes first."""
        until = self._clock() + pause_s
        while (left := until - self._clock()) > 0:
            self._sleep(min(left, SendingLimits.end_check_s))
            if not self._is_running():
                return

    def _is_running(self) -> bool:
        info = read_document(self._path / layout.RUN, layout.RunInfo).value
        return info is not None and info.end_time is None


def send_test(entries: Iterable[AlertEntry], run: Path, put: Callable[[Alert], None]) -> list[str]:
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
                send_within_limit(action, alert)
            except NotSent as error:
                problems.append(f"the test could not be sent to {action.to}: {error}")
    return problems
