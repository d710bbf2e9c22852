"""A scalar's text as the value its field wants, or what is wrong with it and what was likely meant."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.units import parse_age, parse_size
from flightlog.session.shapes import Kind, Shape

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


def nearest(word: str, known: tuple[str, ...] | list[str]) -> str | None:
    """The known word that is closest to this one, whatever its case; None where none is close."""
    lowered = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None
