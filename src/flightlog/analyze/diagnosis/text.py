"""A failure text, taken apart: lines without the prefixes that logs put before them, exceptions with their
root cause (Python tracebacks with their chains, Java, C++, R, Julia, Fortran, Go), exit codes, signals,
statuses.

Everything here is about form; what a form means is for the rules to say.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.limits import DiagnosisLimits
from flightlog.core.text import words

Link = Literal["cause", "context"]


class Raised(Struct, frozen=True, kw_only=True):
    """One exception that a text shows."""

    type: str
    """As printed: `torch.cuda.OutOfMemoryError`."""
    message: str
    link: Link | None = None
    """How the next exception in the text came of this one: caused by it, or raised while it was handled."""
    frames: tuple[tuple[str, str, str], ...] = ()
    """File, function and source line of where it passed through, the innermost last."""
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
_LINK = re.compile(
    r"[\s|+-]*(?:The above exception was the direct (cause) of the following exception"
    r"|During handling of the above exception, another exception occurred)"
)
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
    rf"|$))(?:\((\w{{0,80}})\))?(?: in (?:rule|file|line) [^:\n]{{1,200}})?(?:\s?:\s?(.*))?$"
)
_JAVA = re.compile(
    r"\s*(?:Caused by: |Exception in thread \"[^\"]{0,200}\" |Suppressed: |.{0,200}?: )?"
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
_JULIA_WRAPPERS = re.compile(
    r"^(?:(?:LoadError|InitError|TaskFailedException|CompositeException): (?=.)){1,4}"
)
_ABOUT_ANOTHER = re.compile(
    r"RemoteTraceback|_RemoteTraceback|RayTaskError|LoadError|InitError|TaskFailedException"
    r"|CompositeException|Traceback"
)
_BUILTIN = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
_COMMON_WORDS = words(
    "Error Warning Timeout Failure Failed Killed Exit Fault Group Aborted Worker Exception Abort Full Empty "
    "Panic Lost Denied Interrupt Refused Expired Bug Reset"
)
"""Words that begin a line of many a log; types only where a module stands before them."""
_ANSWER = re.compile(
    r"An error occurred \((\w{1,80})\)|\b(?:ErrorCode|<Code>|Error Code:|code=)\s?([A-Za-z]\w{1,80})"
)
_NESTED = re.compile(r"\s*((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,100}?(?:Error|Exception)): (.*)", re.S)
_RAISING = re.compile(r"\s+raise \w|\s*[\^~]+\s*$|\s*-+> ?\d+ |\s+\d+\s+raise \w")
_GROUP = re.compile(r"[\s|]*\+-[+-]*-* ?\d{0,4} ?-*\s*$")
_MARGINS = frozenset({'"""', "'''", ""})


class _ExceptionReader:
    """Goes through lines once: `found` are the exceptions in the order of the text, `taken` the numbers of
    the lines that belong to one of them.

    Each method reads what starts at a line, and returns the number of the line to go on with.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self.found: list[Raised] = []
        self.taken: set[int] = set()
        at = 0
        while at < len(lines):
            at = max(self._read(at), at + 1)
            if len(self.found) > 2 * DiagnosisLimits.max_exceptions:
                del self.found[DiagnosisLimits.max_exceptions : -DiagnosisLimits.max_exceptions]
        self.found = [one for outer in self.found for one in _unwrapped(outer)]

    def _text(self, at: int) -> str:
        return self._lines[at].text if at < len(self._lines) else ""

    def _raised(self, at: int, kind: str, message: str | None, **others: Any) -> Raised:
        quiet = self._lines[at].level in QUIET
        return Raised(
            type=kind,
            message=(message or "")[: DiagnosisLimits.max_message_characters],
            quiet=quiet,
            **others,
        )

    def _read(self, at: int) -> int:
        text, end = self._text(at), at + 1
        if not text.strip():
            return end
        if link := _LINK.match(text):
            if self.found:
                self.found[-1] = replace(self.found[-1], link="cause" if link[1] else "context")
        elif _HEADER.match(text) or _FRAME.match(text):
            return self._read_traceback(at)
        elif (java := _JAVA.match(text)) and (
            text.lstrip().startswith(("Caused by", "Exception in"))
            or _JAVA_FRAME.match(self._text(end))
            or self._text(end).startswith("Caused by: ")
        ):
            end = self._read_java(at, java)
        elif cpp := _CPP.match(text):
            end = self._read_cpp(at, cpp)
        elif shown := _REPRESENTED.match(text):
            self.found.append(self._raised(at, shown[1], shown[2].replace("\\", "").strip("'\"")))
        elif plain := _plain_exception(_JULIA_WRAPPERS.sub("", text)):
            return self._read_message(at, plain)
        elif not _RAISING.match(text):  # else a source line whose frame was cut off, or one of a notebook's
            if inside := _INSIDE.search(text):
                self.found.append(self._raised(at, inside[1], inside[2], mentioned=True))
            return end  # the line stays a line of the log as well: what stands before it counts
        self.taken.update(range(at, end))
        return end

    def _read_java(self, at: int, java: re.Match[str]) -> int:
        if self._text(at).lstrip().startswith("Caused by: ") and self.found:
            self.found[-1] = replace(self.found[-1], link=None)
            start = len(self.found) - 1
            while start and self.found[start - 1].link is not None:
                start -= 1
            # Java prints the cause last: in the order of events it is first
            self.found.insert(start, self._raised(at, java[1], java[2], link="cause"))
        else:
            self.found.append(self._raised(at, java[1], java[2]))
        end = at + 1
        while _JAVA_FRAME.match(self._text(end)):
            end += 1
        return end

    def _read_cpp(self, at: int, cpp: re.Match[str]) -> int:
        message, end = cpp[4] or "", at + 1
        if what := _WHAT.match(self._text(end)):
            message, end = what[1], end + 1
            # Below an empty `what():` stands its message, unless a shell or a signal handler says something.
            while not what[1].strip() and end < at + 6 and self._text(end).strip():
                if _SHELL.match(self._text(end)) or _HANDLER.match(self._text(end)):
                    break
                message, end = f"{message}\n{self._text(end)}".strip(), end + 1
        self.found.append(self._raised(at, cpp[1] or cpp[2] or cpp[3], message))
        return end

    def _read_traceback(self, at: int) -> int:
        frames: list[tuple[str, str, str]] = []
        end, deep = at + bool(_HEADER.match(self._text(at))), 0
        while end < len(self._lines):
            text = self._text(end)
            bare = text.strip()
            if frame := _FRAME.match(text):
                frames.append((frame[1], frame[2] or "", ""))
                deep = len(text) - len(text.lstrip())
            elif _HEADER.match(text) or _LINK.match(text):
                self.taken.update(range(at, end))
                return end
            elif frames and 0 < len(text) - len(text.lstrip()) < deep and _plain_exception(text):
                break  # it stands left of the frames of an indented traceback
            elif frames and (text.startswith((" ", "\t")) or not bare or self._is_code(end)):
                if set(bare) - set("^~| ") and not frames[-1][2]:
                    frames[-1] = (*frames[-1][:2], bare)
            elif not (_GROUP.match(text) or bare in _MARGINS or bare.startswith("[Previous line repeated")):
                break
            end += 1
        self.taken.update(range(at, end))
        raised = _IN_BLOCK.match(self._text(end))
        if raised is None or not (raised[3] is not None or _named_as_a_type(raised[1])):
            return end
        return self._read_message(end, raised, frames)

    def _is_code(self, at: int) -> bool:
        """Whether a line that lost its indentation is a frame's source: another frame follows it."""
        following = at + 1
        while following < at + 3 and set(self._text(following).strip()) <= set("^~ "):
            following += 1
        return _FRAME.match(self._text(following)) is not None

    def _read_message(self, at: int, what: re.Match[str], frames: Sequence[tuple[str, str, str]] = ()) -> int:
        """The rest of an exception from its line, of which `what` has the type, another one in brackets and
        the beginning of the message.
        """
        end, message = at + 1, [what[3] or ""]
        while (
            end < len(self._lines)
            and len(message) < DiagnosisLimits.max_message_lines
            and not self._ends(end, bool(frames))
        ):
            message.append(self._text(end))
            end += 1
        self.taken.update(range(at, end))
        kind = what[2] if _ABOUT_ANOTHER.search(what[1]) else what[1]
        if kind:  # else a heading of what follows, or of what a worker printed before
            self.found.append(self._raised(at, kind, "\n".join(message), frames=tuple(frames)))
        return end

    def _ends(self, at: int, block: bool) -> bool:
        """Whether a message has ended before this line: blank, another exception, or a line of a log."""
        text = self._text(at)
        if not text.strip():
            return not block or not self._text(at + 1).startswith((" ", "\t"))
        marks = (_HEADER, _LINK, _FRAME, _GROUP, _SHELL)
        return (
            any(mark.match(text) for mark in marks)
            or self._lines[at].level is not None
            or _plain_exception(text) is not None
        )


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


_SHELL = re.compile(
    r"(?:srun|sbatch|slurmstepd|mpirun|mpiexec|prterun|bash|sh|make|ninja|Killed|Segmentation fault|Aborted"
    r"|terminate called"
    r"|=+ |-{8,}|={8,}|\*{8,}|command terminated|[\w./-]{1,100}: line \d+:)"
)
_HANDLER = re.compile(r"\[[\w.-]{1,80}:\d+\] ")


def _plain_exception(text: str) -> re.Match[str] | None:
    """An exception on a line outside a traceback: `ValueError: …`, not `Warning: …`."""
    plain = _PLAIN.match(text)
    return plain if plain and _plausible(plain[1], plain[3]) else None


def _plausible(kind: str, message: str | None) -> bool:
    """Whether what looks like a type and its message is an exception."""
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


def _named_as_a_type(kind: str) -> bool:
    return re.split(r"\.|::", kind)[-1][:1].isupper() or "." in kind


QUIET = frozenset({"trace", "debug", "info", "notice", "warning", "warn", "i", "w"})
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
            r"(?:\[([IWEF])|([IWEF])(?=[\d ]))(?:\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: +\d+)?)?"
            r" [\w./-]{1,120}:\d+\] ?",  # glog, TensorFlow
            r"[\w.-]{1,80}:\d{1,9}:\d{1,9} \[\d+\] (?:[\w./-]{1,60}:\d+ )?(?=NCCL (INFO)|(NCCL) WARN)",
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
_GUESSES = re.compile(
    r"There are some potential root causes\b.{0,600}|This can happen (?:when|if) .{0,400}"
    r"|This could be caused by a segmentation fault .{0,200}"
    r"|Due to the asynchronous nature of CUDA kernels.{0,200}"
    r"|This usually is caused by:[\s\S]{0,3000}?(?=-{8})|NOTE: invoking MPI_ABORT[\s\S]{0,300}?kills them"
)
"""What launchers and engines print at every failure of a kind, whatever its cause."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}\x07|\r(?!\n)")


class Line(Struct, frozen=True):
    """One line, and the level it was logged at, in small letters; None where it names none."""

    text: str
    level: str | None


def read_lines(text: str) -> list[Line]:
    """The lines without their prefixes, in order; a long text at both ends, a long line at its start."""
    start, end = DiagnosisLimits.max_characters_at_start, DiagnosisLimits.max_characters_at_end
    if len(text) > start + end:
        text = f"{text[:start]}\n{text[-end:]}"
    text = _GUESSES.sub("", _COLOURS.sub("", text.replace("\r\n", "\n")))
    lines = [line[: DiagnosisLimits.max_line_characters] for line in text.split("\n")]
    if sum(_LABEL.match(line) is not None for line in lines) > 1:
        lines = [_LABEL.sub("", line) for line in lines]
    return [_without_prefixes(line) for line in lines]


def _without_prefixes(line: str) -> Line:
    level, rest = None, line
    for _ in range(DiagnosisLimits.max_line_prefixes):
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


class TextPassage(Struct, frozen=True, kw_only=True):
    """A part of the text, with how much its words count: the root cause's message more than a passing
    warning.
    """

    text: str
    forms: tuple[str, str]
    """Without addresses and paths, as it is and in small letters; line by line the same lines."""
    words: tuple[str, str]
    """Likewise, and without names of files and quoted single words."""
    share: float
    """0 to 1."""

    def line(self, number: int) -> str:
        """A line as it stands in the text."""
        return self.text.split("\n")[number]


class ParsedText(Struct, frozen=True, kw_only=True):
    """What a text shows. Empty where there was no text."""

    text: str = ""
    """As read: without prefixes, the ends of a long text."""
    exceptions: tuple[Raised, ...] = ()
    """In the order in which they happened, as far as the text tells."""
    root: Raised | None = None
    """The one that the others came of."""
    passages: tuple[TextPassage, ...] = ()
    exit_codes: tuple[int, ...] = ()
    """Of processes that ended so, in the order of the text; negative is a signal's number."""
    signals: tuple[str, ...] = ()
    """`SIGKILL`, …, from words, exit codes above 128 and negative ones; in the order of the text."""
    http: tuple[int, ...] = ()
    """Status codes of 400 and above, where the text says that they are."""

    def shares(self) -> list[tuple[Raised, float]]:
        """Every exception with how much it counts as the cause: the root 1, what came of it less."""
        return [(one, 1.0 if one is self.root else share_of(one, self.root)) for one in self.exceptions]


def read_text(text: str, exception_type: str | None = None) -> ParsedText:
    """Take a text apart; never raises, and takes time in proportion to at most 128 KiB of it.

    `exception_type` is the type of the last Python exception where the caller knows it: it is added where the
    text does not show it.
    """
    lines = read_lines(text)
    exceptions = _ExceptionReader(lines)
    found, taken = exceptions.found, exceptions.taken
    whole = "\n".join(line.text for line in lines)
    name = (exception_type or "").strip()
    if name and not any(one.name == re.split(r"[.:]+", name)[-1] for one in found):
        message = "" if found else whole.strip()[: DiagnosisLimits.max_message_characters]
        found.append(Raised(type=name[:200], message=message))
        if message:
            taken = set(range(len(lines)))
    root = root_of(found)
    log = [line for at, line in enumerate(lines) if at not in taken and line.text.strip()]
    codes = exit_codes(whole)
    return ParsedText(
        text=whole.strip("\n"),
        exceptions=tuple(found),
        root=root,
        passages=tuple(_passages(found, root, log)),
        exit_codes=codes,
        signals=signals(whole, codes),
        http=statuses(whole),
    )


def _passages(found: Sequence[Raised], root: Raised | None, log: Sequence[Line]) -> list[TextPassage]:
    said = [] if root is None else [(f"{root.type}: {_words(root)}", 1.0)]
    said += [(f"{one.type}: {_words(one)}", share_of(one, root)) for one in found if one is not root]
    loud = "\n".join(line.text for line in log if line.level not in QUIET)
    quiet = "\n".join(line.text for line in log if line.level in QUIET)
    said += [
        (loud, 0.8 if root is not None else 1.0),
        (quiet, 0.4 if root is not None or loud.strip() else 0.8),
        (_rejoined(log), 0.75 if root is not None else 0.95),
    ]
    return [_passage(text, share) for text, share in said if text.strip()]


def _rejoined(log: Sequence[Line]) -> str:
    """Sentences that go on in the next line, each on one line: a phrase may stand across the break."""
    found = [
        f"{one.text.rstrip()} {after.text.strip()}"
        for one, after in pairwise(log)
        if one.level not in QUIET
        and after.level is None
        and len(one.text) >= DiagnosisLimits.min_wrapped_characters
        and one.text.rstrip()[-1:].isalpha()
        and after.text.lstrip()[:1].islower()
    ]
    return "\n".join(found[-DiagnosisLimits.max_rejoined_sentences :])


def _passage(text: str, share: float) -> TextPassage:
    forms, said = without_addresses(text), prose(text)
    return TextPassage(
        text=text, forms=(forms, small_letters(forms)), words=(said, small_letters(said)), share=share
    )


def _words(raised: Raised) -> str:
    """The message; a `KeyError` names a key, which says nothing by its words."""
    return "" if raised.name == "KeyError" and " " not in raised.message.strip() else raised.message


FALLBACKS = words(
    "KeyError AttributeError StopIteration StopAsyncIteration IndexError Empty LookupError NameError"
)
"""Types that programs raise and handle as a matter of course, to look elsewhere: what comes next is the
failure."""
WRAPPERS = words(
    "ChildFailedError CalledProcessError ProcessRaisedException SubprocessError ActorDiedError RayTaskError "
    "MPIAbortException JobFailedError TaskError WorkflowError CondaError SystemExit SparkException "
    "Py4JJavaError LightningException TrialFailedError TuneError InvocationException RuleException "
    "HydraException InstantiationException ExceptionGroup BaseExceptionGroup ExecutionException "
    "InvocationTargetException CompletionException UncheckedIOException PythonException DeadKernelError "
    "CellExecutionError AirflowException InternalError PicklingFailed ProcessExitedException"
)
"""Types that report another failure."""
CONSEQUENCES = words(
    "BrokenPipeError ConnectionResetError ConnectionAbortedError EOFError CancelledError BrokenBarrierError "
    "DistBackendError DistNetworkError CommClosedError KeyboardInterrupt ResourceWarning IncompleteReadError "
    "UserWarning RuntimeWarning FutureWarning DeprecationWarning"
)
"""Types that the death of another process or rank brings about, or that only warn."""


_ELSEWHERE = re.compile(
    r"root cause|see (?:the )?(?:stack ?trace|traceback|above|below|log)|look up to see|background process"
    r"|following error",
    re.I,
)
"""Messages that say that the failure stands somewhere else in the text."""


def _chains(found: Sequence[Raised]) -> list[list[Raised]]:
    chains: list[list[Raised]] = []
    for one in found:
        if chains and chains[-1][-1].link is not None:
            chains[-1].append(one)
        else:
            chains.append([one])
    return chains


def _chain_root(chain: Sequence[Raised]) -> Raised:
    for one, after in pairwise(chain):
        passing = CONSEQUENCES if one.link == "cause" else FALLBACKS | CONSEQUENCES
        if one.name not in passing or (one.link == "context" and after.name in WRAPPERS):
            return one
    return chain[-1]


def root_of(found: Sequence[Raised]) -> Raised | None:
    """Of several chains (ranks, workers, retries) the first that is no report and no consequence of
    another's.
    """
    roots = [_chain_root(chain) for chain in _chains(found)]

    def reports(one: Raised) -> bool:
        elsewhere = _ELSEWHERE.search(one.message) is not None
        unfinished = one is not roots[-1] and one.message.rstrip().endswith(":")
        return one.name in WRAPPERS | CONSEQUENCES or elsewhere or unfinished

    return min(roots, key=lambda one: (reports(one), one.quiet, one.mentioned), default=None)


def share_of(one: Raised, root: Raised | None) -> float:
    """How much an exception counts as the cause beside the root: 0 to 1."""
    if one.quiet or one.name in WRAPPERS:
        return 0.25
    if one.name in CONSEQUENCES or (one.link == "context" and one.name in FALLBACKS):
        return 0.2
    return 0.5 if one.mentioned or root is not None else 1.0


_SIGNAL_NAMES = (
    "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE "
    "SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ"
)
SIGNALS = dict(enumerate(_SIGNAL_NAMES.split(), start=1))
"""Numbers as on Linux."""

_EXIT = re.compile(
    r"(?:\bexit(?:ed|ing|s)?[ _-]?(?:with )?(?:an? )?(?:non-?zero )?(?:error )?(?:exit )?(?:code|status"
    r"|codes|value)?s?(?: of| was| is)?[ :=(]{1,10}"
    r"|\bnon-zero exit status |\breturn(?:ed)?[ _-]?(?:code|status)?(?: of)?[ :=(]{1,4}|\brc[ :=]{1,3}"
    r"|\bstatus[ :=]{1,3}|\berror code:? )"
    r"(-?\d{1,3})(?!\d|[.:]\d)",
    re.I,
)
_SLURM_EXIT = re.compile(r"\bExitCode[ =]{1,3}(\d{1,3}):(\d{1,2})\b")
_SHELL_WORDS = {
    word: name
    for name, said in {
        "SIGKILL": "Killed|已杀死|強制終了|죽었음|Getötet|Processus arrêté|Tué|Убито",
        "SIGSEGV": "Segmentation fault|sigSegv|段错误|段錯誤|세그멘테이션 오류|Speicherzugriffsfehler"
        "|Erreur de segmentation|Violación de segmento|Falha de segmentação|Errore di segmentazione"
        "|Ошибка сегментирования",
        "SIGBUS": "Bus error|总线错误|Bus-Zugriffsfehler|Erreur de bus",
        "SIGABRT": "Aborted|已放弃",
        "SIGILL": "Illegal instruction|非法指令|Ungültiger Maschinenbefehl|Instruction non permise",
        "SIGFPE": "Floating point exception|sigFpe|浮点数例外|Gleitkomma-Ausnahme",
        "SIGTERM": "Terminated|已终止",
    }.items()
    for word in said.split("|")
}
"""What a shell says of a signal, in the languages that are most spoken where it is run."""
_SIGNAL = re.compile(
    r"\bSignals\.(SIG[A-Z]{2,6})|\b(?<!defined )(?:signal|sig)[ :=(]{1,4}(\d{1,2})\b"
    r"|\b(?:received|caught|got|by|with|of|on|from)[ :]{1,3}(?:a |signal )?\(?(SIG[A-Z]{2,6})\b"
    r"|(?<!closing signal )(?<!sending signal )(?<!via signal )"
    r"\b(SIG(?:KILL|SEGV|TERM|BUS|ABRT|FPE|ILL|XCPU|INT|HUP))\b"
    rf"|(?:^ {{0,2}}|[^ ] |\()(?<!State: )({'|'.join(_SHELL_WORDS)})(?=\s*(?:$|\(|\)|[.,:]| {{2}}))"
    r"|\b(sigFpe|sigSegv)::",
    re.M,
)
_HTTP = re.compile(
    r"\bHTTP(?:/\d(?:\.\d)?)?[ _-]?(?:Status|Error|StatusCode|code|response)?(?: code)?[ :=]{1,4}([45]\d\d)\b"
    r"|\bstatus[ _-]?(?:code)?[ :=]{1,4}\(?([45]\d\d)\b|\b([45]\d\d) (?:Client|Server) Error\b"
    r"|\bStatus Code: ([45]\d\d)\b"
    r"|\breturned error:? ([45]\d\d)\b|\bresponse(?: code)?[ :=]{1,4}([45]\d\d)\b|\bHTTP_?([45]\d\d)\b"
    r"|\bError ([45]\d\d)\b"
    r"|(?<![\w.-])(400(?=:? Bad Request)|401(?=:? Unauthorized)|403(?=:? Forbidden)|404(?=:? Not Found)"
    r"|407(?=:? Proxy)|408(?=:? Request)"
    r"|429(?=:? Too Many)|500(?=:? Internal Server)|502(?=:? Bad Gateway)|503(?=:? Service)"
    r"|504(?=:? Gateway))|\b(?:occurred|error|failed|response) \(([45]\d\d)\)|\b\"?code\"?: ([45]\d\d)\b",
    re.I,
)


def exit_codes(text: str) -> tuple[int, ...]:
    """Other than 0, each once, in the order of the text; negative is a signal's number."""
    found = [(one.start(), int(one[1])) for one in _EXIT.finditer(text)]
    for one in _SLURM_EXIT.finditer(text):
        found.append((one.start(), -int(one[2]) if int(one[2]) else int(one[1])))
    return tuple(dict.fromkeys(code for _, code in sorted(found) if code and code <= 255))


def signals(text: str, codes: Sequence[int]) -> tuple[str, ...]:
    """By name, from words and from exit codes above 128 or below 0, each once."""
    said = [next(value for value in one.groups() if value) for one in _SIGNAL.finditer(text)]
    names = [SIGNALS.get(int(one), "") if one.isdigit() else _SHELL_WORDS.get(one, one) for one in said]
    names += [SIGNALS.get(-code if code < 0 else code - 128, "") for code in codes]
    return tuple(dict.fromkeys(name for name in names if name))


def statuses(text: str) -> tuple[int, ...]:
    """HTTP statuses of 400 and above, where the text says that they are, each once."""
    found = (next(value for value in one.groups() if value) for one in _HTTP.finditer(text))
    return tuple(dict.fromkeys(int(code) for code in found))


def small_letters(text: str) -> str:
    """The text in small letters, as long as it was."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower()[:1] or one for one in text)
