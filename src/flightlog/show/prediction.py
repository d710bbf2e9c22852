"""Predictions, forecasts of plans and evaluations of both, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.document import facts, table
from flightlog.show.phrases import call_text, free_text, money_text
from flightlog.show.terminal import Ink, clean, wrap

if TYPE_CHECKING:
    from flightlog.analyze.predict.baseline import Estimate, Prediction
    from flightlog.analyze.predict.evaluation import Evaluation, QuantityScores, Score
    from flightlog.analyze.predict.predict import Model
    from flightlog.analyze.predict.schedule import ScheduleSpread
    from flightlog.session.forecast import Forecast, MemoryForecast

WIDTH = 100


def prediction_text(found: Prediction, *, width: int = WIDTH, color: bool = False) -> str:
    """What a task will likely take, ending in a newline."""
    ink = Ink(color)
    parts = (
        ("Duration", found.duration_s, format_duration),
        ("Peak memory", found.peak_memory_bytes, format_bytes),
    )
    pairs = [(label, _estimate(each, unit)) for label, each, unit in parts]
    lines = [ink("title", call_text(found.task, found.args, width)), *facts(pairs, ink=ink), ""]
    lines.append(ink("head", "Why"))
    for label, each, _ in parts:
        if each is not None:
            evidence = f"{plural(each.examples, 'completed attempt')} in {plural(each.runs, 'run')}"
            lines += _item(f"{label.lower()}: {evidence}; {each.reason}", width)
    trained = (
        f"trained {clean(found.trained_at)} from {plural(found.training_runs, 'run')} of {found.project}"
    )
    lines += _item(trained, width)
    # What a cache spared has a note of its own.
    left = [_left_out(why, number) for why, number in found.left_out.items() if why != "spared by the cache"]
    if left:
        lines += _item(f"left out, of all tasks: {'; '.join(left)}", width)
    return "\n".join([*lines, *_notes(found.notes, width, ink)]) + "\n"


def model_text(model: Model, why: str | None, *, width: int = WIDTH, color: bool = False) -> str:
    """What was learnt from a project's runs, ending in a newline."""
    ink = Ink(color)
    learnt = f"{plural(model.attempts, 'attempt')} in {plural(len(model.runs), 'run')}"
    lines = [
        ink("title", f"Model of {clean(model.project or 'unknown')}: learnt from {learnt}"),
        *facts(
            [
                ("Trained", f"{clean(model.trained_at)}{f' ({clean(why)})' if why else ''}"),
                ("scikit-learn", model.sklearn or "not installed: quantiles by name alone"),
            ],
            ink=ink,
        ),
        "",
    ]
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
                rows.append((clean(name), label, format_count(of.examples), method, clean(by)))
    head = ("Task", "Quantity", "Examples", "Method", "By")
    lines += table(head, rows, width=width, ink=ink, left=("Quantity", "Method", "By"))
    notes = [f"left out: {_left_out(why, number)}" for why, number in model.left_out.items()]
    return "\n".join([*lines, *_notes([*notes, *model.notes], width, ink)]) + "\n"


def evaluation_text(found: Evaluation, *, width: int = WIDTH, color: bool = False) -> str:
    """How predictions fared on later runs, ending in a newline."""
    ink = Ink(color)
    tested = (
        f"  {found.tested_runs} of {plural(found.runs, 'run')} tested, each by a model of earlier runs alone"
    )
    lines = [
        ink("title", f"Predictions of {clean(found.project or 'unknown')}, evaluated on its newest runs"),
        *([tested] if found.tested_runs else []),
    ]
    for label, scores in (("Duration", found.duration_s), ("Peak memory", found.peak_memory_bytes)):
        lines += ["", ink("head", label), *_scores(scores, width, ink)]
    notes = [
        f"{label}: {plural(number, 'attempt')} left out that {_reason(why)}"
        for label, scores in (("duration", found.duration_s), ("peak memory", found.peak_memory_bytes))
        for why, number in scores.left_out.items()
    ]
    return "\n".join([*lines, *_notes([*notes, *found.notes], width, ink)]) + "\n"


def forecast_text(found: Forecast, *, width: int = WIDTH, color: bool = False) -> str:
    """What a plan will likely take, ending in a newline."""
    ink = Ink(color)
    pairs = [
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
    lines = [
        ink("title", f"Forecast: {clean(found.project)} on {clean(found.target)}"),
        *facts(pairs, ink=ink),
        "",
        ink("head", "Why"),
        *(line for text in evidence for line in _item(text, width)),
        "",
    ]
    rows = [
        (
            clean(name),
            format_count(each.calls),
            format_duration(each.work_s) if each.duration_s else "unknown",
            _spread(each.duration_s, format_duration),
            _spread(each.peak_memory_bytes, format_bytes),
        )
        for name, each in found.tasks.items()
    ]
    head = ("Task", "Calls", "Work", "Longest", "Largest memory")
    lines += table(head, rows, width=width, ink=ink, left=("Longest", "Largest memory"))
    return "\n".join([*lines, *_notes(found.notes, width, ink)]) + "\n"


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


def _scores(scores: QuantityScores, width: int, ink: Ink) -> list[str]:
    if scores.whole is None:
        return ["  nothing to evaluate: too little history, or not measured"]
    whole = scores.whole
    rows = [_score("all tasks", whole)]
    if len(scores.names) > 1:
        rows += [_score(clean(name), each) for name, each in scores.names.items()]
    head = ("Task", "Attempts", "Error", "by name", "Loss", "by name", "In interval", "Width", "by name")
    answer = (
        f"median error {format_percent(whole.error)}, by name alone "
        f"{format_percent(whole.baseline_error)}; {format_percent(whole.coverage)} of "
        f"{plural(whole.attempts, 'attempt')} lay in the 90 % intervals"
    )
    lines = [*wrap(answer, width, first="  ", rest="  "), *table(head, rows, width=width, ink=ink)]
    if scores.unpredicted:
        lines.append(f"  {plural(scores.unpredicted, 'attempt')} of names too little known before")
    return lines


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


def _notes(notes: Sequence[str], width: int, ink: Ink) -> list[str]:
    if not notes:
        return []
    return ["", ink("head", "Notes"), *(line for note in notes for line in _item(note, width))]


def _item(text: str, width: int) -> list[str]:
    return wrap(clean(text), width, first="  - ", rest="    ")


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
