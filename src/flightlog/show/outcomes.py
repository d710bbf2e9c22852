"""Results of commands that write, check or list files, as text: exports, copies to remotes, verification,
adoption, contents of a cache.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.engines.slurm.events import Merged
from flightlog.show.document import (
    FactsBlock,
    Section,
    document_text,
    facts_block,
    table_block,
    table_lines,
    table_section,
)
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import known, moment_text, some_of
from flightlog.show.terminal import Ink, clean, pad, wrap
from flightlog.store.documents import document_bytes
from flightlog.store.layout import CHECKSUMS, Adoption
from flightlog.store.tables.connection import path_text

if TYPE_CHECKING:
    from flightlog.analyze.verify import Check, Verification
    from flightlog.export.base import Exported
    from flightlog.session.cache.contents import CacheExplanation, CacheStats
    from flightlog.store.remote.copies import RemoteCheck
    from flightlog.store.remote.state import CopyStatus
    from flightlog.store.remote.upload import Synced


def synced_text(synced: Synced) -> str:
    """One line on a copied run, and one per note; ends in a newline."""
    there = f"{plural(synced.files, 'file')}, {format_bytes(synced.bytes)} in {synced.address}"
    sent = f"sent {format_bytes(synced.sent_bytes)} of {plural(synced.sent_files, 'file')}"
    lines = [f"{synced.run_id}: {sent if synced.sent_files else 'nothing new'}; {there}"]
    if not synced.complete:
        lines.append("  the run has not ended: repeat the command later, or use --follow")
    lines += [f"  {note}" for note in synced.notes]
    return "".join(f"{clean(line)}\n" for line in lines)


def check_text(check: RemoteCheck, *, color: bool = False) -> str:
    """A line on a copy that was read again, and one for each thing that is wrong; ends in a newline."""
    ink = Ink(color)
    word = ink("bad", "wrong") if check.problems else ink("good", "ok")
    read = f"{plural(check.files, 'file')}, {format_bytes(check.bytes)} read in {check.address}"
    lines = [f"{clean(check.run_id)}: {word}, {clean(read)}"]
    lines += [f"  {clean(problem)}" for problem in check.problems]
    return "".join(f"{line}\n" for line in lines)


def copies_text(copies: Sequence[CopyStatus], *, color: bool = False) -> str:
    """One row per run and address, with its problems below; ends in a newline, empty for none."""
    if not copies:
        return ""
    table = table_block(
        copies, "run_id Run, state <Copy, synced_at:moment <Last, unsent_bytes Unsent, address <Where"
    )
    lines = table_lines(table, width=sys.maxsize, ink=Ink(color), indent="")
    lines += [clean(f"{one.run_id}: {one.problem}") for one in copies if one.problem]
    return "\n".join(lines) + "\n"


def incomplete_copy_text(copy: CopyStatus) -> str:
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


def exported_text(exported: Exported, *, written: bool, size_bytes: int | None) -> str:
    """Destination, size and counts on one line; then one line per note.

    `written` is false for what was sent to a server. Zero counts are left out, unless there is nothing else.
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
    """The same as a JSON object; `size_bytes` is null for what was sent to a server."""
    whole = {
        "run_id": run_id,
        "to": exported.to,
        "where": path_text(exported.where),
        "size_bytes": size_bytes,
    }
    return document_bytes({**whole, "counts": exported.counts, "notes": exported.notes}).decode()


_NO_CHECKSUMS = f"{CHECKSUMS} missing"
_WORDS = {True: ("ok", "good"), False: ("wrong", "bad"), None: ("-", "quiet")}


def verification_text(result: Verification, *, color: bool = False) -> str:
    """One line per check, its findings below it; ends in a newline."""
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


DROPPED = (
    "per-node and per-task extremes, I/O and energy of steps, requests other than CPUs, memory, GPUs and "
    "time, priority, reservation, comments"
)
"""What accounting does not record; noted each time something was added."""
_MAPPED = {
    "task_submitted": ("new task", None),
    "task_completed": ("task completed", "tasks completed"),
    "task_failed": ("task failed", "tasks failed"),
    "task_cancelled": ("task cancelled", "tasks cancelled"),
    "task_retried": ("attempt put back into the queue", "attempts put back into the queue"),
    "worker_lost": ("worker lost", "workers lost"),
    "worker_removed": ("worker ended", "workers ended"),
    "failure": ("failure with its reason", "failures with their reasons"),
    "span": ("step as a span", "steps as spans"),
}


def adoption_text(merged: Sequence[Merged]) -> str:
    """The lines of one adoption, run by run."""
    return "\n".join(_run_text(one) for one in merged)


def _run_text(one: Merged) -> str:
    added = sum(one.states.values())
    if added:
        ends = ", ".join(f"{number:,} {state}" for state, number in sorted(one.states.items()))
        where = "made into" if one.made else "merged into"
        lines = [f"{plural(added, 'job')} {where} {clean(one.run_id)}: {clean(ends)}"]
        mapped = [plural(one.events[kind], *words) for kind, words in _MAPPED.items() if kind in one.events]
        lines.append(f"  mapped:  {', '.join(mapped) or 'nothing: the run knew every end'}")
        lines.append(
            f"  kept:    {plural(added, 'account')} of a job, as Slurm gives it: flightlog sql 'FROM jobs'"
        )
        lines.append(f"  dropped: {DROPPED}")
    else:
        lines = [f"Nothing to add to {clean(one.run_id)}"]
    if one.already:
        lines.append(f"  known before: {plural(one.already, 'account')} of a job")
    if one.waiting:
        lines.append(f"  not ended yet, adopt again then: {clean(some_of(one.waiting, 10))}")
    if one.missing:
        lines.append(f"  not in Slurm's accounting: {clean(some_of(one.missing, 10))}")
    return "\n".join(lines) + "\n"


def adopted_text(adoptions: Sequence[Adoption]) -> str:
    """The results of adopting recordings, run by run: destination, and what was kept, mapped and dropped."""
    return "\n".join(_adopted(one) for one in adoptions)


def _adopted(one: Adoption) -> str:
    what = clean(one.title[:1].upper() + one.title[1:])
    if not one.made:
        return f"{what} was adopted before, nothing was changed: {clean(one.run_id)}\n"
    lines = [f"{what} made into {clean(one.run_id)}"]
    parts = (("kept", one.kept), ("mapped", one.mapped), ("dropped", one.dropped))
    broad = max([1, *(len(f"{number:,}") for _, counts in parts for number in counts.values())])
    for label, counts in parts:
        rows = [(f"{number:>{broad},} ", clean(what)) for what, number in counts.items()] or [("", "nothing")]
        lines += _labelled(f"{label}:", rows)
    for label, texts in (("notes:", one.notes), ("skipped:", one.problems)):
        lines += _labelled(label, [("- ", clean(text)) for text in texts])
    return "\n".join([*lines, f"  flightlog report {clean(one.run_id)}"]) + "\n"


def _labelled(label: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Rows below each other, the label beside the first; continuation lines are indented past each row's
    mark.
    """
    lines: list[str] = []
    for mark, words in rows:
        first, *more = wrap(words, max(20, TextLimits.default_width - 11 - len(mark))) or [""]
        lines += [mark + first, *(" " * len(mark) + line for line in more)]
    return [f"  {label if not number else '':<9}{line}" for number, line in enumerate(lines)]


def stats_text(stats: CacheStats, *, width: int = 100, color: bool = False) -> str:
    """Totals, then one row per function; ends in a newline."""
    bad = f"{plural(stats.damaged, 'damaged file')}, {plural(stats.leftovers, 'unfinished file')}"
    damage = Ink(color)("warn", f"{bad}: flightlog cache prune removes them")
    pairs = [
        ("Results", f"{format_count(stats.entries)}, {format_bytes(stats.bytes)}"),
        ("Compute time", known(stats.cost_s, lambda cost: f"{format_duration(cost)} for all results")),
        ("Hits", known(stats.hits, lambda hits: f"{format_count(hits)} in the runs recorded here")),
        ("Damage", damage if stats.damaged or stats.leftovers else ""),
    ]
    functions = table_section(
        "",
        stats.functions,
        "name Function, entries Results, bytes:_bytes Size, hits Hits, cost_s Compute time, codes Versions",
        name=lambda one: one.function or "(unnamed)",
    )
    about = Section(f"Cache: {clean(stats.folder)}", blocks=[facts_block(pairs)])
    return document_text([about, functions], width=width, color=color, mark="")


def explained_text(explained: CacheExplanation, *, width: int = 100, color: bool = False) -> str:
    """The cached results of a function, and the reason for its last miss; ends in a newline."""
    ink = Ink(color)
    entries = explained.entries
    codes = {header.about.code for header in entries if header.about is not None}
    made = f", made with {plural(len(codes), 'version')} of its code" if codes else ""
    pairs = [("Cached", f"{plural(len(entries), 'result')}{made}")]
    miss = explained.last_miss
    if miss is None:
        pairs.append(("Last miss", "none recorded"))
    else:
        what = f" ({', '.join(explained.changed)})" if explained.changed else ""
        pairs.append(("Last miss", f"{ink('warn', clean(miss.reason + what))}, {moment_text(miss.when)}"))
        pairs.append(("  its key", clean(miss.key[: TextLimits.digest_digits])))
        cached = "" if miss.about.code in codes else ", of which no result is cached"
        pairs.append(("  its code", f"{clean(miss.about.code[: TextLimits.digest_digits])}{cached}"))
        if miss.detail:
            pairs.append(("  in detail", clean(miss.detail)))
    cached_results = table_section(
        "",
        entries[: TextLimits.max_cache_entries],
        "key Key, created:moment! <Made, size:_bytes Size, cost_s Took, code <Code, arguments <Arguments",
        key=lambda header: header.key[: TextLimits.digest_digits],
        code=lambda header: known(header.about, lambda about: about.code[: TextLimits.digest_digits]),
        arguments=lambda header: known(
            header.about,
            lambda about: " ".join(f"{name}={digest[:6]}" for name, digest in about.arguments.items()),
        ),
    )
    about = Section(clean(explained.function or "(unnamed)"), blocks=[FactsBlock(pairs)])
    text = document_text([about, cached_results], width=max(width, 160), color=color, mark="")
    older = len(entries) - TextLimits.max_cache_entries
    return text + (f"  and {plural(older, 'older one')}\n" if older > 0 else "")
