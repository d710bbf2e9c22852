"""What was kept of each function, in tiny files beside the results: only to say why a result is missing.

    functions/<name>-<8 hex>/
      code-<32 hex>          a result of this code was kept
      calls/<2 hex>/<hex>    a result of this call was kept; holds the digest of the code it was made with
      last-miss.json         why the last result was missing

No file is ever appended to or locked; one that is torn or gone makes the reason less exact, and nothing else.
There are never more of them than results.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from flightlog.session.cache_entry import About
from flightlog.store.documents import read_document, replace_bytes

NEVER_SEEN, CODE_CHANGED, ARGUMENTS_CHANGED = "never seen", "code changed", "arguments changed"
FUNCTIONS, LAST_MISS = "functions", "last-miss.json"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


class LastMiss(msgspec.Struct, frozen=True, kw_only=True):
    """`last-miss.json`."""

    when: str
    key: str
    reason: str
    about: About
    detail: str | None = None


class Index:
    """The tiny files of one cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FUNCTIONS

    def function_folder(self, function: str) -> Path:
        """Where a function's files are; the function need not be known."""
        name = _UNSAFE.sub("-", function).strip("-.")[-80:] or "function"
        return self.folder / f"{name}-{hashlib.sha256(function.encode('utf-8', 'replace')).hexdigest()[:8]}"

    def reason(self, about: About) -> str:
        """Why there is no result of this call, as far as is known."""
        folder = self.function_folder(about.function)
        try:
            code = _call_file(folder, about).read_text("ascii", "replace")
        except OSError:
            code = ""
        if code:
            return NEVER_SEEN if code == about.code else CODE_CHANGED  # the same code: its result was removed
        return ARGUMENTS_CHANGED if (folder / _code_name(about.code)).exists() else NEVER_SEEN

    def note_kept(self, about: About) -> None:
        """A result of this call was kept; an OSError where that cannot be noted."""
        folder = self.function_folder(about.function)
        call = _call_file(folder, about)
        try:
            replace_bytes(call, about.code.encode())
        except FileNotFoundError:
            make_folders(call.parent, self.folder.parent)
            replace_bytes(call, about.code.encode())
        (folder / _code_name(about.code)).touch(0o600)

    def note_miss(self, miss: LastMiss) -> None:
        """Why a result was missing just now; an OSError where that cannot be noted."""
        folder = self.function_folder(miss.about.function)
        if not folder.is_dir():
            make_folders(folder, self.folder.parent)
        replace_bytes(folder / LAST_MISS, msgspec.json.encode(miss))

    def last_miss(self, function: str) -> LastMiss | None:
        """Why the last result of a function was missing; None where none was, or it cannot be read."""
        return read_document(self.function_folder(function) / LAST_MISS, LastMiss).value

    def forget(self, about: About) -> None:
        """The result of this call is gone."""
        call = _call_file(self.function_folder(about.function), about)
        with suppress(OSError):
            if call.read_text("ascii", "replace") == about.code:
                call.unlink()

    def forget_code(self, function: str, code: str) -> None:
        """No result of this code is left."""
        with suppress(OSError):
            (self.function_folder(function) / _code_name(code)).unlink()


def make_folders(folder: Path, root: Path) -> None:
    """Make a folder and those above it down from `root`, which only their owner may write to; none is
    changed.
    """
    missing = [folder, *folder.parents]
    for one in reversed(missing[: missing.index(root) + 1]):
        if one == root:
            one.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(one, 0o700)  # noqa: PTH102 - the mode holds whatever the umask


def _call_file(folder: Path, about: About) -> Path:
    call = about.call
    return folder / "calls" / call[:2] / call[2:]


def _code_name(code: str) -> str:
    return f"code-{code[:32]}"
