"""The sets of arguments that tasks of one name had on two sides: which both have, and which only one has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flightlog.analyze.changes import ArgumentSets

if TYPE_CHECKING:
    import duckdb

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


def compare_arguments(connection: duckdb.DuckDBPyConnection) -> list[ArgumentSets]:
    """Sets of arguments that only one side has, of names that both have; the names with the most such sets
    first.

    Reads the tables `compared`, `sides` and `task_events`. Arguments that nobody recorded are in no set.
    """
    connection.execute(_SETS)
    differ = [row for row in connection.execute(_IN_BOTH).fetchall() if row[2] or row[3]]
    if not differ:
        return []
    few = {"few": EXAMPLES, "names": [name for name, *_ in differ]}
    refs = {(name, side): found for name, side, found in connection.execute(_ONE_SIDED, few).fetchall()}
    wanted = sorted({ref.partition("\0")[2] for found in refs.values() for ref in found})
    args = {
        ref: msgspec.json.decode(text) if text else None
        for ref, text in connection.execute(
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
