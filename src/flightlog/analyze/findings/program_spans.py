"""What the program was doing while no task ran or was queued, by its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.moments import seconds

if TYPE_CHECKING:
    from flightlog.analyze.findings.base import Facts

NAMES = 3
"""So many names are told, those that took longest."""
LEAST_SHARE = 0.1
"""Of the time without tasks; what took less is not told."""
GAPS = 1000
"""So many stretches are looked at, the longest."""
_CHARACTERS = 60

_GAPS = """
CREATE OR REPLACE TEMP TABLE gaps AS
WITH taken AS (
    SELECT least(waits, began) AS since, coalesce(stopped, $until) AS until FROM held WHERE since IS NOT NULL
    UNION ALL SELECT $until, $until
)
SELECT greatest(max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), $start) AS begins,
    least(since, $until) AS ends
FROM taken QUALIFY begins < ends ORDER BY ends - begins DESC, begins LIMIT {most}
"""
"""`greatest` and `least` leave out what is null: before the first task it is the start of the run."""

_ALONE = """
WITH within AS (
    SELECT span_id, parent_id, left(name, {characters}) AS name, sum(least(stopped, ends) - greatest(began, begins)) AS lasted
    FROM timed ANTI JOIN held USING (span_id) JOIN gaps ON began < ends AND stopped > begins GROUP BY ALL
), own AS (
    SELECT name, greatest(0, lasted - coalesce((SELECT sum(lasted) FROM within AS child WHERE child.parent_id = parent.span_id), 0))
        AS lasted
    FROM within AS parent
)
SELECT name, sum(lasted)::BIGINT AS total FROM own GROUP BY name
HAVING total > 0 AND total >= {share} * (SELECT sum(ends - begins) FROM gaps) ORDER BY total DESC, name LIMIT {names}
"""


def program_spans(facts: Facts) -> dict[str, float]:
    """Seconds in spans of these names, less those in spans inside of them, while no task ran or was queued; the most first."""
    start, until = facts.window
    if start is None or until is None:
        return {}
    facts.connection.execute(_GAPS.format(most=GAPS), {"start": start, "until": until})
    found = facts.connection.execute(
        _ALONE.format(characters=_CHARACTERS, share=LEAST_SHARE, names=NAMES)
    ).fetchall()
    return {name: seconds(lasted) for name, lasted in found}
