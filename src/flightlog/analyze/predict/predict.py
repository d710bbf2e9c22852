"""How long a task will take and how much memory it will need: the trained model of a project's tasks, what it
says of one of them, the file that keeps it, and how good it is: models of earlier runs, held against the runs
that followed.

The file is JSON, hidden in the folder of runs, or in the user's cache where that is read-only. Nothing in it
is ever executed. A file that is damaged, another user's, or was made by other versions is refused with a
reason, and a new model is trained. It may be removed at any time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import fmean, median
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.history.attempts import ProjectHistory, read_past
from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.predict.baseline import QUANTITIES, Estimate, Logs, Method, Prediction, Quantity
from flightlog.analyze.predict.features import Example, Examples, Value, examples_of, flatten, gaps
from flightlog.analyze.predict.training import (
    Boosting,
    BoostingFailed,
    Fit,
    OfName,
    QuantityModel,
    find_boosting,
    pinball,
    sklearn_version,
    train_quantity,
    weighted_quantile,
)
from flightlog.analyze.tallies import copied, grouped
from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.plugins import did_you_mean
from flightlog.core.text import base_name
from flightlog.core.units import format_bytes, format_duration
from flightlog.store.catalogue import RunEntry
from flightlog.store.documents import replace_bytes
from flightlog.store.earlier_runs import select_runs
from flightlog.store.index import index_file
from flightlog.store.runs_folder import folder_of_runs, place
from flightlog.version import __version__

FORMAT = 1
"""Of what is kept, and of how arguments become columns: goes up with either."""


class ModelHead(Struct, frozen=True, kw_only=True):
    """What of a model that was kept has to match before the rest is read."""

    format: int
    flightlog: str
    sklearn: str | None
    """Version of scikit-learn; None where there was none, and only the baseline was made."""
    project: str | None


class Model(ModelHead, frozen=True, kw_only=True):
    """What was learnt from a project's runs, with all that it was made of."""

    trained_at: str
    runs: list[str]
    """Ids of the runs that it learnt from, the newest first."""
    attempts: int
    """Attempts in them."""
    duration_s: QuantityModel
    peak_memory_bytes: QuantityModel
    notes: list[str] = []
    """What could not be read, and why there is no boosting where there is none."""

    def quantity(self, name: Quantity) -> QuantityModel:
        """The model of one quantity."""
        return self.duration_s if name == "duration_s" else self.peak_memory_bytes

    @property
    def left_out(self) -> dict[str, int]:
        """Attempts that were not learnt from, by reason; where the two quantities differ, that of
        durations.
        """
        return {**self.peak_memory_bytes.left_out, **self.duration_s.left_out}

    @property
    def names(self) -> set[str]:
        """Tasks that anything is known of."""
        return {*self.duration_s.names, *self.peak_memory_bytes.names}


def train(
    past: ProjectHistory,
    *,
    find: Callable[[], Boosting] = find_boosting,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Model:
    """A model of this past. Without scikit-learn it is the baseline alone, and its notes say so; never
    raises.
    """
    notes = gaps(past)
    version, fit = _found(find, notes)
    examples = [examples_of(past, quantity) for quantity in QUANTITIES]
    try:
        models = [train_quantity(each, fit=fit) for each in examples]
    except (BoostingFailed, ImportError) as error:
        notes.append(f"there is no prediction by arguments: {error}")
        version, models = None, [train_quantity(each, fit=None) for each in examples]
    return Model(
        format=FORMAT,
        flightlog=__version__,
        sklearn=version,
        project=past.project,
        trained_at=f"{now():%Y-%m-%dT%H:%M:%SZ}",
        runs=[run.run_id for run in past.runs],
        attempts=len(past.attempts),
        **dict(zip(QUANTITIES, models, strict=True)),
        notes=notes,
    )


def _found(find: Callable[[], Boosting], notes: list[str]) -> tuple[str, Fit] | tuple[None, None]:
    """The library that learns; None each, and a note, where there is none."""
    try:
        return find()
    except MissingExtra as missing:
        notes.append(f"{missing}.")
        return None, None


def estimate(
    model: QuantityModel,
    name: str,
    args: Mapping[str, Any],
    *,
    host: str | None = None,
    component: str | None = None,
) -> Estimate | None:
    """What the model says of a task; None where it knows too little of its name.

    Where hosts differ and none is named, the interval covers those that the name ran on lately.
    """
    of = model.names.get(name)
    if of is None:
        return None
    example = Example(name, component or of.component, host, flatten(args), 0, 0.0)
    logs = _over_hosts(model, of, example) if host is None else model.logs(example)
    if logs is None:
        return None
    low, mid, high = (math.exp(min(each, 700.0)) for each in logs)
    return copied(Estimate, of, expected=mid, low=low, high=high, reason=_reason(model, of))


def _over_hosts(model: QuantityModel, of: OfName, example: Example) -> Logs | None:
    differs = model.boosted is not None and "host" in model.boosted.keys
    if not differs or of.method != "boosting" or not of.hosts:
        return model.logs(example)
    least = 0.05 * sum(of.hosts.values())
    often = {host: count for host, count in of.hosts.items() if count >= least} or of.hosts
    each = [
        (logs, count)
        for host, count in often.items()
        if (logs := model.logs(replace(example, host=host))) is not None
    ]
    mid = weighted_quantile([(logs.mid, count) for logs, count in each], 0.5 * sum(n for _, n in each))
    return Logs(min(logs.low for logs, _ in each), mid, max(logs.high for logs, _ in each))


def _reason(model: QuantityModel, of: OfName) -> str:
    later = "later tasks" if of.judged >= PredictLimits.min_examples_to_judge else "later tasks of all names"
    if of.method == "boosting":
        better = 1 - (of.loss or 0.0) / (of.plain_loss or math.inf)
        return (
            f"boosting by arguments: on {later} its loss was {better:.0%} below that of quantiles by name "
            f"({of.loss:.3g} against {of.plain_loss:.3g})"
        )
    if of.loss is not None:
        return (
            f"quantiles by name: on {later}, boosting by arguments was no better "
            f"({of.loss:.3g} against {of.plain_loss:.3g})"
        )
    if model.boosted is not None and model.boosted.keys.isdisjoint(of.keys):
        return "quantiles by name: none of its arguments was found to matter"
    return (
        f"quantiles by name: {model.why_plain or 'too few examples of that name to learn from its arguments'}"
    )


def model_file(runs_dir: Path, project: str | None) -> Path:
    """Where the model of a project is, or would be."""
    index = index_file(runs_dir)
    prefix, _, rest = index.name.partition(".index-")
    user = rest.removesuffix(".json").rpartition("-")[2]
    name = quote(project or "", safe="")[:120]
    return index.with_name(f"{prefix}.model-v{FORMAT}-{user}-{name}.json")


def save_model(model: Model, runs_dir: Path) -> str | None:
    """Keep a model, in the place of the one before, in one step; what stood in the way, if anything did."""
    file = model_file(runs_dir, model.project)
    try:
        if file.parent != runs_dir:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_bytes(file, msgspec.json.encode(model))
        with suppress(OSError):
            file.chmod(0o600)
    except OSError as error:
        return f"the model could not be kept in {file}: {error.strerror or error}"
    return None


def load_model(
    runs_dir: Path, project: str | None, *, installed: Callable[[], str] = sklearn_version
) -> Model | str:
    """The model of a project that was kept, if it can be trusted, or why there is none; never raises."""
    file = model_file(runs_dir, project)
    try:
        with file.open("rb") as source:
            about = os.fstat(source.fileno())
            if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
                return f"{file.name} belongs to another user"
            if about.st_size > PredictLimits.max_model_bytes:
                return f"{file.name} is larger than any model"
            data = source.read()
    except FileNotFoundError:
        return "there was none"
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror or error}"
    try:
        head = msgspec.json.decode(data, type=ModelHead)
        if (other := _other(head, project, installed)) is not None:
            return other
        model = msgspec.json.decode(data, type=Model)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"{file.name} is damaged ({error})"
    boosted = [model.quantity(name).boosted for name in QUANTITIES]
    wrong = next((problem for one in boosted if one is not None and (problem := one.problem())), None)
    return f"{file.name} is damaged ({wrong})" if wrong is not None else model


def staleness(model: Model, entries: list[RunEntry]) -> str | None:
    """Why a model is out of date, from the runs there are, the newest first; None if it is not."""
    known = set(model.runs)
    since = takewhile(lambda entry: entry.run_id not in known, entries)
    new = [entry for entry in since if entry.project == model.project and entry.status != "running"]
    tasks = sum(entry.tasks_completed or 0 for entry in new)
    if len(new) >= PredictLimits.max_new_runs or tasks > PredictLimits.max_new_tasks_share * model.attempts:
        return f"{len(new):,} newer run{'s' * (len(new) != 1)} with {tasks:,} completed tasks"
    return None


def _other(head: ModelHead, project: str | None, installed: Callable[[], str]) -> str | None:
    """What of its origin does not match; None where all does."""
    if head.format != FORMAT:
        return f"the one that was kept has format {head.format}, and this is format {FORMAT}"
    if head.flightlog != __version__:
        return f"the one that was kept was trained by flightlog {head.flightlog}, and this is {__version__}"
    if head.project != project:
        return f"the one that was kept is of project {head.project!r}"
    try:
        here = installed()
    except MissingExtra:
        return None  # its trees are evaluated without
    if head.sklearn is None:
        return "the one that was kept was trained without scikit-learn"
    if head.sklearn.split(".")[:2] != here.split(".")[:2]:
        return f"the one that was kept was trained with scikit-learn {head.sklearn}, and this is {here}"
    return None


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
    selected = select_runs(runs_dir, project=project)
    if not selected.projects:
        raise UsageError(
            f"there are no runs in {place(runs_dir)} to learn from: record some with `flightlog run`, "
            "`flightlog.record` or a session, then ask again"
        )
    project = selected.project
    if not selected.runs:
        known = ", ".join(sorted(selected.projects)[:10])
        raise UsageError(
            f"there are no runs of project {project!r} in {place(runs_dir)}; there are runs of {known}"
        )
    why = "as asked for"
    if not train_anew:
        kept = load_model(runs_dir, project)
        if isinstance(kept, str):
            why = kept
        elif (old := staleness(kept, [run.entry for run in selected.runs])) is None:
            return Opened(kept, False, None, list(kept.notes))
        else:
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
    return copied(
        Prediction,
        model,
        task=name,
        args=given,
        host=host,
        confidence=PredictLimits.confidence,
        **found,
        training_runs=len(model.runs),
        notes=[*dict.fromkeys(notes), *opened.notes],
    )


def _unknown(model: Model, task: str) -> str:
    if not model.names:
        return (
            f"no task of project {model.project!r} has completed with a measured duration: there is "
            "nothing to learn from"
        )
    known = ", ".join(sorted(model.names)[:10])
    runs = f"{len(model.runs)} run{'s' * (len(model.runs) != 1)} of project {model.project!r}"
    hint = did_you_mean(task, sorted(model.names))
    return f"no task {task!r} has completed in the {runs} looked at.{hint} Known tasks: {known}"


def _notes(
    model: Model, quantity: Quantity, name: str, args: Mapping[str, Any], found: Estimate | None
) -> Iterator[str]:
    word, of = _WORDS[quantity], model.quantity(quantity).names.get(name)
    if of is None:
        yield f"{word}: nobody measured it for {name}"
        return
    if found is None:
        yield (
            f"{word}: too little history, {of.examples} completed attempts of {name}; "
            f"{PredictLimits.min_attempts} are the least"
        )
        return
    if of.examples < PredictLimits.min_attempts_for_ranks:
        yield f"{word}: only {of.examples} completed attempts of {name}, so the interval is wide"
    boosted = model.quantity(quantity).boosted
    if found.method == "boosting" and boosted is not None:
        yield from _arguments(of, boosted.keys, flatten(args))
    if of.above and of.most_above is not None:
        limit = math.exp(of.most_above)
        shown = format_duration(limit) if quantity == "duration_s" else format_bytes(limit)
        ended = {"duration_s": "ended at their time limit"}.get(quantity, "were killed at their memory limit")
        yield (
            f"{word}: {of.above} attempts of {name} {ended}, of at most {shown}; they count as more than "
            "that, and what lies beyond is not known"
        )
    if of.rough:
        yield (
            f"{word}: {of.rough} of {of.examples} figures are lower bounds, from processes that had peaked "
            "higher before"
        )


def _arguments(of: OfName, looked_at: set[str], values: Mapping[str, Value]) -> Iterator[str]:
    """What is odd about the arguments that matter."""
    for key, seen in of.ranges.items():
        value = values.get(key)
        if key in looked_at and isinstance(value, float) and not seen.least <= value <= seen.most:
            yield (
                f"{key.removeprefix('args.')}={value:g} is outside what was seen ({seen.least:g} to "
                f"{seen.most:g}): what is said is that of the nearest seen, and the interval may not hold"
            )
    for key, known in of.words.items():
        said = values.get(key)
        if key in looked_at and isinstance(said, str) and known and said not in known:
            yield (
                f"{key.removeprefix('args.')}={said[:40]} was never seen, only {', '.join(known[:5])}"
                + (f" and {len(known) - 5} more" if len(known) > 5 else "")
            )
    # Trees are of all names together: what matters to another one is no argument of this one.
    asked = {key for key in looked_at & of.keys if key.startswith("args.")}
    missing = sorted(key.removeprefix("args.") for key in asked - values.keys())
    if missing:
        yield f"not given, though it matters: {', '.join(missing[:5])}"


class Score(Struct, frozen=True, kw_only=True):
    """How predictions compare with what came; shares are from 0 to 1."""

    attempts: int
    boosted: int
    """Attempts that boosting predicted; the baseline did the others."""
    error: float
    """Median of how far the expected value was off: 0.1 is 10 %."""
    baseline_error: float
    loss: float
    """Mean pinball loss of low, expected and high, of logarithms."""
    baseline_loss: float
    coverage: float
    """Share of attempts within the interval, which should be 0.9."""
    baseline_coverage: float
    ratio: float
    """Median of high over low."""
    baseline_ratio: float


class QuantityScores(Struct, frozen=True, kw_only=True):
    """The scores of one quantity."""

    quantity: Quantity
    whole: Score | None
    """None where nothing could be held against anything."""
    names: dict[str, Score]
    left_out: dict[str, int]
    """Attempts that neither teach nor test, by reason."""
    unpredicted: int
    """Attempts of names that were not known well enough before."""


class Evaluation(Struct, frozen=True, kw_only=True):
    """How predictions of a project's tasks fared."""

    project: str | None
    runs: int
    tested_runs: int
    """The newest of them."""
    duration_s: QuantityScores
    peak_memory_bytes: QuantityScores
    notes: list[str]


class PredictionOutcome(Struct, frozen=True):
    """One prediction and what came of it, as logarithms."""

    name: str
    method: Method
    predicted: Logs
    plain: Logs
    actual: float
    above: bool = False


def evaluate(past: ProjectHistory, *, find: Callable[[], Boosting] = find_boosting) -> Evaluation:
    """Train on earlier runs and test on the later ones; never raises for what the history holds."""
    notes = gaps(past)
    _, fit = _found(find, notes)
    runs = len(past.runs)
    tested = max(1, round(PredictLimits.tested_share * runs)) if runs >= PredictLimits.min_tested_runs else 0
    if not tested:
        notes.append(
            f"{runs} run{'s are' if runs != 1 else ' is'} too few to hold later ones against earlier ones: "
            f"{PredictLimits.min_tested_runs} are the least"
        )
    scores = []
    for examples in (examples_of(past, quantity) for quantity in QUANTITIES):
        try:
            scores.append(_scores(examples, runs, tested, fit))
        except (BoostingFailed, ImportError) as error:
            notes.append(f"boosting was left out: {error}")
            scores.append(_scores(examples, runs, tested, None))
    return Evaluation(
        project=past.project,
        runs=runs,
        tested_runs=tested,
        **dict(zip(QUANTITIES, scores, strict=True)),
        notes=[*dict.fromkeys(notes)],
    )


def _scores(examples: Examples, runs: int, tested: int, fit: Fit | None) -> QuantityScores:
    outcomes: list[PredictionOutcome] = []
    unpredicted, steps = 0, PredictLimits.test_steps
    edges = sorted({runs - tested + round(tested * step / steps) for step in range(steps + 1)})
    for since, until in pairwise(edges):
        before = [example for example in examples.found if example.run < since]
        model = train_quantity(Examples(examples.quantity, before, {}), fit=fit)
        for example in examples.found:
            if since <= example.run < until:
                logs, of = model.logs(example), model.names.get(example.name)
                if logs is None or of is None or of.plain is None:
                    unpredicted += 1
                else:
                    outcomes.append(
                        PredictionOutcome(example.name, of.method, logs, of.plain, example.log, example.above)
                    )
    by_name = grouped((outcome.name, outcome) for outcome in outcomes)
    named = {name: made for name, each in sorted(by_name.items()) if (made := score(each)) is not None}
    return QuantityScores(
        quantity=examples.quantity,
        whole=score(outcomes),
        names=named,
        left_out=examples.left_out,
        unpredicted=unpredicted,
    )


def score(outcomes: Sequence[PredictionOutcome]) -> Score | None:
    """The score of some predictions; None of none.

    An attempt that ended at its limit counts as a miss where that limit is beyond the interval, and not at
    all otherwise.
    """
    whole = [each for each in outcomes if not each.above]
    if not whole:
        return None
    ours = _measures([(each.predicted, each) for each in outcomes])
    plain = _measures([(each.plain, each) for each in outcomes])
    return Score(
        attempts=len(whole),
        boosted=sum(each.method == "boosting" for each in whole),
        **ours,
        **{f"baseline_{name}": value for name, value in plain.items()},
    )


def _measures(pairs: Sequence[tuple[Logs, PredictionOutcome]]) -> dict[str, float]:
    """Error, loss, coverage and ratio of one method's predictions."""
    whole = [(logs, each.actual) for logs, each in pairs if not each.above]
    held = [
        logs.low <= each.actual <= logs.high and not each.above
        for logs, each in pairs
        if not each.above or each.actual > logs.high
    ]
    return {
        "error": median(abs(math.expm1(min(700.0, logs.mid - actual))) for logs, actual in whole),
        "loss": fmean(pinball(logs, actual) for logs, actual in whole),
        "coverage": fmean(held),
        "ratio": math.exp(min(700.0, median(logs.high - logs.low for logs, _ in whole))),
    }
