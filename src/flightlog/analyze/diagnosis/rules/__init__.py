"""Rules that are data: one TOML file per class of failure, with its signs as those who run such systems know
them, and what to do.

A file holds `description`, `suggestions` and `clues`, of the kinds that `matchers` defines; what no pattern
can express is a function (`functions`). `shared` holds patterns that several clues refer to as `{name}`; one
of another file is `{file.name}`. Wherever one pattern may stand, a list means any of them. A pattern may go
on in the next line: line breaks and the blanks around them are taken out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.analyze.diagnosis.base import Case, Sign
from flightlog.analyze.diagnosis.matchers import (
    Ended,
    Errno,
    JobState,
    Named,
    Raised,
    Reports,
    Says,
    Status,
)
from flightlog.analyze.diagnosis.rules.functions import CLUES, SUGGESTIONS

FOLDER = Path(__file__).parent
_REFERENCE = re.compile(r"\{([a-z_.]+)\}")


class FunctionClue(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="function"
):
    """A function of `functions.CLUES` that finds signs."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in CLUES:
            raise ValueError(f"there is no function {self.name!r}")

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """What the function finds."""
        yield from CLUES[self.name](case)


class DataRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule made of clues, and of what to suggest."""

    description: str
    """What happened, in a sentence."""
    clues: tuple[Says | Reports | Errno | Raised | Named | Ended | Status | JobState | FunctionClue, ...]
    general: tuple[str, ...] = msgspec.field(name="suggestions")
    """What to do, the most useful first."""
    suggested_by: str | None = None
    """A function of `functions.SUGGESTIONS` that names the case's own values; its suggestions come first."""

    def __post_init__(self) -> None:
        if self.suggested_by is not None and self.suggested_by not in SUGGESTIONS:
            raise ValueError(f"there is no function {self.suggested_by!r}")

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """Every clue's signs."""
        for clue in self.clues:
            yield from clue.signs(case)

    def suggestions(self, case: Case, /) -> list[str]:
        """What to do, the most useful first."""
        own = SUGGESTIONS[self.suggested_by](case) if self.suggested_by is not None else []
        return [*own, *self.general]


def own_rules(folder: Path = FOLDER) -> dict[str, DataRule]:
    """The rules of a folder, by class, which is the name of the file; none is compiled yet."""
    files = {file.stem: _read(file.read_text("utf-8"), file.name) for file in sorted(folder.glob("*.toml"))}
    shared = {
        f"{name}.{key}": value
        for name, data in files.items()
        for key, value in data.get("shared", {}).items()
    }
    return {name: _rule(data, f"{name}.toml", shared) for name, data in files.items()}


def parse_rule(text: str, name: str = "the rule") -> DataRule:
    """A rule from the text of its TOML file; raises ValueError, with the name, where it is none."""
    return _rule(_read(text, name), name, {})


def _read(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: {error}") from error


def _rule(data: dict[str, Any], name: str, shared: Mapping[str, Any]) -> DataRule:
    own = {**shared, **data.pop("shared", {})}

    def pattern(value: str) -> str:
        joined = "".join(line.strip() for line in value.split("\n")) if "\n" in value else value
        return _REFERENCE.sub(lambda found: any_of(own[found[1]]), joined)

    def any_of(value: str | list[str]) -> str:
        return pattern(value) if isinstance(value, str) else "|".join(map(pattern, value))

    try:
        for clue in data.get("clues", ()):
            for key in {"saying", "calling", "unless", "weakened_by"} & clue.keys():
                clue[key] = any_of(clue[key])
            if "patterns" in clue:
                clue["patterns"] = [pattern(one) for one in clue["patterns"]]
        return msgspec.convert(data, DataRule)
    except KeyError as error:
        raise ValueError(f"{name}: there is no shared pattern {error}") from error
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error
