"""Short texts out of longer ones: counts with their noun, the beginning or end of a text, one line, names of
tasks and signals.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

INDEX = r"(?s)(.)\[[^\[\]]*\]$"
"""The index of one of many at the end of a task's name, and the character before it; SQL takes it, too."""


def words(text: str) -> frozenset[str]:
    """The words of a text, which are told apart by blanks."""
    return frozenset(text.split())


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 task`, `2,000 tasks`; `many` is for nouns whose plural is not formed with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`: the parts of a sentence."""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and an ellipsis: `limit` characters at most."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def cut_end(text: str | None, limit: int) -> str | None:
    """The text, or an ellipsis and its end, which says most in a traceback: `limit` characters at most."""
    return text if text is None or len(text) <= limit else f"…{text[1 - limit :]}"


def first_line(text: str | None, limit: int | None = None) -> str:
    """The first line that is not blank, stripped and cut to `limit` characters; empty where there is none."""
    lines = (text or "") if limit is None else (text or "")[: 4 * limit]
    found = next((line.strip() for line in lines.splitlines() if line.strip()), "")
    return found if limit is None else cut(found, limit)


def first_sentences(text: str | None, limit: int) -> str:
    """The first line, as far as its whole sentences have `limit` characters at most; cut where they would
    leave less than half of that.
    """
    line = first_line((text or "")[: 4 * limit])
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s)", line[: limit + 1])]
    return line[: ends[-1]] if len(line) > limit and ends and ends[-1] >= limit / 2 else cut(line, limit)


def last_line(text: str | None) -> str:
    """The last line that is not blank, stripped; empty where there is none."""
    return next((line.strip() for line in reversed((text or "").splitlines()) if line.strip()), "")


def natural_key(name: str) -> list[tuple[int, str]]:
    """A key that sorts `worker-2` before `worker-10`, by the first 200 characters."""
    parts = re.split(r"([0-9]{1,18})", cut(name, 200))
    return [(int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)]


def base_name(task: str) -> str:
    """A task's name without the index of one of many: `sim` of `sim[3]` and of `sim[a]`."""
    return re.sub(INDEX, r"\1", task)


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; `SIG63` of a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
