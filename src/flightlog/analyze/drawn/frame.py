"""The time that is drawn, and its stretches of equal length: whole nanoseconds, so that nothing is lost
between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.moments import SECOND, timestamp_of

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.ground import Ground

_EARLIEST = 365 * 86400 * SECOND
"""What begins before 1971 by a duration of centuries is noise."""
TEXT_CHARACTERS = 200
"""So much is drawn of a name or an id."""


class Frame(NamedTuple):
    """From `start`, nanoseconds since 1970, on for `length` nanoseconds, one at least."""

    start: int
    length: int

    @property
    def since(self) -> str:
        """When it begins."""
        return timestamp_of(self.start)

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.length / SECOND

    @property
    def until(self) -> int:
        """When it ends, nanoseconds since 1970."""
        return self.start + self.length

    def stretches(self, most: int) -> Stretches:
        """At most so many stretches of equal length; the last one may be shorter."""
        width = -(-self.length // most)
        return Stretches(width, -(-self.length // width), self.length)


class Stretches(NamedTuple):
    """`number` stretches of `width` nanoseconds from 0 to `length`: a moment t lies in number t // width."""

    width: int
    number: int
    length: int

    def begins(self, number: int) -> int:
        """When it begins; the one after the last begins at the end."""
        return min(number * self.width, self.length)

    def middles_s(self) -> list[float]:
        """The middle of each, in seconds."""
        return [(self.begins(n) + self.begins(n + 1)) / 2 / SECOND for n in range(self.number)]


def frame_of(ground: Ground) -> Frame | None:
    """The time of the run; where its start or end is unknown, that of its attempts and spans. None where all
    is unknown.
    """
    start, until = ground.window
    if start is None or until is None or until <= start:
        [(first, last)] = ground.connection.execute(
            """
            SELECT min(began), max(stopped) FROM (
                SELECT began, stopped FROM held UNION ALL SELECT began, stopped FROM timed
            )
            """
        ).fetchall()
        start = max(first, _EARLIEST) if start is None and first is not None else start
        until = max((moment for moment in (until, last) if moment is not None), default=None)
    if start is None:
        return None
    return Frame(start, max(1, until - start if until is not None else 1))


def means(
    connection: duckdb.DuckDBPyConnection, intervals: str, stretches: Stretches, *parameters: object
) -> list[float]:
    """How many of these intervals run at once, on average over each stretch.

    `intervals` is a select statement of `since` and `until`, nanoseconds from 0 to the end of the stretches.
    Up to a moment t an interval has run for t - since, less t - until once it is over: so sums by stretch are
    enough.
    """
    found = {
        number: (int(running), int(total))
        for number, running, total in connection.execute(
            f"""
            SELECT moment // {stretches.width} AS number, sum(step), sum(step * moment::HUGEINT) FROM (
                SELECT unnest([since, until]) AS moment, unnest([1, -1]) AS step FROM ({intervals})
            ) GROUP BY number
            """,  # noqa: S608 - a number, and a statement of ours
            parameters,
        ).fetchall()
    }
    values, running, total, before = [], 0, 0, 0
    for number in range(stretches.number):
        steps, moments = found.get(number, (0, 0))
        running, total = running + steps, total + moments
        end = stretches.begins(number + 1)
        done = running * end - total
        values.append((done - before) / (end - stretches.begins(number)))
        before = done
    return values


def cut(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """The text, or its beginning where it is longer than is drawn."""
    return text if len(text) <= characters else text[: characters - 1] + "…"
