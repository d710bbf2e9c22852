"""Cache lookups and artifacts: what was reused, what was computed and why, and which files the run left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.metrics import total_sql
from flightlog.events import ArtifactRecorded, CacheLookup

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class CacheName(Struct, frozen=True, kw_only=True):
    """The lookups of one function."""

    hits: int
    misses: int
    bypassed: int


class CacheSummary(Struct, frozen=True, kw_only=True):
    """All lookups. A cache that was switched off could not hit: that is `bypassed`, neither lookup nor
    miss.
    """

    lookups: int
    hits: int
    misses: int
    bypassed: int
    hit_rate: float | None
    """Hits over lookups; null where there was none."""
    saved_s: float | None
    """What the reused results took to compute, less what reusing them took; null where no hit knows."""
    miss_reasons: dict[str, int]
    by_name: dict[str, CacheName]
    """Of functions whose name was recorded."""


_NAMES = """
SELECT task, count(*) FILTER (result = 'hit') AS hits, count(*) FILTER (result = 'miss') AS misses,
    count(*) FILTER (result = 'bypass') AS bypassed
FROM cache WHERE event = 'cache_lookup' GROUP BY task ORDER BY task
"""
_REASONS = """
SELECT reason, count(*) FROM cache WHERE event = 'cache_lookup' AND result = 'miss' AND reason <> ''
GROUP BY reason ORDER BY reason
"""
_SAVED = f"""
SELECT {total_sql("(saved_s - coalesce(duration_s, 0))", "result = 'hit'")} FROM cache
WHERE event = 'cache_lookup'
"""  # noqa: S608 - constants


def cache_summary(tables: RunTables) -> CacheSummary:
    """All lookups, from `cache`."""
    there = CacheLookup.stream in tables.streams
    names = {row.pop("task"): CacheName(**row) for row in tables.records(_NAMES)} if there else {}
    hits, misses, bypassed = (
        sum(getattr(one, kind) for one in names.values()) for kind in ("hits", "misses", "bypassed")
    )
    lookups = hits + misses
    return CacheSummary(
        lookups=lookups,
        hits=hits,
        misses=misses,
        bypassed=bypassed,
        hit_rate=hits / lookups if lookups else None,
        saved_s=tables.scalar(_SAVED) if hits else None,
        miss_reasons=dict(tables.execute(_REASONS).fetchall()) if misses else {},
        by_name={name: one for name, one in names.items() if name is not None},
    )


class Artifact(Struct, frozen=True, kw_only=True):
    """One output, as it was recorded last."""

    name: str
    uri: str
    kind: str | None
    size_bytes: int | None
    sha256: str | None
    timestamp: str
    error: str | None


class ArtifactSummary(Struct, frozen=True, kw_only=True):
    """All outputs, each address once: a file that was recorded again counts as it was then."""

    count: int
    size_bytes: int | None
    """Sum of the known sizes; null where none is known."""
    unknown_sizes: int
    listed: list[Artifact]
    """The latest ones, oldest first."""


_LATEST = """
FROM (
    FROM artifacts WHERE event = 'artifact_recorded' QUALIFY row_number() OVER (
        PARTITION BY uri ORDER BY "timestamp" DESC, writer DESC, seq DESC, coalesce(sha256, '') DESC
    ) = 1
)
"""
_WHOLE = f"SELECT count(*), sum(size_bytes), count(*) - count(size_bytes) {_LATEST}"
_NEWEST = f"""
SELECT name, uri, kind, size_bytes, sha256, error,
    strftime("timestamp", '%Y-%m-%dT%H:%M:%S.%fZ') AS "timestamp"
{_LATEST} ORDER BY "timestamp" DESC, writer DESC, seq DESC, uri DESC LIMIT {ReportLimits.max_listed_artifacts}
"""


def artifact_summary(tables: RunTables) -> ArtifactSummary:
    """All outputs, from `artifacts`."""
    if ArtifactRecorded.stream not in tables.streams:
        return ArtifactSummary(count=0, size_bytes=None, unknown_sizes=0, listed=[])
    [(count, size, unknown)] = tables.execute(_WHOLE).fetchall()
    listed = [Artifact(**row) for row in reversed(tables.records(_NEWEST))]
    return ArtifactSummary(
        count=count, size_bytes=None if size is None else int(size), unknown_sizes=unknown, listed=listed
    )
