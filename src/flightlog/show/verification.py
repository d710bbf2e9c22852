"""The result of a verification as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.terminal import Ink, clean, pad

if TYPE_CHECKING:
    from flightlog.analyze.verify import Verification

_WORDS = {True: ("ok", "good"), False: ("wrong", "bad"), None: ("-", "quiet")}


def verification_text(result: Verification, *, color: bool = False) -> str:
    """One line a check, its findings below it; ends in a newline."""
    ink = Ink(color)
    lines = [f"{ink('title', clean(result.run_id))}: {clean(result.status)}"]
    longest = max((len(check.name) for check in result.checks), default=0)
    for check in result.checks:
        word, style = _WORDS[check.ok]
        lines.append(f"  {ink(style, pad(word, 5))}  {pad(check.name, longest)}  {clean(check.detail)}")
        lines += [f"           {clean(finding)}" for finding in check.findings]
    return "\n".join(lines) + "\n"
