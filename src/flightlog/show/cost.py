"""What a run cost, in words: the sum first, then what it was paid for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flightlog.analyze.prices import is_old
from flightlog.show.document import Facts, Section, Table
from flightlog.show.phrases import money_text
from flightlog.show.terminal import clean
from flightlog.show.time import bar, worker_time
from flightlog.units import format_percent

if TYPE_CHECKING:
    from flightlog.analyze.cost import CostItem, CostSummary
    from flightlog.analyze.cost_split import CostSplit
    from flightlog.analyze.report import Report
    from flightlog.analyze.summary import Summary

TITLE = "Estimated Cost"
NAMED = 3
"""How many items without an amount the first line names."""
_PARTS = {
    "useful": "Useful work",
    "retried": "Tried again",
    "failed": "Failed work",
    "unfinished": "In flight",
    "idle": "Idle",
    "starting": "Starting",
}
_ITEMS = {"storage": "Storage", "energy": "Energy", "egress": "Egress"}


def cost_section(report: Report) -> Section:
    """The cost of a run; one line where there is nothing to split."""
    cost, split = report.cost, report.cost_split
    table = [_table(split)] if split is not None and 0 < split.total < math.inf else []
    pairs = _facts(report, cost)
    return Section(TITLE, _note(report), [*table, *([Facts(pairs)] if pairs else [])])


def _note(summary: Summary) -> str:
    cost = summary.cost
    if cost.total is None:
        if cost.reason is None or not cost.by_item:
            return f"unknown: {clean(cost.reason or 'no rate was given')}"
        return f"unknown ({clean(cost.reason)})"
    text = money_text(cost.total, cost.currency or ("USD" if not cost.total else None))
    if cost.at_least:
        text = f"{text} so far" if summary.run.status == "running" else f"at least {text}"
    remarks = []
    provider = cost.provider or summary.run.provider
    if cost.instance is not None:
        remarks.append(_priced(cost.instance, cost))
    elif provider:
        remarks.append(f"{clean(provider)} provider")
    lacking = [clean(item) for item, found in cost.by_item.items() if found.amount is None]
    if lacking:
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        remarks.append(f"without {', '.join(lacking[:NAMED])}{more}")
    return text + (f" ({', '.join(remarks)})" if remarks else "")


def _priced(instance: str, cost: CostSummary) -> str:
    """`aws/m6i.xlarge at its price of 2026-02-09`, or that nobody knows of which day it is."""
    if cost.prices_of is not None:
        return f"{clean(instance)} at its price of {clean(cost.prices_of)}"
    return f"{clean(instance)}, price undated" + (f", from {clean(cost.source)}" if cost.source else "")


def _table(split: CostSplit) -> Table:
    parts = [(name, getattr(split, part)) for part, name in _PARTS.items()]
    rows = [
        (
            name,
            format_percent(spent / split.total),
            money_text(spent, split.currency),
            bar(spent / split.total),
        )
        for name, spent in sorted(parts, key=lambda part: -part[1])
        if spent
    ]
    return Table(("Paid for", "Share", "Cost", ""), rows, left=("",))


def _facts(summary: Summary, cost: CostSummary) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for item, found in cost.by_item.items():
        if found.amount is None or (item in _ITEMS and found.amount):
            pairs.append((_ITEMS.get(item, clean(item)), _item(found)))
    if cost.workers_total is not None and cost.workers_total != cost.total:
        pairs.insert(0, ("Workers" if cost.basis == "workers" else "Machine", _hours(cost)))
    if cost.saved is not None and cost.saved > 0:
        pairs.append(("Saved by cache", f"{money_text(cost.saved, cost.currency)}, not in the sum"))
    if is_old(cost.prices_of, summary.run.start_time):
        pairs.append(
            ("Price", f"of {clean(cost.prices_of or '')}, more than a year before the run: look it up anew")
        )
    return pairs


def _hours(cost: CostSummary) -> str:
    lived = f", {worker_time(cost.workers_s)}" if cost.workers_s is not None else ""
    return f"{money_text(cost.workers_total, cost.currency)}{lived}"


def _item(item: CostItem) -> str:
    """`$0.04, 0.12 kWh`, or why it is unknown."""
    unit = f"{item.quantity:.3g} {clean(item.quantity_unit or '')}" if item.quantity is not None else ""
    if item.amount is None:
        return f"unknown: {clean(item.reason or 'no rate was known')}"
    return (
        f"{money_text(item.amount, item.currency)}, {unit}"
        if unit
        else money_text(item.amount, item.currency)
    )
