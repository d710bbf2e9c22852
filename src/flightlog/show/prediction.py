"""Predictions, forecasts of plans and evaluations of both, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.document import (
    FactsBlock,
    Paragraph,
    Remarks,
    Section,
    TableBlock,
    section_text,
    sections_text,
    table_block,
)
from flightlog.show.phrases import call_text, free_text, money_text
from flightlog.show.terminal import Ink, clean

if TYPE_CHECKING:
    from flightlog.analyze.predict.baseline import Estimate, Prediction
    from flightlog.analyze.predict.eta import ScheduleSpread
    from flightlog.analyze.predict.predict import Evaluation, Model, QuantityScores, Score
    from flightlog.session.forecast import Forecast, MemoryForecast

WIDTH = 100


def _text(head: Section, *sections: Section, notes: Sequence[str], width: int, color: bool) -> str:
    """The head with its title in any case, the sections that say something, and the notes."""
    ink, rest = Ink(color), [*sections, Section("Notes", blocks=[Remarks(notes)])]
    texts = sections_text(rest, width=width, ink=ink, mark="")
    return "\n\n".join([section_text(head, width=width, ink=ink, mark=""), *texts]) + "\n"


def prediction_text(found: Prediction, *, width: int = WIDTH, color: bool = False) -> str:
    """What a task will likely take, ending in a newline."""
    parts = (
        ("Duration", found.duration_s, format_duration),
        ("Peak memory", found.peak_memory_bytes, format_bytes),
    )
    reasons = []
    for label, each, _ in parts:
        if each is not None:
            evidence = f"{plural(each.examples, 'completed attempt')} in {plural(each.runs, 'run')}"
            reasons.append(f"{label.lower()}: {evidence}; {each.reason}")
    runs = plural(found.training_runs, "run")
    reasons.append(f"trained {clean(found.trained_at)} from {runs} of {found.project}")
    # What a cache spared has a note of its own.
    left = [_left_out(why, number) for why, number in found.left_out.items() if why != "spared by the cache"]
    if left:
        reasons.append(f"left out, of all tasks: {'; '.join(left)}")
    facts = FactsBlock([(label, _estimate(each, unit)) for label, each, unit in parts])
    head = Section(call_text(found.task, found.args, width), blocks=[facts])
    why = Section("Why", blocks=[Remarks(reasons)])
    return _text(head, why, notes=found.notes, width=width, color=color)


def model_text(model: Model, why: str | None, *, width: int = WIDTH, color: bool = False) -> str:
    """What was learnt from a project's runs, ending in a newline."""
    learnt = f"{plural(model.attempts, 'attempt')} in {plural(len(model.runs), 'run')}"
    facts = FactsBlock(
        [
            ("Trained", f"{clean(model.trained_at)}{f' ({clean(why)})' if why else ''}"),
            ("scikit-learn", model.sklearn or "not installed: quantiles by name alone"),
        ]
    )
    rows = []
    for name in sorted(model.names):
        for label, quantity in (("duration", model.duration_s), ("peak memory", model.peak_memory_bytes)):
            of = quantity.names.get(name)
            if of is not None:
                looked_at = (
                    quantity.boosted.keys & of.keys if of.method == "boosting" and quantity.boosted else set()
                )
                by = ", ".join(sorted(key.removeprefix("args.") for key in looked_at)) or "name"
                method = (
                    of.method if of.plain is not None or of.method == "boosting" else "too little history"
                )
                rows.append((name, label, format_count(of.examples), method, by))
    notes = [f"left out: {_left_out(why, number)}" for why, number in model.left_out.items()]
    title = f"Model of {clean(model.project or 'unknown')}: learnt from {learnt}"
    titles = ("Task", "Quantity", "Examples", "Method", "By")
    table = Section("", blocks=[TableBlock(titles, rows, left=("Quantity", "Method", "By"))])
    head = Section(title, blocks=[facts])
    return _text(head, table, notes=[*notes, *model.notes], width=width, color=color)


def evaluation_text(found: Evaluation, *, width: int = WIDTH, color: bool = False) -> str:
    """How predictions fared on later runs, ending in a newline."""
    quantities = {"Duration": found.duration_s, "Peak memory": found.peak_memory_bytes}
    runs = f"{found.tested_runs} of {plural(found.runs, 'run')}"
    tested = f"{runs} tested, each by a model of earlier runs alone" if found.tested_runs else ""
    title = f"Predictions of {clean(found.project or 'unknown')}, evaluated on its newest runs"
    notes = [
        f"{label.lower()}: {plural(number, 'attempt')} left out that {_reason(why)}"
        for label, scores in quantities.items()
        for why, number in scores.left_out.items()
    ]
    head = Section(title, blocks=[Paragraph(tested)])
    sections = [_scores(label, scores) for label, scores in quantities.items()]
    return _text(head, *sections, notes=[*notes, *found.notes], width=width, color=color)


def forecast_text(found: Forecast, *, width: int = WIDTH, color: bool = False) -> str:
    """What a plan will likely take, ending in a newline."""
    facts = [
        ("Wall time", ("at least " if found.uncounted else "") + _spread(found.wall_s, format_duration)),
        ("Cost", _cost(found)),
        ("Memory of a worker", _memory(found.memory)),
    ]
    workers = f"{plural(found.workers, 'worker')} ({found.workers_from})"
    if found.slots != found.workers:
        workers += f", concurrency {found.slots}"
    evidence = [
        f"{clean(found.calls_from)}, on {workers}",
        f"{format_duration(found.work_s)} of work, one task after the other",
    ]
    if found.around_s is not None:
        evidence.append(
            f"{format_duration(found.around_s)} before the first and after the last task, as in that run"
        )
    if found.handover_s > 0:
        evidence.append(f"{format_duration(found.handover_s)} dispatch latency per task, as in that run")
    table = table_block(
        [*found.tasks.items()],
        {
            "Task": lambda item: item[0],
            "Calls": lambda item: format_count(item[1].calls),
            "Work": lambda item: format_duration(item[1].work_s) if item[1].duration_s else "unknown",
            "Longest": lambda item: _spread(item[1].duration_s, format_duration),
            "Largest memory": lambda item: _spread(item[1].peak_memory_bytes, format_bytes),
        },
        left=("Longest", "Largest memory"),
    )
    head = Section(f"Forecast: {clean(found.project)} on {clean(found.target)}", blocks=[FactsBlock(facts)])
    why = Section("Why", blocks=[Remarks(evidence)])
    return _text(head, why, Section("", blocks=[table]), notes=found.notes, width=width, color=color)


def _estimate(each: Estimate | None, unit: Callable[[float | None], str]) -> str:
    return (
        "unknown: see below"
        if each is None
        else f"about {_interval(each.expected, each.low, each.high, unit)}"
    )


def _spread(each: ScheduleSpread | None, unit: Callable[[float | None], str]) -> str:
    return "unknown" if each is None else _interval(each.expected, each.low, each.high, unit)


def _interval(expected: float, low: float, high: float, unit: Callable[[float | None], str]) -> str:
    return f"{unit(expected)} ({unit(low)} to {unit(high)})"


def _cost(found: Forecast) -> str:
    cost = found.cost
    if cost.amount is None:
        return f"unknown: {clean(cost.reason or 'no rates')}"
    if not cost.per_worker_hour:
        return free_text(found.provider, cost.currency)
    ends = (money_text(end, cost.currency) for end in (found.cost_low, found.cost_high))
    least = "at least " if found.uncounted else ""
    return f"{least}{money_text(cost.amount, cost.currency)} ({' to '.join(ends)})"


def _memory(memory: MemoryForecast | None) -> str:
    if memory is None:
        return "unknown: not measured"
    largest = call_text(memory.task, memory.args, 40)
    text = f"{format_bytes(memory.expected)}, p95 {format_bytes(memory.high)}: {largest}"
    if memory.at_once > 1:
        text += f" and the next {memory.at_once - 1} running concurrently"
    if memory.asked_bytes is not None:
        text += f"; {format_bytes(memory.asked_bytes)} requested"
    return text + (f", which {plural(memory.over, 'call')} may exceed" if memory.over else "")


def _scores(label: str, scores: QuantityScores) -> Section:
    whole = scores.whole
    if whole is None:
        return Section(label, blocks=[Paragraph("nothing to evaluate: too little history, or not measured")])
    answer = (
        f"median error {format_percent(whole.error)}, by name alone "
        f"{format_percent(whole.baseline_error)}; {format_percent(whole.coverage)} of "
        f"{plural(whole.attempts, 'attempt')} lay in the 90 % intervals"
    )
    rows = [_score("all tasks", whole)]
    if len(scores.names) > 1:
        rows += [_score(name, each) for name, each in scores.names.items()]
    head = ("Task", "Attempts", "Error", "by name", "Loss", "by name", "In interval", "Width", "by name")
    unknown = f"{plural(scores.unpredicted, 'attempt')} of names too little known before"
    last = Paragraph(unknown if scores.unpredicted else "")
    return Section(label, blocks=[Paragraph(answer), TableBlock(head, rows), last])


def _score(name: str, each: Score) -> tuple[str, ...]:
    return (
        name,
        format_count(each.attempts),
        format_percent(each.error),
        format_percent(each.baseline_error),
        f"{each.loss:.3f}",
        f"{each.baseline_loss:.3f}",
        format_percent(each.coverage),
        f"{each.ratio:.3g}x",
        f"{each.baseline_ratio:.3g}x",
    )


def _left_out(why: str, number: int) -> str:
    return f"{plural(number, 'attempt')} that {_reason(why)}"


def _reason(why: str) -> str:
    return {
        "failed": "failed",
        "cancelled": "were cancelled",
        "killed for memory": "were killed for memory",
        "killed at an unknown memory limit": "were killed at an unknown memory limit",
        "ended at its time limit": "ended at their time limit",
        "spared by the cache": "the cache spared more than half of their work",
    }.get(why, why)
