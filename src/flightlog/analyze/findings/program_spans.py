"""What the program was doing while no task ran or was queued, by its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.islands import merge
from flightlog.analyze.moments import seconds

if TYPE_CHECKING:
    from flightlog.analyze.findings.base import Facts

NAMES = 3
"""So many names are told, those that took longest."""
LEAST_SHARE = 0.1
"""Of the time without tasks; what took less is not told."""
CHARACTERS = 60
"""So much is told of a name; what begins alike for so long counts as one."""


class ProgramSpans(NamedTuple):
    """Where the program was by the clock: side by side, spans of one name count once, those of two names twice."""

    told: dict[str, float]
    """Seconds in spans of these names, less those in spans inside of them; the most first."""
    around_tasks: bool
    """Whether a task came while the program was in one of those named first."""
    names: int
    """How many there are, told or not."""
    covered: bool
    """Whether half of the time at least was in one of them, told or not."""


_BESIDE = f"""
CREATE OR REPLACE TEMP TABLE beside AS
SELECT span_id, parent_id, CASE WHEN length(name) > {CHARACTERS} THEN left(name, {CHARACTERS - 1}) || '…' ELSE name END AS name,
    greatest(began, $start) AS since, least(stopped, $until) AS until
FROM timed ANTI JOIN held USING (span_id) WHERE began < $until AND stopped > $start AND began < stopped
"""  # noqa: S608 - numbers of ours
_OWN = """
WITH steps AS ( -- what is inside of each, and its end, before which it is alone once more
    SELECT outer_.span_id, inner_.since, inner_.until
    FROM beside AS inner_ JOIN beside AS outer_ ON outer_.span_id = inner_.parent_id AND outer_.span_id <> inner_.span_id
    UNION ALL SELECT span_id, until, until FROM beside
), alone AS (
    SELECT beside.name, least(steps.since, beside.until) AS until, greatest(beside.since, max(steps.until) OVER (
        PARTITION BY span_id ORDER BY steps.since, steps.until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )) AS since
    FROM steps JOIN beside USING (span_id)
)
SELECT name, since, until FROM alone WHERE since < until
"""
_IDLE = """
WITH moments AS (
    SELECT part, name, unnest([since, until]) AS moment, unnest([-1, 1]) AS sign
    FROM (SELECT 'own' AS part, name, since, until FROM own UNION ALL SELECT 'whole', name, since, until FROM beside
        UNION ALL SELECT 'run', NULL, $start, $until)
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY since) AS number FROM stirred
), stirring AS (
    SELECT part, name, sign, moment, coalesce(before + least(moment, until) - since, 0) AS stirred, coalesce(number, 0) AS begun
    FROM moments ASOF LEFT JOIN numbered ON moments.moment > numbered.since
)
SELECT part, name, sum(sign * (moment - stirred))::BIGINT AS idle, sum(sign * begun) > 0 AS around
FROM stirring GROUP BY part, name ORDER BY idle DESC, name
"""


def program_spans(facts: Facts) -> ProgramSpans:
    """The spans outside of tasks, while no task ran or was queued: the gaps of `astir`, which knows when any did."""
    start, until = facts.window
    if start is None or until is None:
        return ProgramSpans({}, around_tasks=False, names=0, covered=False)
    moments = {"start": start, "until": until}
    merge(facts.connection, "stirred", "everywhere", "SELECT 0 AS everywhere, since, until FROM astir")
    facts.connection.execute(_BESIDE, moments)
    merge(facts.connection, "own", "name", _OWN)
    own, around, idle = {}, {}, 0
    for part, name, alone, begun in facts.connection.execute(_IDLE, moments).fetchall():
        if part == "run":
            idle = alone
        elif part == "own":
            own[name] = alone
        else:
            around[name] = begun
    own = {name: alone for name, alone in own.items() if alone > 0}
    told = [name for name, alone in own.items() if alone >= LEAST_SHARE * idle][:NAMES]
    return ProgramSpans(
        {name: seconds(own[name]) for name in told},
        around_tasks=bool(told) and around[told[0]],
        names=len(own),
        covered=2 * sum(own.values()) >= idle > 0,
    )
