"""A failure text, taken apart: exceptions with their root cause, lines of the log, exit codes, signals,
statuses.

Everything here is about form; what a form means is for the rules to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from flightlog.analyze.diagnosis.exceptions import (
    QUIET,
    Line,
    Raised,
    prose,
    read_exceptions,
    read_lines,
    without_addresses,
)


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
    last: Raised | None = None
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
    found, taken = read_exceptions(lines)
    if exception_type and (name := exception_type.strip()) and not _shown(found, name):
        message = "" if found else _plain(lines)
        found.append(Raised(type=name[:200], message=message))
        if message:
            taken = set(range(len(lines)))
    root = root_of(found)
    told = [one for one in found if not one.mentioned] or found
    log = [line for at, line in enumerate(lines) if at not in taken and line.text.strip()]
    whole = "\n".join(line.text for line in lines)
    codes = exit_codes(whole)
    return ParsedText(
        text=whole.strip("\n"),
        exceptions=tuple(found),
        root=root,
        last=told[-1] if told else None,
        passages=tuple(_passages(found, root, log)),
        exit_codes=codes,
        signals=signals(whole, codes),
        http=statuses(whole),
    )


def _shown(found: Sequence[Raised], name: str) -> bool:
    last = re.split(r"[.:]+", name)[-1]
    return any(one.name == last for one in found)


def _plain(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines).strip()[:4_000]


def _passages(found: Sequence[Raised], root: Raised | None, log: Sequence[Line]) -> list[TextPassage]:
    said = [] if root is None else [(f"{root.type}: {_words(root)}", 1.0)]
    for one in found:
        if one is not root:
            said.append((f"{one.type}: {_words(one)}", share_of(one, root)))
    loud = "\n".join(line.text for line in log if line.level not in QUIET)
    quiet = "\n".join(line.text for line in log if line.level in QUIET)
    said += [
        (loud, 0.8 if root is not None else 1.0),
        (quiet, 0.4 if root is not None or loud.strip() else 0.8),
        (_rejoined(log), 0.75 if root is not None else 0.95),
    ]
    return [_passage(text, share) for text, share in said if text.strip()]


WRAPPED = 30
"""Characters that a line must have to be one that a terminal or an editor wrapped."""
REJOINED = 200
"""Sentences put together again, the last ones: a log of prose must not take twice the time."""


def _rejoined(log: Sequence[Line]) -> str:
    """Sentences that go on in the next line, each on one line: a phrase may stand across the break."""
    found = [
        f"{one.text.rstrip()} {after.text.strip()}"
        for one, after in pairwise(log)
        if one.level not in QUIET
        and after.level is None
        and len(one.text) >= WRAPPED
        and one.text.rstrip()[-1:].isalpha()
        and after.text.lstrip()[:1].islower()
    ]
    return "\n".join(found[-REJOINED:])


def _passage(text: str, share: float) -> TextPassage:
    forms, words = without_addresses(text), prose(text)
    return TextPassage(
        text=text,
        forms=(forms, small_letters(forms)),
        words=(words, small_letters(words)),
        share=share,
    )


def _words(raised: Raised) -> str:
    """The message; a `KeyError` names a key, which says nothing by its words."""
    return "" if raised.name == "KeyError" and " " not in raised.message.strip() else raised.message


FALLBACKS = frozenset(
    [
        "KeyError",
        "AttributeError",
        "StopIteration",
        "StopAsyncIteration",
        "IndexError",
        "Empty",
        "LookupError",
        "NameError",
    ]
)
"""Types that programs raise and handle as a matter of course, to look elsewhere: what comes next is the
failure."""
WRAPPERS = frozenset(
    [
        "ChildFailedError",
        "CalledProcessError",
        "ProcessRaisedException",
        "SubprocessError",
        "ActorDiedError",
        "RayTaskError",
        "MPIAbortException",
        "JobFailedError",
        "TaskError",
        "WorkflowError",
        "CondaError",
        "SystemExit",
        "SparkException",
        "Py4JJavaError",
        "LightningException",
        "TrialFailedError",
        "TuneError",
        "InvocationException",
        "RuleException",
        "HydraException",
        "InstantiationException",
        "ExceptionGroup",
        "BaseExceptionGroup",
        "ExecutionException",
        "InvocationTargetException",
        "CompletionException",
        "UncheckedIOException",
        "PythonException",
        "DeadKernelError",
        "CellExecutionError",
        "AirflowException",
        "InternalError",
        "PicklingFailed",
        "ProcessExitedException",
    ]
)
"""Types that report another failure."""
CONSEQUENCES = frozenset(
    [
        "BrokenPipeError",
        "ConnectionResetError",
        "ConnectionAbortedError",
        "EOFError",
        "CancelledError",
        "BrokenBarrierError",
        "DistBackendError",
        "DistNetworkError",
        "CommClosedError",
        "KeyboardInterrupt",
        "ResourceWarning",
        "IncompleteReadError",
        "UserWarning",
        "RuntimeWarning",
        "FutureWarning",
        "DeprecationWarning",
    ]
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
    following = False
    for one in found:
        if following:
            chains[-1].append(one)
        else:
            chains.append([one])
        following = one.link is not None
    return chains


def _chain_root(chain: Sequence[Raised]) -> Raised:
    for one, after in pairwise(chain):
        if one.link == "cause" and one.name not in CONSEQUENCES:
            return one
        if one.link == "context" and one.name not in FALLBACKS | CONSEQUENCES:
            return one
        if one.link == "context" and after.name in WRAPPERS:
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

    def rank(one: Raised) -> int:
        return (
            reports(one) * 4 + one.quiet * 2 + (one.mentioned and any(not other.mentioned for other in roots))
        )

    return min(roots, key=rank, default=None)


def share_of(one: Raised, root: Raised | None) -> float:
    """How much an exception counts as the cause beside the root: 0 to 1."""
    if one.quiet or one.name in WRAPPERS:
        return 0.25
    if one.name in CONSEQUENCES or (one.link == "context" and one.name in FALLBACKS):
        return 0.2
    return 0.5 if one.mentioned or root is not None else 1.0


SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}
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
_SIGNAL = re.compile(
    r"\bSignals\.(SIG[A-Z]{2,6})|\b(?:signal|sig)[ :=(]{1,4}(\d{1,2})\b|\b(?:received|caught|got|by|with|of"
    r"|on|from)[ :]{1,3}(?:a |signal )?\(?(SIG[A-Z]{2,6})\b"
    r"|(?<!closing signal )(?<!sending signal )\b(SIG(?:KILL|SEGV|TERM|BUS|ABRT|FPE|ILL|XCPU|INT|HUP))\b"
    r"|(?:^ {0,2}|[^ ] |\()(?<!State: )(Killed|Segmentation fault|Bus error|Aborted|Illegal instruction"
    r"|Floating point exception|Terminated)(?=\s*(?:$|\(|\)|[.,:]| {2}))|\b(sigFpe|sigSegv)::",
    re.M,
)
_SHELL_WORDS = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Terminated": "SIGTERM",
    "sigFpe": "SIGFPE",
    "sigSegv": "SIGSEGV",
}
_HTTP = re.compile(
    r"\bHTTP(?:/\d(?:\.\d)?)?[ _-]?(?:Status|Error|StatusCode|code|response)?(?: code)?[ :=]{1,4}([45]\d\d)\b"
    r"|\bstatus[ _-]?(?:code)?[ :=]{1,4}\(?([45]\d\d)\b|\b([45]\d\d) (?:Client|Server) Error\b"
    r"|\bStatus Code: ([45]\d\d)\b"
    r"|\breturned error:? ([45]\d\d)\b|\bresponse(?: code)?[ :=]{1,4}([45]\d\d)\b|\bHTTP_?([45]\d\d)\b"
    r"|\bError ([45]\d\d)\b"
    r"|(?<![\w.-])(400(?=:? Bad Request)|401(?=:? Unauthorized)|403(?=:? Forbidden)|404(?=:? Not Found)"
    r"|407(?=:? Proxy)|408(?=:? Request)"
    r"|429(?=:? Too Many)|500(?=:? Internal Server)|502(?=:? Bad Gateway)|503(?=:? Service)"
    r"|504(?=:? Gateway))|\(([45]\d\d)\)[ :]|\b\"?code\"?: ([45]\d\d)\b",
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
    found: list[str] = []
    for one in _SIGNAL.finditer(text):
        if one[2]:
            found.append(SIGNALS.get(int(one[2]), ""))
        else:
            word = next(value for value in one.groups() if value)
            found.append(_SHELL_WORDS.get(word, word))
    for code in codes:
        number = -code if code < 0 else code - 128 if code > 128 else 0
        found.append(SIGNALS.get(number, ""))
    return tuple(dict.fromkeys(name for name in found if name))


def statuses(text: str) -> tuple[int, ...]:
    """HTTP statuses of 400 and above, where the text says that they are, each once."""
    found = (next(value for value in one.groups() if value) for one in _HTTP.finditer(text))
    return tuple(dict.fromkeys(int(code) for code in found))


def small_letters(text: str) -> str:
    """The text in small letters, as long as it was."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower()[:1] or one for one in text)
