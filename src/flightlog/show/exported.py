"""What came of an export, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.terminal import clean
from flightlog.store.plain_paths import path_text
from flightlog.units import format_bytes, format_count

if TYPE_CHECKING:
    from flightlog.export.base import Exported


def exported_text(exported: Exported, *, written: bool, size_bytes: int | None) -> str:
    """Where it went, how large it is and what is in it, on one line; then a line a note.

    `written` is false for what was sent to a server. Counts of nothing are left out, unless there is nothing
    else.
    """
    counts = {what: number for what, number in exported.counts.items() if number} or exported.counts
    said = ", ".join(f"{format_count(number)} {_of(number, clean(what))}" for what, number in counts.items())
    size = "" if size_bytes is None else f" ({format_bytes(size_bytes)})"
    head = f"{'Wrote' if written else 'Sent to'} {clean(exported.where)}{size}{': ' if said else ''}{said}"
    return "".join(f"{line}\n" for line in (head, *(f"  {clean(note)}" for note in exported.notes)))


def _of(number: int, what: str) -> str:
    """`rows of tasks`, and of one `row of tasks`."""
    if number != 1 or what.endswith("series"):
        return what
    head, of, rest = what.partition(" of ")
    one = f"{head[:-3]}y" if head.endswith("ies") else head.removesuffix("s")
    return f"{one}{of}{rest}"


def exported_json(exported: Exported, run_id: str, *, size_bytes: int | None) -> str:
    """The same as an object; `size_bytes` is null for what was sent to a server."""
    import msgspec

    found = {
        "run_id": run_id,
        "to": exported.to,
        "where": path_text(exported.where),
        "size_bytes": size_bytes,
        "counts": exported.counts,
        "notes": list(exported.notes),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
