"""What came of copying runs to a remote place, as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.show.phrases import count_text, moment_text
from flightlog.show.table import table
from flightlog.show.terminal import Ink, clean
from flightlog.units import format_bytes

if TYPE_CHECKING:
    from flightlog.store.remote_check import RemoteCheck
    from flightlog.store.remote_status import CopyStatus
    from flightlog.store.remote_upload import Synced


def synced_text(synced: Synced) -> str:
    """A line on a run that was copied, and one for each thing to know; ends in a newline."""
    there = f"{count_text(synced.files, 'file')}, {format_bytes(synced.bytes)}"
    if not synced.sent_files:
        what = f"nothing new; {there} in {synced.address}"
    else:
        sent = f"sent {format_bytes(synced.sent_bytes)} of {count_text(synced.sent_files, 'file')}"
        what = f"{sent}; {there} in {synced.address}"
    lines = [f"{synced.run_id}: {what}"]
    if not synced.complete:
        lines.append("  it has not ended: run the same again later, or use --follow, for the rest")
    lines += [f"  {note}" for note in synced.notes]
    return "".join(f"{clean(line)}\n" for line in lines)


def check_text(check: RemoteCheck, *, color: bool = False) -> str:
    """A line on a copy that was read again, and one for each thing that is wrong; ends in a newline."""
    ink = Ink(color)
    word = ink("bad", "wrong") if check.problems else ink("good", "ok")
    read = f"{count_text(check.files, 'file')}, {format_bytes(check.bytes)} read in {check.address}"
    lines = [f"{clean(check.run_id)}: {word}, {clean(read)}"]
    lines += [f"  {clean(problem)}" for problem in check.problems]
    return "".join(f"{line}\n" for line in lines)


def copies_text(copies: Sequence[CopyStatus], *, color: bool = False) -> str:
    """A row for each run and address, and below it what is wrong; ends in a newline, empty for none."""
    if not copies:
        return ""
    ink = Ink(color)
    rows = [
        (
            clean(one.run_id),
            one.state,
            moment_text(one.synced_at) if one.synced_at else "",
            _unsent(one),
            clean(one.address or ""),
        )
        for one in copies
    ]
    head = ("Run", "Copy", "Last", "Unsent", "Where")
    lines = table(head, rows, width=sys.maxsize, ink=ink, left=("Copy", "Last", "Where"), indent="")
    lines += [clean(f"{one.run_id}: {one.problem}") for one in copies if one.problem]
    return "\n".join(lines) + "\n"


def lacking_text(copy: CopyStatus) -> str:
    """A sentence on a copy that is not whole, and what to do."""
    if copy.state == "copying":
        return clean(f"it is being copied to {copy.address}, {_unsent(copy)} are left")
    why = f" ({copy.problem})" if copy.problem else ""
    if copy.address is None:
        return clean(f"it was not copied{why}; `flightlog sync {copy.run_id}` does that")
    mend = f"`flightlog sync {copy.run_id} --to {copy.address}` sends it"
    return clean(f"{_unsent(copy)} of it were not copied to {copy.address}{why}; {mend}")


def _unsent(one: CopyStatus) -> str:
    return "" if one.unsent_bytes is None else format_bytes(one.unsent_bytes)
