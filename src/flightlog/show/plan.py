"""Plans and the origin of their values, forecasts of plans, predictions and their evaluation, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.advice.resources import is_same, request_text
from flightlog.analyze.history.attempts import Requested
from flightlog.core.text import listed, plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.document import (
    FactsBlock,
    Paragraph,
    Remarks,
    Section,
    TableBlock,
    Verbatim,
    document_text,
    facts,
    facts_block,
    section_text,
    sections_text,
    table_block,
    table_section,
)
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import args_text, call_text, free_text, known, money_text
from flightlog.show.terminal import Ink, clean, fit

if TYPE_CHECKING:
    from flightlog.analyze.predict.baseline import Estimate, Prediction
    from flightlog.analyze.predict.eta import ScheduleSpread
    from flightlog.analyze.predict.predict import Evaluation, Model, QuantityScores
    from flightlog.session.forecast import Forecast, MemoryForecast
    from flightlog.session.lock import Difference
    from flightlog.session.plan import Explanation, Plan, PlannedComponent, Suggestion, ValueOrigin
    from flightlog.session.schema import Cache, Task
    from flightlog.session.yaml_tree import OverlayChange


def plan_text(plan: Plan, *, width: int = TextLimits.default_width, color: bool = False) -> str:
    """The plan, ending in a newline. Unknown values are blank or called unknown, never 0."""
    found = facts_block(
        [
            ("Manifest", f"{clean(plan.manifest)} (sha256 {plan.manifest_sha256[:12]})"),
            ("Target", f"{clean(plan.target)} (provider: {clean(plan.provider)})"),
            ("Overlay", clean(", ".join(plan.overlays))),
            ("Options", args_text(plan.options, max(20, width - 17))),
            ("Workers", _workers(plan)),
            ("Expected cost", _cost(plan)),
        ]
    )
    ink = Ink(color)
    head = "\n".join([ink("title", f"Plan: {clean(plan.project)}"), *facts(found.pairs, ink=ink, indent="")])
    sections = sections_text([_components(plan), _tasks(plan)], width=width, ink=ink, mark="")
    history = section_text(_history(plan), width=width, ink=ink, mark="" if plan.history else ":")
    return "\n\n".join([head, *sections, history]) + "\n"


def _workers(plan: Plan) -> str:
    if plan.workers is None:
        return "as many workers as the engine decides"
    number = plural(plan.workers, "worker")
    return f"likely {number}, as in earlier runs" if plan.workers_from == "history" else f"at most {number}"


def _cost(plan: Plan) -> str:
    cost = plan.cost
    if cost.amount is None:
        return f"unknown: {clean(cost.reason or '')}"
    if cost.worker_hours is None:
        return free_text(plan.provider, cost.currency)
    amount, rate = (money_text(one, cost.currency) for one in (cost.amount, cost.per_worker_hour))
    return f"{amount} ({cost.worker_hours:.3g} worker-hours at {rate})"


def _components(plan: Plan) -> Section:
    return table_section(
        "Components",
        plan.components.items(),
        "key Component, cpus:g CPUs, memory_bytes Memory, gpus:g GPUs, walltime_s Walltime, image <Image, "
        "suggestion <History suggests",
        suggestion=lambda item: _suggestion(plan.suggestions.get(item[0]), item[1]),
    )


def _suggestion(found: Suggestion | None, asked: PlannedComponent) -> str:
    """`1 CPU, 7.2GB (720 attempts)`; "the same" where that is the request; empty without enough attempts.
    `(720 attempts elsewhere)` are on other targets.
    """
    if found is None:
        return ""
    pairs = ((found.cpus, asked.cpus), (found.memory_bytes, asked.memory_bytes))
    text = "the same"
    if not all(new is None or is_same(old, new) for new, old in pairs):
        text = request_text(Requested(cpus=found.cpus, memory_bytes=found.memory_bytes))
    least = "" if found.whole else "at least "
    where = " elsewhere" * found.elsewhere
    return f"{least}{text} ({plural(found.attempts, 'attempt')}{where})"


def _tasks(plan: Plan) -> Section:
    return table_section(
        "Tasks",
        plan.tasks.items(),
        "key Task, component <Component, retries:g Retries, timeout_s Timeout, cache <Cache",
        cache=lambda item: _cached(item[1].cache),
    )


def _history(plan: Plan) -> Section:
    history = plan.history
    if history is None:
        return Section("History", f"no earlier run of {clean(plan.project)}")
    return table_section(
        f"History ({plural(len(history.runs), 'run')})",
        history.tasks.items(),
        "key Task, tasks Tasks, p50_s p50, p95_s p95, p95_cpus:.2g p95 CPUs, memory p95 memory",
        memory=lambda item: (
            ("≥ " if any(scope.endswith("_at_least") for scope in item[1].rss_scopes) else "")
            + known(item[1].p95_peak_rss_bytes, format_bytes)
        ),
    )


def _cached(cache: bool | Cache | None) -> str:
    if cache is None:
        return ""
    if isinstance(cache, bool):
        return "yes" if cache else "no"
    parts = [f"version {cache.version}"] if cache.version else []
    parts += [f"for {format_duration(cache.ttl_s)}"] if cache.ttl_s is not None else []
    return ", ".join(["yes", *parts])


# --- in words --------------------------------------------------------------------------------------------


def explanation_text(
    plan: Plan, why: Explanation, *, width: int = TextLimits.default_width, color: bool = False
) -> str:
    """What would run where, what overlays changed, and the line each value comes from; ends in a newline."""
    ink = Ink(color)
    options = f" ({args_text(plan.options, max(20, width - 40))})" if plan.options else ""
    where = f"project {clean(plan.project)} runs on the provider {clean(plan.provider)}{options}"
    first = f"{clean(why.name)} on target {ink('name', clean(plan.target))}: {where} with {_workers(plan)}."
    tasks = [_sentence(name, task, plan.components, ink) for name, task in plan.tasks.items()]
    idle = [name for name, each in plan.components.items() if not each.tasks]
    if idle:
        tasks.append(f"  No task of the manifest names the component {clean(', '.join(idle))}.")
    tasks.append("  Any other task runs without retries, timeout or component, unless its call says so.")
    names = ", ".join(dict.fromkeys(clean(each.overlay) for each in why.changes))
    changes = map(_change, why.changes)
    sections = [
        Section("", blocks=[Verbatim(first)]),
        Section("Tasks", blocks=[Verbatim("\n".join(tasks))]),
        Section(f"What the overlay {names} changes", blocks=[Verbatim("\n".join(changes))]),
        table_section(
            "Where values come from",
            why.origins,
            "path Value, text <Is, origin <From",
            text=lambda each: fit(clean(each.text), max(20, width // 3)),
            origin=_origin,
        ),
    ]
    return document_text(sections, width=width, color=color, mark="")


def _sentence(name: str, task: Task, components: Mapping[str, PlannedComponent], ink: Ink) -> str:
    said = (
        [f"runs on component {clean(task.component)}{_made_of(components[task.component])}"]
        if task.component
        else ["runs on any worker"]
    )
    if task.retries is not None:
        said.append(f"is retried up to {plural(task.retries, 'time')}" if task.retries else "is not retried")
    if task.timeout_s is not None:
        said.append(f"may take {format_duration(task.timeout_s)} per attempt")
    if task.cache is not None:
        kept = _cached(task.cache).removeprefix("yes").lstrip(", ")
        cached = f"caches its results{f' ({clean(kept)})' if kept else ''}"
        said.append(cached if task.cache else "does not cache its results")
    if task.outputs:
        said.append(f"makes {clean(', '.join(task.outputs))}")
    return f"  {ink('name', clean(name))} {listed(said)}."


def _counted(number: float, what: str) -> str:
    return f"{number:g} {what}" if number == 1 else f"{number:g} {what}s"


def _made_of(component: PlannedComponent) -> str:
    parts = [_counted(component.cpus, "CPU")] if component.cpus is not None else []
    parts += [f"{format_bytes(component.memory_bytes)} memory"] if component.memory_bytes is not None else []
    parts += [_counted(component.gpus, "GPU")] if component.gpus else []
    parts += [f"at most {format_duration(component.walltime_s)}"] if component.walltime_s is not None else []
    parts += [f"image {clean(component.image)}"] if component.image else []
    return f" ({', '.join(parts)})" if parts else ""


def _change(each: OverlayChange) -> str:
    before, after = f"{clean(each.before or '')} (line {each.before_line})", clean(each.after or "")
    said = f"{after} is added" if each.before is None else f"{before} becomes {after}"
    said = f"{before} is removed" if each.after is None else said
    return f"  {clean(each.path)}: {said} (line {each.after_line})"


def _origin(origin: ValueOrigin) -> str:
    parts = [f"line {origin.line}" if origin.line else "assumed"]
    parts += [f"overlay {origin.overlay}"] if origin.overlay else []
    parts += [f"{name} is {'set' if there else 'not set'}" for name, there in origin.is_set.items()]
    return ", ".join(parts)


def differences_text(run_id: str, differences: Sequence[Difference], *, color: bool = False) -> str:
    """The differences from the lock of a run, one per line; ends in a newline."""
    ink = Ink(color)
    if not differences:
        return f"{ink('good', 'nothing differs')} from {clean(run_id)}\n"
    head = f"{plural(len(differences), 'thing')} differ{'s' * (len(differences) == 1)} from {clean(run_id)}:"
    return "\n".join([ink("title", head), *(f"  {clean(each.sentence)}" for each in differences)]) + "\n"


def _text(head: Section, *sections: Section, notes: Sequence[str], width: int, color: bool) -> str:
    """The head with its title in any case, the sections that say something, and the notes."""
    ink, rest = Ink(color), [*sections, Section("Notes", blocks=[Remarks(notes)])]
    texts = sections_text(rest, width=width, ink=ink, mark="")
    return "\n\n".join([section_text(head, width=width, ink=ink, mark=""), *texts]) + "\n"


def prediction_text(found: Prediction, *, width: int = TextLimits.default_width, color: bool = False) -> str:
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
    facts = FactsBlock(
        [
            (label, f"about {_spread(each, unit)}" if each is not None else "unknown: see below")
            for label, each, unit in parts
        ]
    )
    head = Section(call_text(found.task, found.args, width), blocks=[facts])
    why = Section("Why", blocks=[Remarks(reasons)])
    return _text(head, why, notes=found.notes, width=width, color=color)


def model_text(
    model: Model, why: str | None, *, width: int = TextLimits.default_width, color: bool = False
) -> str:
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


def evaluation_text(found: Evaluation, *, width: int = TextLimits.default_width, color: bool = False) -> str:
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


def forecast_text(found: Forecast, *, width: int = TextLimits.default_width, color: bool = False) -> str:
    """What a plan will likely take, ending in a newline."""
    facts = [
        ("Wall time", ("at least " if found.uncounted else "") + _spread(found.wall_s, format_duration)),
        ("Cost", _forecast_cost(found)),
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
    tasks = table_section(
        "",
        found.tasks.items(),
        "key Task, calls Calls, work Work, longest <Longest, memory <Largest memory",
        work=lambda item: format_duration(item[1].work_s) if item[1].duration_s else "unknown",
        longest=lambda item: _spread(item[1].duration_s, format_duration),
        memory=lambda item: _spread(item[1].peak_memory_bytes, format_bytes),
    )
    head = Section(f"Forecast: {clean(found.project)} on {clean(found.target)}", blocks=[FactsBlock(facts)])
    why = Section("Why", blocks=[Remarks(evidence)])
    return _text(head, why, tasks, notes=found.notes, width=width, color=color)


def _spread(each: Estimate | ScheduleSpread | None, unit: Callable[[float | None], str]) -> str:
    return "unknown" if each is None else f"{unit(each.expected)} ({unit(each.low)} to {unit(each.high)})"


def _forecast_cost(found: Forecast) -> str:
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
    several = scores.names.items() if len(scores.names) > 1 else ()
    table = table_block(
        [("all tasks", whole), *several],
        "key Task, attempts Attempts, error:share Error, baseline_error:share by name, loss:.3f Loss, "
        "baseline_loss:.3f by name, coverage:share In interval, width Width, baseline_width by name",
        width=lambda item: f"{item[1].ratio:.3g}x",
        baseline_width=lambda item: f"{item[1].baseline_ratio:.3g}x",
    )
    unknown = f"{plural(scores.unpredicted, 'attempt')} of names too little known before"
    last = Paragraph(unknown if scores.unpredicted else "")
    return Section(label, blocks=[Paragraph(answer), table, last])


def _left_out(why: str, number: int) -> str:
    return f"{plural(number, 'attempt')} that {_reason(why)}"


def _reason(why: str) -> str:
    return {
        "cancelled": "were cancelled",
        "killed for memory": "were killed for memory",
        "killed at an unknown memory limit": "were killed at an unknown memory limit",
        "ended at its time limit": "ended at their time limit",
        "spared by the cache": "the cache spared more than half of their work",
    }.get(why, why)
