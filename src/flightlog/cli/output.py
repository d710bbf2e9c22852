"""Where commands print: data on standard output, messages on standard error."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from flightlog.core.errors import UsageError
from flightlog.show.terminal import clean

PIPE_WIDTH = 100
_printed = False
BROKEN_PIPE = 141
"""What a shell reports of a command whose reader went away."""


def put(text: str) -> None:
    """Print data; ends the command quietly where nobody reads it any more, and with a word where nobody
    can.
    """
    global _printed
    _printed = True
    if sys.stdout is None:
        note("standard output is closed: there is nowhere to print to")
        raise SystemExit(1)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise SystemExit(BROKEN_PIPE) from None


def has_printed() -> bool:
    """Whether this process has printed data."""
    return _printed


def note(message: str) -> None:
    """Print a message, on one line; nothing where standard error is closed."""
    if sys.stderr is not None:
        with suppress(OSError):  # no room or no reader: there is nobody left to tell
            print(f"flightlog: {clean(message)}", file=sys.stderr, flush=True)


def hush() -> None:
    """Let what is still in standard output's buffer go nowhere, so that the interpreter's exit says
    nothing.
    """
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_color(stream: TextIO | None = None) -> bool:
    """Whether to paint: in a terminal that can, unless `NO_COLOR` says otherwise."""
    stream = stream or sys.stdout
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and is_terminal(stream)


def draws_braille() -> bool:
    """Whether standard output is UTF-8, and no terminal with a few hundred characters only."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("_", "-")
    return encoding in {"utf-8", "utf8"} and os.environ.get("TERM") not in {"dumb", "linux"}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is there, and is a terminal."""
    return stream is not None and stream.isatty()


def columns() -> int | None:
    """The columns of the terminal that is standard output; None where it is none, and lines may be of any
    length.
    """
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if is_terminal(sys.stdout) else None


def width() -> int:
    """Columns to fill: the terminal's, within reason, and always the same in a pipe."""
    there = columns()
    return PIPE_WIDTH if there is None else min(max(there, 60), 140)


def check_file(path: Path) -> None:
    """Raise a `UsageError` now if the folder of a file to be written is missing; much work may come
    before.
    """
    try:
        path.parent.stat()
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def write_file(path: Path, text: str) -> None:
    """Write data to a file instead, replacing it; a `UsageError` with the system's word where that cannot
    be.
    """
    check_file(path)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
