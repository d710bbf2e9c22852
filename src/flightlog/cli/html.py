"""Where a page goes: into a file, a browser or a pipe, and never into a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TextIO

import typer

from flightlog.cli.output import is_terminal, note, put, write_file

OpenPage = Annotated[bool, typer.Option("--open", help="With --format html: show the page in the browser.")]
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 120


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


def file_name(name: str) -> str:
    """A file name of this folder, whatever the name of a run holds."""
    return f"{_UNSAFE.sub('_', name)[:_LONGEST]}.html"


def _temporary(name: str) -> Path:
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="flightlog-")) / file_name(name)


def _browse(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)
