"""Where commands print: data on standard output, messages on standard error."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from flightlog.errors import UsageError
from flightlog.show.terminal import clean

PIPE_WIDTH = 100
BROKEN_PIPE = 141
"""What a shell reports of a command whose reader went away."""


def put(text: str) -> None:
    """Print data; ends the command quietly where nobody reads it any more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise SystemExit(BROKEN_PIPE) from None


def note(message: str) -> None:
    """Print a message, on one line."""
    print(f"flightlog: {clean(message)}", file=sys.stderr)


def hush() -> None:
    """Let what is still in standard output's buffer go nowhere, so that the interpreter's exit says nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_color(stream: TextIO | None = None) -> bool:
    """Whether to paint: in a terminal that can, unless `NO_COLOR` says otherwise."""
    stream = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def width() -> int:
    """Columns to fill: the terminal's, within reason, and always the same in a pipe."""
    if not sys.stdout.isatty():
        return PIPE_WIDTH
    return min(max(shutil.get_terminal_size((PIPE_WIDTH, 24)).columns, 60), 140)


def write_file(path: Path, text: str) -> None:
    """Write data to a file instead, replacing it; a folder that is missing is a `UsageError`."""
    try:
        path.write_text(text, encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
