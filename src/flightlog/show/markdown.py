"""Sections as Markdown, for issues, pull requests and wikis. Text that a run recorded is never markup."""

from __future__ import annotations

import re

from flightlog.show.document import Facts, Items, Remarks, Section, Table
from flightlog.show.terminal import clean

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")


def escaped(text: str) -> str:
    """Text as Markdown shows it: on one line, with every character that means something escaped."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def markdown_text(title: str, sections: list[Section]) -> str:
    """The report as Markdown, ending in a newline: a heading each section, tables as tables."""
    parts = [f"# {escaped(title)}"]
    for section in sections:
        if section.says_something():
            if section.title:
                parts.append(f"## {escaped(section.title)}")
            if section.note:
                parts.append(escaped(section.note))
            parts += [block for block in map(_block, section.blocks) if block]
    return "\n\n".join(parts) + "\n"


def _block(block: Facts | Table | Items | Remarks) -> str:
    match block:
        case Facts(pairs):
            return "\n".join(f"- {escaped(label)}: {escaped(value)}" for label, value in pairs)
        case Table(head, rows, left, more):
            said = [n for n in range(len(head)) if n == 0 or any(row[n] for row in rows)]
            titles = [head[n] for n in said]
            rule = ["---" if n == 0 or title in left else "---:" for n, title in enumerate(titles)]
            lines = [[escaped(row[n]) for n in said] for row in rows]
            table = "\n".join(f"| {' | '.join(cells)} |" for cells in ([*map(escaped, titles)], rule, *lines))
            return f"{table}{_more(more)}"
        case Items(items, more):
            lines_ = [
                "\n".join(
                    [
                        f"- {escaped(item.mark + item.text)}",
                        *(f"  {escaped(line)}  " for line in item.below if line),
                    ]
                )
                for item in items
            ]
            return "\n".join(lines_) + _more(more)
        case Remarks(sentences, more):
            return "\n".join(f"- {escaped(text)}" for text in sentences) + _more(more)


def _more(text: str) -> str:
    return f"\n\n… {escaped(text)}" if text else ""
