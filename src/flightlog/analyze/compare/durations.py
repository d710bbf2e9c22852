"""How much a task's duration changed between two sets of runs, and how sure that is.

Tasks and spans of the two sides are matched by name and, where both know them, by arguments, and put into
blocks by DuckDB, from the tables `compared` (attempts), `sides` (run_id, side 0 or 1, run), `lookups` (cache
lookups by task) and `compared_spans`. Durations and logarithms are summed as whole numbers of billionths, so
that the same runs give the same result to the last bit, in however many threads.

Three ratios, after over before: `typical` (the mean of logarithms, with far outliers drawn in, so that a few
stuck tasks do not decide), `mean` (which they may) and `p95`. The intervals come from a bootstrap that draws
blocks of tasks next to each other in time rather than single tasks: a busy minute slows all tasks in it, and
counts as one accident. Where neighbouring blocks resemble each other, as in busy spells longer than a block,
the intervals are wider by as much. What differs from run to run is added: as measured where a side has
several runs, and never less than `min_run_deviation`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.analyze.compare.results import ArgumentSets, DurationChange, Interval, Spread, Verdict
from flightlog.analyze.limits import CompareLimits
from flightlog.analyze.tallies import grouped
from flightlog.core.stats import stand_out, student_quantile, student_tail
from flightlog.store.tables.connection import records

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


_CERTAIN = 1e6
"""Degrees of freedom of what is taken as known."""


class Block(NamedTuple):
    """Tasks next to each other in time, or pairs of them: their number and their sums."""

    tasks: int
    log_sum: float
    """Sum of the logarithms of the durations, far outliers drawn in."""
    seconds: float
    below: int
    """How many are at or below the p95 of their side."""


class Sample(Struct, frozen=True, kw_only=True):
    """The durations of one name on both sides, in blocks.

    `paired` blocks go together by position: they hold the same arguments. Their `log_sum` is 0 before, and
    after it is that of the ratios.
    """

    paired: bool
    before: Sequence[Block]
    after: Sequence[Block]
    p95_before: float | None = None
    p95_after: float | None = None
    p95_slopes: tuple[float, float] | None = None
    """How steeply the logarithm of the quantile rises around p95, a unit of probability; before and after."""
    run_offsets: Sequence[Sequence[float]] = ((), ())
    """The mean logarithm of each run, up to a constant a side: what tells how runs of one side differ."""
    runs: tuple[int, int] = (1, 1)


class Estimates(Struct, frozen=True, kw_only=True):
    """The three ratios of one name; `p95` is null where there are too few values."""

    typical: Interval
    mean: Interval
    p95: Interval | None


def estimate(sample: Sample, *, draws: int = CompareLimits.bootstrap_draws) -> Estimates:
    """The ratios of a sample. The same sample gives the same result: the draws are the same for all."""
    before, after = _total(sample.before), _total(sample.after)
    typical = after.log_sum / after.tasks - before.log_sum / before.tasks
    mean = _log(after.seconds / after.tasks) - _log(before.seconds / before.tasks)
    p95 = None
    if sample.p95_before and sample.p95_after and sample.p95_slopes is not None:
        p95 = math.log(sample.p95_after / sample.p95_before)
    few = min(len(sample.before), len(sample.after)) < CompareLimits.min_blocks
    spreads = [None] * 3 if few else _with_runs(sample, _spreads(sample, draws))
    return Estimates(
        typical=_interval(typical, spreads[0]),
        mean=_interval(mean, spreads[1]),
        p95=None if p95 is None else _interval(p95, spreads[2]),
    )


def ratio_of_runs(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """The ratio of a figure that each run has once, such as its wall time; None where it is unknown or not
    positive.

    The bounds are there where the sides have four runs together, so that their spread is known.
    """
    if not before or not after or min(*before, *after) <= 0:
        return None
    logs = [[math.log(value) for value in values] for values in (before, after)]
    point = math.fsum(logs[1]) / len(logs[1]) - math.fsum(logs[0]) / len(logs[0])
    df = len(before) + len(after) - 2
    if df < 2:
        return _interval(point, None)
    within = sum(_variance(values) * (len(values) - 1) for values in logs if len(values) > 1) / df
    sizes = 1 / len(before) + 1 / len(after)
    if within <= CompareLimits.min_run_deviation**2:
        return _interval(point, _LogSpread(CompareLimits.min_run_deviation**2 * sizes, _CERTAIN))
    return _interval(point, _LogSpread(within * sizes, df))


class _LogSpread(NamedTuple):
    """A part of the variance of the logarithm of a ratio, and the degrees of freedom it is known with."""

    variance: float
    df: float


def _with_runs(sample: Sample, tasks: Sequence[_LogSpread]) -> list[_LogSpread]:
    """The spreads of the three ratios with what differs from run to run.

    Where runs of one side differ by more than their tasks and `min_run_deviation` explain, or there are
    enough of them, the spread is that between runs, known as well as so few runs can tell it.
    """
    sizes = math.fsum(1 / count for count in sample.runs)
    assumed = _LogSpread(CompareLimits.min_run_deviation**2 * sizes, _CERTAIN)
    several = [offsets for offsets in sample.run_offsets if len(offsets) > 1]
    df = sum(len(offsets) - 1 for offsets in several)
    if df:
        between = math.fsum(_variance(offsets) * (len(offsets) - 1) for offsets in several) / df * sizes
        more = between - tasks[0].variance
        if more > assumed.variance or df >= CompareLimits.min_runs_for_spread:
            return [_LogSpread(spread.variance + max(more, assumed.variance), df) for spread in tasks]
    return [_sum_of([spread, assumed]) for spread in tasks]


def _total(blocks: Sequence[Block]) -> Block:
    tasks, logs, seconds, below = zip(*blocks, strict=True)
    return Block(sum(tasks), math.fsum(logs), math.fsum(seconds), sum(below))


def _spreads(sample: Sample, draws: int) -> list[_LogSpread]:
    """How far tasks alone spread the three ratios."""
    slopes = sample.p95_slopes or (0.0, 0.0)
    sides = [
        _draw(blocks, slope, draws, 0 if sample.paired else side)
        for side, (blocks, slope) in enumerate(zip((sample.before, sample.after), slopes, strict=True))
    ]
    sizes = [len(sample.before), len(sample.after)]
    times = _waves(sample)
    if sample.paired:
        together = ([b - a for a, b in zip(*both, strict=True)] for both in zip(*sides, strict=True))
        return [_spread(values, sizes[0], more) for values, more in zip(together, times, strict=True)]
    return [
        _sum_of([_spread(values, size, more) for values, size in zip(both, sizes, strict=True)])
        for both, more in zip(zip(*sides, strict=True), times, strict=True)
    ]


def _spread(drawn: Sequence[float], blocks: int, times: float) -> _LogSpread:
    """What draws of so many blocks spread by, where the blocks resemble each other so many times as much."""
    freedom = (blocks - 1) / times
    return _LogSpread(_variance(drawn) * times * blocks / (blocks - 1), max(1.0, freedom))


def _waves(sample: Sample) -> list[float]:
    """By how much blocks that resemble the ones before make the three ratios spread wider; 1 where they do
    not.

    A busy spell longer than a block slows several of them. Correlations are added up over ever longer
    distances, two at a time, while they stay positive (Geyer's initial sequence), and only if those of
    neighbours are more than chance.
    """
    found = []
    for residuals in zip(*(_residuals(blocks) for blocks in _series(sample)), strict=True):
        square = math.fsum(value * value for values in residuals for value in values)
        count = sum(map(len, residuals))
        if not square or count < 2 * CompareLimits.min_blocks:
            found.append(1.0)
            continue

        def alike(lag: int, residuals: tuple[list[float], ...] = residuals, square: float = square) -> float:
            pairs = (pair for values in residuals for pair in zip(values, values[lag:], strict=False))
            return sum(a * b for a, b in pairs) / square

        total, lag = 1.0 + alike(1), 2
        if total - 1.0 <= CompareLimits.autocorrelation_errors / math.sqrt(count):
            found.append(1.0)
            continue
        farthest = min(map(len, residuals)) // 2
        while lag < farthest and (pair := alike(lag) + alike(lag + 1)) > 0:
            total, lag = total + pair, lag + 2
        found.append(max(1.0, min(2 * total - 1.0, count / 8)))
    return found


def _series(sample: Sample) -> list[Sequence[Block]]:
    """What happened in order of time: each side, or the pairs of both."""
    if not sample.paired:
        return [sample.before, sample.after]
    return [
        [
            Block(b.tasks, b.log_sum, b.seconds - a.seconds, b.below - a.below)
            for a, b in zip(sample.before, sample.after, strict=True)
        ]
    ]


def _residuals(blocks: Sequence[Block]) -> list[list[float]]:
    """How far each block is off the mean, for the sums of logarithms, of seconds and of those below p95."""
    total = _total(blocks)
    return [
        [block[field] - total[field] / total.tasks * block.tasks for block in blocks] for field in (1, 2, 3)
    ]


def _draw(
    blocks: Sequence[Block], slope: float, draws: int, stream: int
) -> tuple[list[float], list[float], list[float]]:
    """Drawn again and again: the mean logarithm, the logarithm of the mean, and how far the p95 moved."""
    tasks, logs, seconds, below = zip(*blocks, strict=True)
    typical, mean, p95 = [], [], []
    for pick in _picks(len(blocks), draws, stream):
        count = sum(pick(tasks))
        typical.append(sum(pick(logs)) / count)
        mean.append(_log(sum(pick(seconds)) / count))
        p95.append(-slope * sum(pick(below)) / count if slope else 0.0)
    return typical, mean, p95


@cache
def _picks(blocks: int, draws: int, stream: int) -> list[Callable[[Sequence[float]], tuple[float, ...]]]:
    """Draws of blocks with replacement; always the same for the same numbers."""
    chance = random.Random(f"{blocks} {stream}")
    return [itemgetter(*chance.choices(range(blocks), k=blocks)) for _ in range(draws)]


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _sum_of(parts: Sequence[_LogSpread]) -> _LogSpread:
    """Independent parts together, with the degrees of freedom of Welch and Satterthwaite."""
    total = math.fsum(part.variance for part in parts)
    unsure = math.fsum(part.variance**2 / part.df for part in parts)
    return _LogSpread(total, total**2 / unsure if unsure else _CERTAIN)


def _interval(point: float, whole: _LogSpread | None) -> Interval:
    """The ratio of which this is the logarithm; with its bounds where the spread is known."""
    if whole is None:
        return Interval(ratio=_exp(point))
    error = math.sqrt(whole.variance)
    reach = error * student_quantile(0.5 + CompareLimits.confidence / 2, whole.df)
    return Interval(
        ratio=_exp(point),
        low=_exp(point - reach),
        high=_exp(point + reach),
        p=student_tail(point / error, whole.df),
    )


def log_slope(quantiles: Sequence[float]) -> float:
    """How steeply the logarithm of a quantile rises around p95, a unit of probability."""
    return (_log(quantiles[-1]) - _log(quantiles[0])) / (_AROUND_P95[-1] - _AROUND_P95[0])


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


def _exp(value: float) -> float:
    return math.exp(min(700.0, value))


_AROUND_P95 = (0.92, 0.95, 0.98)


class MatchKey(NamedTuple):
    """What is compared with its like."""

    kind: str
    """`task` or `span`."""
    name: str
    cached: bool
    """Tasks that found all their results in a cache, and spans in them, are compared among themselves."""


class Matched(NamedTuple):
    """One name on both sides, or on one of them."""

    before: Spread | None
    after: Spread | None
    pairs: int | None
    """Tasks matched by arguments; None where they were not."""
    shared: float | None
    """The share of the sets of arguments that both sides have, 0 to 1; None where a side recorded none."""
    sample: Sample | None


_NAMED = """
CREATE OR REPLACE TEMP TABLE named AS
SELECT (row_number() OVER (ORDER BY kind, name, cached))::INTEGER AS key, kind, name, cached FROM (
    SELECT 'task' AS kind, task AS name FROM compared GROUP BY task
    UNION ALL SELECT 'span', name FROM compared_spans GROUP BY name
), (SELECT unnest([false, true]) AS cached)
"""
"""A number for every name: grouping by numbers takes a tenth of the time."""

_FOUND = """
CREATE OR REPLACE TEMP TABLE found AS
SELECT side, run, key, CASE WHEN digest IS NOT NULL THEN hash(key, digest) END AS args, began, id, seconds,
    CAST(round_even(least(seconds, 9e9) * 1e9, 0) AS BIGINT) AS ns,
    CAST(round_even(ln(greatest(seconds, 1e-9)) * 1e9, 0) AS BIGINT) AS log9
FROM (
    SELECT sides.side, sides.run, 'task' AS kind, task AS name,
        coalesce(hits > 0 AND misses = 0, false) AS cached,
        args_digest AS digest, coalesce(started_at, ended_at) AS began, hash(task_id, attempt) AS id,
            duration_s AS seconds
    FROM compared JOIN sides USING (run_id) LEFT JOIN lookups USING (run_id, task_id)
    WHERE state = 'completed'
    UNION ALL
    SELECT sides.side, sides.run, 'span', name, spared.span_id IS NOT NULL, NULL, started_at,
        hash(spans.span_id), duration_s
    FROM compared_spans AS spans JOIN sides USING (run_id) LEFT JOIN (
        SELECT run_id, span_id FROM compared JOIN lookups USING (run_id, task_id)
        WHERE span_id IS NOT NULL AND hits > 0 AND misses = 0
    ) AS spared ON spared.run_id = spans.run_id AND spared.span_id = spans.parent_id
) JOIN named USING (kind, name, cached)
WHERE seconds >= 0 AND isfinite(seconds)
"""
_REPEATED = "SELECT 1 FROM found WHERE args IS NOT NULL GROUP BY side, run, args HAVING count(*) > 1 LIMIT 1"
_TOOK = (
    "CREATE OR REPLACE TEMP VIEW took AS SELECT *, CASE WHEN args IS NOT NULL THEN 1 END AS nth FROM found"
)
_TOOK_REPEATED = """
CREATE OR REPLACE TEMP VIEW took AS
SELECT * FROM numbered UNION ALL SELECT *, NULL FROM found WHERE args IS NULL
"""
_NUMBERED = """
CREATE OR REPLACE TEMP TABLE numbered AS
SELECT *, row_number() OVER (PARTITION BY side, run, args ORDER BY began, id) AS nth FROM found
    WHERE args IS NOT NULL
"""
"""`nth` numbers the tasks of a run with the same arguments; where no run has any twice, that takes no
sorting."""

_SPREAD = """
SELECT key, side, count(*) AS count, sum(ns) / 1e9 AS total_s, total_s / count(*) AS mean_s,
    quantile_cont(seconds, 0.5) AS p50_s, quantile_cont(seconds, 0.95) AS p95_s, max(seconds) AS max_s
FROM found GROUP BY key, side
"""

_SHARED = """
SELECT key, count(*) FILTER (first < last) / count(*) FROM (
    SELECT any_value(key) AS key, min(side) AS first, max(side) AS last FROM found WHERE args IS NOT NULL
        GROUP BY args
) GROUP BY key HAVING min(first) < max(last)
"""
"""Of the tasks that are compared: where the cache answered one half, the other half may have had other
arguments."""

_KEYED = """
CREATE OR REPLACE TEMP TABLE keyed AS
SELECT args, nth, any_value(key) AS key,
    min(began) FILTER (side = 1) AS began,
    sum(log9) FILTER (side = 0) / count(*) FILTER (side = 0) AS y0,
    sum(log9) FILTER (side = 1) / count(*) FILTER (side = 1) AS y1,
    sum(ns) FILTER (side = 0) / count(*) FILTER (side = 0) AS ns0,
    sum(ns) FILTER (side = 1) / count(*) FILTER (side = 1) AS ns1
FROM took WHERE args IS NOT NULL GROUP BY args, nth HAVING min(side) < max(side)
"""

_PAIRING = """
CREATE OR REPLACE TEMP TABLE pairing AS
WITH sizes AS (
    SELECT key, min(tasks) AS fewer, count(*) AS sides FROM (
        SELECT key, side, sum(tasks) / count(*) AS tasks FROM (
            SELECT key, side, run, count(*) AS tasks FROM found GROUP BY key, side, run
        ) GROUP BY key, side
    ) GROUP BY key
), met AS (
    SELECT key, count(*) AS pairs, min(args) < max(args) AS several FROM keyed GROUP BY key
)
SELECT key, coalesce(several AND 2 * pairs >= fewer, false) AS paired, pairs
FROM sizes LEFT JOIN met USING (key) WHERE sides = 2
"""
"""Pairs serve where half of the tasks have a partner; with one set of arguments there is no spread to take
out."""

_UNITS = """
CREATE OR REPLACE TEMP TABLE units AS
SELECT key, 2 AS part, 0 AS run, began, args AS id,
    CAST(round_even(y1 - y0, 0) AS BIGINT) AS log9, CAST(round_even(ns0, 0) AS BIGINT) AS ns0,
    CAST(round_even(ns1, 0) AS BIGINT) AS ns1
FROM keyed JOIN pairing USING (key) WHERE paired
UNION ALL
SELECT key, side, run, began, id, log9, CASE side WHEN 0 THEN ns END, CASE side WHEN 1 THEN ns END
FROM found JOIN pairing USING (key) WHERE NOT paired
"""

_FENCE = CompareLimits.outlier_reach / 1.349
"""By how many quartile ranges the bounds lie from the median: 1.349 deviations are one."""
_FENCES = f"""
CREATE OR REPLACE TEMP TABLE fences AS
SELECT key, part, min(lows[2] - {_FENCE} * (lows[3] - lows[1])) OVER of_both AS low,
    max(lows[2] + {_FENCE} * (lows[3] - lows[1])) OVER of_both AS high, q0, q1, count
FROM (
    SELECT key, part, quantile_cont(log9, [0.25, 0.5, 0.75]) AS lows, count(*) AS count,
        quantile_cont(ns0, {list(_AROUND_P95)}) AS q0, quantile_cont(ns1, {list(_AROUND_P95)}) AS q1
    FROM units GROUP BY key, part
) WINDOW of_both AS (PARTITION BY key)
"""  # noqa: S608 - constants
"""Outliers of both sides are drawn in to the same bounds, the wider of each: where the bounds are off by
chance, they are so for both, and the ratio is none the worse. Bounds of each side alone would make skewed
noise look like a change.
"""

_CLIPPED = "CAST(round_even(least(greatest({value}, low), high), 0) AS BIGINT)"

_BLOCKS = f"""
SELECT key, part, block, count(*), sum({_CLIPPED.format(value="log9")}) / 1e9,
    coalesce(sum(ns0), 0) / 1e9, coalesce(sum(ns1), 0) / 1e9,
    count(*) FILTER (ns0 <= q0[2]), count(*) FILTER (ns1 <= q1[2])
FROM (
    SELECT key, part, log9, ns0, ns1, ntile({CompareLimits.bootstrap_blocks}) OVER (PARTITION BY key, part
        ORDER BY run, began, id) AS block
    FROM units
) JOIN fences USING (key, part) GROUP BY key, part, block ORDER BY key, part, block
"""  # noqa: S608 - constants

_OFFSETS = f"""
SELECT key, side, run, CASE WHEN any_value(paired) THEN median(log9 - y)
    ELSE sum({_CLIPPED.format(value="log9")}) / count(*) END / 1e9
FROM took JOIN pairing USING (key)
    LEFT JOIN (SELECT *, unnest([0, 1]) AS side, unnest([y0, y1]) AS y FROM keyed) AS keyed
        USING (key, args, nth, side)
    JOIN fences USING (key)
WHERE part = CASE WHEN paired THEN 2 ELSE side END AND (NOT paired OR y IS NOT NULL)
GROUP BY key, side, run ORDER BY key, side, run
"""  # noqa: S608 - constants
"""Each run's mean logarithm; of pairs, its median around the mean of its side for the same arguments."""


def match(tables: RunTables, runs: tuple[int, int]) -> dict[MatchKey, Matched]:
    """Every name with its durations on both sides; `runs` is how many runs each side has."""
    tables.execute(_NAMED)
    tables.execute(_FOUND)
    if tables.execute(_REPEATED).fetchone() is None:
        tables.execute(_TOOK)
    else:
        tables.execute(_NUMBERED)
        tables.execute(_TOOK_REPEATED)
    for statement in (_KEYED, _PAIRING, _UNITS, _FENCES):
        tables.execute(statement)
    spreads = {(row.pop("key"), row.pop("side")): Spread(**row) for row in records(tables.execute(_SPREAD))}
    samples = _samples(tables, runs)
    pairs = dict(tables.execute("SELECT key, pairs FROM pairing WHERE paired").fetchall())
    shared = dict(tables.execute(_SHARED).fetchall())
    return {
        MatchKey(*name): Matched(
            spreads.get((key, 0)), spreads.get((key, 1)), pairs.get(key), shared.get(key), samples.get(key)
        )
        for key, *name in tables.execute("SELECT key, kind, name, cached FROM named ORDER BY key").fetchall()
        if not spreads.keys().isdisjoint({(key, 0), (key, 1)})
    }


def _samples(tables: RunTables, runs: tuple[int, int]) -> dict[int, Sample]:
    """Every name that both sides have, by its number."""
    parts = grouped(((key, part), figures) for key, part, _, *figures in tables.execute(_BLOCKS).fetchall())
    offsets: dict[tuple[int, int], list[float]] = {}
    if max(runs) > 1:
        offsets = grouped(
            ((key, side), offset) for key, side, _, offset in tables.execute(_OFFSETS).fetchall()
        )
    rows = tables.execute("SELECT key, part, q0, q1, count FROM fences").fetchall()
    tails = {(key, part): tail for key, part, *tail in rows}
    return {
        key: _sample(key, parts, tails, [offsets.get((key, side), []) for side in (0, 1)], runs)
        for key in dict.fromkeys(key for key, _ in parts)
    }


def _sample(
    key: int,
    parts: Mapping[tuple[int, int], list[list[Any]]],
    tails: Mapping[tuple[int, int], list[Any]],
    offsets: Sequence[Sequence[float]],
    runs: tuple[int, int],
) -> Sample:
    paired = (key, 2) in parts
    old, new = ((key, 2), (key, 2)) if paired else ((key, 0), (key, 1))
    before = [Block(n, 0.0 if paired else y, s0, b0) for n, y, s0, _, b0, _ in parts[old]]
    after = [Block(n, y, s1, b1) for n, y, _, s1, _, b1 in parts[new]]
    quantiles = (tails[old][0], tails[new][1])
    fewest = min(tails[old][2], tails[new][2])
    known = fewest >= CompareLimits.min_values_for_p95 and all(values[0] > 0 for values in quantiles)
    return Sample(
        paired=paired,
        before=before,
        after=after,
        run_offsets=offsets,
        runs=runs,
        p95_before=quantiles[0][1] / 1e9 if known else None,
        p95_after=quantiles[1][1] / 1e9 if known else None,
        p95_slopes=(log_slope(quantiles[0]), log_slope(quantiles[1])) if known else None,
    )


_SETS = """
CREATE OR REPLACE TEMP TABLE argument_sets AS
SELECT any_value(task) AS name, hash(task, args_digest) AS "set", min(side) AS first, max(side) AS last
FROM compared JOIN sides USING (run_id) WHERE args_digest IS NOT NULL GROUP BY "set"
"""
_IN_BOTH = """
SELECT name, count(*) FILTER (first < last) AS both, count(*) FILTER (first = 1) AS appeared,
    count(*) FILTER (last = 0) AS vanished
FROM argument_sets GROUP BY name HAVING min(first) < max(last) AND appeared + vanished > 0
ORDER BY appeared + vanished DESC, name
"""
_ONE_SIDED = """
SELECT task, side, min(run_id || chr(0) || task_id, $few)
FROM compared JOIN sides USING (run_id) JOIN argument_sets ON "set" = hash(task, args_digest)
WHERE first = last AND args_digest IS NOT NULL AND list_contains($names::VARCHAR[], task) GROUP BY task, side
"""


_ARGS = """
SELECT run_id || chr(0) || task_id AS ref, any_value(args)::VARCHAR FROM task_events
WHERE list_contains($1::VARCHAR[], task_id) AND args IS NOT NULL GROUP BY ref
"""


def compare_arguments(tables: RunTables) -> list[ArgumentSets]:
    """Sets of arguments that only one side has, of names that both have; the names with the most such sets
    first.

    Reads the tables `compared`, `sides` and `task_events`. Arguments that nobody recorded are in no set.
    """
    tables.execute(_SETS)
    differ = tables.records(_IN_BOTH)
    if not differ:
        return []
    few = {"few": CompareLimits.max_argument_examples, "names": [row["name"] for row in differ]}
    refs = {(name, side): found for name, side, found in tables.execute(_ONE_SIDED, few).fetchall()}
    wanted = sorted({ref.partition("\0")[2] for found in refs.values() for ref in found})
    args = {ref: msgspec.json.decode(text) if text else None for ref, text in tables.rows(_ARGS, [wanted])}

    def examples(name: str, side: int) -> list[Any]:
        return [args[ref] for ref in refs.get((name, side), ()) if ref in args]

    return [
        ArgumentSets(
            **row, appeared_examples=examples(row["name"], 1), vanished_examples=examples(row["name"], 0)
        )
        for row in differ
    ]


_WEIGHTS = (0.9, 0.1)
"""How the chance of a false alarm is spent on the typical ratio and on the mean's."""


def judge(
    matched: dict[MatchKey, Matched], *, draws: int = CompareLimits.bootstrap_draws
) -> list[DurationChange]:
    """The verdict on every name that both sides have: changes that stand out first, then by the time they
    take.
    """
    samples = {key: found.sample for key, found in matched.items() if found.sample is not None}
    both = sorted(samples, key=lambda key: (-_time(matched[key]), key))
    many = CompareLimits.max_names_with_all_draws
    estimates = {key: estimate(samples[key], draws=draws) for key in both[:many]}
    for key in both[many:]:
        estimates[key] = estimate(samples[key], draws=CompareLimits.fewer_bootstrap_draws)
    known = {key: found for key, found in estimates.items() if found.typical.p is not None}
    called = _out_of_noise({key: _p_value(found) for key, found in known.items()})
    far = _out_of_noise({key: _p(found.p95) for key, found in known.items() if found.p95 is not None})
    alone = [key for key in matched if _has_twin(key, matched)]
    found = [
        _duration(key, matched[key], estimates.get(key), key in called, key in far) for key in (*both, *alone)
    ]
    return sorted(found, key=lambda change: change.verdict not in {"slower", "faster"})


def _out_of_noise(p_values: dict[MatchKey, float]) -> set[MatchKey]:
    out = stand_out(p_values.values(), CompareLimits.false_alarm_rate)
    return {key for key, stands_out in zip(p_values, out, strict=True) if stands_out}


def _has_twin(key: MatchKey, matched: dict[MatchKey, Matched]) -> bool:
    """Whether one side alone has it, and the other has the name with, or without, the cache's help."""
    return matched[key].sample is None and key._replace(cached=not key.cached) in matched


def _time(found: Matched) -> float:
    return sum(spread.total_s for spread in (found.before, found.after) if spread is not None)


def _p(interval: Interval | None) -> float:
    return 1.0 if interval is None or interval.p is None else interval.p


def _p_value(found: Estimates) -> float:
    return min(1.0, _p(found.typical) / _WEIGHTS[0], _p(found.mean) / _WEIGHTS[1])


def _duration(
    key: MatchKey, found: Matched, estimates: Estimates | None, called: bool, far: bool
) -> DurationChange:
    typical, mean, p95 = (None, None, None) if estimates is None else msgspec.structs.astuple(estimates)
    verdict: Verdict = "inconclusive"
    by: Literal["typical", "mean"] | None = None
    if typical is not None and mean is not None:
        by_typical = _p(typical) / _WEIGHTS[0] <= _p(mean) / _WEIGHTS[1] or _is_large(typical)
        deciding = typical if by_typical else mean
        if called and _is_large(deciding):
            verdict, by = "slower" if deciding.ratio > 1 else "faster", "typical" if by_typical else "mean"
        elif (
            None not in (typical.low, typical.high)
            and max(1 / typical.low, typical.high) <= CompareLimits.max_inconclusive_ratio
        ):
            verdict = "no change"
    return DurationChange(
        kind="span" if key.kind == "span" else "task",
        name=key.name,
        cached=key.cached,
        verdict=verdict,
        by=by,
        before=found.before,
        after=found.after,
        pairs=found.pairs if estimates is not None else None,
        shared_arguments=found.shared if estimates is not None else None,
        typical=typical,
        mean=mean,
        p95=p95,
        p95_stands_out=far and p95 is not None and _is_large(p95),
    )


def _is_large(interval: Interval) -> bool:
    """Whether a change is worth being called one."""
    return abs(math.log(interval.ratio)) >= math.log1p(CompareLimits.min_change)
