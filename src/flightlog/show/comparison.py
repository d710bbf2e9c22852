"""A comparison as text or Markdown: the answer in a sentence, why the wall time differs, then all
differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.core.text import first_line, listed, plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.document import (
    FactsBlock,
    Item,
    Items,
    Paragraph,
    Remarks,
    Section,
    TableBlock,
    document_text,
    markdown_text,
    rest_text,
    table_section,
)
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import args_text, known, moment_text, money_text
from flightlog.show.terminal import clean, fit, width_of, wrap

if TYPE_CHECKING:
    from flightlog.analyze.compare import results
    from flightlog.analyze.compare.results import Comparison
    from flightlog.analyze.compare.thresholds import ThresholdOutcome


WHY = "Why the wall time differs"


def comparison_text(
    comparison: Comparison,
    outcomes: Sequence[ThresholdOutcome] = (),
    *,
    width: int = TextLimits.default_width,
    color: bool = False,
) -> str:
    """The comparison, ending in a newline; `outcomes` are those of conditions. `color` adds terminal codes
    only.
    """
    answer = "\n".join(wrap(clean(answer_text(comparison)), width))
    return document_text(comparison_sections(comparison, outcomes), width=width, color=color, title=answer)


def comparison_markdown(comparison: Comparison, outcomes: Sequence[ThresholdOutcome] = ()) -> str:
    """The comparison as Markdown, for pull requests; ends in a newline."""
    answer = Section("", blocks=[Paragraph(answer_text(comparison))])
    return markdown_text("What changed", [answer, *comparison_sections(comparison, outcomes)])


def comparison_sections(comparison: Comparison, outcomes: Sequence[ThresholdOutcome]) -> list[Section]:
    """The sections of a comparison in their order; one with nothing to say is empty."""
    return [
        _conditions(outcomes),
        Section(
            "Runs", blocks=[FactsBlock([("A", _side(comparison.before)), ("B", _side(comparison.after))])]
        ),
        _explained(comparison),
        _durations(comparison, "task"),
        _durations(comparison, "span"),
        _news(comparison),
        _failures(comparison),
        _counts(comparison),
        _resources(comparison),
        _environment(comparison),
        _remarks(comparison),
    ]


def _side(side: results.Side) -> str:
    if len(side.runs) == 1:
        run = side.runs[0]
        return clean(f"{run.run_id} ({run.status}, started {moment_text(run.start_time)})")
    shown = ", ".join(run.run_id[-8:] for run in side.runs[:8]) + (", …" if len(side.runs) > 8 else "")
    return clean(f"{side.asked}: {plural(len(side.runs), 'run')} ({shown}), figures are means over them")


def _conditions(outcomes: Sequence[ThresholdOutcome]) -> Section:
    failed = sum(outcome.state == "failed" for outcome in outcomes)
    items = [
        Item(f"{outcome.condition}: {outcome.state}", outcome.reasons, style=_STYLES[outcome.state])
        for outcome in outcomes
    ]
    return Section("Conditions", f"{failed} of {len(outcomes)} failed" if outcomes else "", [Items(items)])


_CALLED = {"slower", "faster"}
_STYLES = {"failed": "bad", "passed": "good", "unknown": "warn"}


def _explained(comparison: Comparison) -> Section:
    found = comparison.explained
    if found is None:
        return Section(WHY)
    told = main_shares(found)
    rows = [(share.what, signed_duration(share.seconds), _detail(clean(share.detail))) for share in told]
    rest = math.fsum(share.seconds for share in found.shares[len(told) :])
    if len(told) < len(found.shares):
        rows.append((plural(len(found.shares) - len(told), "smaller share"), signed_duration(rest), ""))
    if found.not_explained_s:
        rows.append(("not explained", signed_duration(found.not_explained_s), ""))
    means = " per run, on average" if max(len(comparison.before.runs), len(comparison.after.runs)) > 1 else ""
    return Section(
        WHY,
        f"{signed_duration(found.difference_s)}{means}",
        [TableBlock(("Share", "Wall time", "From A to B"), rows, left=("From A to B",))],
    )


def main_shares(found: results.WallExplained) -> list[results.Share]:
    """The shares of the wall time's difference that are worth a line each."""
    least = TextLimits.min_wall_share * max(
        abs(found.difference_s), *(abs(share.seconds) for share in found.shares), 0.0
    )
    return [share for share in found.shares if abs(share.seconds) >= least]


def _detail(text: str) -> str:
    """As many names as there is room for, each with its figures in full."""
    first, *rest = text.split("; ")
    shown = fit(first, TextLimits.max_wall_detail_width)
    for number, part in enumerate(rest, 1):
        more = "; …" if number < len(rest) else ""
        if width_of(f"{shown}; {part}{more}") > TextLimits.max_wall_detail_width:
            return fit(f"{shown}; …", TextLimits.max_wall_detail_width + 3)
        shown = f"{shown}; {part}"
    return shown


def _durations(comparison: Comparison, kind: str) -> Section:
    changes = [change for change in comparison.durations if change.kind == kind]
    return table_section(
        "Durations" if kind == "task" else "Spans",
        changes,
        "name Name, verdict <Verdict, typical Typical ratio, mean Mean, p95 p95, before.count A, "
        "after.count B, before.p50_s A p50, after.p50_s B p50, matched <Matched by",
        note="ratio of B to A with its 95 % CI" if changes else "",
        limit=TextLimits.max_compared_rows,
        rest="more name",
        name=lambda one: f"{fit(clean(one.name), 14)} (cached)" if one.cached else one.name,
        verdict=_verdict,
        typical=lambda one: ratio_text(one.typical),
        mean=lambda one: ratio_text(one.mean, bounds=False),
        p95=lambda one: ratio_text(one.p95, bounds=False),
        matched=_matched_by,
    )


def _matched_by(change: results.DurationChange) -> str:
    if change.pairs is not None:
        return "arguments"
    return "name, other arguments" if change.other_arguments else ""


def _verdict(change: results.DurationChange) -> str:
    if change.before is None or change.after is None:
        return "only in B" if change.before is None else "only in A"
    return f"{change.verdict} (mean)" if change.by == "mean" else change.verdict


def _news(comparison: Comparison) -> Section:
    items = [
        Item(f"only in {where}: {one.name} ({plural(one.count, one.kind)})")
        for where, names in (("B", comparison.appeared), ("A", comparison.vanished))
        for one in names[: TextLimits.max_compared_names]
    ]
    for sets in comparison.arguments[: TextLimits.max_compared_names]:
        parts = [f"{format_count(sets.both)} in both"]
        only = (("B", sets.appeared), ("A", sets.vanished))
        parts += [f"{format_count(n)} only in {side}" for side, n in only if n]
        examples = [
            f"only in {side}: {args_text(example, 80) or 'no arguments'}"
            for side, found in (("B", sets.appeared_examples), ("A", sets.vanished_examples))
            for example in found
        ]
        items.append(Item(f"{sets.name}, sets of arguments: {', '.join(parts)}", examples))
    hidden = sum(
        max(0, len(found) - TextLimits.max_compared_names)
        for found in (comparison.appeared, comparison.vanished, comparison.arguments)
    )
    return Section("Added and removed", blocks=[Items(items, f"{hidden} more" if hidden else "")])


def _failures(comparison: Comparison) -> Section:
    runs = len(comparison.before.runs), len(comparison.after.runs)
    changes = [change for change in comparison.failures if change.before * runs[1] != change.after * runs[0]]
    if not changes:
        same = len(comparison.failures)
        return Section("Failures", f"{plural(same, 'cause')}, as before" if same else "")
    words = {"appeared": "new", "vanished": "gone", "both": "still there"}
    styles = {"appeared": "bad", "vanished": "good", "both": ""}
    of = f" in {runs[0]} and {plural(runs[1], 'run')}" if max(runs) > 1 else ""
    items = [
        Item(
            f"{change.error_type or 'error'}: {first_line(change.message)}",
            [f"in {', '.join(change.tasks[: TextLimits.max_compared_names])}"] if change.tasks else [],
            mark=f"{words[change.state]}, {change.before:,} → {change.after:,}{of}: ",
            style=styles[change.state],
        )
        for change in changes[: TextLimits.max_compared_names]
    ]
    more = rest_text(len(changes) - len(items), "more cause")
    return Section("Failures", blocks=[Items(items, more)])


def _counts(comparison: Comparison) -> Section:
    cache = comparison.cache
    labels = {"submitted": "Tasks submitted", "failed": "Tasks failed", "retried": "Retried"}
    rows = [_row(label, comparison.tasks[kind], format_count) for kind, label in labels.items()]
    rows += [
        _row("Worker time", comparison.worker_s, format_duration),
        _row("Cache hits", cache.hits, format_count),
        _row("Cache hit rate", cache.hit_rate, format_percent, ratio=False),
        _row("Time saved by caches", cache.saved_s, format_duration),
        _row("Cost", comparison.cost, lambda value: money_text(value, comparison.currency)),
    ]
    wall = _row("Wall time", comparison.wall_s, format_duration)
    told = [wall, *(row for row in rows if row[1] not in _SILENT or row[2] not in _SILENT)]
    return Section("Figures", blocks=[TableBlock(("", "A", "B", "Change"), told)])


_SILENT = {"", "0", "$0.00", "unknown"}


def _resources(comparison: Comparison) -> Section:
    rows = []
    for one in comparison.resources[: TextLimits.max_compared_rows + 1]:
        for field, (what, show) in _RESOURCES.items():
            change: results.Change = getattr(one, field)
            small = change.ratio is not None and abs(change.ratio - 1) < TextLimits.min_resource_change
            if (change.before or change.after) and not (small and one.name is not None):
                of_task = " of a task" if field == "cpu_s" and one.name is not None else ""
                rows.append((one.name or "the run", *_row(f"{what}{of_task}", change, show)))
    head = ("Of", "What", "A", "B", "Change")
    return Section("Resources", blocks=[TableBlock(head, rows, left=("What",))])


_RESOURCES: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "peak_rss_bytes": ("peak memory", format_bytes),
    "cpu_s": ("CPU time", format_duration),
    "read_bytes": ("read", format_bytes),
    "write_bytes": ("written", format_bytes),
}


def _row(
    label: str, change: results.Change, show: Callable[[float | None], str], *, ratio: bool = True
) -> tuple[str, str, str, str]:
    before, after = known(change.before, show), known(change.after, show)
    moved = known(change.ratio, percent_text) if ratio else ""
    if moved and change.interval is not None and change.interval.low is not None:
        moved += f" ({percent_text(change.interval.low)} to {percent_text(change.interval.high)})"
    return label, before, after, moved


def _environment(comparison: Comparison) -> Section:
    return table_section(
        "Environment",
        comparison.environment,
        "what What, before <A, after <B",
        note="" if comparison.environment else "nothing known to differ",
        limit=2 * TextLimits.max_compared_rows,
        rest="more difference",
        what=lambda one: f"{one.what} {one.name}".strip(),
        before=lambda one: _apart(one)[0],
        after=lambda one: _apart(one)[1],
    )


def _apart(change: results.EnvironmentChange) -> tuple[str, str]:
    """Both values, cut to a cell; long ones from the word on before that in which they begin to differ:
    it may name an option.
    """
    values = [clean(change.before or "none"), clean(change.after or "none")]
    if max(map(width_of, values)) > TextLimits.max_context_width:
        same = next((n for n, (a, b) in enumerate(zip(*values, strict=False)) if a != b), None)
        word = values[0].rfind(" ", 0, same)
        start = values[0].rfind(" ", 0, max(0, word)) + 1
        values = [f"… {value[start:]}" if start else value for value in values]
    before, after = (fit(value, TextLimits.max_context_width) for value in values)
    return before, after


def _remarks(comparison: Comparison) -> Section:
    said = list(comparison.notes)
    other = [
        change for change in comparison.durations if change.other_arguments and change.verdict in _CALLED
    ]
    for change in other[: TextLimits.max_compared_names]:
        shared = format_percent(change.shared_arguments) if change.shared_arguments else "none"
        said.append(
            f"{change.name} had different arguments in B and A ({shared} of the sets are in both): its "
            "ratio, and those of spans in it, reflect different work as well as speed"
        )
    if len(other) > TextLimits.max_compared_names:
        said.append(f"so had {plural(len(other) - TextLimits.max_compared_names, 'more task')}")
    runs = len(comparison.before.runs) + len(comparison.after.runs)
    project = comparison.before.runs[0].project
    groups = f"groups show it: flightlog compare {project}:last5 {project}:latest"
    if runs == 2:
        said.append(f"one run per side does not show how much runs vary, so 1% is assumed; {groups}")
    elif runs < 6:
        said.append(f"{runs} runs show little of how much runs vary; larger {groups}")
    return Section("Remarks", blocks=[Remarks(said)])


def percent_text(ratio: float | None) -> str:
    """`+12%`, `-3.1%`, `2.4x`: a ratio as people say it."""
    if ratio is None:
        return "unknown"
    if abs(ratio - 1) < 0.0005:
        return "same"
    if ratio >= 2:
        return f"{ratio:.3g}x"
    return ("+" if ratio >= 1 else "") + format_percent(ratio - 1)


def signed_duration(seconds: float) -> str:
    """`+1.2s`, `-3.0s`."""
    return f"+{format_duration(seconds)}" if seconds >= 0 else format_duration(seconds)


def answer_text(comparison: Comparison) -> str:
    """What changed, in a sentence that ends in a full stop; names of tasks are in backticks."""
    head, (reasons, others) = wall_text(comparison), _parts(comparison)
    lost = [f"{side} lost {_lines(of)}" for side, of in zip("AB", comparison.lost, strict=True) if of]
    if lost:
        return f"{head}; {listed(lost)}, so what changed in them is unknown."
    if not reasons and not others:
        compared = [change for change in comparison.durations if change.verdict != "inconclusive"]
        if compared:
            tail = f"no change stands out from noise ({plural(len(compared), 'name')} compared)"
        elif comparison.durations:
            tail = "there are not enough tasks or runs to detect a change"
        elif _share_tasks(comparison):
            tail = "how long their tasks executed is not recorded"
        else:
            tail = "they have no task or span in common"
        return f"{head}; {tail}."
    said = f"{head}: {', '.join(reasons)}" if reasons else head
    return f"{said}{'; but ' if reasons else ', but '}{', '.join(others)}." if others else f"{said}."


def _lines(lost: Mapping[str, int]) -> str:
    """`1,037 lines of tasks and 1 line of spans`."""
    return listed([f"{plural(number, 'line')} of {stream}" for stream, number in lost.items()])


def _share_tasks(comparison: Comparison) -> bool:
    """Whether both sides have completed tasks, and one side all names of the other: then they share some."""
    done = comparison.tasks["completed"]
    return bool(done.before and done.after) and not (comparison.appeared and comparison.vanished)


def wall_text(comparison: Comparison) -> str:
    """How long B took beside A, as the beginning of a sentence."""
    wall = comparison.wall_s
    if wall.before is None or wall.after is None or wall.ratio is None:
        return "How long A or B took is unknown"
    times, a, b = _times(wall.before, wall.after), _named(comparison.before), _named(comparison.after)
    if _is_noise(wall):
        return f"B{b} took about as long as A{a} {times}, within what their runs differ by"
    if abs(wall.ratio - 1) < TextLimits.equal_wall_time:
        return f"B{b} took about as long as A{a} {times}"
    if wall.ratio >= 2:
        return f"B{b} took {wall.ratio:.3g}x as long{f' as A{a}' if a else ''} {times}"
    than = f" than A{a}" if a else ""
    if wall.ratio > 1:
        return f"B{b} took {format_percent(wall.ratio - 1)} longer{than} {times}"
    return f"B{b} took {format_percent(1 - wall.ratio)} less time{than} {times}"


def _is_noise(wall: results.Change) -> bool:
    """Whether the runs of the sides, where there are several, differ as much by themselves."""
    low, high = (wall.interval.low, wall.interval.high) if wall.interval is not None else (None, None)
    return low is not None and high is not None and low <= 1 <= high


def _times(before: float, after: float) -> str:
    """`(2.4s → 1.4s)`; where both read the same, `(1.9s, -68.2 ms)`."""
    old, new = format_duration(before), format_duration(after)
    if old != new or before == after:
        return f"({old} → {new})"
    return f"({old}, {'+' if after > before else ''}{format_duration(after - before)})"


_ENDED = {"crashed": "crashed", "failed": "failed", "interrupted": "was interrupted", "running": "is running"}


def _named(side: results.Side) -> str:
    """How a single run that did not complete ended, to follow its letter."""
    how = _ENDED.get(side.runs[0].status) if len(side.runs) == 1 else None
    return f", which {how}," if how else ""


def _parts(comparison: Comparison) -> tuple[list[str], list[str]]:
    """What goes with the change of the wall time, and what goes against it or is news of its own.

    Where the wall time hardly changed, what saved time and what cost as much.
    """
    changed = [change for change in comparison.durations if change.verdict in {"slower", "faster"}]
    if any(change.kind == "task" for change in comparison.durations):
        changed = [change for change in changed if change.kind == "task"]  # spans are what tasks consist of
    told, named = _told_shares(comparison), TextLimits.max_changes_in_answer
    effects = [(change.verdict, _said(change)) for change in changed[:named]]
    effects += [("slower" if share.seconds > 0 else "faster", _share_text(share)) for share in told]
    verdicts = {verdict for verdict, _ in effects}
    against = opposite(comparison.wall_s) or ("slower" if told and len(verdicts) == 2 else None)
    parts = [said for verdict, said in effects if verdict != against]
    others = [said for verdict, said in effects if verdict == against]
    last = others or parts
    if len(changed) > named:
        last.append(f"{plural(len(changed) - named, 'more name')} changed")
    new = [change for change in comparison.failures if change.state == "appeared"]
    if new:
        kinds = ", ".join(dict.fromkeys(change.error_type or "unknown error" for change in new[:named]))
        last.append(f"{plural(sum(change.after for change in new), 'new failure')} ({kinds})")
    return parts, others


def opposite(wall: results.Change) -> str | None:
    """The verdict that does not go with how the wall time changed, where that changed at all."""
    if wall.ratio is None or abs(wall.ratio - 1) < TextLimits.equal_wall_time or _is_noise(wall):
        return None
    return "faster" if wall.ratio > 1 else "slower"


def _said(change: results.DurationChange) -> str:
    interval = change.mean if change.by == "mean" else change.typical
    assert interval is not None
    average = " on average" if change.by == "mean" else ""
    name = clean(change.name).replace("`", "'")
    other = ", with other arguments" if change.other_arguments else ""
    return f"`{name}` is {speed_text(interval)}{average}{other}"


def _told_shares(comparison: Comparison) -> list[results.Share]:
    """What else changed the wall time much, besides the durations that are told by name: the largest share
    that goes with the difference, and one against it that is larger still. Where the wall time hardly
    changed, what saved time and what cost about as much.
    """
    found, wall = comparison.explained, comparison.wall_s
    if found is None or not wall.before:
        return []
    large = TextLimits.min_opposing_share * wall.before
    if opposite(wall) is None:
        pair = [next((one for one in found.shares if sign * one.seconds >= large), None) for sign in (-1, 1)]
        told = [] if None in pair else pair
    else:
        difference, sign = abs(found.difference_s), math.copysign(1.0, found.difference_s)
        unnamed = [one for one in found.shares if not one.what.startswith("duration")]
        told = [
            next((one for one in unnamed if way * one.seconds >= least), None)
            for way, least in ((sign, difference / 3), (-sign, max(difference, large)))
        ]
    return [one for one in told if one is not None and not one.what.startswith("duration")]


def _share_text(share: results.Share) -> str:
    return f"{signed_duration(share.seconds)} by {share.what} ({share.detail})"


def speed_text(interval: results.Interval) -> str:
    """`1.14x slower (1.11 to 1.17)`; of what got faster, the inverse."""
    slower = interval.ratio >= 1
    shown = [interval.ratio, interval.low, interval.high]
    if not slower:
        shown = [value and 1 / value for value in (interval.ratio, interval.high, interval.low)]
    word = "slower" if slower else "faster"
    between = f" ({_figure(shown[1])} to {_figure(shown[2])})" if shown[1] is not None else ""
    return f"{_figure(shown[0])}x {word}{between}"


def ratio_text(interval: results.Interval | None, *, bounds: bool = True) -> str:
    """`1.14 (1.11 to 1.17)`; the ratio alone where its interval is unknown, nothing where there is no
    ratio.
    """
    if interval is None:
        return ""
    known = bounds and interval.low is not None
    between = f" ({_figure(interval.low)} to {_figure(interval.high)})" if known else ""
    return f"{_figure(interval.ratio)}{between}"


def _figure(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}"
