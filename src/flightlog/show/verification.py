"""The result of a verification as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.terminal import Ink, clean, pad
from flightlog.store.layout import CHECKSUMS

if TYPE_CHECKING:
    from flightlog.analyze.verify import Check, Verification

_NO_CHECKSUMS = f"{CHECKSUMS} missing"
_WORDS = {True: ("ok", "good"), False: ("wrong", "bad"), None: ("-", "quiet")}


def verification_text(result: Verification, *, color: bool = False) -> str:
    """One line a check, its findings below it; ends in a newline."""
    ink = Ink(color)
    lines = [f"{ink('title', clean(result.run_id))}: {clean(result.status)}"]
    longest = max((len(check.name) for check in result.checks), default=0)
    for check in result.checks:
        word, style = _WORDS[check.ok]
        detail, findings = _in_words(check, result)
        lines.append(f"  {ink(style, pad(word, 5))}  {pad(check.name, longest)}  {clean(detail)}")
        lines += [f"           {clean(finding)}" for finding in findings]
    return "\n".join(lines) + "\n"


def _in_words(check: Check, result: Verification) -> tuple[str, tuple[str, ...]]:
    """What a check found. Checksums that are missing say nothing of the files: that is one plain
    statement.
    """
    if check.ok is not False or [f.partition(":")[0] for f in check.findings] != [_NO_CHECKSUMS]:
        return check.detail, check.findings
    if result.status in {"crashed", "unknown"}:
        return "the run was never closed: there are no checksums to compare with", ()
    repair = f"`flightlog verify {result.run_id} --repair` makes them"
    return (
        f"there are no checksums to compare with: they were removed, or closing the run failed; {repair}",
        (),
    )
