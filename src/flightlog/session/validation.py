"""A tree against the declared fields: a typed value, or every problem at once with path, line and what was
meant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct

from flightlog.core.alerts import parse_rule
from flightlog.core.errors import UsageError
from flightlog.core.redaction import is_secret_key
from flightlog.core.units import parse_age, parse_size
from flightlog.engines.options import PROVIDERS, Kind
from flightlog.session.charges import charge_problems
from flightlog.session.expansion import expand, has_variables, variables
from flightlog.session.limits import SessionLimits
from flightlog.session.otel_config import endpoint_problem, endpoint_secret, header_problem
from flightlog.session.schema import (
    MANIFEST_VERSION,
    AlertRules,
    Contents,
    Field,
    Otel,
    Rates,
    Shape,
    Target,
    fields_of,
    installed_providers,
)
from flightlog.session.yaml_tree import Node

Path = tuple[str, ...]

UNKNOWN: Any = object()
"""Stands for a value that cannot be known: it is wrong, or nobody has said what its variables hold."""


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a manifest."""

    line: int
    path: str
    text: str
    overlay: str | None = None
    unset: bool = False
    """Whether it is only that a variable is not set."""

    def sentence(self, name: str) -> str:
        """`flightlog.yaml:12: components.model.memory: '16 Gigs' is no size …`."""
        return f"{name}:{self.line}: {self.path + ': ' if self.path else ''}{self.text}"


def problems_in(
    tree: Node, environ: Mapping[str, str] | None, *, folder: FilePath | None = None
) -> list[Problem]:
    """All that is wrong with a manifest's tree; the arguments are those of `Checker`."""
    checker = Checker(tree, environ, folder=folder)
    checker.contents()
    return checker.problems


class Checker:
    """Checks one tree. Texts with variables are left alone where `environ` is None.

    With `raw` free texts keep their variables, set or not, so that what comes out can be stored; numbers,
    sizes, switches and names are always expanded. `folder` is the manifest's: files it names are looked for
    there, and not at all where it is None. `providers` gives the names beyond the built-in ones.
    """

    def __init__(
        self,
        tree: Node,
        environ: Mapping[str, str] | None,
        *,
        raw: bool = False,
        folder: FilePath | None = None,
        providers: Callable[[], Sequence[str]] = installed_providers,
    ) -> None:
        self.problems: list[Problem] = []
        self._tree, self._environ, self._raw, self._folder = tree, environ, raw, folder
        self._providers = providers
        self._references: list[tuple[Node, Path, str, str]] = []

    def contents(self) -> Contents:
        """All of the tree; to be used only if there are no `problems` afterwards."""
        found: Contents = self._struct(self._tree, Contents, (), also=("overlays",))
        version = self._tree.get("version")
        if found is not UNKNOWN and version is not None and found.version not in {MANIFEST_VERSION, UNKNOWN}:
            text = f"{_quoted(version)} is a version this Flightlog does not know; write {MANIFEST_VERSION}"
            self._problem(version, ("version",), text)
        for node, path, what, name in self._references:
            table = self._tree.get(f"{what}s") or Node({}, node.line)
            if isinstance(table.value, dict | None) and name not in table.entries():
                hint = hint_for(name, list(table.entries()), f"there are no {what}s")
                self._problem(node, path, f"there is no {what} {name!r}; {hint}")
        return found

    def rates(self) -> Rates:
        """The tree as a `cost` by itself; to be used only if there are no `problems` afterwards."""
        found: Rates = self._struct(self._tree, Rates, ())
        return found

    def _problem(self, node: Node, path: Path, text: str, *, unset: bool = False) -> Any:
        where = (*(("overlays", node.overlay) if node.overlay else ()), *path)
        self.problems.append(
            Problem(line=node.line, path=".".join(where), text=text, overlay=node.overlay, unset=unset)
        )
        return UNKNOWN

    def _value(self, node: Node, shape: Shape, path: Path) -> Any:
        if shape.struct is not None:
            if shape.switch and isinstance(node.value, str):
                return self._scalar(node, Shape(kind="switch"), path)
            return self._struct(node, shape.struct, path)
        if shape.kind == "table":
            return self._table(node, shape, path)
        if shape.kind == "list":
            return self._list(node, shape, path)
        return self._scalar(node, shape, path)

    def _struct(self, node: Node, struct: type[Struct], path: Path, also: Sequence[str] = ()) -> Any:
        if not isinstance(node.value, dict):
            return self._problem(node, path, f"{_quoted(node)} is no mapping of keys to values")
        if struct is Target:
            return self._target(node, path)
        fields = fields_of(struct)
        self._unknown_keys(node, [*(field.key for field in fields), *also], path)
        found = struct(**self._fields(node, fields, path))
        if isinstance(found, Rates):
            self._charges(path, found)
        elif isinstance(found, Otel):
            self._otel(found)
        elif isinstance(found, AlertRules):
            self._alerts(node, path, found)
        return found

    def _fields(self, node: Node, fields: Sequence[Field], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in fields:
            value = node.get(field.key)
            if value is not None and value.value is not None:
                found[field.name] = self._value(value, field.shape, (*path, field.key))
            elif field.required:
                text = "is missing"
                if (*path, field.key) == ("version",):
                    text += f"; write `version: {MANIFEST_VERSION}`"
                found[field.name] = self._problem(value or node, (*path, field.key), text)
        return found

    def _unknown_keys(self, node: Node, known: list[str], path: Path, of: str = "") -> None:
        for key, value in node.entries().items():
            if key not in known:
                self._problem(value, (*path, key), f"{key!r} is no key{of}; {hint_for(key, known)}")

    def _target(self, node: Node, path: Path) -> Target:
        """A target: its own keys, and whatever the provider knows besides."""
        own = fields_of(Target)
        found = self._fields(node, own, path)
        keys = [field.key for field in own]
        provider = found["provider"]
        options: dict[str, Any] = {}
        if provider in PROVIDERS:
            known = fields_of(PROVIDERS[provider])
            names = [*keys, *(field.key for field in known)]
            self._unknown_keys(node, names, path, of=f" of the provider {provider!r}")
            options = self._fields(node, known, path)
        elif provider is not UNKNOWN:
            if provider in (plugins := self._providers()):
                options = {
                    key: self._anything(value, (*path, key))
                    for key, value in node.entries().items()
                    if key not in keys and value.value is not None
                }
            else:
                text = f"there is no provider {provider!r}; {hint_for(provider, (*PROVIDERS, *plugins))}"
                self._problem(node.entries()["provider"], (*path, "provider"), text)
        return Target(**found, options=options)

    def _table(self, node: Node, shape: Shape, path: Path) -> Any:
        assert shape.inner is not None
        if not isinstance(node.value, dict):
            return self._problem(node, path, f"{_quoted(node)} is no mapping of names to values")
        found: dict[str, Any] = {}
        for key, value in node.value.items():
            if value.value is None and shape.inner.kind == "struct":
                # `model:` and nothing is all defaults.
                value = Node({}, value.line, overlay=value.overlay)  # noqa: PLW2901
            if value.value is not None:
                found[key] = self._value(value, shape.inner, (*path, key))
            elif shape.inner.kind in {"text", "name"}:
                found[key] = ""
        return found

    def _list(self, node: Node, shape: Shape, path: Path) -> Any:
        assert shape.inner is not None
        if not isinstance(node.value, tuple):
            return self._problem(node, path, f"{_quoted(node)} is no list; write [{_bare(node)}]")
        return tuple(
            self._value(item, shape.inner, (*path[:-1], f"{path[-1]}[{number}]"))
            for number, item in enumerate(node.value)
        )

    def _anything(self, node: Node, path: Path) -> Any:
        """A plugin's option, of a form only the plugin knows."""
        if isinstance(node.value, dict):
            return {key: self._anything(value, (*path, key)) for key, value in node.value.items()}
        if isinstance(node.value, tuple):
            return [self._anything(item, path) for item in node.value]
        if node.value is None:
            return None
        text = self._text(node, Shape(kind="any"), path)
        if text is UNKNOWN or node.quoted or (self._raw and has_variables(node.value)):
            return text
        for kind in ("whole", "number", "switch"):
            with suppress(ValueError):
                return convert(text, Shape(kind=kind, least=-(2**63)))
        return text

    def _scalar(self, node: Node, shape: Shape, path: Path) -> Any:
        if not isinstance(node.value, str):
            found = "nothing" if node.value is None else "a mapping"
            what = "a list" if isinstance(node.value, tuple) else found
            return self._problem(node, path, f"a single value is wanted, and {what} was found")
        text = self._text(node, shape, path)
        if text is UNKNOWN:
            return UNKNOWN
        varied = has_variables(node.value)
        try:
            value = convert(text, shape, quoted=node.quoted and not varied)
        except ValueError as wrong:
            found = _quoted(node)
            if varied and not any(is_secret_key(name) for name in variables(node.value)):
                found += f" gives {_cut(text)!r}, which"
            return self._problem(node, path, f"{found} {wrong}")
        if shape.refers_to:
            self._references.append((node, path, shape.refers_to, text))
        return value

    def _text(self, node: Node, shape: Shape, path: Path) -> Any:
        """A scalar's text with its variables put in, or left in where that is what is wanted."""
        assert isinstance(node.value, str)
        expanded = expand(node.value, self._environ or {})
        for piece in expanded.malformed:
            text = f"{_cut(piece)!r} is no variable: write ${{NAME}} or ${{NAME:-default}}, and $$ for $"
            self._problem(node, path, text)
        if expanded.malformed:
            return UNKNOWN
        if not has_variables(node.value):
            return expanded.text
        if self._environ is None:
            return UNKNOWN
        if self._raw and shape.kind in {"text", "any"}:
            return node.value
        for name in expanded.missing:
            text = f"the variable {name} is not set; set it, or write ${{{name}:-default}}"
            self._problem(node, path, text, unset=True)
        if expanded.missing:
            return UNKNOWN
        return expanded.text

    def _charges(self, path: Path, rates: Rates) -> None:
        """What makes no sense together in a `cost`, or names no price; where all of it is known."""
        if any(getattr(rates, field.name) is UNKNOWN for field in fields_of(Rates)):
            return
        folder = None if self._environ is None else self._folder
        for key, text in charge_problems(rates, folder, self._environ or {}):
            self._problem(self._tree.get(*path, key) or self._tree, (*path, key), text)

    def _alerts(self, node: Node, path: Path, alerts: AlertRules) -> None:
        """Rules that are none, and what cannot be an address or a function."""
        rules = node.get("when")
        written = rules.value if rules is not None and isinstance(rules.value, tuple) else ()
        known = alerts.when if isinstance(alerts.when, tuple) else ()
        for number, (entry, rule) in enumerate(zip(written, known, strict=False)):
            if rule is not UNKNOWN and not (self._raw and has_variables(rule)):
                try:
                    parse_rule(rule)
                except UsageError as wrong:
                    self._problem(entry, (*path, f"when[{number}]"), str(wrong))
        for key, problem_of in (("webhook", endpoint_problem), ("python", _function_problem)):
            value, at = getattr(alerts, key), node.get(key)
            if value not in (None, UNKNOWN) and at is not None and not (self._raw and has_variables(value)):
                problem = problem_of(value)
                if problem:  # without the value, which may hold a secret
                    self._problem(at, (*path, key), f"what is written here {problem}")

    def _otel(self, otel: Otel) -> None:
        """An `otel` that names no server, or holds a secret as it is."""
        at = self._tree.get("otel", "endpoint")
        if at is not None and isinstance(at.value, str):
            problem = endpoint_secret(at.value)
            if (
                problem is None
                and otel.endpoint is not UNKNOWN
                and not (self._raw and has_variables(at.value))
            ):
                problem = endpoint_problem(otel.endpoint or "")
                problem = problem and f"{_quoted(at)} {problem}"
            if problem:
                self._problem(at, ("otel", "endpoint"), problem)
        for name, node in self._tree.entries("otel", "headers").items():
            if isinstance(node.value, str) and (problem := header_problem(name, node.value)):
                self._problem(node, ("otel", "headers", name), problem)


def _function_problem(named: str) -> str | None:
    return None if _FUNCTION.fullmatch(named) else "is no function: write module:function"


def _bare(node: Node) -> str:
    return _cut(str(node))


def _quoted(node: Node) -> str:
    """What was found, as written."""
    return repr(_bare(node)) if isinstance(node.value, str) else _bare(node)


def _cut(text: str) -> str:
    most = SessionLimits.max_shown_value_characters
    return text if len(text) <= most else text[:most] + "…"


_FUNCTION = re.compile(r"[\w.]+:\w+")
_CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):([0-5]?\d):([0-5]?\d)", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d{1,18}(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)[\s_]*([A-Za-zµ]*)", re.ASCII)
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WANTED: dict[Kind, str] = {
    "whole": "is no whole number",
    "number": "is no number",
    "switch": "is neither true nor false",
    "size": "is no size: write it as '512MiB', '16G' (both in 1024s) or '16GB' (in 1000s)",
    "duration": "is no duration: write it as '45s', '90m', '1h 30m' or '01:30:00'",
}


def convert(text: str, shape: Shape, *, quoted: bool = False) -> str | int | float | bool:
    """The value a text stands for; a `ValueError` says what is wrong with it, to follow the text itself. A
    number or a switch in quotes is text, as YAML has it, and so is wrong.
    """
    word = text.strip()
    if shape.kind in {"text", "name", "any"}:
        if shape.kind == "name" and not word:
            raise ValueError("is blank")
        if shape.choices and text not in shape.choices:
            raise ValueError(
                f"is none of {', '.join(shape.choices)}" + _meaning(nearest(text, shape.choices))
            )
        return text
    try:
        if shape.kind in {"size", "duration"}:
            return parse_size(word) if shape.kind == "size" else parse_duration(word)
    except UsageError:
        raise ValueError(_WANTED[shape.kind] + _meaning(_meant(word, shape.kind))) from None
    value = _PLAIN[shape.kind](word)
    if value is None:
        raise ValueError(_WANTED[shape.kind])
    if quoted:
        raise ValueError(f"is text: write {word} without quotes")
    if value < shape.least or (shape.positive and value <= 0):
        raise ValueError("is not more than 0" if shape.positive else f"is less than {shape.least}")
    return value


def _meaning(word: str | None) -> str:
    return f"; did you mean {word!r}?" if word else ""


def _number(word: str) -> float | None:
    found = float(word) if _NUMBER.fullmatch(word) else math.nan
    return found if math.isfinite(found) else None


_PLAIN: dict[Kind, Callable[[str], int | float | bool | None]] = {
    "whole": lambda word: int(word) if _WHOLE.fullmatch(word) else None,
    "number": _number,
    "switch": lambda word: _SWITCHES.get(word.lower()),
}
"""How a word is read that YAML itself takes for more than text; None where it cannot be."""


def parse_duration(text: str) -> float:
    """Seconds of `90m`, `1h 30m`, `HH:MM:SS` or Slurm's `D-HH:MM:SS`; anything else is a `UsageError`."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return parse_age(text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _meant(text: str, kind: Kind) -> str | None:
    """What a size or duration with the wrong unit, or none, was likely meant to be."""
    found = _AMOUNT.match(text)
    if found is None:
        return None
    amount, unit = found.group(1), found.group(2).lower()
    if kind == "size":
        return f"{amount}{unit[0].upper()}B" if unit and unit[0] in "kmgtpe" else None
    if unit[:1] in set("smhdw"):
        return f"{amount}{unit[0]}"
    return f"{amount}s" if not unit and found.end() == len(text) else None


def hint_for(word: str, known: tuple[str, ...] | list[str], none: str = "") -> str:
    """What was meant by a word that is not known: the nearest one, or else all that are, or that there is
    `none`.
    """
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(known)}" if known else none


def nearest(word: str, known: tuple[str, ...] | list[str]) -> str | None:
    """The known word that is closest to this one, whatever its case; None where none is close."""
    lowered = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None
