"""How many tasks ran and how many waited, and how many workers were up, over the time of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.drawn.frame import Frame, means
from flightlog.analyze.drawn.results import Chart, Series
from flightlog.units import format_duration

if TYPE_CHECKING:
    import duckdb

STRETCHES = 240
"""At most so many points a line."""


def load(
    connection: duckdb.DuckDBPyConnection, frame: Frame, ups: Mapping[str, Sequence[tuple[int, int]]]
) -> Chart | None:
    """Means over stretches of time, at the middle of each, from the table `drawn` and from when workers were
    up.

    What ran is left out where it is not known when, what waited where nothing did; None where nothing is
    left.
    """
    stretches = frame.stretches(STRETCHES)
    at = stretches.middles_s()
    series = []
    [(placed,)] = connection.execute("SELECT count(since) FROM drawn").fetchall()
    if placed:
        running = means(connection, "SELECT since, until FROM drawn WHERE since IS NOT NULL", stretches)
        series.append(Series(label="running", at_s=at, value=list(running)))
    waiting = means(
        connection, "SELECT waits AS since, waited AS until FROM drawn WHERE waits < waited", stretches
    )
    if any(waiting):
        series.append(Series(label="waiting", at_s=at, value=list(waiting)))
    lives = [
        (min(max(moment - frame.start, 0), frame.length) for moment in life)
        for spans in ups.values()
        for life in spans
    ]
    if lives:
        columns = [list(column) for column in zip(*lives, strict=True)]
        up = means(
            connection,
            "SELECT unnest($1::BIGINT[]) AS since, unnest($2::BIGINT[]) AS until",
            stretches,
            *columns,
        )
        series.append(Series(label="workers up", at_s=at, value=list(up)))
    if not series:
        return None
    each = format_duration(stretches.width / 1e9)
    return Chart(
        since=frame.since,
        length_s=frame.length_s,
        unit="count",
        series=series,
        notes=[f"Each point is the mean over {each}."],
    )
