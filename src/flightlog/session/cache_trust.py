"""Whose files may be unpickled: reading a pickle runs whatever its writer wanted, so only one's own will
do.
"""

from __future__ import annotations

import os
import stat


def this_user() -> int | None:
    """The user this process acts for; None where files have no owners."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def refusal(path: str | os.PathLike[str], found: os.stat_result, user: int | None) -> str | None:
    """Why a file or folder is not to be trusted, and what to do; None if it is.

    It must belong to the user, or to root, and nobody else may be able to write to it.
    """
    if user is None:
        return None
    what = "the cache folder" if stat.S_ISDIR(found.st_mode) else "the cache entry"
    why = "results are unpickled from there, which can run code"
    if found.st_uid not in (user, 0):
        return f"{what} {path} belongs to user {found.st_uid}, not to user {user}: {why}; use a folder of your own"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        return f"{what} {path} can be written to by others (mode {mode:04o}): {why}; see who did, then chmod -R go-w"
    return None
