"""A tree against the declared fields: a typed value, or every problem at once with path, line and what was
meant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.redaction import is_secret_key
from flightlog.core.units import parse_age, parse_size
from flightlog.session.charges import charge_problems
from flightlog.session.expansion import expand, has_variables, variables
from flightlog.session.otel_config import endpoint_problem, endpoint_secret, header_problem
from flightlog.session.schema import (
    MANIFEST_VERSION,
    PROVIDERS,
    Contents,
    Field,
    Kind,
    Otel,
    Rates,
    Shape,
    Target,
    fields_of,
    installed_providers,
    shape_of,
)
from flightlog.session.yaml_tree import Node

Path = tuple[str, ...]

SHOWN = 80


class Unknown:
    """Stands for a value that cannot be known: it is wrong, or nobody has said what its variables hold."""


UNKNOWN: Any = Unknown()


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
        self._tree = tree
        self._environ = environ
        self._raw, self._folder = raw, folder
        self._providers = providers

    def contents(self) -> Contents:
        """All of the tree; to be used only if there are no `problems` afterwards."""
        found: Contents = self._struct(self._tree, Contents, (), also=("overlays",))
        self._references(found)
        return found

    def rates(self) -> Rates:
        """The tree as a `cost` by itself; to be used only if there are no `problems` afterwards."""
        found: Rates = self._struct(self._tree, Rates, ())
        self._charges((), found)
        return found

    def _problem(self, node: Node, path: Path, text: str, *, unset: bool = False) -> Any:
        where = (*(("overlays", node.overlay) if node.overlay else ()), *path)
        self.problems.append(
            Problem(line=node.line, path=".".join(where), text=text, overlay=node.overlay, unset=unset)
        )
        return UNKNOWN

    def _value(self, node: Node, shape: Shape, path: Path) -> Any:
        if shape.kind == "struct":
            assert shape.struct is not None
            if shape.switch and isinstance(node.value, str):
                return self._scalar(node, Shape(kind="switch"), path)
            return (
                self._target(node, path) if shape.struct is Target else self._struct(node, shape.struct, path)
            )
        if shape.kind == "table":
            return self._table(node, shape, path)
        if shape.kind == "list":
            return self._list(node, shape, path)
        if shape.kind == "any" and not isinstance(node.value, str):
            return self._anything(node, path)
        return self._scalar(node, shape, path)

    def _struct(self, node: Node, struct: type[Struct], path: Path, also: Sequence[str] = ()) -> Any:
        if not isinstance(node.value, dict):
            return self._problem(node, path, f"{_quoted(node)} is no mapping of keys to values")
        fields = fields_of(struct)
        self._unknown_keys(node.value, [field.key for field in fields], path, also)
        return struct(**self._fields(node, fields, path))

    def _fields(self, node: Node, fields: Sequence[Field], path: Path) -> dict[str, Any]:
        assert isinstance(node.value, dict)
        found: dict[str, Any] = {}
        for field in fields:
            value = node.value.get(field.key)
            if value is not None and value.value is not None:
                found[field.name] = self._value(value, field.shape, (*path, field.key))
            elif field.required:
                text = "is missing"
                if (*path, field.key) == ("version",):
                    text += f"; write `version: {MANIFEST_VERSION}`"
                found[field.name] = self._problem(value or node, (*path, field.key), text)
        return found

    def _unknown_keys(
        self,
        mapping: Mapping[str, Node],
        known: Sequence[str],
        path: Path,
        also: Sequence[str] = (),
        of: str = "",
    ) -> None:
        for key, node in mapping.items():
            if key not in known and key not in also:
                hint = hint_for(key, (*known, *also))
                self._problem(node, (*path, key), f"{key!r} is no key{of}; {hint}")

    def _target(self, node: Node, path: Path) -> Any:
        """A target: its own keys, and whatever the provider knows besides."""
        if not isinstance(node.value, dict):
            return self._problem(node, path, f"{_quoted(node)} is no mapping of keys to values")
        own = fields_of(Target)
        found = self._fields(node, own, path)
        keys = [field.key for field in own]
        provider = found["provider"]
        rest = {key: value for key, value in node.value.items() if key not in keys}
        options: dict[str, Any] = {}
        if provider in PROVIDERS:
            known = fields_of(PROVIDERS[provider])
            names = [*keys, *(field.key for field in known)]
            self._unknown_keys(node.value, names, path, of=f" of the provider {provider!r}")
            options = self._fields(node, known, path)
        elif provider is not UNKNOWN:
            if provider in (plugins := self._providers()):
                options = {
                    key: self._value(value, shape_of(Any), (*path, key))
                    for key, value in rest.items()
                    if value.value is not None
                }
            else:
                text = f"there is no provider {provider!r}; {hint_for(provider, (*PROVIDERS, *plugins))}"
                self._problem(node.value["provider"], (*path, "provider"), text)
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
            value = convert(text, Shape(kind=kind, least=-(2**63)), quoted=False)
            if not isinstance(value, Wrong):
                return value
        return text

    def _scalar(self, node: Node, shape: Shape, path: Path) -> Any:
        if not isinstance(node.value, str):
            what = (
                "a list"
                if isinstance(node.value, tuple)
                else "a mapping"
                if node.value is not None
                else "nothing"
            )
            return self._problem(node, path, f"a single value is wanted, and {what} was found")
        if shape.kind == "any":
            return self._anything(node, path)
        text = self._text(node, shape, path)
        if text is UNKNOWN:
            return UNKNOWN
        varied = has_variables(node.value)
        value = convert(text, shape, quoted=node.quoted and not varied)
        if isinstance(value, Wrong):
            found = _quoted(node)
            if varied and not any(is_secret_key(name) for name in variables(node.value)):
                found += f" gives {_cut(text)!r}, which"
            return self._problem(node, path, f"{found} {value.text}")
        return value

    def _text(self, node: Node, shape: Shape, path: Path) -> Any:
        """A scalar's text with its variables put in, or left in where that is what is wanted."""
        assert isinstance(node.value, str)
        expanded = expand(node.value, self._environ or {})
        for piece in expanded.malformed:
            self._problem(
                node,
                path,
                f"{_cut(piece)!r} is no variable: write ${{NAME}} or ${{NAME:-default}}, and $$ for $",
            )
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

    def _references(self, contents: Contents) -> None:
        """What refers to something that is not there."""
        if contents is UNKNOWN:
            return
        if contents.version not in {MANIFEST_VERSION, UNKNOWN}:
            node = self._tree.get("version") or self._tree
            self._problem(
                node,
                ("version",),
                f"{_quoted(node)} is a version this Flightlog does not know; write {MANIFEST_VERSION}",
            )
        overlays = self._tree.get("overlays")
        names = overlays.value if overlays is not None and isinstance(overlays.value, dict) else {}
        for name, target in _items(contents.targets):
            self._refer(("targets", name, "overlay"), target.overlay, "overlay", list(names))
            self._charges(("targets", name, "cost"), target.cost)
        self._charges(("cost",), contents.cost)
        self._otel(contents.otel)
        components = contents.components
        if isinstance(components, dict):
            for name, task in _items(contents.tasks):
                self._refer(("tasks", name, "component"), task.component, "component", list(components))

    def _charges(self, path: Path, rates: Rates | None) -> None:
        """What makes no sense together in a `cost`, or names no price; where all of it is known."""
        if rates is None or rates is UNKNOWN:
            return
        if any(getattr(rates, field.name) is UNKNOWN for field in fields_of(Rates)):
            return
        folder = None if self._environ is None else self._folder
        for key, text in charge_problems(rates, folder, self._environ or {}):
            self._problem(self._tree.get(*path, key) or self._tree, (*path, key), text)

    def _otel(self, otel: Any) -> None:
        """An `otel` that names no server, or holds a secret as it is."""
        if not isinstance(otel, Otel):
            return
        at = self._tree.get("otel", "endpoint")
        secret = endpoint_secret(at.value) if at is not None and isinstance(at.value, str) else None
        if at is not None and secret:
            self._problem(at, ("otel", "endpoint"), secret)
        elif (
            at is not None
            and isinstance(otel.endpoint, str)
            and not (self._raw and has_variables(otel.endpoint))
        ):
            problem = endpoint_problem(otel.endpoint)
            if problem:
                self._problem(at, ("otel", "endpoint"), f"{_quoted(at)} {problem}")
        for name in otel.headers if isinstance(otel.headers, dict) else ():
            node = self._tree.get("otel", "headers", name)
            problem = header_problem(name, node.value) if node and isinstance(node.value, str) else None
            if node is not None and problem:
                self._problem(node, ("otel", "headers", name), problem)

    def _refer(self, path: Path, wanted: Any, what: str, there: list[str]) -> None:
        node = self._tree.get(*path)
        if node is None or wanted is None or wanted is UNKNOWN or wanted in there:
            return
        hint = hint_for(wanted, there, f"there are no {what}s")
        self._problem(node, path, f"there is no {what} {wanted!r}; {hint}")


def _items(table: Any) -> list[tuple[str, Any]]:
    """The entries of a table that could be read."""
    return (
        [(key, value) for key, value in table.items() if value is not UNKNOWN]
        if isinstance(table, dict)
        else []
    )


def _bare(node: Node) -> str:
    return _cut(str(node))


def _quoted(node: Node) -> str:
    """What was found, as written."""
    return repr(_bare(node)) if isinstance(node.value, str) else _bare(node)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


_CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):([0-5]?\d):([0-5]?\d)", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d{1,18}(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)[\s_]*([A-Za-zµ]*)", re.ASCII)
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_UNITS = {
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "hr": "h",
    "day": "d",
    "week": "w",
}

_WANTED: dict[Kind, str] = {
    "whole": "is no whole number",
    "number": "is no number",
    "switch": "is neither true nor false",
    "size": "is no size: write it as '512MiB', '16G' (both in 1024s) or '16GB' (in 1000s)",
    "duration": "is no duration: write it as '45s', '90m', '1h 30m' or '01:30:00'",
}


class Wrong(Struct, frozen=True):
    """Why a text is not what its field wants; to follow the text itself."""

    text: str


def convert(text: str, shape: Shape, *, quoted: bool) -> str | int | float | bool | Wrong:
    """The value a text stands for. A number or a switch in quotes is text, as YAML has it, and so is
    wrong.
    """
    if shape.kind in {"text", "name", "any"}:
        return _choice(text, shape)
    if quoted and shape.kind in {"whole", "number", "switch"} and not isinstance(_typed(text, shape), Wrong):
        return Wrong(f"is text: write {text.strip()} without quotes")
    return _typed(text, shape)


def _choice(text: str, shape: Shape) -> str | Wrong:
    if shape.kind == "name" and not text.strip():
        return Wrong("is blank")
    if shape.choices and text not in shape.choices:
        near = nearest(text, shape.choices)
        return Wrong(f"is none of {', '.join(shape.choices)}" + (f"; did you mean {near!r}?" if near else ""))
    return text


def _typed(text: str, shape: Shape) -> int | float | bool | Wrong:
    word = text.strip()
    if shape.kind == "switch":
        return _SWITCHES.get(word.lower(), Wrong(_WANTED["switch"]))
    try:
        if shape.kind == "size":
            return parse_size(word)
        if shape.kind == "duration":
            return parse_duration(word)
    except UsageError:
        near = _meant(word, shape.kind)
        return Wrong(_WANTED[shape.kind] + (f"; did you mean {near!r}?" if near else ""))
    if shape.kind == "whole":
        if _WHOLE.fullmatch(word) is None:
            return Wrong(_WANTED["whole"])
        return int(word) if int(word) >= shape.least else Wrong(f"is less than {shape.least}")
    if _NUMBER.fullmatch(word) is None or not math.isfinite(float(word)):
        return Wrong(_WANTED["number"])
    if float(word) < 0 or (shape.positive and float(word) == 0):
        return Wrong("is not more than 0" if shape.positive else "is less than 0")
    return float(word)


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
    return (
        f"{amount}{_UNITS.get(unit.rstrip('s'), unit[:1])}"
        if unit[:1] in set("smhdw")
        else (f"{amount}s" if not unit and found.end() == len(text) else None)
    )


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
