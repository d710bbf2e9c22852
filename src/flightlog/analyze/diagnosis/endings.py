"""How processes ended and requests were answered, as texts tell it: exit codes, signals, HTTP statuses."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
