"""A trained model of a project's tasks, and what it says of one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.past import Past
from flightlog.analyze.prediction.base import Estimate, Quantity
from flightlog.analyze.prediction.baseline import Logs
from flightlog.analyze.prediction.boosting import Boosting, BoostingFailed, Fit, find_boosting
from flightlog.analyze.prediction.examples import (
    Example,
    duration_examples,
    gaps,
    memory_examples,
    saved_by_cache,
)
from flightlog.analyze.prediction.features import flatten
from flightlog.analyze.prediction.training import TO_JUDGE, OfName, QuantityModel, train_quantity
from flightlog.errors import MissingExtra
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
    past: Past,
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
