"""What a run recorded, cut to what can be shown; control characters and markup are the viewers' to deal
with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

NAME = 200
ARGS = 200
LINE = 300
TRACEBACK = 8_000


def cut(text: str, limit: int) -> str:
    """The beginning of a text, so many characters at most."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut_end(text: str | None, limit: int) -> str | None:
    """The end of a text: of a traceback it says most."""
    return text if text is None or len(text) <= limit else "…" + text[1 - limit :]


def first_line(text: str | None, limit: int = LINE) -> str:
    """The first line of a text; empty where there is none."""
    return cut(text[: 4 * limit].strip().partition("\n")[0], limit) if text else ""


def args_text(args: Mapping[str, Any] | None, limit: int = ARGS) -> str:
    """`scenario_id=47, name=base`; nothing for no arguments."""
    if not args:
        return ""
    parts: list[str] = []
    left = limit
    for name, value in args.items():
        said = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        part = cut(f"{cut(name, NAME)}={said[: limit + 1]}", limit + 1)
        parts.append(part)
        left -= len(part)
        if left < 0:
            break
    return cut(", ".join(parts), limit)
