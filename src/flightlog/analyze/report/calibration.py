"""Calibration loops, read from the names of their spans: iterations, their phases, trials and the best loss
so far.

The spans are `calibration.job` around `calibration.iteration`, and in each iteration `algorithm.ask`,
`simulation.submit_batch`, `simulation.gather` and `algorithm.tell`. Of their metrics `n_params`, `n_trials`
and `min_loss` are read, and `total_trials` of the iteration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.core.stats import exact_sum
from flightlog.core.time import nanoseconds, seconds

if TYPE_CHECKING:
    import duckdb

JOB, ITERATION = "calibration.job", "calibration.iteration"
PHASES = {
    "algorithm.ask": "ask",
    "simulation.submit_batch": "submit",
    "simulation.gather": "gather",
    "algorithm.tell": "tell",
}
LISTED = 1000
"""How many iterations of a loop are listed, the last ones; figures of the loop are of all."""


class Iteration(Struct, frozen=True, kw_only=True):
    """One turn of a loop; null where a phase or metric was not recorded."""

    iteration: str
    """As it is tagged, else its place in the loop, from 1."""
    started_at: str
    open: bool
    duration_s: float
    ask_s: float | None
    submit_s: float | None
    gather_s: float | None
    tell_s: float | None
    trials: int | None
    min_loss: float | None
    """The best loss of this turn."""
    best_loss: float | None
    """The best so far."""


class CalibrationLoop(Struct, frozen=True, kw_only=True):
    """One calibration job. The phases and `other_s`, the rest of the iterations, add up to their duration."""

    job: str | None
    """Its tag `job_id`; null where there is none."""
    iterations: int
    open: bool
    duration_s: float
    """Of the job's span; without one, from the first iteration's start to the last one's end, as far as those
    are known."""
    iterations_s: float
    ask_s: float
    submit_s: float
    gather_s: float
    tell_s: float
    other_s: float
    trials: int | None
    trials_per_minute: float | None
    """Over the duration of the loop."""
    best_loss: float | None
    best_iteration: str | None
    listed: list[Iteration]


def calibration_loops(connection: duckdb.DuckDBPyConnection) -> list[CalibrationLoop]:
    """The loops of one run in order of their start, from its `span_intervals` table and `spans`; none where
    no span is so named.
    """
    there = connection.execute("SELECT 1 FROM span_intervals WHERE name = $1 LIMIT 1", [ITERATION]).fetchone()
    if there is None:
        return []
    turns: dict[str, list[_Turn]] = {}
    by_id: dict[str, _Turn] = {}
    jobs: dict[str, tuple[str | None, float, bool]] = {}
    rows = connection.execute(
        """
        SELECT name, span_id, coalesce(parent_id, ''), strftime(started_at, '%Y-%m-%dT%H:%M:%S.%fZ'),
            at_ns(started_at), duration_s, "open", tags, metrics
        FROM spans WHERE name IN (SELECT unnest($1)) AND started_at IS NOT NULL AND duration_s IS NOT NULL
        ORDER BY started_at, span_id
        """,
        [[JOB, ITERATION, *PHASES]],
    ).fetchall()
    for name, span_id, parent, started_at, at, duration_s, opened, tags, _ in rows:
        if name == JOB:
            job_id = _json(tags).get("job_id")
            jobs[span_id] = (None if job_id is None else str(job_id), duration_s, opened)
        elif name == ITERATION:
            turn = by_id[span_id] = _Turn(started_at, at, duration_s, opened, _json(tags))
            turns.setdefault(parent, []).append(turn)
    for name, span_id, *_, metrics in rows:  # what the iteration itself says of its trials comes first
        if name == ITERATION:
            by_id[span_id].measured(_json(metrics), "total_trials")
    for name, _, parent, _, _, duration_s, _, _, metrics in rows:
        if name in PHASES and parent in by_id:
            by_id[parent].phases.setdefault(PHASES[name], []).append(duration_s)
            by_id[parent].measured(_json(metrics), "n_trials")
    loops = [(found[0].started_at, _loop(found, jobs.get(parent))) for parent, found in turns.items()]
    return [loop for _, loop in sorted(loops, key=lambda one: (one[0], one[1].job or ""))]


class _Turn:
    def __init__(
        self, started_at: str, at: int | None, duration_s: float, opened: bool, tags: Mapping[str, Any]
    ) -> None:
        self.started_at, self.at, self.duration_s, self.open = started_at, at, duration_s, opened
        self.tag = tags.get("iteration")
        self.phases: dict[str, list[float]] = {}
        self.trials: int | None = None
        self.loss: float | None = None

    def measured(self, metrics: Mapping[str, Any], trials: str) -> None:
        """Take what a span of this turn measured."""
        number, loss = _number(metrics.get(trials)), _number(metrics.get("min_loss"))
        if number is not None and self.trials is None:
            self.trials = int(number)
        if loss is not None:
            self.loss = loss if self.loss is None else min(self.loss, loss)

    def phase(self, name: str) -> float | None:
        return exact_sum(self.phases[name]) if name in self.phases else None


def _loop(turns: list[_Turn], job: tuple[str | None, float, bool] | None) -> CalibrationLoop:
    times = [(turn.at, turn.at + nanoseconds(turn.duration_s)) for turn in turns if turn.at is not None]
    whole = exact_sum(turn.duration_s for turn in turns)
    from_to = seconds(max(end for _, end in times) - min(start for start, _ in times)) if times else whole
    duration_s = job[1] if job is not None else from_to
    listed: list[Iteration] = []
    best: float | None = None
    best_in: str | None = None
    for place, turn in enumerate(turns, 1):
        name = str(place if turn.tag is None else turn.tag)
        if turn.loss is not None and (best is None or turn.loss < best):
            best, best_in = turn.loss, name
        listed.append(
            Iteration(
                iteration=name,
                started_at=turn.started_at,
                open=turn.open,
                duration_s=turn.duration_s,
                ask_s=turn.phase("ask"),
                submit_s=turn.phase("submit"),
                gather_s=turn.phase("gather"),
                tell_s=turn.phase("tell"),
                trials=turn.trials,
                min_loss=turn.loss,
                best_loss=best,
            )
        )
    spent = {name: exact_sum(turn.phase(name) or 0.0 for turn in turns) for name in PHASES.values()}
    known = [turn.trials for turn in turns if turn.trials is not None]
    trials = sum(known) if known else None
    return CalibrationLoop(
        job=job[0] if job is not None else None,
        iterations=len(turns),
        open=job[2] if job is not None else any(turn.open for turn in turns),
        duration_s=duration_s,
        iterations_s=whole,
        ask_s=spent["ask"],
        submit_s=spent["submit"],
        gather_s=spent["gather"],
        tell_s=spent["tell"],
        other_s=exact_sum([whole, *(-value for value in spent.values())]),
        trials=trials,
        trials_per_minute=trials * 60 / duration_s if trials is not None and duration_s > 0 else None,
        best_loss=best,
        best_iteration=best_in,
        listed=listed[-LISTED:],
    )


def _json(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    """A number that can be reckoned with; one beyond the range of floats is none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
