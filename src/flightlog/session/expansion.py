"""`${VAR}` and `${VAR:-default}` in a text, expanded where it is used; `$$` is a dollar sign.

As in a shell, the default counts where the variable is unset or empty. Anything else after a dollar sign,
such as `$HOME` or `$(date)`, stays as it is: a script's own variables are the script's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_FOUND = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_INSIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class Expanded(Struct, frozen=True, kw_only=True):
    """A text with its variables put in, and what went wrong on the way."""

    text: str
    missing: tuple[str, ...] = ()
    """Variables that are not set and have no default; they stand as nothing in `text`."""
    malformed: tuple[str, ...] = ()
    """Pieces that look like a variable and are none; they stand as written in `text`."""


def has_variables(text: str) -> bool:
    """Whether a text says something else than it shows: a variable, or something that looks like one."""
    return any(found.group() != "$$" for found in _FOUND.finditer(text))


def variables(text: str) -> tuple[str, ...]:
    """The names of the variables in a text, each once, in their order."""
    named = (_INSIDE.fullmatch(found.group(1)) for found in _FOUND.finditer(text) if found.group(2))
    return tuple(dict.fromkeys(name.group(1) for name in named if name is not None))


def as_written(text: str) -> str:
    """What of a text does not come from variables: `${NAME}` is nothing, and `${NAME:-x}` is `x`."""

    def shown(found: re.Match[str]) -> str:
        inside = _INSIDE.fullmatch(found.group(1) or "") if found.group() != "$$" else None
        return found.group() if inside is None else inside.group(2) or ""

    return _FOUND.sub(shown, text)


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """The text with every variable replaced. What comes out of a variable is not expanded again. Never
    raises.
    """
    missing: list[str] = []
    malformed: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        inside = _INSIDE.fullmatch(found.group(1)) if found.group(2) else None
        if inside is None or "${" in (inside.group(2) or ""):
            malformed.append(found.group())
            return found.group()
        name, default = inside.groups()
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            missing.append(name)
        return environ.get(name, "")

    done = _FOUND.sub(replaced, text)
    return Expanded(
        text=done, missing=tuple(dict.fromkeys(missing)), malformed=tuple(dict.fromkeys(malformed))
    )


def escape(text: str) -> str:
    """The text written so that expanding gives it back."""
    return text.replace("$", "$$")
