"""Tasks and spans of two sides, matched by name and, where both know them, by arguments; put into blocks by
DuckDB.

Reads the tables `compared` (attempts), `sides` (run_id, side 0 or 1, run), `lookups` (cache lookups by task)
and `compared_spans`. Durations and logarithms are summed as whole numbers of billionths, so that the same
runs give the same result to the last bit, in however many threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.analyze.compare.bootstrap import LEAST_FOR_P95, Block, Sample, log_slope
from flightlog.analyze.compare.results import ArgumentSets, Spread

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

BLOCKS = 40
"""Blocks of tasks next to each other in time: enough to tell their spread, and the same work for any number
of tasks."""
REACH = 2.0
"""How many standard deviations from the median an outlier may count, by the quartiles of the logarithms."""
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
SELECT kind, name, cached, side, count, total, q[1], q[2], most FROM (
    SELECT key, side, count(*) AS count, sum(ns) / 1e9 AS total, quantile_cont(seconds, [0.5, 0.95]) AS q,
        max(seconds) AS most
    FROM found GROUP BY key, side
) JOIN named USING (key)
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

_FENCES = f"""
CREATE OR REPLACE TEMP TABLE fences AS
SELECT key, part, min(lows[2] - {REACH / 1.349} * (lows[3] - lows[1])) OVER of_both AS low,
    max(lows[2] + {REACH / 1.349} * (lows[3] - lows[1])) OVER of_both AS high, q0, q1, count
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
    SELECT key, part, log9, ns0, ns1, ntile({BLOCKS}) OVER (PARTITION BY key, part
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
    spreads: dict[MatchKey, dict[int, Spread]] = {}
    for kind, name, cached, side, count, total, p50, p95, most in tables.execute(_SPREAD).fetchall():
        spread = Spread(count=count, total_s=total, mean_s=total / count, p50_s=p50, p95_s=p95, max_s=most)
        spreads.setdefault(MatchKey(kind, name, cached), {})[side] = spread
    keys = {
        number: MatchKey(*key)
        for number, *key in tables.execute("SELECT key, kind, name, cached FROM named").fetchall()
    }
    samples = _samples(tables, runs, keys)
    pairs = {
        keys[key]: pairs
        for key, pairs in tables.execute("SELECT key, pairs FROM pairing WHERE paired").fetchall()
    }
    shared = {keys[key]: share for key, share in tables.execute(_SHARED).fetchall()}
    return {
        key: Matched(found.get(0), found.get(1), pairs.get(key), shared.get(key), samples.get(key))
        for key, found in sorted(spreads.items())
    }


def _samples(
    tables: RunTables, runs: tuple[int, int], keys: Mapping[int, MatchKey]
) -> dict[MatchKey, Sample]:
    parts: dict[MatchKey, dict[int, list[tuple[Any, ...]]]] = {}
    for key, part, _, *figures in tables.execute(_BLOCKS).fetchall():
        parts.setdefault(keys[key], {}).setdefault(part, []).append(tuple(figures))
    offsets: dict[MatchKey, tuple[list[float], list[float]]] = {}
    if max(runs) > 1:
        for key, side, _, offset in tables.execute(_OFFSETS).fetchall():
            offsets.setdefault(keys[key], ([], []))[side].append(offset)
    tails: dict[MatchKey, dict[int, tuple[Any, ...]]] = {}
    for key, part, *tail in tables.execute("SELECT key, part, q0, q1, count FROM fences").fetchall():
        tails.setdefault(keys[key], {})[part] = tuple(tail)
    return {
        key: _sample(blocks, tails[key], offsets.get(key, ([], [])), runs) for key, blocks in parts.items()
    }


def _sample(
    parts: dict[int, list[tuple[Any, ...]]],
    tails: dict[int, tuple[Any, ...]],
    offsets: tuple[list[float], list[float]],
    runs: tuple[int, int],
) -> Sample:
    paired = 2 in parts
    if paired:
        before = [Block(n, 0.0, s0, b0) for n, _, s0, _, b0, _ in parts[2]]
        after = [Block(n, y, s1, b1) for n, y, _, s1, _, b1 in parts[2]]
        quantiles = (tails[2][0], tails[2][1])
        fewest = tails[2][2]
    else:
        before = [Block(n, y, s0, b0) for n, y, s0, _, b0, _ in parts[0]]
        after = [Block(n, y, s1, b1) for n, y, _, s1, _, b1 in parts[1]]
        quantiles = (tails[0][0], tails[1][1])
        fewest = min(tails[0][2], tails[1][2])
    known = fewest >= LEAST_FOR_P95 and all(values[0] > 0 for values in quantiles)
    return Sample(
        paired=paired,
        before=before,
        after=after,
        run_offsets=offsets,
        runs=runs,
        p95_before=quantiles[0][1] / 1e9 if known else None,
        p95_after=quantiles[1][1] / 1e9 if known else None,
        p95_slopes=(log_slope(quantiles[0], _AROUND_P95), log_slope(quantiles[1], _AROUND_P95))
        if known
        else None,
    )


EXAMPLES = 3

_SETS = """
CREATE OR REPLACE TEMP TABLE argument_sets AS
SELECT any_value(task) AS name, hash(task, args_digest) AS "set", min(side) AS first, max(side) AS last
FROM compared JOIN sides USING (run_id) WHERE args_digest IS NOT NULL GROUP BY "set"
"""
_IN_BOTH = """
SELECT name, count(*) FILTER (first < last) AS shared, count(*) FILTER (first = 1) AS appeared,
    count(*) FILTER (last = 0) AS vanished
FROM argument_sets GROUP BY name HAVING min(first) < max(last) ORDER BY count(*) - shared DESC, name
"""
_ONE_SIDED = """
SELECT task, side, min(run_id || chr(0) || task_id, $few)
FROM compared JOIN sides USING (run_id) JOIN argument_sets ON "set" = hash(task, args_digest)
WHERE first = last AND args_digest IS NOT NULL AND list_contains($names::VARCHAR[], task) GROUP BY task, side
"""


def compare_arguments(tables: RunTables) -> list[ArgumentSets]:
    """Sets of arguments that only one side has, of names that both have; the names with the most such sets
    first.

    Reads the tables `compared`, `sides` and `task_events`. Arguments that nobody recorded are in no set.
    """
    tables.execute(_SETS)
    differ = [row for row in tables.execute(_IN_BOTH).fetchall() if row[2] or row[3]]
    if not differ:
        return []
    few = {"few": EXAMPLES, "names": [name for name, *_ in differ]}
    refs = {(name, side): found for name, side, found in tables.execute(_ONE_SIDED, few).fetchall()}
    wanted = sorted({ref.partition("\0")[2] for found in refs.values() for ref in found})
    args = {
        ref: msgspec.json.decode(text) if text else None
        for ref, text in tables.execute(
            "SELECT run_id || chr(0) || task_id AS ref, any_value(args)::VARCHAR FROM task_events "
            "WHERE list_contains($1::VARCHAR[], task_id) AND args IS NOT NULL GROUP BY ref",
            [wanted],
        ).fetchall()
    }
    found = []
    for name, both, appeared, vanished in differ:
        new, gone = ([args[ref] for ref in refs.get((name, side), ()) if ref in args] for side in (1, 0))
        found.append(
            ArgumentSets(
                name=name,
                both=both,
                appeared=appeared,
                vanished=vanished,
                appeared_examples=new,
                vanished_examples=gone,
            )
        )
    return found
