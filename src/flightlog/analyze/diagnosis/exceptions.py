"""Exceptions as programs print them, in lines of logs: Python tracebacks with their chains, Java, C++, R,
Julia, Fortran, Go.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

LONGEST_MESSAGE, MESSAGE_LINES = 4_000, 40
MOST = 64
"""Exceptions kept of one text: the first ones, and the last."""

Link = Literal["cause", "context"]


class Raised(Struct, frozen=True, kw_only=True):
    """One exception that a text shows."""

    type: str
    """As printed: `torch.cuda.OutOfMemoryError`."""
    message: str
    link: Link | None = None
    """How the next exception in the text came of this one: caused by it, or raised while it was handled."""
    files: tuple[str, ...] = ()
    """Where it passed through, the innermost last."""
    functions: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    """Source lines of the frames, the innermost last."""
    quiet: bool = False
    """Logged as a warning or less."""
    mentioned: bool = False
    """Named inside a line, without a traceback of its own."""

    @property
    def name(self) -> str:
        """The type without its module: `OutOfMemoryError`."""
        return re.split(r"[.:/]+", self.type)[-1]

    @property
    def answer(self) -> str | None:
        """The error code that a service answered with, as its client puts it into the message:
        `NoSuchKey`.
        """
        found = _ANSWER.search(self.message)
        return found and (found[1] or found[2])

    @property
    def line(self) -> str:
        """As one line, as a person quotes it."""
        first = self.message.strip().partition("\n")[0]
        return f"{self.type}: {first}" if first else self.type


_HEADER = re.compile(
    r"[\s|+-]*(?:Exception Group )?Traceback \(most recent call last\):?\s*$"
    r"|.{0,200}\bTraceback \(most recent call last\):?\s*$"
)
_FRAME = re.compile(r"[\s|+-]*File \"([^\"]{1,1000})\", line \d+(?:, in (.{1,300}))?\s*$")
_CAUSE = re.compile(r"[\s|+-]*The above exception was the direct cause of the following exception")
_CONTEXT = re.compile(r"[\s|+-]*During handling of the above exception, another exception occurred")
_ENDING = (
    r"Error|Exception|Warning|Interrupt|Exit|Timeout|TimedOut|Failure|Fault|Failed|Expired|Exhausted|Killed"
    r"|Group|Refused|Denied|NotFound|Unavailable|Died|Lost|Worker|Panic|Bug|Abort|Aborted|Reset|Full|Empty"
    r"|Iteration"
)
_TYPE = r"(?:[A-Za-z_]\w{0,80}(?:\.|::|/)){0,12}[A-Za-z_]\w{0,100}"
_IN_BLOCK = re.compile(rf"[\s|+-]*({_TYPE})(?:\((\w{{1,80}})\))?(?::\s?(.*))?$", re.S)
_PLAIN = re.compile(
    rf"(?:[\s|+]*)((?:[A-Za-z_]\w{{0,80}}(?:\.|::)){{0,12}}[A-Za-z_]\w{{0,100}}?(?:{_ENDING})"
    rf"|std::\w{{1,60}}(?=: |$)|(?:[a-z_]\w{{0,80}}\.){{1,12}}_?[A-Z]\w{{2,100}}(?=: "
    rf"|$))(?:\((\w{{0,80}})\))?(?:\s?:\s?(.*))?$"
)
_JAVA = re.compile(
    r"\s*(?:Caused by: |Exception in thread \"[^\"]{0,200}\" |Suppressed: |.{0,80}?: )?"
    r"((?:[a-z]\w{0,60}\.){1,12}[A-Z][\w$]{0,100}(?:Exception|Error|Throwable|Failure))(?::\s?(.*))?$"
)
_JAVA_FRAME = re.compile(r"\s+at [\w.$<>/]{1,400}\(|\s*\.\.\. \d+ (?:more|common frames)")
_INSIDE = re.compile(
    r"(?<![\w.'\"/])((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,100}?(?:Error|Exception))(?:: |\()(.{0,2000})"
)
_CPP = re.compile(
    r".{0,200}terminate called after throwing an instance of '([^']{1,300})'"
    r"|.{0,80}?uncaught exception of type ([\w:]{1,300})"
    r"|.{0,80}?terminating (?:due to|with) uncaught exception of type ([\w:]{1,300})(?::\s?(.*))?"
)
_REPRESENTED = re.compile(
    r"\s*Exception:\s+['\"]?((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,100})\((.{0,2000}?)\)['\"]?\s*$"
)
"""As Dask's workers log a failed task: `Exception: 'OSError("no space")'`."""
_WHAT = re.compile(r"\s*what\(\):\s{0,8}(.*)$")
_JULIA_WRAPPERS = re.compile(r"(?:LoadError|InitError|TaskFailedException|CompositeException)(?:: |$)")
_ABOUT_ANOTHER = re.compile(
    r"RemoteTraceback|_RemoteTraceback|RayTaskError|LoadError|InitError|TaskFailedException"
    r"|CompositeException|Traceback"
)
_BUILTIN = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
_COMMON_WORDS = frozenset(
    [
        "Error",
        "Warning",
        "Timeout",
        "Failure",
        "Failed",
        "Killed",
        "Exit",
        "Fault",
        "Group",
        "Aborted",
        "Worker",
        "Exception",
        "Abort",
        "Full",
        "Empty",
        "Panic",
        "Lost",
        "Denied",
        "Interrupt",
        "Refused",
        "Expired",
        "Bug",
        "Reset",
    ]
)
"""Words that begin a line of many a log; types only where a module stands before them."""
_ANSWER = re.compile(
    r"An error occurred \((\w{1,80})\)|\b(?:ErrorCode|<Code>|Error Code:|code=)\s?([A-Za-z]\w{1,80})"
)
_NESTED = re.compile(r"\s*((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,100}?(?:Error|Exception)): (.*)", re.S)
_RAISING = re.compile(r"\s+raise \w|\s*[\^~]+\s*$|\s*-+> ?\d+ |\s+\d+\s+raise \w")
_GROUP = re.compile(r"[\s|]*\+-[+-]*-* ?\d{0,4} ?-*\s*$")


def read_exceptions(lines: Sequence[Line]) -> tuple[list[Raised], set[int]]:
    """The exceptions in the order of the text, and the numbers of the lines that belong to one of them."""
    found: list[Raised] = []
    taken: set[int] = set()
    at = 0
    while at < len(lines):
        after = _one(lines, at, found, taken)
        at = max(after, at + 1)
        if len(found) > 2 * MOST:
            del found[MOST:-MOST]
    return [one for outer in found for one in _unwrapped(outer)], taken


def _unwrapped(outer: Raised) -> list[Raised]:
    """An exception whose message is another's line (`KryoException: IOException: …`) came of that other
    one.
    """
    inner = _NESTED.match(outer.message)
    if inner is None or not _plausible(inner[1], inner[2]):
        return [outer]
    return [
        Raised(type=inner[1], message=inner[2], link="cause", quiet=outer.quiet, mentioned=outer.mentioned),
        outer,
    ]


def _one(lines: Sequence[Line], at: int, found: list[Raised], taken: set[int]) -> int:
    """Read what starts at a line; the number of the line to go on with."""
    line = lines[at]
    text = line.text
    if not text.strip():
        return at + 1
    if _CAUSE.match(text) or _CONTEXT.match(text):
        if found:
            found[-1] = _linked(found[-1], "cause" if _CAUSE.match(text) else "context")
        taken.add(at)
        return at + 1
    if _HEADER.match(text) or _FRAME.match(text):
        return _block(lines, at, found, taken)
    if (java := _JAVA.match(text)) and (
        text.lstrip().startswith(("Caused by", "Exception in")) or _java_below(lines, at)
    ):
        if text.lstrip().startswith("Caused by: ") and found:
            found[-1] = _linked(found[-1], None)
            caused = Raised(
                type=java[1], message=(java[2] or "")[:LONGEST_MESSAGE], link="cause", quiet=_quiet(line)
            )
            found.insert(
                _start_of_chain(found), caused
            )  # Java prints the cause last: in order of events it is first
        else:
            found.append(Raised(type=java[1], message=(java[2] or "")[:LONGEST_MESSAGE], quiet=_quiet(line)))
        taken.add(at)
        end = at + 1
        while end < len(lines) and _JAVA_FRAME.match(lines[end].text):
            taken.add(end)
            end += 1
        return end
    if cpp := _CPP.match(text):
        message, end = cpp[4] or "", at + 1
        if end < len(lines) and (what := _WHAT.match(lines[end].text)):
            message, end = what[1], end + 1
            taken.add(at + 1)
            while not what[1].strip() and end < min(len(lines), at + 6) and _goes_on(lines[end].text):
                message, end = f"{message}\n{lines[end].text}".strip(), end + 1
                taken.add(end - 1)
        taken.add(at)
        found.append(
            Raised(type=cpp[1] or cpp[2] or cpp[3], message=message[:LONGEST_MESSAGE], quiet=_quiet(line))
        )
        return end
    if shown := _REPRESENTED.match(text):
        found.append(
            Raised(type=shown[1], message=shown[2].replace("\\", "").strip("'\""), quiet=_quiet(line))
        )
        taken.add(at)
        return at + 1
    stripped = text
    for _ in range(4):
        wrapper = _JULIA_WRAPPERS.match(stripped)
        if wrapper is None or wrapper.end() == len(stripped):
            break
        stripped = stripped[wrapper.end() :]
    if (plain := _PLAIN.match(stripped)) and _plausible(plain[1], plain[3]):
        return _add(lines, at, found, taken, (plain[1], plain[2], plain[3]))
    if _RAISING.match(text):
        taken.add(at)  # a source line whose frame was cut off, or one of a notebook's
        return at + 1
    if inside := _INSIDE.search(text):
        kept = Raised(type=inside[1], message=inside[2], quiet=_quiet(line), mentioned=True)
        found.append(kept)  # the line stays a line of the log as well: what stands before it counts
    return at + 1


def _block(lines: Sequence[Line], at: int, found: list[Raised], taken: set[int]) -> int:
    files: list[str] = []
    functions: list[str] = []
    code: list[str] = []
    end, deep = at, 0
    if _HEADER.match(lines[end].text):
        taken.add(end)
        end += 1
    while end < len(lines):
        text = lines[end].text
        if frame := _FRAME.match(text):
            files.append(frame[1])
            functions.append(frame[2] or "")
            code.append("")
            deep = len(text) - len(text.lstrip())
        elif _HEADER.match(text) or _CAUSE.match(text) or _CONTEXT.match(text):
            return end
        elif files and deep and _shallower(text, deep):
            break
        elif files and (text.startswith((" ", "\t")) or not text.strip() or _is_code(lines, end)):
            if text.strip() and set(text.strip()) - set("^~| ") and not code[-1]:
                code[-1] = text.strip()
        elif (
            _GROUP.match(text)
            or text.strip() in {'"""', "'''", ""}
            or text.strip().startswith("[Previous line repeated")
        ):
            pass
        else:
            break
        taken.add(end)
        end += 1
    if end >= len(lines):
        return end
    raised = _IN_BLOCK.match(lines[end].text)
    if raised is None or not _plausible_in_block(raised[1], raised[3]):
        return end
    return _add(lines, end, found, taken, (raised[1], raised[2], raised[3]), (files, functions, code))


def _shallower(text: str, deep: int) -> bool:
    """Whether a line inside an indented traceback stands left of its frames and looks like the exception."""
    indent = len(text) - len(text.lstrip())
    plain = _PLAIN.match(text) if 0 < indent < deep else None
    return plain is not None and _plausible(plain[1], plain[3])


def _is_code(lines: Sequence[Line], at: int) -> bool:
    """Whether a line that lost its indentation is a frame's source: another frame follows it."""
    following = at + 1
    while following < len(lines) and following < at + 3 and set(lines[following].text.strip()) <= set("^~ "):
        following += 1
    return following < len(lines) and _FRAME.match(lines[following].text) is not None


def _add(
    lines: Sequence[Line],
    at: int,
    found: list[Raised],
    taken: set[int],
    what: tuple[str, str | None, str | None],
    frames: tuple[list[str], list[str], list[str]] = ([], [], []),
) -> int:
    kind, inner, first = what
    taken.add(at)
    end, message = at + 1, [first or ""]
    while end < len(lines) and len(message) < MESSAGE_LINES:
        text = lines[end].text
        if (
            _HEADER.match(text)
            or _CAUSE.match(text)
            or _CONTEXT.match(text)
            or _FRAME.match(text)
            or _GROUP.match(text)
        ):
            break
        if _ends_message(lines, end, bool(frames[0])):
            break
        message.append(text)
        taken.add(end)
        end += 1
    if _ABOUT_ANOTHER.search(kind):
        if not inner:
            return end  # a heading of what follows, or of what a worker printed before
        kind = inner
    files, functions, code = (tuple(part) for part in frames)
    found.append(
        Raised(
            type=kind,
            message="\n".join(message)[:LONGEST_MESSAGE],
            quiet=_quiet(lines[at]),
            files=files,
            functions=functions,
            code=code,
        )
    )
    return end


def _ends_message(lines: Sequence[Line], at: int, block: bool) -> bool:
    """Whether a message has ended before this line: a blank one, another exception, or a line of a log."""
    text = lines[at].text
    if not text.strip():
        return at + 1 >= len(lines) or not lines[at + 1].text.startswith((" ", "\t")) or not block
    if lines[at].level is not None or _SHELL.match(text):
        return True
    plain = _PLAIN.match(text)
    return plain is not None and _plausible(plain[1], plain[3])


_SHELL = re.compile(
    r"(?:srun|sbatch|slurmstepd|mpirun|mpiexec|prterun|bash|sh|make|ninja|Killed|Segmentation fault|Aborted"
    r"|terminate called"
    r"|=+ |-{8,}|={8,}|\*{8,}|command terminated|[\w./-]{1,100}: line \d+:)"
)


def _goes_on(text: str) -> bool:
    """Whether a line below an empty `what():` is its message: not blank, a shell's, or a signal handler's."""
    return bool(text.strip()) and _SHELL.match(text) is None and _HANDLER.match(text) is None


_HANDLER = re.compile(r"\[[\w.-]{1,80}:\d+\] ")


def _java_below(lines: Sequence[Line], at: int) -> bool:
    return at + 1 < len(lines) and (
        _JAVA_FRAME.match(lines[at + 1].text) is not None or lines[at + 1].text.startswith("Caused by: ")
    )


def _start_of_chain(found: Sequence[Raised]) -> int:
    start = len(found) - 1
    while start and found[start - 1].link is not None:
        start -= 1
    return max(start, 0)


def _linked(raised: Raised, link: Link | None) -> Raised:
    from msgspec.structs import replace

    return replace(raised, link=link)


def _quiet(line: Line) -> bool:
    return line.level in QUIET


def _plausible(kind: str, message: str | None) -> bool:
    """Whether a line that looks like an exception outside a traceback is one: `ValueError: …`, not `Warning:
    …`.
    """
    name = re.split(r"\.|::", kind)[-1]
    if name in _BUILTIN or kind.startswith("std::"):
        return True
    if name in _COMMON_WORDS:
        return "." in kind and message is not None
    return name[0].isupper() and (
        message is not None
        or "." in kind
        or name.endswith(("Error", "Exception", "Worker", "Exit", "Interrupt"))
    )


def _plausible_in_block(kind: str, message: str | None) -> bool:
    name = re.split(r"\.|::", kind)[-1]
    return message is not None or name[:1].isupper() or "." in kind


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
