"""What the program was doing while workers waited for it, by its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.islands import merge, uncovered
from flightlog.analyze.moments import seconds

if TYPE_CHECKING:
    from flightlog.analyze.findings.base import Facts

NAMES = 3
"""So many names are told, those that took longest."""
LEAST_SHARE = 0.1
"""Of the time that workers waited for the program; what took less is not told."""
CHARACTERS = 60
"""So much is told of a name; what begins alike for so long counts as one."""
DEPTH = 32
"""So many levels of spans are told apart; the time of deeper ones is that of the last level."""


class ProgramSpans(NamedTuple):
    """Where the program was by the clock: side by side, spans of one name count once, those of two names
    twice.
    """

    told: dict[str, float]
    """Seconds in spans of these names, less those in spans directly inside of them; the most first."""
    around_tasks: bool
    """Whether a task came while the program was in one of those named first."""
    names: int
    """How many there are, told or not."""
    known_s: float
    """Seconds in any span, told or not."""
    unknown_s: float
    """Seconds in none."""


_ALONE = uncovered(
    "SELECT number, 0 AS name, since, until FROM up_pieces",
    """
    SELECT number, astir.since, astir.until FROM up_pieces JOIN astir
        ON astir.component = up_pieces.component AND astir.since < up_pieces.until
            AND astir.until > up_pieces.since
    """,
    "number",
)
_BESIDE = f"""
CREATE OR REPLACE TEMP TABLE beside AS
WITH RECURSIVE outside AS (
    SELECT child.span_id, 1 AS depth FROM timed AS child ANTI JOIN held USING (span_id)
        ANTI JOIN timed AS parent ON parent.span_id = child.parent_id ANTI JOIN held AS task
            ON task.span_id = child.parent_id
    UNION
    SELECT child.span_id, depth + 1 FROM timed AS child ANTI JOIN held USING (span_id)
        JOIN outside ON outside.span_id = child.parent_id WHERE depth < {DEPTH}
)
SELECT span_id, parent_id, CASE WHEN length(name) > {CHARACTERS} THEN left(name, {CHARACTERS - 1}) || '…'
    ELSE name END AS name,
    began AS since, stopped AS until
FROM timed SEMI JOIN outside USING (span_id) WHERE began < stopped
"""  # noqa: S608 - numbers of ours
_OWN = uncovered(
    "SELECT span_id, name, since, until FROM beside",
    "SELECT parent_id AS span_id, since, until FROM beside SEMI JOIN beside AS outer_ ON outer_.span_id = "
    "beside.parent_id",
    "span_id",
)
_WAITED = """
WITH moments AS (
    SELECT part, name, unnest([since, until]) AS moment, unnest([-1, 1]) AS sign
    FROM (SELECT 'own' AS part, name, since, until FROM own UNION ALL SELECT 'any', NULL, since, until
        FROM in_any
        UNION ALL SELECT 'all', NULL, since, until FROM alone)
)
SELECT part, moments.name, sum(sign * (before + least(moment, until) - since))::BIGINT AS waited
FROM moments ASOF JOIN alone ON moments.moment > alone.since GROUP BY ALL HAVING waited > 0
    ORDER BY waited DESC, moments.name
"""
_AROUND = """
WITH came AS (SELECT least(waits, began) AS moment FROM held WHERE moment IS NOT NULL)
SELECT coalesce(bool_or(moment < until), FALSE) FROM beside ASOF JOIN came ON beside.since < came.moment
    WHERE name = $1
"""


def program_spans(facts: Facts) -> ProgramSpans:
    """The spans outside of tasks, while workers were up for which no task ran or was queued."""
    connection = facts.connection
    merge(connection, "up_merged", "component", "SELECT component, since, until FROM ups")
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE up_pieces AS SELECT *, row_number() OVER () AS number FROM up_merged"
    )
    merge(connection, "alone", "name", _ALONE)
    connection.execute(_BESIDE)
    merge(connection, "own", "name", _OWN)
    merge(connection, "in_any", "name", "SELECT 0 AS name, since, until FROM own")
    found: dict[str, dict[str | None, int]] = {"own": {}, "any": {}, "all": {}}
    for part, name, waited in connection.execute(_WAITED).fetchall():
        found[part][name] = waited
    own, known, whole = found["own"], sum(found["any"].values()), sum(found["all"].values())
    told = [name for name, waited in own.items() if name is not None and waited >= LEAST_SHARE * whole][
        :NAMES
    ]
    around = told and connection.execute(_AROUND, [told[0]]).fetchall() == [(True,)]
    return ProgramSpans(
        {name: seconds(own[name]) for name in told},
        around_tasks=bool(around),
        names=len(own),
        known_s=seconds(known),
        unknown_s=seconds(whole - known),
    )
