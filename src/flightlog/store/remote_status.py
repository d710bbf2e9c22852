"""How far the copies of a run are, as this place remembers, without asking anybody."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.regular_files import read_regular
from flightlog.store.remote_local import list_files
from flightlog.store.remote_state import SyncState, is_followed, states_of


class CopyStatus(Struct, frozen=True, kw_only=True):
    """How far the copy of one run at one address is."""

    run_id: str
    address: str | None
    """None where the run was never copied."""
    state: str
    """`complete`, `behind`, `copying` while a process copies it, or `never`."""
    synced_at: str | None = None
    """When all that was new had been copied for the last time."""
    unsent_bytes: int | None = None
    """What stands in files that are new or have changed since; None where nothing was ever copied."""
    problem: str | None = None
    """Why the last attempt failed."""


def copies_of(run: Path) -> list[CopyStatus]:
    """The copies of a run, by address; one of no address where it has none. Raises OSError."""
    states = states_of(run)
    if not states:
        return [CopyStatus(run_id=run.name, address=None, state="never", problem=_failed(run))]
    busy = is_followed(run)
    return [_status(run, state, busy) for state in states]


def unfinished_copies(run: Path) -> list[CopyStatus]:
    """The copies of a run that should be whole and are not; none where one of them is, or where none was
    asked for.

    Cheap where all is well: the run's files are then not looked at, so a change to them since is not seen.
    """
    states = states_of(run)
    if any(state.complete for state in states) or (not states and _failed(run) is None):
        return []
    try:
        return copies_of(run)
    except OSError:
        return []  # it is being removed


def _status(run: Path, state: SyncState, busy: bool) -> CopyStatus:
    unsent = _unsent(run, state)
    behind = "copying" if busy else "behind"
    return CopyStatus(
        run_id=run.name,
        address=state.address,
        state="complete" if state.complete and not unsent else behind,
        synced_at=state.synced_at,
        unsent_bytes=unsent,
        problem=state.problem,
    )


def _failed(run: Path) -> str | None:
    """Why the process that should have copied the run ended before it knew where to; None where none did."""
    try:
        code, said = (
            read_regular(run / layout.FOLLOWERS / f"sync.{end}").decode("utf-8", "replace")
            for end in ("exit", "log")
        )
    except OSError:
        return None
    last = said.strip().rpartition("\n")[2].removeprefix("flightlog: ")
    return None if code.strip() == "0" else last or f"`flightlog sync` ended with {code.strip()}"


def _unsent(run: Path, state: SyncState) -> int:
    """Bytes of files that are not as they were; of one that grew, what was added."""
    unsent = 0
    for file in list_files(run):
        seen = state.files.get(file.path)
        if file.kind == "tail" or (seen is not None and (seen.inode, seen.size, seen.mtime_ns) == file.state):
            continue
        grew = seen is not None and file.kind == "lines" and file.size >= seen.size
        unsent += file.size - (seen.size if grew and seen is not None else 0)
    return unsent
