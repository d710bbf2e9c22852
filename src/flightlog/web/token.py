"""The dashboard's access token, which is kept for the user from one start to the next.

It stands in a file that only the user can read. A file that others could have read or written is not used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex, token_urlsafe

from msgspec import Struct

from flightlog.errors import UsageError
from flightlog.settings import expanded

LEAST_TOKEN = 16
MOST_TOKEN = 256
"""Characters of a token, at least and at most."""
FILE = "dashboard-token"


class Token(Struct, frozen=True, kw_only=True):
    """What requests have to bring, and what the user should know about it."""

    value: str | None
    """None: the dashboard asks for no token."""
    note: str | None = None


def token_for(
    given: str | None, *, none: bool = False, loopback: bool = True, environ: Mapping[str, str] | None = None
) -> Token:
    """The token to ask for: the one that is given, or else the user's own, which is made at the first start.

    With `none` there is no token, which only an address that other machines cannot reach allows. A
    `UsageError` for that elsewhere, and for a token that is too short or that an address cannot hold.
    """
    if none and given is not None:
        raise UsageError("--token and --no-token contradict each other: give one of them")
    if none and not loopback:
        raise UsageError(
            "--no-token works on this machine only (127.0.0.1): with another --host, every machine on the "
            "network could "
            "read the runs"
        )
    if none:
        return Token(
            value=None, note="no token is asked for: every user of this machine can read what is shown"
        )
    if given is None:
        return kept_token(environ)
    if not _can_stand_in_an_address(given):
        raise UsageError("--token may hold letters, digits, and - . _ ~ only")
    if len(given) < LEAST_TOKEN:
        raise UsageError(
            f"--token has {len(given)} characters and could be guessed: {LEAST_TOKEN} at least; without "
            "it, your own "
            "token is used, which is made at the first start"
        )
    return Token(
        value=given,
        note="other users of this machine can see --token in the list of processes; without it, your own "
        "token is used",
    )


def kept_token(environ: Mapping[str, str] | None = None) -> Token:
    """The user's token, from a private file that is made where there is none. Never raises.

    A token that others could have read or written is replaced. Where none can be kept, a new one is made at
    every start. Both are said in the note.
    """
    try:
        folder = private_folder(environ)
    except OSError as error:
        return _not_kept(error)
    file = folder / FILE
    for _ in range(3):
        try:
            return Token(value=_read(file))
        except FileNotFoundError:
            reason = None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
        try:
            made = _make(file, replace=reason is not None)
        except FileExistsError:
            continue  # another dashboard was started at the same moment, and has made one
        except OSError as error:
            return _not_kept(error)
        note = None if reason is None else f"a new token was made, old links no longer work: {file} {reason}"
        return Token(value=made, note=note)
    return _not_kept(FileExistsError("it comes and goes"))


def private_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder for what only this user may see, which is made where it is missing. `OSError` where it
    cannot be private.
    """
    environ = os.environ if environ is None else environ
    state = Path(environ.get("XDG_STATE_HOME") or "")
    if not state.is_absolute():  # those do not count, by the specification of the variable
        state = expanded(environ.get("HOME") or "~") / ".local" / "state"
    folder = state / "flightlog"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
        raise PermissionError(f"{folder} is not a folder of this user's")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def write_private(file: Path, text: str, *, replace: bool) -> None:
    """Write a file that only this user can read, whole or not at all. `FileExistsError` without `replace`."""
    draft = file.with_name(f".{file.name}.{token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    out = os.open(draft, flags, 0o600)
    try:
        with open(out, "w", encoding="ascii") as opened:  # noqa: PTH123 - a descriptor
            opened.write(text)
        if replace:
            draft.replace(file)
        else:
            file.hardlink_to(draft)
    finally:
        with suppress(OSError):
            draft.unlink()


def _make(file: Path, *, replace: bool) -> str:
    made = token_urlsafe(24)
    write_private(file, f"{made}\n", replace=replace)
    return made


def _read(file: Path) -> str:
    """The token in a file; a `ValueError` says why it is not to be used, as `... reason`."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if file.is_symlink():
        raise ValueError("was a link")
    opened = os.open(file, flags)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("was not a regular file")
        if not _is_ours(found):
            raise ValueError("belonged to another user")
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            raise ValueError(f"could be read by others (mode {stat.S_IMODE(found.st_mode):04o})")
        data = os.read(opened, MOST_TOKEN + 2)
    finally:
        os.close(opened)
    text = data.decode("ascii", "replace").strip()
    if not LEAST_TOKEN <= len(text) <= MOST_TOKEN or not _can_stand_in_an_address(text):
        raise ValueError("held no token")
    return text


def _is_ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _can_stand_in_an_address(text: str) -> bool:
    return all(character.isascii() and (character.isalnum() or character in "-._~") for character in text)


def _not_kept(error: OSError) -> Token:
    return Token(
        value=token_urlsafe(24),
        note=f"the token could not be kept ({error.strerror or error}): the next start has another one",
    )
