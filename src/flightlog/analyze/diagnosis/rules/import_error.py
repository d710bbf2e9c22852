"""A module, a package or a shared library that the program loads is not there, or does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, ended, named, raised, recorded, reports, says

_MODULE = re.compile(r"No module named '?\"?([\w.]+)")
_LIBRARY = re.compile(r"\b(lib[\w.+-]+\.so[\w.]*)")
_VERSIONS = (
    "requires? .{0,80}(?:but|found|installed)|is required for .{0,60}but|compiled using NumPy"
    "|incompatible with|version mismatch|only supports? \\S+ \\d"
)


def _suggest(case: Case) -> list[str]:
    said = []
    if found := _MODULE.search(case.reading.text):
        said.append(
            f"`{found[1]}` is not in the environment that ran this: check with "
            f"`python -c 'import {found[1]}'` there, and install it where the workers run, too."
        )
    if found := _LIBRARY.search(case.reading.text):
        said.append(
            f"`{found[1]}` was not found or does not fit: load its module or add its folder to "
            "`LD_LIBRARY_PATH`."
        )
    return [
        *said,
        "See that the job activates the same environment as your shell: `which python`, `python -m pip "
        "list`.",
    ]


def _not_there(facts: RunFacts) -> Iterator[Sign]:
    if facts.scope == "command" and facts.exit_code == 127:
        yield Sign(source=Source.exit, weight=4.0, text="exit code 127: a command is not there")


rule = Clues(
    raised(6, "ModuleNotFoundError"),
    raised(4.5, "ImportError", unless=_VERSIONS),
    raised(2, "ImportError", saying=_VERSIONS),
    raised(
        4.5,
        "ClassNotFoundException NoClassDefFoundError UnsatisfiedLinkError PackageNotFoundError",
        "LibraryNotFound NoSuchModuleError DistributionNotFound OptionalDependencyNotAvailable",
        "MissingDependencyError BackendUnavailable",
    ),
    says(4, r"\bNo module named\b|cannot import name\b|DLL load failed|failed to import\b", unless=_VERSIONS),
    says(
        5,
        "cannot open shared object file|undefined symbol|symbol lookup error|Library not loaded",
        "symbol not found in flat namespace|error while loading shared libraries|wrong ELF class",
        "invalid ELF header|cannot load (?:shared )?library|could not load (?:dynamic )?library",
        "(?:unable to|could not|cannot|failed to) load (?:the )?(?:shared |dynamic )?(?:library|object|DLL"
        "|(?:\\w+ ){0,3}plugin)",
        "there is no package called|package or namespace load failed(?!.*is being loaded, but)",
        r"Package \S+ not found in current path|Can't locate \S+ in @INC|cannot find (?:module|package)\b",
        r"could not find or load main class|package \S+ does not exist",
        r"cannot load such file|no executable .{1,60}\bfound|unresolved import\b|unable to (?:find|locate"
        r"|start) the (?:specified |requested )?executable",
    ),
    reports(
        5,
        r"version [`'][\w.]{1,80}' not found|\b(?:ERR_)?MODULE_NOT_FOUND\b",
        source=Source.exception,
    ),
    says(
        3,
        r"\bcommand not found\b|executable file not found in \$PATH",
        r"^\S*sh: (?:\d+: |line \d+: )?\S{1,120}: (?:command )?not found",
    ),
    says(2.5, r"fatal error: .{0,120}: No such file or directory|cannot find -l\w+"),
    says(1.5, r"(?:please |try )?(?:pip|conda|mamba|uv pip) install [\w`'\"\[-]", unless="upgrade|==|>="),
    ended(127, weight=2.5),
    named(
        3,
        "Import|(?:Module|Package|Library|Class|Plugin|Dependency)(?:NotFound|Missing"
        "|NotInstalled|Unavailable)|Missing(?:Module|Package|Library|Dependency)",
    ),
    reports(
        4.5,
        r"execv?e?\(\).{0,120}No such file|exec: .{0,120}(?:not found|no such file)|cannot find -l\w+",
        r"^<path>: '[\w.+-]{1,40}': No such file",
    ),
    raised(5, "AttributeError ImportError", saying="partially initialized module|circular import"),
    says(
        4.5,
        r"does not have \S+ in its dependencies|WinError 126|specified module could not be found"
        r"|error loading \S+\.(?:dll|so)",
    ),
    says(
        4,
        r"no suitable (?:\w+ )?driver\b|\bdriver\b.{0,40}\b(?:not found|could not be (?:found|loaded))",
        unless="nvidia|cuda|gpu|device",
    ),
    says(-3, "cannot allocate (?:a )?(?:vector|memory)|failed to map segment .{0,80}memory"),
    recorded(_not_there),
    suggest=_suggest,
)
