"""Spans by name and by path (wall time, busy time and a span's own time), and calibration loops.

A calibration loop is read from the names of its spans: `calibration.job` around `calibration.iteration`, and
in each iteration `algorithm.ask`, `simulation.submit_batch`, `simulation.gather` and `algorithm.tell`. Of
their metrics `n_params`, `n_trials` and `min_loss` are read, and `total_trials` of the iteration.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.analyze.report.interval_tables import scalar
from flightlog.analyze.tallies import Least, MetricStats, MetricTally, copied
from flightlog.core.intervals import Intervals, length, overlap, union
from flightlog.core.stats import Distribution, distribution, exact_sum
from flightlog.core.time import moment, nanoseconds, seconds
from flightlog.events import Event, SpanEvent, SpanOpened
from flightlog.events.base import Json

if TYPE_CHECKING:
    import duckdb

IN_FLIGHT = 100
NAMES = 1000
"""How many of each a summary lists; counts beside the lists are of all."""


class SpanName(Struct, frozen=True, kw_only=True):
    """All ended spans of one name."""

    count: int
    errors: int
    total_s: float
    """Sum of the durations; spans inside others of the same name, or beside them, count each."""
    wall_s: float
    """Time on the clock during which at least one was open."""
    self_s: float
    """Sum of the durations, less the time that spans inside them were open."""
    mean: float | None
    min: float | None
    p50: float | None
    p95: float | None
    max: float | None
    metrics: dict[str, MetricStats]


class SpanInFlight(Struct, frozen=True, kw_only=True):
    """A span that was seen open, and whose end was not recorded."""

    name: str
    span_id: str
    parent_id: str | None
    tags: Json
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""


class SpanSummary(Struct, frozen=True, kw_only=True):
    """All spans. Nothing counts twice in `wall_s` and `busy_s`, however spans nest or run side by side."""

    count: int
    errors: int
    open_in_flight: int
    wall_s: float
    """Time on the clock during which at least one span was open."""
    busy_s: float
    """Sum of the spans' own times: nested spans count once, spans side by side each."""
    names: int
    by_name: dict[str, SpanName]
    in_flight: list[SpanInFlight]


class SpanTally:
    """Takes the events of the stream `spans`, in any order; 24 bytes stay of a span, and its metrics.

    Children come before their parents where one process writes; those that do not are settled by `settle`,
    with a second pass over the same events.
    """

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._names: dict[str, SpanNameTally] = {}
        self._open: dict[str, SpanOpened] = {}
        self._inside: dict[str, list[tuple[int, int]]] = {}

    def add(self, event: Event) -> None:
        """Take one event; other kinds are ignored."""
        if isinstance(event, SpanEvent):
            self._ended(event)
        elif isinstance(event, SpanOpened):
            known = self._open.get(event.span_id)
            if known is None or event.elapsed_s > known.elapsed_s:
                self._open[event.span_id] = event

    def _ended(self, event: SpanEvent) -> None:
        self._open.pop(event.span_id, None)
        name = self._names.get(event.name)
        if name is None:
            name = self._names[event.name] = SpanNameTally()
        name.count += 1
        name.errors += event.status == "error"
        if event.metrics:
            name.metrics.take(event.metrics, (event.timestamp, event.writer, event.seq))
        if event.duration_s is None:
            return
        name.durations.append(event.duration_s)
        lasted = nanoseconds(event.duration_s)
        name.own += lasted
        start = moment(event.timestamp)
        if start is None:
            return
        name.times.add(start, start + lasted)
        inside = self._inside.pop(event.span_id, None)
        if inside is not None:
            name.own -= _covered(inside, (start, start + lasted))
        if event.parent_id is not None and event.parent_id != self._root:
            self._inside.setdefault(event.parent_id, []).append((start, start + lasted))

    def needs_settling(self) -> bool:
        """Whether a second pass over the events could change anything."""
        return bool(self._open or self._inside)

    def settle(self, events: Iterable[Event]) -> None:
        """Look at the events again for spans that ended before they were known to be open, or to be
        parents.
        """
        late = {span_id: _Parent() for span_id in self._inside}
        for event in events:
            if not isinstance(event, SpanEvent):
                continue
            self._open.pop(event.span_id, None)
            start = moment(event.timestamp)
            if start is None or event.duration_s is None:
                continue
            time = (start, start + nanoseconds(event.duration_s))
            if event.parent_id in late:
                late[event.parent_id].children.append(time)
            parent = late.get(event.span_id)
            if parent is not None and parent.time is None and event.name in self._names:
                parent.name, parent.time, parent.before = event.name, time, len(parent.children)
        for parent in late.values():
            if parent.time is not None:
                # What came before the parent has been taken off already, and may overlap what came after.
                taken = _covered(parent.children[: parent.before], parent.time)
                self._names[parent.name].own += taken - _covered(parent.children, parent.time)
        self._inside = {}

    def summary(self, until: int | None) -> SpanSummary:
        """The result, after all events and `settle`."""
        oldest: Least[SpanOpened] = Least(IN_FLIGHT)
        for opened in self._open.values():
            oldest.add((opened.timestamp, opened.name, opened.span_id), opened)
        return SpanSummary(
            count=sum(name.count for name in self._names.values()),
            errors=sum(name.errors for name in self._names.values()),
            open_in_flight=len(self._open),
            wall_s=seconds(
                length(union(span for name in self._names.values() for span in name.times.union()))
            ),
            busy_s=seconds(sum(name.own for name in self._names.values())),
            names=len(self._names),
            by_name={
                name: self._names[name].summary(length(self._names[name].times.union()))
                for name in listed_names(self._names)
            },
            in_flight=[_in_flight(opened, until) for opened in oldest.items()],
        )


class SpanNameTally:
    """The tally of one span name."""

    def __init__(self) -> None:
        self.count = self.errors = self.own = 0
        self.durations = array("d")
        self.times = Intervals()
        self.metrics = MetricTally()

    def summary(self, wall: int) -> SpanName:
        """The result; `wall` is for how many nanoseconds one or more were open."""
        spread = self.spread()
        return SpanName(
            count=self.count,
            errors=self.errors,
            total_s=spread.total,
            wall_s=seconds(wall),
            self_s=seconds(self.own),
            mean=spread.mean,
            min=spread.min,
            p50=spread.p50,
            p95=spread.p95,
            max=spread.max,
            metrics=self.metrics.stats(),
        )

    def spread(self) -> Distribution:
        """Of all durations."""
        return distribution(self.durations)


def listed_names(names: Mapping[str, SpanNameTally]) -> list[str]:
    """The names that a summary lists, in order: those with the most spans."""
    return sorted(sorted(names, key=lambda name: (-names[name].count, name))[:NAMES])


class _Parent:
    """A span of which some children were read after it."""

    __slots__ = ("before", "children", "name", "time")

    def __init__(self) -> None:
        self.name = ""
        self.time: tuple[int, int] | None = None
        self.before = 0
        self.children: list[tuple[int, int]] = []


def _covered(inside: list[tuple[int, int]], time: tuple[int, int]) -> int:
    """How much of a span its children cover."""
    return length(overlap(union(inside), [time]))


def _in_flight(opened: SpanOpened, until: int | None) -> SpanInFlight:
    start = moment(opened.timestamp)
    elapsed = opened.elapsed_s if start is None or until is None else seconds(max(0, until - start))
    return copied(SpanInFlight, opened, since=opened.timestamp, elapsed_s=elapsed)


NODES = 1000
"""How many paths a tree lists, the longest first; `paths` is of all."""
DEEPEST = 100
"""Deeper spans are left out, and counted in `unplaced`."""


class SpanNode(Struct, frozen=True, kw_only=True):
    """All spans with one path of names, inside tasks of one name or outside of any.

    A span still open counts up to when it was last seen.
    """

    task: str | None
    """Name of the task they ran in; null outside of tasks."""
    path: list[str]
    """Names from the outermost span to this one."""
    count: int
    open: int
    errors: int
    total_s: float
    """Sum of their durations: those side by side count each."""
    wall_s: float
    """Time on the clock during which at least one was open."""
    self_s: float
    """Sum of their durations less what spans inside them cover: those side by side cover a moment once."""
    busy_s: float
    """Their own time and that of everything inside them: nested spans count once, those side by side each."""


class SpanTree(Struct, frozen=True, kw_only=True):
    """The paths, parents before what is inside them, siblings by busy time."""

    paths: int
    unplaced: int
    """Spans that lead to no outermost span: deeper than a hundred, or in a circle."""
    nodes: list[SpanNode]


def span_tree(connection: duckdb.DuckDBPyConnection) -> SpanTree:
    """The tree of one run's spans, from its `span_intervals` and `attempt_intervals` tables."""
    connection.execute(_PLACED, {"deepest": DEEPEST})
    found = connection.execute(_NODES)
    rows = found.fetchmany(NODES)
    busy = {(task, tuple(path)): 0 for task, path, *_ in rows}
    paths, batch = 0, rows
    while batch:  # names may hold anything: there can be as many paths as spans
        paths += len(batch)
        for task, path, *numbers in batch:
            for depth in range(1, len(path) + 1):
                key = (task, tuple(path[:depth]))
                if key in busy:
                    busy[key] += int(numbers[5])
        batch = found.fetchmany(NODES)
    nodes = [
        SpanNode(
            task=task,
            path=list(path),
            count=count,
            open=opened,
            errors=errors,
            total_s=seconds(int(total)),
            wall_s=seconds(int(wall)),
            self_s=seconds(int(own)),
            busy_s=seconds(busy[task, tuple(path)]),
        )
        for task, path, count, opened, errors, total, wall, own in rows
    ]
    unplaced = scalar(
        connection, "SELECT (SELECT count(*) FROM span_intervals) - (SELECT count(*) FROM placed)"
    )
    return SpanTree(paths=paths, unplaced=unplaced, nodes=_in_order(nodes))


_PLACED = """
CREATE OR REPLACE TEMP TABLE placed AS
WITH RECURSIVE down AS (
    SELECT child.rowid AS span, child.span_id, inside.task, [child.name] AS path, 1 AS depth
    FROM span_intervals AS child
        LEFT JOIN span_intervals AS parent ON parent.span_id = child.parent_id
        LEFT JOIN (SELECT span_id, any_value(task) AS task FROM attempt_intervals GROUP BY ALL) AS inside
            ON inside.span_id = child.parent_id
    WHERE parent.span_id IS NULL
    UNION ALL
    SELECT child.rowid, child.span_id, down.task, list_append(down.path, child.name), down.depth + 1
    FROM down JOIN span_intervals AS child ON child.parent_id = down.span_id
    WHERE down.depth < $deepest
)
SELECT span, task, path FROM down
"""

_NODES = """
WITH timed_by_path AS (
    SELECT placed.task, placed.path, span_intervals."open", span_intervals.status, span_intervals.lasted,
        span_intervals.own, span_intervals.began,
        span_intervals.stopped,
        max(span_intervals.stopped) OVER (
            PARTITION BY placed.task, placed.path ORDER BY span_intervals.began, span_intervals.stopped
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM placed JOIN span_intervals ON span_intervals.rowid = placed.span
)
SELECT task, path, count(*), count(*) FILTER ("open"), count(*) FILTER (status = 'error'),
    coalesce(sum(lasted), 0) AS total,
    coalesce(sum(greatest(0, stopped - greatest(began, coalesce(reached, began)))), 0),
    coalesce(sum(own), 0)
FROM timed_by_path GROUP BY task, path ORDER BY total DESC, task, path
"""


def _in_order(nodes: list[SpanNode]) -> list[SpanNode]:
    """Parents first, then what is inside them; siblings by busy time, then by name."""
    busy = {(node.task, tuple(node.path)): node.busy_s for node in nodes}

    def place(node: SpanNode) -> tuple[object, ...]:
        steps = (tuple(node.path[:depth]) for depth in range(1, len(node.path) + 1))
        return (
            node.task is not None,
            node.task or "",
            *((-busy.get((node.task, step), node.busy_s), step[-1]) for step in steps),
        )

    return sorted(nodes, key=place)


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
