"""A trained model of a project's tasks, what it says of one of them, and the file that keeps it.

The file is JSON, hidden in the folder of runs, or in the user's cache where that is read-only. Nothing in it
is ever executed. A file that is damaged, another user's, or was made by other versions is refused with a
reason, and a new model is trained. It may be removed at any time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.history.attempts import ProjectHistory
from flightlog.analyze.predict.baseline import Estimate, Logs, Quantity
from flightlog.analyze.predict.boosting import Boosting, BoostingFailed, Fit, find_boosting, sklearn_version
from flightlog.analyze.predict.features import (
    Example,
    duration_examples,
    flatten,
    gaps,
    memory_examples,
    saved_by_cache,
)
from flightlog.analyze.predict.training import TO_JUDGE, OfName, QuantityModel, train_quantity
from flightlog.core.errors import MissingExtra
from flightlog.store.catalogue import RunEntry
from flightlog.store.documents import replace_bytes
from flightlog.store.index import index_file
from flightlog.version import __version__

FORMAT = 1
"""Of what is kept, and of how arguments become columns: goes up with either."""


class Model(Struct, frozen=True, kw_only=True):
    """What was learnt from a project's runs, with all that it was made of."""

    format: int
    flightlog: str
    sklearn: str | None
    """Version of scikit-learn; None where there was none, and only the baseline was made."""
    project: str | None
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
    version: str | None = None
    fit: Fit | None = None
    try:
        version, fit = find()
    except MissingExtra as missing:
        notes.append(f"{missing}.")
    saved = saved_by_cache(past)
    durations, memory = duration_examples(past, saved), memory_examples(past, saved)
    try:
        models = [train_quantity(examples, fit=fit) for examples in (durations, memory)]
    except (BoostingFailed, ImportError) as error:
        notes.append(f"there is no prediction by arguments: {error}")
        version, models = None, [train_quantity(examples, fit=None) for examples in (durations, memory)]
    return Model(
        format=FORMAT,
        flightlog=__version__,
        sklearn=version,
        project=past.project,
        trained_at=f"{now():%Y-%m-%dT%H:%M:%SZ}",
        runs=[run.run_id for run in past.runs],
        attempts=len(past.attempts),
        duration_s=models[0],
        peak_memory_bytes=models[1],
        notes=notes,
    )


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
    return Estimate(
        expected=mid,
        low=low,
        high=high,
        method=of.method,
        reason=_reason(model, of),
        examples=of.examples,
        runs=of.runs,
    )


def _over_hosts(model: QuantityModel, of: OfName, example: Example) -> Logs | None:
    differs = model.boosted is not None and "host" in model.boosted.keys
    if not differs or of.method != "boosting" or not of.hosts:
        return model.logs(example)
    total = sum(of.hosts.values())
    often = [(host, count) for host, count in of.hosts.items() if count >= 0.05 * total] or list(
        of.hosts.items()
    )
    each = [
        (logs, count)
        for host, count in often
        if (logs := model.logs(replace(example, host=host))) is not None
    ]
    mids = sorted((logs.mid, count) for logs, count in each)
    reached, mid = 0, mids[-1][0]
    for value, count in mids:
        reached += count
        if 2 * reached >= sum(count for _, count in mids):
            mid = value
            break
    return Logs(min(logs.low for logs, _ in each), mid, max(logs.high for logs, _ in each))


def _reason(model: QuantityModel, of: OfName) -> str:
    later = "later tasks" if of.judged >= TO_JUDGE else "later tasks of all names"
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


LARGEST = 256 * 2**20
NEW_SHARE, NEW_RUNS = 0.2, 10
"""A model is stale when newer runs hold more than this share of the tasks it learnt from, or are so many."""


class Loaded(Struct, frozen=True):
    """A model that can be used, or the reason why there is none."""

    model: Model | None
    reason: str | None = None


class _Head(Struct):
    """What has to match before the rest is looked at."""

    format: int
    flightlog: str
    sklearn: str | None
    project: str | None


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
) -> Loaded:
    """The model of a project that was kept, if it can be trusted; never raises."""
    file = model_file(runs_dir, project)
    try:
        with file.open("rb") as source:
            about = os.fstat(source.fileno())
            if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
                return Loaded(None, f"{file.name} belongs to another user")
            if about.st_size > LARGEST:
                return Loaded(None, f"{file.name} is larger than any model")
            data = source.read()
    except FileNotFoundError:
        return Loaded(None, "there was none")
    except OSError as error:
        return Loaded(None, f"{file.name} cannot be read: {error.strerror or error}")
    try:
        head = msgspec.json.decode(data, type=_Head)
        if (other := _other(head, project, installed)) is not None:
            return Loaded(None, other)
        model = msgspec.json.decode(data, type=Model)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Loaded(None, f"{file.name} is damaged ({error})")
    wrong = _problem(model.duration_s) or _problem(model.peak_memory_bytes)
    return Loaded(None, f"{file.name} is damaged ({wrong})") if wrong is not None else Loaded(model)


def staleness(model: Model, entries: list[RunEntry]) -> str | None:
    """Why a model is out of date, from the runs there are, the newest first; None if it is not."""
    known = set(model.runs)
    new: list[RunEntry] = []
    for entry in entries:
        if entry.run_id in known:
            break
        if entry.project == model.project and entry.status != "running":
            new.append(entry)
    tasks = sum(entry.tasks_completed or 0 for entry in new)
    if len(new) >= NEW_RUNS or tasks > NEW_SHARE * model.attempts:
        return f"{len(new):,} newer run{'s' * (len(new) != 1)} with {tasks:,} completed tasks"
    return None


def _other(head: _Head, project: str | None, installed: Callable[[], str]) -> str | None:
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


def _problem(model: QuantityModel) -> str | None:
    boosted = model.boosted
    if boosted is None:
        return None
    every = (boosted.mid, boosted.below, boosted.above)
    return next(
        (found for trees in every if (found := trees.problem(len(boosted.columns))) is not None), None
    )
