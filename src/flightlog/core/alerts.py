"""Alerts: the grammar of their rules, what an alert is, and what is done with one.

    failed                          the run failed, or tasks did; also `run failed` and `tasks failed`
    finished                        the run is over
    stuck                           a task or span may be stuck, or the run gives no sign of life
    slower than usual               the run took longer than earlier ones
    memory > 90 %                   of a machine, or of the limit that the run has there; also `gpu memory`
    loss is NaN                     a value of the metric `loss` is NaN; also `is not finite`
    loss < 0.01 for 5 steps         so many values in a row; one where nothing is said
    SELECT …                        a query of `flightlog sql` that gives a row

A metric may stand in quotes: `"learning rate" < 1e-6`, or `'memory' > 100` for a metric of that name. It has
to where its name reads as a query: `"select best" > 1`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.redaction import REDACTED, redact_text
from flightlog.core.units import parse_age

RuleKind = Literal[
    "failed",
    "run failed",
    "tasks failed",
    "finished",
    "stuck",
    "slower than usual",
    "memory",
    "gpu memory",
    "metric",
    "nonfinite",
    "query",
]
WORDS: tuple[RuleKind, ...] = (
    *("failed", "run failed", "tasks failed", "finished", "stuck", "slower than usual"),
)
"""Rules that are nothing but these words."""
ACCEPTED = (
    f"accepted are {', '.join(WORDS)}; 'memory > 90 %', 'gpu memory > 90 %'; 'METRIC is NaN', 'METRIC is not "
    "finite'; 'METRIC < NUMBER' (or <=, >, >=), 'METRIC < NUMBER for N steps'; and a query: 'SELECT …'"
)
NO_APPRISE = "notifications need Apprise, which is not installed: pip install 'flightlog[alerts]'"
_QUERY = re.compile(r"(?:select|with|from)(?=[\s(*\"'])", re.IGNORECASE)
_CLAUSE = re.compile(r"select\b|.*\s(?:select|where|having|qualify|join)\b", re.IGNORECASE | re.DOTALL)
"""What a query has, and hardly the name of a metric, such as `from scratch`."""
_NAME = r"""(?:"(?P<double>[^"]+)"|'(?P<single>[^']+)'|(?P<bare>[^"'<>=]*[^"'<>=\s]))"""
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_COMPARED = re.compile(
    rf"{_NAME}\s*(?P<operator><=|>=|<|>)\s*(?P<number>{_NUMBER})\s*(?P<percent>%)?"
    r"(?:\s+for\s+(?P<steps>\d+)\s+steps?)?",
    re.IGNORECASE,
)
_NONFINITE = re.compile(rf"{_NAME}\s+is\s+(?P<what>nan|not\s+finite)", re.IGNORECASE)


class AlertRule(Struct, frozen=True, kw_only=True):
    """When to alert."""

    text: str
    """As it was written."""
    kind: RuleKind
    metric: str = ""
    operator: str = ""
    limit: float = 0.0
    """Of memory, a share from 0 to 1."""
    steps: int = 1
    only_nan: bool = False
    """Of values that are not finite: whether infinite ones do not count."""


def parse_rule(text: str) -> AlertRule:
    """The rule that a text is; a `UsageError` says what is wrong with it, and what is accepted."""
    text = text.strip()
    plain = " ".join(text.lower().split())
    if plain in WORDS:
        return AlertRule(text=text, kind=plain)
    nonfinite, compared = _NONFINITE.fullmatch(text), _COMPARED.fullmatch(text)
    if _QUERY.match(text) and (_CLAUSE.match(text) or not (nonfinite or compared)):
        return AlertRule(text=text, kind="query")
    if nonfinite:
        only_nan = nonfinite["what"].lower() == "nan"
        return AlertRule(text=text, kind="nonfinite", metric=_metric(nonfinite), only_nan=only_nan)
    if compared:
        return _comparison(text, compared)
    near = get_close_matches(plain, WORDS, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}? A" if near else "a"
    raise UsageError(f"{_shown(text)} is no rule of an alert; {hint}{ACCEPTED[1:]}")


def _comparison(text: str, found: re.Match[str]) -> AlertRule:
    name, limit, percent = _metric(found), float(found["number"]), bool(found["percent"])
    memory = " ".join((found["bare"] or "").lower().split())
    steps = int(found["steps"] or 1)
    if memory in {"memory", "gpu memory"}:
        if not percent or found["operator"][0] != ">" or found["steps"] or not 0 <= limit <= 100:
            raise UsageError(
                f"{_shown(text)}: write a share, as in '{memory} > 90 %'; the metric of that name is written "
                f"""'"{memory}" {found["operator"]} {found["number"]}'"""
            )
        kind: RuleKind = "memory" if memory == "memory" else "gpu memory"
        return AlertRule(text=text, kind=kind, operator=found["operator"], limit=limit / 100)
    if percent:
        raise UsageError(f"{_shown(text)}: only memory and gpu memory have a %; leave it out")
    if not 1 <= steps <= 1_000_000:
        raise UsageError(f"{_shown(text)}: it takes 1 step to 1,000,000")
    return AlertRule(
        text=text, kind="metric", metric=name, operator=found["operator"], limit=limit, steps=steps
    )


def _metric(found: re.Match[str]) -> str:
    return str(found["double"] or found["single"] or found["bare"])


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


class AlertEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules, and what is done when one of them holds; an entry of `FLIGHTLOG_ALERTS`."""

    when: tuple[str, ...]
    every: str = "1h"
    """Least time between two alerts of one cause, such as `10m`."""
    command: tuple[str, ...] = ()
    webhook: str | None = None
    notify: tuple[str, ...] = ()
    """Addresses of Apprise."""
    python: str | None = None
    """`module:function`."""
    folder: str | None = None
    """Where `module` is looked for, beside the usual places."""
    program: str = ""
    """Who else is told, by what is noted in the run: a process that records."""

    def check(self) -> None:
        """Raise a `UsageError` for a rule or a time that makes no sense."""
        for rule in self.when:
            parse_rule(rule)
        parse_age(self.every)

    def problems(self) -> list[str]:
        """Why it cannot be sent somewhere, as far as that is seen without sending anything."""
        found = [webhook_problem(self.webhook)] if self.webhook is not None else []
        found += [
            f"{public_address(address)} is no address that Apprise understands"
            for address in self.notify
            if "://" not in address
        ]
        if self.notify and find_spec("apprise") is None:
            found.append(NO_APPRISE)
        return [problem for problem in found if problem]

    @property
    def every_s(self) -> float:
        """The same in seconds; a `UsageError` where it is no time."""
        return parse_age(self.every)

    @property
    def has_action(self) -> bool:
        """Whether an alert goes anywhere."""
        return bool(self.command or self.webhook or self.notify or self.python or self.program)


class Alert(Struct, frozen=True, kw_only=True):
    """A rule that held. `cause` tells apart what one rule may find, such as the name of a task."""

    rule: str
    cause: str
    message: str
    at: str
    """When it was found, UTC."""
    run_id: str
    project: str
    status: str
    path: str
    values: dict[str, Any] = {}

    @property
    def title(self) -> str:
        """The project, and the rule that held."""
        return f"{self.project}: {self.rule if len(self.rule) <= 60 else self.rule[:60] + '…'}"

    @property
    def line(self) -> str:
        """All of it in a line."""
        return f"{self.at} {self.run_id}: {self.message}"


class SentAlert(Alert, frozen=True, kw_only=True):
    """An alert as it is noted in the run: where it went, and why it did not get there."""

    to: str
    key: str = ""
    """A hash that tells apart where alerts go."""
    problem: str | None = None


def read_entries(text: str) -> list[AlertEntry]:
    """The entries in a JSON list; a `UsageError` says what is wrong with it, without its values."""
    try:
        entries = msgspec.json.decode(text, type=list[AlertEntry])
    except msgspec.DecodeError as error:
        example = '[{"when": ["failed"], "webhook": "https://…"}]'
        raise UsageError(f"the alerts are no JSON list of entries ({error}); as in {example}") from None
    for entry in entries:
        entry.check()
    return entries


def public_address(address: str) -> str:
    """An address without anything that may be secret: of a webhook its host is shown, else its scheme
    alone.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return REDACTED
    if parts.scheme in {"http", "https"}:
        more = f"/{REDACTED}" if parts.path.strip("/") or parts.query or parts.fragment else ""
        return f"{parts.scheme}://{host}{port}{more}"
    return f"{parts.scheme}://{REDACTED}" if parts.scheme else REDACTED


def webhook_problem(address: str) -> str | None:
    """Why requests cannot be sent to an address; None where they can."""
    try:
        parts = urlsplit(address)
        right = (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0  # raises where it is no number
            and re.fullmatch("[!-~]+", address) is not None
        )
    except ValueError:
        right = False
    shown = public_address(address)
    return None if right else f"{shown} is no webhook: write http://HOST/… or https://HOST/…"


def address_mark(address: str) -> str:
    """Four digits that tell apart addresses of which the same is shown. Passwords, which might be guessed, do
    not go into them.
    """
    from hashlib import sha256

    scheme, _, rest = address.partition("://")
    rest, _, query = rest.partition("?")
    user, at, place = rest.rpartition("@")
    shown = [one for one in query.split("&") if not one.lower().startswith(("pass", "pw"))]
    text = f"{scheme}://{user.partition(':')[0]}{at}{place}{'&'.join(shown)}"
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:4]


def without_address(text: str, address: str) -> str:
    """A text, such as an error, in which an address and its parts may occur, with them redacted."""
    for part in (address, *filter(None, re.split(r"[^\w.-]+", address.rpartition("://")[2]))):
        if len(part) > 3:
            text = text.replace(part, REDACTED)
    return redact_text(text)
