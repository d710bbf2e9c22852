"""The answers: how long a task will take, and how much memory it will need."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.analyze.history.attempts import base_name, read_past
from flightlog.analyze.predict.baseline import CONFIDENCE, ENOUGH, LEAST, Estimate, Prediction, Quantity
from flightlog.analyze.predict.features import Value, flatten
from flightlog.analyze.predict.model import Model, estimate, load_model, save_model, staleness, train
from flightlog.analyze.predict.training import OfName
from flightlog.core.errors import UsageError
from flightlog.core.units import format_bytes, format_duration
from flightlog.store.catalogue import list_runs
from flightlog.store.runs_folder import folder_of_runs, place

_WORDS: dict[Quantity, str] = {"duration_s": "duration", "peak_memory_bytes": "peak memory"}


class Opened(Struct, frozen=True):
    """A model to ask, and how it came about."""

    model: Model
    trained: bool
    """Whether it was trained just now."""
    why: str | None
    """Why it was trained anew; None where the one that was kept is used."""
    notes: list[str]


def predict(
    task: str,
    args: Mapping[str, Any] | None = None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    project: str | None = None,
    host: str | None = None,
    component: str | None = None,
    train_anew: bool = False,
) -> Prediction:
    """Duration (s) and peak memory (bytes) of a task with these arguments, each with an interval that holds
    90 %.

    Learnt from the runs of `project` (default: that of the latest run) in `runs_dir` (default: as
    configured). `host` is where it would run, if that is known. The model is kept in the folder of runs and
    trained anew where there is none, where it does not match, or where much has been recorded since;
    `train_anew` does so anyway. A quantity of which the history knows too little is None, and the notes say
    why. No runs, or no task of that name, is a `UsageError`.
    """
    folder = folder_of_runs(runs_dir)
    return predict_with(
        open_model(folder, project, train_anew=train_anew), task, args, host=host, component=component
    )


def open_model(runs_dir: Path, project: str | None = None, *, train_anew: bool = False) -> Opened:
    """The model of a project: the one that was kept if it is good, else a new one, which is then kept.

    A `UsageError` where there are no runs to learn from.
    """
    entries = list_runs(runs_dir)
    if not entries:
        raise UsageError(
            f"there are no runs in {place(runs_dir)} to learn from: record some with `flightlog run`, "
            "`flightlog.record` or a session, then ask again"
        )
    if project is None:
        project = entries[0].project
    elif all(entry.project != project for entry in entries):
        known = ", ".join(sorted({entry.project for entry in entries})[:10])
        raise UsageError(
            f"there are no runs of project {project!r} in {place(runs_dir)}; there are runs of {known}"
        )
    why: str | None = "as asked for"
    if not train_anew:
        kept = load_model(runs_dir, project)
        if kept.model is None:
            why = kept.reason
        else:
            old = staleness(kept.model, entries)
            if old is None:
                return Opened(kept.model, False, None, list(kept.model.notes))
            why = f"there are {old}"
    model = train(read_past(runs_dir, project=project))
    notes = list(model.notes)
    unkept = save_model(model, runs_dir)
    return Opened(model, True, why, [*notes, unkept] if unkept is not None else notes)


def predict_with(
    opened: Opened,
    task: str,
    args: Mapping[str, Any] | None = None,
    *,
    host: str | None = None,
    component: str | None = None,
) -> Prediction:
    """As `predict`, of a model that was opened before: for many questions in a row."""
    model = opened.model
    name = task if task in model.names else base_name(task)
    if name not in model.names:
        raise UsageError(_unknown(model, task))
    given = dict(args or {})
    found = {
        quantity: estimate(model.quantity(quantity), name, given, host=host, component=component)
        for quantity in _WORDS
    }
    notes: list[str] = []
    for quantity, each in found.items():
        notes += _notes(model, quantity, name, given, each)
    if spared := model.duration_s.left_out.get("spared by the cache"):
        notes.append(
            f"as if nothing were found in the cache: {spared:,} attempts of the project that it spared most "
            "of their work do not count"
        )
    of = model.duration_s.names.get(name) or model.peak_memory_bytes.names[name]
    if host is not None and of.hosts and host not in of.hosts:
        notes.append(f"{name} never ran on {host}: it ran on {', '.join(list(of.hosts)[:5])}")
    return Prediction(
        task=name,
        args=given,
        project=model.project,
        host=host,
        confidence=CONFIDENCE,
        duration_s=found["duration_s"],
        peak_memory_bytes=found["peak_memory_bytes"],
        trained_at=model.trained_at,
        training_runs=len(model.runs),
        left_out=model.left_out,
        notes=[*dict.fromkeys(notes), *opened.notes],
    )


def _unknown(model: Model, task: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(task, sorted(model.names), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if not model.names:
        return (
            f"no task of project {model.project!r} has completed with a measured duration: there is "
            "nothing to learn from"
        )
    known = ", ".join(sorted(model.names)[:10])
    runs = f"{len(model.runs)} run{'s' * (len(model.runs) != 1)} of project {model.project!r}"
    return f"no task {task!r} has completed in the {runs} looked at.{hint} Known tasks: {known}"


def _notes(
    model: Model, quantity: Quantity, name: str, args: Mapping[str, Any], found: Estimate | None
) -> list[str]:
    word, of = _WORDS[quantity], model.quantity(quantity).names.get(name)
    if of is None:
        return [f"{word}: nobody measured it for {name}"]
    if found is None:
        return [
            f"{word}: too little history, {of.examples} completed attempts of {name}; {LEAST} are the least"
        ]
    notes: list[str] = []
    if of.examples < ENOUGH:
        notes.append(f"{word}: only {of.examples} completed attempts of {name}, so the interval is wide")
    boosted = model.quantity(quantity).boosted
    if found.method == "boosting" and boosted is not None:
        notes += _arguments(of, boosted.keys, flatten(args))
    if of.above and of.most_above is not None:
        limit = math.exp(of.most_above)
        shown = format_duration(limit) if quantity == "duration_s" else format_bytes(limit)
        ended = (
            "ended at their time limit" if quantity == "duration_s" else "were killed at their memory limit"
        )
        notes.append(
            f"{word}: {of.above} attempts of {name} {ended}, of at most {shown}; they count as more than "
            "that, and what lies beyond is not known"
        )
    if of.rough:
        notes.append(
            f"{word}: {of.rough} of {of.examples} figures are lower bounds, from processes that had peaked "
            "higher before"
        )
    return notes


def _arguments(of: OfName, looked_at: set[str], values: Mapping[str, Value]) -> list[str]:
    """What is odd about the arguments that matter."""
    notes: list[str] = []
    for key, seen in of.ranges.items():
        value = values.get(key)
        if key in looked_at and isinstance(value, float) and not seen.least <= value <= seen.most:
            notes.append(
                f"{key.removeprefix('args.')}={value:g} is outside what was seen ({seen.least:g} to "
                f"{seen.most:g}): what is said is that of the nearest seen, and the interval may not hold"
            )
    for key, known in of.words.items():
        said = values.get(key)
        if key in looked_at and isinstance(said, str) and known and said not in known:
            notes.append(
                f"{key.removeprefix('args.')}={said[:40]} was never seen, only {', '.join(known[:5])}"
                + (f" and {len(known) - 5} more" if len(known) > 5 else "")
            )
    # Trees are of all names together: what matters to another one is no argument of this one.
    missing = sorted(
        key.removeprefix("args.")
        for key in looked_at & of.keys
        if key.startswith("args.") and key not in values
    )
    if missing:
        notes.append(f"not given, though it matters: {', '.join(missing[:5])}")
    return notes
