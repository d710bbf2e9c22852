"""`ResourceAdvisor`: recommended resources of tasks, from what earlier runs used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from flightlog.analyze.limits import AdviceLimits
from flightlog.core.errors import RunNotFound

if TYPE_CHECKING:
    from flightlog.analyze.advice.resources import Recommendation


@dataclass(frozen=True)
class ResourceRecommendation:
    """Recommended resources by component; by the task's name where it has no component."""

    task: str
    target: str | None
    confidence: float
    """The share of later attempts for which the resources suffice."""
    workers: dict[str, int]
    """Workers per task: 1."""
    resources: dict[str, dict[str, Any]]
    """`cpus`, `memory` (`8GB`) and `walltime` (`HH:MM:SS`); None is unknown."""
    evidence: dict[str, Any]
    """`records` is the number of attempts; `reason` and `problems` say why values are missing."""


class ResourceAdvisor:
    """Advice from the runs in a folder, which is read at each call."""

    def __init__(self, runs_dir: str | os.PathLike[str]) -> None:
        self._runs_dir = Path(runs_dir)

    @classmethod
    def from_history(cls, runs_dir: str | os.PathLike[str]) -> Self:
        """The advisor of a folder of runs, which need not exist yet."""
        return cls(runs_dir)

    def recommend(
        self,
        *,
        task: str,
        input_features: dict[str, Any] | None = None,
        target: str | None = None,
        confidence: float = 0.95,
    ) -> ResourceRecommendation:
        """Recommended resources of tasks of this name; `sim[3]` means `sim`. `input_features` are ignored."""
        from flightlog.analyze.advice.advise import advise
        from flightlog.core.text import base_name

        del input_features
        share = min(max(float(confidence), AdviceLimits.min_confidence), AdviceLimits.max_confidence)
        name = base_name(task)
        try:
            past = advise(name, target=target, confidence=share, runs_dir=self._runs_dir)
        except RunNotFound as error:
            return _nothing(task, target, share, str(error))
        one = next((each for each in past.recommendations if each.task == name), None)
        if one is None:
            return _nothing(task, target, share, f"no attempt of {name} was recorded")
        return _made(task, target, share, one)


def _made(task: str, target: str | None, share: float, one: Recommendation) -> ResourceRecommendation:
    from flightlog.analyze.advice.base import memory_text

    of = one.component or task
    asked = one.recommended.else_(one.current)
    memory = None if asked.memory_bytes is None else memory_text(asked.memory_bytes)
    resources = {"cpus": asked.cpus, "memory": memory, "walltime": _clock(asked.walltime_s)}
    counts = {"records": one.attempts, "runs": one.runs, "failed": one.failed}
    evidence = {**counts, "quantile": share, "component": of, "problems": dict(one.problems)}
    return ResourceRecommendation(task, target, share, {of: 1}, {of: resources}, evidence)


def _nothing(task: str, target: str | None, share: float, reason: str) -> ResourceRecommendation:
    nothing = {"cpus": 1, "memory": None, "walltime": None}
    return ResourceRecommendation(
        task, target, share, {task: 1}, {task: nothing}, {"records": 0, "reason": reason}
    )


def _clock(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
