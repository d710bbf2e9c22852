"""Where commands print: data on standard output, messages on standard error, pages into a file or browser."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from flightlog.cli.limits import CliLimits
from flightlog.core.errors import UsageError
from flightlog.show.limits import TextLimits
from flightlog.show.terminal import ascii_text, clean

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
        discard_output()
        raise SystemExit(BROKEN_PIPE) from None


def put_text(text: str) -> None:
    """Print text for people, in ASCII where plots and signs cannot be drawn."""
    put(text if draws_braille() else ascii_text(text))


def json_text(value: object) -> str:
    """A value as indented JSON; ends in a newline."""
    from flightlog.store.documents import document_bytes

    return document_bytes(value).decode()


def has_printed() -> bool:
    """Whether this process has printed data."""
    return _printed


def note(message: str) -> None:
    """Print a message, on one line; nothing where standard error is closed."""
    if sys.stderr is not None:
        with suppress(OSError):  # no room or no reader: there is nobody left to tell
            print(f"flightlog: {clean(message)}", file=sys.stderr, flush=True)


def discard_output() -> None:
    """Let what is still in standard output's buffer go nowhere, so that the interpreter's exit says
    nothing.
    """
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_color() -> bool:
    """Whether to paint: in a terminal that can, unless `NO_COLOR` says otherwise."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and is_terminal(sys.stdout)


def draws_braille() -> bool:
    """Whether standard output is UTF-8, and no terminal with a few hundred characters only."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    few = is_terminal(sys.stdout) and os.environ.get("TERM") in {"dumb", "linux"}
    return encoding in {"utf-8", "utf8"} and not few


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is there, and is a terminal."""
    return stream is not None and stream.isatty()


def columns() -> int | None:
    """The columns of the terminal that is standard output; None where it is none, and lines may be of any
    length.
    """
    size = shutil.get_terminal_size((TextLimits.default_width, 24))
    return size.columns if is_terminal(sys.stdout) else None


def width() -> int:
    """Columns to fill: the terminal's, within reason, and always the same in a pipe."""
    there = columns()
    return TextLimits.default_width if there is None else min(max(there, 60), 140)


def check_file(path: Path | None) -> None:
    """Raise a `UsageError` now if the folder of a file to be written is missing; much work may come
    before. Nothing for None.
    """
    if path is None:
        return
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


def text_options(output: Path | None = None) -> dict[str, Any]:
    """How wide a text is made, and whether it is painted: for this terminal, but not where it goes to a
    file.
    """
    return {"width": width(), "color": wants_color()} if output is None else {}


def put_result(
    value: Any,
    format_: str,
    text: Callable[..., str],
    *,
    encode: Callable[[Any], bytes] | None = None,
    others: Mapping[str, Callable[[Any], str]] | None = None,
    output: Path | None = None,
    **options: Any,
) -> None:
    """Print a result, or write it to a file: as JSON, in one of the `others` by their formats, or as its text
    for the terminal that there is.
    """
    if format_ == "json":
        made = json_text(value) if encode is None else encode(value).decode()
    elif others and format_ in others:
        made = others[format_](value)
    else:
        made = text(value, **text_options(output), **options)
    put_or_write(made, output, format_)


def put_or_write(text: str, output: Path | None, format_: str = "") -> None:
    """Print data, or text for people where `format_` is `text`; or write it to the file that is named."""
    if output is not None:
        write_file(output, text)
    else:
        (put_text if format_ == "text" else put)(text)


OpenPage = Annotated[bool, typer.Option("--open", help="With --format html: open the page in the browser.")]
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def put_page(
    page: str,
    name: str,
    *,
    output: Path | None,
    open_: bool,
    stdout: TextIO | None = None,
    browse: Callable[[str], bool] | None = None,
) -> None:
    """Write a page to `output`; without it into a pipe or, where standard output is a terminal, a file called
    by `name`.

    The file is made in the current folder; with `open_` it is a temporary one. `open_` shows it in the
    browser.
    """
    if output is None and not open_ and not is_terminal(stdout or sys.stdout):
        put(page)
        return
    path = output if output is not None else _temporary(name) if open_ else Path(file_name(name))
    write_file(path, page)
    if output is None:
        note(f"the page is {path}, {len(page) / 1e6:.1f} MB; --output names another file")
    if open_ and not (browse or _browse)(path.resolve().as_uri()):
        note(f"no browser could be started here: open {path}")


def check_page(format_: str, output: Path | None, *, open_: bool) -> None:
    """As `check_file`; also a `UsageError` for `--open` where no page is asked for."""
    if open_ and format_ != "html":
        raise UsageError("--open shows a page: add --format html")
    check_file(output)


def file_name(name: str) -> str:
    """A file name of this folder, whatever the name of a run holds."""
    return f"{_UNSAFE.sub('_', name)[: CliLimits.max_page_name_length]}.html"


def _temporary(name: str) -> Path:
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="flightlog-")) / file_name(name)


def _browse(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)
