"""The contents of a cache as text, and why the last result of a function was not found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.show.document import facts, table
from flightlog.show.phrases import moment_text
from flightlog.show.terminal import Ink, clean

if TYPE_CHECKING:
    from flightlog.session.cache.contents import CacheExplanation, CacheStats

SHOWN = 10
DIGITS = 12
"""Digits of a digest that are shown, enough to identify a key."""


def stats_text(stats: CacheStats, *, width: int = 100, color: bool = False) -> str:
    """Totals, then a row a function; ends in a newline."""
    ink = Ink(color)
    lines = [ink("title", f"Cache: {clean(stats.folder)}")]
    pairs = [("Results", f"{format_count(stats.entries)}, {format_bytes(stats.bytes)}")]
    if stats.cost_s is not None:
        pairs.append(("Would save", f"{format_duration(stats.cost_s)}, each used once"))
    if stats.hits is not None:
        pairs.append(("Hits", f"{format_count(stats.hits)} in the runs recorded here"))
    if stats.damaged or stats.leftovers:
        bad = f"{plural(stats.damaged, 'damaged file')}, {plural(stats.leftovers, 'unfinished file')}"
        pairs.append(("Damage", ink("warn", f"{bad}: flightlog cache prune removes them")))
    lines += facts(pairs, ink=ink)
    if stats.functions:
        rows = [
            (
                one.function or "(unnamed)",
                format_count(one.entries),
                format_bytes(one.bytes),
                "" if one.hits is None else format_count(one.hits),
                "" if one.cost_s is None else format_duration(one.cost_s),
                format_count(one.codes),
            )
            for one in stats.functions
        ]
        head = ("Function", "Results", "Size", "Hits", "Would save", "Codes")
        lines += ["", *table(head, rows, width=width, ink=ink)]
    return "\n".join(lines) + "\n"


def explained_text(explained: CacheExplanation, *, width: int = 100, color: bool = False) -> str:
    """The cached results of a function, and the reason for its last miss; ends in a newline."""
    ink = Ink(color)
    lines = [ink("title", clean(explained.function or "(unnamed)"))]
    entries = explained.entries
    codes = {header.about.code for header in entries if header.about is not None}
    made = f", made with {plural(len(codes), 'version')} of its code" if codes else ""
    pairs = [("Kept", f"{plural(len(entries), 'result')}{made}")]
    miss = explained.last_miss
    if miss is None:
        pairs.append(("Last miss", "none is known"))
    else:
        what = f" ({', '.join(explained.changed)})" if explained.changed else ""
        pairs.append(("Last miss", f"{ink('warn', clean(miss.reason + what))}, {moment_text(miss.when)}"))
        pairs.append(("  its key", clean(miss.key[:DIGITS])))
        pairs.append(("  its code", f"{clean(miss.about.code[:DIGITS])}{_known(miss.about.code in codes)}"))
        if miss.detail:
            pairs.append(("  in detail", clean(miss.detail)))
    lines += facts(pairs, ink=ink)
    if entries:
        rows = [
            (
                header.key[:DIGITS],
                moment_text(header.created),
                format_bytes(header.size),
                "" if header.cost_s is None else format_duration(header.cost_s),
                "" if header.about is None else header.about.code[:DIGITS],
                "" if header.about is None else _arguments(header.about.arguments),
            )
            for header in entries[:SHOWN]
        ]
        head = ("Key", "Made", "Size", "Took", "Code", "Arguments")
        left = ("Made", "Code", "Arguments")
        lines += ["", *table(head, rows, width=max(width, 160), ink=ink, left=left)]
        if len(entries) > SHOWN:
            lines.append(f"  and {plural(len(entries) - SHOWN, 'older one')}")
    return "\n".join(lines) + "\n"


def _known(there: bool) -> str:
    return "" if there else ", of which no result is cached"


def _arguments(digests: dict[str, str]) -> str:
    return " ".join(f"{name}={digest[:6]}" for name, digest in digests.items())
