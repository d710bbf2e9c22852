"""Where a trained model is kept: a JSON file in the folder of runs, hidden, or in the user's cache where that
is read-only.

Nothing in it is ever executed. A file that is damaged, another user's, or was made by other versions is
refused with a reason, and a new model is trained. It may be removed at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from flightlog.analyze.prediction.boosting import sklearn_version
from flightlog.analyze.prediction.model import FORMAT, Model
from flightlog.analyze.prediction.training import QuantityModel
from flightlog.errors import MissingExtra
from flightlog.store.catalogue import RunEntry
from flightlog.store.documents import replace_bytes
from flightlog.store.index_file import index_file
from flightlog.version import __version__

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
