"""Lines of a log as the program wrote them: bounded, without colours, and without what others put before
them.
"""

from __future__ import annotations

import re

from msgspec import Struct

READ_AT_START, READ_AT_END = 32 * 1024, 96 * 1024
"""Characters read of a longer text: how it began, and how it ended."""
LONGEST_LINE = 4_000

QUIET = frozenset({"trace", "debug", "info", "notice", "warning", "warn"})
"""Levels at which programs say what they survived."""

_LEVEL = r"(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERR|CRITICAL|FATAL|SEVERE)"
_DATE = r"(?:\d{4}[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/]\d{2,4}|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} [ \d]\d)"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: \d{4})?"
_PREFIXES = re.compile(
    "|".join(
        (
            rf"\[?\(?{_DATE}(?:[T ]|, ){_TIME}(?:Z| ?[+-]\d\d:?\d\d| UTC)?\]?\)?\s?[:|,-]?\s?",  # date, time
            rf"\[?{_TIME}\]?\s",  # a time
            rf"\d\d-\d\d {_TIME}\s",  # a day and a time
            r"(?:\[[\w./-]{1,80}\.\w{1,4}:\d+\]|\{{1,2}[\w./-]{1,80}\.\w{1,4}:\d+\}{1,2})\s?",  # file:line
            r"[a-z_][\w.]{0,80} \| ",  # a logger's name
            r"\w{3} [ \d]\d \d\d:\d\d:\d\d \S{1,80} [\w./()-]{1,60}(?:\[\d+\])?: ",  # syslog
            r"\w{3} [ \d]\d \d\d:\d\d:\d\d\s",  # the same without a host
            r"\[std(?:err|out)\]\s?",
            rf"\[{_LEVEL} [^\]]{{0,40}}\]:?\s?",
            r"\[\s*\d{1,9}\.\d{3,9}\]\s",  # the kernel's ring buffer
            r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ [\w./-]{1,80}:\d+\] ",  # glog
            r"\[\d+,\d+\]<std(?:err|out)>:\s?",  # mpirun --tag-output
            r"\[?(?:rank|default|local_rank|proc|worker|node)[ :_-]?\d{1,6}\]?\s?:\s?",  # torchrun
            r"\[(?:rank|default|local_rank|worker)[ :_-]?\d{1,6}\]\s?",
            r"\([\w:.<>-]{1,80} pid=\d+(?:, ip=[\w.:-]{1,60})?\)\s?",  # Ray
            r"\[pod/[\w./-]{1,200}\]\s",  # kubectl logs --prefix
            r"[\w.-]{1,80}-\d{1,4}\s{0,20}\|\s",  # docker compose
            r"[A-Za-z_][\w.]{0,80} - (?=(?:DEBUG|INFO|WARN|ERROR|CRITICAL))",  # a logger's name
            rf"\[{_LEVEL}\s?\]\s?:?\s?",
            rf"{_LEVEL}(?::[\w.]{{1,80}}:|\s{{0,8}}[:|]\s?|\s-\s|\s{{1,8}}(?=\S))",
            r"E {2,7}(?=\S)",  # pytest
            r"\s{1,40}\| ",  # an exception group's margin
        )
    )
)
_LABEL = re.compile(r"^ {0,4}\d{1,5}: (?=\S|\s{2,})")
"""What `srun --label` puts before every line; a lone one is the program's own."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}\x07|\r(?!\n)")
_STRIPPED = 6
"""How many prefixes a line may carry: a pod's name, a time, a logger, a level, a rank."""


class Line(Struct, frozen=True):
    """One line, and the level it was logged at, in small letters; None where it names none."""

    text: str
    level: str | None


def read_lines(text: str) -> list[Line]:
    """The lines without their prefixes, in order; a long text at both ends, a long line at its start."""
    if len(text) > READ_AT_START + READ_AT_END:
        text = f"{text[:READ_AT_START]}\n{text[-READ_AT_END:]}"
    text = _COLOURS.sub("", text.replace("\r\n", "\n"))
    lines = [line[:LONGEST_LINE] for line in text.split("\n")]
    if sum(_LABEL.match(line) is not None for line in lines) > 1:
        lines = [_LABEL.sub("", line) for line in lines]
    return [_without_prefixes(line) for line in lines]


def _without_prefixes(line: str) -> Line:
    level, rest = None, line
    for _ in range(_STRIPPED):
        found = _PREFIXES.match(rest)
        if found is None or not found.end():
            break
        if said := next((value for value in found.groups() if value), None):
            level = said.lower()
        rest = rest[found.end() :]
    return Line(rest.rstrip(), level)


_ADDRESS = (
    r"(?P<url>\b[A-Za-z][\w+.-]{1,20}://[^\s'\"<>]{1,2000})"
    r"|(?P<path>(?<![\w<.])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@%+=,~-]{1,255}){1,64}[/\\]?)"
    r"|(?P<file>\b[\w.-]{1,120}(?:/[\w.@%+=-]{1,255}){2,64}/?)"
)
_ADDRESSES = re.compile(_ADDRESS)
_NOT_PROSE = re.compile(
    rf"{_ADDRESS}"
    r"|(?P<relative>\b[\w.-]{1,120}/[\w@%+=-]{1,255}\.\w{1,8}\b)"
    r"|(?P<name>\b[\w-]{1,120}\.(?:py|csv|txt|json|yaml|yml|h5|nc|parquet|log|sh|toml|dat|bin|so|gz|zip|cpp"
    r"|cc|c|h|R|jl|java|f90)\b)"
    r"|(?P<called>\b\w{1,80}\(\)(?= (?:takes|missing|got|argument|expected)))"
    r"|'[^\s']{1,200}'"
    r'|"[^\s"]{1,200}"'
    r"|`[^\s`]{1,200}`"
)
_INSTEAD = {"url": "<url>", "path": "<path>", "file": "<path>", "relative": "<path>", "name": "<path>"}


def prose(text: str) -> str:
    """The text with addresses, file names and quoted single words blanked out: their words are names, not
    claims.
    """
    return _NOT_PROSE.sub(lambda found: _INSTEAD.get(found.lastgroup or "", "''"), text)


def without_addresses(text: str) -> str:
    """The text with addresses and paths blanked out."""
    return _ADDRESSES.sub(lambda found: _INSTEAD.get(found.lastgroup or "", "''"), text)
