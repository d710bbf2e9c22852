"""The report of a run as text: what a person wants to know first, then whatever else there is to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.details import details
from flightlog.show.phrases import args_text, moment_text, money_text
from flightlog.show.table import facts
from flightlog.show.terminal import Ink, clean, fit, width_of
from flightlog.units import format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.summary import Summary

WIDTH = 100


def report_text(summary: Summary, *, width: int = WIDTH, color: bool = False) -> str:
    """The report, ending in a newline. `width` in columns; `color` adds terminal codes and nothing else.

    Text that the run recorded is shown, never interpreted: control characters are spelled out.
    """
    ink = Ink(color)
    sections = [
        _title(summary, width, ink),
        _tasks(summary, width, ink),
        _workers(summary, ink),
        _cache(summary, ink),
        [_cost(summary, ink)],
        *details(summary, width, ink),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _title(summary: Summary, width: int, ink: Ink) -> list[str]:
    run = summary.run
    title = fit(f"Run Report: {clean(run.run_id)}", width)
    rule = ink("quiet", "═" * max(width_of(title), 47))
    where = clean(run.target or run.host or "unknown")
    if run.provider:
        where += f" (provider: {clean(run.provider)})"
    elif run.target is None and run.host:
        where += " (host)"
    pairs = [
        ("Target", where),
        ("Started", moment_text(run.start_time)),
        ("Duration", format_duration(run.duration_s)),
        ("Status", _status(summary, ink)),
    ]
    if run.error and run.error not in _remarks(summary):
        pairs.append(("Error", ink("bad", fit(clean(run.error), max(20, width - 11)))))
    return [rule, ink("title", title), rule, *facts(pairs, ink=ink, indent="")]


def _status(summary: Summary, ink: Ink) -> str:
    run = summary.run
    style = {"completed": "good", "running": "name"}.get(run.status, "bad")
    text = ink(style, clean(run.status))
    remarks = ", ".join(map(clean, _remarks(summary)))
    return f"{text} ({remarks})" if remarks else text


def _remarks(summary: Summary) -> list[str]:
    """What stands next to the status: how the run ended, or when it was last heard of."""
    run = summary.run
    remarks = []
    if run.signal is not None:
        remarks.append(run.signal)
    elif run.exit_code:
        remarks.append(f"exit code {run.exit_code}")
    if run.last_seen is not None:
        remarks.append(f"last heard of {moment_text(run.last_seen)}")
    return remarks


def _tasks(summary: Summary, width: int, ink: Ink) -> list[str]:
    tasks = summary.tasks
    counts = [
        ("Submitted", tasks.submitted, ""),
        ("Completed", tasks.completed, ""),
        ("Failed", tasks.failed, "bad"),
        ("Cancelled", tasks.cancelled, "warn"),
        ("Retried", tasks.retried, "warn"),
        ("Running", tasks.running, "name"),
        ("Waiting", tasks.pending, ""),
    ]
    if not any(number for _, number, _ in counts):
        return [f"{ink('head', 'Tasks:')} none"]
    pairs = [
        (label, ink(style, format_count(number)) if style and number else format_count(number))
        for label, number, style in counts
        if number or label in {"Submitted", "Completed", "Failed"}
    ]
    if tasks.slowest:
        slowest = tasks.slowest[0]
        inside = ", ".join(part for part in (clean(slowest.task), args_text(slowest.args, width)) if part)
        longest = fit(f"{format_duration(slowest.duration_s)} ({inside})", max(30, width - 17))
        pairs += [("Avg duration", format_duration(tasks.duration_s.mean)), ("Max duration", longest)]
        if tasks.queue_s.max:
            waited = f"{format_duration(tasks.queue_s.mean)} on average, {format_duration(tasks.queue_s.max)} at most"
            pairs.append(("Queued", waited))
    return [ink("head", "Tasks:"), *facts(pairs, ink=ink)]


def _workers(summary: Summary, ink: Ink) -> list[str]:
    workers = summary.workers
    if not workers.count:
        return [f"{ink('head', 'Workers:')} none known"]
    pairs = [
        ("Peak", format_count(workers.peak)),
        ("Avg utilization", format_percent(workers.utilization)),
        ("Efficiency", format_percent(workers.efficiency)),
    ]
    if workers.lost:
        pairs.append(("Lost", ink("bad", format_count(workers.lost))))
    return [ink("head", "Workers:"), *facts(pairs, ink=ink)]


def _cache(summary: Summary, ink: Ink) -> list[str]:
    cache = summary.cache
    off = f"{format_count(cache.bypassed)} (the cache was off)"
    if not cache.lookups:
        return [f"{ink('head', 'Cache:')} " + (f"bypassed {off}" if cache.bypassed else "no lookups")]
    hits = f"{format_count(cache.hits)} ({format_percent(cache.hit_rate)})"
    if not cache.hits and len(cache.miss_reasons) == 1:
        [(reason, number)] = cache.miss_reasons.items()
        if number == cache.misses:
            hits += f" — {clean(reason)}"
    pairs = [("Lookups", format_count(cache.lookups)), ("Hits", hits), ("Misses", format_count(cache.misses))]
    if cache.bypassed:
        pairs.append(("Bypassed", off))
    if cache.saved_s is not None:
        pairs.append(("Time saved", format_duration(cache.saved_s)))
    return [ink("head", "Cache:"), *facts(pairs, ink=ink)]


def _cost(summary: Summary, ink: Ink) -> str:
    cost = summary.cost
    text = money_text(cost.total, cost.currency)
    remarks = []
    provider = cost.provider or summary.run.provider
    if provider:
        remarks.append(f"{clean(provider)} provider")
    if cost.unknown_items and cost.total is not None:
        remarks.append(f"{cost.unknown_items} of {len(cost.by_item)} items without a rate")
    if cost.total is None and len({item.currency for item in cost.by_item.values()}) > 1:
        remarks.append("several currencies")
    return f"{ink('head', 'Estimated Cost:')} {text}" + (f" ({', '.join(remarks)})" if remarks else "")
